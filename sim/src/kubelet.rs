//! The kubelet's own CPU manager, which an administrator may switch on and off.
//!
//! Under the static policy a kubelet assigns CPUs when it starts and when it admits a pod, names CPUs
//! for every container, and corrects deviations every ten seconds.

use crate::oracle::Key;
use crate::pods::{Container, PodId, Serial, State};
use crate::runtime::Task;
use crate::world::World;
use cpuset::CpuSet;
use daemon::Input;
use kubelet::{StateFile, StateFileReading};
use ledger::{KubeletClaim, Named, PodUid};
use std::collections::BTreeMap;
use std::time::Duration;

const RECONCILE: Duration = Duration::from_secs(10);

/// The window in which the kubelet's CPU manager assigns CPUs.
const ASSIGNED: &str = "assigned by the kubelet";

/// The content of `cpu_manager_state`. The file does not exist before the first switch.
#[derive(Debug, Default)]
pub struct CpuManager {
    policy: Option<&'static str>,
    claims: BTreeMap<(PodId, String), CpuSet>,
}

impl CpuManager {
    pub fn is_static(&self) -> bool {
        self.policy == Some("static")
    }
}

impl World {
    /// What the plugin reads in the kubelet's directory, if it is configured to.
    pub fn read_kubelet_state(&self) -> StateFileReading {
        let manager = &self.cpu_manager;
        let Some(policy) = manager.policy else {
            return StateFileReading::Missing;
        };
        let claim = |((pod, name), cpus): (&(PodId, String), &CpuSet)| {
            let uid = PodUid(self.pods.get(pod)?.uid().into());
            Some(KubeletClaim { of: Named::Container(uid, name.clone()), cpus: *cpus })
        };
        let claims = manager.claims.iter().filter_map(claim).collect();
        let shared = self.left_by_kubelet();
        StateFileReading::StateFile(StateFile {
            policy: policy.to_owned(),
            shared,
            claims,
            pods: Vec::new(),
        })
    }

    fn left_by_kubelet(&self) -> CpuSet {
        let online = self.kernel.lock().online;
        self.cpu_manager.claims.values().fold(online, |left, cpus| left - *cpus)
    }

    /// The administrator changes the kubelet's policy, deletes its state file and restarts it.
    pub fn switch_cpu_manager(&mut self) {
        let was_static = self.cpu_manager.is_static();
        self.cpu_manager.policy = Some(if was_static { "none" } else { "static" });
        self.say(format!("the kubelet's CPU manager: {:?}", self.cpu_manager.policy));
        self.oracle.is_unsteady = true;
        self.note_all_memory_adopted();
        self.oracle.changed = true;
        self.oracle.open(Key::Kubelet, ASSIGNED, "");
        if was_static {
            self.note_policy();
            for serial in self.running_containers() {
                let container = &self.containers[&serial];
                let pod = &self.pods[&container.pod];
                let shares = !self.is_static()
                    || pod.pod_options(container.slot, ("cpus", "shared"))
                    || self.usable.gives_none(pod.namespace)
                    || self.is_for_reserved(pod);
                // The plugin adopts what is set in the cgroup, which another program may have written.
                let set = self.read(&self.dir(container), "cpuset.cpus").parse::<CpuSet>();
                if let Some(claim) = self.claim_of(container)
                    && !shares
                    && set == Ok(claim)
                    && claim.len() as u64 * 1000 == container.request
                    && container.cpus == claim.to_string()
                    && claim.is_subset(&self.kernel.lock().usable())
                {
                    self.container(serial).exclusive = Some(claim);
                }
            }
            self.cpu_manager.claims.clear();
        } else {
            self.cpu_manager.claims.clear();
            self.reconcile();
        }
        self.send_kubelet_state();
    }

    /// Notes that the kubelet's state file shows the plugin that the kubelet assigns no CPUs any more.
    pub fn note_policy(&mut self) {
        if !self.cpu_manager.is_static() && self.is_kubelet_visible() {
            self.oracle.kubelet_ended(self.now + Duration::from_secs(25));
        }
    }

    /// The plugin is about to receive a request that names CPUs. Without the state file it then has to
    /// stop assigning CPUs, even if the kubelet made the request before its policy changed.
    pub fn note_cpus_named(&mut self) {
        if !self.is_kubelet_visible() {
            self.oracle.open(Key::Kubelet, ASSIGNED, "");
        }
    }

    /// The plugin has answered the creation of a container for which the kubelet names no CPUs, which
    /// shows it that the kubelet assigns none.
    pub fn note_no_cpus_named(&mut self) {
        if !self.cpu_manager.is_static() {
            self.oracle.kubelet_ended(self.now + Duration::from_secs(25));
        }
    }

    /// Whether the plugin is configured to read the kubelet's state file.
    pub fn is_kubelet_visible(&self) -> bool {
        self.usable.config().kubelet_state_dir().is_some()
    }

    fn send_kubelet_state(&mut self) {
        let delay = self.dice.millis(100, 2000);
        self.wake_plugin(delay, |world| {
            if world.is_kubelet_visible() {
                let reading = world.read_kubelet_state();
                world.input(Input::Kubelet(reading));
            }
        });
    }

    fn claim_of(&self, container: &Container) -> Option<CpuSet> {
        let pod = &self.pods[&container.pod];
        let name = pod.slots[container.slot].name.clone();
        self.cpu_manager.claims.get(&(container.pod, name)).copied()
    }

    /// The CPUs that the kubelet names for a container. A kubelet assigns them when it admits the pod. Here
    /// they are assigned at their first use.
    pub fn named_by_kubelet(&mut self, serial: Serial) -> Option<CpuSet> {
        if !self.cpu_manager.is_static() {
            return None;
        }
        let container = self.containers[&serial].clone();
        let pod = &self.pods[&container.pod];
        let number = container.request / 1000;
        let is_whole = pod.is_guaranteed() && number > 0 && container.request.is_multiple_of(1000);
        if self.claim_of(&container).is_none() && is_whole && pod.resources.is_none() {
            let name = pod.slots[container.slot].name.clone();
            let free = self.left_by_kubelet() - self.reserved();
            let cpus: CpuSet = free.iter().take(number as usize).flat_map(CpuSet::of).collect();
            if cpus.len() as u64 == number {
                self.cpu_manager.claims.insert((container.pod, name), cpus);
            }
        }
        Some(self.claim_of(&container).unwrap_or_else(|| self.left_by_kubelet()))
    }

    fn reconcile(&mut self) {
        if !self.cpu_manager.is_static() {
            return;
        }
        let pods = &self.pods;
        self.cpu_manager.claims.retain(|(pod, _), _| pods.contains_key(pod));
        if !self.runtime.down {
            // All assignments first, as they decide what is left for all others.
            let running = self.running_containers();
            for serial in &running {
                self.named_by_kubelet(*serial);
            }
            for serial in running {
                self.container(serial).is_named = true;
                let has = self.containers[&serial].cpus.clone();
                let cpus = self.named_by_kubelet(serial).unwrap_or_default().to_string();
                if has != cpus && self.containers[&serial].state == State::Running {
                    self.call_in(Duration::from_millis(1), Task::Name { serial, cpus });
                }
            }
        }
        self.send_kubelet_state();
        self.after(RECONCILE, World::reconcile);
    }
}
