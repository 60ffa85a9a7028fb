//! Keeps exclusivity by partitions, event by event, and falls back to the runtime where the kernel
//! refuses.

use super::blocking::blocking;
use super::delivery::Delivery;
use super::groups::GroupWriter;
use super::keeper::Keeper;
use super::paths::{Paths, StartError};
use crate::config::{Config, WantedExclusivity};
use crate::enforce::{Enforcer, KernelRefusal, ProbeError, probe};
use crate::ledger::{
    CgroupPath, Channel, ContainerId, Event, Exclusivity, Ledger, Policy, Settings, Target, Update,
};
use crate::observe::clock::now;
use std::collections::{BTreeSet, VecDeque};

/// The kubelet's groups for all pods, with either cgroup driver. The enforcer tidies them even if
/// no pod is left that names them.
const KUBEPODS: [&str; 2] = ["kubepods", "kubepods.slice"];

/// What keeps others off exclusive CPUs.
#[derive(Debug)]
enum Way {
    Kernel(Enforcer),
    /// The runtime. The enforcer ends partitions of an earlier configuration; the error is why it
    /// cannot.
    Runtime(Result<Enforcer, ProbeError>),
}

#[derive(Debug)]
pub(super) struct Partitions {
    way: Way,
    /// Containers whose groups the main loop settles when it is idle.
    unsettled: VecDeque<ContainerId>,
    /// Whether ended containers may have left something in the groups above them.
    untidy: bool,
    /// The topmost groups that containers are or were in.
    tops: BTreeSet<CgroupPath>,
    refusals: u64,
}

/// What an event means for partitions.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    None,
    /// The runtime will make this container's group. The answer can carry updates of others, or
    /// refuse it.
    Create(ContainerId),
    /// Settle this container's group. The answer can carry updates of others.
    Update(ContainerId),
    /// Settle this container's group before it runs. The answer can carry nothing.
    Start(ContainerId),
    /// Settle this container's group later, in case it did not exist before.
    Started(ContainerId),
    All,
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

/// What shall keep others off exclusive CPUs, as the configuration says.
pub(super) fn wanted(config: &Config) -> WantedExclusivity {
    match config.policy() {
        Policy::None => WantedExclusivity::Runtime,
        Policy::Static => config.exclusivity(),
    }
}

impl Partitions {
    /// Probes the kernel, and decides what `auto` means.
    ///
    /// # Errors
    /// If the configuration demands partitions and the kernel cannot make them.
    pub(super) fn start(
        paths: &Paths,
        config: &Config,
        settings: &mut Settings,
    ) -> Result<Partitions, StartError> {
        let able =
            probe(&paths.cgroup_root).map(|hierarchy| Enforcer::new(hierarchy, config.partition()));
        let way = match (wanted(config), able) {
            (WantedExclusivity::Runtime | WantedExclusivity::Groups, able) => Way::Runtime(able),
            (_, Ok(enforcer)) => Way::Kernel(enforcer),
            (WantedExclusivity::Auto, Err(why)) => {
                log::info!("exclusivity: auto: not by the kernel, because {why}");
                Way::Runtime(Err(why))
            }
            (WantedExclusivity::Kernel, Err(why)) => return Err(config.kernel_cannot(why).into()),
        };
        let by_groups =
            matches!(wanted(config), WantedExclusivity::Groups | WantedExclusivity::Auto);
        settings.exclusivity = match way {
            Way::Kernel(_) => Exclusivity::Kernel,
            Way::Runtime(_) if by_groups => Exclusivity::Groups,
            Way::Runtime(_) => Exclusivity::Runtime,
        };
        Ok(Partitions::new(way))
    }

    fn new(way: Way) -> Partitions {
        Partitions {
            way,
            unsettled: VecDeque::new(),
            untidy: false,
            tops: KUBEPODS.iter().filter_map(|name| CgroupPath::new(name)).collect(),
            refusals: 0,
        }
    }

    /// Writes partitions; `None` if the runtime keeps exclusivity.
    pub(super) fn enforcer(&self) -> Option<Enforcer> {
        match &self.way {
            Way::Kernel(enforcer) => Some(enforcer.clone()),
            Way::Runtime(_) => None,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        matches!(self.way, Way::Kernel(_))
    }

    /// The topmost groups that containers were in or may have been in.
    pub(super) fn tops(&self) -> impl Iterator<Item = &CgroupPath> {
        self.tops.iter()
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Where the runtime keeps exclusivity, ends the partitions of listed containers. They would
    /// stay, and later writes of the runtime into such a group or its siblings would have other
    /// effects.
    ///
    /// Other containers can run on their CPUs until the runtime has made the updates of the answer.
    pub(super) async fn let_go(&self, event: &Event, groups: &mut GroupWriter) {
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
                groups.count_errors(blocking(move || enforcer.release(&partitions)).await);
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

    /// Makes a step before the event is answered. If the kernel refuses, returns updates for the
    /// answer: they move the shared containers off these CPUs instead.
    ///
    /// # Errors
    /// If a container must not be created yet, because the kernel still withholds its CPUs. The
    /// runtime could not keep others off them either.
    pub(super) async fn follow(
        &mut self,
        step: Step,
        keeper: &mut Keeper,
        delivery: &mut Delivery,
    ) -> Result<Vec<Update>, KernelRefusal> {
        let Some(enforcer) = self.enforcer() else { return Ok(Vec::new()) };
        match step {
            Step::None => {}
            Step::All => {
                self.settle_all(&keeper.ledger);
                self.untidy = true;
            }
            Step::Started(id) => self.unsettled.push_back(id),
            Step::Tidy => self.untidy = true,
            Step::Start(id) => {
                self.settle(&id, keeper, delivery).await;
            }
            Step::Create(id) => {
                let reserve = move |placed: &Target| enforcer.reserve(placed);
                match self.ask(&id, &keeper.ledger, reserve).await {
                    Err((_, refused @ KernelRefusal::Withheld(_))) => return Err(refused),
                    Err((placed, refused)) => {
                        self.fall_back(placed, &refused, keeper, delivery);
                        return Ok(keeper.deliver(Channel::Runtime));
                    }
                    Ok(()) => {}
                }
            }
            Step::Update(id) => {
                match self.settle_group(enforcer, &id, &keeper.ledger, delivery).await {
                    // It keeps what it has. Its update waits with the others that are too early.
                    Err((_, KernelRefusal::Withheld(_))) => self.unsettled.push_back(id),
                    Err((placed, refused)) => {
                        self.fall_back(placed, &refused, keeper, delivery);
                        return Ok(keeper.deliver(Channel::Runtime));
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(Vec::new())
    }

    /// Has all containers' groups settled when the main loop is idle.
    pub(super) fn settle_all(&mut self, ledger: &Ledger) {
        if self.is_on() {
            let groups = ledger.targets().filter(|placed| placed.cgroup.is_some());
            self.unsettled = groups.map(|placed| placed.subject.id).collect();
        }
    }

    pub(super) fn next_unsettled(&mut self) -> Option<ContainerId> {
        self.unsettled.pop_front()
    }

    /// Whether to tidy; resets it.
    pub(super) fn is_untidy(&mut self) -> bool {
        std::mem::take(&mut self.untidy)
    }

    /// Removes what ended containers have left in the groups above them. Nothing waits for this:
    /// settling a group tidies the groups that it needs.
    pub(super) async fn tidy(&self) {
        let Some(enforcer) = self.enforcer() else { return };
        let tops = self.tops.clone();
        blocking(move || tops.iter().for_each(|top| enforcer.tidy(top))).await;
    }

    /// Writes what a container's group should be, and returns whether it is that now. If the kernel
    /// refuses, moves shared containers off its CPUs at once by writes into their groups; the next
    /// answer repeats them to the runtime.
    pub(super) async fn settle(
        &mut self,
        id: &ContainerId,
        keeper: &mut Keeper,
        delivery: &mut Delivery,
    ) -> bool {
        let Some(enforcer) = self.enforcer() else { return false };
        let settled = self.settle_group(enforcer, id, &keeper.ledger, delivery).await;
        let Err((placed, refused)) = settled else { return true };
        self.fall_back(placed, &refused, keeper, delivery);
        delivery.write_groups(keeper).await;
        false
    }

    /// Writes what a container's group should be, and its pod's quota. A failure of the latter does
    /// not count.
    async fn settle_group(
        &mut self,
        enforcer: Enforcer,
        id: &ContainerId,
        ledger: &Ledger,
        delivery: &mut Delivery,
    ) -> Result<(), (Target, KernelRefusal)> {
        let settled = self.ask(id, ledger, move |placed| enforcer.settle(placed)).await;
        if let Some(placed) = ledger.target(id) {
            delivery.groups.settle_pod_quota(placed).await;
        }
        settled
    }

    async fn ask(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
        work: impl FnOnce(&Target) -> Result<(), KernelRefusal> + Send + 'static,
    ) -> Result<(), (Target, KernelRefusal)> {
        let Some(placed) = ledger.target(id) else { return Ok(()) };
        self.tops.extend(placed.cgroup.as_ref().and_then(CgroupPath::top));
        let result = blocking(move || Some(work(&placed).map_err(|refused| (placed, refused))));
        result.await.unwrap_or(Ok(()))
    }

    /// The kernel refused something for this container: if it has exclusive CPUs, the ledger has
    /// the runtime keep others off them.
    fn fall_back(
        &mut self,
        placed: Target,
        refused: &KernelRefusal,
        keeper: &mut Keeper,
        delivery: &mut Delivery,
    ) {
        let subject = &placed.subject;
        if !placed.is_partition() {
            delivery.groups.count_errors(1);
            log::warn!("{subject}: its control group is not as it should be: {refused}");
            return;
        }
        self.refusals += 1;
        log::warn!(
            "{subject}: the kernel does not keep others off its CPUs, the runtime has to ({} so far): {refused}",
            self.refusals
        );
        keeper.note(Event::PartitionRefused(subject.id.clone()));
        keeper.history().kernel_refused(now(), placed.subject, refused.to_string());
    }
}

#[cfg(test)]
mod tests;
