//! How the owner moves running containers to better CPUs: one step after the other, each decided,
//! on disk, carried out and verified before the next one.
//!
//! Where cgroups keep exclusivity, the daemon carries a step out itself, before the answer that
//! needs it. Where the runtime does, all steps of a plan are in the answer to a creation, in an
//! order in which each container leaves its CPUs before another one gets them; a plan that moves a
//! container twice is not carried out there.
//!
//! Programs can have notice of moves: their files announce a move for `noticeSeconds` before it is
//! made.

use super::calls::CallInfo;
use super::delivery::Writes;
use super::moves::{MoveProgress, PlanRun, StepRun};
use super::owner::Owner;
use super::persist::Save;
use cpuset::CpuSet;
use exclusivity::verify::Drift;
use ledger::{
    Admission, ContainerId, Event, Ledger, MoveOutcome, MovePlan, NoPlan, Occasion, Target,
};
use log::Level;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The part of the runtime's time limit after which no further step of a plan begins. The rest is
/// for the step that is under way and for the creation itself.
const PATIENCE: f64 = 0.4;
/// How long to wait for the kernel until a step is in force, and how often to check.
const CHECKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// How many plans to make, each without the containers of the last one that must not move.
const TRIES: usize = 4;

impl Owner {
    /// Makes room for a container that is about to be created, and goes on with its creation.
    pub(super) fn make_room(&mut self, admission: Admission, call: CallInfo) {
        let creates = matches!(admission, Admission::Create { .. });
        // While another plan is carried out, a creation does without moves.
        if !creates || self.ledger.settings().rebalance.is_none() || self.moves.run.is_some() {
            return self.decide(admission, call);
        }
        let arrival = self.plan(Occasion::Arrival, |ledger| ledger.plan_arrival(&admission));
        if self.writes_moves() {
            return match arrival {
                Some(plan) => self.carry_out_plan(plan, Some((admission, call))),
                None => self.decide(admission, call),
            };
        }
        let plan = match arrival {
            None if self.ledger.settings().notice_seconds == 0 => {
                self.plan(Occasion::Departure, Ledger::plan_departure)
            }
            arrival => arrival,
        };
        if let Some(plan) = plan {
            if plan.is_staged() {
                let why = "it would move a container twice, which an update by the runtime cannot";
                self.moves.planned(plan.occasion, 0, Some(why.to_owned()));
            } else {
                // The decision saves them, and its answer carries them.
                self.moves.planned(plan.occasion, plan.steps.len(), None);
                self.apply_all(plan.steps.into_iter().map(Event::Move));
            }
        }
        self.decide(admission, call);
    }

    /// Moves containers to better CPUs that have become free.
    pub(super) fn rebalance(&mut self) {
        self.pass_time();
        if !self.writes_moves() || self.moves.run.is_some() {
            return;
        }
        let plan = self.plan(Occasion::Departure, Ledger::plan_departure);
        if self.may_move(plan.as_ref())
            && let Some(plan) = plan
        {
            return self.carry_out_plan(plan, None);
        }
        if plan.is_some() {
            let why = "programs have notice of it first (noticeSeconds)".to_owned();
            self.moves.planned(Occasion::Departure, 0, Some(why));
        }
        self.mark_owed();
    }

    /// Whether the moves of a plan can be made now. If programs must have notice of them, announces
    /// them first; an announcement of other moves is withdrawn.
    fn may_move(&mut self, plan: Option<&MovePlan>) -> bool {
        let given = match self.moves.announced.take() {
            Some((announced, at)) if plan == Some(&announced) => Some(at),
            _ => None,
        };
        let mut planned = BTreeMap::new();
        for step in plan.map(|plan| plan.steps.as_slice()).unwrap_or_default() {
            if step.outcome == MoveOutcome::Done {
                planned.insert(step.container.clone(), step.to);
            }
        }
        let Some(plan) = plan else {
            self.exposure.show_planned(&planned, self.ledger.topology(), self.now);
            return false;
        };
        if given.is_some_and(|at| at <= self.now) {
            return true;
        }
        if given.is_none() && !self.owes_notice(&planned) {
            self.exposure.show_planned(&BTreeMap::new(), self.ledger.topology(), self.now);
            return true;
        }
        let notice = Duration::from_secs(self.ledger.settings().notice_seconds.into());
        let at = given.unwrap_or(self.now + notice);
        self.moves.announced = Some((plan.clone(), at));
        self.exposure.show_planned(&planned, self.ledger.topology(), self.now);
        false
    }

    /// Makes the moves that programs had notice of for long enough.
    pub(super) fn make_announced_moves(&mut self) {
        self.rebalance();
        // If no plan could be made, the announcement is still there, and due at once again.
        let now = self.now;
        self.moves.announced.take_if(|(_, at)| *at <= now);
    }

    fn owes_notice(&self, planned: &BTreeMap<ContainerId, CpuSet>) -> bool {
        self.ledger.settings().notice_seconds > 0 && planned.keys().any(|id| self.exposure.has(id))
    }

    /// When the moves that programs have notice of are to be made.
    pub(super) fn end_of_notice(&self) -> Option<Instant> {
        self.moves.announced.as_ref().map(|(_, at)| *at)
    }

    /// Whether the daemon itself can carry moves out.
    pub(super) fn writes_moves(&self) -> bool {
        self.ledger.is_bound_by_cgroups() && self.enforcement.cannot_write().is_none()
    }

    /// A plan without containers whose threads have their own affinities: these are about the old
    /// CPUs, and the kernel keeps them through a move as far as it can. A plan that is not to be
    /// carried out is only recorded.
    fn plan(
        &mut self,
        occasion: Occasion,
        make_plan: impl Fn(&Ledger) -> Result<MovePlan, NoPlan>,
    ) -> Option<MovePlan> {
        for _ in 0..TRIES {
            let plan = match make_plan(&self.ledger) {
                Ok(plan) => plan,
                // Most containers that start need no plan: the record keeps the last that mattered.
                Err(NoPlan::NoNeed) => return None,
                Err(why) => {
                    self.moves.planned(occasion, 0, Some(why.to_string()));
                    return None;
                }
            };
            let bound = self.bound_themselves(&plan);
            if bound.is_empty() {
                if self.ledger.moves_containers() {
                    return Some(plan);
                }
                let count = plan.containers();
                self.apply(Event::Suggested(plan));
                let why = format!(
                    "mode: suggest, would have moved {}",
                    wording::count(count, "container")
                );
                self.moves.planned(occasion, 0, Some(why));
                return None;
            }
            self.apply_all(bound.into_iter().map(Event::BoundItself));
        }
        let why = "the threads of containers in it have CPU affinities of their own".to_owned();
        self.moves.planned(occasion, 0, Some(why));
        None
    }

    /// The containers of a plan whose threads have their own affinities.
    fn bound_themselves(&mut self, plan: &MovePlan) -> Vec<ContainerId> {
        let Some(verifier) = self.checks.verifier() else { return Vec::new() };
        let moved = plan.steps.iter().filter(|step| step.outcome == MoveOutcome::Done);
        let targets = moved.filter_map(|step| self.ledger.target(&step.container));
        let targets: Vec<Target> = targets.collect();
        let sees = targets.iter().all(|target| verifier.sees_threads(target));
        let bound = targets.into_iter().filter(|target| verifier.has_bound_itself(target));
        let bound = bound.map(|target| target.subject.id).collect();
        if !sees && !std::mem::replace(&mut self.moves.is_blind, true) {
            log::warn!(
                "rebalance: cannot see other containers' threads: programs with CPU affinities of their own are moved too. Give the plugin's pod hostPID: true (overlay host-pid)"
            );
        }
        bound
    }

    /// Begins to make the moves of a plan, for a creation that waits for them.
    fn carry_out_plan(&mut self, plan: MovePlan, creation: Option<(Admission, CallInfo)>) {
        self.moves.run = Some(PlanRun {
            occasion: plan.occasion,
            steps: plan.steps.into(),
            moved: 0,
            until: self.now + self.delivery.answer_within.mul_f64(PATIENCE),
            step: None,
            creation,
        });
        self.next_move();
    }

    /// Begins the next step of the plan.
    fn next_move(&mut self) {
        let Some(run) = &mut self.moves.run else { return };
        let Some(step) = run.steps.pop_front() else { return self.plan_ended(None) };
        let stopped = if self.now > run.until {
            Some("stopped: the runtime does not wait any longer")
        } else if self.delivery.pace.overdue(&step.container, self.now).is_some() {
            // The runtime would undo the step with an update that it is still making.
            Some("stopped: the runtime is still changing a container in it")
        } else {
            let moved = self.apply(Event::Move(step.clone())).moved;
            let save = self.checkpoint.save_of_now();
            if let Some(run) = &mut self.moves.run {
                let progress = MoveProgress::Saving(save);
                run.step = Some(StepRun { step, undone: None, progress });
            }
            if moved { None } else { Some("stopped: CPUs have changed since it was made") }
        };
        if let Some(why) = stopped {
            self.plan_ended(Some(why.to_owned()));
        }
    }

    fn present_step(&self) -> Option<&StepRun> {
        self.moves.run.as_ref()?.step.as_ref()
    }

    fn present_step_mut(&mut self) -> Option<&mut StepRun> {
        self.moves.run.as_mut()?.step.as_mut()
    }

    /// The write that has the present step, until the step is carried out.
    fn save_of_move(&self) -> Option<Save> {
        match self.present_step()?.progress {
            MoveProgress::Saving(save) => Some(save),
            MoveProgress::Moving { .. } => None,
        }
    }

    /// Whether a move is being saved. Until then the container is on its old CPUs, which the ledger
    /// counts as free.
    pub(super) fn is_saving_move(&self) -> bool {
        self.moves.unsaved.is_some_and(|save| !self.checkpoint.has_ended(save))
    }

    /// Whether the save of the present step has ended, and the step is not carried out yet.
    pub(super) fn has_saved_move(&self) -> bool {
        self.save_of_move().is_some_and(|save| self.checkpoint.has_ended(save))
    }

    /// Carries out the present step, whose save has ended. One that is not on disk is taken back.
    pub(super) fn move_saved(&mut self) {
        let is_saved = self.checkpoint.error().is_none();
        let progress = MoveProgress::Moving { check_at: self.now, left: CHECKS };
        let Some(run) = self.present_step_mut() else { return };
        // To take a step back needs no save: the disk may still have the claims before the step.
        if !is_saved && run.undone.is_none() {
            return self.take_back("the plugin cannot keep its state".to_owned());
        }
        run.progress = progress;
        // Shared containers leave the new CPUs, the groups above the container get them, it moves,
        // and the groups above lose the old ones.
        self.mark_updates(Writes::Always);
    }

    /// When to check whether a move is in force, once it has been carried out.
    pub(super) fn move_check_due(&self) -> Option<Instant> {
        match self.present_step()?.progress {
            MoveProgress::Moving { check_at, .. } if self.updates != Some(Writes::Always) => {
                Some(check_at)
            }
            MoveProgress::Moving { .. } | MoveProgress::Saving(_) => None,
        }
    }

    pub(super) fn check_move(&mut self) {
        let next = self.now + PAUSE;
        let Some(StepRun { step, progress: MoveProgress::Moving { check_at, left }, .. }) =
            self.present_step_mut()
        else {
            return;
        };
        let is_last = *left == 0;
        *check_at = next;
        *left = left.saturating_sub(1);
        let id = step.container.clone();
        let target = self.ledger.target(&id);
        match target.and_then(|target| self.difference(&target)) {
            None => self.step_ended(),
            Some(why) if is_last => self.take_back(why),
            Some(_) => {}
        }
    }

    /// Takes the present step back. If that is not in force either, the plan ends.
    fn take_back(&mut self, why: String) {
        let Some(run) = self.present_step_mut() else { return };
        if run.undone.is_some() {
            return self.step_ended();
        }
        let undone = run.step.clone().undone(why.clone());
        run.undone = Some(why.clone());
        self.log_repeated(Level::Warn, &format!("move taken back: {why}"));
        self.apply(Event::Move(undone));
        let save = self.checkpoint.save_of_now();
        if let Some(run) = self.present_step_mut() {
            run.progress = MoveProgress::Saving(save);
        }
    }

    /// A step is in force, or has been taken back.
    fn step_ended(&mut self) {
        let Some(run) = &mut self.moves.run else { return };
        let Some(StepRun { step, undone, .. }) = run.step.take() else { return };
        if let Some(why) = undone {
            return self.plan_ended(Some(format!("taken back: {why}")));
        }
        run.moved += usize::from(step.outcome == MoveOutcome::Done);
        self.exposure.settle(&step.container, &self.ledger, self.checks.verifier(), self.now);
        self.next_move();
    }

    /// All moves are made, or `why` the rest is not. The creation that waited goes on.
    fn plan_ended(&mut self, why: Option<String>) {
        let Some(PlanRun { occasion, moved, creation, .. }) = self.moves.run.take() else { return };
        self.moves.planned(occasion, moved, why);
        if let Some((admission, call)) = creation {
            self.decide(admission, call);
        } else {
            self.exposure.show_planned(&BTreeMap::new(), self.ledger.topology(), self.now);
            self.mark_owed();
        }
    }

    /// How a container's CPUs differ from the decision. CFS quotas do not count: a move changes none.
    fn difference(&self, target: &Target) -> Option<String> {
        let (Some(verifier), Some(_)) = (self.checks.verifier(), &target.cgroup) else {
            return Some(format!("{}: its cgroup cannot be seen", target.subject));
        };
        let quota = |drift: &Drift| matches!(drift, Drift::Quota(_) | Drift::OwnQuota(_));
        let drift = verifier.check(target).into_iter().find(|drift| !quota(drift))?;
        Some(format!("{}: {drift}", target.subject))
    }
}
