//! What the administrator lets the pods of each namespace wish for, and what holds where they say nothing.

use super::settings::Policy;
use super::wishes::Wish;
use crate::pattern::{Closeness, closeness, overlap};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What holds in one or several namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Whether its pods can have exclusive CPUs at all, where that is not as on the rest of the node.
    pub policy: Option<Policy>,
    /// What its pods may wish for.
    pub allow: BTreeSet<Wish>,
    /// What holds for pods that say nothing.
    pub defaults: Vec<Wish>,
}

/// The bounds of all namespaces. One that is not named has none, and its pods may wish for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(Vec<(Vec<String>, Bounds)>);

/// Two patterns of which neither is the more specific one, and that can mean the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} and {1:?} can mean the same namespace, and neither is more specific: an entry for it would be a guess"
)]
pub struct Tie(pub String, pub String);

impl Namespaces {
    /// From patterns of names (`*` stands for any text, `?` for any character) and what holds for them.
    ///
    /// # Errors
    /// If two patterns of different entries, or the same pattern twice, leave open which counts.
    pub fn new(entries: Vec<(Vec<String>, Bounds)>) -> Result<Namespaces, Tie> {
        let patterns: Vec<&String> = entries.iter().flat_map(|(names, _)| names).collect();
        for (at, one) in patterns.iter().enumerate() {
            let others = patterns.iter().skip(at + 1);
            let mut as_close = others.filter(|other| Closeness::of(one) == Closeness::of(other));
            if let Some(other) = as_close.find(|other| overlap(one, other)) {
                return Err(Tie((*one).clone(), (*other).clone()));
            }
        }
        Ok(Namespaces(entries))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is said of any namespace.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names and patterns with what holds for them, the most specific first: of those that mean a namespace the first
    /// counts.
    pub fn by_closeness(&self) -> Vec<(&str, &Bounds)> {
        let named = self
            .0
            .iter()
            .flat_map(|(names, bounds)| names.iter().map(move |name| (name.as_str(), bounds)));
        let mut named: Vec<(&str, &Bounds)> = named.collect();
        named.sort_by_key(|(name, _)| (Reverse(Closeness::of(name)), *name));
        named
    }

    /// What holds in a namespace, by the most specific pattern that means it: its own name before all, then the
    /// pattern with more characters of its own.
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

    #[test]
    fn what_would_be_a_guess_is_refused() {
        for (entries, tie) in [
            (&[&["a"][..], &["a"]][..], Some(("a", "a"))),
            (&[&["a", "a"]], Some(("a", "a"))),
            (&[&["team-*"], &["*-prod"]], Some(("team-*", "*-prod"))),
            (&[&["team-a*"], &["team-b*"]], None),
            (&[&["team-?"], &["team-*"]], Some(("team-?", "team-*"))),
            (&[&["*x"], &["*y"]], None),
            (&[&["*"], &["a*"], &["a"]], None),
        ] {
            let found = namespaces(entries).err();
            assert_eq!(found, tie.map(|(a, b)| Tie(a.into(), b.into())), "{entries:?}");
        }
    }
}
