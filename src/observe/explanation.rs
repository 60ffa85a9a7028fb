//! [`explain()`]: why a container has the CPUs it has, or has none, put into words when somebody asks.
//!
//! A decision leaves behind what it was made from (a [`Scene`]), not its reasons: those follow from it by the same
//! functions that decided.

use super::history::{Happened, History, Record};
use super::report::{RecordStatus, are_whole_cores, nodes_of, subject, uncores_of};
use crate::cpuset::CpuSet;
use crate::ledger::wishes::{Cpus, Wish};
use crate::ledger::{Ledger, Policy, Qos, Scene, Seen, Stance, Subject, What};
use crate::placement::{Demand, Hint, TopologyPolicy, UncoreOrder};
use crate::spelling::{self, count};
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Sets of NUMA nodes that are named; there are twice as many with each node.
const MAX_SETS: usize = 8;
/// On machines with more nodes than this, sets of them are not listed.
const MAX_NODES: usize = 8;
/// Containers that are explained at a time.
const MAX_EXPLAINED: usize = 32;

/// Why a container has the CPUs it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its pod's namespace.
    pub namespace: String,
    /// Its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// `exclusive`, `shared`; of containers that are not there: `refused`, `gone`.
    pub state: String,
    /// Where it runs; `null` if it is not there.
    pub cpus: Option<String>,
    /// The reasons, a sentence each.
    pub why: Vec<String>,
    /// What the decision was made from, if it was made by this process.
    pub decision: Option<DecisionStatus>,
    /// What happened to it, the oldest first, as far as it is kept.
    pub history: Vec<RecordStatus>,
}

/// What a decision was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionStatus {
    /// When it was made.
    pub at: String,
    /// How many CPUs were asked for.
    pub asked: usize,
    /// In pod scope: for how many CPUs the pod's NUMA affinity was chosen.
    pub pod_cpus: Option<usize>,
    /// CPUs that were free.
    pub free: String,
    /// CPUs that ended containers of the pod had left for it.
    pub reusable: String,
    /// Sets of NUMA nodes that had room, the narrowest first; empty if the topology manager's policy is `none`.
    pub numa_candidates: Vec<NumaCandidate>,
    /// The uncore caches.
    pub uncore_caches: Vec<CacheCandidate>,
}

/// A set of NUMA nodes that had room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumaCandidate {
    /// The nodes.
    pub numa_nodes: Vec<usize>,
    /// CPUs that were free in them.
    pub free: usize,
    /// Whether there could be no better one on the empty machine.
    pub preferred: bool,
    /// Whether it was taken.
    pub chosen: bool,
}

/// An uncore cache, as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCandidate {
    /// Its number.
    pub id: usize,
    /// CPUs that were free in it.
    pub free: String,
    /// Whether all that was asked for had room in it.
    pub fits: bool,
    /// How many CPUs were taken of it.
    pub taken: usize,
}

type Name = (String, String, String);

/// Explains the containers that `query` names: `POD`, `NAMESPACE/POD`, `POD/CONTAINER` or `NAMESPACE/POD/CONTAINER`. Empty
/// if there is none.
pub fn explain(ledger: &Ledger, history: &History, query: &str) -> Vec<Explanation> {
    let mut found: BTreeMap<Name, Option<Seen<'_>>> = BTreeMap::new();
    for record in history.all() {
        found.insert(name(&record.subject), None);
    }
    found.extend(ledger.seen().map(|seen| (name(&subject(&seen)), Some(seen))));
    found.retain(|name, _| is_meant(query, name));
    let found = found.iter().take(MAX_EXPLAINED);
    found.map(|(name, seen)| Case { ledger, history, name, seen: *seen }.explain()).collect()
}

fn name(subject: &Subject) -> Name {
    (subject.namespace.clone(), subject.pod.clone(), subject.container.clone())
}

fn is_meant(query: &str, (namespace, pod, container): &Name) -> bool {
    let (in_namespace, in_pod) = (format!("{namespace}/{pod}"), format!("{pod}/{container}"));
    query == pod
        || query == in_namespace
        || query == in_pod
        || query == format!("{in_namespace}/{container}")
}

/// One container.
struct Case<'a> {
    ledger: &'a Ledger,
    history: &'a History,
    name: &'a Name,
    seen: Option<Seen<'a>>,
}

impl Case<'_> {
    fn explain(&self) -> Explanation {
        let records: Vec<&Record> = self
            .history
            .all()
            .into_iter()
            .filter(|record| name(&record.subject) == *self.name)
            .collect();
        let refused = records.iter().rev().find_map(|record| refusal(record));
        let chosen = records.iter().rev().find_map(|record| choice(record));
        let (state, mut why, decision) = match (&self.seen, chosen, refused) {
            (Some(seen), chosen, _) if seen.exclusive.is_some() => {
                let decision = chosen.map(|(record, cpus, hint, scene)| {
                    self.decision(record, scene, cpus, Some(hint))
                });
                ("exclusive", self.exclusive(seen, chosen), decision)
            }
            (Some(seen), ..) => ("shared", self.shared(seen), None),
            (None, _, Some((record, text, scene))) => {
                let decision = scene.map(|scene| self.decision(record, scene, CpuSet::EMPTY, None));
                ("refused", self.refused(text, scene), decision)
            }
            (None, ..) => ("gone", vec!["It is not there any more.".to_owned()], None),
        };
        let drifted = |record: &&&Record| matches!(record.happened, Happened::Drifted { .. });
        let repairs = records.iter().filter(drifted).count();
        if repairs > 0 {
            why.push(format!(
                "It was found to be otherwise than decided ({}), and what could be done was done: see below.",
                count(repairs, "time")
            ));
        }
        why.extend(self.seen.and_then(|seen| self.history.delay_of(seen.id)));
        let (namespace, pod, container) = self.name.clone();
        Explanation {
            namespace,
            pod,
            container,
            state: state.to_owned(),
            cpus: self.seen.map(|seen| seen.runs_on.to_string()),
            why,
            decision,
            history: records.into_iter().map(RecordStatus::of).collect(),
        }
    }

    fn topology(&self) -> &Topology {
        self.ledger.topology()
    }

    fn exclusive(&self, seen: &Seen<'_>, chosen: Option<Choice<'_>>) -> Vec<String> {
        let cpus = seen.exclusive.unwrap_or_default();
        let mut why = vec![match seen.asks {
            Some(n) if seen.pod.qos != Qos::Guaranteed => format!(
                "It asks for {}, and its pod wishes for CPUs of its own (cpus: exclusive).",
                count(n, "whole CPU")
            ),
            Some(n) => format!(
                "It asks for {} in a Guaranteed pod, so it gets CPUs of its own.",
                count(n, "whole CPU")
            ),
            None => "It keeps CPUs of its own that it was given earlier.".to_owned(),
        }];
        match chosen {
            Some((_, _, hint, scene)) => why.extend(self.choice(hint, scene)),
            None => why.push(
                "Its CPUs were not chosen by this process: it was found running with them, or moved (see below)."
                    .to_owned(),
            ),
        }
        let agree = |one, several| spelling::agree(cpus, one, several);
        let cores = match are_whole_cores(self.topology(), &cpus) {
            true => agree("; it is a whole core", "; they are whole cores").to_owned(),
            false if seen.idle.is_empty() => {
                format!("; others may run on {} SMT siblings", agree("its", "their"))
            }
            false => String::new(),
        };
        let (name, are) = (spelling::cpus(cpus), agree("is", "are"));
        let nodes = named("NUMA node", &nodes_of(self.topology(), &cpus));
        let uncores = named("uncore cache", &uncores_of(self.topology(), &cpus));
        why.push(format!("{name} {are} in {nodes} and {uncores}{cores}."));
        why.push(format!("The {} keeps others off {}.", seen.kept_by, agree("it", "them")));
        if !seen.idle.is_empty() {
            why.push(format!(
                "Their SMT siblings {} stay idle (smt: isolate): nobody is given them.",
                seen.idle
            ));
        }
        why
    }

    /// How CPUs were chosen.
    fn choice(&self, hint: Hint, scene: &Scene) -> Vec<String> {
        let placement = &scene.placement;
        let manager = &placement.topology_manager;
        let free = scene.free - placement.reserved;
        let mut why = vec![format!("Free at that time: {} ({free}).", count(free.len(), "CPU"))];
        why.extend(wished(scene));
        if !scene.reusable.is_empty() {
            why.push(format!(
                "Ended containers of its pod had left it {} to use again.",
                spelling::cpus(scene.reusable)
            ));
        }
        let policy = manager.policy.name();
        why.push(match hint.nodes {
            _ if manager.policy == TopologyPolicy::None => {
                format!("topologyManagerPolicy {policy}: NUMA nodes had no say.")
            }
            None => format!("topologyManagerPolicy {policy}: any NUMA node was as good."),
            Some(nodes) => {
                let of = match scene.pod {
                    Some(cpus) => format!(" for the {cpus} CPUs of its pod"),
                    None => String::new(),
                };
                let fit = match hint.preferred {
                    true => "as good as any could be",
                    false => "the best there was; on an empty machine there would be better ones",
                };
                let nodes: Vec<usize> = nodes.iter().collect();
                format!(
                    "topologyManagerPolicy {policy}: {}{of}, {fit}.",
                    named("NUMA node", &nodes)
                )
            }
        });
        if !scene.wishes.devices.is_empty() && manager.policy != TopologyPolicy::None {
            let nodes: Vec<usize> = scene.wishes.devices.iter().collect();
            why.push(format!("Its devices are on {}.", named("NUMA node", &nodes)));
        }
        if placement.options.prefer_align_cpus_by_uncorecache {
            let order = match placement.options.uncore_order {
                UncoreOrder::FewestFree => "the one with the fewest free CPUs first",
                UncoreOrder::Numerical => "by number",
            };
            let by = match scene.wishes.uncore {
                Some(uncore) => Wish::Uncore(uncore).to_string(),
                None => "prefer-align-cpus-by-uncorecache".to_owned(),
            };
            why.push(format!(
                "{by}: whole uncore caches first, then one that can hold the rest, {order}."
            ));
        }
        why
    }

    fn shared(&self, seen: &Seen<'_>) -> Vec<String> {
        let mut why = Vec::new();
        let qos = match seen.pod.qos {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
            Qos::Unknown => "of an unknown class",
        };
        let asked = seen.cpu.request.or(seen.cpu.limit);
        let may = seen.pod.qos == Qos::Guaranteed
            || (seen.pod.qos == Qos::Burstable && seen.cpus_wish == Some(Cpus::Exclusive));
        why.push(match (seen.asks, asked) {
            _ if seen.cpus_wish == Some(Cpus::Shared) => {
                "Its pod, or the configuration for its namespace, has it that it shares CPUs.".to_owned()
            }
            _ if self.ledger.settings().policy == Policy::None => {
                "cpuManagerPolicy is none: nobody gets CPUs of their own.".to_owned()
            }
            _ if self.ledger.stance() != Stance::Assign => {
                "The kubelet's own CPU manager assigns the CPUs of this node.".to_owned()
            }
            (Some(n), _) => format!(
                "It asks for {} and has none of its own: the rest of its pod uses the pod's CPU limit up, which a container without resources inherits; or there was no room when it was found running (see below).",
                count(n, "exclusive CPU")
            ),
            (None, _) if !may => format!(
                "Its pod is {qos}: only containers of Guaranteed pods (limits equal requests) get CPUs of their own."
            ),
            (None, Some(amount)) => format!("It asks for {amount} CPUs: only whole numbers get CPUs of their own."),
            (None, None) => "It asks for no CPUs.".to_owned(),
        });
        why.push(format!(
            "It shares {} with all others that have none of their own.",
            spelling::cpus(seen.runs_on)
        ));
        why
    }

    fn refused(&self, text: &str, scene: Option<&Scene>) -> Vec<String> {
        let mut why = vec![format!("It was refused: {text}.")];
        let Some(scene) = scene else { return why };
        why.extend(wished(scene));
        let (topology, placement, n) = (self.topology(), &scene.placement, scene.asked);
        let free = scene.free - placement.reserved;
        let most = |cpus: &mut dyn Iterator<Item = CpuSet>| {
            cpus.map(|cpus| (cpus & free).len()).max().unwrap_or(0)
        };
        let in_node = most(&mut topology.nodes().iter().map(|node| node.cpus));
        let in_uncore = most(&mut topology.uncores().iter().map(|uncore| uncore.cpus));
        why.push(format!(
            "It asked for {}. Free at that time: {} ({}), at most {in_node} in one NUMA node and {in_uncore} in one uncore cache.",
            count(n, "CPU"),
            count(free.len(), "CPU"),
            list(&free),
        ));
        if let Some(sets) = self.sets(scene).filter(|_| n <= free.len()) {
            let preferred = sets.iter().filter(|hint| hint.preferred).count();
            why.push(format!(
                "Sets of NUMA nodes that had room: {}; of these as narrow as topologyManagerPolicy {} wants: {preferred}.",
                sets.len(),
                placement.topology_manager.policy.name()
            ));
        }
        let free_now = self.ledger.free();
        why.push(format!(
            "Free now: {} ({}). The kubelet tries again by itself.",
            count(free_now.len(), "CPU"),
            list(&free_now)
        ));
        why
    }

    /// Sets of NUMA nodes that had room, the narrowest first; `None` where these have no say, or are too many to list.
    fn sets(&self, scene: &Scene) -> Option<Vec<Hint>> {
        let placement = &scene.placement;
        if placement.topology_manager.policy == TopologyPolicy::None
            || self.topology().nodes().len() > MAX_NODES
        {
            return None;
        }
        let available = scene.free - placement.reserved;
        let align = placement.options.align_by_socket;
        let n = scene.pod.unwrap_or(scene.asked);
        Some(Demand::new(self.topology(), &available, &scene.reusable, n, align).enumerate())
    }

    fn decision(
        &self,
        record: &Record,
        scene: &Scene,
        taken: CpuSet,
        chosen: Option<Hint>,
    ) -> DecisionStatus {
        let topology = self.topology();
        let free = scene.free - scene.placement.reserved;
        let is_chosen = |hint: &Hint| chosen.is_some_and(|chosen| chosen.nodes == hint.nodes);
        let sets = self.sets(scene).unwrap_or_default().into_iter().enumerate();
        let sets = sets.filter(|(at, hint)| *at < MAX_SETS || is_chosen(hint));
        let numa_candidates = sets.filter_map(|(_, hint)| {
            let nodes = hint.nodes?;
            let inside = topology.nodes().iter().filter(|node| nodes.contains(node.id));
            let inside: CpuSet = inside.map(|node| node.cpus).collect();
            Some(NumaCandidate {
                numa_nodes: nodes.iter().collect(),
                free: (inside & (free | scene.reusable)).len(),
                preferred: hint.preferred,
                chosen: is_chosen(&hint),
            })
        });
        // One that wishes for idle siblings needs a whole core for each CPU.
        let holds = |cpus: &CpuSet| match scene.wishes.isolates() {
            true => topology.cores().iter().filter(|core| core.cpus.is_subset(cpus)).count(),
            false => cpus.len(),
        };
        let caches = topology.uncores().iter().map(|uncore| {
            let here = uncore.cpus & (free | scene.reusable);
            CacheCandidate {
                id: uncore.id,
                free: here.to_string(),
                fits: holds(&here) >= scene.asked,
                taken: (uncore.cpus & taken).len(),
            }
        });
        DecisionStatus {
            at: record.at.to_string(),
            asked: scene.asked,
            pod_cpus: scene.pod,
            free: free.to_string(),
            reusable: scene.reusable.to_string(),
            numa_candidates: numa_candidates.collect(),
            uncore_caches: caches.collect(),
        }
    }
}

/// What the pod wished for, or the configuration for it.
fn wished(scene: &Scene) -> Option<String> {
    let wishes: Vec<String> = Wish::list(&scene.wishes).iter().map(ToString::to_string).collect();
    (!wishes.is_empty()).then(|| format!("Wished for: {}.", wishes.join(", ")))
}

type Choice<'a> = (&'a Record, CpuSet, Hint, &'a Scene);

fn choice<'a>(record: &&'a Record) -> Option<Choice<'a>> {
    match &record.happened {
        Happened::Decided { what: What::Assigned { cpus, within, scene }, done: true } => {
            Some((record, *cpus, *within, scene))
        }
        _ => None,
    }
}

/// A refusal that is the last word.
fn refusal<'a>(record: &&'a Record) -> Option<(&'a Record, &'a str, Option<&'a Scene>)> {
    if record.settled {
        return None;
    }
    match &record.happened {
        Happened::Decided { what: What::Refused { why, scene }, done: true } => {
            Some((record, why, scene.as_deref()))
        }
        _ => None,
    }
}

fn list(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn named<T: Display>(noun: &str, numbers: &[T]) -> String {
    let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{noun}{} {}", if numbers.len() == 1 { "" } else { "s" }, all.join(","))
}
