//! The plugin's answers to calls, as data and as text.

use nri::wire;
use protobuf::{Enum as _, Message, MessageField};
use std::fmt;
use wire::Event as Kind;

/// Everything that an answer can request of a runtime.
#[derive(Default)]
pub(super) struct Answer {
    /// For the container that is created.
    pub(super) adjust: MessageField<wire::ContainerAdjustment>,
    /// For containers that exist.
    pub(super) updates: Vec<wire::ContainerUpdate>,
}

impl Answer {
    /// Reads the answer to a call of this event, or to a `Synchronize`.
    pub(super) fn read(kind: Option<Kind>, payload: &[u8]) -> Answer {
        let updates = match kind {
            None => read::<wire::SynchronizeResponse>(payload).update,
            Some(Kind::CREATE_CONTAINER) => {
                let answer: wire::CreateContainerResponse = read(payload);
                return Answer { adjust: answer.adjust, updates: answer.update };
            }
            Some(Kind::UPDATE_CONTAINER) => read::<wire::UpdateContainerResponse>(payload).update,
            Some(Kind::STOP_CONTAINER) => read::<wire::StopContainerResponse>(payload).update,
            Some(kind) => {
                assert!(payload.is_empty(), "{kind:?} has an empty answer");
                Vec::new()
            }
        };
        Answer { updates, ..Answer::default() }
    }
}

fn read<M: Message>(payload: &[u8]) -> M {
    M::parse_from_bytes(payload).unwrap()
}

/// The fields of the new container, then the id and the fields of each updated one.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let adjust = self.adjust.as_ref().map(|adjust| {
            assert!(adjust.annotations.is_empty() && adjust.env.is_empty());
            resources(&adjust.linux.resources)
        });
        let update = |update: &wire::ContainerUpdate| {
            format!("{} {}", update.container_id, resources(&update.linux.resources))
        };
        let parts: Vec<String> =
            adjust.into_iter().chain(self.updates.iter().map(update)).collect();
        f.write_str(&parts.join("; "))
    }
}

fn resources(resources: &wire::LinuxResources) -> String {
    assert!(resources.memory.is_none() && resources.unified.is_empty());
    let cpu = &resources.cpu;
    let lists = [("cpus", &cpu.cpus), ("mems", &cpu.mems)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let numbers = [
        ("shares", cpu.shares.as_ref().map(|shares| shares.value.to_string())),
        ("quota", cpu.quota.as_ref().map(|quota| quota.value.to_string())),
        ("period", cpu.period.as_ref().map(|period| period.value.to_string())),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
    let fields: Vec<String> = lists
        .map(|(name, list)| (name, list.clone()))
        .chain(numbers)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    fields.join(" ")
}

/// The names of the events that are in `known` and not in `mask`.
pub(super) fn left_out(known: i32, mask: i32) -> String {
    let left_out = Kind::VALUES.iter().filter(|kind| {
        **kind != Kind::UNKNOWN && known & bit(**kind) != 0 && mask & bit(**kind) == 0
    });
    let names: Vec<String> = left_out.map(|kind| format!("{kind:?}")).collect();
    names.join(", ")
}

/// An event's bit in a mask.
pub(super) fn bit(kind: Kind) -> i32 {
    1 << (kind.value() - 1)
}
