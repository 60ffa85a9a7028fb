//! The fields of the file, each declared once: its name, its words or its reader, its default, its
//! check, and the place of its value.
//!
//! A field that takes one of a few words is a line here. Others have a reader in another module. An
//! entry of `nodes` is read over the values of the file, so what reading does to an earlier value is
//! what an override does.

use super::given::{Given, boolean_word, one_of};
use super::kubelet::{self, KUBELET_STATE_DIR, KubeletStateDir};
use super::log_level::LogLevel;
use super::memory::{self, MemoryFields, MemoryPolicy};
use super::mode::Mode;
use super::not_used::NOT_USED;
use super::pod_resources::{self, PodResourcesField};
use super::reserved::{self, Reserved};
use super::source::{ConfigError, Mistakes, Source};
use super::values::Pairs;
use super::yaml::{Key, YamlMistake, YamlNode};
use super::{
    compatibility, exposure, memory_only, namespaces, own_pool, policy_options, rebalance,
};
use cpuset::PartitionType;
use exclusivity::Exclusivity;
use ledger::{Exposure, PodLevelResources, Policy, Settings};
use placement::{EngineKind, IsolatedCpus, Scope, TopologyPolicy, UncoreOrder};
use quiet::InterruptMode;
use wording::nearest;

/// What the fields say, without the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    /// The ledger's. In `placement`, [`Config::resolve`](super::Config::resolve) fills in the options
    /// with the kubelet's names and the reserved CPUs.
    pub(super) settings: Settings,
    pub(super) cpu_manager_options: Pairs,
    pub(super) topology_manager_options: Pairs,
    pub(super) reserved: Reserved,
    pub(super) memory: MemoryFields,
    pub(super) kubelet_state_dir: KubeletStateDir,
    pub(super) mode: Mode,
    pub(super) exclusivity: Exclusivity,
    pub(super) partition: PartitionType,
    pub(super) strict: bool,
    pub(super) pod_resources: PodResourcesField,
    pub(super) log_level: LogLevel,
}

/// Names and meaning are KubeletConfiguration's (`kubelet.config.k8s.io/v1beta1`), so that users can
/// paste a block from there.
pub(super) const OF_KUBELET: &[&dyn Field] = &[
    &OneOf::new("cpuManagerPolicy", &Policy::ALL, Policy::name, |values| {
        &mut values.settings.policy
    })
    .or_empty(),
    &Other::new("cpuManagerPolicyOptions", policy_options::read_cpu, |values| {
        &mut values.cpu_manager_options
    }),
    &OneOf::new("topologyManagerPolicy", &TopologyPolicy::ALL, TopologyPolicy::name, |values| {
        &mut values.settings.placement.topology_manager.policy
    })
    .or_empty(),
    &OneOf::new("topologyManagerScope", &Scope::ALL, Scope::name, |values| {
        &mut values.settings.placement.topology_manager.scope
    })
    .or_empty(),
    &Other::new("topologyManagerPolicyOptions", policy_options::read_topology, |values| {
        &mut values.topology_manager_options
    }),
    &Other::new(reserved::LIST, reserved::read_list, |values| &mut values.reserved.list),
    &Other::new(reserved::SYSTEM, reserved::read_amounts, |values| &mut values.reserved.system),
    &Other::new(reserved::KUBE, reserved::read_amounts, |values| &mut values.reserved.kube),
    &OneOf::new(memory::POLICY, &MemoryPolicy::ALL, MemoryPolicy::name, |values| {
        &mut values.memory.policy
    })
    .or_empty(),
    &Other::new(memory::RESERVED, memory::read_reserved, |values| &mut values.memory.reserved),
    &Other::new(memory::EVICTION, memory::read_eviction, |values| &mut values.memory.eviction),
];

/// The plugin's own fields; docs/configuration.md is their reference.
const OWN: &[&dyn Field] = &[
    &OneOf::new("uncoreCacheOrder", &UncoreOrder::ALL, UncoreOrder::name, |values| {
        &mut values.settings.placement.options.uncore_order
    }),
    &OneOf::new("placement", &EngineKind::ALL, EngineKind::name, |values| {
        &mut values.settings.placement.engine
    }),
    &OneOf::new("isolatedCPUs", &IsolatedCpus::ALL, IsolatedCpus::name, |values| {
        &mut values.settings.placement.isolated
    }),
    &OneOf::new(own_pool::FIELD, &PodLevelResources::ALL, PodLevelResources::name, |values| {
        &mut values.settings.pod_level_resources
    })
    .checked(own_pool::check),
    &Other::new("kubeletStateDir", kubelet::read, |values| &mut values.kubelet_state_dir.0)
        .or_default(KUBELET_STATE_DIR),
    &OneOf::new("mode", &Mode::ALL, Mode::name, |values| &mut values.mode),
    &OneOf::new("exclusivity", &Exclusivity::ALL, Exclusivity::name, |values| {
        &mut values.exclusivity
    })
    .or_meant(&[("partition", "kernel"), ("partitions", "kernel"), ("cgroups", "groups")]),
    &OneOf::new("cpusetPartition", &PartitionType::ALL, PartitionType::name, |values| {
        &mut values.partition
    }),
    &OneOf::boolean("strict", |values| &mut values.strict),
    &OneOf::new("exposeCPUs", &Exposure::ALL, Exposure::name, |values| {
        &mut values.settings.expose_cpus
    }),
    &Other::new("noticeSeconds", exposure::read, |values| &mut values.settings.notice_seconds)
        .or_default("0")
        .checked(exposure::check),
    &OneOf::new("exclusiveMemoryNodes", &[false, true], exclusive_memory_nodes, |values| {
        &mut values.settings.mems_follow_cpus
    }),
    &Other::new("memoryOnlyNodes", memory_only::read, |values| {
        &mut values.settings.memory_only_nodes
    })
    .checked(memory_only::check),
    &OneOf::new("interrupts", &InterruptMode::ALL, InterruptMode::name, |values| {
        &mut values.settings.interrupts
    }),
    &OneOf::new("logLevel", &LogLevel::ALL, LogLevel::name, |values| &mut values.log_level),
    &Other::new("compatibility", compatibility::read, |values| &mut values.settings.reads_crio),
    &Other::new("rebalance", rebalance::read, |values| &mut values.settings.rebalance),
    &Other::new("podResources", pod_resources::read, |values| &mut values.pod_resources),
    &Other::new("namespaces", namespaces::read, |values| &mut values.settings.namespaces),
    &Other::new("reservedNamespaces", namespaces::read_reserved, |values| {
        &mut values.settings.reserved_namespaces
    }),
];

/// Fields that are no settings: the nodes that an entry of `nodes` is for, and the entries.
const SELECTION: [&str; 3] = ["names", "labels", "nodes"];

/// What a KubeletConfiguration says of itself.
pub(super) const HEADER: [&str; 2] = ["apiVersion", "kind"];

fn exclusive_memory_nodes(follow_cpus: bool) -> &'static str {
    if follow_cpus { "follow-cpus" } else { "all" }
}

fn all() -> impl Iterator<Item = &'static dyn Field> {
    OF_KUBELET.iter().chain(OWN).copied()
}

pub(super) trait Field {
    fn name(&self) -> &'static str;

    /// The words that it takes, without the kubelet's empty one; none if it takes other values.
    fn words(&self) -> Vec<&'static str>;

    /// The text of the default; `None` if no text stands for it.
    fn default(&self) -> Option<&'static str>;

    /// Reads the given text into `values`.
    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), Mistakes>;

    /// Checks it together with other fields, where they are in force.
    fn check(&self, values: &Values) -> Result<(), &'static str>;
}

/// A field that takes one of a few words.
struct OneOf<T: 'static> {
    name: &'static str,
    /// In the order in which errors list them.
    all: &'static [T],
    word: fn(T) -> &'static str,
    value: fn(&mut Values) -> &mut T,
    or_empty: bool,
    /// Words of others, and the one that each means here.
    meant: &'static [(&'static str, &'static str)],
    check: Option<Check>,
}

impl<T> OneOf<T> {
    /// `word` is the text for a value, and `value` its place.
    const fn new(
        name: &'static str,
        all: &'static [T],
        word: fn(T) -> &'static str,
        value: fn(&mut Values) -> &mut T,
    ) -> OneOf<T> {
        OneOf { name, all, word, value, or_empty: false, meant: &[], check: None }
    }

    /// An empty text is the default, as for the kubelet.
    const fn or_empty(mut self) -> OneOf<T> {
        self.or_empty = true;
        self
    }

    const fn or_meant(mut self, words: &'static [(&'static str, &'static str)]) -> OneOf<T> {
        self.meant = words;
        self
    }

    const fn checked(mut self, check: Check) -> OneOf<T> {
        self.check = Some(check);
        self
    }
}

impl OneOf<bool> {
    const fn boolean(name: &'static str, value: fn(&mut Values) -> &mut bool) -> OneOf<bool> {
        OneOf::new(name, &[true, false], boolean_word, value)
    }
}

impl<T: Copy> OneOf<T> {
    fn default_value(&self) -> T {
        *(self.value)(&mut Values::default())
    }
}

impl<T: Copy> Field for OneOf<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn words(&self) -> Vec<&'static str> {
        self.all.iter().map(|value| (self.word)(*value)).collect()
    }

    fn default(&self) -> Option<&'static str> {
        Some((self.word)(self.default_value()))
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), Mistakes> {
        let text = given.text()?;
        *(self.value)(values) = if self.or_empty && text.is_empty() {
            self.default_value()
        } else {
            one_of(&text, self.all, self.word).map_err(|why| {
                match self.meant.iter().find(|(word, _)| *word == text) {
                    Some((_, meant)) => given.wrong(format!("{why} (did you mean {meant}?)")),
                    None => given.wrong(why),
                }
            })?
        };
        Ok(())
    }

    fn check(&self, values: &Values) -> Result<(), &'static str> {
        self.check.map_or(Ok(()), |check| check(&values.settings))
    }
}

/// What a value contradicts, if anything.
type Check = fn(&Settings) -> Result<(), &'static str>;

/// A field with its own reader.
struct Other<T: 'static> {
    name: &'static str,
    read: fn(&Given<'_>, &mut T) -> Result<(), Mistakes>,
    value: fn(&mut Values) -> &mut T,
    default: Option<&'static str>,
    check: Option<Check>,
}

impl<T> Other<T> {
    const fn new(
        name: &'static str,
        read: fn(&Given<'_>, &mut T) -> Result<(), Mistakes>,
        value: fn(&mut Values) -> &mut T,
    ) -> Other<T> {
        Other { name, read, value, default: None, check: None }
    }

    /// The text for what [`Values`] has by default.
    const fn or_default(mut self, text: &'static str) -> Other<T> {
        self.default = Some(text);
        self
    }

    const fn checked(mut self, check: Check) -> Other<T> {
        self.check = Some(check);
        self
    }
}

impl<T> Field for Other<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn words(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn default(&self) -> Option<&'static str> {
        self.default
    }

    fn read(&self, given: &Given<'_>, values: &mut Values) -> Result<(), Mistakes> {
        (self.read)(given, (self.value)(values))
    }

    fn check(&self, values: &Values) -> Result<(), &'static str> {
        self.check.map_or(Ok(()), |check| check(&values.settings))
    }
}

/// A field of the configuration, for tests of its documentation and schema, and the simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub name: &'static str,
    /// The words that it takes; empty if it takes other values.
    pub words: Vec<&'static str>,
    /// As in the file; `None` if no text stands for it.
    pub default: Option<&'static str>,
}

/// Every field that sets something, in the order of the reference.
pub fn declarations() -> impl Iterator<Item = Declaration> {
    all().map(|field| Declaration {
        name: field.name(),
        words: field.words(),
        default: field.default(),
    })
}

impl Values {
    /// These values, replaced by those in the file outside of `nodes`, or in one entry of `nodes`.
    pub(super) fn over(self, source: &Source) -> Result<Values, ConfigError> {
        let mut mistakes = Vec::new();
        let values = self.over_all(source, &mut mistakes);
        mistakes.into_iter().next().map_or(Ok(values), Err)
    }

    /// As [`Values::over`]: adds the mistakes to `mistakes`, and leaves out the fields that have one.
    pub(super) fn over_all(mut self, source: &Source, mistakes: &mut Vec<ConfigError>) -> Values {
        let fields = known(source, mistakes);
        self.drop_meaningless(source.scope());
        for (key, node) in fields {
            let Some(field) = all().find(|field| *field.name() == *key.name) else { continue };
            if !node.is_null() {
                let given = Given { source, field: &key.name, line: key.line, node };
                mistakes.extend(field.read(&given, &mut self).err().into_iter().flatten());
            }
        }
        self
    }

    /// Drops what an entry makes meaningless: options of a policy that it ends, the own pools of pods
    /// if it assigns no CPUs, the memory reserved by NUMA node if it ends counting, and the list of reserved CPUs if it gives an amount
    /// of CPUs.
    fn drop_meaningless(&mut self, entry: &YamlNode) {
        let policy = entry.field("cpuManagerPolicy").and_then(|(_, policy)| policy.text());
        if policy.is_some_and(|policy| policy != Policy::Static.name()) {
            self.cpu_manager_options = Pairs::default();
            self.settings.pod_level_resources = PodLevelResources::default();
        }
        let policy = entry.field(memory::POLICY).and_then(|(_, policy)| policy.text());
        if policy.is_some_and(|policy| policy != MemoryPolicy::Static.name()) {
            self.memory = MemoryFields::default();
        }
        for field in [reserved::SYSTEM, reserved::KUBE] {
            let amounts = entry.field(field).map(|(_, amounts)| amounts);
            if amounts.is_some_and(|amounts| amounts.field(reserved::CPU).is_some()) {
                self.reserved.list = None;
            }
        }
    }

    /// Checks fields together where they are in force, and adds the mistakes to `mistakes`.
    pub(super) fn check_all(&self, source: &Source, mistakes: &mut Vec<ConfigError>) {
        for field in all() {
            mistakes.extend(field.check(self).err().map(|why| source.at(field.name(), why)));
        }
    }
}

/// The fields of the file without its overrides, or of one entry. Unknown ones are mistakes.
fn known<'a>(source: &'a Source, mistakes: &mut Vec<ConfigError>) -> &'a [(Key, YamlNode)] {
    let own: Vec<&str> = all().map(|field| field.name()).chain(SELECTION).collect();
    let known = [&own[..], &HEADER, NOT_USED].concat();
    let fields = source.scope().expect_fields(&own).unwrap_or_else(|mistake| {
        mistakes.push(source.mistaken(mistake));
        &[]
    });
    for (key, _) in fields {
        if !known.contains(&&*key.name) {
            // The fields of a kubelet are too many to list, unless one of them has a similar name.
            let expected = if nearest(&key.name, &known).is_empty() { &own } else { &known };
            let mistake = YamlMistake::unknown_field(&key.name, expected).on(key.line);
            mistakes.push(source.mistaken(mistake));
        }
    }
    fields
}
