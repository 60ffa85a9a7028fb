//! [`Listed`]: the devices in the kubelet's answer to `List`, with the NUMA nodes that its topology
//! hints used.
//!
//! ```
//! use podresources::devices;
//!
//! // pod 1 { name 1, namespace 2, container 3 { name 1, device 2 { resource 1, id 2, node 3 } } }
//! let list = b"\x0a\x31\x0a\x02db\x12\x07default\x1a\x22\x0a\x04main\x12\x1a\x0a\x0cacme.com/nic\x12\x04eth1\x1a\x04\x0a\x02\x08\x01";
//! let listed = devices::of_list(list)?;
//! let device = &listed.pods[0].containers[0].devices[0];
//! assert_eq!(&*device.name, "acme.com/nic eth1");
//! assert_eq!(device.nodes.to_string(), "1");
//! # Ok::<(), podresources::Malformed>(())
//! ```
//!
//! Two bytes of an answer can stand for a pod, and one name for the names of a thousand devices, so its length does not
//! bound what it unfolds to: that is counted.
//!
//! Field numbers: `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.

use crate::wire::{self, FieldValue, Fields, Malformed};
use cpuset::{MAX_NODES, NodeSet};
use std::sync::Arc;

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

/// The most devices of a container that are kept.
pub const MAX_DEVICES: usize = 64;
/// The most memory in bytes for a container's devices: [`MAX_DEVICES`] with a resource's longest valid name (317) fit.
const MAX_OF_CONTAINER: usize = 32 << 10;
/// The most memory in bytes for all pods.
const MAX_KEPT: usize = 4 << 20;
/// What a pod, container or device counts besides its names.
const EACH: usize = 128;

/// The devices of a node's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    pub pods: Vec<PodDevices>,
    /// How many more pods the answer has than fit. No node has as many.
    pub unread: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDevices {
    pub namespace: String,
    pub name: String,
    /// Without containers that have no devices.
    pub containers: Vec<ContainerDevices>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerDevices {
    pub name: String,
    /// The devices of device plugins; none if there are too many.
    pub devices: Vec<Device>,
    pub too_many: bool,
    /// Whether it also has devices by resource claims (DRA), whose NUMA nodes the kubelet does not know.
    pub has_claims: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The resource, and the device plugin's name of the device: `nvidia.com/gpu GPU-a`.
    pub name: Arc<str>,
    /// Empty if the device plugin does not say.
    pub nodes: NodeSet,
}

/// Memory that is left for an answer.
#[derive(Debug)]
struct Room(usize);

impl Room {
    /// Takes this many bytes, if there are as many.
    fn take(&mut self, bytes: usize) -> bool {
        let rest = self.0.checked_sub(bytes);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

/// The devices in an answer to `List`. Nodes that no [`NodeSet`] can name are left out.
pub fn of_list(message: &[u8]) -> Result<Listed, Malformed> {
    let mut listed = Listed::default();
    let mut room = Room(MAX_KEPT);
    for message in parts(message, POD) {
        match pod(message?, &mut room)? {
            Some(pod) => listed.pods.push(pod),
            None => listed.unread += 1,
        }
    }
    Ok(listed)
}

/// A pod; `None` if it does not fit.
fn pod(message: &[u8], room: &mut Room) -> Result<Option<PodDevices>, Malformed> {
    let namespace = text(message, POD_NAMESPACE)?;
    let name = text(message, POD_NAME)?;
    let mut fits = room.take(EACH + namespace.len() + name.len());
    let mut containers = Vec::new();
    for message in parts(message, POD_CONTAINERS) {
        let message = message?;
        let name = text(message, CONTAINER_NAME)?;
        let mut devices = devices(message)?;
        let has_claims = parts(message, CONTAINER_CLAIMS).next().is_some();
        if !has_claims && devices.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        fits = fits && room.take(EACH + name.len());
        if !fits {
            continue;
        }
        devices = devices.filter(|devices| room.take(devices.iter().map(Device::bytes).sum()));
        containers.push(ContainerDevices {
            name: name.to_owned(),
            too_many: devices.is_none(),
            devices: devices.unwrap_or_default(),
            has_claims,
        });
    }
    let pod = PodDevices { namespace: namespace.to_owned(), name: name.to_owned(), containers };
    Ok(if fits { Some(pod) } else { None })
}

/// A container's devices; `None` if there are too many.
fn devices(container: &[u8]) -> Result<Option<Vec<Device>>, Malformed> {
    let mut devices = Vec::new();
    let mut room = Room(MAX_OF_CONTAINER);
    let mut fit = true;
    for given in parts(container, CONTAINER_DEVICES) {
        let given = given?;
        let resource = text(given, DEVICES_RESOURCE)?;
        let nodes = nodes(given)?;
        for id in parts(given, DEVICES_IDS) {
            let id = utf8(id?)?;
            let bytes = Device::bytes_of(resource.len() + 1 + id.len());
            fit = fit && devices.len() < MAX_DEVICES && room.take(bytes);
            if fit {
                devices.push(Device { name: format!("{resource} {id}").into(), nodes });
            }
        }
    }
    Ok(if fit { Some(devices) } else { None })
}

fn nodes(devices: &[u8]) -> Result<NodeSet, Malformed> {
    let mut nodes = NodeSet::EMPTY;
    for topology in parts(devices, DEVICES_TOPOLOGY) {
        for node in parts(topology?, TOPOLOGY_NODES) {
            let id = usize::try_from(number(node?, NODE_ID)?);
            if let Ok(id @ 0..MAX_NODES) = id {
                nodes = nodes.union(NodeSet::of(id));
            }
        }
    }
    Ok(nodes)
}

impl Device {
    fn bytes(&self) -> usize {
        Device::bytes_of(self.name.len())
    }

    fn bytes_of(name: usize) -> usize {
        EACH + name
    }
}

/// The strings or messages of a repeated field; ends after the first error.
fn parts(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    Fields::of(message).filter_map(move |field| match field {
        Ok(field) => match field.value {
            FieldValue::Bytes(bytes) if field.number == number => Some(Ok(bytes)),
            _ => None,
        },
        Err(error) => Some(Err(error)),
    })
}

fn text(message: &[u8], number: u64) -> Result<&str, Malformed> {
    utf8(wire::string(message, number)?)
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
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
        let mut listed = of_list(list).unwrap();
        assert_eq!(listed.unread, 0);
        listed.pods.pop().unwrap().containers.pop().unwrap()
    }

    #[test]
    fn each_device_of_an_entry_has_the_nodes_of_the_entry() {
        let gpus = message(&[(1, b"nvidia.com/gpu"), (2, b"GPU-a"), (2, b"GPU-b"), (3, &node(1))]);
        let nic = message(&[(1, b"acme.com/nic"), (2, b"eth1"), (3, &[node(0), node(1)].concat())]);
        let bare = message(&[(1, b"acme.com/fuse"), (2, b"f")]);
        let found = only(&list(&message(&[(1, b"main"), (2, &gpus), (2, &nic), (2, &bare)])));
        let nodes: Vec<(&str, String)> =
            found.devices.iter().map(|one| (&*one.name, one.nodes.to_string())).collect();
        let expect = [
            ("nvidia.com/gpu GPU-a", "1"),
            ("nvidia.com/gpu GPU-b", "1"),
            ("acme.com/nic eth1", "0,1"),
            ("acme.com/fuse f", ""),
        ];
        assert_eq!(nodes, expect.map(|(name, nodes)| (name, nodes.to_owned())));
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
        assert_eq!(of_list(b""), Ok(Listed::default()));
    }

    fn kept(listed: &Listed) -> usize {
        let pod = |pod: &PodDevices| {
            let names = pod.containers.iter().map(|one| EACH + one.name.len());
            let devices =
                pod.containers.iter().flat_map(|one| one.devices.iter().map(Device::bytes));
            EACH + pod.namespace.len()
                + pod.name.len()
                + names.sum::<usize>()
                + devices.sum::<usize>()
        };
        listed.pods.iter().map(pod).sum()
    }

    #[test]
    fn too_many_devices_are_those_of_one_container() {
        let container = |name: &[u8], resource: &[u8], ids: usize| {
            let ids = message(&[(2, b"id")]).repeat(ids);
            message(&[(1, name), (2, &[message(&[(1, resource)]), ids].concat())])
        };
        let name = "r".repeat(317);
        let of = |resource: &[u8], ids| {
            let containers =
                [(3, &*container(b"a", resource, ids)), (3, &container(b"b", b"r", 1))];
            let listed = of_list(&message(&[(1, &message(&containers))])).unwrap();
            let [a, b] = &*listed.pods[0].containers else { panic!("{listed:?}") };
            assert_eq!((b.devices.len(), b.too_many), (1, false));
            (a.devices.len(), a.too_many)
        };
        assert_eq!(of(name.as_bytes(), MAX_DEVICES), (MAX_DEVICES, false));
        assert_eq!(of(b"r", MAX_DEVICES + 1), (0, true));
        assert_eq!(of(name.repeat(4).as_bytes(), MAX_DEVICES), (0, true));
        assert_eq!(of(name.repeat(1000).as_bytes(), 1), (0, true));
        assert_eq!(of(b"r", 1 << 20), (0, true));
    }

    #[test]
    fn a_list_is_bounded_by_what_it_unfolds_to() {
        const WIRE: usize = (4 << 20) - 64;
        let list = |number, part: &[u8]| message(&[(number, part)]).repeat(WIRE / (part.len() + 5));
        let device = message(&[(2, &message(&[(1, b"r"), (2, b"")]))]);
        let long = [message(&[(1, &[b'r'; 8000])]), message(&[(2, b"")]).repeat(64)].concat();
        let nodes = message(&[(2, &message(&[(1, b"r"), (2, b"")])), (2, &list(3, b""))]);
        for (case, list, unread) in [
            ("empty pods", list(1, b""), true),
            ("pods with a device", list(1, &message(&[(3, &device)])), true),
            ("containers with claims", message(&[(1, &list(3, &message(&[(5, b"")])))]), true),
            ("containers with devices", message(&[(1, &list(3, &device))]), true),
            ("containers without devices", message(&[(1, &list(3, b""))]), false),
            ("long names", message(&[(1, &list(3, &message(&[(2, &long)])))]), false),
            ("nodes", message(&[(1, &message(&[(3, &nodes)]))]), false),
        ] {
            let listed = of_list(&list).unwrap();
            assert_eq!(listed.unread > 0, unread, "{case}");
            assert!(kept(&listed) <= MAX_KEPT, "{case}");
        }
        // Others keep what they have.
        let other = message(&[(1, b"db"), (2, b"default"), (3, &device)]);
        let long = message(&[(1, &[b'x'; MAX_KEPT])]);
        let listed = of_list(&message(&[(1, &long), (1, &other)])).unwrap();
        assert_eq!((listed.pods.len(), listed.unread), (1, 1));
    }
}
