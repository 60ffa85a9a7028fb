//! The fields of the file, each declared once: its name, its words or its parser, its default, its
//! check, and where its value is kept.
//!
//! A field that takes one of a few words is a line here. Others are an implementation of [`Field`]
//! in a module of their own.

use super::exposure::NoticeSeconds;
use super::field::{Field, Given, OneOf};
use super::kubelet::{KubeletNearby, KubeletStateDir};
use super::memory_only::MemoryOnlyNodes;
use super::namespaces::NamespaceBounds;
use super::pod_resources::{PodResources, PodResourcesField};
use super::policy_options::{CpuManagerOptions, TopologyManagerOptions};
use super::rebalance::RebalanceField;
use super::reserved::{self, Reserved, ReservedSystemCpus};
use super::source::{ConfigError, Source};
use super::values::Pairs;
use super::yaml::{Key, Mistake, Node};
use crate::exclusivity::Exclusivity;
use cpuset::PartitionType;
use ledger::{Exposure, Policy, Settings, Stance};
use placement::{EngineKind, Scope, TopologyPolicy, UncoreOrder};

/// What the fields say, without the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    /// The ledger's. Of `placement`, the options with the kubelet's names and the reserved CPUs are
    /// for [`Config::resolve`](super::Config::resolve) to fill in.
    pub(super) settings: Settings,
    pub(super) cpu_manager_options: Pairs,
    pub(super) topology_manager_options: Pairs,
    pub(super) reserved: Reserved,
    pub(super) kubelet: KubeletNearby,
    pub(super) exclusivity: Exclusivity,
    pub(super) partition: PartitionType,
    pub(super) strict: bool,
    pub(super) pod_resources: Option<PodResources>,
}

/// Names and meaning are KubeletConfiguration's (`kubelet.config.k8s.io/v1beta1`), so that users can
/// paste a block from there.
pub(super) const OF_KUBELET: [&dyn Field; 8] = [
    &OneOf::or_empty("cpuManagerPolicy", &Policy::ALL, Policy::name, |values| {
        &mut values.settings.policy
    }),
    &CpuManagerOptions,
    &OneOf::or_empty(
        "topologyManagerPolicy",
        &TopologyPolicy::ALL,
        TopologyPolicy::name,
        |values| &mut values.settings.placement.topology_manager.policy,
    ),
    &OneOf::or_empty("topologyManagerScope", &Scope::ALL, Scope::name, |values| {
        &mut values.settings.placement.topology_manager.scope
    }),
    &TopologyManagerOptions,
    &ReservedSystemCpus,
    &reserved::SYSTEM,
    &reserved::KUBE,
];

/// The plugin's own fields; docs/configuration.md is their reference.
const OWN: [&dyn Field; 14] = [
    &OneOf::new("uncoreCacheOrder", &UncoreOrder::ALL, UncoreOrder::name, |values| {
        &mut values.settings.placement.options.uncore_order
    }),
    &OneOf::new("placement", &EngineKind::ALL, EngineKind::name, |values| {
        &mut values.settings.placement.engine
    }),
    &KubeletStateDir,
    &OneOf::new("onActiveKubelet", &[Stance::Refuse, Stance::Observe], Stance::name, |values| {
        &mut values.kubelet.when_active
    }),
    &OneOf::new("exclusivity", &Exclusivity::ALL, Exclusivity::name, |values| {
        &mut values.exclusivity
    }),
    &OneOf::new("cpusetPartition", &PartitionType::ALL, PartitionType::name, |values| {
        &mut values.partition
    }),
    &OneOf::boolean("strict", |values| &mut values.strict),
    &OneOf::new("exposeCpus", &Exposure::ALL, Exposure::name, |values| {
        &mut values.settings.expose_cpus
    }),
    &NoticeSeconds,
    &OneOf::new("exclusiveMems", &[false, true], exclusive_mems, |values| {
        &mut values.settings.mems_follow_cpus
    }),
    &MemoryOnlyNodes,
    &RebalanceField,
    &PodResourcesField,
    &NamespaceBounds,
];

/// What is no setting: the nodes that an entry of `nodes` is for, and the entries.
const SELECTION: [&str; 3] = ["names", "labels", "nodes"];

fn exclusive_mems(follow_cpus: bool) -> &'static str {
    if follow_cpus { "follow-cpus" } else { "all" }
}

fn all() -> impl Iterator<Item = &'static dyn Field> {
    OF_KUBELET.into_iter().chain(OWN)
}

/// A field of the configuration, for those who document it, check it or draw its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub name: &'static str,
    /// The words that it takes; empty if it takes other values.
    pub words: Vec<&'static str>,
    /// As in the file; `None` if no text says it.
    pub default: Option<String>,
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
    /// With what the file says without its overrides, or what one entry says, in the place of these.
    pub(super) fn over(mut self, source: &Source) -> Result<Values, ConfigError> {
        let fields = known(source)?;
        self.drop_meaningless(source.scope());
        for (key, node) in fields {
            let Some(field) = all().find(|field| *field.name() == *key.name) else { continue };
            if !node.is_null() {
                field.read(&Given { source, field: &key.name, line: key.line, node }, &mut self)?;
            }
        }
        Ok(self)
    }

    /// Drops what an entry makes meaningless: options of a policy that it ends, and the list of
    /// reserved CPUs if it gives an amount.
    fn drop_meaningless(&mut self, entry: &Node) {
        let policy = entry.field("cpuManagerPolicy").and_then(|(_, policy)| policy.text());
        if policy.is_some_and(|policy| policy != Policy::Static.name()) {
            self.cpu_manager_options = Pairs::default();
        }
        let has =
            |field| entry.field(field).is_some_and(|(_, amounts)| !amounts.fields().is_empty());
        if has(reserved::SYSTEM.name()) || has(reserved::KUBE.name()) {
            self.reserved.list = None;
        }
    }

    /// Checks fields together where they are in force.
    pub(super) fn check(&self, source: &Source) -> Result<(), ConfigError> {
        for field in all() {
            field.check(self).map_err(|why| source.at(field.name(), why))?;
        }
        Ok(())
    }
}

/// The fields of the file without its overrides, or of one entry.
///
/// # Errors
/// A field that there is not.
fn known(source: &Source) -> Result<&[(Key, Node)], ConfigError> {
    let names: Vec<&str> = all().map(Field::name).chain(SELECTION).collect();
    let fields =
        source.scope().expect_fields(&names).map_err(|mistake| source.mistaken(mistake))?;
    for (key, _) in fields {
        if !names.contains(&&*key.name) {
            let mistake = Mistake::unknown_field(&key.name, &names).on(key.line);
            return Err(source.mistaken(mistake));
        }
    }
    Ok(fields)
}
