//! Where interrupts may go: [`Area::narrowed`]. Pure.

use cpuset::CpuSet;
use std::collections::BTreeMap;

/// The CPUs that are online, and those among them that interrupts have to stay off.
#[derive(Debug, Clone, Copy)]
pub struct Area<'a> {
    pub online: CpuSet,
    pub avoided: CpuSet,
    /// The CPUs of each NUMA node.
    pub nodes: &'a BTreeMap<usize, CpuSet>,
}

impl Area<'_> {
    /// The set `original` without the avoided CPUs. If no online CPU is left of it: the online CPUs that
    /// are not avoided, of the device's NUMA node, of the nodes of `original`, or of all nodes, whichever
    /// is the first that has any. `None` if all online CPUs are avoided.
    pub fn narrowed(&self, original: CpuSet, device_node: Option<usize>) -> Option<CpuSet> {
        if original.is_disjoint(&self.avoided) {
            return Some(original);
        }
        let rest = original - self.avoided;
        if !rest.is_disjoint(&self.online) {
            return Some(rest);
        }
        let free = self.online - self.avoided;
        let of_device = device_node.and_then(|node| self.nodes.get(&node)).copied();
        let of_original = self.nodes.values().filter(|cpus| !cpus.is_disjoint(&original)).copied();
        let near = [of_device.unwrap_or_default(), of_original.collect()];
        let choices = near.map(|cpus| cpus & free).into_iter().chain([free]);
        choices.into_iter().find(|cpus| !cpus.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn interrupts_stay_on_their_node_while_it_has_cpus_for_them() {
        let nodes = BTreeMap::from([(0, cpus("0-3")), (1, cpus("4-7"))]);
        for (original, node, avoided, target) in [
            ("0-7", None, "2-3", Some("0-1,4-7")),
            ("0-15", None, "2-3", Some("0-1,4-15")),
            ("6", None, "2-3", Some("6")),
            ("6", None, "6-7", Some("4-5")),
            ("6", Some(0), "6-7", Some("0-3")),
            ("6", Some(1), "4-7", Some("0-3")),
            ("6", Some(9), "4-7", Some("0-3")),
            ("6", Some(0), "0-7", None),
            ("0-7", None, "0-7", None),
            // CPU 12 is offline: alone, it would be no place for an interrupt.
            ("6,12", None, "6", Some("4-5,7")),
        ] {
            let area = Area { online: cpus("0-7"), avoided: cpus(avoided), nodes: &nodes };
            assert_eq!(
                area.narrowed(cpus(original), node),
                target.map(cpus),
                "{original} on {node:?} without {avoided}"
            );
        }
    }

    fn any_set() -> impl Strategy<Value = CpuSet> {
        proptest::collection::vec(0..24usize, 0..24)
            .prop_map(|cpus| cpus.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect())
    }

    proptest! {
        #[test]
        fn a_narrowed_set_is_usable_and_free_of_avoided_cpus(
            original in any_set(),
            online in any_set(),
            exclusive in any_set(),
            node in proptest::option::of(0..4usize),
        ) {
            let avoided = exclusive & online;
            let nodes = (0..3).map(|node| (node, cpus(&format!("{}-{}", node * 8, node * 8 + 7))));
            let nodes = nodes.collect();
            let area = Area { online, avoided, nodes: &nodes };
            let Some(narrowed) = area.narrowed(original, node) else {
                prop_assert!(online.is_subset(&avoided));
                return Ok(());
            };
            prop_assert!(narrowed.is_disjoint(&avoided));
            if original.is_disjoint(&avoided) {
                prop_assert_eq!(narrowed, original);
            } else {
                prop_assert!(!narrowed.is_disjoint(&online));
            }
            prop_assert_eq!(area.narrowed(narrowed, node), Some(narrowed));
        }
    }
}
