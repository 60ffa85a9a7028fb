//! Devices of pods, and the answers of the kubelet and a driver about them: in time, late, wrong or
//! missing.

use crate::pods::{Container, Pod};
use crate::refusals::Excess;
use crate::settings::{Settings, Trouble};
use crate::world::World;
use cpuset::{CpuSet, NodeSet};
use daemon::{FoundDevices, Input, ListedDevices};
use ledger::{Device, DeviceSource, GivenDevices, MAX_DEVICES, PodDevices};
use nri::wire;
use placement::{DeviceNodes, Scope, TopologyPolicy};
use std::collections::BTreeMap;
use topology::sysfs::Gpu;

/// The number of GPUs of each machine. They are on its NUMA nodes in turn, including nodes without CPUs.
const GPUS: usize = 6;
/// The major number of NVIDIA's device files.
const NVIDIA: i64 = 195;
/// The major number of device files of many drivers.
const MISC: i64 = 10;

/// How a container's GPU is visible in the runtime's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    File,
    Environment,
    /// It is not visible.
    Hidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDevice {
    pub slot: usize,
    pub gpu: usize,
    pub form: Form,
}

fn node_of(settings: &Settings, gpu: usize) -> usize {
    gpu % settings.topology().nodes().len()
}

/// The driver's answer.
pub fn gpus(settings: &Settings) -> Vec<Gpu> {
    let gpu = |gpu: usize| Gpu {
        address: format!("0000:{gpu:02x}:00.0"),
        uuid: Some(format!("GPU-{gpu}")),
        minor: Some(gpu as i64),
        node: Some(node_of(settings, gpu)),
    };
    (0..GPUS).map(gpu).collect()
}

impl Pod {
    /// Gives some pods devices.
    pub fn get_devices(&mut self) {
        if !self.dice.percent(20) {
            return;
        }
        for _ in 0..self.dice.pick(&[1, 1, 1, 2, 4]) {
            let slot = self.dice.below(self.slots.len());
            let gpu = self.dice.below(GPUS);
            let form = self.dice.pick(&[Form::File, Form::File, Form::Environment, Form::Hidden]);
            self.devices.push(PodDevice { slot, gpu, form });
        }
    }

    fn devices_of(&self, slot: usize) -> impl Iterator<Item = &PodDevice> {
        self.devices.iter().filter(move |device| device.slot == slot)
    }

    pub fn device_files(&self, slot: usize) -> Vec<wire::LinuxDevice> {
        if self.excess == Some(Excess::Devices(slot)) {
            let file = |minor| wire::LinuxDevice { major: MISC, minor, ..Default::default() };
            return (0..=MAX_DEVICES as i64).map(file).collect();
        }
        let files = self.devices_of(slot).filter(|device| device.form == Form::File);
        let file = |device: &PodDevice| wire::LinuxDevice {
            path: format!("/dev/nvidia{}", device.gpu),
            type_: "c".to_owned(),
            major: NVIDIA,
            minor: device.gpu as i64,
            ..Default::default()
        };
        files.map(file).collect()
    }

    pub fn environment(&self, slot: usize) -> Vec<String> {
        let named = self.devices_of(slot).filter(|device| device.form == Form::Environment);
        let named: Vec<String> = named.map(|device| format!("GPU-{}", device.gpu)).collect();
        if named.is_empty() {
            return Vec::new();
        }
        vec![format!("NVIDIA_VISIBLE_DEVICES={}", named.join(","))]
    }
}

impl World {
    /// Answers the plugin's question for the NUMA nodes of devices.
    pub fn find_devices(&mut self) {
        let plugin = &mut self.plugin;
        let slow = plugin.dice.percent(10);
        let delay =
            if slow { plugin.dice.millis(60, 3000) } else { plugin.dice.micros(500, 30_000) };
        self.wake_plugin(delay, |world| {
            let found = world.found_devices();
            world.input(Input::Devices(found));
        });
    }

    fn found_devices(&mut self) -> FoundDevices {
        let gpus = if self.plugin.dice.percent(5) { None } else { Some(gpus(&self.settings)) };
        let is_peace = self.settings.trouble != Trouble::All;
        let kubelet = match self.plugin.dice.below(10) {
            0..=2 => None,
            3 | 4 if is_peace => None,
            3 => Some(Err("no answer within 1 s".to_owned())),
            4 => {
                self.oracle.kubelet_lies = true;
                Some(Ok(self.listed_devices(true)))
            }
            _ => Some(Ok(self.listed_devices(false))),
        };
        FoundDevices { gpus, kubelet }
    }

    /// The kubelet's list, or a `wrong` one with other NUMA nodes, some of which do not exist, with more devices than a
    /// container can have, and with more pods than are read.
    fn listed_devices(&mut self, wrong: bool) -> ListedDevices {
        let settings = &self.settings;
        let dice = &mut self.plugin.dice;
        let mut list = Vec::new();
        for pod in self.pods.values() {
            let mut containers: BTreeMap<String, GivenDevices> = BTreeMap::new();
            for device in &pod.devices {
                let node = if wrong { dice.below(64) } else { node_of(settings, device.gpu) };
                let name = pod.slots[device.slot].name.clone();
                containers.entry(name).or_default().devices.push(Device {
                    name: format!("nvidia.com/gpu GPU-{}", device.gpu).into(),
                    nodes: NodeSet::of(node),
                    source: DeviceSource::Kubelet,
                });
            }
            if wrong && dice.percent(30) {
                containers.insert("unknown".to_owned(), GivenDevices::default());
            }
            if wrong && dice.percent(10) {
                let slot = dice.below(pod.slots.len());
                let too_many = GivenDevices { too_many: true, ..GivenDevices::default() };
                containers.insert(pod.slots[slot].name.clone(), too_many);
            }
            let name = format!("pod{}", pod.id);
            list.push(PodDevices { namespace: pod.namespace.to_owned(), name, containers });
        }
        let unread = if wrong { dice.below(list.len() + 1) } else { 0 };
        list.truncate(list.len() - unread);
        ListedDevices { pods: list, unread }
    }

    /// Checks that under `single-numa-node` a new container with visible devices has its exclusive CPUs on
    /// their NUMA node, unless the kubelet has reported wrong nodes.
    pub fn wrong_devices(&self, container: &Container, cpus: CpuSet) -> Option<String> {
        let manager = &self.in_force.placement.topology_manager;
        let pod = &self.pods[&container.pod];
        if pod.excess == Some(Excess::Devices(container.slot)) {
            let is_placed = manager.policy != TopologyPolicy::None
                && pod.annotations.is_empty()
                && !self.oracle.is_unsteady;
            return if is_placed {
                Some(format!("gets {cpus}, and has more devices than count"))
            } else {
                None
            };
        }
        if manager.policy != TopologyPolicy::SingleNumaNode
            || manager.scope != Scope::Container
            || self.oracle.kubelet_lies
            || self.oracle.is_unsteady
            || !pod.annotations.is_empty()
            || self.oracle.window("", self.now, false).is_some()
        {
            return None;
        }
        let mut devices = pod.devices_of(container.slot).peekable();
        devices.peek()?;
        let mut nodes = Vec::new();
        for device in devices {
            if device.form == Form::Hidden {
                return None;
            }
            nodes.push(NodeSet::of(node_of(&self.settings, device.gpu)));
        }
        let topology = self.settings.topology();
        let near = DeviceNodes::near_cpus(&topology, nodes).all();
        let there = topology.nodes().iter().filter(|node| near.contains(node.id));
        let there: CpuSet = there.map(|node| node.cpus).collect();
        // All CPUs of a node can be offline.
        let is_online = !(there & self.kernel.lock().usable()).is_empty();
        if is_online && !cpus.is_subset(&there) {
            Some(format!("gets {cpus}, and its devices are on NUMA node {near}"))
        } else {
            None
        }
    }
}
