//! Memory counted by NUMA node: what is reserved, and the kubelet's errors.

use super::*;
use machines::synthetic::Machine;
use placement::memory_manager::{MAX_MEMORY_NODES, MemoryKind};
use placement::{Scope, TopologyPolicy};
use topology::Sizes;

/// Nodes of 4 GiB each; node 0 has 512 MiB of huge pages.
fn two_nodes() -> Topology {
    with_memory("numa:2 core:4")
}

fn with_memory(machine: &str) -> Topology {
    with_memory_of(machine.parse::<Machine>().unwrap().topology().unwrap())
}

fn with_memory_of(topology: Topology) -> Topology {
    let memory = topology.nodes().iter().map(|node| (node.id, 4 << 30)).collect();
    topology.with_memory(&Sizes {
        memory,
        huge_pages: [(0, [(2 << 20, 256)].into())].into(),
        ..Sizes::default()
    })
}

fn resolve_on(machine: &Topology, text: &str) -> Result<Settings, String> {
    Config::parse("config.yaml", text)
        .and_then(|config| config.resolve(machine))
        .map_err(|error| error.to_string())
}

/// The memory of each node that containers can be given, in MiB.
fn mebibytes(settings: &Settings) -> Vec<u64> {
    let capacity = settings.memory.as_ref().unwrap();
    capacity.nodes().map(|(_, amounts)| amounts[&MemoryKind::Memory] >> 20).collect()
}

#[track_caller]
fn refuses_on(machine: &Topology, text: &str, expect: &str) {
    let error = resolve_on(machine, text).unwrap_err();
    assert_eq!(error, format!("config.yaml, {expect}. Nothing was changed"), "{text}");
}

const RESERVED: &str = "memoryManagerPolicy: Static\n\
    systemReserved: {memory: 512Mi}\nkubeReserved: {memory: 1Gi}\n\
    reservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n- {numaNode: 1, limits: {memory: 612Mi}}\n";

#[test]
fn containers_get_what_is_not_reserved() {
    let settings = resolve_on(&two_nodes(), RESERVED).unwrap();
    assert_eq!(mebibytes(&settings), [4096 - 512 - 1024, 4096 - 612]);
    let huge_pages = MemoryKind::HugePages(2 << 20);
    let (_, node) = settings.memory.as_ref().unwrap().nodes().next().unwrap();
    assert_eq!(node.get(&huge_pages), Some(&(512 << 20)));
    let static_policy = format!("cpuManagerPolicy: static\nreservedSystemCPUs: 0\n{RESERVED}");
    assert_eq!(resolve_on(&two_nodes(), &static_policy).unwrap().memory, settings.memory);
}

#[test]
fn memory_is_not_counted_by_default() {
    for policy in ["", "memoryManagerPolicy: None\n", "memoryManagerPolicy: \"\"\n"] {
        // Neither a known machine nor the right sum is needed.
        let text = format!("{policy}reservedMemory: [{{numaNode: 7, limits: {{memory: 1Gi}}}}]\n");
        assert_eq!(resolve(&text).unwrap().memory, None);
        let warnings = Config::parse("c", &text).unwrap().warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let why = "reservedMemory: no effect without memoryManagerPolicy: Static";
        assert_eq!(warnings[0].text, why);
    }
    assert_eq!(Config::parse("c", RESERVED).unwrap().warnings(), []);
}

#[test]
fn the_topology_manager_counts_for_memory_alone() {
    let manager = "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n";
    let settings = resolve_on(&two_nodes(), &format!("{manager}{RESERVED}")).unwrap();
    let found = settings.placement.topology_manager;
    assert_eq!(settings.policy, Policy::None);
    assert_eq!((found.policy, found.scope), (TopologyPolicy::Restricted, Scope::Pod));
    let uncounted = resolve_on(&two_nodes(), manager).unwrap();
    assert_eq!(uncounted.placement.topology_manager.policy, TopologyPolicy::None);
}

#[test]
fn a_threshold_is_an_amount_or_a_share() {
    for (threshold, reserved) in [
        ("", "100Mi"),
        ("evictionHard: {memory.available: 1Gi, nodefs.available: 10%}\n", "1Gi"),
        ("evictionHard: {memory.available: 12.5%}\n", "1Gi"),
        // 5 % of 8 GiB with a factor of 32 bits.
        ("evictionHard: {memory.available: 5%}\n", "429496736"),
        ("evictionHard: {memory.available: 0%}\nsystemReserved: {memory: 1Mi}\n", "1Mi"),
        ("evictionHard: {nodefs.available: 10%}\nsystemReserved: {memory: 1Mi}\n", "1Mi"),
        ("evictionHard: {}\nsystemReserved: {memory: 1Mi}\n", "1Mi"),
    ] {
        let text = format!(
            "memoryManagerPolicy: Static\n{threshold}reservedMemory: [{{numaNode: 1, limits: {{memory: {reserved}}}}}]\n"
        );
        let settings = resolve_on(&two_nodes(), &text);
        assert!(settings.is_ok_and(|settings| settings.memory.is_some()), "{text}");
    }
}

#[test]
fn an_override_replaces_what_it_has() {
    let text = format!(
        "{RESERVED}nodes:\n\
         - names: [small]\n  kubeReserved: {{memory: 412Mi}}\n  \
           reservedMemory: [{{numaNode: 0, limits: {{memory: 1Gi}}}}]\n\
         - names: [large]\n  evictionHard: {{memory.available: 612Mi}}\n  \
           reservedMemory: [{{numaNode: 1, limits: {{memory: 2Gi}}}}, {{numaNode: 0, limits: {{memory: 100Mi}}}}]\n\
         - names: [plain]\n  memoryManagerPolicy: None\n"
    );
    let of = |name: &str| {
        let node = NodeIdentity { name: Some(name.to_owned()), labels: None };
        let config = Config::parse("config.yaml", &text).unwrap().for_node(&node).unwrap();
        (config.resolve(&two_nodes()).unwrap(), config.warnings())
    };
    assert_eq!(mebibytes(&of("small").0), [4096 - 512 - 1024, 4096]);
    assert_eq!(mebibytes(&of("large").0), [4096 - 512 - 100, 2048]);
    assert_eq!(mebibytes(&of("other").0), mebibytes(&resolve_on(&two_nodes(), RESERVED).unwrap()));
    let (plain, warnings) = of("plain");
    assert_eq!((plain.memory, warnings), (None, Vec::new()));
    // Memory does not replace a list of CPUs, as an amount of CPUs does.
    let list = "cpuManagerPolicy: static\nreservedSystemCPUs: 1\nnodes:\n- names: [a]\n  \
                systemReserved: {memory: 1Gi}\n- names: [b]\n  systemReserved: {cpu: 1}\n";
    for (name, reserved) in [("a", "1"), ("b", "0")] {
        assert_eq!(on(name, "", list).unwrap().placement.reserved.to_string(), reserved);
    }
}

/// What no machine allows is wrong under every policy, in entries for other nodes, too.
#[test]
fn mistakes_of_the_text_are_refused_with_their_line() {
    for (field, why) in [
        (
            "memoryManagerPolicy: static",
            "memoryManagerPolicy: \"static\" is unknown, expected None or Static (did you mean Static?)",
        ),
        (
            "systemReserved: {memory: lots}",
            "systemReserved: invalid amount of memory \"lots\": expected one like 1Gi or 512Mi",
        ),
        (
            "reservedMemory: [{limits: {memory: 1Gi}}]",
            "reservedMemory[0]: entry without numaNode: expected one like {numaNode: 0, limits: {memory: 1Gi}}",
        ),
        (
            "reservedMemory: [{numaNode: one, limits: {memory: 1Gi}}]",
            "reservedMemory[0]: numaNode: \"one\" is no number of a NUMA node",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1Gx}}]",
            "reservedMemory[0]: limits: memory: invalid amount of memory \"1Gx\": expected one like 1Gi or 512Mi",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]",
            "reservedMemory: invalid configuration: the limit type \"cpu\" for NUMA node 0 is not supported, only \
             [memory hugepages-<HugePageSize>] is accepted",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]",
            "reservedMemory: invalid configuration: reserved memory may not be zero for NUMA node 0 and resource \
             \"memory\"",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 2}}]",
            "reservedMemory: invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and \
             resource \"memory\"",
        ),
        (
            "evictionHard: {memory.free: 1Gi}",
            "evictionHard: \"memory.free\" is unknown, expected memory.available or nodefs.available or \
             nodefs.inodesFree or imagefs.available or imagefs.inodesFree or containerfs.available or \
             containerfs.inodesFree or allocatableMemory.available or pid.available",
        ),
        (
            "evictionHard: {memory.available: some}",
            "evictionHard: invalid threshold \"some\" of memory.available: expected one like 100Mi or 5%",
        ),
        (
            "evictionHard: {memory.available: 0}",
            "evictionHard: eviction threshold memory.available must be positive: 0",
        ),
        (
            "evictionHard: {memory.available: -1%}",
            "evictionHard: eviction percentage threshold memory.available must be >= 0%: -1%",
        ),
        (
            "evictionHard: {memory.available: 101%}",
            "evictionHard: eviction percentage threshold memory.available must be <= 100%: 101%",
        ),
    ] {
        refuses(&format!("{field}\n"), &format!("line 1: {why}"));
        refuses(&format!("nodes:\n- names: [x]\n  {field}\n"), &format!("line 3: {why}"));
    }
}

#[test]
fn what_the_machine_does_not_allow_is_refused_in_the_kubelets_words() {
    let with = |more: &str| format!("memoryManagerPolicy: Static\n{more}");
    let hint = "(the sum of reservedMemory has to be the memory of systemReserved and kubeReserved plus \
                memory.available of evictionHard, 100Mi without that field)";
    refuses_on(
        &two_nodes(),
        &with(""),
        &format!(
            "line 1: memoryManagerPolicy: the total amount \"0\" of type \"memory\" is not equal to the value \
             \"100Mi\" determined by Node Allocatable feature {hint}"
        ),
    );
    refuses_on(
        &two_nodes(),
        &with(
            "kubeReserved: {memory: 1Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
        ),
        &format!(
            "line 3: reservedMemory: the total amount \"1Gi\" of type \"memory\" is not equal to the value \
             \"1124Mi\" determined by Node Allocatable feature {hint}"
        ),
    );
    refuses_on(
        &two_nodes(),
        &with("reservedMemory: [{numaNode: 0, limits: {memory: 100Mi, hugepages-2Mi: 2Mi}}]\n"),
        "line 2: reservedMemory: the total amount \"2Mi\" of type \"hugepages-2Mi\" is not equal to the value \
         \"0\" determined by Node Allocatable feature (only memory can be reserved, no huge pages)",
    );
    refuses_on(
        &two_nodes(),
        &with("reservedMemory: [{numaNode: 2, limits: {memory: 100Mi}}]\n"),
        "line 2: reservedMemory: the reserved memory configuration references a NUMA node 2 that does not exist \
         on this machine",
    );
    refuses_on(
        &two_nodes(),
        &with(
            "evictionHard: {memory.available: 1500m}\nreservedMemory: [{numaNode: 0, limits: {memory: 1500m}}]\n",
        ),
        "line 3: reservedMemory: could not covert a variable of type Quantity to int64",
    );
    refuses_on(
        &two_nodes(),
        &with("evictionHard: {}\n"),
        "line 1: memoryManagerPolicy: [memorymanager] you should specify the system reserved memory (set \
         reservedMemory, and systemReserved: {memory: ...} to its sum)",
    );
    refuses_on(
        &two_nodes(),
        &with(
            "evictionHard: {}\nsystemReserved: {memory: 9Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 9Gi}}]\n",
        ),
        "line 4: reservedMemory: invalid Node Allocatable configuration. Resource \"memory\" has a reservation of \
         {{9663676416 0} {<nil>}  BinarySI} but capacity of {{8589934592 0} {<nil>}  BinarySI}. Expected capacity \
         >= reservation.",
    );
    refuses_on(
        &two_nodes(),
        &with(
            "evictionHard: {}\nsystemReserved: {memory: 4Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 4Gi}}]\n",
        ),
        "line 4: reservedMemory: NUMA node 0 has 3758096384 bytes of memory besides other pools, and 4294967296 are \
         reserved",
    );
}

/// The machine need not exist yet: a kubelet's file is checked during review.
#[test]
fn a_kubelets_file_can_be_checked_on_every_preset() {
    let text = "memoryManagerPolicy: Static\nsystemReserved: {cpu: 1, memory: 1Gi}\n\
                reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]\n";
    for preset in machines::presets::presets() {
        let machine = preset.machine.topology().unwrap();
        if machine.nodes().len() > MAX_MEMORY_NODES {
            assert_eq!(preset.name, "many-nodes");
            continue;
        }
        let settings = resolve_on(&machine, text).unwrap_or_else(|why| panic!("{why}"));
        let nodes = mebibytes(&settings);
        assert_eq!(nodes.len(), machine.nodes().len(), "{}", preset.name);
        let total: u64 = nodes.iter().sum();
        assert_eq!(total, (preset.machine.memory.unwrap() >> 20) - 1124, "{}", preset.name);
    }
    let preset = machines::presets::preset("xeon-8490h-snc-nosmt").unwrap().topology().unwrap();
    assert_eq!(mebibytes(&resolve_on(&preset, text).unwrap())[1..], [256 << 10; 3]);
}

#[test]
fn a_machine_has_known_memory_and_a_bounded_number_of_nodes() {
    let text =
        "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n";
    refuses(
        text,
        "line 1: memoryManagerPolicy: the memory of NUMA node 0 is unknown: Static needs its MemTotal in \
         /sys/devices/system/node/node0/meminfo, memory_bytes in a file of topology --save, or a preset",
    );
    let nine = with_memory("numa:9 core:1");
    assert!(resolve_on(&nine, text).is_ok());
    let aligned = format!("{text}topologyManagerPolicy: best-effort\n");
    assert!(resolve_on(&with_memory("numa:8 core:1"), &aligned).is_ok());
    refuses_on(
        &nine,
        &aligned,
        "line 3: topologyManagerPolicy: with memoryManagerPolicy: Static, a machine of more than 8 NUMA nodes with \
         CPUs needs none, and this one has 9",
    );
    refuses_on(
        &with_memory("numa:17 core:1"),
        text,
        "line 1: memoryManagerPolicy: memory is counted on machines of at most 16 NUMA nodes with CPUs, and this one has \
         17",
    );
}

/// Two Grace CPUs with the memory of 8 GPUs, or of 32.
#[test]
fn only_nodes_with_cpus_count_for_the_limits() {
    let text = |policy: &str| {
        format!(
            "memoryManagerPolicy: Static\ntopologyManagerPolicy: {policy}\n\
             reservedMemory: [{{numaNode: 0, limits: {{memory: 100Mi}}}}]\n"
        )
    };
    for (memory_only, policy, counted) in [
        (6, "restricted", 8),
        (8, "restricted", 2),
        (8, "none", 10),
        (14, "none", 16),
        (32, "none", 2),
        (32, "single-numa-node", 2),
    ] {
        let machine = Machine { sockets: 2, cores: 4, memory_only, ..Machine::default() };
        let machine = with_memory_of(machine.topology().unwrap());
        let settings = resolve_on(&machine, &text(policy)).unwrap();
        assert_eq!(mebibytes(&settings).len(), counted, "{memory_only} {policy}");
    }
    refuses_on(
        &with_memory_of(
            Machine { sockets: 9, memory_only: 8, ..Machine::default() }.topology().unwrap(),
        ),
        &text("restricted"),
        "line 2: topologyManagerPolicy: with memoryManagerPolicy: Static, a machine of more than 8 NUMA nodes with \
         CPUs needs none, and this one has 9",
    );
}
