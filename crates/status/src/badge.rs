//! [`Badge`]: the letters by which a reader finds a container of the list in the picture, and in the
//! next picture.

use cpuset::CpuSet;
use ledger::{ContainerView, PodUid, View};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Colours that people of every colour vision tell apart (Okabe and Ito, "Color Universal Design",
/// 2008), without black and grey, which mean other things here.
pub(crate) const COLOURS: u16 = 7;
/// The first is none. With textures, containers of the same colour do not look like one.
pub(crate) const TEXTURES: u16 = 5;

/// A container's letters, colour and texture. All follow from one number, so the letters suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Badge(pub u16);

impl Badge {
    /// A number below [`COLOURS`].
    pub fn colour(self) -> u16 {
        self.0 % COLOURS
    }

    /// A number below [`TEXTURES`].
    pub(crate) fn texture(self) -> u16 {
        self.0 / COLOURS % TEXTURES
    }
}

impl fmt::Display for Badge {
    /// `A` to `Z`, `AA` to `ZZ`, `AAA` ... as columns of spreadsheets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = String::new();
        let mut rest = usize::from(self.0) + 1;
        while rest > 0 {
            rest -= 1;
            letters.insert(0, char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest % 26]));
            rest /= 26;
        }
        letters.fmt(f)
    }
}

impl FromStr for Badge {
    type Err = ();

    fn from_str(text: &str) -> Result<Badge, ()> {
        let mut number = 0u32;
        for letter in text.bytes() {
            if !letter.is_ascii_uppercase() || number > u32::from(u16::MAX) {
                return Err(());
            }
            number = number * 26 + u32::from(letter - b'A') + 1;
        }
        let at = number.checked_sub(1).and_then(|at| u16::try_from(at).ok());
        at.map(Badge).ok_or(())
    }
}

impl Serialize for Badge {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Badge {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Badge, D::Error> {
        let letters = String::deserialize(from)?;
        letters.parse().map_err(|()| D::Error::custom(format!("{letters:?} are no badge")))
    }
}

/// The badges of containers, and of pods with an own pool under an empty container name. A container
/// keeps its badge while it has exclusive CPUs, so two pictures of a node differ only where the node
/// differs.
#[derive(Debug, Clone, Default)]
pub struct Badges(BTreeMap<(PodUid, String), Badge>);

impl Badges {
    /// Drops the badges of containers that are gone, and gives each new one the first free badge,
    /// in the order of their lowest CPUs.
    pub fn follow(&mut self, view: &View) {
        let mut present: Vec<(CpuSet, (PodUid, String))> = Vec::new();
        for container in &view.containers {
            present.extend(container.exclusive.map(|cpus| (cpus, key(container))));
            if !container.own_pool.is_empty() {
                present.push((*container.own_pool, pool_key(container)));
            }
        }
        present.sort_by_key(|(cpus, _)| cpus.first());
        // Several containers share an own pool.
        present.dedup();
        let before = std::mem::take(&mut self.0);
        let mut new = Vec::new();
        for (_, name) in present {
            match before.get(&name) {
                Some(badge) => {
                    self.0.insert(name, *badge);
                }
                None => new.push(name),
            }
        }
        let taken: BTreeSet<Badge> = self.0.values().copied().collect();
        // There are more badges than CPUs, so each new container gets one.
        let free = (0..=u16::MAX).map(Badge).filter(|badge| !taken.contains(badge));
        self.0.extend(new.into_iter().zip(free));
    }

    /// The badge of a container, if it had exclusive CPUs when this last followed.
    pub fn of(&self, container: &ContainerView) -> Option<Badge> {
        self.0.get(&key(container)).copied()
    }

    /// The badge of the own pool that a container shared when this last followed.
    pub(crate) fn of_own_pool(&self, container: &ContainerView) -> Option<Badge> {
        if container.own_pool.is_empty() {
            return None;
        }
        self.0.get(&pool_key(container)).copied()
    }
}

fn pool_key(container: &ContainerView) -> (PodUid, String) {
    (container.pod.uid.clone(), String::new())
}

fn key(container: &ContainerView) -> (PodUid, String) {
    (container.pod.uid.clone(), container.name.clone())
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Badge {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Badge".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "Letters." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn badges_count_like_columns_of_a_spreadsheet() {
        for (at, letters) in
            [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (701, "ZZ"), (702, "AAA")]
        {
            assert_eq!(Badge(at).to_string(), letters);
        }
        for at in 0..u16::MAX {
            assert_eq!(Badge(at).to_string().parse(), Ok(Badge(at)));
        }
        for bad in ["", "a", "A1", "ZZZZ", "ZZZZZZZZZZZZZZZZ", "Ä"] {
            assert_eq!(bad.parse::<Badge>(), Err(()), "{bad:?}");
        }
    }
}
