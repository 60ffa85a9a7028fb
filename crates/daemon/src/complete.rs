//! Corrects what a call says of containers by the kernel's files, before the ledger gets it.

use exclusivity::verify::{Observed, Verifier};
use ledger::{Call, Event};
use wording::{count, few, short_id};

/// Replaces the CPUs and memory nodes of listed containers by what their cgroups have:
/// CRI-O, after a restart, lists what it set when it created them. Their requests are as old, and
/// no file of the kernel has the present ones, so these containers are marked as outdated. A standby
/// does not know what the other instance set, but it has followed the requests.
pub(super) fn correct_list(verifier: Option<&Verifier>, call: &mut Call) {
    let Call::Event(Event::Synchronize { containers, .. }) = call else { return };
    let Some(verifier) = verifier else { return };
    let mut stale = Vec::new();
    for container in containers {
        let observed = container.cgroup.as_ref().and_then(|group| verifier.observe(group));
        let Some(Observed { cpus: set, runs_on, mems, partitioned }) = observed else { continue };
        container.partitioned = partitioned;
        if container.cpus != Some(set) {
            container.outdated = !container.followed;
            let listed = container.cpus.map_or_else(|| "none".to_owned(), |c| c.to_string());
            stale.push(format!("{} runtime={listed} cgroup={set}", short_id(&container.id.0)));
            container.cpus = Some(set);
            if let Some(mems) = mems {
                container.mems = if mems.is_empty() { None } else { Some(mems) };
            }
        }
        container.runs_on = runs_on;
    }
    if !stale.is_empty() {
        let containers = count(stale.len(), "container");
        log::info!(
            "list: the runtime reports other CPUs than the cgroups of {containers} have ({})",
            few(stale)
        );
    }
}
