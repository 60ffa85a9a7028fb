//! [`PodDevices`]: the devices in the kubelet's answer to `List`, with the NUMA nodes that its topology
//! hints used.
//!
//! ```
//! use podresources::devices;
//!
//! // pod 1 { name 1, namespace 2, container 3 { name 1, device 2 { resource 1, id 2, node 3 } } }
//! let list = b"\x0a\x31\x0a\x02db\x12\x07default\x1a\x22\x0a\x04main\x12\x1a\x0a\x0cacme.com/nic\x12\x04eth1\x1a\x04\x0a\x02\x08\x01";
//! let pods = devices::of_list(list)?;
//! assert_eq!(pods[0].containers[0].devices[0].id, "eth1");
//! assert_eq!(pods[0].containers[0].devices[0].nodes.to_string(), "1");
//! # Ok::<(), podresources::Malformed>(())
//! ```
//!
//! Field numbers: `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.

use crate::wire::{self, FieldValue, Fields, Malformed};
use cpuset::{MAX_NODES, NodeSet};

const POD: u64 = 1;
const POD_NAME: u64 = 1;
const POD_NAMESPACE: u64 = 2;
const POD_CONTAINERS: u64 = 3;
const CONTAINER_NAME: u64 = 1;
const CONTAINER_DEVICES: u64 = 2;
const CONTAINER_CLAIMS: u64 = 5;
const DEVICES_RESOURCE: u64 = 1;
const DEVICES_IDS: u64 = 2;
const DEVICES_TOPOLOGY: u64 = 3;
const TOPOLOGY_NODES: u64 = 1;
const NODE_ID: u64 = 1;

/// The most devices of a container that are read. A server has some hundred.
const MAX_DEVICES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDevices {
    pub namespace: String,
    pub name: String,
    pub containers: Vec<ContainerDevices>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerDevices {
    pub name: String,
    /// The devices of device plugins.
    pub devices: Vec<Device>,
    /// Whether it also has devices by resource claims (DRA), whose NUMA nodes the kubelet does not know.
    pub has_claims: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Such as `nvidia.com/gpu`.
    pub resource: String,
    /// The device plugin's name of it.
    pub id: String,
    /// Empty if the device plugin does not say.
    pub nodes: NodeSet,
}

/// The devices in an answer to `List`. Nodes that no [`NodeSet`] can name are left out.
pub fn of_list(message: &[u8]) -> Result<Vec<PodDevices>, Malformed> {
    parts(message, POD)?.map(pod).collect()
}

fn pod(message: &[u8]) -> Result<PodDevices, Malformed> {
    let containers: Vec<ContainerDevices> =
        parts(message, POD_CONTAINERS)?.map(container).collect::<Result<_, _>>()?;
    Ok(PodDevices {
        namespace: text(message, POD_NAMESPACE)?,
        name: text(message, POD_NAME)?,
        containers,
    })
}

fn container(message: &[u8]) -> Result<ContainerDevices, Malformed> {
    let mut devices = Vec::new();
    for given in parts(message, CONTAINER_DEVICES)? {
        let resource = text(given, DEVICES_RESOURCE)?;
        let mut nodes = NodeSet::EMPTY;
        for topology in parts(given, DEVICES_TOPOLOGY)? {
            for node in parts(topology, TOPOLOGY_NODES)? {
                let id = number(node, NODE_ID)?;
                let id = usize::try_from(id).ok().filter(|id| *id < MAX_NODES);
                nodes = id.map_or(nodes, |id| nodes.union(NodeSet::of(id)));
            }
        }
        for id in parts(given, DEVICES_IDS)?.take(MAX_DEVICES - devices.len()) {
            let id = String::from_utf8_lossy(id).into_owned();
            devices.push(Device { resource: resource.clone(), id, nodes });
        }
    }
    let has_claims = parts(message, CONTAINER_CLAIMS)?.next().is_some();
    Ok(ContainerDevices { name: text(message, CONTAINER_NAME)?, devices, has_claims })
}

/// The strings or messages of a repeated field.
fn parts(message: &[u8], number: u64) -> Result<impl Iterator<Item = &[u8]>, Malformed> {
    let mut found = Vec::new();
    for field in Fields::of(message) {
        let field = field?;
        if let (true, FieldValue::Bytes(bytes)) = (field.number == number, field.value) {
            found.push(bytes);
        }
    }
    Ok(found.into_iter())
}

fn text(message: &[u8], number: u64) -> Result<String, Malformed> {
    wire::string(message, number).map(|text| String::from_utf8_lossy(text).into_owned())
}

/// The last value of a number. Zero if there is none: protobuf leaves out zeros.
fn number(message: &[u8], number: u64) -> Result<u64, Malformed> {
    let mut last = 0;
    for field in Fields::of(message) {
        let field = field?;
        if let (true, FieldValue::Varint(value)) = (field.number == number, field.value) {
            last = value;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_bytes;

    fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
        let mut message = Vec::new();
        fields.iter().for_each(|(number, bytes)| write_bytes(*number, bytes, &mut message));
        message
    }

    fn node(id: u8) -> Vec<u8> {
        // A varint field 1; Go leaves out a zero.
        message(&[(1, &if id == 0 { vec![] } else { vec![0x08, id] })])
    }

    fn list(container: &[u8]) -> Vec<u8> {
        let pod = message(&[(1, b"db"), (2, b"default"), (3, container)]);
        message(&[(1, &pod)])
    }

    fn only(list: &[u8]) -> ContainerDevices {
        let mut pods = of_list(list).unwrap();
        pods.pop().unwrap().containers.pop().unwrap()
    }

    #[test]
    fn each_device_of_an_entry_has_the_nodes_of_the_entry() {
        let gpus = message(&[(1, b"nvidia.com/gpu"), (2, b"GPU-a"), (2, b"GPU-b"), (3, &node(1))]);
        let nic = message(&[(1, b"acme.com/nic"), (2, b"eth1"), (3, &[node(0), node(1)].concat())]);
        let bare = message(&[(1, b"acme.com/fuse"), (2, b"f")]);
        let found = only(&list(&message(&[(1, b"main"), (2, &gpus), (2, &nic), (2, &bare)])));
        let nodes: Vec<(&str, String)> =
            found.devices.iter().map(|one| (one.id.as_str(), one.nodes.to_string())).collect();
        let expect = [("GPU-a", "1"), ("GPU-b", "1"), ("eth1", "0,1"), ("f", "")];
        assert_eq!(nodes, expect.map(|(id, nodes)| (id, nodes.to_owned())));
        assert_eq!(found.devices[2].resource, "acme.com/nic");
        assert!(!found.has_claims);
    }

    #[test]
    fn a_resource_claim_is_reported_without_nodes() {
        let claim = message(&[(2, b"claim")]);
        let found = only(&list(&message(&[(1, b"main"), (5, &claim)])));
        assert_eq!((found.devices.len(), found.has_claims), (0, true));
    }

    #[test]
    fn nodes_that_cannot_exist_are_left_out() {
        // -1 in ten bytes, and 200.
        let minus_one = [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        for id in [&minus_one[..], &[0x08, 0xc8, 1]] {
            let topology = message(&[(1, id)]);
            let device = message(&[(1, b"r"), (2, b"d"), (3, &topology)]);
            let found = only(&list(&message(&[(1, b"main"), (2, &device)])));
            assert_eq!(found.devices[0].nodes, NodeSet::EMPTY);
        }
    }

    #[test]
    fn malformed_lists_are_errors() {
        let device = message(&[(1, b"r"), (2, b"d"), (3, &node(1))]);
        let whole = list(&message(&[(1, b"main"), (2, &device)]));
        assert!(of_list(&whole[..whole.len() - 1]).is_err());
        // A text in the place of a message: its first byte is no valid tag.
        assert!(of_list(&list(b"\xffmain")).is_err());
        assert_eq!(of_list(b""), Ok(Vec::new()));
    }
}
