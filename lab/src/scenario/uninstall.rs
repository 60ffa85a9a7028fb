//! The plugin is removed, then `manifests/uninstall` is applied: all cgroups must be as before the
//! plugin.
//!
//! [`Removal::reason`] lists the allowed differences; any other fails. Before the uninstall step,
//! the same comparison must fail.

use anyhow::{Result, ensure};
use cpuset::CpuSet;

use super::guaranteed;
use super::shape::Shape;
use crate::cgroup_snapshot::{
    ATTRIBUTE, CPUS, CgroupContent, CgroupSnapshot, Difference, EFFECTIVE, QUOTA, WEIGHT,
};
use crate::pod::{Container, Pod};
use crate::testbed::{Testbed, refused, says};

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

pub(super) fn uninstall(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let mechanisms = match shape.exclusivity.as_str() {
        "" => vec!["groups", "kernel", "runtime"],
        one => vec![one],
    };
    // systemd removes the controllers, and with them the kubelet's CPU list, from slices without
    // pods: the reference is a node on which pods have run.
    pods().iter().try_for_each(|pod| testbed.start(pod))?;
    pods().iter().try_for_each(|pod| testbed.remove(&pod.name))?;
    testbed.wait(GIVEN_BACK);
    mechanisms.iter().try_for_each(|mechanism| come_and_go(testbed, &shape.with(mechanism)))
}

fn come_and_go(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let empty = testbed.snapshot()?;
    pods().iter().try_for_each(|pod| testbed.start(pod))?;
    let before = testbed.snapshot()?;
    testbed.start_plugin(&shape.config(""))?;
    testbed.start(&twin(MEANWHILE))?;
    testbed.exclusive("cache", 1)?;
    testbed.kill_plugin()?;
    testbed.settles(SORTED_OUT, &[])?;
    testbed.view()?;
    testbed.remove("cache")?;
    refused(testbed.revert(true), "Remove the DaemonSet first")?;
    testbed.uninstall()?;

    let freed = Removal { all: shape.online, containers: true, pods: true };
    let containers_kept = Removal { containers: false, ..freed };
    // The mechanism runtime leaves only the values of containers.
    let left = if shape.exclusivity == "runtime" { freed } else { containers_kept };
    ensure!(
        left.check(&before, &testbed.snapshot()?).is_err(),
        "no difference before the uninstall step: the comparison proves nothing"
    );
    // At least one mechanism frees containers in the same step.
    if shape.exclusivity != "kernel" {
        says(&testbed.revert(false)?, &["shared pool: "])?;
        testbed.wait(GIVEN_BACK);
        containers_kept.check(&before, &testbed.snapshot()?)?;
    }
    says(&testbed.revert(true)?, &["shared pool: ", "containers: "])?;
    testbed.wait(GIVEN_BACK);
    freed.check(&before, &testbed.snapshot()?)?;

    pods().iter().try_for_each(|pod| testbed.remove(&pod.name))?;
    testbed.remove(MEANWHILE)?;
    testbed.wait(GIVEN_BACK);
    let gone = Removal { pods: false, ..freed };
    gone.check(&empty, &testbed.snapshot()?)
}

#[derive(Debug, Clone, Copy)]
struct Removal {
    all: CpuSet,
    containers: bool,
    /// Whether pods still run, including [`MEANWHILE`].
    pods: bool,
}

impl Removal {
    fn check(&self, before: &CgroupSnapshot, after: &CgroupSnapshot) -> Result<()> {
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
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
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
                is_class.then_some("the class had pods at the uninstall step, and outlives them")
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
        let undone = [
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
            for (number, (group, file, says)) in undone.iter().enumerate() {
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
        freed.check(&before, &after(none, "")).unwrap();
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
            assert!(freed.check(&before, &after(at, text)).is_err(), "{:?}", undone[at]);
            assert_eq!(
                containers_kept.check(&before, &after(at, text)).is_ok(),
                without,
                "{:?}",
                undone[at]
            );
        }
        let mut empty = after(none, "");
        empty.0.values_mut().for_each(|group| group.populated = false);
        assert!(freed.check(&before, &empty).is_err(), "an empty cgroup could be cleared");
        let gone = Removal { pods: false, ..freed };
        assert!(gone.check(&before, &empty).unwrap_err().to_string().contains("is new"));
    }
}
