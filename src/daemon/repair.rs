//! Repairs a drift by the next safe way.

use super::action::Action;
use super::blocking::blocking;
use super::delivery::Delivery;
use super::enforcement::Enforcement;
use super::keeper::Keeper;
use crate::cpuset::CpuSet;
use crate::ledger::{Event, Mechanism, Target};
use crate::verify::{Drift, Verifier};
use std::io;

/// Repairs a drift by the next safe way, and returns which.
pub(super) async fn repair(
    placed: &Target,
    drift: &Drift,
    verifier: Option<Verifier>,
    keeper: &mut Keeper,
    enforcement: &mut Enforcement,
    delivery: &mut Delivery,
) -> Action {
    let id = &placed.subject.id;
    match drift {
        Drift::Effective(_) if !placed.is_partition() => Action::Nothing,
        Drift::Partition(_) | Drift::Set(_) | Drift::Effective(_)
            if enforcement.mechanism() == Mechanism::Partitions =>
        {
            let mut written = enforcement.settle(id, keeper).await;
            if matches!(drift, Drift::Set(_)) {
                written = written && delivery.set_cpus(placed.clone()).await;
                keeper.note(Event::Drifted(vec![id.clone()]));
            }
            if written { Action::Written } else { Action::Deferred }
        }
        // Runtimes do not know a pod's quota.
        Drift::Quota(_) => match enforcement.settle_pod_quota(placed.clone()).await {
            true => Action::Written,
            false => Action::Nothing,
        },
        // The runtime should have lifted it. If the group cannot be written, the daemon sends the
        // update again.
        Drift::OwnQuota(_) => match delivery.lift_quota(placed.clone()).await {
            true => Action::Written,
            false => delivery.send_again(id, keeper),
        },
        Drift::Set(_) if delivery.calls() => delivery.send_again(id, keeper),
        // The next answer may be hours away: until then only the runtime's record is wrong.
        Drift::Set(_) => {
            let written = delivery.set_cpus(placed.clone()).await;
            keeper.note(Event::Drifted(vec![id.clone()]));
            if written { Action::Written } else { Action::Deferred }
        }
        Drift::Inherited(_, mask) => match widen(verifier, placed.clone(), *mask).await {
            Ok(()) => Action::Widened,
            Err(error) => {
                log::warn!("{}: its affinity cannot be changed: {error}", placed.subject);
                Action::Inherited
            }
        },
        Drift::Partition(_) | Drift::Effective(_) | Drift::Process(..) => Action::Nothing,
    }
}

/// Lets the processes of a container that inherited this mask run on all of its CPUs.
async fn widen(verifier: Option<Verifier>, placed: Target, mask: CpuSet) -> io::Result<()> {
    let Some(verifier) = verifier else { return Ok(()) };
    blocking(move || Some(verifier.widen(&placed, mask))).await.unwrap_or(Ok(()))
}
