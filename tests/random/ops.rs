//! What can happen, and how often.

use super::machines::{Change, change};
use super::wishes;
use proptest::prelude::*;

/// What happens next. Numbers are taken modulo what exists.
#[derive(Debug, Clone)]
pub(super) enum Op {
    RunPod {
        qos: u8,
        cpus: [u8; 2],
        kinds: u8,
        wishes: [u8; 4],
        /// Whether the pod has resources of its own, which its containers without any inherit.
        resources: bool,
    },
    /// The third container is an ephemeral one, as `kubectl debug` adds it.
    Create {
        pod: usize,
        container: usize,
    },
    Start {
        container: usize,
    },
    Stop {
        container: usize,
    },
    /// A container that has ended is deleted.
    Remove {
        container: usize,
    },
    LateStop {
        container: usize,
    },
    /// A start that is reported after the end, or of an instance that has been replaced.
    LateStart {
        container: usize,
    },
    /// The runtime fails to create an admitted container, and reports its stop or not.
    FailedCreate {
        pod: usize,
        container: usize,
        stops: bool,
    },
    /// The answer to a creation comes too late.
    LateAnswer {
        pod: usize,
        container: usize,
    },
    StopPod {
        pod: usize,
    },
    /// In-place resize, in halves of a CPU. Newer runtimes report that of the pod first.
    Resize {
        container: usize,
        halves: u8,
        resizes_pod: bool,
    },
    /// Containers that have been away for a while are not expected back soon.
    QuietPeriod,
    /// The last event is reported again.
    Repeat,
    /// The plugin is restarted, with its checkpoint (0), without one (1), or with an old one (2).
    Restart {
        checkpoint: u8,
    },
    PartitionRefused {
        container: usize,
    },
    /// The cgroup of a pod, or of its class, can be cleared at any time from now on, or no longer.
    Distrust {
        pod: usize,
        class: bool,
    },
    /// A container is created while the plugin is down.
    CreateWhileDown {
        pod: usize,
        container: usize,
    },
    /// A CPU goes offline, or comes online.
    Hotplug {
        cpu: usize,
    },
    Settings(Change),
    /// The kubelet's own CPU manager becomes active, creates containers, and stops again.
    Kubelet {
        observe: bool,
        creates: Vec<(usize, usize)>,
    },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let pod = 0..8usize;
    let container = 0..16usize;
    prop_oneof![
        3 => (0..5u8, [0..9u8, 0..9u8], 0..4u8, wishes::wishes(), prop::bool::weighted(0.3)).prop_map(
            |(qos, cpus, kinds, wishes, resources)| Op::RunPod {
                qos,
                cpus,
                kinds,
                wishes,
                resources,
            }
        ),
        6 => (pod.clone(), 0..3usize).prop_map(|(pod, container)| Op::Create { pod, container }),
        5 => container.clone().prop_map(|container| Op::Start { container }),
        3 => container.clone().prop_map(|container| Op::Stop { container }),
        1 => container.clone().prop_map(|container| Op::LateStop { container }),
        1 => container.clone().prop_map(|container| Op::LateStart { container }),
        1 => (pod.clone(), 0..3usize, any::<bool>())
            .prop_map(|(pod, container, stops)| Op::FailedCreate { pod, container, stops }),
        1 => (pod.clone(), 0..3usize)
            .prop_map(|(pod, container)| Op::LateAnswer { pod, container }),
        2 => pod.clone().prop_map(|pod| Op::StopPod { pod }),
        3 => (container.clone(), 0..13u8, any::<bool>()).prop_map(
            |(container, halves, resizes_pod)| Op::Resize { container, halves, resizes_pod }
        ),
        1 => container.clone().prop_map(|container| Op::Remove { container }),
        1 => Just(Op::QuietPeriod),
        1 => Just(Op::Repeat),
        1 => container.clone().prop_map(|container| Op::PartitionRefused { container }),
        1 => (pod.clone(), any::<bool>()).prop_map(|(pod, class)| Op::Distrust { pod, class }),
        1 => (0..3u8).prop_map(|checkpoint| Op::Restart { checkpoint }),
        1 => (0..64usize).prop_map(|cpu| Op::Hotplug { cpu }),
        1 => change().prop_map(Op::Settings),
        1 => (pod.clone(), 0..3usize).prop_map(|(pod, container)| Op::CreateWhileDown { pod, container }),
        1 => (any::<bool>(), prop::collection::vec((pod, 0..3usize), 0..4))
            .prop_map(|(observe, creates)| Op::Kubelet { observe, creates }),
    ]
}

/// Guaranteed pods of one container come and go, and sometimes the plugin restarts: what scatters
/// free CPUs, so that moves are planned.
pub(super) fn coming_and_going() -> impl Strategy<Value = Vec<Op>> {
    let pod = 0..16usize;
    let arrival = (1..5u8, pod.clone()).prop_map(|(cpus, pod)| {
        let (kinds, wishes, resources) = (3, [0; 4], false);
        let run = Op::RunPod { qos: 2, cpus: [2 * cpus, 0], kinds, wishes, resources };
        let container = pod;
        vec![run, Op::Create { pod, container: 0 }, Op::Start { container }]
    });
    let again = (pod.clone(), pod.clone()).prop_map(|(pod, container)| {
        vec![Op::Create { pod, container: 0 }, Op::Start { container }]
    });
    let step = prop_oneof![
        4 => arrival,
        4 => again,
        3 => pod.prop_map(|pod| vec![Op::StopPod { pod }]),
        1 => (0..3u8).prop_map(|checkpoint| vec![Op::Restart { checkpoint }]),
    ];
    prop::collection::vec(step, 10..60).prop_map(|steps| steps.concat())
}
