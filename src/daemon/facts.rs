//! [`CallFacts`]: what a call of the runtime means for each part of the daemon, before the ledger
//! consumes it.

use crate::ledger::{Admission, Call, Channel, ContainerId, Event, Stance};
use crate::view::counters::EventKind;

#[derive(Debug)]
pub(super) struct CallFacts {
    /// The container that is about to be created.
    pub(super) created: Option<ContainerId>,
    /// Whether the runtime lists all containers.
    pub(super) lists: bool,
    /// Whether the runtime has removed a container.
    pub(super) removes: bool,
    /// Whether a pod has ended, with its exclusive CPUs.
    pub(super) frees: bool,
    /// What its answer carries; `None` if the runtime reads no updates from it.
    pub(super) channel: Option<Channel>,
    /// Whether the runtime makes its next call as soon as it has made the updates of the answer.
    pub(super) prompt: bool,
    /// For metrics.
    pub(super) kind: EventKind,
    pub(super) step: CgroupStep,
}

/// What a call means for cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CgroupStep {
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

impl CallFacts {
    pub(super) fn of(call: &Call) -> CallFacts {
        let event = match call {
            Call::Event(event) => Some(event),
            Call::Admission(_) => None,
        };
        CallFacts {
            created: call.created().cloned(),
            lists: matches!(event, Some(Event::Synchronize { .. })),
            removes: matches!(event, Some(Event::Remove(_))),
            frees: matches!(
                event,
                Some(Event::StopPod(_) | Event::RemovePod(_) | Event::Remove(_))
            ),
            channel: call.channel(),
            prompt: event.is_none(),
            kind: EventKind::from(call),
            step: step(call),
        }
    }
}

fn step(call: &Call) -> CgroupStep {
    match call {
        Call::Admission(Admission::Create { container, .. }) => {
            CgroupStep::Create(container.id.clone())
        }
        Call::Admission(Admission::Update { container, .. })
        | Call::Event(Event::Starting { container, .. }) => {
            CgroupStep::Settle(container.id.clone())
        }
        Call::Event(Event::Started { container, .. }) => CgroupStep::Later(container.id.clone()),
        Call::Event(Event::Synchronize { .. }) => CgroupStep::All,
        Call::Event(Event::StopPod(_) | Event::RemovePod(_) | Event::Remove(_)) => CgroupStep::Tidy,
        Call::Event(_) => CgroupStep::None,
    }
}

/// Whether an event can change where any container runs, so that all cgroups have to be settled.
pub(super) fn concerns_all(event: &Event) -> bool {
    match event {
        Event::Machine(_) | Event::Settings(_) | Event::Mechanism(_) => true,
        Event::Kubelet { stance, .. } => *stance == Stance::Assign,
        _ => false,
    }
}
