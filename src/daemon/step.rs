//! [`Step`]: what an event means for cgroups.

use crate::exclusivity::Scope;
use crate::ledger::{ContainerId, Event};

/// What an event means for partitions.
#[derive(Debug)]
pub(super) enum Step {
    None,
    /// The runtime will make this container's group. The answer can refuse it.
    Create(ContainerId),
    /// Settle this container's group now.
    Settle(ContainerId),
    /// Settle this container's group later, in case it did not exist before.
    Later(ContainerId),
    All,
    Tidy,
}

impl Step {
    pub(super) fn of(event: &Event) -> Step {
        match event {
            Event::Create { container, .. } => Step::Create(container.id.clone()),
            Event::Starting { container, .. } | Event::Update { container, .. } => {
                Step::Settle(container.id.clone())
            }
            Event::Started { container, .. } => Step::Later(container.id.clone()),
            Event::Synchronize { .. }
            | Event::Machine(_)
            | Event::Settings(_)
            | Event::Mechanism(_) => Step::All,
            Event::StopPod(_) | Event::RemovePod(_) | Event::Remove(_) => Step::Tidy,
            Event::RunPod(_)
            | Event::UpdatePod(_)
            | Event::Stop(_)
            | Event::Lull
            | Event::Kubelet { .. }
            | Event::Deliver(_)
            | Event::Undelivered(_)
            | Event::Revoked { .. }
            | Event::PartitionRefused(_)
            | Event::Unbound(_)
            | Event::Drifted(_) => Step::None,
        }
    }

    /// How much of the groups the event can have changed.
    pub(super) fn scope(&self) -> Scope {
        if matches!(self, Step::All) { Scope::All } else { Scope::Binding }
    }
}
