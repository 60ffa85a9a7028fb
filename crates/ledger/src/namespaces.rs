//! What the pods of each namespace may wish for, and their defaults.

use super::policy::Policy;
use super::wish::Wish;
use crate::pattern::{Closeness, closeness, overlap};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What holds in one or several namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Whether its pods can have exclusive CPUs at all; `None` follows the node's policy.
    pub policy: Option<Policy>,
    /// What its pods may wish for.
    pub allow: BTreeSet<Wish>,
    /// The wishes of pods that say nothing.
    pub defaults: Vec<Wish>,
}

/// The bounds of all namespaces. Pods of a namespace that no pattern matches may wish for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(Arc<[(Vec<String>, Bounds)]>);

/// Two patterns that can match the same namespace, and of which neither is more specific.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{:?} and {:?} can mean the same namespace, and neither is more specific: an entry for it would be a guess",
    patterns.0,
    patterns.1
)]
pub struct Tie {
    /// The patterns, the earlier one first.
    pub patterns: (String, String),
    /// Which entries they are in, counted from 0.
    pub entries: (usize, usize),
}

impl Namespaces {
    /// From patterns of names (`*` stands for any text, `?` for any character) and what holds for
    /// them.
    ///
    /// # Errors
    /// If two patterns of different entries, or the same pattern twice, are ambiguous.
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

    /// All names and patterns with their bounds, the most specific first: the first one that
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
        let meant = |(names, bounds)| {
            let names: &Vec<String> = names;
            let closest = names.iter().filter_map(|name| closeness(name, namespace)).max();
            closest.map(|closeness| (closeness, bounds))
        };
        let fitting = self.0.iter().filter_map(|(names, bounds)| meant((names, bounds)));
        fitting.max_by_key(|(closeness, _)| *closeness).map(|(_, bounds)| bounds)
    }
}

/// The first two patterns that are ambiguous. `overlap` compares only patterns of equal closeness,
/// and no names: there can be thousands of names.
fn tie(
    entries: &[(Vec<String>, Bounds)],
    mut overlap: impl FnMut(&str, &str) -> bool,
) -> Option<Tie> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut patterns: HashMap<usize, Vec<(usize, &str)>> = HashMap::new();
    let named = entries.iter().enumerate();
    let named =
        named.flat_map(|(at, (names, _))| names.iter().map(move |name| (at, name.as_str())));
    for (at, name) in named {
        let tie = |first: usize, one: &str| Tie {
            patterns: (one.to_owned(), name.to_owned()),
            entries: (first, at),
        };
        if let Some(first) = seen.insert(name, at) {
            return Some(tie(first, name));
        }
        let Closeness::Pattern(literals) = Closeness::of(name) else { continue };
        let rivals = patterns.entry(literals).or_default();
        // Within one entry it does not matter which pattern counts.
        let found = rivals.iter().find(|(first, one)| *first != at && overlap(one, name));
        if let Some((first, one)) = found {
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
            // A name of its own beats a pattern that names more.
            (&[&["trading*"], &["trading"]], "trading", Some(1)),
        ] {
            let all = namespaces(entries).unwrap();
            let found = all.of(namespace).map(|bounds| bounds.defaults.clone());
            let expect = at.map(|at| all.0[at].1.defaults.clone());
            assert_eq!(found, expect, "{namespace} in {entries:?}");
        }
    }

    /// What is read while containers wait is read in no time: names are not held against each
    /// other.
    #[test]
    fn only_patterns_as_close_as_each_other_are_compared() {
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
    fn what_would_be_a_guess_is_refused() {
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
