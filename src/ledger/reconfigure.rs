//! Other settings while containers run.
//!
//! What follows is what a restart with the new settings would bring about, as it is the same adoption
//! ([`adopt`](super::adopt)): who has exclusive CPUs that are legal keeps them, whatever today's policy would give; who
//! has some that are not is placed anew; the shared pool follows. Only less is said and told: of a restart everybody has to
//! hear, of this only those for whom something changes.

use super::Ledger;
use super::entry::{Applied, Entry};
use super::model::ContainerId;
use super::note::What;
use super::settings::Settings;
use crate::cpuset::CpuSet;
use std::collections::BTreeMap;

/// What a container had before.
struct Had {
    claim: Option<CpuSet>,
    applied: Option<Applied>,
}

impl Ledger {
    /// These settings are in force now.
    pub(super) fn reconfigure(&mut self, settings: Settings) {
        self.settings = settings;
        let had = |entry: &Entry| Had { claim: entry.claim, applied: entry.applied };
        let before: BTreeMap<ContainerId, Had> =
            self.entries().map(|(_, _, entry)| (entry.id.clone(), had(entry))).collect();
        // It was chosen under the settings before; as after a restart nobody remembers it.
        self.pods.change_all(|_, pod| pod.affinity = None);
        self.reread_wishes();
        let earlier = self.notes.len();
        // A claim is what is set, or what is about to be.
        self.adopt_anew(|entry| entry.claim.or(entry.told()));
        self.leave_alone(&before);
        let news = self.notes.split_off(earlier);
        self.notes.extend(news.into_iter().filter(|note| {
            let had = before.get(&note.subject.id).and_then(|had| had.claim);
            !matches!(note.what, What::Adopted(cpus) | What::Kept(cpus) if had == Some(cpus))
        }));
    }

    /// Who keeps its CPUs need not be told of them.
    fn leave_alone(&mut self, before: &BTreeMap<ContainerId, Had>) {
        self.pods.change_all(|_, pod| {
            for entry in pod.containers.values_mut() {
                if let Some(had) = before.get(&entry.id).filter(|had| had.claim == entry.claim) {
                    entry.applied = had.applied;
                }
            }
        });
    }
}
