//! Corrects a runtime's list by the kernel's files.

use super::blocking::blocking;
use crate::ledger::Event;
use crate::verify::{InForce, Verifier};
use crate::wording;

/// Replaces the CPUs and memory nodes of listed containers by what their control groups have:
/// CRI-O, after a restart, lists what it set when it created them. What they ask for cannot be
/// read, so they are marked as outdated.
pub(super) async fn witness(verifier: Option<Verifier>, mut event: Event) -> Event {
    let Event::Synchronize { containers, .. } = &mut event else { return event };
    let Some(verifier) = verifier else { return event };
    let groups: Vec<_> = containers.iter().map(|listed| listed.cgroup.clone()).collect();
    let look = move || -> Vec<Option<InForce>> {
        groups.iter().map(|group| verifier.set_for(group.as_ref()?)).collect()
    };
    for (container, set) in containers.iter_mut().zip(blocking(look).await) {
        let Some(InForce { cpus: set, runs_on, mems, partitioned }) = set else { continue };
        container.partitioned = partitioned;
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
        container.runs_on = runs_on;
    }
    event
}
