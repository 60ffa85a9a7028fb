//! How the owner moves running containers to better CPUs: one step after the other, each decided,
//! on disk, carried out and verified before the next one.
//!
//! Where cgroups keep exclusivity, the daemon carries a step out itself, before the answer that
//! needs it. Where the runtime does, all steps of a plan are in the answer to a creation, in an
//! order in which each container leaves its CPUs before another one gets them; a plan that would
//! need a container moved twice is left alone there.

use super::blocking;
use super::owner::Owner;
use crate::exclusivity::Scope;
use crate::ledger::{
    Admission, ContainerId, Event, Ledger, Move, MoveOutcome, MovePlan, NoPlan, Occasion, Target,
};
use crate::verify::Drift;
use crate::wording;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The part of the runtime's time limit after which no further step of a plan begins.
const PATIENCE: f64 = 0.4;
/// How long to wait for the kernel until a step is in force, and how often to look.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// How many containers with affinities of their own a plan may turn out to need.
const TRIES: usize = 4;

impl Owner {
    /// Makes room for a container that is about to be created.
    pub(super) async fn make_room(&mut self, creation: &Admission) {
        let creates = matches!(creation, Admission::Create { .. });
        if !creates || self.ledger.settings().rebalance.is_none() {
            return;
        }
        let arrival = self.plan(Occasion::Arrival, |ledger| ledger.plan_arrival(creation)).await;
        if self.writes_moves() {
            return self.carry_out_plan(arrival).await;
        }
        let plan = match arrival {
            None if self.ledger.settings().notice_seconds == 0 => {
                self.plan(Occasion::Departure, Ledger::plan_departure).await
            }
            found => found,
        };
        let Some(plan) = plan else { return };
        if plan.is_staged() {
            let why = "it would move a container twice, which an update by the runtime cannot";
            return self.balance.planned(plan.occasion, 0, Some(why.to_owned()));
        }
        // The decision saves them, and its answer carries them.
        self.balance.planned(plan.occasion, plan.steps.len(), None);
        self.apply_all(plan.steps.into_iter().map(Event::Move).collect());
    }

    /// Moves containers to better CPUs that have become free.
    pub(super) async fn rebalance(&mut self) {
        self.pass_time();
        if self.writes_moves() {
            let plan = self.plan(Occasion::Departure, Ledger::plan_departure).await;
            if self.may_move(plan.as_ref()).await {
                self.carry_out_plan(plan).await;
                self.show_planned(&BTreeMap::new()).await;
            } else if plan.is_some() {
                let why = "programs have notice of it first (noticeSeconds)".to_owned();
                self.balance.planned(Occasion::Departure, 0, Some(why));
            }
            self.flush_owed().await;
        }
    }

    /// Whether the daemon itself can carry moves out.
    pub(super) fn writes_moves(&self) -> bool {
        self.ledger.is_bound_by_cgroups() && self.enforcement.cannot_write().is_none()
    }

    /// A plan without containers whose threads have affinities of their own: the kernel keeps these
    /// through a move as far as it can. A plan that is not to be carried out is only recorded.
    async fn plan(
        &mut self,
        occasion: Occasion,
        plan: impl Fn(&Ledger) -> Result<MovePlan, NoPlan>,
    ) -> Option<MovePlan> {
        for _ in 0..TRIES {
            let found = match plan(&self.ledger) {
                Ok(found) => found,
                // Most containers that start need no plan: the last one that mattered stays.
                Err(NoPlan::NoNeed) => return None,
                Err(why) => {
                    self.balance.planned(occasion, 0, Some(why.to_string()));
                    return None;
                }
            };
            let bound = self.bound_themselves(&found).await;
            if bound.is_empty() {
                if self.ledger.moves_containers() {
                    return Some(found);
                }
                let count = found.containers();
                self.apply(Event::Suggested(found));
                let why = format!(
                    "mode: suggest, would have moved {}",
                    wording::count(count, "container")
                );
                self.balance.planned(occasion, 0, Some(why));
                return None;
            }
            self.apply_all(bound.into_iter().map(Event::BoundItself).collect());
        }
        let why = "the threads of containers in it have CPU affinities of their own".to_owned();
        self.balance.planned(occasion, 0, Some(why));
        None
    }

    async fn bound_themselves(&mut self, plan: &MovePlan) -> Vec<ContainerId> {
        let Some(verifier) = self.checks.verifier() else { return Vec::new() };
        let moved = plan.steps.iter().filter(|step| step.outcome == MoveOutcome::Done);
        let targets = moved.filter_map(|step| self.ledger.target(&step.container));
        let targets: Vec<Target> = targets.collect();
        let look = move || {
            let sees = targets.iter().all(|target| verifier.sees_threads(target));
            let bound = targets.into_iter().filter(|target| verifier.has_bound_itself(target));
            (sees, bound.map(|target| target.subject.id).collect())
        };
        let (sees, bound): (bool, Vec<ContainerId>) = blocking(look).await;
        if !sees && !std::mem::replace(&mut self.balance.is_blind, true) {
            log::warn!(
                "rebalance: cannot see other containers' threads: programs with CPU affinities of their own are moved too. Give the plugin's pod hostPID: true (overlay host-pid)"
            );
        }
        bound
    }

    async fn carry_out_plan(&mut self, plan: Option<MovePlan>) {
        let Some(plan) = plan else { return };
        let until = Instant::now() + self.answer_within.mul_f64(PATIENCE);
        let mut moved = 0;
        for step in plan.steps {
            let is_done = step.outcome == MoveOutcome::Done;
            if let Err(why) = self.carry_out_step(step, until).await {
                return self.balance.planned(plan.occasion, moved, Some(why));
            }
            moved += usize::from(is_done);
        }
        self.balance.planned(plan.occasion, moved, None);
    }

    async fn carry_out_step(&mut self, step: Move, until: Instant) -> Result<(), String> {
        let now = Instant::now();
        if now > until {
            return Err("stopped: the runtime does not wait any longer".to_owned());
        }
        // The runtime would undo the step with an update that it is still making.
        if self.delivery.pace.overdue(&step.container, now).is_some() {
            return Err("stopped: the runtime is still changing a container in it".to_owned());
        }
        self.carry_out_move(step).await
    }

    /// Carries out one step, or takes it back and returns why.
    async fn carry_out_move(&mut self, step: Move) -> Result<(), String> {
        let id = step.container.clone();
        if !self.apply(Event::Move(step.clone())).moved {
            return Err("stopped: CPUs have changed since it was made".to_owned());
        }
        let failed = match self.save().await {
            Ok(()) => self.write_move(&id).await,
            Err(_) => Some("the plugin cannot keep its state".to_owned()),
        };
        let Some(why) = failed else {
            self.settle_files_of(&id).await;
            return Ok(());
        };
        log::warn!("move taken back: {why}");
        self.apply(Event::Move(step.undone(why.clone())));
        // An error is in the log, and the next decision tries again.
        let _ = self.save().await;
        self.write_move(&id).await;
        Err(format!("taken back: {why}"))
    }

    /// Brings a container to its CPUs. Returns what is not as decided.
    async fn write_move(&mut self, id: &ContainerId) -> Option<String> {
        // Shared containers leave the new CPUs, and the groups above the container get them.
        self.bind(Scope::Binding).await;
        self.write_cpus().await;
        // The groups above lose the old ones.
        self.bind(Scope::Binding).await;
        let target = self.ledger.target(id)?;
        let mut difference = None;
        for _ in 0..LOOKS {
            match self.difference(&target).await {
                None => return None,
                found => difference = found,
            }
            sleep(PAUSE).await;
            self.bind(Scope::Binding).await;
        }
        difference
    }

    /// Where a container runs other than decided.
    async fn difference(&self, target: &Target) -> Option<String> {
        let (Some(verifier), Some(_)) = (self.checks.verifier(), &target.cgroup) else {
            return Some(format!("{}: its cgroup cannot be seen", target.subject));
        };
        let (subject, target) = (target.subject.clone(), target.clone());
        let drift = blocking(move || verifier.check(&target)).await;
        let quota = |drift: &Drift| matches!(drift, Drift::Quota(_) | Drift::OwnQuota(_));
        let found = drift.into_iter().find(|drift| !quota(drift))?;
        Some(format!("{subject}: {found}"))
    }
}
