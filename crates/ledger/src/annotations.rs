//! [`Annotations`]: the wishes in a pod's annotations. The edge parses them, and the ledger keeps
//! only the result.
//!
//! The form is NRI's convention: `KEY.cpu-manager.nri.io/container.NAME` for one container of the
//! pod, `KEY.cpu-manager.nri.io/pod` or the bare `KEY.cpu-manager.nri.io` for all; the most
//! specific one counts. [`terms`](super::terms) compares the wishes with the settings, which can
//! change while the pod runs.

use super::wish::{Cpus, Wish};
use placement::wishes::Wishes;
use placement::{Reason, Rejection};
use std::collections::BTreeMap;
use wording::unknown;

/// The suffix of the keys of this plugin's annotations.
pub const DOMAIN: &str = ".cpu-manager.nri.io";

/// The most annotations for this plugin that a pod can have: every key for nine containers. The
/// limit bounds the memory and the time that the annotations of one pod can cost.
pub const MAX_ANNOTATIONS: usize = 64;

/// Whether an annotation of this name is meant for this plugin.
pub fn is_wish(name: &str) -> bool {
    name.split_once('/').map_or(name, |(prefix, _)| prefix).ends_with(DOMAIN)
}

/// A pod's wishes, by container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    /// For containers that no annotation names.
    others: Asked,
    /// For containers that annotations name, including the wishes for all containers.
    named: BTreeMap<String, Asked>,
}

/// The wishes for a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    pub cpus: Option<Cpus>,
    pub wishes: Wishes,
    pub movable: Option<bool>,
    /// Refuses the container, as an annotation for it is wrong.
    pub(super) error: Option<Rejection>,
}

impl Annotations {
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.others == Asked::default()
    }

    /// The wishes for the container of this name.
    pub fn of(&self, container: &str) -> &Asked {
        self.named.get(container).unwrap_or(&self.others)
    }

    /// The wishes for each container that is named, then for all others.
    pub(super) fn all(&self) -> impl Iterator<Item = &Asked> {
        self.named.values().chain([&self.others])
    }

    /// Refuses every container. They count as shared, so that the pod keeps no CPUs free for them.
    fn too_many() -> Annotations {
        let message = format!(
            "the pod has more than {MAX_ANNOTATIONS} annotations KEY{DOMAIN}; use KEY{DOMAIN}/pod for what \
             applies to all of its containers"
        );
        let error = Some(Rejection { reason: Reason::WishNotAllowed, message });
        let others = Asked { cpus: Some(Cpus::Shared), error, ..Asked::default() };
        Annotations { others, named: BTreeMap::new() }
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Annotations {
    /// Parses a pod's annotations, without those for other programs. The names have to differ.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(all: I) -> Annotations {
        let ours = all.into_iter().filter(|(name, _)| is_wish(name.as_ref()));
        let ours: Vec<(N, V)> = ours.take(MAX_ANNOTATIONS + 1).collect();
        if ours.len() > MAX_ANNOTATIONS {
            return Annotations::too_many();
        }
        let mut parsed: Vec<_> =
            ours.iter().map(|(name, value)| parse(name.as_ref(), value.as_ref())).collect();
        // The most specific one comes last. With the name, the first error is always the same.
        parsed.sort_unstable_by_key(|(addressee, name, _)| (*addressee, *name));
        let mut annotations = Annotations::default();
        for (addressee, name, wish) in parsed {
            let Annotations { others, named } = &mut annotations;
            let asked = match addressee {
                Addressee::Bare | Addressee::Pod => others,
                Addressee::Container(container) => {
                    named.entry(container.to_owned()).or_insert_with(|| others.clone())
                }
            };
            match wish {
                Ok(wish) => asked.set(wish),
                Err(why) => {
                    let message = format!("annotation {name}: {why}");
                    asked.error.get_or_insert(Rejection { reason: Reason::WishUnknown, message });
                }
            }
        }
        annotations
    }
}

/// Which containers an annotation is for; the most specific one is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Addressee<'a> {
    Bare,
    Pod,
    Container(&'a str),
}

fn parse<'a>(name: &'a str, value: &str) -> (Addressee<'a>, &'a str, Result<Wish, String>) {
    let (prefix, addressee) = match name.split_once('/') {
        Some((prefix, addressee)) => (prefix, Some(addressee)),
        None => (name, None),
    };
    let wish = Wish::parse(prefix.strip_suffix(DOMAIN).unwrap_or(prefix), value);
    match addressee {
        None => (Addressee::Bare, name, wish),
        Some("pod") => (Addressee::Pod, name, wish),
        Some(addressee) => match addressee.strip_prefix("container.") {
            Some(container) => (Addressee::Container(container), name, wish),
            // Any container may be meant, so the error is for all of them.
            None => (Addressee::Bare, name, Err(unknown(addressee, &["pod", "container.NAME"]))),
        },
    }
}

impl Asked {
    pub(super) fn set(&mut self, wish: Wish) {
        match wish {
            Wish::Cpus(cpus) => self.cpus = Some(cpus),
            Wish::Uncore(uncore) => self.wishes.uncore = Some(uncore),
            Wish::Numa(numa) => self.wishes.numa = Some(numa),
            Wish::Smt(smt) => self.wishes.smt = Some(smt),
            Wish::Movable(movable) => self.movable = Some(movable),
            Wish::Placement(engine) => self.wishes.engine = Some(engine),
            Wish::Isolated(isolated) => self.wishes.isolated = Some(isolated),
        }
    }

    pub(super) fn list(&self) -> impl Iterator<Item = Wish> {
        let cpus = self.cpus.map(Wish::Cpus).into_iter();
        cpus.chain(Wish::list(&self.wishes)).chain(self.movable.map(Wish::Movable))
    }
}

#[cfg(test)]
mod tests;
