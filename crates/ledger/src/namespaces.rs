//! [`Namespaces`]: what the pods of each namespace may wish for, and their defaults.

use super::policy::Policy;
use super::wish::Wish;
use crate::pattern::{Closeness, closeness, overlap};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The bounds and defaults of one or several namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Whether the pods can have exclusive CPUs; `None` follows the node's policy.
    pub policy: Option<Policy>,
    /// The wishes that pods may have.
    pub allow: BTreeSet<Wish>,
    /// The wishes of pods that have none for the same key.
    pub defaults: Vec<Wish>,
}

/// The bounds of all namespaces. Pods of a namespace that no pattern matches may wish for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(Arc<[(Vec<String>, Bounds)]>);

/// Two patterns that can match the same namespace and are equally specific.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{:?} and {:?} can mean the same namespace, and neither is more specific: an entry for it would be a guess",
    patterns.0,
    patterns.1
)]
pub struct Tie {
    /// The patterns, the earlier one first.
    pub patterns: (String, String),
    /// The indices of their entries.
    pub entries: (usize, usize),
}

impl Namespaces {
    /// Creates the bounds from patterns of names (`*` stands for any text, `?` for any character).
    ///
    /// # Errors
    /// If a pattern occurs twice, or two patterns of different entries are ambiguous.
    pub fn new(entries: Vec<(Vec<String>, Bounds)>) -> Result<Namespaces, Tie> {
        match tie(&entries, overlap) {
            Some(tie) => Err(tie),
            None => Ok(Namespaces(entries.into())),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names and patterns with their bounds, the most specific first. The first one that
    /// matches a namespace counts.
    pub fn by_closeness(&self) -> Vec<(&str, &Bounds)> {
        let named = self
            .0
            .iter()
            .flat_map(|(names, bounds)| names.iter().map(move |name| (name.as_str(), bounds)));
        let mut named: Vec<(&str, &Bounds)> = named.collect();
        named.sort_by_key(|(name, _)| (Reverse(Closeness::of(name)), *name));
        named
    }

    /// The bounds of a namespace, by the most specific pattern that matches it: its own name first,
    /// then the pattern with most literal characters.
    pub fn of(&self, namespace: &str) -> Option<&Bounds> {
        let matching = self.0.iter().filter_map(|(names, bounds)| {
            let closest = names.iter().filter_map(|name| closeness(name, namespace)).max()?;
            Some((closest, bounds))
        });
        matching.max_by_key(|(closeness, _)| *closeness).map(|(_, bounds)| bounds)
    }
}

/// The first two patterns that are ambiguous. `overlap` is called only for patterns of equal
/// closeness, and never for names, of which there can be thousands.
fn tie(
    entries: &[(Vec<String>, Bounds)],
    mut overlap: impl FnMut(&str, &str) -> bool,
) -> Option<Tie> {
    let mut first_entries: HashMap<&str, usize> = HashMap::new();
    let mut patterns: HashMap<usize, Vec<(usize, &str)>> = HashMap::new();
    let named = entries.iter().enumerate();
    let named =
        named.flat_map(|(at, (names, _))| names.iter().map(move |name| (at, name.as_str())));
    for (at, name) in named {
        let tie = |first: usize, one: &str| Tie {
            patterns: (one.to_owned(), name.to_owned()),
            entries: (first, at),
        };
        if let Some(first) = first_entries.insert(name, at) {
            return Some(tie(first, name));
        }
        let Closeness::Pattern(literals) = Closeness::of(name) else { continue };
        let rivals = patterns.entry(literals).or_default();
        // Within one entry it does not matter which pattern counts.
        let rival = rivals.iter().find(|(first, one)| *first != at && overlap(one, name));
        if let Some((first, one)) = rival {
            return Some(tie(*first, one));
        }
        rivals.push((at, name));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(entries: &[&[&str]]) -> Result<Namespaces, Tie> {
        let entry = |(at, names): (usize, &&[&str])| {
            let defaults = vec![Wish::parse("smt", ["full-cores", "isolate"][at % 2]).unwrap()];
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            (names, Bounds { defaults, ..Bounds::default() })
        };
        Namespaces::new(entries.iter().enumerate().map(entry).collect())
    }

    #[test]
    fn the_most_specific_entry_counts() {
        for (entries, namespace, at) in [
            (&[&["*"][..], &["hpc"]][..], "hpc", Some(1)),
            (&[&["hpc"], &["*"]], "hpc", Some(0)),
            (&[&["hpc-*"], &["hpc-prod-*"]], "hpc-prod-1", Some(1)),
            (&[&["hpc-*"], &["hpc-prod-*"]], "hpc-test", Some(0)),
            (&[&["hpc-?"], &["*"]], "hpc-12", Some(1)),
            (&[&["a", "b-*"], &["c"]], "b-1", Some(0)),
            (&[&["a"], &["c"]], "b", None),
            (&[&["hpc"]], "hpc-1", None),
            // A name is more specific than any pattern.
            (&[&["trading*"], &["trading"]], "trading", Some(1)),
        ] {
            let all = namespaces(entries).unwrap();
            let found = all.of(namespace).map(|bounds| bounds.defaults.clone());
            let expect = at.map(|at| all.0[at].1.defaults.clone());
            assert_eq!(found, expect, "{namespace} in {entries:?}");
        }
    }

    /// Containers wait while the configuration is read, so thousands of names must not take long.
    #[test]
    fn only_patterns_of_equal_closeness_are_compared() {
        let names = |from: usize| (from..from + 1000).map(|at| format!("team-{at}")).collect();
        let patterns = ["hpc-*", "web-*", "*", "hpc-prod-*"].map(str::to_owned).to_vec();
        let entries =
            [names(0), patterns, names(1000)].map(|names| (names, Bounds::default())).to_vec();
        let mut compared = Vec::new();
        let found = tie(&entries, |one, other| {
            compared.push((one.to_owned(), other.to_owned()));
            false
        });
        assert_eq!((found, compared), (None, Vec::new()));
        let entries = [["hpc-*", "*"], ["web-*", "x-*"]].map(|names| names.map(str::to_owned));
        let entries = entries.map(|names| (names.to_vec(), Bounds::default()));
        let mut compared = 0;
        tie(&entries, |_, _| {
            compared += 1;
            false
        });
        assert_eq!(compared, 1, "only hpc-* and web-* have four characters of their own");
    }

    #[test]
    fn ambiguous_patterns_are_refused() {
        for (entries, tie) in [
            (&[&["a"][..], &["a"]][..], Some((("a", "a"), (0, 1)))),
            (&[&["a", "a"]], Some((("a", "a"), (0, 0)))),
            (&[&["team-*", "*-prod"]], None),
            (
                &[&["b"], &["team-*"], &["c"], &["d", "*-prod"]],
                Some((("team-*", "*-prod"), (1, 3))),
            ),
            (&[&["team-a*"], &["team-b*"]], None),
            (&[&["team-?"], &["team-*"]], Some((("team-?", "team-*"), (0, 1)))),
            (&[&["*x"], &["*y"]], None),
            (&[&["*"], &["a*"], &["a"]], None),
        ] {
            let found = namespaces(entries).err();
            let tie = tie.map(|((a, b), entries)| Tie { patterns: (a.into(), b.into()), entries });
            assert_eq!(found, tie, "{entries:?}");
        }
    }
}
