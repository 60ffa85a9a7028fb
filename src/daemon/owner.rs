//! [`Owner`]: owns the ledger, and what it does when something wakes it.

use super::delivery::{Delivery, ResponseKind, Sent};
use super::drift::{DriftWatcher, is_decided};
use super::enforcement::{Enforcement, wanted};
use super::hotplug::Hotplug;
use super::keeper::Keeper;
use super::kubelet::KubeletWatch;
use super::looks::{Findings, Looks};
use super::orphans::{self, Orphans, end_deserted};
use super::paths::{Paths, StartError};
use super::persist::Checkpoint;
use super::reload::ConfigReload;
use super::step::Step;
use super::suspects::Finding;
use super::validation::{self, cannot_promise};
use super::witness::witness;
use crate::checkpoint::StateError;
use crate::config::{Config, Reading};
use crate::cpuset::CpuSet;
use crate::edge::{Capabilities, Refusal, Subscriptions, Updater};
use crate::exclusivity::{Hierarchy, KernelRefusal, Memory, ProbeError, Scope};
use crate::kubelet::Look;
use crate::ledger::{Channel, ContainerId, Decision, Event, Ledger, Mechanism, Policy};
use crate::topology::{Topology, sysfs};
use crate::verify::Verifier;
use crate::view::counters::EventKind;
use crate::view::status::{ConfigStatus, OwnSettings};
use crate::view::{NodeFigures, OwnFigures};
use crate::wording::{self, count};
use std::sync::Arc;
use tokio::time::Instant;

/// Owns the ledger and its checkpoint.
#[derive(Debug)]
pub struct Owner {
    pub(super) keeper: Keeper,
    pub(super) delivery: Delivery,
    pub(super) enforcement: Enforcement,
    pub(super) kubelet: KubeletWatch,
    pub(super) config: ConfigReload,
    pub(super) hotplug: Hotplug,
    pub(super) looks: Looks,
    pub(super) drift: DriftWatcher,
    pub(super) orphans: Orphans,
    strict: bool,
}

impl Owner {
    /// Checks the configuration against the machine, locks the state directory and reads the
    /// checkpoint. Logs what is in force.
    ///
    /// # Errors
    /// If any of that fails. No container has changed then.
    pub fn start(paths: &Paths, config: &Config) -> Result<Owner, StartError> {
        let sysfs::Reading { facts, warnings, sizes: _ } = sysfs::read(&paths.sysfs_root)?;
        let topology = Topology::build(facts)
            .map_err(|error| StartError::Facts(paths.sysfs_root.clone(), error))?;
        for warning in warnings {
            log::warn!("{warning}");
        }
        let config = &config.for_node(&paths.node)?;
        let settings = config.resolve(&topology)?;
        let checkpoint = Checkpoint::open(&paths.state_dir)?;
        let memory = Memory::open(&paths.state_dir, &paths.proc_root);
        let (exclusivity, partition) = (wanted(config), config.partition());
        let enforcement = Enforcement::start(exclusivity, partition, &paths.cgroup_root, memory);
        let enforcement = enforcement.map_err(|why| config.kernel_cannot(why))?;
        let mechanism = enforcement.mechanism();
        let claims = checkpoint.remembered()?;
        log::info!(
            "machine: {}, {}, {}, {}, {}",
            count(topology.sockets().len(), "socket"),
            count(topology.nodes().len(), "NUMA node"),
            count(topology.uncores().len(), "uncore cache"),
            count(topology.cores().len(), "core"),
            wording::cpus(topology.online()),
        );
        let own = OwnSettings::of(&settings, config.partition(), config.on_active_kubelet());
        log::info!(
            "in force: {}",
            ConfigStatus::log_line(&settings, mechanism, config.strict(), own)
        );
        for line in config.applied_lines() {
            log::info!("in it is the override for this node on line {line}");
        }
        let partition = (mechanism == Mechanism::Partitions).then(|| config.partition());
        let verifier = Hierarchy::open(&paths.cgroup_root)
            .map(|hierarchy| Verifier::new(hierarchy, &paths.proc_root, partition));
        let mut owner = Owner {
            keeper: Keeper::new(Ledger::new(topology, settings, claims), checkpoint),
            delivery: Delivery::new(enforcement.writer()),
            enforcement,
            kubelet: KubeletWatch::new(config),
            config: ConfigReload::new(paths, config),
            hotplug: Hotplug::new(&paths.sysfs_root),
            looks: Looks::new(verifier),
            drift: DriftWatcher::new(),
            orphans: Orphans::new(),
            strict: config.strict(),
        };
        owner.keeper.note(Event::Mechanism(mechanism));
        owner.kubelet.first_look(&mut owner.keeper, &mut owner.enforcement);
        Ok(owner)
    }

    /// A runtime has connected. Returns which optional events it shall send.
    pub(super) fn connected(
        &mut self,
        updater: Option<Arc<dyn Updater>>,
        capabilities: &Capabilities,
    ) -> Subscriptions {
        self.delivery.connected(updater);
        self.enforcement.connected();
        if self.strict
            && let Some(warning) = cannot_promise(capabilities)
        {
            log::warn!("{warning}");
        }
        Subscriptions {
            before_start: self.enforcement.mechanism() == Mechanism::Partitions,
            validation: self.strict,
        }
    }

    /// Handles one event of the runtime: decides, writes the checkpoint, and counts.
    pub(super) async fn handle(&mut self, event: Event) -> Result<Decision, Refusal> {
        let (kind, started) = (EventKind::from(&event), Instant::now());
        let answer = self.decide(event, kind).await;
        self.keeper.counters.handled(kind, started.elapsed(), &answer);
        answer
    }

    async fn decide(&mut self, event: Event, kind: EventKind) -> Result<Decision, Refusal> {
        let created = match &event {
            Event::Create { container, .. } => Some(container.id.clone()),
            _ => None,
        };
        let listed = matches!(event, Event::Synchronize { .. });
        let removed = matches!(event, Event::Remove(_));
        // No container gets a CPU that is offline.
        if created.is_some() || listed {
            self.look_at_machine().await;
        }
        if created.is_some() {
            end_deserted(self.looks.verifier(), &mut self.keeper).await;
        }
        let mut event = witness(self.looks.verifier(), event).await;
        self.hotplug.locate_devices(&mut event);
        self.enforcement.note_left(&event);
        self.kubelet.note_event(&event, &mut self.keeper, &mut self.enforcement);
        let (step, response) = (Step::of(&event), ResponseKind::to(&event));
        let result = self.keeper.ledger.handle(event);
        if removed || listed {
            end_deserted(self.looks.verifier(), &mut self.keeper).await;
        }
        let notes = self.keeper.log_notes();
        let Keeper { ledger, counters, .. } = &mut self.keeper;
        let mut decision = result.map_err(|rejection| {
            counters.rejected(kind, rejection.reason, &ledger.settings().placement);
            Refusal(rejection.to_string())
        })?;
        match self.keeper.save().await {
            Ok(()) => {
                let Keeper { ledger, counters, .. } = &mut self.keeper;
                counters.given(&notes, ledger.topology(), &ledger.settings().placement);
            }
            Err(error) => decision = self.unsaved(kind, decision, created.as_ref(), &error)?,
        }
        if let Err(why) = self.enforcement.follow(step, &mut self.keeper).await {
            return Err(self.too_early(kind, decision, created.as_ref(), &why));
        }
        let changed = self.enforcement.bind(Scope::Binding, &mut self.keeper).await;
        if changed && response != ResponseKind::NoUpdates {
            decision.updates.extend(self.keeper.deliver(Channel::Runtime));
        }
        let Owner { delivery, keeper, .. } = self;
        delivery.answer(response, &mut decision.updates, keeper).await;
        if listed {
            self.looks.soon();
            announce(&self.keeper.ledger, &decision);
        }
        Ok(decision)
    }

    /// Refuses a container whose CPUs the kernel has not given back yet. It keeps its claim for the
    /// kubelet's next try, within seconds, so that a restarted container finds its own CPUs.
    fn too_early(
        &mut self,
        kind: EventKind,
        decision: Decision,
        created: Option<&ContainerId>,
        why: &KernelRefusal,
    ) -> Refusal {
        self.keeper.note(Event::Undelivered(decision.updates));
        self.keeper.refuse(kind, created, &format!("CPUs cannot be taken yet: {why}"))
    }

    /// A decision is not on disk. The owner refuses a new exclusive container, as after a crash its
    /// CPUs would be unknown; the kubelet tries again. Everything else goes on: running containers
    /// show their CPUs, and a restarted one has its CPUs on disk under its name.
    fn unsaved(
        &mut self,
        kind: EventKind,
        decision: Decision,
        created: Option<&ContainerId>,
        error: &StateError,
    ) -> Result<Decision, Refusal> {
        log::error!("{error}");
        match (created, decision.adjustment) {
            (Some(id), Some(adjustment))
                if adjustment.is_exclusive() && !self.keeper.ledger.inherits(id) =>
            {
                let why = format!(
                    "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
                );
                let refusal = self.keeper.refuse(kind, created, &why);
                let updates = decision.updates;
                self.keeper.note(Event::Revoked { container: id.clone(), updates });
                Err(refusal)
            }
            _ => Ok(decision),
        }
    }

    /// Whether the CPUs that the runtime is about to set for a new container are the decided ones.
    pub(super) fn validate(
        &mut self,
        container: &ContainerId,
        set: Option<CpuSet>,
    ) -> Result<(), Refusal> {
        if !self.strict {
            return Ok(());
        }
        validation::validate(&mut self.keeper, container, set)
    }

    pub(super) async fn settle(&mut self, id: &ContainerId) {
        self.enforcement.settle(id, &mut self.keeper).await;
    }

    /// Delivers due updates: at once where that is safe, otherwise with the next answers.
    pub(super) async fn flush(&mut self) {
        // Shared containers leave CPUs before others are moved there, and come to those that these
        // have left.
        self.enforcement.bind(Scope::Binding, &mut self.keeper).await;
        if self.delivery.flush(&mut self.keeper).await {
            self.looks.soon();
        }
        self.enforcement.bind(Scope::Binding, &mut self.keeper).await;
    }

    /// Another program may have written into a group, or containers have left CPUs by now that
    /// others wait for.
    pub(super) async fn follow_groups(&mut self) {
        self.enforcement.bind(Scope::Binding, &mut self.keeper).await;
        self.flush_owed().await;
    }

    /// The same, if updates may be due.
    async fn flush_owed(&mut self) {
        if self.keeper.ledger.owes() {
            self.flush().await;
        }
    }

    pub(super) async fn look_at_machine(&mut self) {
        if self.hotplug.follow(&mut self.keeper, &mut self.enforcement) {
            self.flush().await;
        }
    }

    pub(super) async fn lull(&mut self) {
        self.orphans.lull_is_over(&mut self.keeper);
        self.flush_owed().await;
    }

    pub(super) async fn reconfigure(&mut self, reading: Reading) {
        let Owner { config, keeper, enforcement, .. } = self;
        if let Some(before) = config.follow(reading, keeper, enforcement) {
            self.kubelet.reconfigure(&before, config.config(), keeper, enforcement);
            self.flush().await;
        }
    }

    pub(super) async fn look_at_kubelet(&mut self, look: Look) {
        self.kubelet.look(look, &mut self.keeper, &mut self.enforcement);
        self.flush().await;
    }

    pub(super) async fn sent(&mut self, sent: Sent) {
        if self.delivery.sent(sent, &mut self.keeper).await {
            self.looks.soon();
        }
    }

    pub(super) async fn looked(&mut self, Findings { mut drifted, sightings }: Findings) {
        self.enforcement.bind(Scope::All, &mut self.keeper).await;
        drifted.retain(|finding| is_decided(&finding.placed, &self.keeper.ledger));
        let all_as_decided = drifted.is_empty();
        let due = self.drift.note(drifted, &self.delivery.pace, &mut self.keeper);
        self.looks.set_due(due);
        self.orphans.note(sightings, &mut self.keeper);
        end_deserted(self.looks.verifier(), &mut self.keeper).await;
        if all_as_decided && self.enforcement.mechanism() == Mechanism::Runtime {
            self.enforcement.let_go(&self.keeper.ledger).await;
        }
        if all_as_decided && self.keeper.ledger.waits() && !self.delivery.calls() {
            self.delivery.write_groups(&mut self.keeper).await;
        }
        self.flush_owed().await;
    }

    pub(super) async fn repair(&mut self, finding: Finding) {
        let Owner { keeper, enforcement, delivery, looks, .. } = self;
        self.drift.repair(finding, looks.verifier().as_ref(), keeper, enforcement, delivery).await;
        // The repaired containers are due. If they stayed so until the next check pass, that one
        // would silently write over a new drift of theirs.
        if self.drift.is_done() {
            self.flush_owed().await;
        }
    }

    pub(super) fn view(&mut self) -> NodeFigures {
        let view = self.keeper.ledger.view();
        self.keeper.history().badges.follow(&view);
        NodeFigures { view, history: self.keeper.past(), own: self.figures() }
    }

    fn figures(&self) -> OwnFigures {
        let mut drifts = self.drift.drifts.clone();
        drifts.insert(orphans::KIND, self.orphans.ended);
        let enforcement = &self.enforcement;
        OwnFigures {
            strict: self.strict,
            partition: self.config.partition(),
            on_active_kubelet: self.config.on_active_kubelet(),
            config: self.config.state.clone(),
            counters: self.keeper.counters.clone(),
            drifts,
            repairs: self.drift.repairs.clone(),
            drifting: self.drift.suspects.drifting(),
            late: self.drift.suspects.late().len(),
            times_late: self.drift.suspects.times_late,
            change_takes: self.delivery.pace.each(),
            kernel_refusals: enforcement.refusals,
            cannot_write_groups: enforcement.cannot_write().map(ProbeError::consequence),
            group_write_errors: enforcement.errors + self.delivery.errors,
            exclusivity_because: enforcement.means.because.clone(),
            group_bounds: enforcement.report.bounds.clone(),
            distrusted_groups: enforcement.report.distrusted.clone(),
            unbound_pods: enforcement.unbound(),
            pool_writes: enforcement.written,
            checkpoint_error: self.keeper.checkpoint.error(),
        }
    }
}

fn announce(ledger: &Ledger, decision: &Decision) {
    let (exclusive, pool) = (ledger.exclusive(), ledger.pool());
    log::info!(
        "synchronised with {}: exclusive {}, shared pool {pool}, {} changed",
        count(ledger.view().pods, "pod"),
        if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) },
        count(decision.updates.len(), "container"),
    );
    if ledger.settings().policy == Policy::None {
        log::info!("cpuManagerPolicy is none: no container gets exclusive CPUs");
    }
}
