//! What the kernel says of containers that the runtime lists.

use super::blocking::blocking;
use crate::enforce::{InForce, Verifier};
use crate::ledger::Event;
use crate::wording;

/// Puts what the kernel says is set for listed containers in the place of what the runtime
/// believes: CRI-O lists what it set when it created them, once it has been restarted. What they
/// ask for cannot be seen, only that the list is old.
pub(super) async fn witness(verifier: Option<Verifier>, mut event: Event) -> Event {
    let Event::Synchronize { containers, .. } = &mut event else { return event };
    let Some(verifier) = verifier else { return event };
    let groups: Vec<_> = containers.iter().map(|listed| listed.cgroup.clone()).collect();
    let look = move || -> Vec<Option<InForce>> {
        groups.iter().map(|group| verifier.set_for(group.as_ref()?)).collect()
    };
    for (container, set) in containers.iter_mut().zip(blocking(look).await) {
        let Some(InForce { cpus: set, left, mems, kept }) = set else { continue };
        container.partitioned = kept;
        container.outdated = container.cpus != Some(set);
        if container.outdated {
            let believed = container.cpus.map_or_else(|| "none".to_owned(), |c| c.to_string());
            log::info!(
                "container {}: the runtime believes that {} {} set, its control group says {set}",
                container.id,
                wording::cpus(&believed),
                wording::agree(&believed, "is", "are")
            );
            container.cpus = Some(set);
            if let Some(mems) = mems {
                container.mems = Some(mems).filter(|mems| !mems.is_empty());
            }
        }
        // What it shares with exclusive ones by name only is no share.
        container.cpus = left.or(container.cpus);
    }
    event
}
