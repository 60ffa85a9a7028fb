//! What a pod wishes for its containers in annotations, and what the settings allow of it.
//!
//! The form is NRI's convention: `KEY.cpu-manager.nri.io/container.NAME` for one container of the
//! pod, `KEY.cpu-manager.nri.io/pod` or the bare `KEY.cpu-manager.nri.io` for all; the most
//! specific one counts. The ledger reads annotations again whenever they matter, within the bounds
//! of the pod's namespace ([`Namespaces`](super::Namespaces)). It refuses what it does not know.

use super::model::{Container, CpuRequest, Pod, Qos};
use super::namespaces::Bounds;
use super::policy::Policy;
use super::settings::Settings;
use super::wish::{Cpus, Wish, unknown};
use crate::nodeset::NodeSet;
use crate::placement::wishes::{Numa, Uncore, Wishes};
use crate::placement::{EngineKind, Reason, Rejection, TopologyPolicy};
use std::collections::BTreeMap;
use std::iter;

/// The end of the key of this plugin's annotations.
pub const DOMAIN: &str = ".cpu-manager.nri.io";

const ADDRESSED: &str = "/container.";

/// Whether an annotation of this name is meant for this plugin.
pub fn is_wish(name: &str) -> bool {
    name.split_once('/').map_or(name, |(prefix, _)| prefix).ends_with(DOMAIN)
}

/// What a container's wishes and its namespace's defaults come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Terms {
    /// Whether it has exclusive CPUs; `None` leaves that to the kubelet's rule.
    pub(super) cpus: Option<Cpus>,
    /// Whether its pod itself says so: the ledger then refuses what it cannot meet.
    pub(super) insists: bool,
    pub(super) wishes: Wishes,
    /// The NUMA nodes of its devices; empty if they do not matter.
    pub(super) devices: NodeSet,
    /// Whether it may move to other exclusive CPUs while it runs; it may unless this says no.
    pub(super) movable: Option<bool>,
}

impl Terms {
    fn set(&mut self, wish: Wish) {
        match wish {
            Wish::Cpus(cpus) => self.cpus = Some(cpus),
            Wish::Uncore(uncore) => self.wishes.uncore = Some(uncore),
            Wish::Numa(numa) => self.wishes.numa = Some(numa),
            Wish::Smt(smt) => self.wishes.smt = Some(smt),
            Wish::Movable(movable) => self.movable = Some(movable),
            Wish::Placement(engine) => self.wishes.engine = Some(engine),
        }
    }

    /// How many exclusive CPUs a container asks for; `None` if none. By the kubelet's rule these
    /// are the whole CPUs of a Guaranteed pod. In a Burstable pod a wish is needed, and the request
    /// counts.
    pub(super) fn exclusive_cpus(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        match (self.cpus, qos) {
            (Some(Cpus::Shared), _) => None,
            (_, Qos::Guaranteed) => cpu.amount()?.whole_cpus(),
            (Some(Cpus::Exclusive | Cpus::Mixed), Qos::Burstable) => {
                cpu.request.or(cpu.limit)?.whole_cpus()
            }
            _ => None,
        }
    }

    /// The rejection of a container that its pod wants exclusive CPUs for and that does not request
    /// whole ones.
    pub(super) fn without_whole_cpus(&self, qos: Qos, cpu: &CpuRequest) -> Option<Rejection> {
        let wish = self.insisted().filter(|_| qos != Qos::Unknown)?;
        let asks = || match cpu.request.or(cpu.limit) {
            Some(amount) => format!("{amount} CPUs are"),
            None => "none is".to_owned(),
        };
        Some(unmet(format!("{wish} needs a request for whole CPUs, but {} requested", asks())))
    }

    /// The wish for exclusive CPUs, if the pod itself has it.
    fn insisted(&self) -> Option<Wish> {
        let cpus = self.cpus.filter(|cpus| self.insists && *cpus != Cpus::Shared)?;
        Some(Wish::Cpus(cpus))
    }

    /// What follows if the rest of the pod uses its budget up: the container shares, as under the
    /// kubelet.
    ///
    /// # Errors
    /// If the pod itself wants exclusive CPUs for the container.
    pub(super) fn without_room(&self) -> Result<(), Rejection> {
        match self.insisted() {
            Some(wish) => Err(unmet(format!(
                "{wish} is more than the CPU limit of the pod leaves for this container"
            ))),
            None => Ok(()),
        }
    }
}

impl Terms {
    /// The terms of a new container.
    ///
    /// # Errors
    /// If an annotation for it is unknown or not allowed.
    pub(super) fn of_new(
        settings: &Settings,
        pod: &Pod,
        container: &Container,
    ) -> Result<Terms, Rejection> {
        Ok(wished(settings, pod, &container.name)?.with_devices(settings, container))
    }

    pub(super) fn of_running(settings: &Settings, pod: &Pod, container: &Container) -> Terms {
        Terms::standing(settings, pod, &container.name).with_devices(settings, container)
    }

    /// The terms of a container that runs already, without its devices. Wishes that are no longer
    /// allowed do not count, except the one to share CPUs: no container gets exclusive CPUs because
    /// it may not ask to share.
    pub(super) fn standing(settings: &Settings, pod: &Pod, container: &str) -> Terms {
        wished(settings, pod, container).unwrap_or_else(|_| {
            let shares = shares_by_itself(pod, container);
            Terms { cpus: shares.then_some(Cpus::Shared), ..Terms::default() }
        })
    }

    fn with_devices(mut self, settings: &Settings, container: &Container) -> Terms {
        if !container.devices.is_empty() {
            // Without a topology manager the devices' nodes do not matter.
            let placement = self.wishes.settings(&settings.placement);
            if placement.topology_manager.policy != TopologyPolicy::None {
                let nodes = container.devices.iter().filter_map(|device| device.node);
                self.devices = nodes.collect();
            }
        }
        self
    }
}

/// Whether all containers of a pod share CPUs.
pub(super) fn opts_out(settings: &Settings, pod: &Pod) -> bool {
    let addressed = pod.annotations.iter().filter_map(|(name, _)| name.split_once(ADDRESSED));
    // The empty name stands for all containers that no annotation names.
    iter::once("")
        .chain(addressed.map(|(_, name)| name))
        .all(|name| Terms::standing(settings, pod, name).cpus == Some(Cpus::Shared))
}

fn wished(settings: &Settings, pod: &Pod, container: &str) -> Result<Terms, Rejection> {
    let bounds = &settings.namespaces;
    let silent = bounds.is_empty() && pod.annotations.is_empty();
    if silent || settings.policy == Policy::None {
        return Ok(Terms::default());
    }
    resolve(pod, container, bounds.of(&pod.namespace))
}

/// Which containers an annotation is for; the most specific one is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Addressee {
    Bare,
    Pod,
    Container,
}

impl Addressee {
    /// Reads the text after the key; `None` if it names another container.
    fn parse(whom: Option<&str>, container: &str) -> Result<Option<Addressee>, String> {
        match whom {
            None => Ok(Some(Addressee::Bare)),
            Some("pod") => Ok(Some(Addressee::Pod)),
            Some(whom) => match whom.strip_prefix("container.") {
                Some(name) => Ok((name == container).then_some(Addressee::Container)),
                None => Err(unknown(whom, &["pod", "container.NAME"])),
            },
        }
    }
}

/// The annotations of a pod that are for a container: key, address and wish of each.
fn said<'a>(
    pod: &'a Pod,
    container: &'a str,
) -> impl Iterator<Item = Result<(&'a str, Addressee, Wish), Rejection>> {
    pod.annotations.iter().filter_map(move |(name, value)| {
        let (prefix, whom) = match name.split_once('/') {
            Some((prefix, whom)) => (prefix, Some(whom)),
            None => (name.as_str(), None),
        };
        let key = prefix.strip_suffix(DOMAIN).unwrap_or(prefix);
        let address = Addressee::parse(whom, container).transpose()?;
        let said = address.and_then(|address| Ok((key, address, Wish::parse(key, value)?)));
        Some(said.map_err(|why| Rejection {
            reason: Reason::WishUnknown,
            message: format!("annotation {name}: {why}"),
        }))
    })
}

/// Whether a pod itself wants a container to share CPUs, allowed or not.
fn shares_by_itself(pod: &Pod, container: &str) -> bool {
    let cpus = said(pod, container).flatten().filter_map(|(_, address, wish)| match wish {
        Wish::Cpus(cpus) => Some((address, cpus)),
        _ => None,
    });
    cpus.max().is_some_and(|(_, cpus)| cpus == Cpus::Shared)
}

fn resolve(pod: &Pod, container: &str, bounds: Option<&Bounds>) -> Result<Terms, Rejection> {
    if bounds.is_some_and(|bounds| bounds.policy == Some(Policy::None)) {
        // No container there has exclusive CPUs, so all other wishes are void.
        return Ok(Terms { cpus: Some(Cpus::Shared), ..Terms::default() });
    }
    let mut by_key = BTreeMap::new();
    for said in said(pod, container) {
        let (key, address, wish) = said?;
        let known = by_key.entry(key).or_insert((address, wish));
        *known = (address, wish).max(*known);
    }
    let mut own = Terms::default();
    for (_, wish) in by_key.into_values() {
        if !bounds.is_some_and(|bounds| bounds.allow.contains(&wish)) {
            return Err(not_allowed(&pod.namespace, wish));
        }
        own.set(wish);
    }
    if let Some((one, other)) = contradiction(&own.wishes) {
        return Err(unmet(format!("{one} and {other} contradict each other")));
    }
    let mut terms = Terms { insists: own.cpus.is_some(), ..Terms::default() };
    let defaults = bounds.map(|bounds| bounds.defaults.as_slice()).unwrap_or_default();
    defaults.iter().for_each(|wish| terms.set(*wish));
    let mut wishes = Wishes {
        uncore: own.wishes.uncore.or(terms.wishes.uncore),
        numa: own.wishes.numa.or(terms.wishes.numa),
        smt: own.wishes.smt.or(terms.wishes.smt),
        engine: own.wishes.engine.or(terms.wishes.engine),
    };
    // A default gives way to a wish that it contradicts.
    if contradiction(&wishes).is_some() {
        wishes = Wishes { smt: wishes.smt, ..own.wishes };
    }
    let movable = own.movable.or(terms.movable);
    Ok(Terms { cpus: own.cpus.or(terms.cpus), wishes, movable, ..terms })
}

/// Two wishes that exclude each other, as the policy options behind them do.
pub fn contradiction(wishes: &Wishes) -> Option<(Wish, Wish)> {
    if wishes.numa != Some(Numa::Spread) {
        return None;
    }
    let spread = Wish::Numa(Numa::Spread);
    match (wishes.uncore, wishes.engine) {
        (Some(uncore), _) if uncore != Uncore::Ignore => Some((Wish::Uncore(uncore), spread)),
        (_, Some(engine @ EngineKind::Compact)) => Some((Wish::Placement(engine), spread)),
        _ => None,
    }
}

fn unmet(message: String) -> Rejection {
    Rejection { reason: Reason::WishUnmet, message }
}

fn not_allowed(namespace: &str, wish: Wish) -> Rejection {
    let (key, value) = wish.parts();
    let message = format!(
        "pods of namespace {namespace:?} may not wish for {wish}; the administrator of the node allows it in the plugin's configuration, \
         in the entry for this namespace: namespaces: [{{names: [{namespace}], allow: {{{key}: [{value}]}}}}]"
    );
    Rejection { reason: Reason::WishNotAllowed, message }
}

#[cfg(test)]
mod tests;
