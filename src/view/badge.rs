//! [`Badge`]: how a picture distinguishes a container from others; [`Badges`]: the badge of each.

use cpuset::CpuSet;
use ledger::{ContainerView, PodUid, View};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use topology::Topology;

/// Colours that people of every colour vision tell apart (Okabe and Ito, "Color Universal Design",
/// 2008), without black and grey, which mean other things here.
pub const COLOURS: u16 = 7;
/// Textures, of which the first is none.
pub const TEXTURES: u16 = 5;

/// A container's letter, colour and texture. All follow from one number, so one of them is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Badge(pub u16);

impl Badge {
    /// A number below [`COLOURS`].
    pub fn colour(self) -> u16 {
        self.0 % COLOURS
    }

    /// A number below [`TEXTURES`].
    pub fn texture(self) -> u16 {
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

/// The containers' badges. A container keeps its badge while it has exclusive CPUs, so two pictures
/// of the node differ only where the node differs.
#[derive(Debug, Clone, Default)]
pub struct Badges(BTreeMap<(PodUid, String), Badge>);

impl Badges {
    /// Drops the badges of containers that are gone, and gives one to each new one.
    pub fn follow(&mut self, view: &View) {
        let mut present: Vec<(CpuSet, &ContainerView)> = view
            .containers
            .iter()
            .filter_map(|container| Some((container.exclusive?, container)))
            .collect();
        present.sort_unstable_by_key(|(cpus, _)| cpus.first());
        let before = std::mem::take(&mut self.0);
        let mut taken = Vec::new();
        let mut new = Vec::new();
        for (cpus, container) in present {
            let name = (container.pod.uid.clone(), container.name.clone());
            match before.get(&name) {
                Some(badge) => {
                    taken.push((*badge, cpus));
                    self.0.insert(name, *badge);
                }
                None => new.push((name, cpus)),
            }
        }
        for (name, cpus) in new {
            let badge = choose(&view.topology, &taken, &cpus);
            taken.push((badge, cpus));
            self.0.insert(name, badge);
        }
    }

    /// The badge of a container, if it had exclusive CPUs when this last followed.
    pub fn of(&self, container: &ContainerView) -> Option<Badge> {
        self.0.get(&(container.pod.uid.clone(), container.name.clone())).copied()
    }
}

/// The first free badge of the colour that the fewest neighbours have: those in the same uncore
/// caches count first, then those in the same NUMA nodes.
fn choose(topology: &Topology, taken: &[(Badge, CpuSet)], cpus: &CpuSet) -> Badge {
    let caches = around(topology.uncores().iter().map(|one| one.cpus), cpus);
    let nodes = around(topology.nodes().iter().map(|one| one.cpus), cpus);
    let neighbours = |badge: Badge, area: &CpuSet| {
        let same = taken.iter().filter(|(other, _)| other.colour() == badge.colour());
        same.filter(|(_, theirs)| !theirs.is_disjoint(area)).count()
    };
    let candidates = (0..COLOURS).filter_map(|colour| {
        let mut badges = (colour..).step_by(COLOURS.into()).map(Badge);
        badges.find(|badge| taken.iter().all(|(other, _)| other != badge))
    });
    // There are more badges than CPUs, so each colour has a free one.
    candidates
        .min_by_key(|&badge| (neighbours(badge, &caches), neighbours(badge, &nodes), badge))
        .unwrap_or(Badge(0))
}

/// All CPUs of the domains that have some of these.
fn around(domains: impl Iterator<Item = CpuSet>, cpus: &CpuSet) -> CpuSet {
    domains.filter(|domain| !domain.is_disjoint(cpus)).fold(CpuSet::EMPTY, |all, one| all | one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::synthetic::Machine;

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

    #[test]
    fn neighbours_have_different_colours() {
        let topology = "pack:1 l3:8 core:8".parse::<Machine>().unwrap().topology().unwrap();
        let mut taken = Vec::new();
        for two in 0..32usize {
            let cpus = (two * 2..two * 2 + 2).flat_map(CpuSet::of).collect();
            taken.push((choose(&topology, &taken, &cpus), cpus));
        }
        let mut badges: Vec<u16> = taken.iter().map(|(badge, _)| badge.0).collect();
        for cache in taken.chunks(4) {
            let mut colours: Vec<u16> = cache.iter().map(|(badge, _)| badge.colour()).collect();
            colours.sort_unstable();
            colours.dedup();
            assert_eq!(colours.len(), 4, "{cache:?}");
        }
        badges.sort_unstable();
        assert_eq!(badges, (0..32).collect::<Vec<_>>(), "each its own, and no letter left out");
    }
}
