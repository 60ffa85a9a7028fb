//! Values in the file: strings, pairs, lists of CPUs.

use cpuset::CpuSet;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A scalar as a string. Booleans and numbers are valid where the kubelet requires a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// `reservedSystemCPUs`: a list in the kernel's format, not empty. As for the kubelet, its parts may
/// overlap.
#[derive(Debug)]
pub(super) struct CpuList(pub(super) CpuSet);

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuList, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let cpus: CpuSet = text.parse().map_err(de::Error::custom)?;
        if cpus.is_empty() {
            let why = "empty list: expected CPUs like \"0-1\"; or omit the field";
            return Err(de::Error::custom(why));
        }
        Ok(CpuList(cpus))
    }
}

/// Names and values in the order of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Adds pairs, in the place of those with the same names.
    pub(super) fn merge(&mut self, over: Pairs) {
        self.0.retain(|(name, _)| over.get(name).is_none());
        self.0.extend(over.0);
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values like {NAME: VALUE}")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = access.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}
pub(super) fn absolute_path(text: &str) -> Result<PathBuf, String> {
    // The kernel's limit, without the NUL at the end.
    const MAX_PATH: usize = 4095;
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!("{text:?} is not an absolute path"));
    }
    if text.contains('\0') {
        return Err(format!("{text:?} has a NUL character, which no path can have"));
    }
    if text.len() > MAX_PATH {
        return Err(format!("{text:?} is longer than {MAX_PATH} bytes"));
    }
    Ok(path.to_owned())
}

/// An absolute path. `..` would hide where it leads.
pub(super) fn path_without_parents(text: &str) -> Result<PathBuf, String> {
    let path = absolute_path(text)?;
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} has \"..\" in it: expected a path without"));
    }
    Ok(path)
}
