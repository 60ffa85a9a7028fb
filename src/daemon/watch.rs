//! Looks every now and then whether what was decided is really so, and repairs what is not by the next safe way.
//!
//! The looking is done beside everything else; what it finds is a drift only if it is no delay ([`Suspects`]).

use super::action::Action;
use super::delivery::deliver;
use super::pace::Pace;
use super::suspects::{AGAIN, Finding, PERIOD, Suspects};
use super::vanished::{self, Sighting, Vanished};
use super::{Owner, Paths};
use crate::config::{Config, Reading};
use crate::cpuset::CpuSet;
use crate::enforce::{Drift, Hierarchy, InForce, Verifier};
use crate::kubelet::Look;
use crate::ledger::{Channel, ContainerId, Event, Holder, Placed, Update};
use crate::nri::Updater;
use crate::wording;
use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Found {
    findings: Vec<Finding>,
    sightings: Vec<Sighting>,
}

/// What there is to do when no message waits.
#[derive(Debug)]
pub(super) enum Work {
    /// A container's group has to be made what it should be.
    Settle(ContainerId),
    /// Containers have left something in the groups above them.
    Tidy,
    /// It is time to look which CPUs are online.
    Machine,
    /// Some time has passed.
    Lull,
    /// The configuration file has changed.
    Config(Reading),
    /// The kubelet's state file has changed.
    Kubelet(Look),
    /// A look has ended.
    Found(Found),
    /// A container is not as decided, and that is no delay.
    Repair(Finding),
    /// Something was decided that no answer could carry.
    Tell,
    /// Changes have been sent without an event; whether the runtime heard them.
    Sent(Vec<Update>, bool),
}

/// The watcher.
#[derive(Debug)]
pub(super) struct Watch {
    verifier: Option<Verifier>,
    /// When to look next.
    due: Instant,
    looking: Option<JoinHandle<Found>>,
    sending: Option<JoinHandle<(Vec<Update>, bool)>>,
    /// Whether something is to be told that no answer could carry.
    pub(super) owing: bool,
    /// Which changes the runtime is about to make.
    pub(super) pace: Pace,
    /// What the last look found.
    pub(super) suspects: Suspects,
    /// What is to be repaired when nothing else is to be done: one after the other, as the kernel takes its time.
    confirmed: VecDeque<Finding>,
    /// Containers of which the runtime has to be told when all is repaired.
    again: Vec<ContainerId>,
    vanished: Vanished,
    /// Drifts that were confirmed since the start, by kind.
    pub(super) drifts: BTreeMap<&'static str, u64>,
    /// What was done about them, by kind and action.
    pub(super) repairs: BTreeMap<(&'static str, &'static str), u64>,
}

impl Watch {
    pub(super) fn new(paths: &Paths, config: &Config, kernel: bool) -> Watch {
        let verifier = Hierarchy::open(&paths.cgroup_root).map(|hierarchy| {
            Verifier::new(hierarchy, &paths.proc_root, kernel.then(|| config.partition()))
        });
        Watch {
            verifier,
            due: Instant::now() + PERIOD,
            looking: None,
            sending: None,
            owing: false,
            pace: Pace::default(),
            suspects: Suspects::default(),
            confirmed: VecDeque::new(),
            again: Vec::new(),
            vanished: Vanished::default(),
            drifts: Drift::KINDS
                .into_iter()
                .chain([vanished::KIND])
                .map(|kind| (kind, 0))
                .collect(),
            repairs: BTreeMap::new(),
        }
    }

    /// Puts what the kernel says is set for listed containers in the place of what the runtime believes: CRI-O lists what
    /// it set when it created them, once it has been restarted. What they ask for cannot be seen, only that the list is old.
    pub(super) async fn witness(&self, event: Event) -> Event {
        let Event::Synchronize { pods, mut containers } = event else { return event };
        let Some(verifier) = self.verifier.clone() else {
            return Event::Synchronize { pods, containers };
        };
        let groups: Vec<_> = containers.iter().map(|listed| listed.cgroup.clone()).collect();
        let look = move || -> Vec<Option<InForce>> {
            groups.iter().map(|group| verifier.set_for(group.as_ref()?)).collect()
        };
        // It neither panics nor is it cancelled.
        let set = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        for (container, set) in containers.iter_mut().zip(set) {
            let Some(InForce { cpus: set, mems, kept }) = set else { continue };
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
        }
        Event::Synchronize { pods, containers }
    }

    /// Lets the processes of a container run on all of its CPUs that inherited this mask.
    async fn widen(&self, placed: Placed, mask: CpuSet) -> io::Result<()> {
        let Some(verifier) = self.verifier.clone() else { return Ok(()) };
        // It neither panics nor is it cancelled.
        tokio::task::spawn_blocking(move || verifier.widen(&placed, mask)).await?
    }

    /// What looks at the groups, where they can be seen.
    pub(super) fn verifier(&self) -> Option<Verifier> {
        self.verifier.clone()
    }

    /// Much may have changed at once: nobody waits a whole period for the first look.
    pub(super) fn look_soon(&mut self) {
        self.due = self.due.min(Instant::now() + AGAIN);
    }

    fn count(&mut self, drift: &Drift, action: Action) {
        *self.drifts.entry(drift.kind()).or_default() += 1;
        *self.repairs.entry((drift.kind(), action.name())).or_default() += 1;
    }

    /// A look has ended.
    fn note(&mut self, found: Vec<Finding>) {
        let now = Instant::now();
        let mut confirmed = self.suspects.note(found, &self.pace, now);
        // Who shares leaves before others come back to their own CPUs.
        confirmed.sort_by_key(|finding| finding.placed.pin.is_exclusive());
        self.confirmed.extend(confirmed);
        self.due = self.suspects.next_look(&self.pace, now);
    }
}

/// Waits for the next thing to do. Nothing is lost if it is given up.
pub(super) async fn next(owner: &mut Option<Owner>) -> Work {
    let Some(owner) = owner else { return pending().await };
    if let Some(work) = owner.kernel.next() {
        return work;
    }
    if std::mem::take(&mut owner.watch.owing) {
        return Work::Tell;
    }
    if let Some(finding) = owner.watch.confirmed.pop_front() {
        return Work::Repair(finding);
    }
    let Watch { verifier, due, looking, sending, .. } = &mut owner.watch;
    let ledger = &owner.ledger;
    tokio::select! {
        look = owner.neighbour.next() => Work::Kubelet(look),
        reading = owner.live.next() => Work::Config(reading),
        () = sleep_until(owner.machine.due) => Work::Machine,
        () = sleep_until(owner.lull) => Work::Lull,
        sent = finished(sending) => Work::Sent(sent.0, sent.1),
        found = async {
            if looking.is_none() {
                let Some(verifier) = verifier.clone() else { return pending().await };
                sleep_until(*due).await;
                let placed: Vec<Placed> = ledger.placed().collect();
                let holders: Vec<Holder> = ledger.holders().collect();
                *looking = Some(tokio::task::spawn_blocking(move || Found {
                    findings: look(&verifier, placed),
                    sightings: vanished::look(&verifier, holders),
                }));
            }
            finished(looking).await
        } => Work::Found(found),
    }
}

/// Waits for a task, if there is one.
async fn finished<T: Default>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(handle) = task else { return pending().await };
    let result = handle.await;
    *task = None;
    // It neither panics nor is it cancelled.
    result.unwrap_or_default()
}

fn look(verifier: &Verifier, placed: Vec<Placed>) -> Vec<Finding> {
    placed
        .into_iter()
        .map(|placed| Finding { drift: verifier.look(&placed), placed })
        .filter(|finding| !finding.drift.is_empty())
        .collect()
}

impl Owner {
    /// Does what there was to do.
    pub(super) async fn work(&mut self, work: Work) {
        match work {
            Work::Settle(id) => {
                self.kernel.settle(&id, &mut self.ledger).await;
                self.remember_refusals();
            }
            Work::Tidy => self.kernel.tidy().await,
            Work::Tell => self.tell_pending().await,
            Work::Machine => self.look_at_machine().await,
            Work::Lull => self.lull().await,
            Work::Config(reading) => self.follow_config(reading).await,
            Work::Kubelet(look) => {
                self.look(look);
                self.tell_pending().await;
            }
            Work::Sent(changes, heard) => {
                if heard {
                    self.watch.pace.returned(Instant::now());
                }
                // What was decided meanwhile may have been carried out before, and count for nothing now.
                let stale = changes.into_iter().filter(|change| {
                    let now = self.ledger.placed_one(&change.container);
                    !heard || now.is_some_and(|now| now.pin != change.pin)
                });
                let stale: Vec<ContainerId> = stale.map(|change| change.container).collect();
                if heard {
                    self.tell_again(&stale);
                    // What has come up meanwhile had to wait for its turn.
                    self.tell_pending().await;
                } else {
                    self.note(Event::Drifted(stale));
                }
            }
            Work::Found(Found { findings: mut found, sightings }) => {
                found.retain(|finding| self.is_decided(&finding.placed));
                let all_as_told = found.is_empty();
                self.watch.note(found);
                self.history.late = self.watch.suspects.late().cloned().collect();
                for end in self.watch.vanished.note(sightings, Instant::now()) {
                    self.end(end);
                }
                self.end_deserted().await;
                if all_as_told && self.ledger.waits() && self.updater.is_none() {
                    self.kernel.write_pending(&mut self.ledger).await;
                }
                self.tell_owed().await;
            }
            Work::Repair(Finding { placed, drift }) => {
                for drift in drift {
                    if !self.is_decided(&placed) {
                        break;
                    }
                    let action = self.repair(&placed, &drift).await;
                    self.watch.count(&drift, action);
                    self.remember_drift(&placed, &drift, action);
                    let (subject, cpus) = (&placed.subject, placed.runs_on);
                    let (were, cpus) = (wording::agree(cpus, "was", "were"), wording::cpus(cpus));
                    log::warn!("{subject}: decided {were} {cpus}, but {drift}: {action}");
                }
                self.remember_refusals();
                if self.watch.confirmed.is_empty() {
                    let again = std::mem::take(&mut self.watch.again);
                    self.tell_again(&again);
                }
            }
        }
    }

    /// Whether it is still so: what has been decided anew since a look began is no drift.
    fn is_decided(&self, placed: &Placed) -> bool {
        self.ledger.placed_one(&placed.subject.id).as_ref() == Some(placed)
    }

    /// Repairs a drift by the next safe way, and says which. Of some containers the runtime has to be told again.
    async fn repair(&mut self, placed: &Placed, drift: &Drift) -> Action {
        let id = &placed.subject.id;
        match drift {
            Drift::Effective(_) if !placed.is_partition() => Action::Nothing,
            Drift::Partition(_) | Drift::Set(_) | Drift::Effective(_) if self.kernel.is_on() => {
                let mut written = self.kernel.settle(id, &mut self.ledger).await;
                if matches!(drift, Drift::Set(_)) {
                    written = written && self.kernel.set_cpus(placed.clone()).await;
                    self.note(Event::Drifted(vec![id.clone()]));
                }
                if written { Action::Written } else { Action::Deferred }
            }
            // No runtime knows it.
            Drift::Quota(_) => match self.kernel.settle_pod_quota(placed.clone()).await {
                true => Action::Written,
                false => Action::Nothing,
            },
            // The runtime was told to do it. Where it did not, and cannot be helped, it is told once more.
            Drift::OwnQuota(_) => match self.kernel.lift_quota(placed.clone()).await {
                true => Action::Written,
                false => self.told_again(id),
            },
            Drift::Set(_) if self.updater.is_some() => self.told_again(id),
            // Its next answer may be hours away: until then the runtime's books are wrong, and nothing else.
            Drift::Set(_) => {
                let written = self.kernel.set_cpus(placed.clone()).await;
                self.note(Event::Drifted(vec![id.clone()]));
                if written { Action::Written } else { Action::Deferred }
            }
            Drift::Inherited(_, mask) => match self.watch.widen(placed.clone(), *mask).await {
                Ok(()) => Action::Widened,
                Err(error) => {
                    log::warn!("{}: its affinity cannot be changed: {error}", placed.subject);
                    Action::Inherited
                }
            },
            Drift::Partition(_) | Drift::Effective(_) | Drift::Process(..) => Action::Nothing,
        }
    }

    /// The runtime shall be told of a container once more: when all is repaired, or with its next answer.
    fn told_again(&mut self, id: &ContainerId) -> Action {
        if self.updater.is_some() {
            self.watch.again.push(id.clone());
            return Action::Told;
        }
        self.note(Event::Drifted(vec![id.clone()]));
        Action::Deferred
    }

    /// Tells the runtime of containers once more: at once where that is safe, with its next answer else.
    fn tell_again(&mut self, containers: &[ContainerId]) {
        if containers.is_empty() {
            return;
        }
        self.note(Event::Drifted(containers.to_vec()));
        let Some(updater) = self.idle_updater() else { return };
        let changes = deliver(&mut self.ledger, Channel::Runtime);
        self.send(updater, changes);
    }

    /// After a decision that no answer carries: writes what must outlive the process, then tells the runtime at once what
    /// would go along with its next answer, or writes control groups itself where telling is not safe.
    pub(super) async fn tell_pending(&mut self) {
        if let Err(error) = self.save().await {
            log::error!("{error}");
        }
        if self.updater.is_none() {
            // Where containers wait for others, these may not have left yet: the runtime was told, and a look shows when
            // it is so.
            match self.ledger.waits() {
                true => self.watch.look_soon(),
                false => self.kernel.write_pending(&mut self.ledger).await,
            }
            return;
        }
        if let Some(updater) = self.idle_updater() {
            let changes = deliver(&mut self.ledger, Channel::Runtime);
            if !changes.is_empty() {
                self.send(updater, changes);
            }
        }
    }

    fn idle_updater(&self) -> Option<Updater> {
        self.updater.clone().filter(|_| self.watch.sending.is_none())
    }

    fn send(&mut self, updater: Updater, changes: Vec<Update>) {
        self.watch.pace.called(&changes, Instant::now());
        let early = self.kernel.too_early(&changes, &self.ledger);
        self.watch.sending = Some(tokio::spawn(async move {
            if !early.await.is_empty() {
                return (changes, false);
            }
            let result = updater.update(&changes).await;
            if let Err(error) = &result {
                log::warn!("{error}");
            }
            (changes, result.is_ok())
        }));
    }
}
