//! [`explain()`]: why a container has the CPUs it has, or has none, put into words on demand.
//!
//! A decision leaves behind its input (a [`Request`]), not its reasons: the engine that decided
//! gives them.

use super::history::{Happened, History, Name, Record, name};
use super::report::{RecordStatus, are_whole_cores, nodes_of, subject, uncores_of};
use crate::cpuset::CpuSet;
use crate::ledger::wish::{Cpus, Wish};
use crate::ledger::{ContainerView, Mechanism, Policy, Qos, Stance, View, What};
use crate::placement::{self, Placement, Request, Weighed};
use crate::topology::Topology;
use crate::wording::{self, count};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

const MAX_EXPLAINED: usize = 32;

/// Why a container has the CPUs it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub namespace: String,

    pub pod: String,

    pub container: String,
    /// `exclusive`, `shared`; of containers that do not exist: `refused`, `gone`.
    pub state: String,
    /// Where it runs; `null` if it does not exist.
    pub cpus: Option<String>,
    /// The reasons, a sentence each.
    pub why: Vec<String>,
    /// The input of the decision, if this process made it.
    pub decision: Option<DecisionStatus>,
    /// The kept part of its history, the oldest first.
    pub history: Vec<RecordStatus>,
}

/// The input of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionStatus {
    pub at: String,
    /// The number of CPUs that the container asked for.
    pub asked: usize,
    /// In pod scope: the number of CPUs for which the pod's NUMA affinity was chosen.
    pub pod_cpus: Option<usize>,
    pub free: String,
    /// CPUs that ended containers of the pod had left for it.
    pub reusable: String,
    /// Sets of NUMA nodes that had room, the narrowest first; empty if the topology manager's
    /// policy is `none`.
    pub numa_candidates: Vec<NumaCandidate>,
    pub uncore_caches: Vec<CacheCandidate>,
}

/// A set of NUMA nodes that had room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumaCandidate {
    pub numa_nodes: Vec<usize>,
    /// The number of free CPUs in them.
    pub free: usize,
    /// Whether the empty machine has no better set.
    pub preferred: bool,
    /// Whether the placement used it.
    pub chosen: bool,
}

/// An uncore cache at the time of the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCandidate {
    pub id: usize,
    /// Its free CPUs, as a list.
    pub free: String,
    /// Whether it had room for all CPUs of the request.
    pub fits: bool,
    /// The number of CPUs that the placement took from it.
    pub taken: usize,
}

/// Explains the containers that `query` names: `POD`, `NAMESPACE/POD`, `POD/CONTAINER` or
/// `NAMESPACE/POD/CONTAINER`. Empty if there is none.
pub(super) fn explain(view: &View, history: &History, query: &str) -> Vec<Explanation> {
    let mut found: BTreeMap<Name, Option<&ContainerView>> = BTreeMap::new();
    for record in history.all() {
        found.insert(name(&record.subject), None);
    }
    found.extend(view.containers.iter().map(|seen| (name(&subject(seen)), Some(seen))));
    found.retain(|name, _| is_meant(query, name));
    let found = found.iter().take(MAX_EXPLAINED);
    found.map(|(name, seen)| Case { view, history, name, seen: *seen }.explain()).collect()
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
    view: &'a View,
    history: &'a History,
    name: &'a Name,
    seen: Option<&'a ContainerView>,
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
                let decision = chosen.map(|(record, placement, request)| {
                    self.decision(record, request, Some(placement))
                });
                ("exclusive", self.exclusive(seen, chosen), decision)
            }
            (Some(seen), ..) => ("shared", self.shared(seen), None),
            (None, _, Some((record, text, request))) => {
                let decision = request.map(|request| self.decision(record, request, None));
                ("refused", self.refused(text, request), decision)
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
        why.extend(self.seen.and_then(|seen| self.history.delay_of(&seen.id)));
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
        &self.view.topology
    }

    fn exclusive(&self, seen: &ContainerView, chosen: Option<Choice<'_>>) -> Vec<String> {
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
            Some((_, placement, request)) => why.extend(self.choice(placement, request)),
            None => why.push(
                "Its CPUs were not chosen by this process: it was found running with them, or moved (see below)."
                    .to_owned(),
            ),
        }
        let agree = |one, several| wording::agree(cpus, one, several);
        let cores = match are_whole_cores(self.topology(), &cpus) {
            true => agree("; it is a whole core", "; they are whole cores").to_owned(),
            false if seen.idle.is_empty() => {
                format!("; others may run on {} SMT siblings", agree("its", "their"))
            }
            false => String::new(),
        };
        let (name, are) = (wording::cpus(cpus), agree("is", "are"));
        let nodes = named("NUMA node", &nodes_of(self.topology(), &cpus));
        let uncores = named("uncore cache", &uncores_of(self.topology(), &cpus));
        why.push(format!("{name} {are} in {nodes} and {uncores}{cores}."));
        let keeper = match seen.enforced_by {
            Mechanism::Runtime => "The runtime keeps",
            Mechanism::Groups => "Cgroups keep",
            Mechanism::Partitions => "The kernel keeps",
        };
        why.push(format!("{keeper} others off {}.", agree("it", "them")));
        if !seen.idle.is_empty() {
            let (siblings, stay) = match seen.idle.len() {
                1 => ("sibling", "stays"),
                _ => ("siblings", "stay"),
            };
            let whose = agree("Its", "Their");
            why.push(format!(
                "{whose} SMT {siblings} {} {stay} idle (smt: isolate): no container gets {}.",
                seen.idle,
                if seen.idle.len() == 1 { "it" } else { "them" }
            ));
        }
        why
    }

    fn choice(&self, placement: &Placement, request: &Request) -> Vec<String> {
        let free = request.free - request.settings.reserved;
        let mut why = vec![format!("Free at that time: {} ({free}).", count(free.len(), "CPU"))];
        why.extend(wished(request));
        if !request.reuse.cpus().is_empty() {
            why.push(format!(
                "Ended containers of its pod had left it {} to use again.",
                wording::cpus(request.reuse.cpus())
            ));
        }
        why.extend(self.weighed(request, Some(placement)).reasons);
        why
    }

    fn weighed(&self, request: &Request, placement: Option<&Placement>) -> Weighed {
        placement::explain(self.topology(), request, placement)
    }

    fn shared(&self, seen: &ContainerView) -> Vec<String> {
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
            _ if self.view.settings.policy == Policy::None => {
                "cpuManagerPolicy is none: no container gets CPUs of its own.".to_owned()
            }
            _ if self.view.stance != Stance::Assign => {
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
            wording::cpus(seen.runs_on)
        ));
        why
    }

    fn refused(&self, text: &str, request: Option<&Request>) -> Vec<String> {
        let mut why = vec![format!("It was refused: {text}.")];
        let Some(request) = request else { return why };
        why.extend(wished(request));
        let (topology, settings, n) = (self.topology(), &request.settings, request.cpus);
        let free = request.free - settings.reserved;
        let most = |cpus: &mut dyn Iterator<Item = CpuSet>| {
            cpus.map(|cpus| (cpus & free).len()).max().unwrap_or(0)
        };
        let in_node = most(&mut topology.nodes().iter().map(|node| node.cpus));
        let in_uncore = most(&mut topology.uncores().iter().map(|uncore| uncore.cpus));
        why.push(format!(
            "It asked for {}. Free at that time: {} ({}), at most {in_node} in one NUMA node and {in_uncore} in one uncore cache.",
            count(n, "CPU"),
            count(free.len(), "CPU"),
            wording::or_none(free),
        ));
        let sets = self.weighed(request, None).numa_sets;
        if let Some((sets, preferred)) = sets.filter(|_| n <= free.len()) {
            why.push(format!(
                "Sets of NUMA nodes that had room: {sets}; of these as narrow as topologyManagerPolicy {} wants: {preferred}.",
                settings.topology_manager.policy.name()
            ));
        }
        let free_now = self.view.free;
        why.push(format!(
            "Free now: {} ({}). The kubelet tries again by itself.",
            count(free_now.len(), "CPU"),
            wording::or_none(free_now)
        ));
        why
    }

    fn decision(
        &self,
        record: &Record,
        request: &Request,
        placement: Option<&Placement>,
    ) -> DecisionStatus {
        let Weighed { numa, uncores, .. } = self.weighed(request, placement);
        let numa = numa.into_iter().filter_map(|candidate| {
            Some(NumaCandidate {
                numa_nodes: candidate.hint.nodes?.iter().collect(),
                free: candidate.free,
                preferred: candidate.hint.preferred,
                chosen: candidate.chosen,
            })
        });
        let uncores = uncores.into_iter().map(|candidate| CacheCandidate {
            id: candidate.id,
            free: candidate.free.to_string(),
            fits: candidate.fits,
            taken: candidate.taken,
        });
        DecisionStatus {
            at: record.at.to_string(),
            asked: request.cpus,
            pod_cpus: request.pod.map(|pod| pod.cpus),
            free: (request.free - request.settings.reserved).to_string(),
            reusable: request.reuse.cpus().to_string(),
            numa_candidates: numa.collect(),
            uncore_caches: uncores.collect(),
        }
    }
}

/// What the pod wished for, or the configuration for it.
fn wished(request: &Request) -> Option<String> {
    let wishes: Vec<String> = Wish::list(&request.wishes).iter().map(ToString::to_string).collect();
    (!wishes.is_empty()).then(|| format!("Wished for: {}.", wishes.join(", ")))
}

type Choice<'a> = (&'a Record, &'a Placement, &'a Request);

fn choice<'a>(record: &&'a Record) -> Option<Choice<'a>> {
    match &record.happened {
        Happened::Decided { what: What::Assigned { placement, request }, done: true } => {
            Some((record, placement, request))
        }
        _ => None,
    }
}

/// A refusal, unless the container got in later.
fn refusal<'a>(record: &&'a Record) -> Option<(&'a Record, &'a str, Option<&'a Request>)> {
    if record.settled {
        return None;
    }
    match &record.happened {
        Happened::Decided { what: What::Refused { why, request }, done: true } => {
            Some((record, why, request.as_deref()))
        }
        _ => None,
    }
}

fn named<T: Display>(noun: &str, numbers: &[T]) -> String {
    let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{noun}{} {}", if numbers.len() == 1 { "" } else { "s" }, all.join(","))
}
