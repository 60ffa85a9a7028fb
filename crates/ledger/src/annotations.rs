//! [`Annotations`]: the pod options in a pod's annotations. The edge parses them, and the ledger keeps
//! only the result.
//!
//! The form is NRI's convention: `KEY.cpu-manager.nri.io/container.NAME` for one container of the
//! pod, `KEY.cpu-manager.nri.io/pod` or the bare `KEY.cpu-manager.nri.io` for all; the most
//! specific one counts. [`terms`](super::terms) compares the pod options with the settings, which can
//! change while the pod runs.
//!
//! CRI-O's annotations are kept apart, because they count only if the settings say so.

pub(crate) mod crio;

use super::pod_option::{Cpus, Parsed, PodOption};
use placement::pod_options::PodOptions;
use placement::{Reason, Rejection};
use quiet::{InterruptMode, Knobs};
use std::borrow::Cow;
use std::collections::BTreeMap;
use wording::unknown;

/// The suffix of the keys of this plugin's annotations.
pub const DOMAIN: &str = ".cpu-manager.nri.io";

/// The most annotations for this plugin that a pod can have: every key for nine containers. The
/// limit bounds the memory and the time that the annotations of one pod can cost.
pub const MAX_ANNOTATIONS: usize = 64;

/// No value of an annotation for this plugin or for CRI-O is valid that has more bytes, or that begins as
/// one with more.
pub const MAX_VALUE: usize = 64;

/// Whether an annotation of this name is meant for this plugin.
pub fn is_pod_option(name: &str) -> bool {
    name.split_once('/').map_or(name, |(prefix, _)| prefix).ends_with(DOMAIN)
}

/// Whether an annotation of this name is one of those for CRI-O that mean something here.
pub fn is_for_crio(name: &str) -> bool {
    crio::parts(name).is_some()
}

/// A pod's options, by container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    own: ByContainer,
    /// What annotations for CRI-O ask for.
    crio: ByContainer,
    left_to_runtime: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ByContainer {
    /// For containers that no annotation names.
    others: Asked,
    /// For containers that annotations name, including the pod options for all containers.
    named: BTreeMap<String, Asked>,
    /// Whether there are more than [`MAX_ANNOTATIONS`]: none counts.
    is_too_long: bool,
}

/// The pod options for a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    pub cpus: Option<Cpus>,
    pub pod_options: PodOptions,
    pub movable: Option<bool>,
    pub interrupts: Option<InterruptMode>,
    /// Each knob is valid; the frequencies may exclude each other.
    pub knobs: Knobs,
    /// Whether an annotation for CRI-O asks for no CFS quota, or no load balancing: it changes
    /// nothing here.
    pub(super) lifts_quota: bool,
    pub(super) stops_balancing: bool,
    /// Refuses the container, as an annotation for it is wrong.
    pub(super) error: Option<Rejection>,
}

impl Annotations {
    pub fn is_empty(&self) -> bool {
        *self == Annotations::default()
    }

    /// Leaves interrupts and latency knobs of the pod to the runtime, which sets them itself.
    pub fn leave_to_runtime(&mut self) {
        self.left_to_runtime = true;
    }

    pub fn is_left_to_runtime(&self) -> bool {
        self.left_to_runtime
    }

    /// Whether a pod has so many annotations of a kind that none of them counts.
    pub(super) fn are_too_many(&self) -> bool {
        self.own.is_too_long || self.crio.is_too_long
    }

    /// The pod options for the container of this name, in annotations for this plugin; with
    /// `reads_crio` what annotations for CRI-O ask for in addition.
    pub(super) fn read(&self, container: &str, reads_crio: bool) -> Cow<'_, Asked> {
        let own = self.own.of(container);
        let crio = self.crio.of(container);
        if !reads_crio || self.left_to_runtime || *crio == Asked::default() {
            return Cow::Borrowed(own);
        }
        Cow::Owned(Asked {
            interrupts: own.interrupts.or(crio.interrupts),
            knobs: either(&own.knobs, &crio.knobs),
            lifts_quota: crio.lifts_quota,
            stops_balancing: crio.stops_balancing,
            error: own.error.clone().or_else(|| crio.error.clone()),
            ..own.clone()
        })
    }

    /// The pod options for each container that is named, then for all others, in annotations for this
    /// plugin.
    pub(super) fn all(&self) -> impl Iterator<Item = &Asked> {
        self.own.named.values().chain([&self.own.others])
    }
}

impl ByContainer {
    fn of(&self, container: &str) -> &Asked {
        self.named.get(container).unwrap_or(&self.others)
    }

    /// Those for one container, or for all others.
    fn entry(&mut self, container: Option<&str>) -> &mut Asked {
        let ByContainer { others, named, .. } = self;
        match container {
            None => others,
            Some(container) => named.entry(container.to_owned()).or_insert_with(|| others.clone()),
        }
    }

    /// Refuses every container. They count as shared, so that the pod keeps no CPUs free for them.
    fn too_many() -> ByContainer {
        let message = format!(
            "the pod has more than {MAX_ANNOTATIONS} annotations KEY{DOMAIN}; use KEY{DOMAIN}/pod for what \
             applies to all of its containers"
        );
        let error = Some(Rejection::new(Reason::PodOptionNotAllowed, message));
        let others = Asked { cpus: Some(Cpus::Shared), error, ..Asked::default() };
        ByContainer { others, named: BTreeMap::new(), is_too_long: true }
    }

    fn too_many_for_crio() -> ByContainer {
        let message = format!(
            "the pod has more than {MAX_ANNOTATIONS} annotations KEY.crio.io; use KEY.crio.io without a name for \
             what applies to all of its containers"
        );
        let error = Some(Rejection::new(Reason::PodOptionNotAllowed, message));
        let others = Asked { error, ..Asked::default() };
        ByContainer { others, named: BTreeMap::new(), is_too_long: true }
    }

    fn of_own<N: AsRef<str>, V: AsRef<str>>(annotations: &[(N, V)]) -> ByContainer {
        if annotations.len() > MAX_ANNOTATIONS {
            return ByContainer::too_many();
        }
        let mut parsed: Vec<_> =
            annotations.iter().map(|(name, value)| parse(name.as_ref(), value.as_ref())).collect();
        // The most specific one comes last. With the name, the first error is always the same.
        parsed.sort_unstable_by_key(|(addressee, name, _)| (*addressee, *name));
        let mut pod_options = ByContainer::default();
        for (addressee, name, pod_option) in parsed {
            let asked = match addressee {
                Addressee::Bare | Addressee::Pod => pod_options.entry(None),
                Addressee::Container(container) => pod_options.entry(Some(container)),
            };
            match pod_option {
                Ok(Parsed::PodOption(pod_option)) => asked.set(pod_option),
                Ok(Parsed::Knob(knob)) => asked.knobs = either(&knob, &asked.knobs),
                Err(why) => asked.refuse(name, &why),
            }
        }
        pod_options
    }

    fn of_crio<N: AsRef<str>, V: AsRef<str>>(annotations: &[(N, V)]) -> ByContainer {
        if annotations.len() > MAX_ANNOTATIONS {
            return ByContainer::too_many_for_crio();
        }
        let mut parsed: Vec<(Option<&str>, &str, &str, &str)> = Vec::new();
        for (name, value) in annotations {
            if let Some((key, container)) = crio::parts(name.as_ref()) {
                parsed.push((container, name.as_ref(), key, value.as_ref()));
            }
        }
        // Those that name no container come first.
        parsed.sort_unstable();
        let mut pod_options = ByContainer::default();
        for (container, name, key, value) in parsed {
            let asked = pod_options.entry(container);
            if let Err(why) = asked.set_crio(key, value) {
                asked.refuse(name, &why);
            }
        }
        pod_options
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Annotations {
    /// Parses a pod's annotations, without those for other programs. The names have to differ.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(all: I) -> Annotations {
        let mut own = Vec::new();
        let mut crio = Vec::new();
        for annotation in all {
            let name = annotation.0.as_ref();
            if is_pod_option(name) {
                own.push(annotation);
            } else if is_for_crio(name) {
                crio.push(annotation);
            }
        }
        Annotations {
            own: ByContainer::of_own(&own),
            crio: ByContainer::of_crio(&crio),
            left_to_runtime: false,
        }
    }
}

/// The knobs of `first`, and those of `second` that it lacks.
pub(super) fn either(first: &Knobs, second: &Knobs) -> Knobs {
    Knobs {
        c_states: first.c_states.or(second.c_states),
        governor: first.governor.clone().or_else(|| second.governor.clone()),
        min_frequency_khz: first.min_frequency_khz.or(second.min_frequency_khz),
        max_frequency_khz: first.max_frequency_khz.or(second.max_frequency_khz),
    }
}

/// Which containers an annotation is for; the most specific one is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Addressee<'a> {
    Bare,
    Pod,
    Container(&'a str),
}

fn parse<'a>(name: &'a str, value: &str) -> (Addressee<'a>, &'a str, Result<Parsed, String>) {
    let (prefix, addressee) = match name.split_once('/') {
        Some((prefix, addressee)) => (prefix, Some(addressee)),
        None => (name, None),
    };
    let pod_option = super::pod_option::parse(prefix.strip_suffix(DOMAIN).unwrap_or(prefix), value);
    match addressee {
        None => (Addressee::Bare, name, pod_option),
        Some("pod") => (Addressee::Pod, name, pod_option),
        Some(addressee) => match addressee.strip_prefix("container.") {
            Some(container) => (Addressee::Container(container), name, pod_option),
            // Any container may be meant, so the error is for all of them.
            None => (Addressee::Bare, name, Err(unknown(addressee, &["pod", "container.NAME"]))),
        },
    }
}

impl Asked {
    pub(super) fn set(&mut self, pod_option: PodOption) {
        match pod_option {
            PodOption::Cpus(cpus) => self.cpus = Some(cpus),
            PodOption::Uncore(uncore) => self.pod_options.uncore = Some(uncore),
            PodOption::Numa(numa) => self.pod_options.numa = Some(numa),
            PodOption::Smt(smt) => self.pod_options.smt = Some(smt),
            PodOption::Movable(movable) => self.movable = Some(movable),
            PodOption::Placement(engine) => self.pod_options.engine = Some(engine),
            PodOption::Isolated(isolated) => self.pod_options.isolated = Some(isolated),
            PodOption::Interrupts(mode) => self.interrupts = Some(mode),
        }
    }

    /// Refuses the container, unless an earlier annotation already does.
    fn refuse(&mut self, name: &str, why: &str) {
        let message = format!("annotation {name}: {why}");
        self.error.get_or_insert(Rejection::new(Reason::PodOptionUnknown, message));
    }

    pub(super) fn list(&self) -> impl Iterator<Item = PodOption> {
        let cpus = self.cpus.map(PodOption::Cpus).into_iter();
        cpus.chain(PodOption::list(&self.pod_options))
            .chain(self.movable.map(PodOption::Movable))
            .chain(self.interrupts.map(PodOption::Interrupts))
    }
}

#[cfg(test)]
mod tests;
