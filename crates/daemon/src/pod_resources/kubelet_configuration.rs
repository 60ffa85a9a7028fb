//! The policy in force as a KubeletConfiguration, for programs that read it from a file.

use ledger::{Policy, Settings};
use std::fmt::Write as _;

/// The file's text. Amounts of reserved CPUs are shown as the CPUs that they mean on this machine.
pub(super) fn text(settings: &Settings) -> String {
    let placement = &settings.placement;
    let manager = &placement.topology_manager;
    let cpu_options = placement.options.enabled().map(|name| (name, "true".to_owned()));
    let mut text = String::from(
        "# Written by nri-cpu-manager: the policy in force, renewed with it.\n\
         apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
    );
    let _ = writeln!(text, "cpuManagerPolicy: {}", settings.policy.name());
    if settings.policy == Policy::Static {
        write_map("cpuManagerPolicyOptions", cpu_options, &mut text);
    }
    let _ = writeln!(text, "topologyManagerPolicy: {}", manager.policy.name());
    let _ = writeln!(text, "topologyManagerScope: {}", manager.scope.name());
    write_map("topologyManagerPolicyOptions", manager.changed_options(), &mut text);
    if !placement.reserved.is_empty() {
        let _ = writeln!(text, "reservedSystemCPUs: \"{}\"", placement.reserved);
    }
    text
}

/// Names and values that need no quotes but those of a string; nothing if there are none.
fn write_map(key: &str, pairs: impl Iterator<Item = (&'static str, String)>, text: &mut String) {
    let mut pairs = pairs.peekable();
    if pairs.peek().is_some() {
        let _ = writeln!(text, "{key}:");
    }
    for (name, value) in pairs {
        let _ = writeln!(text, "  {name}: \"{value}\"");
    }
}

#[cfg(test)]
mod tests {
    use config::Config;
    use ledger::{Policy, Settings};
    use machines::synthetic::Machine;

    /// The file is also a configuration of the plugin.
    #[test]
    fn the_file_means_the_settings_that_it_was_made_from() {
        let machine = Machine { sockets: 2, cores: 8, ..Machine::default() }.topology().unwrap();
        for (text, expect) in [
            ("cpuManagerPolicy: none\n", "cpuManagerPolicy: none\ntopologyManagerPolicy: none\n"),
            (
                "cpuManagerPolicy: static\nsystemReserved: {cpu: 1500m}\n",
                "cpuManagerPolicy: static\ntopologyManagerPolicy: none\n",
            ),
            (
                "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n\
                 cpuManagerPolicyOptions: {full-pcpus-only: true, strict-cpu-reservation: 1}\n\
                 topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n\
                 topologyManagerPolicyOptions: {prefer-closest-numa-nodes: true, max-allowable-numa-nodes: 9}\n",
                "cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  full-pcpus-only: \"true\"\n  \
                 strict-cpu-reservation: \"true\"\ntopologyManagerPolicy: restricted\n",
            ),
        ] {
            let resolved =
                |text: &str| Config::parse("c", text).unwrap().resolve(&machine).unwrap();
            let settings = resolved(text);
            let written = super::text(&settings);
            assert!(written.contains(expect), "{written}");
            let (header, fields) = written.split_once("kind: KubeletConfiguration\n").unwrap();
            assert!(header.ends_with("\napiVersion: kubelet.config.k8s.io/v1beta1\n"), "{header}");
            assert_eq!(resolved(fields), settings);
        }
    }

    #[test]
    fn without_reserved_cpus_there_is_no_list() {
        let settings = Settings { policy: Policy::None, ..Settings::default() };
        assert!(!super::text(&settings).contains("reserved"));
    }
}
