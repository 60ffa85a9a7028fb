//! `namespaces`: what pods may ask for, namespace by namespace. `reservedNamespaces`: those whose
//! pods run on the reserved CPUs.

use super::given::{Given, one_of};
use super::nodes;
use super::source::{ConfigError, Mistakes, Source};
use super::values::Text;
use super::yaml::{YamlMistake, YamlNode};
use ledger::namespaces::Tie;
use ledger::pattern::Patterns;
use ledger::pod_option::{Parsed, PodOption, check_key, parse};
use ledger::terms::contradiction;
use ledger::{Bounds, Namespaces, Policy};
use placement::PodOptions;
use serde::Deserialize;
use serde::de;

/// The fields of an entry.
const FIELDS: [&str; 4] = ["names", "cpuManagerPolicy", "allow", "defaults"];

/// The list is one value: a merged list would allow pod options that the override does not show.
pub(super) fn read(given: &Given<'_>, namespaces: &mut Namespaces) -> Result<(), Mistakes> {
    let mut mistakes = Vec::new();
    let mut entries = Vec::new();
    for (at, item) in items(given.node, &mut mistakes).iter().enumerate() {
        within(&format!("[{at}]"), item.line, &mut mistakes, |mistakes| {
            entries.push(entry(item, mistakes));
        });
    }
    none_of(given, mistakes)?;
    match Namespaces::new(entries) {
        Ok(all) => {
            *namespaces = all;
            Ok(())
        }
        Err(ties) => Mistakes::none_of(ties.iter().map(|tie| tied(given.source, tie)).collect()),
    }
}

/// This list is one value, too.
pub(super) fn read_reserved(given: &Given<'_>, namespaces: &mut Patterns) -> Result<(), Mistakes> {
    let mut mistakes = Vec::new();
    let names = names(given.node, &mut mistakes);
    none_of(given, mistakes)?;
    *namespaces = Patterns::new(names);
    Ok(())
}

fn none_of(given: &Given<'_>, mistakes: Vec<YamlMistake>) -> Result<(), Mistakes> {
    let mistakes = mistakes.into_iter().map(|mistake| mistake.on(given.line).within(given.field));
    Mistakes::none_of(mistakes.map(|mistake| given.source.mistaken(mistake)).collect())
}

fn tied(source: &Source, tie: &Tie) -> ConfigError {
    let (first, second) = tie.entries;
    let why =
        format!("{tie} (the other is namespaces[{second}]). Remove one, or make one more specific");
    source.at_item("namespaces", first, why)
}

/// Reads a part of the block. Its mistakes get its line and its name.
fn within<T>(
    part: &str,
    line: usize,
    mistakes: &mut Vec<YamlMistake>,
    read: impl FnOnce(&mut Vec<YamlMistake>) -> T,
) -> T {
    let mut of_part = Vec::new();
    let value = read(&mut of_part);
    mistakes.extend(of_part.into_iter().map(|mistake| mistake.on(line).within(part)));
    value
}

fn items<'a>(node: &'a YamlNode, mistakes: &mut Vec<YamlMistake>) -> &'a [YamlNode] {
    node.expect_items().unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        &[]
    })
}

/// A list of texts that `read` accepts.
fn texts<T>(
    node: &YamlNode,
    mistakes: &mut Vec<YamlMistake>,
    mut read: impl FnMut(&str) -> Result<T, String>,
) -> Vec<T> {
    let mut values = Vec::new();
    for (at, item) in items(node, mistakes).iter().enumerate() {
        within(&format!("[{at}]"), item.line, mistakes, |mistakes| match text(item, &mut read) {
            Ok(value) => values.push(value),
            Err(mistake) => mistakes.push(mistake),
        });
    }
    values
}

fn text<T>(
    node: &YamlNode,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, YamlMistake> {
    let Text(text) = Text::deserialize(node)?;
    read(&text).map_err(de::Error::custom)
}

/// Names of namespaces, or patterns.
fn names(node: &YamlNode, mistakes: &mut Vec<YamlMistake>) -> Vec<String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-*?".contains(c);
    texts(node, mistakes, |name| {
        if name.is_empty() || !name.chars().all(legal) {
            return Err(format!(
                "invalid namespace {name:?}: expected lower case letters, digits and -, or a pattern with * and ?"
            ));
        }
        Ok(name.to_owned())
    })
}

/// Names, and what pods there may ask for.
fn entry(item: &YamlNode, mistakes: &mut Vec<YamlMistake>) -> (Vec<String>, Bounds) {
    let mut namespaces = Vec::new();
    let mut bounds = Bounds::default();
    let fields = match item.expect_fields(&FIELDS) {
        Ok(fields) => fields,
        Err(mistake) => {
            mistakes.push(mistake);
            return (namespaces, bounds);
        }
    };
    for (key, node) in fields {
        if !FIELDS.contains(&&*key.name) {
            mistakes.push(YamlMistake::unknown_field(&key.name, &FIELDS).on(key.line));
            continue;
        }
        within(&key.name, key.line, mistakes, |mistakes| match &*key.name {
            "names" => namespaces = names(node, mistakes),
            "cpuManagerPolicy" if node.is_null() => {}
            "cpuManagerPolicy" => {
                match text(node, |policy| one_of(policy, &Policy::ALL, Policy::name)) {
                    Ok(policy) => bounds.policy = Some(policy),
                    Err(mistake) => mistakes.push(mistake),
                }
            }
            "allow" => read_allowed(node, &mut bounds, mistakes),
            _ => read_defaults(node, &mut bounds, mistakes),
        });
    }
    let given = item.field("names").map_or(Ok(&[][..]), |(_, names)| names.expect_items());
    if given.is_ok_and(<[YamlNode]>::is_empty) {
        let why = "entry without names: expected names like [\"hpc\", \"team-*\"]";
        mistakes.push(de::Error::custom(why));
    }
    (namespaces, bounds)
}

/// `uncore: [prefer, require]`, and so on.
fn read_allowed(node: &YamlNode, bounds: &mut Bounds, mistakes: &mut Vec<YamlMistake>) {
    let expected = "pod options and lists of their values like {uncore: [prefer, require]}";
    read_options(node, expected, mistakes, |key, values, mistakes| {
        texts(values, mistakes, |value| bounds.allow(key, value));
    });
}

/// `uncore: prefer`, and so on: the pod options of pods without annotations.
fn read_defaults(node: &YamlNode, bounds: &mut Bounds, mistakes: &mut Vec<YamlMistake>) {
    let mut both = PodOptions::NONE;
    read_options(node, "names and values like {NAME: VALUE}", mistakes, |key, value, mistakes| {
        let read = text(value, |value| {
            match parse(key, value)? {
                Parsed::PodOption(pod_option) => {
                    match pod_option {
                        PodOption::Uncore(uncore) => both.uncore = Some(uncore),
                        PodOption::Numa(numa) => both.numa = Some(numa),
                        PodOption::Placement(engine) => both.engine = Some(engine),
                        PodOption::Smt(_)
                        | PodOption::Cpus(_)
                        | PodOption::Isolated(_)
                        | PodOption::Movable(_)
                        | PodOption::Interrupts(_) => {}
                    }
                    bounds.defaults.push(pod_option);
                }
                // Together with the others, as frequencies can exclude each other.
                Parsed::Knob(_) => {
                    bounds.default_knobs.set(key, value).map_err(|why| why.to_string())?;
                }
            }
            Ok(())
        });
        mistakes.extend(read.err());
    });
    if let Some((one, other)) = contradiction(&both) {
        let why = format!("{one} and {other} contradict each other");
        mistakes.push(de::Error::custom(why));
    }
}

/// The keys of pod options and latency knobs, with what `read` takes from each.
fn read_options(
    node: &YamlNode,
    expected: &str,
    mistakes: &mut Vec<YamlMistake>,
    mut read: impl FnMut(&str, &YamlNode, &mut Vec<YamlMistake>),
) {
    let options = node.expect_map(&expected).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        &[]
    });
    for (key, value) in options {
        match check_key(&key.name) {
            Ok(()) => within(&key.name, key.line, mistakes, |mistakes| {
                read(&key.name, value, mistakes);
            }),
            Err(why) => {
                let mistake: YamlMistake = de::Error::custom(why);
                mistakes.push(mistake.on(key.line));
            }
        }
    }
}

/// Refuses `cpuManagerPolicy: static` in an entry of `namespaces` if every node with this list has the
/// policy `none`: the entry could have no effect.
pub(super) fn check_policies(source: &Source, mistakes: &mut Vec<ConfigError>) {
    let entries = 0..nodes::entries(source).map_or(0, <[YamlNode]>::len);
    let entries: Vec<Source> = entries.map(|at| source.entry(at)).collect();
    let somewhere = std::iter::once(source)
        .chain(&entries)
        .any(|source| is_static(source.scope()) == Some(true));
    check_under(source, somewhere, mistakes);
    for entry in &entries {
        check_under(entry, is_static(entry.scope()).unwrap_or(somewhere), mistakes);
    }
}

/// `None` if these fields have no policy.
fn is_static(fields: &YamlNode) -> Option<bool> {
    let (_, policy) = fields.field("cpuManagerPolicy")?;
    policy.text().map(|policy| policy == Policy::Static.name())
}

fn check_under(source: &Source, static_node: bool, mistakes: &mut Vec<ConfigError>) {
    let Some((_, namespaces)) = source.scope().field("namespaces") else { return };
    for (at, entry) in namespaces.items().iter().enumerate() {
        if !static_node && is_static(entry) == Some(true) {
            let names = entry.field("names").map_or(&[][..], |(_, names)| names.items());
            let first = names.first().and_then(YamlNode::text).unwrap_or_default();
            let why = format!(
                "{first:?} has cpuManagerPolicy: static on a node with none. For exclusive CPUs in some namespaces \
                 only, set static and reserved CPUs for the node, and none for {{names: [\"*\"]}}"
            );
            mistakes.push(source.at_item("namespaces", at, why));
        }
    }
}
