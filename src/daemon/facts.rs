//! [`Facts`]: what a call of the runtime means for each part of the daemon, before the ledger
//! consumes it.

use crate::ledger::{Admission, Call, Channel, ContainerId, Event};
use crate::view::counters::EventKind;

#[derive(Debug)]
pub(super) struct Facts {
    /// The container that is about to be created.
    pub(super) created: Option<ContainerId>,
    /// Whether the runtime lists all containers.
    pub(super) lists: bool,
    /// Whether the runtime has removed a container.
    pub(super) removes: bool,
    /// What its answer carries; `None` if the runtime reads no updates from it.
    pub(super) channel: Option<Channel>,
    /// Whether the runtime makes its next call as soon as it has made the updates of the answer.
    pub(super) prompt: bool,
    /// For metrics.
    pub(super) kind: EventKind,
    pub(super) step: Step,
}

/// What a call means for cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    None,
    /// The runtime will make this container's cgroup. The answer can refuse it.
    Create(ContainerId),
    /// Settle this container's cgroup now.
    Settle(ContainerId),
    /// Settle this container's cgroup later, in case it did not exist before.
    Later(ContainerId),
    All,
    Tidy,
}

impl Facts {
    pub(super) fn of(call: &Call) -> Facts {
        let event = match call {
            Call::Event(event) => Some(event),
            Call::Admission(_) => None,
        };
        let step = step(call);
        Facts {
            created: match &step {
                Step::Create(id) => Some(id.clone()),
                _ => None,
            },
            lists: matches!(event, Some(Event::Synchronize { .. })),
            removes: matches!(event, Some(Event::Remove(_))),
            channel: call.channel(),
            prompt: event.is_none(),
            kind: EventKind::from(call),
            step,
        }
    }
}

fn step(call: &Call) -> Step {
    match call {
        Call::Admission(Admission::Create { container, .. }) => Step::Create(container.id.clone()),
        Call::Admission(Admission::Update { container, .. })
        | Call::Event(Event::Starting { container, .. }) => Step::Settle(container.id.clone()),
        Call::Event(Event::Started { container, .. }) => Step::Later(container.id.clone()),
        Call::Event(Event::Synchronize { .. }) => Step::All,
        Call::Event(Event::StopPod(_) | Event::RemovePod(_) | Event::Remove(_)) => Step::Tidy,
        Call::Event(_) => Step::None,
    }
}
