//! Lets the kernel keep exclusivity, event by event, and falls back to the runtime's way where it refuses.

use super::delivery::{deliver, note};
use super::watch::Work;
use super::{Paths, StartError};
use crate::config::{Config, WantedExclusivity};
use crate::enforce::{Enforcer, KernelRefusal, ProbeError, probe, writable};
use crate::ledger::{
    CgroupPath, Channel, ContainerId, Event, Exclusivity, Ledger, Placed, Policy, Settings,
    Subject, Update,
};
use std::collections::{BTreeSet, VecDeque};

/// The groups that kubelets put all pods in, with either cgroup driver: what an earlier life left there has to go even if
/// no pod is left to tell where it was.
const KUBEPODS: [&str; 2] = ["kubepods", "kubepods.slice"];

/// Writes of one container in a row at most: it leaves CPUs, gets some, and gets the rest. What fails is left to the watcher.
const ROUNDS: usize = 4;

/// Who keeps others off exclusive CPUs.
#[derive(Debug)]
enum Way {
    /// The kernel.
    Kernel(Enforcer),
    /// The runtime. What an earlier life had the kernel do can be undone, or not, for this reason.
    Runtime(Result<Enforcer, ProbeError>),
}

/// The kernel's way, if it is in force.
#[derive(Debug)]
pub(super) struct Kernel {
    way: Way,
    /// Sets CPUs behind the runtime's back; or why groups cannot be written here.
    hand: Result<Enforcer, ProbeError>,
    /// Containers whose groups have to be looked at, and are when nothing else is to be done.
    unsettled: VecDeque<ContainerId>,
    /// Whether containers have gone, and may have left something above them.
    untidy: bool,
    /// The topmost groups that containers were in or may have been in, for tidying up after them.
    tops: BTreeSet<CgroupPath>,
    /// How often the kernel refused a container since the start.
    refusals: u64,
    /// How often a group could not be written since the start.
    write_errors: u64,
    /// Refusals that nobody has been told of yet.
    untold: Vec<(Subject, String)>,
}

/// What an event means for the kernel.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    None,
    /// This container's group will be made; the answer can carry changes for others, or refuse it.
    Create(ContainerId),
    /// This container's group has to be what it should be; the answer can carry changes for others.
    Update(ContainerId),
    /// This container's group has to be what it should be before it runs; the answer can carry nothing.
    Start(ContainerId),
    /// This container runs: once more, should its group not have been there before. Nobody waits for it.
    Started(ContainerId),
    /// All containers have been listed.
    All,
    /// Containers have gone.
    Tidy,
}

impl Step {
    pub(super) fn of(event: &Event) -> Step {
        match event {
            Event::Create { container, .. } => Step::Create(container.id.clone()),
            Event::Starting { container, .. } => Step::Start(container.id.clone()),
            Event::Started { container, .. } => Step::Started(container.id.clone()),
            Event::Update { container, .. } => Step::Update(container.id.clone()),
            Event::Synchronize { .. } | Event::Machine(_) | Event::Settings(_) => Step::All,
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
            | Event::Drifted(_) => Step::None,
        }
    }
}

impl Kernel {
    /// Finds out whether the kernel can, and settles what `auto` means.
    ///
    /// # Errors
    /// If it shall and cannot.
    pub(super) fn start(
        paths: &Paths,
        config: &Config,
        settings: &mut Settings,
    ) -> Result<Kernel, StartError> {
        let wanted = match settings.policy {
            Policy::None => WantedExclusivity::Runtime,
            Policy::Static => config.exclusivity(),
        };
        let able =
            probe(&paths.cgroup_root).map(|hierarchy| Enforcer::new(hierarchy, config.partition()));
        let way = match (wanted, able) {
            (WantedExclusivity::Runtime, able) => Way::Runtime(able),
            (_, Ok(enforcer)) => Way::Kernel(enforcer),
            (WantedExclusivity::Auto, Err(why)) => {
                log::info!("exclusivity: auto: the runtime keeps it here, because {why}");
                Way::Runtime(Err(why))
            }
            (WantedExclusivity::Kernel, Err(why)) => return Err(config.kernel_cannot(why).into()),
        };
        settings.exclusivity = match way {
            Way::Kernel(_) => Exclusivity::Kernel,
            Way::Runtime(_) => Exclusivity::Runtime,
        };
        let hand = writable(&paths.cgroup_root);
        let hand = hand.map(|hierarchy| Enforcer::new(hierarchy, config.partition()));
        if let Err(why) = &hand {
            log::warn!("{}", why.consequence());
        }
        Ok(Kernel::new(way, hand))
    }

    fn new(way: Way, hand: Result<Enforcer, ProbeError>) -> Kernel {
        Kernel {
            way,
            hand,
            unsettled: VecDeque::new(),
            untidy: false,
            tops: KUBEPODS.iter().filter_map(|name| CgroupPath::new(name)).collect(),
            refusals: 0,
            write_errors: 0,
            untold: Vec::new(),
        }
    }

    fn enforcer(&self) -> Option<Enforcer> {
        match &self.way {
            Way::Kernel(enforcer) => Some(enforcer.clone()),
            Way::Runtime(_) => None,
        }
    }

    /// Whether it is in force.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.way, Way::Kernel(_))
    }

    /// Refusals since the last call: which container, and the kernel's reason.
    pub(super) fn take_refused(&mut self) -> Vec<(Subject, String)> {
        std::mem::take(&mut self.untold)
    }

    /// How often it refused a container since the start.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Why groups cannot be written here; `None` if they can.
    pub(super) fn cannot_write(&self) -> Option<&ProbeError> {
        self.hand.as_ref().err()
    }

    /// How often a group could not be written since the start.
    pub(super) fn write_errors(&self) -> u64 {
        self.write_errors
    }

    /// Sets a container's CPUs behind the runtime's back. Says whether that was possible.
    pub(super) async fn set_cpus(&mut self, placed: Placed) -> bool {
        self.by_hand(placed, Enforcer::set_cpus).await
    }

    /// Lifts an exclusive container's CFS quota behind the runtime's back. Says whether that was possible.
    pub(super) async fn lift_quota(&mut self, placed: Placed) -> bool {
        self.by_hand(placed, Enforcer::lift_quota).await
    }

    /// Lifts a pod's CFS quota for an exclusive container, or puts it back. Says whether that was possible.
    pub(super) async fn settle_pod_quota(&mut self, placed: Placed) -> bool {
        self.by_hand(placed, Enforcer::settle_pod_quota).await
    }

    /// Writes something for a container behind the runtime's back. Says whether that was possible. What the kernel refuses
    /// is logged and counted; a group that is gone is no failure.
    async fn by_hand<E: Into<KernelRefusal> + Send + 'static>(
        &mut self,
        placed: Placed,
        write: impl FnOnce(&Enforcer, &Placed) -> Result<(), E> + Send + 'static,
    ) -> bool {
        let Ok(enforcer) = self.hand.clone() else { return false };
        let subject = placed.subject.clone();
        match blocking(move || Some(write(&enforcer, &placed).map_err(Into::into))).await {
            Some(Ok(())) => true,
            Some(Err(refused)) => {
                if !KernelRefusal::is_gone(&refused) {
                    self.write_errors += 1;
                    log::warn!("{subject}: {refused}");
                }
                false
            }
            None => false,
        }
    }

    /// Where the runtime keeps exclusivity, ends the partitions that listed containers still are: nobody would see to them, and
    /// what the runtime writes later into such a group or one beside it would not do what it should.
    ///
    /// Others can come onto their CPUs until the runtime has carried out the answer to the list.
    pub(super) async fn let_go(&mut self, event: &Event) {
        let (Way::Runtime(able), Event::Synchronize { pods, containers }) = (&self.way, event)
        else {
            return;
        };
        let kept = containers.iter().filter(|container| container.partitioned);
        let partitions: Vec<(String, CgroupPath)> = kept
            .filter_map(|container| {
                let pod = pods.iter().find(|pod| pod.sandbox == container.sandbox);
                let pod =
                    pod.map_or("?/?".to_owned(), |pod| format!("{}/{}", pod.namespace, pod.name));
                Some((format!("{pod}/{}", container.name), container.cgroup.clone()?))
            })
            .collect();
        match able {
            _ if partitions.is_empty() => {}
            Ok(enforcer) => {
                let enforcer = enforcer.clone();
                self.write_errors += blocking(move || enforcer.release(&partitions)).await;
            }
            Err(why) => {
                let names: Vec<String> = partitions.into_iter().map(|(name, _)| name).collect();
                log::error!(
                    "the kernel still keeps others off the CPUs of {}, as an earlier configuration had it, and that cannot be ended, because {why}. Delete these pods, so that they are made anew; until then no change of their CPUs is certain to take effect",
                    names.join(", ")
                );
            }
        }
    }

    /// Does what a decided event means for the kernel, before the event is answered. Where the kernel refuses, the
    /// changes of shared containers that keep them off instead are returned, for the answer.
    ///
    /// # Errors
    /// If a container must not be created yet, as its CPUs must not be set: the runtime's way is no way out then.
    pub(super) async fn follow(
        &mut self,
        step: Step,
        ledger: &mut Ledger,
    ) -> Result<Vec<Update>, KernelRefusal> {
        let Some(enforcer) = self.enforcer() else { return Ok(Vec::new()) };
        match step {
            Step::None => {}
            Step::All => {
                self.settle_all(ledger);
                self.untidy = true;
            }
            Step::Started(id) => self.unsettled.push_back(id),
            Step::Tidy => self.untidy = true,
            Step::Start(id) => {
                self.settle(&id, ledger).await;
            }
            Step::Create(id) => {
                let reserved = self.ask(&id, ledger, move |placed| enforcer.reserve(placed)).await;
                match reserved {
                    Err((_, refused @ KernelRefusal::Withheld(_))) => return Err(refused),
                    Err((placed, refused)) => {
                        self.fall_back(placed, &refused, ledger);
                        return Ok(deliver(ledger, Channel::Runtime));
                    }
                    Ok(()) => {}
                }
            }
            Step::Update(id) => {
                match self.settle_group(enforcer, &id, ledger).await {
                    // It keeps what it has. Its own change waits with the others that are too early.
                    Err((_, KernelRefusal::Withheld(_))) => self.unsettled.push_back(id),
                    Err((placed, refused)) => {
                        self.fall_back(placed, &refused, ledger);
                        return Ok(deliver(ledger, Channel::Runtime));
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(Vec::new())
    }

    /// Every container's group has to be looked at, when nothing else is to be done.
    pub(super) fn settle_all(&mut self, ledger: &Ledger) {
        if self.is_on() {
            let groups = ledger.placed().filter(|placed| placed.cgroup.is_some());
            self.unsettled = groups.map(|placed| placed.subject.id).collect();
        }
    }

    /// Takes changes out that the runtime must not make yet: CPUs that the kernel still keeps for a group that is gone. They
    /// go along with a later answer.
    pub(super) async fn hold_back(&self, changes: &mut Vec<Update>, ledger: &mut Ledger) {
        let early = self.too_early(changes, ledger).await;
        if early.is_empty() {
            return;
        }
        let (held, go) = std::mem::take(changes)
            .into_iter()
            .partition::<Vec<_>, _>(|change| early.contains(&change.container));
        *changes = go;
        note(ledger, Event::Undelivered(held));
    }

    /// Waits until the kernel has given back what is to be set for these containers. Those for which it has not.
    pub(super) fn too_early(
        &self,
        changes: &[Update],
        ledger: &Ledger,
    ) -> impl Future<Output = Vec<ContainerId>> + use<> {
        let enforcer = self.enforcer().filter(|_| !changes.is_empty());
        let waiting = enforcer.map(|enforcer| {
            let placed = changes.iter().filter_map(|change| ledger.placed_one(&change.container));
            (enforcer, placed.collect::<Vec<Placed>>())
        });
        async move {
            let Some((enforcer, placed)) = waiting else { return Vec::new() };
            blocking(move || {
                let early = enforcer.await_cpus(&placed).into_iter().map(|(placed, why)| {
                    log::warn!("{}: its CPUs are set later: {why}", placed.subject);
                    placed.subject.id.clone()
                });
                early.collect()
            })
            .await
        }
    }

    /// What there is to do when nobody waits for an answer.
    pub(super) fn next(&mut self) -> Option<Work> {
        let settle = self.unsettled.pop_front().map(Work::Settle);
        settle.or_else(|| std::mem::take(&mut self.untidy).then_some(Work::Tidy))
    }

    /// Takes what ended containers have left out of the groups above them. It is in nobody's way until then: what it
    /// would hold up tidies for itself.
    pub(super) async fn tidy(&self) {
        let Some(enforcer) = self.enforcer() else { return };
        let tops = self.tops.clone();
        blocking(move || tops.iter().for_each(|top| enforcer.tidy(top))).await;
    }

    /// Makes a container's group what it should be. Where the kernel refuses, shared containers are taken off its CPUs
    /// at once, behind the runtime's back; the runtime is told with its next answer. Says whether it is so now.
    pub(super) async fn settle(&mut self, id: &ContainerId, ledger: &mut Ledger) -> bool {
        let Some(enforcer) = self.enforcer() else { return false };
        let settled = self.settle_group(enforcer, id, ledger).await;
        let Err((placed, refused)) = settled else { return true };
        self.fall_back(placed, &refused, ledger);
        self.write_pending(ledger).await;
        false
    }

    /// Makes a container's group what it should be, and its pod's quota, which is not worth a refusal.
    async fn settle_group(
        &mut self,
        enforcer: Enforcer,
        id: &ContainerId,
        ledger: &Ledger,
    ) -> Result<(), (Placed, KernelRefusal)> {
        let settled = self.ask(id, ledger, move |placed| enforcer.settle(placed)).await;
        if let Some(placed) = ledger.placed_one(id) {
            self.settle_pod_quota(placed).await;
        }
        settled
    }

    /// Writes into groups what no answer can carry, in an order in which a container leaves CPUs before another one is let on
    /// them. The runtime is told with its next answer, as it is of all of it where groups cannot be written.
    pub(super) async fn write_pending(&mut self, ledger: &mut Ledger) {
        if self.hand.is_err() {
            return;
        }
        for _ in 0..ROUNDS {
            let writes = deliver(ledger, Channel::Groups);
            if writes.is_empty() {
                return;
            }
            let mut failed = false;
            for write in writes {
                let Some(placed) = ledger.placed_one(&write.container) else { continue };
                if !self.set_cpus(placed).await {
                    note(ledger, Event::Undelivered(vec![write]));
                    failed = true;
                }
            }
            if failed {
                return;
            }
        }
    }

    /// Has `work` done for a container. One that does not exist needs nothing.
    async fn ask(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
        work: impl FnOnce(&Placed) -> Result<(), KernelRefusal> + Send + 'static,
    ) -> Result<(), (Placed, KernelRefusal)> {
        let Some(placed) = ledger.placed_one(id) else { return Ok(()) };
        self.tops.extend(placed.cgroup.as_ref().and_then(CgroupPath::top));
        let result = blocking(move || Some(work(&placed).map_err(|refused| (placed, refused))));
        result.await.unwrap_or(Ok(()))
    }

    /// The kernel refused something for this container: the runtime has to keep others off its CPUs, if it has any of its
    /// own. What follows for them is the ledger's to tell.
    fn fall_back(&mut self, placed: Placed, refused: &KernelRefusal, ledger: &mut Ledger) {
        let subject = &placed.subject;
        if !placed.is_partition() {
            self.write_errors += 1;
            log::warn!("{subject}: its control group is not as it should be: {refused}");
            return;
        }
        self.refusals += 1;
        log::warn!(
            "{subject}: the kernel does not keep others off its CPUs, the runtime has to ({} so far): {refused}",
            self.refusals
        );
        note(ledger, Event::PartitionRefused(subject.id.clone()));
        self.untold.push((placed.subject, refused.to_string()));
    }
}

/// Waits for the kernel where nobody else waits with us.
async fn blocking<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // The work neither panics nor is it cancelled.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

#[cfg(test)]
mod tests;
