//! [`Explanation`]: why a container has its CPUs, or none, in words.
//!
//! The history keeps the input of a decision (a [`Request`]), not its reasons: the engine that
//! decided derives these again when a client asks.

use super::domains::{are_whole_cores, nodes_of, uncores_of};
use super::history::{Happened, HistoryRecord, Name, name};
use super::memory;
use super::node::{NodeFigures, NodeView};
use super::snapshot::{OBSERVES, Record, by_name, subject};
use cpuset::{CpuSet, NodeSet};
use ledger::pod_option::{Cpus, PodOption};
use ledger::{
    ContainerView, Device, DeviceSource, LeftAlone, Margin, Mechanism, Phase, Pod, Policy,
    PoolKind, Qos, Stance, Subject, View, What,
};
use placement::memory_manager::{MemoryOffer, NodeMemoryClaim};
use placement::{self, CacheCandidate, DeviceNodes, Placement, Request, Weighed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::Topology;
use wording::Moment;
use wording::{self, count};

const POD_OPTIONS_SHARED: &str =
    "Its pod, or the configuration for its namespace, asks for shared CPUs (cpus: shared).";

const MAX_EXPLAINED: usize = 32;
/// The most fields to name that make a pod Burstable.
const MAX_FIELDS: usize = 8;
/// The most devices of one NUMA node to name.
const MAX_NAMED: usize = 4;
/// The most sets of NUMA nodes to name that were offered for memory; the JSON has all.
const MAX_SETS: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// `exclusive`, `shared`, `left alone` or `ended`; `refused` or `gone` for containers that do not exist.
    pub state: String,
    /// Where it runs; `null` if it does not exist or has ended.
    pub cpus: Option<CpuSet>,
    /// Absent if its memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<NodeMemoryClaim>,
    /// The reasons, a sentence each.
    pub why: Vec<String>,
    /// The input of the decision, if this process made it.
    pub decision: Option<DecisionStatus>,
    /// The records that are still kept, the oldest first.
    pub history: Vec<Record>,
}

/// The input of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionStatus {
    pub at: Moment,
    /// The number of CPUs that the container asked for.
    pub requested: usize,
    /// In pod scope: the number of CPUs for which the pod's NUMA affinity was chosen.
    pub pod_cpus: Option<usize>,
    pub free: CpuSet,
    /// CPUs that ended containers of the pod left for it.
    pub reusable: CpuSet,
    /// Sets of NUMA nodes with enough free CPUs, the smallest first; empty if the topology manager's
    /// policy is `none`.
    pub numa_candidates: Vec<NumaSetStatus>,
    /// The uncore caches that were considered.
    pub uncore_caches: Vec<CacheStatus>,
    /// Sets of NUMA nodes that were offered for its memory, or in pod scope for its pod's; the smallest
    /// first. Absent if CPUs and memory were not chosen together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_candidates: Option<Vec<MemorySetStatus>>,
}

/// A set of NUMA nodes that was offered for memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemorySetStatus {
    /// The set.
    pub numa_nodes: Vec<usize>,
    /// Whether the memory needs as many nodes on the empty machine.
    pub preferred: bool,
}

/// A topology hint that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumaSetStatus {
    /// The set.
    pub numa_nodes: Vec<usize>,
    /// The number of free CPUs in them.
    pub free: usize,
    /// Whether the empty machine has no better set.
    pub preferred: bool,
    /// Whether the container got CPUs of exactly this set.
    pub chosen: bool,
}

/// An uncore cache that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheStatus(#[serde(with = "CacheForm")] pub CacheCandidate);

/// An uncore cache that was considered.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "CacheCandidate")]
struct CacheForm {
    /// Its lowest CPU.
    id: usize,
    free: CpuSet,
    /// Whether it holds the whole request.
    fits: bool,
    /// How many of its CPUs the container got.
    taken: usize,
}

impl NodeView {
    /// Explains the containers that `query` names: `POD`, `NAMESPACE/POD`, `POD/CONTAINER` or
    /// `NAMESPACE/POD/CONTAINER`. Empty if there is none.
    pub fn explain(&self, query: &str) -> Vec<Explanation> {
        let Ok(node) = &self.node else { return Vec::new() };
        let mut containers: BTreeMap<Name, Option<&ContainerView>> = BTreeMap::new();
        for record in node.history.all() {
            // The records of a pod are shown with its containers.
            if !record.subject.container.is_empty() {
                containers.insert(name(&record.subject), None);
            }
        }
        for container in &node.view.containers {
            containers.insert(name(&subject(container)), Some(container));
        }
        containers
            .retain(|(namespace, pod, container), _| matches(query, namespace, pod, container));
        let mut containers: Vec<(&Name, Option<&ContainerView>)> =
            containers.iter().map(|(name, &container)| (name, container)).collect();
        containers.sort_by(|((a, b, c), _), ((x, y, z), _)| by_name([a, b, c], [x, y, z]));
        let containers = containers.into_iter().take(MAX_EXPLAINED);
        containers.map(|(name, container)| Case { node, name, container }.explain()).collect()
    }
}

/// Whether `query` is `POD`, `NAMESPACE/POD`, `POD/CONTAINER` or `NAMESPACE/POD/CONTAINER` of this
/// container.
pub fn matches(query: &str, namespace: &str, pod: &str, container: &str) -> bool {
    query == pod
        || query == format!("{namespace}/{pod}")
        || query == format!("{pod}/{container}")
        || query == format!("{namespace}/{pod}/{container}")
}

/// A container to explain; `container` is `None` if it does not exist.
struct Case<'a> {
    node: &'a NodeFigures,
    name: &'a Name,
    container: Option<&'a ContainerView>,
}

impl Case<'_> {
    fn explain(&self) -> Explanation {
        let mut records = self.node.history.all();
        records.retain(|record| self.is_about(&record.subject));
        let refused = records.iter().rev().find_map(refusal);
        let chosen = records.iter().rev().find_map(|record| choice(record));
        let chosen_for_pod = records.iter().rev().find_map(|record| choice_for_pod(record));
        let (state, mut why, decision) = match (self.container, refused) {
            (Some(container), _) if container.phase == Phase::Ended => {
                ("ended", vec![self.ended(container)], None)
            }
            (Some(container), _) => match (container.exclusive, container.left_alone) {
                (Some(cpus), _) => {
                    let decision = chosen.map(|(record, placement, request)| {
                        self.decision(record, request, Some(placement))
                    });
                    ("exclusive", self.exclusive(container, cpus, chosen), decision)
                }
                (None, Some(why)) => ("left alone", left_alone(container, why), None),
                (None, None) if container.own_pool.is_empty() => {
                    ("shared", self.shared(container), None)
                }
                (None, None) => {
                    let decision = chosen_for_pod.map(|(record, placement, request)| {
                        self.decision(record, request, Some(placement))
                    });
                    ("shared", self.shares_own_pool(container, chosen_for_pod), decision)
                }
            },
            (None, Some(refusal)) => {
                let request = refusal.request;
                let decision = request.map(|request| self.decision(refusal.record, request, None));
                ("refused", self.refused(refusal), decision)
            }
            (None, None) => ("gone", vec!["It no longer exists.".to_owned()], None),
        };
        if self.node.view.figures.stance == Stance::Observe {
            why.insert(0, OBSERVES.to_owned());
        }
        let memory = self.container.and_then(|container| self.node.view.memory_of(container));
        let memory = memory.cloned();
        why.extend(memory.as_ref().map(counted));
        let drifts =
            records.iter().filter(|record| matches!(record.happened, Happened::Drifted { .. }));
        let drifts = drifts.count();
        if drifts > 0 {
            why.push(format!(
                "It drifted from its decision {}; the history below has each repair.",
                count(drifts, "time")
            ));
        }
        if self.container.is_some_and(|container| self.node.history.late.contains(&container.id)) {
            why.push("The runtime has not applied its CPUs yet, and is not overdue.".to_owned());
        }
        let (namespace, pod, container) = self.name.clone();
        Explanation {
            namespace,
            pod,
            container,
            state: state.to_owned(),
            cpus: self
                .container
                .filter(|container| container.phase != Phase::Ended)
                .map(|container| *container.runs_on),
            memory,
            why,
            decision,
            history: records.into_iter().map(Record::of).collect(),
        }
    }

    /// Whether a record is about the container, or about the CPUs of its pod.
    fn is_about(&self, subject: &Subject) -> bool {
        let (namespace, pod, container) = self.name;
        (&subject.namespace, &subject.pod) == (namespace, pod)
            && (subject.container.is_empty() || subject.container == *container)
    }

    fn topology(&self) -> &Topology {
        &self.node.view.topology
    }

    /// The container has ended and its pod has not. It may come back, with the CPUs that it has kept.
    fn ended(&self, container: &ContainerView) -> String {
        let Some(cpus) = container.exclusive else {
            return "It has ended, and keeps no exclusive CPUs: any that it had are free."
                .to_owned();
        };
        let its = wording::cpus(cpus);
        if cpus.is_subset(&self.node.view.figures.cpus.shared) {
            format!(
                "It has ended. Its {its} are lent to the shared pool until it starts again or its pod ends."
            )
        } else {
            format!(
                "It has ended. Its {its} stay unused for its restart; without one they are soon lent to the shared pool."
            )
        }
    }

    fn exclusive(
        &self,
        container: &ContainerView,
        cpus: CpuSet,
        chosen: Option<Choice<'_>>,
    ) -> Vec<String> {
        let mut why = vec![match container.asks {
            Some(n) if container.pod.qos != Qos::Guaranteed => format!(
                "It requests {}, and its pod asks for exclusive CPUs.",
                count(n, "whole CPU")
            ),
            Some(n) => format!(
                "It requests {} in a Guaranteed pod, so it gets exclusive CPUs.",
                count(n, "whole CPU")
            ),
            None => "It keeps the exclusive CPUs that it got earlier.".to_owned(),
        }];
        if container.pool == PoolKind::Reserved {
            why.push(
                "Its pod is for the reserved CPUs now: after a restart the container has no exclusive ones."
                    .to_owned(),
            );
        }
        match chosen {
            Some((_, placement, request)) => {
                why.extend(self.choice(placement, request));
                if !request.devices.is_empty() {
                    why.extend(self.devices(&container.devices));
                }
            }
            None => why.push(
                "This process did not choose its CPUs: the container was running with them already, or was moved (see below)."
                    .to_owned(),
            ),
        }
        let one = cpus.len() == 1;
        let cores = if are_whole_cores(self.topology(), &cpus) {
            if one { "; it is a whole core" } else { "; they are whole cores" }
        } else if !container.idle.is_empty() {
            ""
        } else if one {
            "; others may run on its SMT siblings"
        } else {
            "; others may run on their SMT siblings"
        };
        let nodes = named("NUMA node", &nodes_of(self.topology(), &cpus));
        let uncores = named("uncore cache", &uncores_of(self.topology(), &cpus));
        let are = if one { "is" } else { "are" };
        why.push(format!("{} {are} in {nodes} and {uncores}{cores}.", wording::cpus(cpus)));
        let mechanism = match container.enforced_by {
            Mechanism::Runtime => "Runtime updates keep",
            Mechanism::Groups
                if self.node.view.figures.mechanism == Mechanism::Partitions
                    && container.cpus_pod_option == Some(Cpus::Mixed) =>
            {
                "A cpuset partition shares no CPUs, so cgroups keep"
            }
            Mechanism::Groups => "Cgroups keep",
            Mechanism::Partitions => "A cpuset partition keeps",
        };
        why.push(format!("{mechanism} other containers off {}.", if one { "it" } else { "them" }));
        if !container.shared.is_empty() {
            why.push(format!(
                "It also uses {}, as containers without exclusive CPUs do (cpus: exclusive+shared).",
                wording::cpus(*container.shared)
            ));
        }
        if !container.idle.is_empty() {
            let (what, pod_options) = match container.margin {
                Margin { caches: false, .. } => ("SMT sibling", "smt: isolate"),
                Margin { siblings: false, .. } => ("CPU", "uncore: exclusive"),
                _ => ("CPU", "uncore: exclusive, smt: isolate"),
            };
            let idle = count(container.idle.len(), what);
            let stay = if container.idle.len() == 1 { "stays" } else { "stay" };
            why.push(format!(
                "{idle} ({}) {stay} idle for it ({pod_options}): no container runs there.",
                container.idle
            ));
        }
        why
    }

    fn choice(&self, placement: &Placement, request: &Request) -> Vec<String> {
        let free = self.available(request, &request.free);
        let mut why = vec![format!("Free at that time: {} ({free}).", count(free.len(), "CPU"))];
        why.extend(pod_options(request));
        if !request.reuse.cpus.is_empty() {
            why.push(format!(
                "Reusable from ended containers of its pod: {}.",
                wording::cpus(request.reuse.cpus)
            ));
        }
        why.extend(self.weighed(request, Some(placement)).reasons);
        why.extend(request.memory.as_ref().map(offered));
        why
    }

    /// On which NUMA nodes its devices are, and who says so.
    fn devices(&self, devices: &[Device]) -> Vec<String> {
        let mut groups: BTreeMap<(DeviceSource, NodeSet), Vec<&str>> = BTreeMap::new();
        for device in devices {
            groups.entry((device.source, device.nodes)).or_default().push(&device.name);
        }
        let sentence = |((source, nodes), names): (&(DeviceSource, NodeSet), &Vec<&str>)| {
            let who = match source {
                DeviceSource::Kubelet => "the kubelet says",
                DeviceSource::Driver => "NVIDIA's driver says",
                DeviceSource::Sysfs => "/sys says",
            };
            let near = DeviceNodes::near_cpus(self.topology(), [*nodes]).all();
            let counts = if near == *nodes {
                String::new()
            } else if near.is_empty() {
                ", which this machine does not have".to_owned()
            } else {
                format!(", which counts for {near}, the nearest with CPUs")
            };
            let shown = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = match names.len().checked_sub(MAX_NAMED) {
                None | Some(0) => String::new(),
                Some(more) => format!(" and {more} more"),
            };
            let node = if nodes.len() == 1 { "NUMA node" } else { "NUMA nodes" };
            format!("Devices on {node} {nodes}{counts}: {shown}{more}, as {who}.")
        };
        groups.iter().map(sentence).collect()
    }

    /// The CPUs of `free` that the request could choose from.
    fn available(&self, request: &Request, free: &CpuSet) -> CpuSet {
        let settings = &request.settings;
        settings.isolated.allowed(self.topology(), free) - settings.reserved
    }

    fn weighed(&self, request: &Request, placement: Option<&Placement>) -> Weighed {
        placement::explain(self.topology(), request, placement)
    }

    fn shares_own_pool(
        &self,
        container: &ContainerView,
        chosen: Option<Choice<'_>>,
    ) -> Vec<String> {
        let asked = container.cpu.request.or(container.cpu.limit);
        let reason = match (container.asks, asked) {
            _ if container.cpus_pod_option == Some(Cpus::Shared) => POD_OPTIONS_SHARED.to_owned(),
            (Some(n), _) => format!(
                "It appears to request {}, but shares the CPUs of its pod: a container without resources appears with the amount of its pod, and the pod has other containers.",
                count(n, "whole CPU")
            ),
            (None, Some(amount)) => {
                format!("It requests {amount} CPUs: only whole numbers of CPUs can be exclusive.")
            }
            (None, None) => "It requests no CPUs.".to_owned(),
        };
        let mut why = vec![
            reason,
            format!(
                "It shares {} with containers of its pod only: the containers with exclusive CPUs leave them of the pod's CPUs (podLevelResources: own-pool).",
                wording::cpus(*container.own_pool)
            ),
        ];
        if let Some((_, placement, request)) = chosen {
            why.push(format!(
                "All CPUs of its pod were chosen together: {}.",
                wording::cpus(placement.cpus)
            ));
            why.extend(self.choice(placement, request));
        }
        why
    }

    fn shared(&self, container: &ContainerView) -> Vec<String> {
        let runs_on = wording::cpus(*container.runs_on);
        let shares = match container.pool {
            PoolKind::Reserved => format!("It runs on {runs_on}."),
            PoolKind::General => {
                format!("It shares {runs_on} with all containers that have no exclusive CPUs.")
            }
        };
        vec![why_shared(&self.node.view, container), shares]
    }

    fn refused(&self, refusal: RefusedRequest<'_>) -> Vec<String> {
        let mut why = vec![format!("It was refused: {}.", refusal.why)];
        let Some(request) = refusal.request else { return why };
        why.extend(pod_options(request));
        if !request.devices.is_empty() {
            why.extend(self.devices(refusal.devices));
        }
        let free = self.available(request, &request.free);
        let nodes = self.topology().nodes().iter().map(|node| (node.cpus & free).len());
        let uncores = self.topology().uncores().iter().map(|uncore| (uncore.cpus & free).len());
        why.push(format!(
            "It requested {}. Free at that time: {} ({}), at most {} in one NUMA node and {} in one uncore cache.",
            count(request.cpus, "CPU"),
            count(free.len(), "CPU"),
            wording::or_none(free),
            nodes.max().unwrap_or(0),
            uncores.max().unwrap_or(0),
        ));
        why.extend(request.memory.as_ref().map(offered));
        if request.cpus <= free.len()
            && let Some((sets, preferred)) = self.weighed(request, None).numa_sets
        {
            why.push(format!(
                "NUMA node sets with room: {sets}, of which {preferred} preferred (topologyManagerPolicy {}).",
                request.settings.topology_manager.policy.name()
            ));
        }
        let view = &self.node.view;
        let free_now =
            self.available(request, &(view.figures.cpus.free | view.figures.cpus.isolated_free));
        let outlook = match placement::nearest_that_fit(self.topology(), request) {
            None => "The kubelet retries by itself.".to_owned(),
            Some(sizes) => never_fits(request.cpus, &sizes),
        };
        why.push(format!(
            "Free now: {} ({}). {outlook}",
            count(free_now.len(), "CPU"),
            wording::or_none(free_now)
        ));
        why
    }

    fn decision(
        &self,
        record: &HistoryRecord,
        request: &Request,
        placement: Option<&Placement>,
    ) -> DecisionStatus {
        let Weighed { numa, uncores, .. } = self.weighed(request, placement);
        let numa = numa.into_iter().filter_map(|candidate| {
            Some(NumaSetStatus {
                numa_nodes: candidate.hint.nodes?.iter().collect(),
                free: candidate.free,
                preferred: candidate.hint.preferred,
                chosen: candidate.chosen,
            })
        });
        DecisionStatus {
            at: record.at,
            requested: request.cpus,
            pod_cpus: request.pod.map(|pod| pod.cpus),
            free: self.available(request, &request.free),
            reusable: request.reuse.cpus,
            numa_candidates: numa.collect(),
            uncore_caches: uncores.into_iter().map(CacheStatus).collect(),
            memory_candidates: request.memory.as_ref().map(candidates),
        }
    }
}

fn left_alone(container: &ContainerView, why: LeftAlone) -> Vec<String> {
    let runs_on = wording::cpus(*container.runs_on);
    vec![
        "The plugin leaves it alone: it gets no exclusive CPUs, and no shared ones.".to_owned(),
        format!("It stays on {runs_on}, as set before the plugin saw it: {why}."),
    ]
}

/// Why a container has no exclusive CPUs, and no own pool.
pub fn why_shared(view: &View, container: &ContainerView) -> String {
    let may = container.pod.qos == Qos::Guaranteed
        || (container.pod.qos == Qos::Burstable
            && matches!(container.cpus_pod_option, Some(Cpus::Exclusive | Cpus::Mixed)));
    if container.pool == PoolKind::Reserved {
        let because = match container.pod.pool {
            PoolKind::General => "its namespace is one of reservedNamespaces",
            PoolKind::Reserved => "the kubelet has put it into the system partition",
        };
        return format!("Its pod is for the reserved CPUs, and gets no exclusive ones: {because}.");
    }
    match (container.asks, container.cpu.request.or(container.cpu.limit)) {
        _ if container.cpus_pod_option == Some(Cpus::Shared) => POD_OPTIONS_SHARED.to_owned(),
        _ if view.settings.policy == Policy::None => {
            "cpuManagerPolicy is none: no container gets exclusive CPUs.".to_owned()
        }
        _ if view.figures.stance == Stance::Refuse => {
            "The kubelet's own CPU manager assigns the CPUs of this node.".to_owned()
        }
        (Some(n), _) if view.figures.stance == Stance::Observe => format!(
            "It qualifies for {} and would have none: it would be refused, or no CPUs were free when the plugin found it running (see below).",
            count(n, "exclusive CPU")
        ),
        (Some(n), _) => format!(
            "It qualifies for {} and has none: the rest of its pod uses up the pod's CPU limit, which a container without resources inherits, or no CPUs were free when the plugin found it running (see below).",
            count(n, "exclusive CPU")
        ),
        (None, _) if !may => format!(
            "Its pod is {}. Only containers in Guaranteed pods (limits equal requests) get exclusive CPUs.",
            why_not_guaranteed(view, &container.pod)
        ),
        (None, Some(amount)) => {
            format!("It requests {amount} CPUs: only whole numbers of CPUs can be exclusive.")
        }
        (None, None) => "It requests no CPUs.".to_owned(),
    }
}

/// The class of a pod and the fields that make it one, as far as the runtime reports them: of memory it
/// reports limits only.
fn why_not_guaranteed(view: &View, pod: &Pod) -> String {
    match pod.qos {
        Qos::Guaranteed => return "Guaranteed".to_owned(),
        Qos::Burstable => {}
        Qos::BestEffort => return "BestEffort: no container has a request or a limit".to_owned(),
        Qos::Unknown => return "of unknown QoS class".to_owned(),
    }
    let mut fields = Vec::new();
    for one in view.containers.iter().filter(|one| one.pod.uid == pod.uid) {
        let name = &one.name;
        match (one.cpu.request, one.cpu.limit) {
            (_, None) => fields.push(format!("container {name} has no CPU limit")),
            (Some(request), Some(limit)) if request != limit => fields
                .push(format!("container {name} requests {request} CPUs and its limit is {limit}")),
            (_, Some(_)) => {}
        }
        if !one.has_memory_limit {
            fields.push(format!("container {name} has no memory limit"));
        }
    }
    if fields.is_empty() {
        fields.push(
            "a container that has ended has no limit, or a request of memory is less than its limit"
                .to_owned(),
        );
    }
    let more = fields.len().saturating_sub(MAX_FIELDS);
    fields.truncate(MAX_FIELDS);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("Burstable: {}{more}", fields.join(", "))
}

/// Where a container's memory is.
fn counted(claim: &NodeMemoryClaim) -> String {
    let together = if claim.nodes.len() == 1 {
        ""
    } else {
        " together: the kernel takes its pages from any of these"
    };
    format!(
        "Its memory ({}) is counted on {}{together}.",
        memory::amounts(claim),
        memory::nodes(claim)
    )
}

/// The sets of an offer, small ones first. Whether the kubelet would allow them is not recorded.
fn candidates(offer: &MemoryOffer) -> Vec<MemorySetStatus> {
    let sets = offer.hints().filter_map(|hint| Some((hint.nodes?, hint.preferred)));
    let mut sets: Vec<(NodeSet, bool)> = sets.collect();
    sets.sort_by_key(|(nodes, _)| (nodes.len(), *nodes));
    let sets = sets.into_iter().map(|(nodes, preferred)| MemorySetStatus {
        numa_nodes: nodes.iter().collect(),
        preferred,
    });
    sets.collect()
}

/// The sets of an offer in a sentence.
fn offered(offer: &MemoryOffer) -> String {
    let sets = candidates(offer);
    let named = sets.iter().take(MAX_SETS).map(|set| {
        let nodes: Vec<String> = set.numa_nodes.iter().map(ToString::to_string).collect();
        nodes.join(",")
    });
    let named: Vec<String> = named.collect();
    let more = match sets.len().saturating_sub(MAX_SETS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("NUMA node sets offered for its memory: {}{more}.", named.join("; "))
}

fn never_fits(cpus: usize, sizes: &[usize]) -> String {
    let would = match sizes {
        [] => "no other number would fit either".to_owned(),
        [one] => format!("{one} would fit"),
        several => {
            let sizes: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("{} would fit", sizes.join(" or "))
        }
    };
    format!(
        "{} can never fit on this node as it is configured, even without other containers: {would}.",
        count(cpus, "CPU")
    )
}

/// The pod options of the pod, or of the configuration for its namespace.
fn pod_options(request: &Request) -> Option<String> {
    let pod_options: Vec<String> =
        PodOption::list(&request.pod_options).iter().map(ToString::to_string).collect();
    if pod_options.is_empty() {
        None
    } else {
        Some(format!("Pod options: {}.", pod_options.join(", ")))
    }
}

type Choice<'a> = (&'a HistoryRecord, &'a Placement, &'a Request);

fn choice<'a>(record: &&'a HistoryRecord) -> Option<Choice<'a>> {
    match &record.happened {
        Happened::Decided { what: What::Assigned { placement, request }, .. } => {
            Some((record, placement, request))
        }
        _ => None,
    }
}

/// The choice of all CPUs of a pod with an own pool.
fn choice_for_pod<'a>(record: &&'a HistoryRecord) -> Option<Choice<'a>> {
    match &record.happened {
        Happened::Decided { what: What::PodAssigned { placement, request }, .. } => {
            Some((record, placement, request))
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
struct RefusedRequest<'a> {
    record: &'a HistoryRecord,
    why: &'a str,
    request: Option<&'a Request>,
    devices: &'a [Device],
}

/// The refusal in a record, unless the container was admitted later.
fn refusal<'a>(record: &&'a HistoryRecord) -> Option<RefusedRequest<'a>> {
    if record.settled {
        return None;
    }
    match &record.happened {
        Happened::Decided { what: What::Refused { why, request, devices }, .. } => {
            Some(RefusedRequest { record, why, request: request.as_deref(), devices })
        }
        _ => None,
    }
}

fn named(noun: &str, numbers: &[usize]) -> String {
    let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{noun}{} {}", if numbers.len() == 1 { "" } else { "s" }, all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::memory_manager::{Amounts, Capacity, MemoryKind, NodeMemory, Room, Sharing};

    #[test]
    fn an_offer_names_small_sets_first() {
        let node =
            |id| NodeMemory { id, total: 10, huge_pages: Amounts::new(), reserved: Amounts::new() };
        let capacity = Capacity::new((0..2).map(node)).unwrap();
        let text = |bytes| {
            let room = Room::new(&capacity, []);
            let request = Amounts::from([(MemoryKind::Memory, bytes)]);
            let offer = MemoryOffer::new(&room, &request, &[], Sharing::AnySet);
            offer.as_ref().map(offered)
        };
        let expect = |sets: &str| Some(format!("NUMA node sets offered for its memory: {sets}."));
        assert_eq!(text(4), expect("0; 1; 0,1"));
        assert_eq!(text(14), expect("0,1"));
        assert_eq!(text(24), None);
    }

    #[test]
    fn memory_on_several_nodes_is_explained() {
        let amounts = Amounts::from([(MemoryKind::Memory, 1 << 30)]);
        let claim = |nodes: &[usize]| {
            let nodes = nodes.iter().copied().collect();
            NodeMemoryClaim { nodes, amounts: amounts.clone() }
        };
        assert_eq!(counted(&claim(&[1])), "Its memory (memory 1Gi) is counted on NUMA node 1.");
        assert_eq!(
            counted(&claim(&[0, 1])),
            "Its memory (memory 1Gi) is counted on NUMA nodes 0,1 together: the kernel takes its pages from any of these."
        );
    }
}
