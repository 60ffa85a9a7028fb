//! [`Configuration`]: the plugin's configuration file, with each field drawn independently.

use crate::dice::Dice;
use config::{Config, Mistake, NodeIdentity, Reading, declarations};
use ledger::Settings;
use std::collections::BTreeMap;
use std::fmt::Write;
use topology::Topology;

/// A field, the chance in percent that it is drawn, and its values. `A/B` is entry B of field A.
type Field = (&'static str, u64, &'static [&'static str]);

/// In this order: a field that contradicts an earlier one is left out.
pub const FIELDS: [Field; 36] = [
    ("cpuManagerPolicy", 4, &["none", "\"\""]),
    ("reservedSystemCPUs", 70, &["\"0-1\"", "\"0-1\"", "\"0-3\"", "\"1\""]),
    ("systemReserved", 10, &["{cpu: 500m}", "{cpu: 2, memory: 1Gi}"]),
    ("kubeReserved", 10, &["{cpu: 1}"]),
    ("evictionHard", 20, &["{memory.available: 200Mi, nodefs.available: 10%}"]),
    (
        "reservedMemory",
        50,
        &[
            "[{numaNode: 0, limits: {memory: 100Mi}}]",
            "[{numaNode: 0, limits: {memory: 200Mi}}]",
            "[{numaNode: 0, limits: {memory: 1124Mi}}]",
        ],
    ),
    ("memoryManagerPolicy", 50, &["Static", "Static", "None", "\"\""]),
    ("exclusivity", 60, &["auto", "auto", "kernel", "runtime"]),
    ("cpuManagerPolicyOptions/full-pcpus-only", 10, TRUE),
    ("cpuManagerPolicyOptions/strict-cpu-reservation", 20, TRUE),
    ("cpuManagerPolicyOptions/prefer-align-cpus-by-uncorecache", 20, TRUE),
    ("cpuManagerPolicyOptions/distribute-cpus-across-numa", 10, TRUE),
    ("cpuManagerPolicyOptions/distribute-cpus-across-cores", 10, TRUE),
    ("cpuManagerPolicyOptions/align-by-socket", 10, TRUE),
    ("cpuManagerPolicyOptions/scale-delay-time", 15, &["5s", "500ms", "10s"]),
    (
        "topologyManagerPolicy",
        50,
        &["none", "best-effort", "restricted", "single-numa-node", "\"\""],
    ),
    ("topologyManagerScope", 30, &["pod", "pod", "container", "\"\""]),
    ("topologyManagerPolicyOptions/prefer-closest-numa-nodes", 10, TRUE),
    ("topologyManagerPolicyOptions/max-allowable-numa-nodes", 5, &["\"16\""]),
    ("uncoreCacheOrder", 10, &["numerical", "fewest-free"]),
    ("placement", 30, &["compact", "compact", "kubelet"]),
    ("kubeletStateDir", 50, &["\"\"", "/var/lib/kubelet"]),
    (MODE, 40, &["observe", "enforce", "enforce", "enforce", "enforce", "enforce"]),
    ("cpusetPartition", 5, &["isolated", "root"]),
    ("strict", 20, &["\"true\"", "\"true\"", "\"false\""]),
    ("exposeCPUs", 40, &["environment", "file", "file", "none"]),
    ("noticeSeconds", 30, &["2", "20", "0"]),
    ("exclusiveMemoryNodes", 25, &["follow-cpus", "follow-cpus", "all"]),
    ("memoryOnlyNodes", 30, &["2-3"]),
    ("rebalance/movesPer100Starts", 30, &["100", "100", "20"]),
    ("rebalance/minStay", 90, &["1s", "1s", "20s"]),
    ("rebalance/mode", 30, &["move", "suggest", "off"]),
    ("rebalance/acrossNumaNodes", 30, &["false", "true"]),
    ("namespaces", 60, &[POD_OPTIONS, POD_OPTIONS, EXCEPT]),
    ("reservedNamespaces", 30, &["[infra]", "[\"batch*\", infra]", "[sim]", "[trading]"]),
    (
        "nodes",
        20,
        &[
            "[{names: [sim], placement: compact}]",
            "[{names: [other], cpuManagerPolicy: none}, {labels: {pool: fast}, exposeCPUs: file}]",
            "[{names: [\"s*\"], reservedSystemCPUs: \"0-2\"}]",
        ],
    ),
];

/// Fields about counted memory. They have separate dice, so that the other choices of a seed do not
/// depend on them.
const OF_MEMORY: [Field; 3] = [
    ("evictionHard", 20, &["{memory.available: 200Mi}", "{nodefs.available: 10%}"]),
    (
        "reservedMemory",
        90,
        &[
            "[{numaNode: 0, limits: {memory: 100Mi}}]",
            "[{numaNode: 0, limits: {memory: 200Mi, hugepages-2Mi: 16Mi}}]",
            "[{numaNode: 0, limits: {memory: 1124Mi}}]",
            "[{numaNode: 0, limits: {memory: 60Mi}}, {numaNode: 1, limits: {memory: 40Mi}}]",
        ],
    ),
    (MEMORY_POLICY, 90, &["Static", "Static", "Static", "None", "\"\""]),
];

/// Fields about own pools of pods. They use the dice of [`OF_MEMORY`].
const OF_PODS: [Field; 3] = [
    ("topologyManagerScope", 90, &["pod"]),
    (
        "topologyManagerPolicy",
        90,
        &["best-effort", "best-effort", "restricted", "single-numa-node"],
    ),
    (POD_LEVEL_RESOURCES, 80, &["own-pool", "own-pool", "own-pool", "shared"]),
];

/// The chance in percent that [`OF_PODS`] are drawn.
const PODS: u64 = 20;

/// Fields about interrupts and annotations for CRI-O. They use the dice of [`OF_MEMORY`].
const OF_QUIET: [Field; 2] = [
    (INTERRUPTS, 40, &["away", "housekeeping", "leave"]),
    ("compatibility", 40, &["[crio]", "[crio]", "[]"]),
];

/// The chance in percent that a change is about [`OF_QUIET`].
const QUIET: u64 = 20;

/// The chance in percent that a change reserves more CPUs than any machine has: as the policy `none`, or with
/// `strict` no CPU can be exclusive. The next change mostly ends that.
const ALL_RESERVED: u64 = 5;

const INTERRUPTS: &str = "interrupts";
const MODE: &str = "mode";
/// The chance in percent that a change is about it.
const MODES: u64 = 20;

const POD_LEVEL_RESOURCES: &str = "podLevelResources";
const MEMORY_POLICY: &str = "memoryManagerPolicy";

/// The chance in percent of a field that takes one of a few words and is not in [`FIELDS`].
const OFTEN: u64 = 30;

/// Fields without effect on the core: a socket that it does not serve, and fields of the kubelet.
pub const WITHOUT_EFFECT: [Field; 4] = [
    ("podResources", 5, &["{listen: /pod-resources, kubelet: /var/lib/kubelet/kubelet.sock}"]),
    ("kind", 10, &["KubeletConfiguration"]),
    ("memorySwap", 10, &["{swapBehavior: NoSwap}"]),
    ("logging", 10, &["{format: json, verbosity: 2}"]),
];

const TRUE: &[&str] = &["\"true\""];

/// Allows every pod option in one namespace, and has defaults for others.
const POD_OPTIONS: &str = "[{names: [trading], allow: {uncore: [prefer, require, ignore, exclusive], \
    numa: [single, closest, spread], smt: [full-cores, isolate], placement: [kubelet, compact], isolated-cpus: [exclude, prefer, require], \
    cpus: [exclusive, exclusive+shared, shared], movable: [\"true\", \"false\"], \
    interrupts: [leave, away, housekeeping], c-states: [disable, \"max-latency:5\"], \
    frequency-governor: [performance], min-frequency: [1GHz-4GHz], max-frequency: [1GHz-4GHz]}}, \
    {names: [\"batch*\"], defaults: {uncore: prefer, movable: \"false\"}}]";

const EXCEPT: &str = "[{names: [\"batch*\"], cpuManagerPolicy: none}, {names: [trading], \
    allow: {cpus: [exclusive]}, defaults: {smt: full-cores}}]";

/// Files with which the plugin does not start, and which it does not follow while it runs. The last one is
/// faulty only if the plugin may not make partitions.
pub const FAULTY: [&str; 6] = [
    "cpuManagerPolicy: statik\n",
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0-4095\"\n",
    "cpuManagerPolicy: static\n",
    "cpuManagerPolicy: [\n",
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nplacment: compact\n",
    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nexclusivity: kernel\n",
];

/// [`FIELDS`], and all other declared fields that take one of a few words.
fn all_fields() -> Vec<(&'static str, u64, Vec<&'static str>)> {
    let above = FIELDS.map(|(field, chance, values)| (field, chance, values.to_vec()));
    let of_words = declarations().filter(|declared| {
        let has_other_dice =
            [MEMORY_POLICY, POD_LEVEL_RESOURCES, INTERRUPTS].contains(&declared.name);
        !declared.words.is_empty() && !has_other_dice
    });
    let others =
        of_words.filter(|declared| !FIELDS.iter().any(|(field, ..)| *field == declared.name));
    above.into_iter().chain(others.map(|other| (other.name, OFTEN, other.words))).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration(BTreeMap<&'static str, &'static str>);

impl Default for Configuration {
    fn default() -> Configuration {
        let fields = [
            ("cpuManagerPolicy", "static"),
            ("reservedSystemCPUs", "\"0\""),
            ("exclusivity", "groups"),
        ];
        Configuration(BTreeMap::from(fields))
    }
}

impl Configuration {
    /// Whether the plugin changes nothing.
    pub fn observes(&self) -> bool {
        self.0.get(MODE) == Some(&"observe")
    }

    pub fn enforcing(mut self) -> Configuration {
        self.0.remove(MODE);
        self
    }

    /// `privileged` says whether the plugin may make partitions.
    pub fn roll(machine: &Topology, privileged: bool, dice: &mut Dice) -> Configuration {
        let mut other_dice = dice.clone();
        let mut drawn = Configuration::default();
        let others = WITHOUT_EFFECT.map(|(field, chance, values)| (field, chance, values.to_vec()));
        for (field, chance, values) in all_fields().into_iter().chain(others) {
            let with = drawn.with(field, dice.pick(&values));
            let is_possible = privileged || !with.needs_partitions();
            if dice.percent(chance) && is_possible && with.settings(machine).is_some() {
                drawn = with;
            }
        }
        let drawn = drawn.changed_in_memory(machine, &mut other_dice);
        let drawn = if other_dice.percent(PODS) {
            drawn.changed_in(&OF_PODS, machine, &mut other_dice)
        } else {
            drawn
        };
        drawn.changed_in(&OF_QUIET, machine, &mut other_dice)
    }

    /// A configuration with other values of these fields.
    fn changed_in(&self, fields: &[Field], machine: &Topology, dice: &mut Dice) -> Configuration {
        let mut changed = self.clone();
        for &(field, chance, values) in fields {
            let with = changed.with(field, dice.pick(values));
            if dice.percent(chance) && with.settings(machine).is_some() {
                changed = with;
            }
        }
        changed
    }

    /// A configuration with other values of the fields about memory. Most values of `reservedMemory`
    /// contradict the rest of a configuration, so each policy is tried with several.
    fn changed_in_memory(&self, machine: &Topology, dice: &mut Dice) -> Configuration {
        let mut changed = self.clone();
        for _ in 0..4 {
            for (field, chance, values) in OF_MEMORY {
                let with = changed.with(field, dice.pick(values));
                if dice.percent(chance) && with.settings(machine).is_some() {
                    changed = with;
                }
            }
        }
        changed
    }

    /// A configuration with other values of some fields.
    pub fn changed(&self, machine: &Topology, privileged: bool, dice: &mut Dice) -> Configuration {
        let mut other_dice = dice.clone();
        let mut changed = if other_dice.percent(30) {
            self.changed_in_memory(machine, &mut other_dice)
        } else {
            self.clone()
        };
        if other_dice.percent(PODS) {
            changed = changed.changed_in(&OF_PODS, machine, &mut other_dice);
        }
        if other_dice.percent(QUIET) {
            changed = changed.changed_in(&OF_QUIET, machine, &mut other_dice);
        }
        if other_dice.percent(MODES) {
            let mode = if changed.observes() { "enforce" } else { "observe" };
            changed = changed.with(MODE, mode);
        }
        if other_dice.percent(ALL_RESERVED) {
            let more = changed.with("systemReserved", "{cpu: 500}");
            changed = more.without("reservedSystemCPUs");
        } else if !changed.0.contains_key("reservedSystemCPUs") {
            changed = changed.with("reservedSystemCPUs", "\"0\"");
        }
        let fields = all_fields();
        for _ in 0..dice.between(1, 3) {
            let &(field, _, ref values) = &fields[dice.below(fields.len())];
            let is_needed = Configuration::default().0.contains_key(field);
            let with = if dice.percent(50) && !is_needed {
                changed.without(field)
            } else if field == "cpuManagerPolicy" && dice.percent(70) {
                changed.with(field, "static")
            } else {
                changed.with(field, dice.pick(values))
            };
            let is_possible = privileged || !with.needs_partitions();
            if is_possible && with.settings(machine).is_some() {
                changed = with;
            }
        }
        changed
    }

    pub fn with(&self, field: &'static str, value: &'static str) -> Configuration {
        let mut with = self.clone();
        with.0.insert(field, value);
        with
    }

    fn without(&self, field: &str) -> Configuration {
        let mut without = self.clone();
        without.0.remove(field);
        without
    }

    /// Configurations with one field less each, to find the fields that a violation needs.
    pub fn simpler(&self) -> Vec<Configuration> {
        let plain = Configuration::default();
        let fields = self.0.keys().map(|field| match plain.0.get_key_value(field) {
            Some((field, value)) => self.with(field, value),
            None => self.without(field),
        });
        fields.filter(|simpler| simpler != self).collect()
    }

    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.iter().map(|(field, value)| (*field, *value))
    }

    pub fn text(&self) -> String {
        let mut fields: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (field, value) in self.fields() {
            let (field, entry) = field.split_once('/').unwrap_or((field, ""));
            let entry =
                if entry.is_empty() { value.to_owned() } else { format!("{entry}: {value}") };
            fields.entry(field).or_default().push(entry);
        }
        let mut text = String::new();
        for (field, entries) in fields {
            let is_map = !self.0.contains_key(field);
            let value = entries.join(", ");
            let value = if is_map { format!("{{{value}}}") } else { value };
            writeln!(text, "{field}: {value}").expect("text");
        }
        text
    }

    /// The configuration as the plugin reads it.
    pub fn config(&self) -> Config {
        read(&self.text()).expect("a valid configuration")
    }

    /// Whether cgroups keep others off exclusive CPUs; otherwise the runtime's updates do.
    pub fn is_by_groups(&self) -> bool {
        self.0.get("exclusivity") != Some(&"runtime")
    }

    /// Whether the plugin starts only if the kernel makes partitions.
    pub fn needs_partitions(&self) -> bool {
        self.0.get("exclusivity") == Some(&"kernel")
    }

    /// Whether containers with exclusive CPUs become partitions where the kernel makes any.
    pub fn wants_partitions(&self) -> bool {
        self.needs_partitions() || self.0.get("exclusivity") == Some(&"auto")
    }

    /// Whether the pods of this namespace get no exclusive CPUs.
    pub fn gives_none(&self, namespace: &str) -> bool {
        self.0.get("namespaces") == Some(&EXCEPT) && namespace.starts_with("batch")
    }

    pub fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    /// `None` if it does not fit the machine.
    pub fn settings(&self, machine: &Topology) -> Option<Settings> {
        read(&self.text()).ok()?.resolve(machine).ok()
    }
}

/// The configuration of this node in a file.
pub fn read(text: &str) -> Reading {
    let config = |text| Config::parse("sim", text)?.for_node(&identity());
    config(text).map_err(Mistake::from)
}

pub fn identity() -> NodeIdentity {
    let labels = "pool=fast,zone=a".parse().ok();
    NodeIdentity { name: Some("sim".to_owned()), labels }
}
