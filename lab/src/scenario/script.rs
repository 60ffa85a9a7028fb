//! A scenario's steps and the check of each outcome.

use std::collections::BTreeMap;

use cpuset::CpuSet;

use super::invariants::{Promise, parse};
use super::shape::Shape;
use crate::cgroup_snapshot::CgroupSnapshot;
use crate::node::{FirstInstruction, Strayed};
use crate::overlap::Watched;
use crate::pod::Pod;
use crate::step::{CgroupRef, Outcome, Settled, Step};
use crate::view::{ContainerView, View};

/// In the plugin's log for a drift.
const DRIFT: &str = ": decided CPU";

/// In the plugin's log for a container or a resize that does not fit.
const REFUSED: &str = ": refused: ";

/// Fewer readings prove nothing.
const FEW: u64 = 20;

/// Checks an outcome, given all observations up to and including this one.
type Check = Box<dyn Fn(&Outcome, &Observed<'_>) -> Result<(), String>>;

#[derive(Debug, Default)]
struct Observed<'a> {
    views: Vec<&'a View>,
    snapshots: Vec<&'a CgroupSnapshot>,
}

/// Index of a snapshot of all cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotId(usize);

/// Index of a view in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewId(usize);

/// Steps with checks. Every view is checked for the invariants.
pub struct Script {
    steps: Vec<(Step, Check)>,
    views: usize,
    snapshots: usize,
    promise: Promise,
}

impl Script {
    pub fn new(shape: &Shape) -> Self {
        let promise = Promise {
            reserved: shape.reserved,
            written: false,
            foreign: CpuSet::EMPTY,
            never_shared: shape.isolated(),
            held: 0,
            leaving: BTreeMap::new(),
        };
        Self { steps: Vec::new(), views: 0, snapshots: 0, promise }
    }

    pub fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|(step, _)| step.clone()).collect()
    }

    /// All violations, one per step.
    pub fn judge(&self, outcomes: &[Outcome]) -> Vec<String> {
        let mut observed = Observed::default();
        let mut wrong = Vec::new();
        for (number, ((step, check), outcome)) in self.steps.iter().zip(outcomes).enumerate() {
            match outcome {
                Outcome::View(view) => observed.views.push(view),
                Outcome::Snapshot(tree) => observed.snapshots.push(tree),
                _ => {}
            }
            if let Err(what) = check(outcome, &observed) {
                wrong.push(format!("step {}, {}: {what}", number + 1, step.describe()));
            }
        }
        if outcomes.len() < self.steps.len() {
            wrong.push(format!(
                "only {} of {} steps were played",
                outcomes.len(),
                self.steps.len()
            ));
        }
        wrong
    }

    /// Appended to every script: the node can be cleared, and the kernel is not tainted.
    pub(super) fn closed(mut self) -> Self {
        self.does(Step::Clear);
        self.push(Step::KernelWarned, |outcome, _| match outcome {
            Outcome::KernelWarned(false) => Ok(()),
            _ => Err("the kernel warned or oopsed".to_owned()),
        });
        self
    }

    pub fn does(&mut self, step: Step) {
        self.push(step, |outcome, _| match outcome {
            Outcome::Refused(why) => Err(format!("refused: {why}")),
            _ => Ok(()),
        });
    }

    /// Starts the plugin without state.
    pub fn plugin(&mut self, config: String) {
        self.promise.written = true;
        self.does(Step::StartPlugin(config));
    }

    pub fn launch(&mut self, config: String) {
        self.promise.written = true;
        self.does(Step::Launch(config));
    }

    pub fn end_plugin(&mut self) {
        self.promise.written = false;
        self.does(Step::EndPlugin);
    }

    pub fn uninstall(&mut self) {
        self.promise.written = false;
        self.does(Step::Uninstall);
    }

    pub fn run(&mut self, pod: Pod) {
        self.does(Step::Run(pod));
    }

    pub fn exclusive(&mut self, name: &str, cpus: usize) {
        self.run(super::exclusive(name, cpus));
    }

    /// Starts a shared pod.
    pub fn shared(&mut self, name: &str) {
        self.run(super::shared(name));
    }

    /// From here on a pod's container keeps so many CPUs more than it asks for.
    pub fn leaving(&mut self, pod: &str, cpus: usize) {
        self.promise.leaving.insert(pod.to_owned(), cpus);
    }

    pub fn remove(&mut self, pod: &str) {
        self.does(Step::Remove(pod.to_owned()));
    }

    /// The refusal must have `reason` in its message.
    pub fn refused(&mut self, step: Step, reason: &'static str) {
        self.push(step, move |outcome, _| match outcome {
            Outcome::Refused(why) if why.contains(reason) => Ok(()),
            Outcome::Refused(why) => Err(format!("refused without {reason}: {why}")),
            _ => Err(format!("not refused, expected {reason}")),
        });
    }

    pub fn view(&mut self) -> ViewId {
        self.view_where(|_| Ok(()))
    }

    pub fn view_where(&mut self, check: impl Fn(&View) -> Result<(), String> + 'static) -> ViewId {
        self.view_with_history(move |view, _| check(view))
    }

    /// Takes a view and checks it against the earlier ones.
    fn view_with_history(
        &mut self,
        check: impl Fn(&View, &[&View]) -> Result<(), String> + 'static,
    ) -> ViewId {
        let promise = self.promise.clone();
        self.push(Step::View, move |_, observed| {
            let view = observed.views.last().ok_or("no view")?;
            promise.check(view)?;
            check(view, &observed.views)?;
            // Last, because errors in processes explain more.
            promise.check_written(view)
        });
        self.views += 1;
        ViewId(self.views - 1)
    }

    /// Checks the node: these containers' processes may run on exactly these CPUs.
    pub fn expect(&mut self, expected: &[(&str, CpuSet)]) -> ViewId {
        let expected: Vec<(String, CpuSet)> =
            expected.iter().map(|(pod, cpus)| ((*pod).to_owned(), *cpus)).collect();
        self.view_where(move |view| {
            for (pod, cpus) in &expected {
                let allowed = view.allowed(pod);
                if allowed != cpus.to_string() {
                    return Err(format!("{pod} may run on {allowed}, expected {cpus}"));
                }
            }
            Ok(())
        })
    }

    /// No container of view `since` that still runs may run elsewhere now.
    pub fn unmoved(&mut self, since: ViewId) -> ViewId {
        self.compare(since, |_| true)
    }

    /// As [`unmoved`](Self::unmoved), but shared containers may have moved.
    pub fn exclusive_unmoved(&mut self, since: ViewId) -> ViewId {
        let Promise { reserved, .. } = self.promise;
        self.compare(since, move |container| parse(&container.allowed).is_disjoint(&reserved))
    }

    /// As [`unmoved`](Self::unmoved), but these pods may have moved.
    pub fn unmoved_but(&mut self, since: ViewId, pods: &[&str]) -> ViewId {
        let pods: Vec<String> = pods.iter().map(|pod| (*pod).to_owned()).collect();
        self.compare(since, move |container| !pods.contains(&container.pod))
    }

    fn compare(
        &mut self,
        since: ViewId,
        counts: impl Fn(&ContainerView) -> bool + 'static,
    ) -> ViewId {
        self.view_with_history(move |now, views| {
            let before = views.get(since.0).ok_or("no such view")?;
            for container in &before.containers {
                let same = now
                    .containers
                    .iter()
                    .find(|c| (&c.pod, &c.container) == (&container.pod, &container.container));
                if let Some(moved) =
                    same.filter(|moved| counts(container) && moved.allowed != container.allowed)
                {
                    return Err(format!(
                        "{}/{} moved from {} to {}",
                        moved.pod, moved.container, container.allowed, moved.allowed
                    ));
                }
            }
            Ok(())
        })
    }

    /// A step with a text, which `check` gets.
    fn text(&mut self, step: Step, check: impl Fn(&str) -> Result<(), String> + 'static) {
        self.push(step, move |outcome, _| match outcome {
            Outcome::Text(text) => check(text),
            _ => Err("no text".to_owned()),
        });
    }

    /// A step whose text must have all of this in it.
    pub fn says(&mut self, step: Step, parts: &[&str]) {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        self.text(step, move |text| match parts.iter().find(|part| !text.contains(*part)) {
            None => Ok(()),
            Some(part) => Err(format!("no {part:?} in\n{text}")),
        });
    }

    /// A step whose text must not have `part` in it.
    pub fn says_no(&mut self, step: Step, part: &'static str) {
        self.text(step, move |text| match text.lines().find(|line| line.contains(part)) {
            None => Ok(()),
            Some(line) => Err(line.to_owned()),
        });
    }

    /// The plugin's log has no drift so far: a change that merely takes time is not a drift.
    pub fn quiet(&mut self) {
        self.says_no(Step::Log, DRIFT);
    }

    /// The plugin has not logged a warning or an error so far, apart from refusals.
    pub fn never_warns(&mut self) {
        self.text(Step::Log, |log| {
            let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
            let warnings = log.lines().filter(is_warning).filter(|line| !line.contains(REFUSED));
            let warnings: Vec<&str> = warnings.collect();
            if warnings.is_empty() { Ok(()) } else { Err(warnings.join("\n")) }
        });
    }

    /// Resizes a pod up and down without a pause. Its program must run on some of the CPUs that come
    /// and go.
    pub fn resizes(&mut self, pod: &str, sizes: [usize; 2], times: usize) {
        let all = sizes.into_iter().cycle().take(times).map(super::milli).collect();
        self.push(Step::ResizeInARow(pod.to_owned(), all), move |outcome, _| match outcome {
            Outcome::Ran(cpus) if sizes.iter().any(|size| parse(cpus).len() > *size) => Ok(()),
            _ => Err(format!("the program stayed where it was: {outcome:?}")),
        });
    }

    /// This file of a cgroup must have exactly this text.
    pub fn reads(&mut self, group: CgroupRef, file: &str, expected: &str) {
        let expected = expected.to_owned();
        self.text(Step::ReadCgroup(group, file.to_owned()), move |text| {
            if text.trim() == expected {
                Ok(())
            } else {
                Err(format!("it has {:?}, expected {expected:?}", text.trim()))
            }
        });
    }

    /// All containers must be as decided within so many seconds; these pods must not be at first.
    pub fn settles(&mut self, seconds: u64, disturbed: &[&str]) {
        let disturbed: Vec<String> = disturbed.iter().map(|pod| format!("{pod}: ")).collect();
        self.push(Step::Settle(seconds), move |outcome, _| {
            let Outcome::Settled(Settled { first, last, .. }) = outcome else {
                return Err("no view".to_owned());
            };
            if !last.is_empty() {
                return Err(format!("after {seconds} s: {}", last.join("; ")));
            }
            let is_listed = |pod: &String| first.iter().any(|what| what.starts_with(pod));
            match disturbed.iter().find(|pod| !is_listed(pod)) {
                None => Ok(()),
                Some(pod) => Err(format!("{pod}was not disturbed: {first:?}")),
            }
        });
    }

    pub fn snapshot(&mut self) -> SnapshotId {
        self.does(Step::SnapshotCgroups);
        self.snapshots += 1;
        SnapshotId(self.snapshots - 1)
    }

    /// Takes a snapshot of all cgroups and compares it with an earlier one.
    pub fn snapshot_since(
        &mut self,
        since: SnapshotId,
        check: impl Fn(&CgroupSnapshot, &CgroupSnapshot) -> Result<(), String> + 'static,
    ) {
        self.push(Step::SnapshotCgroups, move |_, observed| {
            let before = observed.snapshots.get(since.0).ok_or("no such snapshot")?;
            check(before, observed.snapshots.last().ok_or("no snapshot")?)
        });
        self.snapshots += 1;
    }

    /// Containers must not meet on an exclusive CPU during these steps.
    pub fn watches(&mut self, steps: Vec<Step>) {
        self.push(Step::Watch(steps), |outcome, _| match outcome {
            Outcome::Watched(Watched { met: Some(who), .. }) => Err(who.clone()),
            Outcome::Watched(Watched { readings: FEW.., .. }) => Ok(()),
            _ => Err(format!("too few readings: {outcome:?}")),
        });
    }

    /// Starts a pod. As its first process begins, it and all busy threads, of which there must be
    /// at least `busy`, keep to their own CPUs.
    pub fn first_instruction(&mut self, pod: Pod, busy: usize) {
        self.push(Step::RunFirstInstruction(pod), move |outcome, _| match outcome {
            Outcome::FirstInstruction(FirstInstruction { own, threads, met })
                if met.is_empty() && !own.is_empty() && *threads >= busy =>
            {
                Ok(())
            }
            _ => Err(format!("{outcome:?}")),
        });
    }

    /// Starts a pod. None of its processes, the pause container's included, may run on exclusive CPUs
    /// of others at any moment.
    pub fn begins_in_pool(&mut self, pod: Pod) {
        self.push(Step::RunWatched(pod), |outcome, _| match outcome {
            Outcome::Strayed(Strayed { processes: 1.., strayed: 0, .. }) => Ok(()),
            _ => Err(format!("{outcome:?}")),
        });
    }

    pub fn reserve(&mut self, cpus: CpuSet) {
        self.promise.reserved = cpus;
    }

    /// From now on partitions of other programs have these CPUs.
    pub fn foreign(&mut self, cpus: CpuSet) {
        self.promise.foreign = cpus;
    }

    /// From now on so many CPUs are kept for ended containers that will return.
    pub fn holding(&mut self, cpus: usize) {
        self.promise.held = cpus;
    }

    fn push(
        &mut self,
        step: Step,
        check: impl Fn(&Outcome, &Observed<'_>) -> Result<(), String> + 'static,
    ) {
        self.steps.push((step, Box::new(check)));
    }
}
