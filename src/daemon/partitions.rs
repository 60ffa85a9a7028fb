//! Lets the kernel keep exclusivity by partitions, event by event, and falls back to the runtime's
//! way where it refuses.

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

/// The groups that kubelets put all pods in, with either cgroup driver: what an earlier life left
/// there has to go even if no pod is left to tell where it was.
const KUBEPODS: [&str; 2] = ["kubepods", "kubepods.slice"];

/// What keeps others off exclusive CPUs.
#[derive(Debug)]
enum Way {
    /// The kernel.
    Kernel(Enforcer),
    /// The runtime. What an earlier life had the kernel do can be undone, or not, for this reason.
    Runtime(Result<Enforcer, ProbeError>),
}

/// The kernel's way, if it is in force.
#[derive(Debug)]
pub(super) struct Partitions {
    way: Way,
    /// Containers whose groups have to be looked at, and are when nothing else is to be done.
    unsettled: VecDeque<ContainerId>,
    /// Whether containers have gone, and may have left something above them.
    untidy: bool,
    /// The topmost groups that containers were in or may have been in, for tidying up after them.
    tops: BTreeSet<CgroupPath>,
    /// How often the kernel refused a container since the start.
    refusals: u64,
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
    /// This container's group has to be what it should be before it runs; the answer can carry
    /// nothing.
    Start(ContainerId),
    /// This container runs: once more, should its group not have been there before. The answer does
    /// not wait for it.
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

/// What shall keep others off exclusive CPUs, if there are to be any.
pub(super) fn wanted(config: &Config) -> WantedExclusivity {
    match config.policy() {
        Policy::None => WantedExclusivity::Runtime,
        Policy::Static => config.exclusivity(),
    }
}

impl Partitions {
    /// Finds out whether the kernel can, and settles what `auto` means.
    ///
    /// # Errors
    /// If it shall and cannot.
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

    /// What writes partitions, if the kernel keeps exclusivity.
    pub(super) fn enforcer(&self) -> Option<Enforcer> {
        match &self.way {
            Way::Kernel(enforcer) => Some(enforcer.clone()),
            Way::Runtime(_) => None,
        }
    }

    /// Whether it is in force.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.way, Way::Kernel(_))
    }

    /// The topmost groups that containers were in or may have been in.
    pub(super) fn tops(&self) -> impl Iterator<Item = &CgroupPath> {
        self.tops.iter()
    }

    /// How often it refused a container since the start.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Where the runtime keeps exclusivity, ends the partitions that listed containers still are:
    /// they would stay, and what the runtime writes later into such a group or one beside it would
    /// not do what it should.
    ///
    /// Others can come onto their CPUs until the runtime has carried out the answer to the list.
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

    /// Does what a decided event means for the kernel, before the event is answered. Where the
    /// kernel refuses, the changes of shared containers that keep them off instead are returned,
    /// for the answer.
    ///
    /// # Errors
    /// If a container must not be created yet, as its CPUs must not be set: the runtime's way is no
    /// way out then.
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
                    // It keeps what it has. Its own change waits with the others that are too
                    // early.
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

    /// Every container's group has to be looked at, when nothing else is to be done.
    pub(super) fn settle_all(&mut self, ledger: &Ledger) {
        if self.is_on() {
            let groups = ledger.targets().filter(|placed| placed.cgroup.is_some());
            self.unsettled = groups.map(|placed| placed.subject.id).collect();
        }
    }

    /// The next container whose group has to be made what it should be.
    pub(super) fn next_unsettled(&mut self) -> Option<ContainerId> {
        self.unsettled.pop_front()
    }

    /// Whether ended containers have left something in the groups above them; says so once.
    pub(super) fn is_untidy(&mut self) -> bool {
        std::mem::take(&mut self.untidy)
    }

    /// Takes what ended containers have left out of the groups above them. Until then it holds
    /// nothing up: what needs the groups tidies for itself.
    pub(super) async fn tidy(&self) {
        let Some(enforcer) = self.enforcer() else { return };
        let tops = self.tops.clone();
        blocking(move || tops.iter().for_each(|top| enforcer.tidy(top))).await;
    }

    /// Makes a container's group what it should be. Where the kernel refuses, shared containers are
    /// taken off its CPUs at once, behind the runtime's back; the runtime hears of it with its next
    /// answer. Says whether the group is so now.
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

    /// Makes a container's group what it should be, and its pod's quota, which is not worth a
    /// refusal.
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

    /// Has `work` done for a container. One that does not exist needs nothing.
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

    /// The kernel refused something for this container: the runtime has to keep others off its
    /// CPUs, if it has any of its own. What follows for them is the ledger's to tell.
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
