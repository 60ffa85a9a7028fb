//! Random trees of cgroups, random events, and a plan after each event. The invariants hold after every
//! single write, so a plan may end after any.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_macros, reason = "how much was checked is part of the result")]

use cgroups::{
    CgroupLevel, CgroupTree, Goal, PartitionFiles, PlanOutcome, Write, carry_out, hazard,
};
use cpuset::{CgroupPath, CpuSet, PartitionState};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "plans/ops.rs"]
mod ops;
use ops::{Op, op};

/// The kubelet's root cgroups, by driver and nesting.
const ROOTS: [&str; 3] = ["kubepods", "kubepods.slice", "kubelet.slice/kubelet-kubepods.slice"];

struct Pod {
    group: CgroupPath,
    class: Option<CgroupPath>,
    /// The exclusive container's CPUs; empty if there is none.
    claim: CpuSet,
    /// Whether the exclusive container uses the pool as well.
    mixed: bool,
    /// Whether all other containers run on the reserved CPUs.
    reserved: bool,
    /// Shared containers started so far.
    started: usize,
}

struct Node {
    kernel: CgroupTree,
    online: CpuSet,
    root: &'static str,
    pods: Vec<Pod>,
    bounds: BTreeMap<CgroupPath, CpuSet>,
    distrusted: BTreeSet<CgroupPath>,
    volatile: BTreeSet<CgroupPath>,
    refused: Option<usize>,
    /// The runtime has just listed its containers.
    listed: bool,
    /// No reserved CPU is in the pool.
    strict: bool,
    /// Exclusive containers are partitions.
    partitions: bool,
    /// Containers that cannot be partitions.
    ordinary: BTreeSet<CgroupPath>,
    names: usize,
    /// Hotplug or another program has interfered, so the number of writes has no limit.
    disturbed: bool,
}

static WRITES: AtomicUsize = AtomicUsize::new(0);

fn path(path: &str) -> CgroupPath {
    CgroupPath::new(path).unwrap()
}

fn all() -> CpuSet {
    "0-11".parse().unwrap()
}

fn mask(mask: u8) -> CpuSet {
    (0..12).filter(|cpu| mask >> (cpu % 8) & 1 == 1).map(|cpu| CpuSet::of(cpu).unwrap()).collect()
}

impl Pod {
    fn leaf(&self, name: &str) -> CgroupPath {
        path(&format!("{}/{name}", self.group))
    }

    /// The exclusive container and its CPUs.
    fn owner(&self) -> Option<(CgroupPath, CpuSet)> {
        if self.claim.is_empty() { None } else { Some((self.leaf("main"), self.claim)) }
    }

    /// Whether the exclusive container uses the pool.
    fn is_in_pool(&self) -> bool {
        self.mixed && !self.claim.is_empty()
    }
}

impl Node {
    /// `later` is a kernel that lets populated cgroups be emptied.
    fn new(root: &'static str, later: bool, strict: bool) -> Node {
        let kernel = CgroupTree::new(all(), all());
        Node {
            kernel: if later { kernel.emptying_populated() } else { kernel },
            online: all(),
            root,
            pods: Vec::new(),
            bounds: BTreeMap::new(),
            distrusted: BTreeSet::new(),
            volatile: BTreeSet::new(),
            refused: None,
            listed: false,
            strict,
            partitions: false,
            ordinary: BTreeSet::new(),
            names: 0,
            disturbed: false,
        }
    }

    fn claims(&self) -> CpuSet {
        self.pods.iter().map(|pod| pod.claim).collect()
    }

    /// Never exclusive.
    fn reserved(&self) -> CpuSet {
        self.online.lowest(1)
    }

    fn pool(&self) -> CpuSet {
        let pool = self.online - self.claims();
        if self.strict { pool - self.reserved() } else { pool }
    }

    fn pool_of(&self, pod: &Pod) -> CpuSet {
        if pod.reserved { self.reserved() } else { self.pool() }
    }

    /// `n` free CPUs for a claim, or as many as leave one for the pool; those in `but` come last.
    fn choose(&self, n: usize, but: CpuSet) -> CpuSet {
        let free = self.pool() - self.online.lowest(if self.strict { 2 } else { 1 });
        let fresh = (free - but).lowest(n);
        fresh | (free & but).lowest(n - fresh.len())
    }

    fn goal(&self) -> Goal {
        let mut tops = BTreeMap::new();
        let mut pools: BTreeMap<CgroupPath, CpuSet> = BTreeMap::new();
        for pod in &self.pods {
            let pool = self.pool_of(pod);
            pools.insert(pod.group.clone(), pool);
            if let Some(class) = &pod.class {
                *pools.entry(class.clone()).or_default() |= pool;
            }
            match &pod.class {
                Some(class) => tops.insert(class.clone(), CgroupLevel::Class),
                None => tops.insert(pod.group.clone(), CgroupLevel::Pod),
            };
        }
        let owners = self.pods.iter().filter_map(Pod::owner).map(|(leaf, _)| leaf);
        Goal {
            listed: owners.filter(|_| self.listed).collect(),
            pool: self.pool(),
            pools,
            widest: all(),
            exclusive: self.pods.iter().filter_map(Pod::owner).collect(),
            mixed: self
                .pods
                .iter()
                .filter(|pod| pod.is_in_pool())
                .map(|pod| pod.leaf("main"))
                .collect(),
            tops,
            bounds: self.bounds.clone(),
            distrusted: self.distrusted.clone(),
            volatile: self.volatile.clone(),
            partitions: self.partitions().map(|(leaf, _)| leaf).collect(),
            ours: self
                .kernel
                .groups()
                .filter(|group| self.kernel.partition(group) != PartitionFiles::default())
                .cloned()
                .collect(),
            ..Goal::default()
        }
    }

    /// The containers that must be partitions, and their CPUs.
    fn partitions(&self) -> impl Iterator<Item = (CgroupPath, CpuSet)> {
        let pods = self.pods.iter().filter(|pod| self.partitions && !pod.mixed);
        pods.filter_map(Pod::owner).filter(|(leaf, _)| !self.ordinary.contains(leaf))
    }

    /// Exactly those containers are partitions that must be. A partition may wait (`withheld`) if another
    /// program leaves other containers only its CPUs.
    fn check_partitions(&self, outcome: &PlanOutcome, goal: &Goal) {
        let targets: BTreeMap<CgroupPath, CpuSet> = self.partitions().collect();
        for group in self.kernel.groups() {
            let files = self.kernel.partition(group);
            let claim = targets.get(group).copied().unwrap_or_default();
            let is_done = if claim.is_empty() {
                files.state == PartitionState::Member
            } else {
                files.state.is_valid() && files.effective == claim
            };
            let waits = !self.bounds.is_empty() && !outcome.withheld.is_empty();
            assert!(
                is_done || waits,
                "{group}: {files:?} {outcome:?} {:#?}\n{goal:#?}",
                self.kernel
            );
        }
    }

    /// Containers that run on exclusive CPUs on which their owner runs: owner, other, CPU.
    fn overlaps(&self) -> BTreeSet<(CgroupPath, CgroupPath, usize)> {
        let mut overlaps = BTreeSet::new();
        for pod in &self.pods {
            let Some((owner, own)) = pod.owner() else { continue };
            if !self.kernel.contains(&owner) {
                continue;
            }
            let own = self.kernel.effective(&owner) & own;
            let leaves = self.kernel.groups().filter(|group| self.is_leaf(group));
            for other in leaves.filter(|other| **other != owner) {
                for cpu in &(self.kernel.effective(other) & own) {
                    overlaps.insert((owner.clone(), other.clone(), cpu));
                }
            }
        }
        // Within a pod, only CPUs of its exclusive container (`main`) count.
        overlaps.retain(|(owner, other, _)| {
            owner.as_str().ends_with("main") || owner.parent() != other.parent()
        });
        overlaps
    }

    /// Containers without exclusive CPUs run in their pod's pool.
    fn check_pools(&self, goal: &Goal) {
        for pod in &self.pods {
            let owner = pod.owner().map(|(leaf, _)| leaf);
            let leaves = self.kernel.groups().filter(|group| group.is_below(&pod.group));
            for leaf in leaves.filter(|leaf| Some(*leaf) != owner.as_ref()) {
                let runs_on = self.kernel.effective(leaf);
                assert!(
                    runs_on.is_subset(&self.pool_of(pod)),
                    "{leaf} runs on {runs_on} {:#?}\n{goal:#?}",
                    self.kernel
                );
            }
        }
    }

    /// Listed containers run on their own CPUs; the mixed ones run on them, too.
    fn check_listed(&self, goal: &Goal) {
        for leaf in goal.listed.iter().filter(|leaf| self.kernel.contains(leaf)) {
            let (runs_on, claim) = (self.kernel.effective(leaf), goal.exclusive[leaf]);
            assert!(
                claim.is_subset(&runs_on) && (goal.mixed.contains(leaf) || runs_on == claim),
                "{leaf} runs on {runs_on} {:#?}\n{goal:#?}",
                self.kernel
            );
        }
    }

    /// Containers of pods without exclusive CPUs that run on a CPU outside their pool, and that CPU.
    fn strays(&self) -> BTreeSet<(CgroupPath, usize)> {
        let mut strays = BTreeSet::new();
        for pod in self.pods.iter().filter(|pod| pod.claim.is_empty()) {
            for leaf in self.kernel.groups().filter(|group| group.is_below(&pod.group)) {
                let cpus = self.kernel.effective(leaf) - self.pool_of(pod);
                strays.extend(cpus.iter().map(|cpu| (leaf.clone(), cpu)));
            }
        }
        strays
    }

    /// CPUs outside their claims on which exclusive containers run.
    fn lingering(&self) -> CpuSet {
        let pods = self.pods.iter().filter(|pod| !pod.claim.is_empty() && !pod.mixed);
        let mains = pods.map(|pod| (pod.leaf("main"), pod.claim));
        let mains = mains.filter(|(leaf, _)| self.kernel.contains(leaf));
        mains.map(|(leaf, claim)| self.kernel.effective(&leaf) - claim).collect()
    }

    /// Whether a cgroup is a class's or a pod's.
    fn is_binder(&self, group: &CgroupPath) -> bool {
        self.pods.iter().any(|pod| pod.group == *group || pod.class.as_ref() == Some(group))
    }

    fn is_leaf(&self, group: &CgroupPath) -> bool {
        self.pods.iter().any(|pod| group.is_below(&pod.group))
    }

    /// Cgroups that have no CPU in common with their parent, and so run on all of its CPUs. Those that
    /// refuse writes are left out.
    fn empty_cuts(&self) -> BTreeSet<CgroupPath> {
        let groups = self.kernel.groups().filter(|group| !self.is_refused(group));
        groups.filter(|group| self.kernel.is_cut_empty(group)).cloned().collect()
    }

    fn is_refused(&self, group: &CgroupPath) -> bool {
        let number = group.as_str().bytes().map(usize::from).sum::<usize>();
        self.refused.is_some_and(|residue| number % 5 == residue)
    }

    /// Plans, and makes at most `limit` writes. As in a pass of the plugin, a cgroup that could not
    /// be written is not relied on by the next plan.
    fn follow(&mut self, limit: usize) -> PlanOutcome {
        let distrusted = self.distrusted.clone();
        let mut failed = BTreeSet::new();
        self.ordinary.clear();
        let outcome = loop {
            let outcome = self.carry_out_plan(limit);
            let refused = outcome.refused.keys().cloned().collect::<Vec<_>>();
            if limit == usize::MAX && !refused.is_empty() {
                self.ordinary.extend(refused);
                continue;
            }
            failed.extend(outcome.failed.iter().cloned());
            let known = self.distrusted.len();
            let binders = outcome.failed.iter().filter(|group| self.is_binder(group));
            self.distrusted.extend(binders.cloned().collect::<Vec<_>>());
            if limit < usize::MAX || self.distrusted.len() == known {
                break outcome;
            }
        };
        self.distrusted = distrusted;
        PlanOutcome { failed: failed.into_iter().collect(), ..outcome }
    }

    /// Checks the invariants after each write.
    fn carry_out_plan(&mut self, limit: usize) -> PlanOutcome {
        let goal = self.goal();
        let mut tree = self.kernel.clone();
        let entering = goal.exclusive.iter().filter(|(leaf, claim)| {
            !self.kernel.contains(leaf) || !claim.is_subset(&self.kernel.effective(leaf))
        });
        let entering = entering.count();
        let mut done = self.kernel.clone();
        let mut model = self.kernel.clone();
        carry_out(&mut done, &goal, |group, write| {
            model.write(group, write).ok().map(|()| model.partition(group))
        });
        let differing =
            done.groups().filter(|group| done.cpus(group) != self.kernel.cpus(group)).count();
        // Cgroups whose CPUs all change are written twice, so that others can leave or enter in between.
        let crossing = done.groups().filter(|group| {
            let before = self.kernel.cpus(group).unwrap_or_default();
            !before.is_empty() && before.is_disjoint(&done.effective(group))
        });
        let crossing = crossing.count();
        let mut overlaps = self.overlaps();
        let mut strays = self.strays();
        let is_trusted = self.bounds.is_empty() && self.distrusted.is_empty();
        let mut cuts = self.empty_cuts();
        let at_rest = goal.exclusive.iter().all(|(leaf, claim)| {
            goal.mixed.contains(leaf)
                || !self.kernel.contains(leaf)
                || self.kernel.effective(leaf).is_subset(claim)
        });
        let undisturbed = at_rest && cuts.is_empty() && !self.disturbed;
        let changes_partitions =
            done.groups().any(|group| done.partition(group) != self.kernel.partition(group));
        let mut left = limit;
        let outcome = carry_out(&mut tree, &goal, |group, value| {
            if left == 0 || self.is_refused(group) {
                return None;
            }
            left -= 1;
            assert_ne!(value, Write::Cpus(CpuSet::EMPTY), "{group} is emptied");
            let before = self.kernel.clone();
            assert_eq!(hazard(&before, group, value), None, "{group} := {value:?} {before:#?}");
            self.kernel.write(group, value).ok()?;
            WRITES.fetch_add(1, Ordering::Relaxed);
            let now = self.overlaps();
            let empty = self.empty_cuts();
            // A partition takes CPUs from others, and its end may leave its container only CPUs that
            // another program has set for the pod. Then only the CPUs on which they run count.
            if let Write::Exclusive(_) | Write::Partition(_) = value {
                cuts.extend(empty.iter().cloned());
            }
            assert!(
                now.is_subset(&overlaps),
                "{group} := {value:?}: {now:?}\n{before:#?}\n{goal:#?}"
            );
            assert!(
                empty.is_subset(&cuts),
                "{group} := {value:?}: {empty:?}\n{before:#?}\n{goal:#?}"
            );
            if is_trusted && self.refused.is_none() && !self.disturbed {
                let now = self.strays();
                assert!(
                    now.is_subset(&strays),
                    "{group} := {value:?}: {now:?}\n{before:#?}\n{goal:#?}"
                );
                strays = now;
            }
            overlaps = now;
            cuts = empty;
            Some(self.kernel.partition(group))
        });
        for group in self.kernel.groups() {
            assert_eq!(tree.cpus(group), self.kernel.cpus(group), "{group}");
            assert_eq!(tree.partition(group), self.kernel.partition(group), "{group}");
            assert_eq!(tree.effective(group), self.kernel.effective(group), "{group}");
        }
        if limit == usize::MAX && self.refused.is_none() {
            assert_eq!(outcome.failed, []);
            // The class and the pod of a container that enters new CPUs may have to be written twice.
            if undisturbed && !changes_partitions {
                let most = differing + crossing + 2 * entering;
                assert!(outcome.written <= most, "{outcome:?} {goal:#?}");
            }
            if outcome.refused.is_empty() {
                self.check_partitions(&outcome, &goal);
            }
            for why in outcome.refused.values() {
                let is_expected = why.starts_with("it would leave") || !self.bounds.is_empty();
                assert!(is_expected, "{why} {:#?}\n{goal:#?}", self.kernel);
            }
            if is_trusted && outcome.withheld.is_empty() && !self.disturbed {
                self.check_pools(&goal);
                self.check_listed(&goal);
            }
            // After a refusal the caller plans again, with another goal.
            if outcome.refused.is_empty() {
                let again = carry_out(&mut tree, &goal, |group, value| {
                    panic!("{group} := {value:?} {goal:#?}")
                });
                assert_eq!(again.written, 0);
            }
            if self.bounds.is_empty() {
                // As if systemd had cleared all volatile cgroups.
                let kernel = self.kernel.clone();
                for group in self.volatile.iter().filter(|group| kernel.contains(group)) {
                    self.kernel.put(group, CpuSet::EMPTY);
                }
                let mut overlaps = self.overlaps();
                self.kernel = kernel;
                // A container that already ran on CPUs of its pod stays there while the runtime has still
                // to move another.
                let moving = self.lingering();
                overlaps.retain(|(owner, _, cpu)| {
                    owner.as_str().ends_with("main") || !moving.contains(*cpu)
                });
                assert_eq!(overlaps, BTreeSet::new(), "{:#?}\n{goal:#?}", self.kernel);
            }
        }
        outcome
    }

    fn apply(&mut self, op: Op) {
        let count = self.pods.len().max(1);
        let groups: Vec<CgroupPath> = self.kernel.groups().cloned().collect();
        self.listed = false;
        match op {
            Op::List => self.listed = true,
            Op::Pod { class, shared, exclusive, mixed, reserved } => {
                let class = if class < 2 {
                    Some(path(&format!("{}/class{class}", self.root)))
                } else {
                    None
                };
                self.names += 1;
                let above = class.as_ref().map_or(self.root, CgroupPath::as_str);
                let group = path(&format!("{above}/pod{}", self.names));
                let claim = self.choose(exclusive, CpuSet::EMPTY);
                self.kernel.make(&group);
                let none = CpuSet::EMPTY;
                self.pods.push(Pod { group, class, claim: none, mixed, reserved, started: 0 });
                let at = self.pods.len() - 1;
                self.make(at, "pause", CpuSet::EMPTY);
                self.follow(usize::MAX);
                for _ in 0..shared {
                    self.start(at);
                }
                self.pods[at].claim = claim;
            }
            Op::Runtime { pod } => {
                let at = pod % count;
                if self.pods.get(at).is_none_or(|pod| pod.claim.is_empty()) {
                    return;
                }
                // Others leave before the runtime gets its response. If the cgroups of the pod, or those
                // above, refuse writes, the runtime has to move the others, which this test does not
                // model.
                let PlanOutcome { failed, withheld, .. } = self.follow(usize::MAX);
                let pod = &self.pods[at];
                let concerns_pod = |group: &CgroupPath| {
                    group.is_below(&pod.group) || pod.leaf("main").is_below(group)
                };
                if failed.iter().any(concerns_pod) {
                    return;
                }
                // Not modelled either: the runtime sets only CPUs that another program keeps from the
                // pod.
                let Some((leaf, claim)) = pod.owner() else { return };
                if claim.is_disjoint(&self.kernel.above(&leaf)) {
                    return;
                }
                let overlaps = self.overlaps();
                let before = self.kernel.clone();
                let shared = if pod.is_in_pool() { all() } else { CpuSet::EMPTY };
                self.kernel.put(&leaf, claim | shared);
                self.kernel.occupy(&leaf, true);
                // Others can still run there only below distrusted cgroups, in a cgroup that refuses
                // writes, or if another program leaves them no other CPU: not modelled either.
                if !self.overlaps().is_subset(&overlaps) {
                    let now = self.overlaps();
                    let new: Vec<_> = now.difference(&overlaps).collect();
                    let is_cramped = !self.bounds.is_empty() && !withheld.is_empty();
                    assert!(
                        !self.distrusted.is_empty()
                            || failed.iter().any(|group| self.is_leaf(group))
                            || is_cramped,
                        "{leaf} := {claim}: {new:?} {:#?}",
                        self.kernel
                    );
                    self.kernel = before;
                }
            }
            Op::Start { pod } if !self.pods.is_empty() => self.start(pod % count),
            Op::Move { pod, exclusive } if !self.pods.is_empty() => {
                let at = pod % count;
                let before = self.pods[at].claim;
                self.pods[at].claim = self.choose(exclusive, before);
                if self.pods[at].claim.is_empty() && !before.is_empty() {
                    let leaf = self.pods[at].leaf("main");
                    self.follow(usize::MAX);
                    if self.kernel.contains(&leaf) {
                        self.kernel.put(&leaf, all());
                    }
                }
            }
            Op::End { pod } if !self.pods.is_empty() => {
                let pod = self.pods.remove(pod % count);
                self.kernel.remove(&pod.group);
                self.bounds.retain(|group, _| *group != pod.group);
                self.distrusted.retain(|group| *group != pod.group);
                self.volatile.retain(|group| *group != pod.group);
            }
            Op::Foreign { group, mask: bits } if !groups.is_empty() => {
                let group = &groups[group % groups.len()];
                // Cgroups above the bounded ones keep a CPU, so that the pool is not empty there.
                let top = self.root == group.as_str() || path(self.root).is_below(group);
                let value = mask(bits) | if top { all().lowest(1) } else { CpuSet::EMPTY };
                if self.kernel.write(group, Write::Cpus(value)).is_ok() {
                    self.disturbed = true;
                    if !self.is_leaf(group) && !value.is_empty() {
                        self.bounds.insert(group.clone(), value);
                    }
                }
            }
            Op::Emptied { group } if !groups.is_empty() => {
                let _ =
                    self.kernel.write(&groups[group % groups.len()], Write::Cpus(CpuSet::EMPTY));
            }
            Op::Hotplug { mask: bits } => {
                // Two CPUs stay online, and claims lose CPUs that go offline.
                self.online = mask(bits) | all().lowest(2);
                self.kernel.set_online(self.online);
                for pod in &mut self.pods {
                    pod.claim &= self.online;
                }
                self.disturbed = true;
            }
            Op::Distrust { group } if !groups.is_empty() => {
                let group = groups[group % groups.len()].clone();
                if !self.distrusted.remove(&group) && self.is_binder(&group) {
                    self.volatile.remove(&group);
                    self.distrusted.insert(group);
                }
            }
            Op::Clearable { group } if !groups.is_empty() => {
                let group = groups[group % groups.len()].clone();
                if !self.volatile.remove(&group) && self.is_binder(&group) {
                    self.distrusted.remove(&group);
                    self.volatile.insert(group);
                }
            }
            Op::Partitions => self.partitions = !self.partitions,
            Op::Crash { after } => return drop(self.follow(after)),
            Op::Refuse { residue } => {
                self.refused = if self.refused.is_none() { Some(residue) } else { None };
                return drop(self.follow(usize::MAX));
            }
            _ => {}
        }
        self.follow(usize::MAX);
    }

    fn make(&mut self, pod: usize, name: &str, cpus: CpuSet) {
        let leaf = self.pods[pod].leaf(name);
        self.kernel.put(&leaf, cpus);
        self.kernel.occupy(&leaf, true);
    }

    fn start(&mut self, pod: usize) {
        self.follow(usize::MAX);
        self.pods[pod].started += 1;
        let name = format!("c{}", self.pods[pod].started);
        let claim = self.pods[pod].claim;
        self.make(pod, &name, all() - claim);
    }
}

fn play(root: usize, later: bool, strict: bool, ops: Vec<Op>) {
    let mut node = Node::new(ROOTS[root], later, strict);
    ops.into_iter().for_each(|op| node.apply(op));
}

#[test]
fn every_single_write_keeps_exclusive_cpus_exclusive() {
    // `PROPTEST_CASES` can ask for a longer run.
    let cases = ProptestConfig::default().cases.max(3000);
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let plays = (0..ROOTS.len(), any::<bool>(), any::<bool>(), prop::collection::vec(op(), 1..60));
    let played = runner.run(&plays, |(root, later, strict, ops)| {
        play(root, later, strict, ops);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let writes = WRITES.load(Ordering::Relaxed);
    println!("{writes} single writes checked, in {cases} random histories");
    assert!(writes >= 100_000, "{writes} writes are too few");
}
