//! `memory_manager_state`: the file of the kubelet's Memory Manager, which says on which NUMA nodes
//! the memory of containers is.
//!
//! One line of JSON in two formats; kubelets with the feature gate `PodLevelResourceManagers` write
//! the second one, which also has the memory of whole pods. Its checksum is FNV-1a over the text of
//! Go's debugging printer. So the order of blocks counts; white space, the order of fields and
//! unknown fields do not.
//!
//! Reading checks only the file's form, not whether its numbers fit the machine or each other. A
//! kubelet rebuilds the numbers from the blocks when it starts, and refuses to start if it gets others:
//! [`MemoryStateFile::of`] follows its rules.

use super::state::{dump_map, fnv1a};
use cpuset::NodeSet;
use ledger::{MemoryClaim, PodUid};
use placement::memory_manager::{Amounts, Capacity, Claim, MemoryKind};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use topology::Sizes;

/// The policy that assigns memory.
pub(super) const STATIC: &str = "Static";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStateFile {
    /// The policy of the kubelet that wrote it. A kubelet with another one refuses to start until
    /// the file is deleted.
    pub policy: String,
    pub format: MemoryStateFormat,
    /// The memory of containers, by pod and container name.
    pub containers: BTreeMap<PodUid, BTreeMap<String, Vec<MemoryBlock>>>,
    /// The memory of pods with pod-level resources; that of their containers is a part of it. The
    /// first format has no place for it.
    pub pods: BTreeMap<PodUid, Vec<MemoryBlock>>,
    /// The NUMA nodes by number. A kubelet that counts something else for these blocks refuses to
    /// start; it counts anew if there are neither nodes nor containers.
    pub machine: BTreeMap<usize, CountedNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryStateFormat {
    /// All kubelets read it.
    V1,
    /// Only kubelets with the gate read it; for others it is damaged.
    V2,
}

/// Memory of one type.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct MemoryBlock {
    /// How the bytes are divided among several nodes is not in the file.
    #[serde(rename = "numaAffinity")]
    pub nodes: Vec<usize>,
    /// `memory`, or `hugepages-` and the size of a page.
    #[serde(rename = "type")]
    pub kind: String,
    /// Zero for an init container whose memory a later one has taken over.
    #[serde(rename = "size")]
    pub bytes: u64,
}

/// A NUMA node in the kubelet's books.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct CountedNode {
    /// How many blocks are on it; signed, as in the kubelet.
    #[serde(rename = "numberOfAssignments")]
    pub blocks: i64,
    /// Its memory by type.
    #[serde(rename = "memoryMap")]
    pub memory: BTreeMap<String, CountedMemory>,
    /// The nodes of its blocks: one set for all of them.
    #[serde(rename = "cells")]
    pub group: Vec<usize>,
}

/// Bytes of one type on one node. In a group of nodes, only the sums over the group of `reserved`
/// and `free` mean something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountedMemory {
    pub total: u64,
    pub system_reserved: u64,
    pub allocatable: u64,
    pub reserved: u64,
    pub free: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryStateError {
    #[error("truncated, or not a state file of the kubelet's Memory Manager ({0})")]
    Form(String),
    /// Something changed the file after the kubelet wrote it, or a later kubelet wrote it.
    #[error("checksum {says}, expected {is}: damaged, edited, or of an unknown format")]
    Checksum { policy: String, says: u64, is: u32 },
}

impl MemoryStateError {
    /// The policy in the file, which is reliable in an invalid file too.
    pub fn policy(&self) -> Option<&str> {
        match self {
            MemoryStateError::Form(_) => None,
            MemoryStateError::Checksum { policy, .. } => Some(policy),
        }
    }
}

/// Why a kubelet cannot take over memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotForKubelet {
    #[error(
        "the kubelet keeps each NUMA node in one group and refuses a file in which groups overlap, as those of these containers do: {}. Delete pods until none overlap, or drain the node",
        .0.join(", ")
    )]
    Overlap(Vec<String>),
    #[error(
        "{container} has {kind} on NUMA node {node}, but this node has none: the kubelet refuses such a file. Delete its pod, or drain the node"
    )]
    Absent { container: String, kind: MemoryKind, node: usize },
}

impl MemoryStateFile {
    /// What the policy `Static` of a kubelet with this capacity writes for these claims, in the first
    /// format.
    pub fn of(
        claims: &[MemoryClaim],
        capacity: &Capacity,
        sizes: &Sizes,
    ) -> Result<MemoryStateFile, NotForKubelet> {
        check_groups(claims)?;
        let nodes = capacity.nodes();
        let mut machine: BTreeMap<usize, CountedNode> = nodes
            .map(|(id, allocatable)| (id, CountedNode::unused(id, allocatable, sizes)))
            .collect();
        let mut containers: BTreeMap<PodUid, BTreeMap<String, Vec<MemoryBlock>>> = BTreeMap::new();
        for claim in claims {
            let blocks = blocks_of(claim, &mut machine)?;
            if !blocks.is_empty() {
                let pod = containers.entry(claim.pod_uid.clone()).or_default();
                pod.insert(claim.container.clone(), blocks);
            }
        }
        Ok(MemoryStateFile {
            policy: STATIC.to_owned(),
            format: MemoryStateFormat::V1,
            containers,
            pods: BTreeMap::new(),
            machine,
        })
    }

    /// # Errors
    /// If it is not the text of such a file, or its checksum is that of neither format. As in the
    /// kubelet, a checksum of zero stands for none and for the first format: memory of whole pods
    /// is not read then.
    pub fn parse(bytes: &[u8]) -> Result<MemoryStateFile, MemoryStateError> {
        // serde reads a list as the fields in their order, and the kubelet does not.
        if bytes.trim_ascii_start().starts_with(b"[") {
            return Err(MemoryStateError::Form("a list".to_owned()));
        }
        let file: CheckpointFile = serde_json::from_slice(bytes)
            .map_err(|error| MemoryStateError::Form(error.to_string()))?;
        let format = file.format()?;
        let containers = file.entries.into_iter().flatten();
        let pods = match format {
            MemoryStateFormat::V1 => None,
            MemoryStateFormat::V2 => file.pod_entries,
        };
        let pods = pods.into_iter().flatten();
        Ok(MemoryStateFile {
            policy: file.policy_name,
            format,
            containers: containers.map(|(uid, containers)| (PodUid(uid), containers)).collect(),
            pods: pods.map(|(uid, pod)| (PodUid(uid), pod.memory_blocks)).collect(),
            machine: file.machine_state.unwrap_or_default(),
        })
    }

    /// The memory of containers, in order of pod uid and container name. Blocks without bytes, and
    /// those of an unknown type, are none.
    pub fn claims(&self) -> Vec<MemoryClaim> {
        let containers = self.containers.iter().flat_map(|(uid, containers)| {
            containers.iter().map(move |(name, blocks)| (uid, name, blocks))
        });
        let claim = |(uid, name, blocks): (&PodUid, &String, &Vec<MemoryBlock>)| {
            let memory = claim_of(blocks)?;
            Some(MemoryClaim { pod_uid: uid.clone(), container: name.clone(), memory })
        };
        containers.filter_map(claim).collect()
    }

    /// The file's content, byte for byte as a kubelet writes it.
    pub fn to_json(&self) -> String {
        let containers = self.containers.iter();
        let pods = match self.format {
            MemoryStateFormat::V1 => None,
            MemoryStateFormat::V2 => Some(self.pods.iter()),
        };
        let pods = pods.into_iter().flatten();
        let mut file = CheckpointFile {
            policy_name: self.policy.clone(),
            machine_state: Some(self.machine.clone()),
            entries: Some(containers.map(|(uid, of)| (uid.0.clone(), of.clone())).collect()),
            pod_entries: Some(
                pods.map(|(uid, blocks)| {
                    (uid.0.clone(), PodMemory { memory_blocks: blocks.clone() })
                })
                .collect(),
            ),
            checksum: 0,
        };
        file.checksum = u64::from(file.checksum_in(self.format));
        // Maps with texts as keys always have a JSON form.
        serde_json::to_string(&file).unwrap_or_default()
    }
}

impl CountedNode {
    /// A node without blocks. What the capacity does not give to containers is reserved.
    fn unused(id: usize, allocatable: &Amounts, sizes: &Sizes) -> CountedNode {
        let pools = sizes.huge_pages.get(&id).into_iter().flatten();
        let mut totals: Amounts =
            pools.map(|(size, pages)| (MemoryKind::HugePages(*size), size * pages)).collect();
        let in_pools: u64 = totals.values().sum();
        // A node without memory has no entry.
        let total = sizes.memory.get(&id).copied().unwrap_or(0);
        totals.insert(MemoryKind::Memory, total);
        let count = |(kind, total): (MemoryKind, u64)| {
            // A type without an entry has none.
            let allocatable = allocatable.get(&kind).copied().unwrap_or(0);
            let given = match kind {
                MemoryKind::Memory => total.saturating_sub(in_pools),
                MemoryKind::HugePages(_) => total,
            };
            let counted = CountedMemory {
                total,
                system_reserved: given.saturating_sub(allocatable),
                allocatable,
                reserved: 0,
                free: allocatable,
            };
            (kind.to_string(), counted)
        };
        let memory = totals.into_iter().map(count).collect();
        CountedNode { blocks: 0, memory, group: vec![id] }
    }
}

/// The kubelet refuses a node that belongs to two different sets.
fn check_groups(claims: &[MemoryClaim]) -> Result<(), NotForKubelet> {
    let overlaps = |one: &&MemoryClaim| {
        let nodes = one.memory.nodes;
        claims
            .iter()
            .map(|other| other.memory.nodes)
            .any(|others| others != nodes && !others.intersection(nodes).is_empty())
    };
    let names: Vec<String> = claims
        .iter()
        .filter(overlaps)
        .map(|claim| format!("{} on NUMA nodes {}", name(claim), claim.memory.nodes))
        .collect();
    if names.is_empty() { Ok(()) } else { Err(NotForKubelet::Overlap(names)) }
}

fn name(claim: &MemoryClaim) -> String {
    format!("{}/{}", claim.pod_uid, claim.container)
}

/// The blocks of a container, taken from the nodes in ascending order, as much as is free on each. As
/// in the kubelet, what is not free anywhere is taken from none.
fn blocks_of(
    claim: &MemoryClaim,
    machine: &mut BTreeMap<usize, CountedNode>,
) -> Result<Vec<MemoryBlock>, NotForKubelet> {
    let nodes: Vec<usize> = claim.memory.nodes.iter().collect();
    let mut blocks = Vec::new();
    for (&kind, &bytes) in claim.memory.amounts.iter().filter(|(_, bytes)| **bytes > 0) {
        let kind_name = kind.to_string();
        let mut left = bytes;
        for &id in &nodes {
            let node = machine.get_mut(&id);
            let found = node.and_then(|node| {
                let counted = node.memory.get_mut(&kind_name)?;
                node.blocks += 1;
                node.group.clone_from(&nodes);
                Some(counted)
            });
            let Some(counted) = found else {
                return Err(NotForKubelet::Absent { container: name(claim), kind, node: id });
            };
            let taken = left.min(counted.free);
            counted.reserved += taken;
            counted.free -= taken;
            left -= taken;
        }
        blocks.push(MemoryBlock { nodes: nodes.clone(), kind: kind_name, bytes });
    }
    Ok(blocks)
}

/// All blocks of a container together; `None` if none of them counts.
fn claim_of(blocks: &[MemoryBlock]) -> Option<Claim> {
    let mut nodes = NodeSet::EMPTY;
    let mut amounts = Amounts::new();
    for block in blocks.iter().filter(|block| block.bytes > 0) {
        let Ok(kind) = block.kind.parse::<MemoryKind>() else { continue };
        nodes = nodes.union(block.nodes.iter().copied().collect());
        let bytes: &mut u64 = amounts.entry(kind).or_default();
        *bytes = bytes.saturating_add(block.bytes);
    }
    if nodes.is_empty() { None } else { Some(Claim { nodes, amounts }) }
}

/// For Go's printer, a map that is missing in the file is empty, and one that is `null` there is
/// nil.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointFile {
    #[serde(default)]
    policy_name: String,
    #[serde(default = "empty", serialize_with = "in_order_of_texts")]
    machine_state: Option<BTreeMap<usize, CountedNode>>,
    #[serde(default = "empty", skip_serializing_if = "is_empty")]
    entries: Option<BTreeMap<String, BTreeMap<String, Vec<MemoryBlock>>>>,
    #[serde(default = "empty", skip_serializing_if = "is_empty")]
    pod_entries: Option<BTreeMap<String, PodMemory>>,
    #[serde(default)]
    checksum: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMemory {
    memory_blocks: Vec<MemoryBlock>,
}

fn empty<K, V>() -> Option<BTreeMap<K, V>> {
    Some(BTreeMap::new())
}

fn is_empty<V>(map: &Option<BTreeMap<String, V>>) -> bool {
    map.as_ref().is_none_or(BTreeMap::is_empty)
}

/// Go writes node 10 before node 2, but prints it after node 2 for the checksum.
fn in_order_of_texts<S: Serializer>(
    nodes: &Option<BTreeMap<usize, CountedNode>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let nodes = nodes.iter().flatten().map(|(id, node)| (id.to_string(), node));
    nodes.collect::<BTreeMap<String, &CountedNode>>().serialize(serializer)
}

impl CheckpointFile {
    /// The format that the checksum is right for.
    fn format(&self) -> Result<MemoryStateFormat, MemoryStateError> {
        use MemoryStateFormat::{V1, V2};
        let [first, second] = [V1, V2].map(|format| self.checksum_in(format));
        if self.checksum == u64::from(second) {
            return Ok(V2);
        }
        if self.checksum == 0 || self.checksum == u64::from(first) {
            return Ok(V1);
        }
        Err(MemoryStateError::Checksum {
            policy: self.policy_name.clone(),
            says: self.checksum,
            is: if is_empty(&self.pod_entries) { first } else { second },
        })
    }

    /// The right checksum in this format, taken from the text of Go's printer.
    fn checksum_in(&self, format: MemoryStateFormat) -> u32 {
        let nodes =
            dump_or_nil(&self.machine_state, |(id, node)| format!("{id}:{}", dump_node(node)));
        let entries = dump_or_nil(&self.entries, |(uid, containers)| {
            let containers = containers.iter();
            let containers =
                containers.map(|(name, blocks)| format!("{name}:{}", dump_blocks(blocks)));
            format!("{uid}:{}", dump_map(containers))
        });
        let pods = match format {
            MemoryStateFormat::V1 => String::new(),
            MemoryStateFormat::V2 => {
                let pods = dump_or_nil(&self.pod_entries, |(uid, pod)| {
                    let blocks = dump_blocks(&pod.memory_blocks);
                    format!("{uid}:{{MemoryBlocks:([]state.Block){blocks}}}")
                });
                format!("PodEntries:(state.PodMemoryAssignments){pods} ")
            }
        };
        fnv1a(&format!(
            "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} \
             MachineState:(state.NUMANodeMap){nodes} \
             Entries:(state.ContainerMemoryAssignments){entries} \
             {pods}Checksum:(checksum.Checksum)0}}",
            self.policy_name
        ))
    }
}

fn dump_or_nil<K, V>(map: &Option<BTreeMap<K, V>>, pair: impl Fn((&K, &V)) -> String) -> String {
    map.as_ref().map_or_else(|| "<nil>".to_owned(), |map| dump_map(map.iter().map(pair)))
}

fn dump_node(node: &CountedNode) -> String {
    let CountedNode { blocks, memory, group } = node;
    let memory = dump_map(memory.iter().map(|(kind, memory)| {
        let CountedMemory { total, system_reserved, allocatable, reserved, free } = memory;
        format!(
            "{kind}:<*>{{TotalMemSize:(uint64){total} SystemReserved:(uint64){system_reserved} \
             Allocatable:(uint64){allocatable} Reserved:(uint64){reserved} Free:(uint64){free}}}"
        )
    }));
    let group = dump_list(group.iter().map(usize::to_string));
    format!(
        "<*>{{NumberOfAssignments:(int){blocks} \
         MemoryMap:(map[v1.ResourceName]*state.MemoryTable){memory} Cells:([]int){group}}}"
    )
}

fn dump_blocks(blocks: &[MemoryBlock]) -> String {
    dump_list(blocks.iter().map(|MemoryBlock { nodes, kind, bytes }| {
        let nodes = dump_list(nodes.iter().map(usize::to_string));
        format!("{{NUMAAffinity:([]int){nodes} Type:(v1.ResourceName){kind} Size:(uint64){bytes}}}")
    }))
}

fn dump_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::memory_manager::NodeMemory;
    use proptest::prelude::*;

    /// First format, with blocks in another order than that of their types.
    const V1: &str = concat!(
        r#"{"policyName":"Static","machineState":{"#,
        r#""0":{"numberOfAssignments":2,"memoryMap":{"#,
        r#""hugepages-1Gi":{"total":10737418240,"systemReserved":0,"#,
        r#""allocatable":10737418240,"reserved":6442450944,"free":4294967296},"#,
        r#""hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"#,
        r#""memory":{"total":99759243264,"systemReserved":1153433600,"#,
        r#""allocatable":87868391424,"reserved":18899749550,"free":68968641874}},"cells":[0]},"#,
        r#""1":{"numberOfAssignments":0,"memoryMap":{"#,
        r#""hugepages-1Gi":{"total":10737418240,"systemReserved":0,"#,
        r#""allocatable":10737418240,"reserved":0,"free":10737418240},"#,
        r#""hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"#,
        r#""memory":{"total":99283886080,"systemReserved":1153433600,"#,
        r#""allocatable":87393034240,"reserved":0,"free":87393034240}},"cells":[1]}},"#,
        r#""entries":{"p0":{"c0":["#,
        r#"{"numaAffinity":[0],"type":"memory","size":18899749550},"#,
        r#"{"numaAffinity":[0],"type":"hugepages-1Gi","size":6442450944}]}},"#,
        r#""checksum":3569414885}"#,
    );
    /// Second format.
    const V2: &str = concat!(
        r#"{"policyName":"Static","machineState":{"#,
        r#""0":{"numberOfAssignments":1,"memoryMap":{"#,
        r#""memory":{"total":9663676416,"systemReserved":536870912,"#,
        r#""allocatable":9126805504,"reserved":3221225472,"free":5905580032}},"cells":[0]},"#,
        r#""1":{"numberOfAssignments":0,"memoryMap":{"#,
        r#""memory":{"total":9663676416,"systemReserved":67108864,"#,
        r#""allocatable":9596567552,"reserved":0,"free":9596567552}},"cells":[1]}},"#,
        r#""entries":{"p0":{"c0":[{"numaAffinity":[0],"type":"memory","size":805306368}],"#,
        r#""c1":[{"numaAffinity":[0],"type":"memory","size":402653184}]}},"#,
        r#""podEntries":{"p0":{"memoryBlocks":["#,
        r#"{"numaAffinity":[0],"type":"memory","size":3221225472}]}},"#,
        r#""checksum":2581004335}"#,
    );

    fn parse(text: &str) -> MemoryStateFile {
        MemoryStateFile::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn block(kind: &str, bytes: u64) -> MemoryBlock {
        MemoryBlock { nodes: vec![0], kind: kind.to_owned(), bytes }
    }

    #[test]
    fn a_file_of_each_format_is_read() {
        let first = parse(V1);
        assert_eq!((first.policy.as_str(), first.format), ("Static", MemoryStateFormat::V1));
        let pod = PodUid("p0".to_owned());
        let blocks = [block("memory", 18_899_749_550), block("hugepages-1Gi", 6_442_450_944)];
        assert_eq!(first.containers[&pod]["c0"], blocks);
        assert_eq!(first.pods, BTreeMap::new());
        let node = &first.machine[&0];
        assert_eq!((node.blocks, node.group.as_slice()), (2, [0].as_slice()));
        assert_eq!(node.memory["hugepages-1Gi"].free, 4_294_967_296);

        let second = parse(V2);
        assert_eq!(second.format, MemoryStateFormat::V2);
        assert_eq!(second.containers[&pod].len(), 2);
        assert_eq!(second.pods[&pod], [block("memory", 3_221_225_472)]);
    }

    #[test]
    fn claims_are_the_blocks_of_each_container_with_bytes() {
        let mut state = parse(V2);
        let pod = PodUid("p1".to_owned());
        let blocks = vec![
            MemoryBlock { nodes: vec![0, 1], ..block("memory", 3) },
            MemoryBlock { nodes: vec![1], ..block("hugepages-2Mi", 4) },
            MemoryBlock { nodes: vec![2], ..block("memory", 0) },
            MemoryBlock { nodes: vec![3], ..block("unknown", 1) },
        ];
        let containers = BTreeMap::from([
            ("init".to_owned(), vec![block("memory", 0)]),
            ("main".to_owned(), blocks),
            ("nothing".to_owned(), Vec::new()),
        ]);
        state.containers.insert(pod.clone(), containers);
        let claims = state.claims();
        let names: Vec<&str> = claims.iter().map(|claim| claim.container.as_str()).collect();
        assert_eq!(names, ["c0", "c1", "main"], "the blocks of pods are not claims");
        let amounts = Amounts::from([(MemoryKind::Memory, 3), (MemoryKind::HugePages(2 << 20), 4)]);
        let memory = Claim { nodes: [0, 1].into_iter().collect(), amounts };
        assert_eq!(claims[2], MemoryClaim { pod_uid: pod, container: "main".to_owned(), memory });
    }

    const GI: u64 = 1 << 30;

    /// So many nodes with 10 GiB each, of which 2 GiB are huge pages and 1 GiB is reserved.
    fn machine(nodes: usize) -> (Capacity, Sizes) {
        let mut sizes = Sizes::default();
        for id in 0..nodes {
            sizes.memory.insert(id, 10 * GI);
            sizes.huge_pages.insert(id, BTreeMap::from([(2 << 20, 1024), (GI, 0)]));
        }
        let node = |id| NodeMemory {
            id,
            total: 10 * GI,
            huge_pages: Amounts::from([
                (MemoryKind::HugePages(2 << 20), 2 * GI),
                (MemoryKind::HugePages(GI), 0),
            ]),
            reserved: Amounts::from([(MemoryKind::Memory, GI)]),
        };
        (Capacity::new((0..nodes).map(node)).unwrap(), sizes)
    }

    fn claim(container: &str, nodes: &[usize], memory: u64, huge: u64) -> MemoryClaim {
        let amounts = [(MemoryKind::Memory, memory), (MemoryKind::HugePages(2 << 20), huge)];
        MemoryClaim {
            pod_uid: PodUid("p".to_owned()),
            container: container.to_owned(),
            memory: Claim {
                nodes: nodes.iter().copied().collect(),
                amounts: amounts.into_iter().filter(|(_, bytes)| *bytes > 0).collect(),
            },
        }
    }

    /// As it is parsed again.
    fn written(claims: &[MemoryClaim], nodes: usize) -> MemoryStateFile {
        let (capacity, sizes) = machine(nodes);
        let state = MemoryStateFile::of(claims, &capacity, &sizes).unwrap();
        let again = parse(&state.to_json());
        assert_eq!(again, state);
        assert_eq!(again.claims(), claims);
        again
    }

    #[test]
    fn claims_on_one_node_are_counted_there() {
        let state = written(&[claim("a", &[0], 3 * GI, GI), claim("b", &[0], GI, 0)], 1);
        assert_eq!((state.policy.as_str(), state.format), ("Static", MemoryStateFormat::V1));
        let node = &state.machine[&0];
        assert_eq!((node.blocks, node.group.as_slice()), (3, [0].as_slice()));
        let expect = CountedMemory {
            total: 10 * GI,
            system_reserved: GI,
            allocatable: 7 * GI,
            reserved: 4 * GI,
            free: 3 * GI,
        };
        assert_eq!(node.memory["memory"], expect);
        let expect = CountedMemory {
            total: 2 * GI,
            system_reserved: 0,
            allocatable: 2 * GI,
            reserved: GI,
            free: GI,
        };
        assert_eq!(node.memory["hugepages-2Mi"], expect);
        let none =
            CountedMemory { total: 0, system_reserved: 0, allocatable: 0, reserved: 0, free: 0 };
        assert_eq!(node.memory["hugepages-1Gi"], none);
    }

    #[test]
    fn a_claim_on_two_nodes_takes_the_lower_one_first() {
        let state = written(&[claim("a", &[0, 1], 10 * GI, 0), claim("b", &[2], GI, 0)], 4);
        let memory: Vec<(i64, &[usize], u64, u64)> = state
            .machine
            .values()
            .map(|node| {
                let CountedMemory { reserved, free, .. } = node.memory["memory"];
                (node.blocks, node.group.as_slice(), reserved / GI, free / GI)
            })
            .collect();
        let expect: [(i64, &[usize], u64, u64); 4] =
            [(1, &[0, 1], 7, 0), (1, &[0, 1], 3, 4), (1, &[2], 1, 6), (0, &[3], 0, 7)];
        assert_eq!(memory, expect);
    }

    #[test]
    fn groups_that_overlap_are_no_state_of_a_kubelet() {
        let (capacity, sizes) = machine(3);
        let claims = [claim("a", &[0, 1], 1, 0), claim("b", &[1], 1, 0), claim("c", &[2], 1, 0)];
        let error = MemoryStateFile::of(&claims, &capacity, &sizes).unwrap_err().to_string();
        assert!(error.contains("p/a on NUMA nodes 0,1, p/b on NUMA nodes 1."), "{error}");
        let error = MemoryStateFile::of(&[claim("a", &[5], 1, 0)], &capacity, &sizes);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("p/a has memory on NUMA node 5"), "{error}");
    }

    #[test]
    fn a_file_is_written_byte_for_byte_as_a_kubelet_writes_it() {
        for text in [V1, V2] {
            assert_eq!(parse(text).to_json(), text);
        }
    }

    #[test]
    fn white_space_and_unknown_fields_do_not_count() {
        let text = V1.replace(',', ",\n ").replace("{\"policy", "{\"future\": [1], \"policy");
        assert_eq!(parse(&text), parse(V1));
    }

    #[test]
    fn without_a_checksum_a_file_is_one_of_the_first_format() {
        assert_eq!(parse(&V1.replace("3569414885", "0")), parse(V1));
        let mut expect = parse(V2);
        expect.format = MemoryStateFormat::V1;
        expect.pods.clear();
        assert_eq!(parse(&V2.replace("2581004335", "0")), expect);
        assert_eq!(parse("{}").policy, "");
    }

    /// Checksums of files without containers, and without nodes in two ways.
    #[test]
    fn an_empty_machine_is_not_a_missing_one() {
        for (machine, checksum) in [("{}", "3940083781"), ("null", "3824511554")] {
            let text = format!(
                r#"{{"policyName":"Static","machineState":{machine},"checksum":{checksum}}}"#
            );
            let state = parse(&text);
            assert_eq!((state.format, state.machine.len()), (MemoryStateFormat::V1, 0));
        }
    }

    #[test]
    fn nodes_are_written_in_order_of_their_texts() {
        let mut state = parse(V1);
        for id in [2, 10] {
            let node = state.machine[&1].clone();
            state.machine.insert(id, node);
        }
        let text = state.to_json();
        assert!(text.find(r#""10":"#) < text.find(r#""2":"#), "{text}");
        assert_eq!(parse(&text), state);
    }

    #[test]
    fn a_bad_file_is_an_error_that_names_the_policy_if_the_file_does() {
        const FORM: &str = "truncated, or not a state file";
        let changed = V1.replace("[0],\"type\":\"memory\"", "[1],\"type\":\"memory\"");
        let negative = V1.replace("\"free\":4294967296", "\"free\":-1");
        let large = V1.replace("\"free\":4294967296", "\"free\":18446744073709551616");
        for (text, expect, policy) in [
            ("", FORM, None),
            ("not json", FORM, None),
            ("[]", FORM, None),
            (&V1[..V1.len() - 1], FORM, None),
            (&format!("{V1}}}"), FORM, None),
            (&"[".repeat(100_000), FORM, None),
            (&format!("{{\"future\":{}", "[".repeat(100_000)), FORM, None),
            (&format!("{{\"entries\":{}", "{\"p\":".repeat(100_000)), FORM, None),
            (r#"{"machineState":{"x":{}}}"#, FORM, None),
            (r#"{"entries":{"p":{"c":[{"type":"memory","size":1}]}}}"#, "`numaAffinity`", None),
            (&negative, "integer `-1`, expected u64", None),
            (&large, "expected u64", None),
            (&changed, "checksum 3569414885, expected", Some("Static")),
            (&V1.replace("Static", "None"), "checksum 3569414885, expected", Some("None")),
            (&V1.replace("3569414885", "13569414885"), "expected 3569414885", Some("Static")),
            (&V2.replace("2581004335", "1"), "checksum 1, expected 2581004335", Some("Static")),
        ] {
            let error = MemoryStateFile::parse(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(expect), "{text:.200}: {error}");
            assert_eq!(error.policy(), policy, "{text:.200}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = MemoryStateFile::parse(&bytes);
        }

        /// No changed byte goes unnoticed that changes what the file says, except one in the name
        /// of the checksum: without a checksum, the second format becomes the first.
        #[test]
        fn a_changed_byte_is_noticed_or_harmless(at in 0..2000usize, byte: u8) {
            for text in [V1, V2] {
                let mut bytes = text.as_bytes().to_vec();
                let at = at % bytes.len();
                bytes[at] = byte;
                if let Ok(state) = MemoryStateFile::parse(&bytes) {
                    let mut expect = parse(text);
                    if state.format == MemoryStateFormat::V1 {
                        expect.format = MemoryStateFormat::V1;
                        expect.pods.clear();
                    }
                    prop_assert_eq!(state, expect);
                }
            }
        }
    }
}
