//! CPUs near a container's GPUs, according to the files of NVIDIA's driver. The trees follow what
//! is known of such servers; none is copied from one.

use crate::support::commands::{command, has};
use crate::support::events::{local, pod_and_container};
use crate::support::observed::{CONFIG, ObservedDaemon};
use daemon::Paths;
use ledger::{Admission, Container, DeviceRef, Qos};
use machines::synthetic::Machine;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Two sockets with a NUMA node of 16 CPUs each.
fn server() -> Machine {
    Machine { sockets: 2, cores: 16, ..Machine::default() }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes the files of a GPU on each of these NUMA nodes, in the order of their minor numbers.
fn gpus(paths: &Paths, nodes: &[usize]) {
    for (minor, node) in nodes.iter().enumerate() {
        let address = format!("0000:{:02x}:00.0", 0x10 + minor);
        let information =
            format!("Model: \t\t NVIDIA\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n");
        let file = format!("driver/nvidia/gpus/{address}/information");
        write(&paths.proc_root, &file, &information);
        let file = format!("bus/pci/devices/{address}/numa_node");
        write(&paths.sysfs_root, &file, &format!("{node}\n"));
    }
}

fn config(policy: &str) -> String {
    format!("{CONFIG}topologyManagerPolicy: {policy}\n")
}

/// The device files of these GPUs, and those that every container with a GPU gets: nvidiactl,
/// nvidia-modeset and nvidia-uvm.
fn files(minors: &[i64]) -> Vec<DeviceRef> {
    let control = [(195, 255), (195, 254), (510, 0)];
    let all = minors.iter().map(|minor| (195, *minor)).chain(control);
    all.map(|(major, minor)| DeviceRef::File { block: false, major, minor }).collect()
}

async fn created(
    node: &ObservedDaemon,
    name: &str,
    milli: u64,
    described_devices: Vec<DeviceRef>,
) -> Result<String, String> {
    let (pod, container) = pod_and_container(name, Qos::Guaranteed, milli);
    let container = Container { described_devices, ..container };
    let answer = node.event(Admission::Create { pod, container }).await;
    answer.map(|one| one.setting.unwrap().cpus().to_string()).map_err(|refusal| refusal.0)
}

async fn explained(node: &ObservedDaemon, name: &str) -> String {
    command(&node.paths.state_dir, &["explain", name]).await.unwrap()
}

#[tokio::test]
async fn cpus_are_on_the_numa_nodes_that_the_driver_reports_for_gpus() {
    local(async {
        let eight = |paths: &Paths| gpus(paths, &[0, 0, 0, 0, 1, 1, 1, 1]);
        let node = ObservedDaemon::prepared(&server(), &config("single-numa-node"), eight).await;
        assert_eq!(created(&node, "a", 2000, files(&[5])).await.unwrap(), "16-17");
        assert_eq!(created(&node, "b", 2000, files(&[0, 3])).await.unwrap(), "2-3");
        let by_hook = vec![DeviceRef::Gpu("GPU-7".to_owned())];
        assert_eq!(created(&node, "c", 2000, by_hook).await.unwrap(), "18-19");
        let unknown = vec![DeviceRef::Gpu("GPU-9".to_owned())];
        assert_eq!(created(&node, "d", 2000, unknown).await.unwrap(), "4-5");
        let why = explained(&node, "a").await;
        let expect = "Devices on NUMA node 1: GPU 0000:15:00.0, as NVIDIA's driver says.";
        has(&why, &[expect]);
        let both = created(&node, "e", 2000, files(&[3, 4])).await.unwrap_err();
        assert!(both.starts_with("TopologyAffinityError"), "{both}");
        let why = explained(&node, "e").await;
        for (gpu, at) in [(3, 0), (4, 1)] {
            let expect = format!("NUMA node {at}: GPU 0000:1{gpu}:00.0, as NVIDIA's driver says.");
            has(&why, &[&expect]);
        }
        // The search for devices ends on another thread.
        let answered = async {
            loop {
                let parts = node.status().await.node.unwrap().parts;
                let devices = serde_json::to_value(parts.kubelet_devices).unwrap();
                if devices != "unasked" {
                    return devices;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let devices = timeout(Duration::from_secs(10), answered).await;
        assert_eq!(devices, Ok("unmounted".into()));
    })
    .await;
}

#[tokio::test]
async fn the_numa_node_with_more_gpus_breaks_a_tie() {
    local(async {
        let eight = |paths: &Paths| gpus(paths, &[0, 0, 0, 0, 1, 1, 1, 1]);
        let node = ObservedDaemon::prepared(&server(), &config("best-effort"), eight).await;
        assert_eq!(created(&node, "a", 4000, files(&[3, 4, 5, 6])).await.unwrap(), "16-19");
        assert_eq!(created(&node, "b", 4000, files(&[1, 2, 3, 4])).await.unwrap(), "2-5");
        let restricted = ObservedDaemon::prepared(&server(), &config("restricted"), eight).await;
        let refused = created(&restricted, "a", 4000, files(&[3, 4, 5, 6])).await.unwrap_err();
        assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    })
    .await;
}

/// Two sockets and four GPUs; the memory of each GPU is a NUMA node, as on NVIDIA's Grace.
#[tokio::test]
async fn gpus_that_are_numa_nodes_count_for_the_nearest_node_with_cpus() {
    local(async {
        let grace = |paths: &Paths| {
            gpus(paths, &[2, 3, 4, 5]);
            let socket = |node: usize| if node < 2 { node } else { (node - 2) / 2 };
            for from in 0..6 {
                let distance = |to: usize| match (from == to, socket(from) == socket(to)) {
                    (true, _) => "10",
                    (false, true) => "80",
                    (false, false) if from < 2 && to < 2 => "40",
                    (false, false) => "120",
                };
                let row: Vec<&str> = (0..6).map(distance).collect();
                let file = format!("devices/system/node/node{from}/distance");
                write(&paths.sysfs_root, &file, &format!("{}\n", row.join(" ")));
            }
        };
        let machine = Machine { memory_only: 4, ..server() };
        let config = format!("{}exclusiveMemoryNodes: follow-cpus\n", config("restricted"));
        let node = ObservedDaemon::prepared(&machine, &config, grace).await;
        assert_eq!(created(&node, "a", 2000, files(&[2, 3])).await.unwrap(), "16-17");
        assert_eq!(created(&node, "b", 2000, files(&[0])).await.unwrap(), "2-3");
        let refused = created(&node, "c", 2000, files(&[1, 2])).await.unwrap_err();
        assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
        let why = explained(&node, "a").await;
        let expect = "Devices on NUMA node 4, which counts for 1, the nearest with CPUs: \
                      GPU 0000:12:00.0, as NVIDIA's driver says.";
        has(&why, &[expect]);
    })
    .await;
}
