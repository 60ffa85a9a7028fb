//! [`DeviceNodes`]: the NUMA nodes that a container's devices count for.

use crate::memory::nearest;
use cpuset::NodeSet;
use topology::Topology;

/// The NUMA nodes of a container's devices. All of them have CPUs. Empty if the devices do not
/// matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceNodes {
    all: NodeSet,
    most: NodeSet,
}

impl DeviceNodes {
    pub const NONE: DeviceNodes = DeviceNodes { all: NodeSet::EMPTY, most: NodeSet::EMPTY };

    /// `devices` has the nodes of each device: one node, or several if the device is equally near
    /// to each.
    ///
    /// A node without CPUs, such as the memory of a GPU, stands for the nearest nodes with CPUs, by
    /// the machine's distances. A node that the machine does not have is ignored.
    pub fn near_cpus(
        machine: &Topology,
        devices: impl IntoIterator<Item = NodeSet>,
    ) -> DeviceNodes {
        let nodes = machine.nodes();
        let has_cpus = |node: &topology::NumaNode| !node.cpus.is_empty();
        let mut counts = vec![0; cpuset::MAX_NODES];
        for device in devices {
            let mut near = NodeSet::EMPTY;
            for (at, node) in nodes.iter().enumerate() {
                if !device.contains(node.id) {
                    continue;
                }
                near = near.union(if has_cpus(node) {
                    NodeSet::of(node.id)
                } else {
                    nearest(nodes, at, has_cpus).collect()
                });
            }
            near.iter().for_each(|node| counts[node] += 1);
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        let counted = |is: &dyn Fn(usize) -> bool| -> NodeSet {
            (0..counts.len()).filter(|&node| counts[node] > 0 && is(counts[node])).collect()
        };
        DeviceNodes { all: counted(&|_| true), most: counted(&|count| count == most) }
    }

    /// A device on each of these nodes, which have CPUs.
    #[cfg(test)]
    pub(crate) fn on(nodes: NodeSet) -> DeviceNodes {
        DeviceNodes { all: nodes, most: nodes }
    }

    /// Devices on these nodes, more of them on `most`.
    #[cfg(test)]
    pub(crate) fn mostly(all: NodeSet, most: NodeSet) -> DeviceNodes {
        DeviceNodes { all, most }
    }

    pub fn is_empty(self) -> bool {
        self.all.is_empty()
    }

    /// Every node with a device: the topology manager's hint of the devices.
    pub fn all(self) -> NodeSet {
        self.all
    }

    /// The nodes with the most devices; `None` if all nodes have equally many. Of otherwise equally
    /// good CPUs, those on these nodes come first (kubernetes/kubernetes#136431).
    pub fn preferred(self) -> Option<NodeSet> {
        if self.most == self.all { None } else { Some(self.most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::model::NodeFacts;
    use topology::{Cpu, Facts};

    /// Two sockets with CPUs (nodes 0 and 1), and two GPUs on each, whose memory is nodes 2 to 5,
    /// at the distances of a Grace server.
    fn grace() -> Topology {
        let socket = |node: usize| if node < 2 { node } else { (node - 2) / 2 };
        let distance = |from: usize, to: usize| match (from == to, socket(from) == socket(to)) {
            (true, _) => 10,
            (false, true) => 80,
            (false, false) if from < 2 && to < 2 => 40,
            (false, false) => 120,
        };
        let nodes = (0..6).map(|id| NodeFacts {
            id,
            distances: (0..6).map(|to| distance(id, to)).collect(),
            memoryless: false,
        });
        let cpus = (0..8).map(|id| Cpu {
            id,
            core: id,
            uncore: id / 4,
            numa: id / 4,
            socket: id / 4,
            die: None,
            kind: None,
        });
        let facts = Facts { cpus: cpus.collect(), nodes: nodes.collect(), ..Facts::default() };
        Topology::build(facts).unwrap()
    }

    fn near(devices: &[usize]) -> (String, Option<String>) {
        let nodes = DeviceNodes::near_cpus(&grace(), devices.iter().map(|&node| NodeSet::of(node)));
        (nodes.all().to_string(), nodes.preferred().map(|most| most.to_string()))
    }

    #[test]
    fn a_device_on_a_node_without_cpus_counts_for_the_nearest_cpus() {
        assert_eq!(near(&[2]), ("0".into(), None));
        assert_eq!(near(&[5]), ("1".into(), None));
        assert_eq!(near(&[3, 4]), ("0,1".into(), None));
        assert_eq!(near(&[1]), ("1".into(), None));
    }

    #[test]
    fn nodes_with_more_devices_are_preferred() {
        assert_eq!(near(&[2, 4, 5]), ("0,1".into(), Some("1".into())));
        assert_eq!(near(&[0, 3, 1]), ("0,1".into(), Some("0".into())));
    }

    #[test]
    fn nodes_that_the_machine_does_not_have_count_for_none() {
        assert_eq!(near(&[7]), (String::new(), None));
        assert_eq!(near(&[7, 1]), ("1".into(), None));
    }
}
