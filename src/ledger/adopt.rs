//! Taking over a node on which containers run already, without moving them.
//!
//! What is really set for a running container is the truth; what was remembered here comes second, what the kubelet
//! noted third; placing anew is the last resort. Every legal assignment is adopted before any container is placed, so
//! that nobody is moved to make room for somebody who has no CPUs yet. Where two hold the same CPUs, the fewest move.

use super::entry::{Entry, Life};
use super::event::Decision;
use super::hands_off::Stance;
use super::memory::Memory;
use super::model::{Container, ContainerId, CpuRequest, MilliCpu, Pod, PodUid, SandboxId};
use super::note::{Note, Reason, Subject, What};
use super::pods::Room;
use super::trust::Trust;
use super::{Claim, Exclusivity, Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::Allocation;
use std::collections::{HashMap, HashSet};

/// What was followed event by event, and is not in a runtime's list.
#[derive(Debug, Default)]
struct Followed {
    /// Budgets of pods, and whether the runtime tells of resized ones: a list has those that pods were created with.
    budgets: HashMap<PodUid, (Option<MilliCpu>, bool)>,
    /// Containers that the kernel would not keep others off.
    fallen_back: HashSet<ContainerId>,
    /// What containers ask for, as far as that is known.
    requests: HashMap<ContainerId, CpuRequest>,
}

impl Followed {
    /// What a listed container asks for: as it is listed, unless the list is older than what was followed. A limit whose
    /// quota has been lifted is in no list.
    fn request(&self, listed: &Container) -> CpuRequest {
        match self.requests.get(&listed.id) {
            Some(known) if listed.outdated => *known,
            Some(known) if known.request == listed.cpu.request => {
                CpuRequest { limit: listed.cpu.limit.or(known.limit), ..listed.cpu }
            }
            _ => listed.cpu,
        }
    }
}

impl Ledger {
    pub(super) fn synchronize(&mut self, pods: Vec<Pod>, containers: Vec<Container>) -> Decision {
        let (memory, followed) = self.forget();
        let owners = self.list_pods(pods, &containers);
        let mut containers = newest_instances(&owners, containers);
        for (uid, container) in &mut containers {
            let cpu = followed.request(container);
            let lifted = cpu.limit != container.cpu.limit;
            container.cpu = cpu;
            self.enter(uid, container);
            let alone = container.cpus.is_some_and(|set| memory.names(uid, container, &set));
            self.pods.change_entry(uid, &container.name, |entry| {
                entry.lifted = lifted;
                if let Some(applied) = &mut entry.applied {
                    applied.exclusive = alone || container.kept;
                }
            });
        }
        self.take_up(followed);
        self.settle(&containers, memory);
        Decision { updates: self.take_updates(), ..Decision::default() }
    }

    /// Gives containers that have been entered their CPUs. While somebody else assigns them, only what is set counts,
    /// and nobody is moved.
    pub(super) fn settle(&mut self, containers: &[(PodUid, Container)], memory: Memory) {
        let sets = containers.iter().filter_map(|(uid, container)| {
            Some((container.cpus?, self.asks(uid, container).is_some()))
        });
        let memory = memory.with_sets(sets);
        let sources: &[&[Trust]] = match self.stance {
            Stance::Assign => &[Trust::SET, Trust::NOTED],
            Stance::Refuse | Stance::Observe => &[Trust::SET],
        };
        for source in sources {
            for &trust in *source {
                let giving_way = self.giving_way(containers, &memory, trust);
                for (at, (uid, container)) in containers.iter().enumerate() {
                    if !giving_way.contains(&at) {
                        self.adopt(uid, container, &memory, trust);
                    }
                }
            }
            // Nobody who runs leaves the sibling of a CPU for its idleness.
            for (uid, container) in containers {
                self.isolate(uid, container, &memory);
            }
        }
        // Nobody without CPUs gets those of a container that is just being restarted.
        self.keep_for_restart(&memory);
        if self.stance == Stance::Assign {
            for (uid, container) in containers {
                let lost = self.lost(uid, container, &memory);
                self.resize_unseen(uid, container);
                self.repair(uid, container, lost);
            }
        }
        // A pod that has only a sandbox may be a dead one that is still listed: it keeps nothing free for itself.
        self.pods.change_all(|_, pod| {
            pod.refused = pod.containers.is_empty();
            pod.lend_if_quiet();
        });
        self.revision += 1;
        self.refresh_pool();
        self.pending = true;
    }

    /// An event spoke of a container that no earlier one did. It is treated as if it had been found running; what its
    /// name had before is remembered.
    pub(super) fn adopt_late(&mut self, uid: &PodUid, container: &Container) {
        self.recall(uid, &container.name);
        let ours = self.claims().filter(|claim| claim.is_of(uid, &container.name));
        let memory = Memory::new(ours.collect(), Vec::new());
        self.enter(uid, container);
        for trust in [Trust::Confirmed, Trust::Set, Trust::Remembered] {
            self.adopt(uid, container, &memory, trust);
        }
        self.isolate(uid, container, &memory);
        if self.stance == Stance::Assign {
            self.repair(uid, container, None);
        }
        self.revision += 1;
        self.refresh_pool();
        self.pending = true;
    }

    /// Gives a container the exclusive CPUs that are set for it, if they are legal.
    pub(super) fn adopt_set(&mut self, uid: &PodUid, container: &Container) {
        let memory = Memory::default();
        self.adopt(uid, container, &memory, Trust::Set);
        self.isolate(uid, container, &memory);
    }

    /// Adopts the node as at a first start, but from what is known of it; `set` says what is set for a container.
    /// Containers that have to be told something are told with the next answers.
    pub(super) fn adopt_anew(&mut self, set: impl Fn(&Entry) -> Option<CpuSet>) {
        let memory = self.memory(self.claims().collect());
        let mut running = Vec::new();
        self.pods.change_all(|uid, pod| {
            for (name, entry) in &mut pod.containers {
                if entry.life != Life::Stopped {
                    let container = Container {
                        kind: entry.kind,
                        cpus: set(entry),
                        mems: entry.mems,
                        created_at: entry.created_at,
                        cgroup: entry.cgroup.clone(),
                        ..Container::new(
                            entry.id.clone(),
                            pod.pod.sandbox.clone(),
                            name.clone(),
                            entry.cpu,
                        )
                    };
                    running.push((uid.clone(), container));
                }
                (entry.claim, entry.isolated) = (None, false);
            }
        });
        running.sort_by(|(_, a), (_, b)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        self.settle(&running, memory);
    }

    /// Drops everything but the memory of claims, and what was followed that a list does not tell.
    fn forget(&mut self) -> (Memory, Followed) {
        let ours: Vec<Claim> = self.claims().collect();
        let requests = ours.iter().map(|claim| (claim.id.clone(), claim.cpu));
        let by_runtime = |entry: &Entry| entry.kept_by == Exclusivity::Runtime;
        let followed = Followed {
            budgets: self
                .pods
                .iter()
                .map(|(uid, pod)| (uid.clone(), (pod.pod.budget, pod.resized)))
                .collect(),
            fallen_back: self
                .entries()
                .filter(|(_, _, entry)| entry.claim.is_some() && by_runtime(entry))
                .map(|(_, _, entry)| entry.id.clone())
                .collect(),
            requests: requests
                .chain(self.entries().map(|(_, _, entry)| (entry.id.clone(), entry.cpu)))
                .filter(|(_, cpu)| *cpu != CpuRequest::default())
                .collect(),
        };
        self.remembered.clear();
        self.pods.clear();
        self.sandboxes.clear();
        self.ids.clear();
        (self.memory(ours), followed)
    }

    /// What was known of pods and containers that are still there.
    fn take_up(&mut self, followed: Followed) {
        self.pods.change_all(|uid, pod| {
            if let Some((Some(budget), resized)) = followed.budgets.get(uid).copied() {
                (pod.pod.budget, pod.resized) = (Some(budget), resized);
            }
            for entry in pod.containers.values_mut() {
                if followed.fallen_back.contains(&entry.id) {
                    entry.kept_by = Exclusivity::Runtime;
                }
            }
        });
    }

    /// A container of this name is told of, whose claim is remembered from an earlier life: it is that of one that has
    /// ended, and its name's. For runtimes that never list what runs.
    pub(super) fn recall(&mut self, uid: &PodUid, name: &str) {
        let at = self.remembered.iter().position(|claim| claim.is_of(uid, name));
        let Some(at) = at else { return };
        let claim = self.remembered.swap_remove(at);
        self.keep(claim);
        self.revision += 1;
        self.refresh_pool();
    }

    /// A container is gone for good of which nothing is known but a claim from an earlier life.
    pub(super) fn forget_claim(&mut self, id: &ContainerId) {
        let before = self.remembered.len();
        self.remembered.retain(|claim| claim.id != *id);
        if self.remembered.len() != before {
            self.revision += 1;
            self.refresh_pool();
        }
    }

    /// These claims, and the kubelet's, which are needed again as long as it assigns CPUs.
    fn memory(&mut self, ours: Vec<Claim>) -> Memory {
        let kubelet = match self.stance {
            Stance::Assign => std::mem::take(&mut self.kubelet),
            _ => self.kubelet.clone(),
        };
        Memory::new(ours, kubelet)
    }

    /// Takes note of all pods, and says whose each sandbox is.
    ///
    /// Dead sandboxes are listed as well, in any order: after a reboot each pod has one besides the one that its containers
    /// are in. That one has to be heard of last, as its end is the pod's.
    fn list_pods(
        &mut self,
        mut pods: Vec<Pod>,
        containers: &[Container],
    ) -> HashMap<SandboxId, PodUid> {
        let mut newest: HashMap<&SandboxId, Option<i64>> = HashMap::new();
        for container in containers {
            let newest = newest.entry(&container.sandbox).or_default();
            *newest = container.created_at.max(*newest);
        }
        pods.sort_by_key(|pod| newest.get(&pod.sandbox).copied());
        pods.into_iter().map(|pod| (pod.sandbox.clone(), self.upsert_pod(pod))).collect()
    }

    /// Enters a running container without CPUs of its own.
    fn enter(&mut self, uid: &PodUid, container: &Container) {
        let mut entry = Entry::new(container, Life::Running, self.settings.exclusivity);
        entry.mems_are_others = !self.mems_are_ours(container);
        entry.terms = self.standing_terms(uid, container);
        let Some(mut pod) = self.pods.change(uid) else { return };
        if let Some(before) = pod.containers.insert(container.name.clone(), entry) {
            self.ids.remove(&before.id);
        }
        self.ids.insert(container.id.clone(), (uid.clone(), container.name.clone()));
    }

    /// The exclusive CPUs that a running container had until now and could not keep.
    fn lost(&self, uid: &PodUid, container: &Container, memory: &Memory) -> Option<CpuSet> {
        let entry = self.entry(uid, &container.name).filter(|entry| entry.claim.is_none())?;
        let had = memory.ours(uid, container).filter(|ours| ours.id == entry.id)?.cpus;
        (container.cpus == Some(had)).then_some(had)
    }

    /// Places a running container that should have exclusive CPUs and has none, or none that are legal: those that it
    /// has `lost`. Who is to have none any more is told of, too.
    fn repair(&mut self, uid: &PodUid, container: &Container, lost: Option<CpuSet>) {
        let Some((n, room)) = self.due(uid, container) else {
            if let Some(lost) = lost {
                let why = self.illegal(Some(lost), lost.len());
                let what = What::LeftShared(format!("{why}, and it is not to have others"));
                self.leave_shared(uid, container, what);
            }
            return;
        };
        let Some(entry) = self.entry(uid, &container.name) else { return };
        let wishes = entry.terms.wishes;
        let placement = wishes.settings(&self.settings.placement);
        let chosen = self.choose(uid, &placement, &wishes, self.free(), room, n);
        let subject = self.subject(uid, container);
        match chosen {
            Ok(Some(Allocation { cpus: to, hint })) => {
                let why = self.illegal(container.cpus, n);
                let taken = self.with_idle(&to, wishes.isolates());
                if let Some(mut pod) = self.pods.change(uid) {
                    pod.hand_over(&self.topology, &container.name, taken);
                    if wishes.shares_affinity() {
                        pod.affinity = pod.demand().map(|total| (total, hint));
                    }
                    if let Some(entry) = pod.containers.get_mut(&container.name) {
                        (entry.claim, entry.isolated) = (Some(to), wishes.isolates());
                    }
                }
                self.moved(subject, container.cpus, to, why);
            }
            Ok(None) => {}
            Err(rejection) => {
                let what = What::LeftShared(rejection.to_string());
                self.leave_shared(uid, container, what);
            }
        }
    }

    /// A running container shares CPUs. If its quota was lifted it has to be told, also if they are the ones that it has.
    fn leave_shared(&mut self, uid: &PodUid, container: &Container, what: What) {
        self.notes.push(Note::new(true, self.subject(uid, container), what));
        self.pods.change_entry(uid, &container.name, |entry| {
            if entry.lifted {
                entry.doubt();
            }
        });
    }

    /// How many exclusive CPUs a running container should have that has none, and how they fit its pod's budget; `None` if
    /// it should not.
    ///
    /// One that has been pinned and shares did not fit in: it gets no CPUs of another one that has just ended.
    fn due(&self, uid: &PodUid, container: &Container) -> Option<(usize, Room)> {
        let (pod, n) = (self.pods.get(uid)?, self.asks(uid, container)?);
        let room = self.room(pod, pod.budget_cpus(), container, n);
        let fits = match room {
            Room::Fresh(_) => true,
            Room::Reuse(_) => container.cpus.is_none(),
            Room::None => false,
        };
        let due = self.entry(uid, &container.name)?.claim.is_none()
            && self.settings.policy != Policy::None
            && fits;
        due.then_some((n, room))
    }

    /// How many exclusive CPUs a container asks for that has been entered.
    pub(super) fn asks(&self, uid: &PodUid, container: &Container) -> Option<usize> {
        let (pod, entry) = (self.pods.get(uid)?, self.entry(uid, &container.name)?);
        entry.terms.exclusive_cpus(pod.pod.qos, &container.cpu)
    }

    /// Why a container that asks for `n` exclusive CPUs cannot keep those that are set.
    fn illegal(&self, set: Option<CpuSet>, n: usize) -> Reason {
        match set {
            None => Reason::Unpinned,
            Some(set) if set.len() != n => Reason::NotExclusive,
            Some(set) if !set.is_subset(&self.topology.online()) => Reason::Offline,
            Some(set) if !set.is_disjoint(&self.settings.placement.reserved) => Reason::Reserved,
            Some(_) => Reason::Conflict,
        }
    }

    pub(super) fn moved(
        &mut self,
        subject: Subject,
        from: Option<CpuSet>,
        to: CpuSet,
        why: Reason,
    ) {
        *self.moves.entry(why).or_default() += 1;
        self.notes.push(Note::new(true, subject, What::Moved { from, to, why }));
    }

    /// Keeps the CPUs of containers that have ended but whose pod is alive: they will be restarted.
    fn keep_for_restart(&mut self, memory: &Memory) {
        let (ours, kubelet) = memory.parts();
        for claim in ours {
            self.keep(claim);
        }
        for (pod_uid, container, cpus) in kubelet {
            let Some(pod) = self.pods.get(&pod_uid).map(|entry| &entry.pod) else { continue };
            let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
            // The kubelet does not say which instance it was. No runtime gives such an id.
            let id = ContainerId(format!("{pod_uid}/{container}"));
            let (isolated, cpu) = (false, CpuRequest::default());
            self.keep(Claim { pod_uid, namespace, pod, container, id, cpus, isolated, cpu });
        }
    }

    fn keep(&mut self, claim: Claim) {
        let free = self.unclaimed();
        if claim.cpus.is_empty() || !claim.cpus.is_subset(&free) {
            return;
        }
        let isolated = claim.isolated && self.with_idle(&claim.cpus, true).is_subset(&free);
        let Some(mut pod) = self.pods.change(&claim.pod_uid) else { return };
        match pod.containers.get_mut(&claim.container) {
            Some(entry) if entry.life == Life::Stopped && entry.claim.is_none() => {
                (entry.claim, entry.isolated) = (Some(claim.cpus), isolated);
            }
            Some(_) => return,
            None if self.ids.contains_key(&claim.id) => return,
            None => {
                let entry = Entry::ended(&claim, isolated);
                pod.containers.insert(claim.container.clone(), entry);
                let owner = (claim.pod_uid, claim.container.clone());
                self.ids.insert(claim.id.clone(), owner);
            }
        }
        let Claim { namespace, pod, container, id, cpus, .. } = claim;
        let subject = Subject { namespace, pod, container, id };
        self.notes.push(Note::new(false, subject, What::Kept(cpus)));
    }
}

/// Finds each container's pod, oldest container first. Of two instances of one container the newer one counts.
fn newest_instances(
    owners: &HashMap<SandboxId, PodUid>,
    mut containers: Vec<Container>,
) -> Vec<(PodUid, Container)> {
    containers.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let (mut seen, mut ids) = (HashSet::new(), HashSet::new());
    let mut newest: Vec<(PodUid, Container)> = containers
        .into_iter()
        .rev()
        .filter_map(|container| Some((owners.get(&container.sandbox)?.clone(), container)))
        .filter(|(uid, container)| {
            seen.insert((uid.clone(), container.name.clone())) && ids.insert(container.id.clone())
        })
        .collect();
    newest.reverse();
    newest
}
