//! [`Namespaces`]: what the pods of each namespace may ask for, and their defaults.

use super::pod_option::PodOption;
use super::policy::Policy;
use crate::pattern::{Closeness, closeness, overlap};
use quiet::{CStates, Knobs, frequency};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The bounds and defaults of one or several namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Whether the pods can have exclusive CPUs; `None` follows the node's policy.
    pub policy: Option<Policy>,
    /// The pod options that pods may set.
    pub allow: BTreeSet<PodOption>,
    /// The pod options of pods that have none for the same key.
    pub defaults: Vec<PodOption>,
    /// The latency knobs that pods may ask for.
    pub knobs: KnobBounds,
    /// The knobs of pods that do not ask for them.
    pub default_knobs: Knobs,
}

impl Bounds {
    /// Allows one value of a pod option, or one value or bound of a latency knob.
    ///
    /// # Errors
    /// Names the unknown word and the expected ones.
    pub fn allow(&mut self, key: &str, value: &str) -> Result<(), String> {
        if Knobs::KEYS.contains(&key) {
            self.knobs.allow(key, value)
        } else {
            self.allow.insert(PodOption::parse(key, value)?);
            Ok(())
        }
    }
}

/// Which values of latency knobs pods may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnobBounds {
    disable: bool,
    /// The shortest latency, in microseconds.
    min_latency: Option<u32>,
    governors: BTreeSet<String>,
    /// In kHz.
    min_frequency: Vec<RangeInclusive<u64>>,
    /// In kHz.
    max_frequency: Vec<RangeInclusive<u64>>,
}

impl KnobBounds {
    pub const NONE: KnobBounds = KnobBounds {
        disable: false,
        min_latency: None,
        governors: BTreeSet::new(),
        min_frequency: Vec::new(),
        max_frequency: Vec::new(),
    };

    /// Allows a value. `max-latency:N` allows every longer latency as well, and `LOW-HIGH` allows
    /// every frequency from one to the other.
    ///
    /// # Errors
    /// Those of [`Knobs::set`], and if `LOW` is above `HIGH`.
    fn allow(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (low, high) = match value.split_once('-') {
            Some(range) if key.ends_with("-frequency") => range,
            _ => (value, value),
        };
        let low = knob(key, low)?;
        let high = knob(key, high)?;
        match low.c_states {
            Some(CStates::Disable) => self.disable = true,
            Some(CStates::MaxLatency(limit)) => {
                self.min_latency = Some(self.min_latency.map_or(limit, |other| other.min(limit)));
            }
            None => {}
        }
        self.governors.extend(low.governor);
        for (ranges, low, high) in [
            (&mut self.min_frequency, low.min_frequency_khz, high.min_frequency_khz),
            (&mut self.max_frequency, low.max_frequency_khz, high.max_frequency_khz),
        ] {
            let (Some(low), Some(high)) = (low, high) else { continue };
            if low > high {
                return Err(format!("{key} {value:?}: the lower frequency comes first"));
            }
            ranges.push(low..=high);
        }
        Ok(())
    }

    /// The first of these knobs that is not allowed, with its value.
    pub(super) fn first_forbidden(&self, knobs: &Knobs) -> Option<(&'static str, String)> {
        let within = |ranges: &[RangeInclusive<u64>], khz: Option<u64>| {
            khz.is_none_or(|khz| ranges.iter().any(|range| range.contains(&khz)))
        };
        let mut forbidden = knobs.clone();
        let is_allowed = match knobs.c_states {
            None => true,
            Some(CStates::Disable) => self.disable,
            Some(CStates::MaxLatency(limit)) => self.min_latency.is_some_and(|min| min <= limit),
        };
        if is_allowed {
            forbidden.c_states = None;
        }
        if knobs.governor.as_ref().is_none_or(|name| self.governors.contains(name)) {
            forbidden.governor = None;
        }
        if within(&self.min_frequency, knobs.min_frequency_khz) {
            forbidden.min_frequency_khz = None;
        }
        if within(&self.max_frequency, knobs.max_frequency_khz) {
            forbidden.max_frequency_khz = None;
        }
        forbidden.words().into_iter().next()
    }

    /// The allowed values and bounds with their keys, as a configuration has them.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let [c_states, governor, min_frequency, max_frequency] = Knobs::KEYS;
        let mut words = Vec::new();
        if self.disable {
            words.push((c_states, CStates::Disable.to_string()));
        }
        words.extend(self.min_latency.map(|us| (c_states, CStates::MaxLatency(us).to_string())));
        words.extend(self.governors.iter().map(|name| (governor, name.clone())));
        words.extend(self.min_frequency.iter().map(|range| (min_frequency, in_words(range))));
        words.extend(self.max_frequency.iter().map(|range| (max_frequency, in_words(range))));
        words
    }
}

fn knob(key: &str, value: &str) -> Result<Knobs, String> {
    let mut knobs = Knobs::NONE;
    knobs.set(key, value).map_err(|error| error.to_string())?;
    Ok(knobs)
}

fn in_words(range: &RangeInclusive<u64>) -> String {
    let (low, high) = (frequency(*range.start()), frequency(*range.end()));
    if low == high { low } else { format!("{low}-{high}") }
}

/// The bounds of all namespaces. Pods of a namespace that no pattern matches may ask for nothing.
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
    /// Each pattern that occurs twice or is ambiguous with one of an earlier entry.
    pub fn new(entries: Vec<(Vec<String>, Bounds)>) -> Result<Namespaces, Vec<Tie>> {
        let ties = ties(&entries, overlap);
        if ties.is_empty() { Ok(Namespaces(entries.into())) } else { Err(ties) }
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

/// The patterns that are ambiguous with an earlier one. `overlap` is called only for patterns of equal
/// closeness, and never for names, of which there can be thousands.
fn ties(
    entries: &[(Vec<String>, Bounds)],
    mut overlap: impl FnMut(&str, &str) -> bool,
) -> Vec<Tie> {
    let mut first_entries: HashMap<&str, usize> = HashMap::new();
    let mut patterns: HashMap<usize, Vec<(usize, &str)>> = HashMap::new();
    let mut ties = Vec::new();
    let named = entries.iter().enumerate();
    let named =
        named.flat_map(|(at, (names, _))| names.iter().map(move |name| (at, name.as_str())));
    for (at, name) in named {
        let tie = |first: usize, one: &str| Tie {
            patterns: (one.to_owned(), name.to_owned()),
            entries: (first, at),
        };
        if let Some(first) = first_entries.insert(name, at) {
            ties.push(tie(first, name));
            continue;
        }
        let Closeness::Pattern(literals) = Closeness::of(name) else { continue };
        let rivals = patterns.entry(literals).or_default();
        // Within one entry it does not matter which pattern counts.
        let rival = rivals.iter().find(|(first, one)| *first != at && overlap(one, name));
        if let Some((first, one)) = rival {
            ties.push(tie(*first, one));
        }
        rivals.push((at, name));
    }
    ties
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(entries: &[&[&str]]) -> Result<Namespaces, Vec<Tie>> {
        let entry = |(at, names): (usize, &&[&str])| {
            let defaults =
                vec![PodOption::parse("smt", ["full-cores", "isolate"][at % 2]).unwrap()];
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
        let found = ties(&entries, |one, other| {
            compared.push((one.to_owned(), other.to_owned()));
            false
        });
        assert_eq!((found, compared), (Vec::new(), Vec::new()));
        let entries = [["hpc-*", "*"], ["web-*", "x-*"]].map(|names| names.map(str::to_owned));
        let entries = entries.map(|names| (names.to_vec(), Bounds::default()));
        let mut compared = 0;
        ties(&entries, |_, _| {
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
            let found = namespaces(entries).err().unwrap_or_default();
            let tie = tie.map(|((a, b), entries)| Tie { patterns: (a.into(), b.into()), entries });
            assert_eq!(found, tie.into_iter().collect::<Vec<_>>(), "{entries:?}");
        }
    }
}
