//! Changes of containers' exclusive CPUs in the plugin's log.

use std::collections::{BTreeMap, BTreeSet};

use cpuset::CpuSet;

use crate::chaos::summary::NAMESPACE;

/// By pod and container, over all the plugin's starts: from which CPUs to which.
pub(super) struct Log<'a>(BTreeMap<&'a str, Vec<(CpuSet, CpuSet)>>);

impl<'a> Log<'a> {
    pub(super) fn of(log: &'a str) -> Self {
        let mut changes: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for line in log.lines() {
            if let Some((name, change)) = change(line) {
                changes.entry(name).or_default().push(change);
            }
        }
        Self(changes)
    }

    /// Whether the container's logged changes, in their order, lead from these CPUs to those.
    pub(super) fn leads(&self, name: &str, from: CpuSet, to: CpuSet) -> bool {
        let changes = self.0.get(name).map_or(&[][..], Vec::as_slice);
        let mut reached = BTreeSet::from([from.to_string()]);
        for (before, after) in changes {
            if reached.contains(&before.to_string()) {
                reached.insert(after.to_string());
            }
        }
        reached.contains(&to.to_string())
    }
}

/// The container and the CPUs in `NAMESPACE/POD/CONTAINER: moved from exclusive CPUs 4-5 to 8-9: WHY`,
/// or in the lines for offline CPUs and for resizes, which place their words in another order.
fn change(line: &str) -> Option<(&str, (CpuSet, CpuSet))> {
    let (_, line) = line.split_once(&format!("{NAMESPACE}/"))?;
    let (name, what) = line.split_once(": ")?;
    if !what.starts_with("moved from ") && !what.starts_with("resized from ") {
        return None;
    }
    let what = what.split(": ").next()?;
    let mut lists = what.split(' ').filter_map(|word| word.parse::<CpuSet>().ok());
    Some((name, (lists.next()?, lists.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_changes_lead_from_one_to_another() {
        let log = Log::of(
            "12:00 INFO storm/pod/c0: moved from exclusive CPUs 4-5 to 8-9: pod/d fits\n\
             12:01 INFO storm/pod/c1: moved from exclusive CPU 9 to 10: pod/d fits\n\
             12:02 WARN storm/pod/c0: moved from CPUs 8-9 to exclusive CPU 8: some are offline\n\
             12:03 INFO storm/pod/c0: resized from exclusive CPU 8 to 8,10-11\n\
             12:04 INFO storm/pod/c0: restarted, keeps exclusive CPUs 8,10-11\n",
        );
        let leads = |name: &str, from: &str, to: &str| {
            log.leads(name, from.parse().unwrap(), to.parse().unwrap())
        };
        assert!(leads("pod/c0", "4-5", "8-9"));
        assert!(leads("pod/c0", "4-5", "8,10-11"));
        assert!(leads("pod/c1", "9", "10"));
        assert!(!leads("pod/c0", "8-9", "4-5"));
        assert!(!leads("pod/c0", "9", "10"));
        assert!(!leads("pod/c2", "9", "10"));
    }
}
