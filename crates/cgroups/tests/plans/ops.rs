//! Events that change a tree of cgroups, with weights.

use proptest::prelude::*;

/// An index counts modulo the number of pods or cgroups that exist.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A pod in a QoS class (0 or 1) or in none, with `shared` containers and one more that has
    /// `exclusive` CPUs, and uses the pool as well if it is `mixed`. If the pod is `reserved`, its shared
    /// containers run on the reserved CPUs.
    Pod {
        class: usize,
        shared: usize,
        exclusive: usize,
        mixed: bool,
        reserved: bool,
    },
    /// The runtime creates the exclusive container of a pod, or sets its current CPUs.
    Runtime {
        pod: usize,
    },
    /// A shared container starts in a pod.
    Start {
        pod: usize,
    },
    /// The exclusive container of a pod gets this number of CPUs, as many new ones as possible.
    Move {
        pod: usize,
        exclusive: usize,
    },
    End {
        pod: usize,
    },
    /// The runtime has listed its containers: the plan sets the CPUs of the exclusive ones.
    List,
    /// Another program writes a cgroup.
    Foreign {
        group: usize,
        mask: u8,
    },
    /// A cgroup's `cpuset.cpus` is cleared, as systemd does. Older kernels allow it only if the cgroup
    /// has no processes.
    Emptied {
        group: usize,
    },
    Hotplug {
        mask: u8,
    },
    /// A cgroup is distrusted, or trusted again.
    Distrust {
        group: usize,
    },
    /// A cgroup's value may vanish from now on, or no longer.
    Clearable {
        group: usize,
    },
    /// Exclusive containers become partitions from now on, or ordinary cgroups.
    Partitions,
    /// The plugin crashes after this number of writes, and is restarted.
    Crash {
        after: usize,
    },
    /// The kernel starts or stops to refuse writes into cgroups whose paths have this residue.
    Refuse {
        residue: usize,
    },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let pod = 0..16usize;
    prop_oneof![
        6 => (0..4usize, 0..3usize, 0..4usize, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(class, shared, exclusive, mixed, reserved)| {
                Op::Pod { class, shared, exclusive, mixed, reserved }
            },
        ),
        6 => pod.clone().prop_map(|pod| Op::Runtime { pod }),
        2 => pod.clone().prop_map(|pod| Op::Start { pod }),
        4 => (pod.clone(), 0..4usize).prop_map(|(pod, exclusive)| Op::Move { pod, exclusive }),
        3 => pod.prop_map(|pod| Op::End { pod }),
        2 => Just(Op::List),
        2 => (0..64usize, any::<u8>()).prop_map(|(group, mask)| Op::Foreign { group, mask }),
        2 => (0..64usize).prop_map(|group| Op::Emptied { group }),
        1 => any::<u8>().prop_map(|mask| Op::Hotplug { mask }),
        1 => (0..64usize).prop_map(|group| Op::Distrust { group }),
        2 => (0..64usize).prop_map(|group| Op::Clearable { group }),
        2 => Just(Op::Partitions),
        2 => (0..6usize).prop_map(|after| Op::Crash { after }),
        1 => (0..5usize).prop_map(|residue| Op::Refuse { residue }),
    ]
}
