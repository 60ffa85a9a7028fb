//! What the owner does as time passes: one list of jobs, the most urgent first.

use super::owner::Owner;
use super::step::Effect;
use ledger::Event;
use std::time::Instant;

struct Job {
    due: fn(&Owner) -> Option<Instant>,
    run: fn(&mut Owner),
}

const JOBS: [Job; 13] = [
    // CPUs have become free: running containers may get better ones.
    Job {
        due: |owner| owner.at_once(owner.moves.unbalanced && owner.moves.run.is_none()),
        run: |owner| {
            owner.moves.unbalanced = false;
            owner.rebalance();
        },
    },
    Job {
        due: |owner| owner.at_once(owner.drift.has_confirmed()),
        run: |owner| owner.drift.next().into_iter().for_each(|finding| owner.repair(finding)),
    },
    Job { due: |owner| owner.checkpoint.retry_at(), run: |owner| owner.checkpoint.changed = true },
    Job { due: |owner| Some(owner.hotplug.due()), run: Owner::check_machine },
    // No cgroup is bound while a step of a plan is being saved: a check would change nothing, and be due
    // again at once.
    Job {
        due: |owner| owner.enforcement.due().filter(|_| !owner.is_saving_move()),
        run: Owner::check_groups,
    },
    Job { due: |owner| owner.quotas.due(), run: Owner::follow_quotas },
    Job {
        due: |owner| Some(owner.orphans.quiet_until()),
        run: |owner| {
            let event = owner.orphans.quiet_period_ended(owner.now);
            owner.apply(event);
        },
    },
    Job {
        due: |owner| owner.exposure.due(),
        run: |owner| owner.exposure.settle_all(&owner.ledger, owner.checks.verifier(), owner.now),
    },
    Job { due: Owner::end_of_notice, run: Owner::make_announced_moves },
    // A resized container leaves the CPUs that its files have announced.
    Job {
        due: |owner| owner.ledger.next_notice().and_then(|at| owner.started.checked_add(at)),
        run: |owner| {
            owner.pass_time();
            owner.apply(Event::NoticeOver);
        },
    },
    // A container may be moved that must not move before.
    Job {
        due: |owner| {
            let next = owner.ledger.next_movable().filter(|_| owner.moves.run.is_none());
            next.and_then(|at| owner.started.checked_add(at))
        },
        run: Owner::rebalance,
    },
    Job {
        due: |owner| owner.quieting.due(),
        run: |owner| {
            let pass = owner.quieting.begin(owner.ledger.quiet_goal(), owner.now);
            owner.effects.extend(pass.map(Effect::Quiet));
        },
    },
    Job {
        due: |owner| owner.checks.due(),
        run: |owner| {
            let pass = owner.checks.begin(&owner.ledger);
            owner.effects.extend(pass.map(Effect::Check));
        },
    },
];

impl Owner {
    /// When [`Input::Time`](super::Input::Time) is due. A moment in the past means at once, but after
    /// all other inputs.
    pub fn due(&self) -> Option<Instant> {
        if self.outstanding().is_some() {
            return Some(self.now);
        }
        JOBS.iter().filter_map(|job| (job.due)(self)).chain(self.move_check_due()).min()
    }

    /// Does the most urgent job that is due.
    pub(super) fn work(&mut self) {
        let is_due = |job: &&Job| (job.due)(self).is_some_and(|due| due <= self.now);
        if let Some(job) = JOBS.iter().find(is_due) {
            (job.run)(self);
        }
    }

    fn at_once(&self, is_due: bool) -> Option<Instant> {
        is_due.then_some(self.now)
    }
}
