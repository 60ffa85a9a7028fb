//! `strict: true`: a container runs as decided or not at all.
//!
//! The runtime asks for approval after all plugins have answered. The daemon refuses if another
//! plugin has changed the CPUs, or if its own answer was late or lost and the runtime would go on
//! without it.

use cpuset::CpuSet;
use edge::Refusal;
use ledger::{ContainerId, Ledger, Policy, Stance};
use nri::Capabilities;
use wording::short_id;

/// Whether the CPUs that the runtime is about to set are the decided ones. An error has the container's name.
pub(super) fn validate(
    ledger: &Ledger,
    container: &ContainerId,
    set: Option<CpuSet>,
) -> Result<(), (String, Refusal)> {
    if ledger.settings().policy == Policy::None || ledger.stance() != Stance::Assign {
        return Ok(());
    }
    let (subject, why) = match ledger.target(container) {
        Some(target) if set == Some(target.setting.cpus()) => return Ok(()),
        Some(target) => {
            let decided = target.setting.cpus();
            let set = described(set);
            let cpus = wording::cpus(decided);
            let were = wording::agree(decided, "was", "were");
            let why = format!(
                "{cpus} {were} decided for this container, but it would run on {set}: another NRI plugin \
                 sets its CPUs too, or our answer was lost"
            );
            (target.subject.to_string(), why)
        }
        None if ledger.is_left_alone(container) => return Ok(()),
        None => {
            let why = "no CPUs were decided for this container: our answer was lost or came too late. Trying \
                       again is safe";
            (format!("container {}", short_id(&container.0)), why.to_owned())
        }
    };
    Err((subject, Refusal(format!("strict: {why}"))))
}

fn described(set: Option<CpuSet>) -> String {
    set.map_or_else(|| "any".to_owned(), wording::cpus)
}

/// A warning, if `strict` cannot be kept with this runtime.
pub(super) fn cannot_promise(capabilities: &Capabilities) -> Option<String> {
    let version = match capabilities.nri {
        _ if capabilities.validation => return None,
        Some(version) => format!("NRI {version}"),
        None => "an NRI version that is not known".to_owned(),
    };
    Some(format!(
        "strict: true cannot be kept with this runtime: it has {version}, and asks for approval of containers only from \
         0.10 on (containerd 2.2, CRI-O 1.34). A container that is created while this plugin is away or late runs on any \
         CPUs until the plugin is back, and another plugin may change what was decided"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nri::Runtime;

    #[test]
    fn a_runtime_without_validation_leads_to_a_warning() {
        for (name, version, expected) in [
            ("containerd", "v1.7.24", Some("NRI 0.6.1")),
            ("containerd", "v2.1.9", Some("NRI 0.8.0")),
            ("cri-o", "1.33.0", Some("NRI 0.9.1")),
            ("dockerd", "29", Some("not known")),
            ("containerd", "v2.2.0", None),
            ("cri-o", "1.36.1", None),
        ] {
            let runtime =
                Runtime { name: name.into(), version: version.into(), nri_version: String::new() };
            let capabilities = Capabilities::of(&runtime);
            match (cannot_promise(&capabilities), expected) {
                (Some(warning), Some(text)) => assert!(warning.contains(text), "{warning}"),
                (warning, text) => assert_eq!(warning.as_deref(), text, "{name} {version}"),
            }
        }
    }
}
