//! The overlay `kernel-exclusivity` needs its privileges: with less, the plugin falls back to
//! another mechanism and reports what is missing.

use lab::daemonset::Confinement;
use lab::manifests::Manifests;
use lab::manifests::types::ContainerSpec;
use lab::scenario::{exclusive, refusals, shared, views};
use lab::step::{Outcome, Step};

use crate::part::Part;

// Bits of `linux/capability.h`.
const SYS_ADMIN: u64 = 1 << 21;
const SYS_NICE: u64 = 1 << 23;

/// On a machine with eight CPUs.
pub(crate) fn parts() -> [Part; 3] {
    let full = Manifests::of("kernel-exclusivity").unwrap().edited("\"0-1\"", "\"0\"").unwrap();
    let mut without_capability = full.clone();
    let container = container(&mut without_capability);
    container.security_context.capabilities.add.retain(|added| added != "SYS_ADMIN");
    let mut read_only = full.clone();
    let mounts = &mut self::container(&mut read_only).volume_mounts;
    mounts.iter_mut().filter(|m| m.name == "cgroup").for_each(|m| m.read_only = true);
    let missing = "the capability SYS_ADMIN is missing";
    [
        part("with its privileges", full, SYS_ADMIN | SYS_NICE, "0,3-7", ""),
        part("without SYS_ADMIN", without_capability, SYS_NICE, "0-7", missing),
        part(
            "with a read-only cgroup mount",
            read_only,
            SYS_ADMIN | SYS_NICE,
            "0-7",
            "/sys/fs/cgroup cannot be written",
        ),
    ]
}

fn container(manifests: &mut Manifests) -> &mut ContainerSpec {
    &mut manifests.pod_mut().containers[0]
}

/// The plugin of these manifests has these capabilities and logs `says`; a busy host process may
/// run on `service`.
fn part(
    name: &str,
    manifests: Manifests,
    capabilities: u64,
    service: &'static str,
    says: &'static str,
) -> Part {
    let steps = vec![
        Step::StartDaemonSet(Box::new(manifests)),
        Step::Run(shared("web")),
        Step::RunBusyOnHost("service".into()),
        Step::Run(exclusive("db", 2)),
        Step::View,
        Step::Confinement,
        Step::Log,
    ];
    Part::new(name, steps, move |outcomes| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let [.., Outcome::Confinement(confinement), Outcome::Text(log)] = outcomes else {
            panic!("no confinement, or no log");
        };
        println!("{confinement:?}");
        let view = views(outcomes)[0];
        // Containers are pinned in each case.
        assert_eq!(view.disagreements(), [""; 0]);
        assert_eq!((view.allowed("db"), view.allowed("web")), ("1-2", "0,3-7"));
        // Only the kernel keeps host processes away.
        assert_eq!(view.busy("service").0, service, "{log}");
        assert!(log.contains(says), "{log}");
        let expected = Confinement {
            capabilities,
            bounding: capabilities,
            no_new_privileges: true,
            seccomp: 2,
            // The mode on every host: files can be written, the directory cannot.
            cgroup_mode: 0o555,
            cgroup_namespace: true,
            ..confinement.clone()
        };
        assert_eq!(*confinement, expected);
    })
}
