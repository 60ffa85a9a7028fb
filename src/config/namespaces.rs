//! `namespaces`: what pods may ask for, namespace by namespace. `reservedNamespaces`: those whose
//! pods run on the reserved CPUs.

use super::given::Given;
use super::nodes;
use super::source::{ConfigError, Mistakes, Source};
use super::values::{Pairs, Text};
use super::yaml::YamlNode;
use ledger::pattern::Patterns;
use ledger::pod_option::{Parsed, PodOption, parse};
use ledger::terms::contradiction;
use ledger::{Bounds, Namespaces, Policy};
use placement::PodOptions;
use quiet::Knobs;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The list is one value: a merged list would allow pod options that the override does not show.
pub(super) fn read(given: &Given<'_>, namespaces: &mut Namespaces) -> Result<(), Mistakes> {
    let _is_list: Vec<IgnoredAny> = given.parse()?;
    let mut mistakes = Vec::new();
    let mut bounds = Vec::new();
    for (at, item) in given.node.items().iter().enumerate() {
        match NamespaceEntry::deserialize(item) {
            Ok(entry) => match entry.bounds() {
                Ok(entry) => bounds.push(entry),
                Err(why) => mistakes.push(given.source.at_item(given.field, at, why)),
            },
            Err(mistake) => {
                let mistake = mistake.on(item.line).within(&format!("[{at}]"));
                mistakes.push(given.source.mistaken(mistake.within(given.field)));
            }
        }
    }
    Mistakes::none_of(mistakes)?;
    *namespaces = resolve(given.source, bounds)?;
    Ok(())
}

/// This list is one value, too.
pub(super) fn read_reserved(given: &Given<'_>, namespaces: &mut Patterns) -> Result<(), Mistakes> {
    let names: Vec<Text> = given.parse()?;
    let names = checked(&names).map_err(|why| given.wrong(why))?;
    *namespaces = Patterns::new(names);
    Ok(())
}

/// Names of namespaces, or patterns.
fn checked(names: &[Text]) -> Result<Vec<String>, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-*?".contains(c);
    match names.iter().find(|Text(name)| name.is_empty() || !name.chars().all(legal)) {
        Some(Text(name)) => Err(format!(
            "invalid namespace {name:?}: expected lower case letters, digits and -, or a pattern with * and ?"
        )),
        None => Ok(names.iter().map(|Text(name)| name.clone()).collect()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NamespaceEntry {
    /// Names, or patterns with `*` and `?`.
    names: Vec<Text>,
    /// Whether pods there can have exclusive CPUs, if that differs from the rest of the node.
    cpu_manager_policy: Option<EntryPolicy>,
    allow: Allowed,
    /// The pod options of pods without annotations.
    defaults: Defaults,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EntryPolicy {
    None,
    Static,
}

/// `uncore: [prefer, require]`, and so on. Only what pods may ask for is filled in.
#[derive(Debug, Default)]
struct Allowed(Bounds);

/// `uncore: prefer`, and so on.
#[derive(Debug, Default)]
struct Defaults {
    pod_options: Vec<PodOption>,
    knobs: Knobs,
}

impl<'de> Deserialize<'de> for Allowed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Allowed, D::Error> {
        struct AllowedVisitor;
        impl<'de> Visitor<'de> for AllowedVisitor {
            type Value = Allowed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "pod options and lists of their values like {uncore: [prefer, require]}",
                )
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Allowed, A::Error> {
                let mut allowed = Bounds::default();
                while let Some((Text(key), values)) = access.next_entry::<Text, Vec<Text>>()? {
                    for Text(value) in values {
                        allowed.allow(&key, &value).map_err(de::Error::custom)?;
                    }
                }
                Ok(Allowed(allowed))
            }
        }
        deserializer.deserialize_map(AllowedVisitor)
    }
}

impl<'de> Deserialize<'de> for Defaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Defaults, D::Error> {
        let pairs = Pairs::deserialize(deserializer)?;
        let mut pod_options = Vec::new();
        let mut knobs = Knobs::NONE;
        for (key, value) in &pairs.0 {
            match parse(key, value).map_err(de::Error::custom)? {
                Parsed::PodOption(pod_option) => pod_options.push(pod_option),
                // Together with the others, as frequencies can exclude each other.
                Parsed::Knob(_) => knobs.set(key, value).map_err(de::Error::custom)?,
            }
        }
        let mut both = PodOptions::NONE;
        for pod_option in &pod_options {
            match *pod_option {
                PodOption::Uncore(uncore) => both.uncore = Some(uncore),
                PodOption::Numa(numa) => both.numa = Some(numa),
                PodOption::Placement(engine) => both.engine = Some(engine),
                PodOption::Smt(_)
                | PodOption::Cpus(_)
                | PodOption::Isolated(_)
                | PodOption::Movable(_)
                | PodOption::Interrupts(_) => {}
            }
        }
        match contradiction(&both) {
            Some((one, other)) => {
                let why = format!("{one} and {other} contradict each other");
                Err(de::Error::custom(why))
            }
            None => Ok(Defaults { pod_options, knobs }),
        }
    }
}

fn resolve(source: &Source, bounds: Vec<(Vec<String>, Bounds)>) -> Result<Namespaces, ConfigError> {
    Namespaces::new(bounds).map_err(|tie| {
        let (first, second) = tie.entries;
        let why = format!(
            "{tie} (the other is namespaces[{second}]). Remove one, or make one more specific"
        );
        source.at_item("namespaces", first, why)
    })
}

impl NamespaceEntry {
    fn bounds(&self) -> Result<(Vec<String>, Bounds), String> {
        if self.names.is_empty() {
            return Err("entry without names: expected names like [\"hpc\", \"team-*\"]".to_owned());
        }
        let names = checked(&self.names)?;
        let policy = self.cpu_manager_policy.map(|policy| match policy {
            EntryPolicy::None => Policy::None,
            EntryPolicy::Static => Policy::Static,
        });
        let Defaults { pod_options, knobs } = &self.defaults;
        let Allowed(allowed) = &self.allow;
        let bounds = Bounds {
            policy,
            defaults: pod_options.clone(),
            default_knobs: knobs.clone(),
            ..allowed.clone()
        };
        Ok((names, bounds))
    }
}

/// Refuses `cpuManagerPolicy: static` in an entry of `namespaces` if every node with this list has the
/// policy `none`: the entry could have no effect.
pub(super) fn check_policies(source: &Source) -> Result<(), ConfigError> {
    let entries = 0..nodes::entries(source)?.len();
    let entries: Vec<Source> = entries.map(|at| source.entry(at)).collect();
    let somewhere = std::iter::once(source)
        .chain(&entries)
        .any(|source| is_static(source.scope()) == Some(true));
    check_under(source, somewhere)?;
    for entry in &entries {
        check_under(entry, is_static(entry.scope()).unwrap_or(somewhere))?;
    }
    Ok(())
}

/// `None` if these fields have no policy.
fn is_static(fields: &YamlNode) -> Option<bool> {
    let (_, policy) = fields.field("cpuManagerPolicy")?;
    policy.text().map(|policy| policy == Policy::Static.name())
}

fn check_under(source: &Source, static_node: bool) -> Result<(), ConfigError> {
    let Some((_, namespaces)) = source.scope().field("namespaces") else { return Ok(()) };
    for (at, entry) in namespaces.items().iter().enumerate() {
        if !static_node && is_static(entry) == Some(true) {
            let names = entry.field("names").map_or(&[][..], |(_, names)| names.items());
            let first = names.first().and_then(YamlNode::text).unwrap_or_default();
            let why = format!(
                "{first:?} has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces \
                 only, set static and reserved CPUs for the node, and none for {{names: [\"*\"]}}"
            );
            return Err(source.at_item("namespaces", at, why));
        }
    }
    Ok(())
}
