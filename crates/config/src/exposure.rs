//! `noticeSeconds`: how long before a move programs learn of it.

use super::given::Given;
use super::source::Mistakes;
use ledger::{Exposure, Settings};

/// The longest notice: meanwhile a better placement waits.
const MOST_NOTICE_SECONDS: u32 = 300;

pub(super) fn read(given: &Given<'_>, notice: &mut u32) -> Result<(), Mistakes> {
    let text = given.text()?;
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MOST_NOTICE_SECONDS);
    *notice = seconds.ok_or_else(|| {
        given.wrong(format!("{text:?} is no number of seconds from 0 to {MOST_NOTICE_SECONDS}"))
    })?;
    Ok(())
}

pub(super) fn check(settings: &Settings) -> Result<(), &'static str> {
    if settings.notice_seconds > 0 && settings.expose_cpus != Exposure::File {
        return Err("a notice is given in files: it needs exposeCPUs: file");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use ledger::{Exposure, Settings};
    use machines::synthetic::Machine;

    fn with(more: &str) -> Result<Settings, String> {
        let topology = "pack:1 core:4".parse::<Machine>().unwrap().topology().unwrap();
        let text = format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{more}");
        let config = Config::parse("test", &text).map_err(|error| error.to_string())?;
        config.resolve(&topology).map_err(|error| error.to_string())
    }

    #[test]
    fn a_notice_needs_files() {
        let followed = with("exposeCPUs: file\nnoticeSeconds: 5\n").unwrap();
        assert_eq!((followed.expose_cpus, followed.notice_seconds), (Exposure::File, 5));
        for (text, why) in [
            (
                "exposeCPUs: environment\nnoticeSeconds: 5\n",
                "a notice is given in files: it needs exposeCPUs: file",
            ),
            (
                "exposeCPUs: file\nnoticeSeconds: soon\n",
                "\"soon\" is no number of seconds from 0 to 300",
            ),
            (
                "exposeCPUs: file\nnoticeSeconds: 301\n",
                "\"301\" is no number of seconds from 0 to 300",
            ),
        ] {
            let refused = with(text).unwrap_err();
            assert!(refused.contains(&format!("line 4: noticeSeconds: {why}")), "{refused}");
        }
    }
}
