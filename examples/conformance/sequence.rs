//! `sequence.jsonl`, `sequence37.jsonl`: the life of a node, pod by pod, as calls of a runtime that reports whether a
//! container is an init container.

use super::options::Config;
use super::simulated::{Admitted, Node, PodSpec};
use super::take::{by_whole_cores, is_as_balanced, yes};
use super::{Machines, Newer, Outcome, Tally};
use cpuset::CpuSet;
use ledger::{PodLevelResources, Policy, Settings};
use placement::Hint;
use placement::cores::whole_cores;
use serde::Deserialize;
use std::collections::BTreeMap;
use topology::Topology;

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    #[serde(flatten)]
    config: Config,
    gates: BTreeMap<String, bool>,
    initial: Option<Initial>,
    start_error: Option<String>,
    steps: Vec<Step>,
    /// From this step on the kubelet's own state is wrong.
    unsafe_from_step: Option<usize>,
    /// Whether the kubelet keeps its own rules.
    #[serde(default = "yes")]
    legal: bool,
}

#[derive(Debug, Deserialize)]
struct Initial {
    default: String,
    reserved: String,
    reserved_physical: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Step {
    Admit { pod: PodSpec, expect: Expect },
    Remove { name: String, expect: Expect },
    Restart,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expect {
    admitted: bool,
    reason: Option<String>,
    message: Option<String>,
    assigned: BTreeMap<String, String>,
    hints: BTreeMap<String, (Option<Vec<usize>>, u8)>,
    default: String,
}

impl Initial {
    fn compare(&self, node: &Node) -> Result<(), String> {
        let reserved = node.ledger.settings().placement.reserved;
        same("reserved", &reserved.to_string(), &self.reserved)?;
        let physical = whole_cores(node.ledger.topology(), &reserved);
        same("reserved_physical", &physical.to_string(), &self.reserved_physical)?;
        same("default", &node.shared().to_string(), &self.default)
    }
}

impl Vector {
    /// The first step that is only checked for legality and size.
    fn first_excepted(&self) -> usize {
        let restart = self.steps.iter().position(|step| matches!(step, Step::Restart));
        let end = self.steps.len();
        restart.unwrap_or(end).min(self.unsafe_from_step.unwrap_or(end))
    }

    /// `newer`: kubelet 1.37 answers otherwise. From the first difference on, steps are checked for
    /// legality and size.
    fn run(&self, machines: &Machines, newer: bool, tally: &mut Tally) -> Result<Outcome, String> {
        let topology = self.config.machine(machines).ok_or("no such machine")?;
        let settings = match self.config.settings(&topology).ok_or("not a configuration")? {
            Ok(settings) => settings,
            Err(error) => {
                same("error", Some(error.to_string()), self.start_error.clone())?;
                return Ok(Outcome::Passed);
            }
        };
        same("error", None, self.start_error.clone())?;
        let initial = self.initial.as_ref().ok_or("no initial state")?;
        let distributes = settings.options.distribute_cpus_across_numa;
        let theirs = initial.reserved.parse::<CpuSet>().map_err(|error| error.to_string())?;
        let reserved = settings.reserved;
        let pod_level = self.gates.get("PodLevelResourceManagers") == Some(&true);
        let pod_level_resources =
            if pod_level { PodLevelResources::OwnPool } else { PodLevelResources::Shared };
        let settings = Settings {
            policy: Policy::Static,
            placement: settings,
            pod_level_resources,
            ..Settings::default()
        };
        let mut node = Node::with_settings(topology.clone(), settings);
        let wrong = self.steps.iter().position(|step| step.is_wrong(&reserved));
        let mut end = self.first_excepted().min(wrong.unwrap_or(self.steps.len()));
        let mut outcome = if !self.legal {
            Outcome::Ours
        } else if self.first_excepted() < self.steps.len() {
            Outcome::Excepted
        } else {
            Outcome::Passed
        };
        match initial.compare(&node) {
            Ok(()) => {}
            // Both reservations are equally good, and every later answer depends on them.
            Err(_)
                if distributes
                    && reserved != theirs
                    && is_as_balanced(&topology, &topology.online(), &reserved, &theirs) =>
            {
                end = 0;
            }
            Err(_) if newer => {
                end = 0;
                outcome = Outcome::Newer;
            }
            Err(_) if is_reserved_by_average(&topology, &reserved, &theirs) => {
                tally.count("ours: the kubelet reserves by cores of average size".to_owned());
                end = 0;
                outcome = Outcome::Ours;
            }
            Err(error) => return Err(error),
        }
        for (number, step) in self.steps.iter().enumerate() {
            let at_step = |error| format!("step {number}: {error}, {step:?}");
            let compared = step.run(&mut node).map_err(at_step)?;
            node.ledger.check().map_err(at_step)?;
            if number >= end {
                continue;
            }
            match compared {
                Ok(()) => tally.count("steps compared".to_owned()),
                // From here on the two nodes differ: later steps are checked for legality and size.
                Err(_) if distributes && step.is_as_balanced(&node) => end = number,
                Err(_) if newer => {
                    end = number;
                    outcome = Outcome::Newer;
                }
                Err(error) => {
                    let Step::Admit { pod, expect } = step else { return Err(at_step(error)) };
                    let assigned = expect.assigned()?;
                    let how = pod
                        .is_better(&node, &assigned)
                        .or_else(|| expect.ours(&node, pod, &assigned));
                    let how = how.ok_or_else(|| at_step(error))?;
                    tally.count(format!("ours: {how}"));
                    outcome = Outcome::Ours;
                    if node.answered(&pod.name).is_none() && expect.admitted {
                        // Refused: from here on the two nodes differ.
                        end = number;
                        continue;
                    }
                    // Later steps follow from the kubelet's answer.
                    node.adopt(pod, &assigned)?;
                    same("default", &node.shared().to_string(), &expect.default)
                        .map_err(at_step)?;
                }
            }
        }
        Ok(outcome)
    }
}

/// Whether as many CPUs are reserved as by the kubelet, which counts cores of average size, and no
/// more cores are split.
fn is_reserved_by_average(topology: &Topology, ours: &CpuSet, theirs: &CpuSet) -> bool {
    let splits = |cpus: &CpuSet| (whole_cores(topology, cpus) - *cpus).len();
    !topology.cores_are_equal() && ours.len() == theirs.len() && splits(ours) <= splits(theirs)
}

impl Step {
    /// The inner error is a difference from the kubelet's answer, the outer one a defect.
    fn run(&self, node: &mut Node) -> Result<Result<(), String>, String> {
        let (answer, expect) = match self {
            Step::Admit { pod, expect } => {
                let answer = node.admit(pod)?;
                let compared = expect.compare(&answer);
                if let Ok(admitted) = answer {
                    pod.check_sizes(&admitted, node.is_pod_level())?;
                }
                (compared, expect)
            }
            Step::Remove { name, expect } => {
                node.remove(name)?;
                (Ok(()), expect)
            }
            Step::Restart => return node.restart().map(Ok),
        };
        Ok(answer.and_then(|()| same("default", &node.shared().to_string(), &expect.default)))
    }
}

impl Step {
    /// Whether the kubelet gives a container reserved CPUs, or CPUs of another one that runs, in a pod
    /// with resources of its own: vectors with these are not marked.
    fn is_wrong(&self, reserved: &CpuSet) -> bool {
        let Step::Admit { pod, expect } = self else { return false };
        if !pod.has_own_resources() {
            return false;
        }
        let cpus = |name: &str| expect.assigned.get(name)?.parse::<CpuSet>().ok();
        let mut held = CpuSet::EMPTY;
        for name in pod.names() {
            let Some(cpus) = cpus(name) else { continue };
            if !cpus.is_disjoint(reserved) {
                return true;
            }
            if !pod.is_init(name) && pod.is_whole(name) {
                if !cpus.is_disjoint(&held) {
                    return true;
                }
                held |= cpus;
            }
        }
        false
    }

    /// Whether the node's free CPUs are as balanced after this step as the kubelet's: a
    /// distribution over NUMA nodes can differ from the kubelet's and be equally good.
    fn is_as_balanced(&self, node: &Node) -> bool {
        let Step::Admit { expect, .. } = self else { return false };
        let Ok(theirs) = expect.default.parse::<CpuSet>() else { return false };
        let topology = node.ledger.topology();
        let online = node.ledger.topology().online();
        let ours = online - node.shared();
        expect.admitted && is_as_balanced(topology, &online, &ours, &(online - theirs))
    }
}

impl Expect {
    /// Why the node's answer differs from the kubelet's, by a rule about whole cores; `None` if no
    /// rule says so, or the node's answer is worse.
    fn ours(
        &self,
        node: &Node,
        pod: &PodSpec,
        theirs: &BTreeMap<String, CpuSet>,
    ) -> Option<&'static str> {
        let topology = node.ledger.topology();
        let options = &node.ledger.settings().placement.options;
        let ours = node.answered(&pod.name).map(|(ours, _)| ours).unwrap_or_default();
        by_whole_cores(topology, options, &ours, theirs, self.message.as_deref())
    }

    fn assigned(&self) -> Result<BTreeMap<String, CpuSet>, String> {
        let parsed = self.assigned.iter().map(|(name, list)| {
            let cpus = list.parse().map_err(|error| format!("{name}: {error}"))?;
            Ok((name.clone(), cpus))
        });
        parsed.collect()
    }

    fn compare(&self, answer: &Result<Admitted, placement::Rejection>) -> Result<(), String> {
        same("admitted", answer.is_ok(), self.admitted)?;
        let admitted = match answer {
            Ok(admitted) => admitted,
            Err(rejection) => {
                same("reason", Some(rejection.reason.name()), self.reason.as_deref())?;
                // Of pods with resources of their own, which a runtime does not show.
                if self.message.as_ref().is_some_and(|message| message.starts_with("Pod Scope pod"))
                {
                    return Ok(());
                }
                return same("message", Some(&rejection.message), self.message.as_ref());
            }
        };
        let assigned = admitted.iter().map(|(name, (cpus, _))| (name.clone(), cpus.to_string()));
        same("assigned", assigned.collect(), self.assigned.clone())?;
        for (name, (_, hint)) in admitted {
            let expect = self.hints.get(name).map_or(Hint::ANY, |(nodes, preferred)| {
                let nodes = nodes.as_ref().map(|nodes| nodes.iter().copied().collect());
                Hint { nodes, preferred: *preferred == 1 }
            });
            same(&format!("hint of {name}"), *hint, expect)?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what} is {ours:?}, expected {theirs:?}")) }
}

pub(super) fn check(
    vector: Vector,
    machines: &Machines,
    newer: &Newer,
    tally: &mut Tally,
) -> Outcome {
    let is_newer = newer.has("sequence", &vector.id);
    match vector.run(machines, is_newer, tally) {
        Err(error) => Outcome::Failed(format!("{}: {error}, {:?}", vector.id, vector.config)),
        Ok(outcome) if is_newer && !matches!(outcome, Outcome::Newer) => {
            Outcome::Failed(format!("{}: is in the list of other answers, but agrees", vector.id))
        }
        Ok(outcome) => outcome,
    }
}
