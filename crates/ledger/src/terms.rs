//! [`Terms`]: a container's pod options, as far as the settings allow them, and the defaults of its
//! namespace.
//!
//! The bounds of the namespace ([`Namespaces`](super::Namespaces)) can change while the pod runs,
//! so the terms are computed again with each change.

use super::annotations::{Asked, either};
use super::model::{CpuRequest, Pod, PoolKind, Qos};
use super::namespaces::{Bounds, KnobBounds};
use super::pod_option::{Cpus, PodOption};
use super::policy::Policy;
use super::settings::Settings;
use placement::pod_options::{Margin, Numa, PodOptions, Uncore};
use placement::{DeviceNodes, EngineKind, Reason, Rejection};
use quiet::{InterruptMode, KnobError, Knobs};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Terms {
    /// Whether the container gets exclusive CPUs; `None` follows the kubelet's rule.
    pub(super) cpus: Option<Cpus>,
    /// Whether `cpus` is the pod's own pod option, not a default: if it cannot be met, the container is
    /// refused.
    pub(super) insists: bool,
    pub(super) pod_options: PodOptions,
    pub(super) devices: DeviceNodes,
    /// Whether it may move to other exclusive CPUs while it runs; `None` allows it.
    pub(super) movable: Option<bool>,
    /// What happens to device interrupts on its exclusive CPUs; `None` follows the node's settings.
    pub(super) interrupts: Option<InterruptMode>,
    /// The latency knobs of its exclusive CPUs.
    pub(super) knobs: Knobs,
}

impl Terms {
    /// How many exclusive CPUs a container asks for; `None` if it asks for none. By the kubelet's
    /// rule it is the request for whole CPUs in a Guaranteed pod. A Burstable pod needs a pod
    /// option, and its request may be smaller than its limit.
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

    /// The rejection of a container that does not request whole CPUs, though its pod asks for
    /// exclusive ones.
    pub(super) fn missing_whole_cpus(&self, qos: Qos, cpu: &CpuRequest) -> Option<Rejection> {
        // With an unknown class it asks for none, even if it requests whole CPUs.
        if qos == Qos::Unknown {
            return None;
        }
        let pod_option = self.insisted()?;
        let asks = || match cpu.request.or(cpu.limit) {
            Some(amount) => format!("{amount} CPUs are"),
            None => "none is".to_owned(),
        };
        Some(unmet(format!(
            "{pod_option} needs a request for whole CPUs, but {} requested",
            asks()
        )))
    }

    /// The pod option for exclusive CPUs, if it is the pod's own.
    fn insisted(&self) -> Option<PodOption> {
        let cpus = self.cpus.filter(|cpus| self.insists && *cpus != Cpus::Shared)?;
        Some(PodOption::Cpus(cpus))
    }

    /// Allows a container to share CPUs, as under the kubelet, because the rest of its pod uses up
    /// the budget. It is refused if its pod asks for exclusive CPUs.
    pub(super) fn fall_back_to_shared(&self) -> Result<(), Rejection> {
        match self.insisted() {
            Some(pod_option) => Err(unmet(format!(
                "{pod_option} is more than the CPU limit of the pod leaves for this container"
            ))),
            None => Ok(()),
        }
    }

    /// The terms of a new container, without its devices.
    ///
    /// # Errors
    /// If an annotation for it is unknown or not allowed.
    pub(super) fn allowed(
        settings: &Settings,
        pod: &Pod,
        container: &str,
    ) -> Result<Terms, Rejection> {
        if settings.policy == Policy::None {
            return Ok(Terms::default());
        }
        let asked = pod.annotations.read(container, settings.reads_crio);
        Ok(resolve(&asked, &pod.namespace, bounds_of(settings, pod))?.beside_runtime(pod))
    }

    /// The terms of a running container, without its devices. If one of its pod options is no longer
    /// allowed, none counts except the one to share CPUs: no container gets exclusive CPUs because
    /// it may not ask to share.
    pub(super) fn still_allowed(settings: &Settings, pod: &Pod, container: &str) -> Terms {
        if settings.policy == Policy::None {
            return Terms::default();
        }
        let bounds = bounds_of(settings, pod);
        let asked = pod.annotations.read(container, settings.reads_crio);
        resolve_leniently(&asked, &pod.namespace, bounds).beside_runtime(pod)
    }

    /// These terms without what the runtime itself does for the pod.
    fn beside_runtime(self, pod: &Pod) -> Terms {
        if pod.annotations.is_left_to_runtime() {
            Terms { interrupts: Some(InterruptMode::Leave), knobs: Knobs::NONE, ..self }
        } else {
            self
        }
    }
}

/// Whether all containers of a pod share CPUs.
pub(super) fn opts_out(settings: &Settings, pod: &Pod) -> bool {
    if settings.policy == Policy::None {
        return false;
    }
    let bounds = bounds_of(settings, pod);
    let shares =
        |asked| resolve_leniently(asked, &pod.namespace, bounds).cpus == Some(Cpus::Shared);
    pod.annotations.all().all(shares)
}

/// Whether CPUs stay idle for a container of a pod.
pub(super) fn keeps_cpus_idle(settings: &Settings, pod: &Pod) -> bool {
    let bounds = bounds_of(settings, pod);
    let margin = |asked| resolve_leniently(asked, &pod.namespace, bounds).pod_options.margin();
    pod.annotations.all().any(|asked| margin(asked) != Margin::NONE)
}

/// The bounds of a pod's options. No container of a pod on the reserved CPUs gets exclusive ones.
fn bounds_of<'a>(settings: &'a Settings, pod: &Pod) -> Option<&'a Bounds> {
    static WITHOUT_EXCLUSIVE: Bounds = Bounds {
        policy: Some(Policy::None),
        allow: BTreeSet::new(),
        defaults: Vec::new(),
        knobs: KnobBounds::NONE,
        default_knobs: Knobs::NONE,
    };
    match settings.pool_of(pod) {
        PoolKind::General => settings.namespaces.of(&pod.namespace),
        PoolKind::Reserved => Some(&WITHOUT_EXCLUSIVE),
    }
}

fn resolve_leniently(asked: &Asked, namespace: &str, bounds: Option<&Bounds>) -> Terms {
    resolve(asked, namespace, bounds).unwrap_or_else(|_| {
        let cpus = asked.cpus.filter(|cpus| *cpus == Cpus::Shared);
        Terms { cpus, ..Terms::default() }
    })
}

fn resolve(asked: &Asked, namespace: &str, bounds: Option<&Bounds>) -> Result<Terms, Rejection> {
    if bounds.is_some_and(|bounds| bounds.policy == Some(Policy::None)) {
        // All other pod options are about exclusive CPUs, which no container there gets.
        return Ok(Terms { cpus: Some(Cpus::Shared), ..Terms::default() });
    }
    if let Some(error) = &asked.error {
        return Err(error.clone());
    }
    let is_allowed =
        |pod_option: &PodOption| bounds.is_some_and(|bounds| bounds.allow.contains(pod_option));
    if let Some(pod_option) = asked.list().find(|pod_option| !is_allowed(pod_option)) {
        let (key, value) = pod_option.parts();
        return Err(not_allowed(namespace, key, value));
    }
    let forbidden = match bounds {
        Some(bounds) => bounds.knobs.first_forbidden(&asked.knobs),
        None => KnobBounds::NONE.first_forbidden(&asked.knobs),
    };
    if let Some((key, value)) = forbidden {
        return Err(not_allowed(namespace, key, &value));
    }
    if let Some((one, other)) = contradiction(&asked.pod_options) {
        return Err(unmet(format!("{one} and {other} contradict each other")));
    }
    if let Some(error) = reversed(&asked.knobs) {
        return Err(unmet(error.to_string()));
    }
    let mut defaults = Asked::default();
    if let Some(bounds) = bounds {
        bounds.defaults.iter().for_each(|pod_option| defaults.set(*pod_option));
        defaults.knobs = bounds.default_knobs.clone();
    }
    let (own, default) = (&asked.pod_options, &defaults.pod_options);
    let mut pod_options = PodOptions {
        uncore: own.uncore.or(default.uncore),
        numa: own.numa.or(default.numa),
        smt: own.smt.or(default.smt),
        engine: own.engine.or(default.engine),
        isolated: own.isolated.or(default.isolated),
    };
    // The pod's own pod options do not contradict each other, so a default does: the defaults for
    // uncore caches, NUMA nodes and the engine do not count then.
    if contradiction(&pod_options).is_some() {
        pod_options = PodOptions { smt: pod_options.smt, isolated: pod_options.isolated, ..*own };
    }
    let mut knobs = either(&asked.knobs, &defaults.knobs);
    if reversed(&knobs).is_some() {
        knobs.min_frequency_khz = asked.knobs.min_frequency_khz;
        knobs.max_frequency_khz = asked.knobs.max_frequency_khz;
    }
    Ok(Terms {
        cpus: asked.cpus.or(defaults.cpus),
        insists: asked.cpus.is_some(),
        pod_options,
        devices: DeviceNodes::NONE,
        movable: asked.movable.or(defaults.movable),
        interrupts: asked.interrupts.or(defaults.interrupts),
        knobs,
    })
}

/// The error for a lowest frequency above the highest one.
fn reversed(knobs: &Knobs) -> Option<KnobError> {
    match (knobs.min_frequency_khz, knobs.max_frequency_khz) {
        (Some(min), Some(max)) if max < min => Some(KnobError::Reversed { min, max }),
        _ => None,
    }
}

/// Two pod options that exclude each other, as the policy options that they stand for do.
pub fn contradiction(pod_options: &PodOptions) -> Option<(PodOption, PodOption)> {
    if pod_options.numa != Some(Numa::Spread) {
        return None;
    }
    let spread = PodOption::Numa(Numa::Spread);
    match (pod_options.uncore, pod_options.engine) {
        (Some(uncore), _) if uncore != Uncore::Ignore => Some((PodOption::Uncore(uncore), spread)),
        (_, Some(engine @ EngineKind::Compact)) => Some((PodOption::Placement(engine), spread)),
        _ => None,
    }
}

fn unmet(message: String) -> Rejection {
    Rejection::new(Reason::PodOptionUnmet, message)
}

fn not_allowed(namespace: &str, key: &str, value: &str) -> Rejection {
    let message = format!(
        "pods of namespace {namespace:?} may not use the pod option {key}: {value}; the administrator of the node allows it in the plugin's configuration, \
         in the entry for this namespace: namespaces: [{{names: [{namespace}], allow: {{{key}: [{value}]}}}}]"
    );
    Rejection::new(Reason::PodOptionNotAllowed, message)
}

#[cfg(test)]
mod tests;
