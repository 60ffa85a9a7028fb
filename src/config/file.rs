//! The form of the file, and of the values in it.

use super::error::{ConfigError, Source};
use crate::cpuset::{CpuSet, ParseError};
use crate::placement::{Options, TopologyManager};
use crate::spelling;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The file as it stands. Field names and their meaning are KubeletConfiguration's
/// (`kubelet.config.k8s.io/v1beta1`), so that a block can be pasted from there; ours come after them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) cpu_manager_policy: Option<Text>,
    pub(super) cpu_manager_policy_options: Pairs,
    pub(super) topology_manager_policy: Option<Text>,
    pub(super) topology_manager_scope: Option<Text>,
    pub(super) topology_manager_policy_options: Pairs,
    #[serde(rename = "reservedSystemCPUs")]
    pub(super) reserved_system_cpus: Option<Text>,
    pub(super) system_reserved: Pairs,
    pub(super) kube_reserved: Pairs,
    /// In which order `prefer-align-cpus-by-uncorecache` looks at uncore caches.
    pub(super) uncore_cache_order: Option<Text>,
    /// Where the kubelet keeps its state files; empty for nowhere.
    pub(super) kubelet_state_dir: Option<Text>,
    /// What to do while the kubelet's own CPU manager is active.
    pub(super) on_active_kubelet: Option<Text>,
    /// Who keeps others off exclusive CPUs.
    pub(super) exclusivity: Option<Text>,
    /// What the control group of an exclusive container becomes where the kernel does.
    pub(super) cpuset_partition: Option<Text>,
    /// Whether no container may run otherwise than decided, also where that keeps it from running.
    pub(super) strict: Option<Text>,
    /// Whether exclusive containers are told their CPUs.
    pub(super) expose_cpus: Option<Text>,
    /// Where exclusive containers have their memory.
    pub(super) exclusive_mems: Option<Text>,
    /// What pods may wish for.
    pub(super) namespaces: Option<Shared<super::namespaces::Entry>>,
    /// In an entry of `nodes`: for which nodes it is, by their names.
    pub(super) names: Vec<Text>,
    /// In an entry of `nodes`: for which nodes it is, by their labels.
    pub(super) labels: Pairs,
    /// Overrides for nodes: each entry is a file of its own.
    pub(super) nodes: Shared<File>,
}

/// A list that is read once, and is the same in a file with or without overrides.
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

impl File {
    pub(super) fn parse(source: &Source) -> Result<File, ConfigError> {
        // An empty document, or one of comments only, is null to YAML.
        let file: Option<File> =
            serde_yaml::from_str(&source.text).map_err(|error| source.yaml(&error))?;
        let file = file.unwrap_or_default();
        file.check_pairs(source)?;
        for (at, entry) in file.nodes.iter().enumerate() {
            entry.check_pairs(&source.entry(at))?;
        }
        Ok(file)
    }

    /// Checks names and values by themselves, whatever policy they are for. Whether options of one entry go together with
    /// another's is seen where both are in force.
    fn check_pairs(&self, source: &Source) -> Result<(), ConfigError> {
        for (field, pairs) in [
            ("cpuManagerPolicyOptions", &self.cpu_manager_policy_options),
            ("topologyManagerPolicyOptions", &self.topology_manager_policy_options),
            ("systemReserved", &self.system_reserved),
            ("kubeReserved", &self.kube_reserved),
            ("labels", &self.labels),
        ] {
            if let Some(name) = pairs.twice() {
                return Err(source.at(field, format!("{name:?} stands twice")));
            }
        }
        Options::parse(self.cpu_manager_policy_options.borrowed())
            .map_err(|error| source.cpu_option(&error))?;
        TopologyManager::parse_options(self.topology_manager_policy_options.borrowed())
            .map_err(|error| source.topology_manager(&error))?;
        Ok(())
    }
}

/// A scalar as text. The kubelet wants text where people tend to write a boolean or a number; both are fine here.
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

/// `reservedSystemCPUs`: a list in the kernel's format in which no CPU is named twice and at least one is named.
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
                spelling::cpus(twice),
                spelling::agree(twice, "is", "are")
            ));
        }
        seen |= part;
    }
    Ok(set)
}

/// Names and values as they stand. Not a map: in one the last of two equal names would win without a word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// These with those of `over` in their place.
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

/// A Kubernetes CPU quantity in thousandths of a CPU: `2`, `1.5`, `500m`.
///
/// # Errors
/// What was expected instead.
pub(super) fn parse_cpu_quantity(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not an amount of CPUs: expected one like 2, 1.5 or 500m");
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    if let Some(milli) = text.strip_suffix('m') {
        return if digits(milli) { milli.parse().map_err(|_| bad()) } else { Err(bad()) };
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole) || !digits(fraction) {
        return Err(bad());
    }
    // Anything smaller than a thousandth counts as one, as in Kubernetes.
    let (milli, rest) = fraction.split_at(fraction.len().min(3));
    let milli: u64 = format!("{milli:0<3}").parse().map_err(|_| bad())?;
    let up = u64::from(rest.bytes().any(|digit| digit != b'0'));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    whole.checked_mul(1000).and_then(|whole| whole.checked_add(milli + up)).ok_or_else(bad)
}
