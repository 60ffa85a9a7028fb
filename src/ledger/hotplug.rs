//! CPUs go offline and come online while containers run.
//!
//! The kubelet knows no such thing: it goes on with the CPUs it found when it started, and does not start again with
//! others. Here the pool follows at once, nobody moves who need not, and a container that lost CPUs keeps the others and
//! gets the nearest free ones beside them. Where there are none it goes on with what it has, and is completed with the
//! next change of the machine.

use super::entry::Life;
use super::hands_off::Stance;
use super::model::PodUid;
use super::note::{Note, Reason, Subject, What};
use super::{Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::resize::grow;
use crate::topology::Topology;

impl Ledger {
    /// The machine is another one now: the same, with other CPUs online.
    pub(super) fn hotplug(&mut self, machine: Topology) {
        let before = std::mem::replace(&mut self.topology, machine);
        let online = self.topology.online();
        let mut held = Vec::new();
        self.pods.change_all(|uid, pod| {
            // It was chosen among the nodes of the machine before; as after a restart nobody remembers it.
            pod.affinity = None;
            for (name, entry) in &mut pod.containers {
                let had = entry.claim;
                entry.claim = had.map(|had| had & online).filter(|left| !left.is_empty());
                entry.lost |= entry.claim != had;
                held.push((uid.clone(), name.clone(), had));
            }
        });
        let broken = broken_cores(&before, online);
        for (uid, name, had) in held {
            if self.stance == Stance::Assign {
                self.complete(&uid, &name, broken);
            }
            self.tell_change(&uid, &name, had);
        }
        self.revision += 1;
        self.refresh_pool();
        self.pending = true;
    }

    /// Gives a container that has fewer exclusive CPUs than it asks for the nearest ones there are, if there are enough.
    fn complete(&mut self, uid: &PodUid, name: &str, broken: CpuSet) {
        let (Some(pod), Some(entry)) = (self.pods.get(uid), self.entry(uid, name)) else { return };
        let (Some(n), wishes) = (entry.asks(pod.pod.qos), entry.wishes()) else { return };
        if !entry.lost || entry.life == Life::Stopped || self.settings.policy == Policy::None {
            return;
        }
        let left = entry.claim.unwrap_or_default();
        let (free, options) = (self.free(), wishes.settings(&self.settings.placement).options);
        // What is left of a core is no whole one.
        let whole = if options.full_pcpus_only { left - broken } else { left };
        let grown = [whole, left].into_iter().find_map(|keep| {
            let free =
                self.growable(&(free | self.with_idle(&left, wishes.isolates())), &keep, &wishes);
            grow(&self.topology, &keep, &free, n.checked_sub(keep.len())?).ok()
        });
        if let Some(grown) = grown {
            self.pods.change_entry(uid, name, |entry| {
                (entry.claim, entry.lost) = (Some(grown), false);
                entry.isolated = wishes.isolates();
            });
        }
    }

    fn tell_change(&mut self, uid: &PodUid, name: &str, had: Option<CpuSet>) {
        let Some(entry) = self.entry(uid, name) else { return };
        let (now, ended) = (entry.claim, entry.life == Life::Stopped);
        if now == had || ended {
            return;
        }
        let pod = self.pods.get(uid).map(|entry| entry.pod.clone());
        let subject = Subject {
            namespace: pod.as_ref().map(|pod| pod.namespace.clone()).unwrap_or_default(),
            pod: pod.map(|pod| pod.name).unwrap_or_default(),
            container: name.to_owned(),
            id: entry.id.clone(),
        };
        let lost = had.is_some_and(|had| !had.is_subset(&self.topology.online()));
        let why = if lost { Reason::Offline } else { Reason::Online };
        match now {
            Some(to) => self.moved(subject, had, to, why),
            None => {
                let what = What::LeftShared("all its exclusive CPUs are offline now".to_owned());
                self.notes.push(Note::new(true, subject, what));
                // Also where these are the same CPUs: its quota has to be set again.
                self.pods.change_entry(uid, name, |entry| entry.doubt());
            }
        }
    }
}

/// The CPUs of cores that have lost some.
fn broken_cores(before: &Topology, online: CpuSet) -> CpuSet {
    let cores = before.cores().iter().map(|core| core.cpus);
    cores.filter(|cpus| !cpus.is_subset(&online)).collect()
}
