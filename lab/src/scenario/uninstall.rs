//! The plugin is removed, then `manifests/release` is applied: all cgroups must be as before the
//! plugin.
//!
//! [`Removal::reason`] lists the allowed differences; any other fails. Before the release, the same
//! comparison must fail.

use cpuset::CpuSet;

use super::script::Script;
use super::shape::Shape;
use super::{exclusive, guaranteed};
use crate::cgroup_snapshot::{
    ATTRIBUTE, CPUS, CgroupContent, CgroupSnapshot, Difference, EFFECTIVE, QUOTA, WEIGHT,
};
use crate::pod::{Container, Pod};
use crate::step::Step;

/// Seconds for the plugin to take over the pods that were there before it.
const SORTED_OUT: u64 = 15;

/// Seconds for the kernel to return the CPUs of removed partitions, and for the runtime to remove
/// pods' cgroups.
const GIVEN_BACK: u64 = 2;

/// A pod from before the plugin, and one with the same request that starts while it runs.
const BEFORE: &str = "early";
const MEANWHILE: &str = "late";

/// One container has an exclusive CPU, so that its quota and the pod's are lifted; the other
/// shares.
fn twin(name: &str) -> Pod {
    Pod::new(name, [guaranteed("main", 1), Container::guaranteed("side", 500)])
}

/// One pod per class, and [`BEFORE`].
fn pods() -> [Pod; 4] {
    [
        Pod::new("best", [Container::best_effort("main")]),
        super::shared("web"),
        Pod::new("half", [Container::guaranteed("main", 500)]),
        twin(BEFORE),
    ]
}

/// Only on machines with one uncore cache: it takes long and does not depend on the topology.
pub(super) fn uninstall(shape: &Shape) -> Option<Script> {
    if shape.room() < 3 || shape.caches() > 1 {
        return None;
    }
    let mechanisms = match shape.exclusivity.as_str() {
        "" => vec!["groups", "kernel", "runtime"],
        one => vec![one],
    };
    let mut script = Script::new(shape);
    // systemd removes the controllers, and with them the kubelet's CPU list, from slices without
    // pods: the reference is a node on which pods have run.
    pods().into_iter().for_each(|pod| script.run(pod));
    pods().iter().for_each(|pod| script.remove(&pod.name));
    script.does(Step::Wait(GIVEN_BACK));
    for mechanism in mechanisms {
        come_and_go(&mut script, shape, mechanism);
        script.does(Step::Clear);
    }
    Some(script)
}

fn come_and_go(script: &mut Script, shape: &Shape, mechanism: &str) {
    let empty = script.snapshot();
    for pod in pods() {
        script.run(pod);
    }
    let before = script.snapshot();
    script.plugin(shape.config(&format!("exclusivity: {mechanism}")));
    script.run(twin(MEANWHILE));
    script.run(exclusive("cache", 1));
    script.does(Step::KillPlugin);
    script.settles(SORTED_OUT, &[]);
    script.view();
    script.remove("cache");
    script.refused(Step::Release(true), "Remove the DaemonSet first");
    script.uninstall();

    let all = shape.online();
    let freed = Removal { all, containers: true, pods: true };
    let containers_kept = Removal { containers: false, ..freed };
    // The mechanism runtime leaves only the values of containers.
    let left = if mechanism == "runtime" { freed } else { containers_kept };
    script.snapshot_since(before, move |before, after| match left.check(before, after) {
        Err(_) => Ok(()),
        Ok(()) => Err("no difference before the release: the comparison proves nothing".to_owned()),
    });
    // At least one mechanism releases containers in the same step.
    if mechanism != "kernel" {
        script.says(Step::Release(false), &["shared pool: "]);
        script.does(Step::Wait(GIVEN_BACK));
        script.snapshot_since(before, move |before, after| containers_kept.check(before, after));
    }
    script.says(Step::Release(true), &["shared pool: ", "containers: "]);
    script.does(Step::Wait(GIVEN_BACK));
    script.snapshot_since(before, move |before, after| freed.check(before, after));

    pods().iter().for_each(|pod| script.remove(&pod.name));
    script.remove(MEANWHILE);
    script.does(Step::Wait(GIVEN_BACK));
    let gone = Removal { pods: false, ..freed };
    script.snapshot_since(empty, move |before, after| gone.check(before, after));
}

#[derive(Debug, Clone, Copy)]
struct Removal {
    all: CpuSet,
    containers: bool,
    /// Whether pods still run, including [`MEANWHILE`].
    pods: bool,
}

impl Removal {
    fn check(&self, before: &CgroupSnapshot, after: &CgroupSnapshot) -> Result<(), String> {
        let mut wrong: Vec<String> = before
            .differences(after)
            .iter()
            .filter(|one| self.reason(one, after).is_none())
            .map(ToString::to_string)
            .collect();
        if self.pods {
            let (old, new) = (groups_of(before, BEFORE), groups_of(after, MEANWHILE));
            if old.len() != new.len() {
                wrong.push(format!(
                    "{BEFORE} had {} cgroups, {MEANWHILE} has {}",
                    old.len(),
                    new.len()
                ));
            }
            let pairs = old.iter().zip(&new);
            let differences = pairs.flat_map(|((_, old), (path, new))| old.differences(path, new));
            let unlike = differences.filter(|one| self.reason(one, after).is_none());
            // systemd writes unit numbers to attributes.
            let unlike = unlike.filter(
                |one| !matches!(one, Difference::Content { key, .. } if key.starts_with(ATTRIBUTE)),
            );
            wrong.extend(unlike.map(|one| format!("unlike {BEFORE}: {one}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// The reason for which a difference is allowed.
    fn reason(&self, difference: &Difference<'_>, after: &CgroupSnapshot) -> Option<&'static str> {
        match *difference {
            Difference::New(group) if self.pods && is_of(group, MEANWHILE) => {
                Some("the pod started meanwhile: it is compared with BEFORE")
            }
            Difference::Content { group, key: CPUS, before: "", after: now }
                if self.all.is_subset(&now.parse().unwrap_or_default()) =>
            {
                let populated = after.0.get(group).is_some_and(|group| group.populated);
                if populated {
                    return Some(
                        "the kernel does not clear the CPU list of a cgroup with processes",
                    );
                }
                let is_class = !self.pods
                    && ["burstable", "besteffort"]
                        .iter()
                        .any(|class| group.trim_end_matches(".slice").ends_with(class));
                is_class.then_some("the class had pods at the release, and outlives them")
            }
            Difference::Content { group, key: CPUS | EFFECTIVE | QUOTA, .. }
                if !self.containers && is_container(group) =>
            {
                Some("a container's own value, and --containers was not given")
            }
            _ => None,
        }
    }
}

/// The cgroups of a pod: its own, and its containers' by CPU weight, because their names are
/// random.
fn groups_of<'a>(tree: &'a CgroupSnapshot, pod: &str) -> Vec<(&'a String, &'a CgroupContent)> {
    let mut groups: Vec<_> = tree.0.iter().filter(|(path, _)| is_of(path, pod)).collect();
    groups.sort_by_key(|(path, group)| {
        (path.matches('/').count(), group.value(WEIGHT).parse::<u64>().unwrap_or_default())
    });
    groups
}

fn is_of(group: &str, pod: &str) -> bool {
    let uid = Pod::new(pod, []).uid;
    group.contains(&uid) || group.contains(&uid.replace('-', "_"))
}

/// Whether the cgroup is a container's, or below one.
fn is_container(group: &str) -> bool {
    group.split('/').any(|part| {
        let id = part.trim_end_matches(".scope").rsplit('-').next().unwrap_or_default();
        id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(groups: &[(&str, &[(&str, &str)])]) -> CgroupSnapshot {
        let group = |says: &[(&str, &str)]| CgroupContent {
            content: says.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect(),
            populated: true,
        };
        CgroupSnapshot(groups.iter().map(|(path, says)| ((*path).into(), group(says))).collect())
    }

    #[test]
    fn a_comparison_can_fail() {
        let pod = |name: &str| format!("kubepods/pod{}", Pod::new(name, []).uid);
        let (early, late) = (pod(BEFORE), pod(MEANWHILE));
        let container = format!("{early}/{}", "0a".repeat(32));
        let inner = format!("{late}/{}", "0b".repeat(32));
        let before = tree(&[
            ("kubepods/burstable", &[(CPUS, ""), (EFFECTIVE, "0-3")]),
            (&early, &[(CPUS, ""), (QUOTA, "150000 100000")]),
            (&container, &[(CPUS, ""), (QUOTA, "100000 100000")]),
        ]);
        let released = [
            ("kubepods/burstable", CPUS, "0-3"),
            ("kubepods/burstable", EFFECTIVE, "0-3"),
            (&early, CPUS, "0-3"),
            (&early, QUOTA, "150000 100000"),
            (&container, CPUS, "0-3"),
            (&container, QUOTA, "100000 100000"),
            (&late, CPUS, ""),
            (&late, QUOTA, "150000 100000"),
            (&inner, CPUS, "0-3"),
            (&inner, QUOTA, "100000 100000"),
        ];
        let after = |at: usize, text: &str| {
            let mut tree = CgroupSnapshot::default();
            for (number, (group, file, says)) in released.iter().enumerate() {
                let says = if number == at { text } else { says };
                let group = tree.0.entry((*group).to_owned()).or_default();
                group.content.insert((*file).to_owned(), says.to_owned());
                group.populated = true;
            }
            tree
        };
        let freed = Removal { all: "0-3".parse().unwrap(), containers: true, pods: true };
        let containers_kept = Removal { containers: false, ..freed };
        let none = usize::MAX;
        assert_eq!(freed.check(&before, &after(none, "")), Ok(()));
        for (at, text, without) in [
            (0, "0,2-3", false),
            (1, "0,2-3", false),
            (2, "0,2-3", false),
            (3, "max 100000", false),
            (4, "1", true),
            (5, "max 100000", true),
            (6, "0,2-3", false),
            (7, "max 100000", false),
            (8, "1", true),
            (9, "max 100000", true),
        ] {
            assert!(freed.check(&before, &after(at, text)).is_err(), "{:?}", released[at]);
            assert_eq!(
                containers_kept.check(&before, &after(at, text)).is_ok(),
                without,
                "{:?}",
                released[at]
            );
        }
        let mut empty = after(none, "");
        empty.0.values_mut().for_each(|group| group.populated = false);
        assert!(freed.check(&before, &empty).is_err(), "an empty cgroup could be cleared");
        let gone = Removal { pods: false, ..freed };
        assert!(gone.check(&before, &empty).unwrap_err().contains("is new"));
    }
}
