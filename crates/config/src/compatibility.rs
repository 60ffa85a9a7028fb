//! `compatibility`: runtimes whose annotations mean here what they mean there.

use super::given::Given;
use super::source::Mistakes;
use super::values::Text;

const CRIO: &str = "crio";

/// The list is one value: an override that leaves out a runtime switches it off.
pub(super) fn read(given: &Given<'_>, reads_crio: &mut bool) -> Result<(), Mistakes> {
    let runtimes: Vec<Text> = given.parse()?;
    if let Some(Text(other)) = runtimes.iter().find(|Text(runtime)| runtime != CRIO) {
        return Err(given.wrong(wording::unknown(other, &[CRIO])).into());
    }
    *reads_crio = !runtimes.is_empty();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn with(text: &str) -> Result<bool, String> {
        let config = Config::parse("c.yaml", text).map_err(|error| error.to_string())?;
        Ok(config.values.settings.reads_crio)
    }

    #[test]
    fn annotations_of_listed_runtimes_are_read() {
        assert_eq!(with(""), Ok(false));
        assert_eq!(with("compatibility: []\n"), Ok(false));
        assert_eq!(with("compatibility: [crio]\n"), Ok(true));
        for text in ["compatibility: [cri-o]\n", "compatibility: [crio, docker]\n"] {
            let refused = with(text).unwrap_err();
            assert!(refused.contains("line 1: compatibility: "), "{refused}");
            assert!(refused.contains(" is unknown, expected crio"), "{refused}");
        }
        assert!(with("compatibility: crio\n").is_err());
    }
}
