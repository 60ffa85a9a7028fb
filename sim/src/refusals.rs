//! Pods that are refused: with more annotations or devices than the plugin accepts from one, or for want of CPUs.

use crate::dice::Dice;
use crate::pods::{Pod, Sandbox, Serial};
use crate::settings::Trouble;
use crate::world::World;
use ledger::PodLevelResources;
use ledger::annotations::{DOMAIN, MAX_ANNOTATIONS};

/// What a pod has more of than the plugin accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    Annotations,
    /// Of the container of this slot.
    Devices(usize),
}

impl Pod {
    /// Gives some pods more annotations or devices than they may have.
    pub fn exceed(&mut self, dice: &mut Dice) {
        self.excess = match dice.below(100) {
            0 => Some(Excess::Annotations),
            1 | 2 => Some(Excess::Devices(dice.below(self.slots.len()))),
            _ => None,
        };
        if self.excess == Some(Excess::Annotations) {
            // None counts, and its containers share CPUs.
            let names = (0..MAX_ANNOTATIONS).map(|at| format!("cpus{DOMAIN}/container.other{at}"));
            let names = names.chain([format!("cpus{DOMAIN}")]);
            self.annotations = names.map(|name| (name, "shared".to_owned())).collect();
        }
    }
}

impl World {
    /// Checks that a container is refused because there is too much of something only if there is, and that a new
    /// container of a pod with too many annotations is not granted.
    pub fn check_excess(&mut self, serial: Serial, refused: Option<&str>) {
        let container = &self.containers[&serial];
        let pod = &self.pods[&container.pod];
        let excess = pod.excess;
        // Without exclusive CPUs no annotation counts anyway.
        let counts = self.is_static()
            && !container.is_set_by_others()
            && !self.is_for_reserved(pod)
            && !self.usable.gives_none(pod.namespace)
            && !self.oracle.is_kubelets(self.now);
        let wrong = match refused {
            Some(why) if why.contains("the container has too many devices") => {
                excess != Some(Excess::Devices(container.slot)) && !self.oracle.kubelet_lies
            }
            Some(why) if why.contains("the pod has more than") => {
                excess != Some(Excess::Annotations)
            }
            Some(_) => false,
            None => excess == Some(Excess::Annotations) && counts,
        };
        if wrong {
            let text = self.describe(serial);
            self.fail(format!(
                "{text} is of a pod with excess {excess:?}, and is refused: {refused:?}"
            ));
        }
    }

    /// Checks that a container is refused for want of CPUs only if the pods that have CPUs request more
    /// than there are: a refused container must not keep CPUs from another pod.
    pub fn check_refusal(&mut self, why: &str) {
        // A pod that holds more CPUs than it requests also holds them between two attempts of a container.
        let is_more = |pod: &Pod| (0..pod.slots.len()).any(|slot| pod_options_more(pod, slot));
        // A pod with an own pool may lack CPUs for a slice.
        let has_own_pools = self.in_force.pod_level_resources == PodLevelResources::OwnPool;
        if self.settings.trouble != Trouble::None
            || has_own_pools
            || !why.contains("not enough cpus available")
            || self.containers.values().any(|one| one.is_set_by_others() || one.mixed)
            || self.pods.values().any(is_more)
            || self.pods.values().any(|pod| self.pod_options_isolated(pod))
        {
            return;
        }
        let has_cpus = |pod: &&Pod| {
            let serials = self.pod_of.values().filter(|of| **of == pod.id).count();
            let refused: u32 = pod.slots.iter().map(|slot| slot.attempts).sum();
            let is_over = matches!(pod.sandbox, Sandbox::Stopped | Sandbox::Removed);
            !is_over && (refused == 0 || serials > refused as usize)
        };
        // Until its notice ends, a container keeps the CPUs that a resize takes away.
        let held = |pod: &Pod, slot: usize| {
            let instance = pod.slots[slot].instance.and_then(|serial| self.containers.get(&serial));
            let exclusive = instance.and_then(|container| container.exclusive);
            exclusive.map_or(0, |cpus| cpus.len() as u64 * 1000)
        };
        // Like the kubelet, the plugin may choose other CPUs for a container than those of the pod's ended
        // init containers, and the pod holds both. A container without resources requests the pod's.
        let most = |pod: &Pod| {
            let slots = (0..pod.slots.len()).map(|at| pod.of_container(at).0.max(held(pod, at)));
            let slots: u64 = slots.sum();
            slots.max(pod.request()).div_ceil(1000)
        };
        let asked: u64 = self.pods.values().filter(has_cpus).map(most).sum();
        let requested = why.split("requested=").nth(1).and_then(|text| text.split(',').next());
        let requested: u64 = requested.and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
        let there = (self.assignable() & self.kernel.lock().usable()).len() as u64;
        if asked.saturating_add(requested) <= there {
            self.fail(format!(
                "{there} CPUs, pods ask for {asked}, and a container is refused: {why}"
            ));
        }
    }
}

/// Whether a container of this pod has a pod option for idle CPUs in addition to its own.
pub fn pod_options_more(pod: &Pod, slot: usize) -> bool {
    pod.pod_options(slot, ("smt", "isolate")) || pod.pod_options(slot, ("uncore", "exclusive"))
}
