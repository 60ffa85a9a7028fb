//! The form of values: texts, pairs, lists of CPUs.

use crate::cpuset::{CpuSet, ParseError};
use crate::quantity::Quantity;
use crate::wording;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A list that copies of a file share.
#[derive(Debug, Clone)]
pub(super) struct Shared<T>(Arc<[T]>);

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared(Arc::default())
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        Vec::deserialize(deserializer).map(|list| Shared(list.into()))
    }
}

/// A scalar as text. Booleans and numbers are valid where the kubelet requires a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a boolean")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// `reservedSystemCPUs`: a list in the kernel's format, not empty and without repeated CPUs.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse_cpu_list(text: &str) -> Result<CpuSet, String> {
    let set: CpuSet = text.parse().map_err(|error: ParseError| error.to_string())?;
    if set.is_empty() {
        return Err("the list is empty: expected CPUs like \"0-1\", or no such field".to_owned());
    }
    let mut seen = CpuSet::EMPTY;
    for part in text.split(',') {
        let part: CpuSet = part.parse().map_err(|error: ParseError| error.to_string())?;
        if !seen.is_disjoint(&part) {
            let twice = seen & part;
            return Err(format!(
                "{} {} named twice in {text:?}: one of them may be a mistake",
                wording::cpus(twice),
                wording::agree(twice, "is", "are")
            ));
        }
        seen |= part;
    }
    Ok(set)
}

/// Names and values in the order of the text. In a map the last of two equal names would win
/// silently.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// These pairs, replaced by those of `over` with the same names.
    pub(super) fn merged(mut self, over: Pairs) -> Pairs {
        self.0.retain(|(name, _)| over.get(name).is_none());
        self.0.extend(over.0);
        self
    }

    /// The first name that stands twice.
    pub(super) fn twice(&self) -> Option<&str> {
        let earlier =
            |at: usize, name: &str| self.0.iter().take(at).any(|(other, _)| other == name);
        self.0
            .iter()
            .enumerate()
            .find(|(at, (name, _))| earlier(*at, name))
            .map(|(_, (name, _))| name.as_str())
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values like {full-pcpus-only: \"true\"}")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = access.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(PairsVisitor)
    }
}

/// A Kubernetes quantity of CPUs, in thousandths of a CPU.
///
/// # Errors
/// What was expected instead; also for more than can be counted.
pub(super) fn parse_milli_cpus(text: &str) -> Result<u64, String> {
    let milli = Quantity::parse(text).ok().map(Quantity::milli);
    milli.filter(|milli| *milli < u64::MAX).ok_or_else(|| {
        format!("{text:?} is not an amount of CPUs: expected one like 2, 1.5 or 500m")
    })
}
