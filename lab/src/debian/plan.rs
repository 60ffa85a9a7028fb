//! What apt-get says it would do, read before it may do it.

use anyhow::{Result, bail};

/// Refuses a plan (the output of `apt-get --simulate install`) that would remove, downgrade or
/// replace a package of the machine: the lab adds tools to a machine, it does not change it.
pub(super) fn only_adds(simulation: &str) -> Result<()> {
    let changed: Vec<&str> = simulation.lines().filter_map(changed_package).collect();
    if !changed.is_empty() {
        bail!(
            "installing the lab's tools would change {} package(s) that are on this machine already: {}. The lab does \
             not do that by itself. Bring the machine up to date (apt-get update && apt-get upgrade) and try again, or \
             use a fresh Debian 12 machine.",
            changed.len(),
            changed.join(" ")
        );
    }
    Ok(())
}

/// `Remv NAME [OLD]` removes; `Inst NAME [OLD] (NEW ..)` replaces; `Inst NAME (NEW ..)` adds.
fn changed_package(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (verb, name) = (words.next()?, words.next()?);
    let replaces = words.next().is_some_and(|word| word.starts_with('['));
    match verb {
        "Remv" | "Purg" => Some(name),
        "Inst" if replaces => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_fine_changes_are_not() {
        let adds =
            "Inst mmdebstrap (1.3.5 Debian:x [all])\nConf mmdebstrap (1.3.5 Debian:x [all])\n";
        assert!(only_adds(adds).is_ok());
        let changes = "Inst libc6 [2.36-9] (2.43-7 Debian:testing [amd64])\nRemv gdb [13.1-3]\nInst cpio (2.13 Debian:x)\n";
        let error = only_adds(changes).unwrap_err().to_string();
        assert!(error.contains("change 2 package(s)") && error.contains("libc6 gdb"), "{error}");
    }
}
