//! What can happen, and how often.

use super::{Op, change, wishes};
use proptest::prelude::*;

pub(super) fn op() -> impl Strategy<Value = Op> {
    let pod = 0..8usize;
    let container = 0..16usize;
    prop_oneof![
        3 => (0..5u8, [0..9u8, 0..9u8], 0..4u8, wishes::wishes()).prop_map(
            |(qos, cpus, kinds, wishes)| Op::RunPod { qos, cpus, kinds, wishes }
        ),
        6 => (pod.clone(), 0..2usize).prop_map(|(pod, container)| Op::Create { pod, container }),
        5 => container.clone().prop_map(|container| Op::Start { container }),
        3 => container.clone().prop_map(|container| Op::Stop { container }),
        1 => container.clone().prop_map(|container| Op::LateStop { container }),
        1 => container.clone().prop_map(|container| Op::LateStart { container }),
        1 => (pod.clone(), 0..2usize, any::<bool>())
            .prop_map(|(pod, container, stops)| Op::Undone { pod, container, stops }),
        2 => pod.clone().prop_map(|pod| Op::StopPod { pod }),
        3 => (container.clone(), 0..13u8, any::<bool>()).prop_map(
            |(container, halves, tells_pod)| Op::Resize { container, halves, tells_pod }
        ),
        1 => container.clone().prop_map(|container| Op::Remove { container }),
        1 => Just(Op::Twice),
        1 => container.clone().prop_map(|container| Op::Refusal { container }),
        1 => (0..3u8).prop_map(|memory| Op::Restart { memory }),
        1 => (0..64usize).prop_map(|cpu| Op::Hotplug { cpu }),
        1 => change().prop_map(Op::Settings),
        1 => (pod.clone(), 0..2usize).prop_map(|(pod, container)| Op::Away { pod, container }),
        1 => (any::<bool>(), prop::collection::vec((pod, 0..2usize), 0..4))
            .prop_map(|(observe, creates)| Op::Kubelet { observe, creates }),
    ]
}
