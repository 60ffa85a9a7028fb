//! The answers to clients: the kubelet's answer with the exclusive CPUs of [known](Known) containers, and
//! with their memory if the source counts it.
//! Pure; the kubelet's part is empty if it did not answer.
//!
//! Field numbers: `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.

use crate::known::{Container, ContainerMemory, Known, Pod};
use crate::wire::{self, FieldValue, Fields, Malformed, write_bytes, write_cpus, write_number};
use cpuset::CpuSet;

/// `pod_resources` of the answers to `List` and `Get`.
const POD: u64 = 1;
/// `name` and `namespace` of a pod, and of a request of `Get`.
const POD_NAME: u64 = 1;
const POD_NAMESPACE: u64 = 2;
const POD_CONTAINERS: u64 = 3;
const CONTAINER_NAME: u64 = 1;
const CONTAINER_CPUS: u64 = 3;
const CONTAINER_MEMORY: u64 = 4;
const ALLOCATABLE_CPUS: u64 = 2;
const ALLOCATABLE_MEMORY: u64 = 3;
const MEMORY_TYPE: u64 = 1;
const MEMORY_SIZE: u64 = 2;
const MEMORY_TOPOLOGY: u64 = 3;
const TOPOLOGY_NODE: u64 = 1;
const NODE_ID: u64 = 1;

/// The answer to `List`: the kubelet's pods in its order, then the known pods that it does not list.
pub fn list(known: &Known, kubelet: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut unlisted = known.by_name();
    let mut answer = Vec::with_capacity(kubelet.len());
    for field in Fields::of(kubelet) {
        let field = field?;
        let (POD, FieldValue::Bytes(pod)) = (field.number, field.value) else {
            answer.extend_from_slice(field.raw);
            continue;
        };
        let name = text(wire::string(pod, POD_NAME)?);
        let namespace = text(wire::string(pod, POD_NAMESPACE)?);
        match unlisted.get_mut(&(namespace, name)).and_then(|pods| pods.pop_front()) {
            Some(ours) => field.write_with(&merged(known, ours, pod)?, &mut answer),
            None => answer.extend_from_slice(field.raw),
        }
    }
    for pod in unlisted.values().flatten() {
        write_bytes(POD, &unlisted_pod(pod), &mut answer);
    }
    Ok(answer)
}

/// The answer to `Get`; `None` if neither knows the pod.
pub fn get(known: &Known, request: &[u8], kubelet: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let name = text(wire::string(request, POD_NAME)?);
    let namespace = text(wire::string(request, POD_NAMESPACE)?);
    let ours = known.by_name().get(&(namespace, name)).and_then(|pods| pods.front().copied());
    let Some(ours) = ours else {
        return Ok(if kubelet.is_empty() { None } else { Some(kubelet.to_vec()) });
    };
    let mut answer = Vec::with_capacity(kubelet.len());
    let mut listed = false;
    for field in Fields::of(kubelet) {
        let field = field?;
        if let (POD, FieldValue::Bytes(pod)) = (field.number, field.value) {
            field.write_with(&merged(known, ours, pod)?, &mut answer);
            listed = true;
        } else {
            answer.extend_from_slice(field.raw);
        }
    }
    if !listed {
        write_bytes(POD, &unlisted_pod(ours), &mut answer);
    }
    Ok(Some(answer))
}

/// The answer to `GetAllocatableResources`; `kubelet` is `None` if the kubelet did not answer.
pub fn allocatable(known: &Known, kubelet: Option<&[u8]>) -> Result<Vec<u8>, Malformed> {
    match kubelet {
        // The kubelet assigns CPUs and memory, and knows its own reservation.
        Some(kubelet) if !known.assigns => {
            Fields::of(kubelet).try_for_each(|field| field.map(drop))?;
            Ok(kubelet.to_vec())
        }
        kubelet => {
            let kubelet = kubelet.unwrap_or_default();
            let answer = wire::with_cpus(kubelet, ALLOCATABLE_CPUS, &known.allocatable)?;
            match &known.allocatable_memory {
                Some(memory) => with_memory(&answer, ALLOCATABLE_MEMORY, memory),
                None => Ok(answer),
            }
        }
    }
}

/// Namespace and name in a request of `Get`, for error messages.
pub(crate) fn requested_pod(request: &[u8]) -> Result<(String, String), Malformed> {
    let of =
        |number| wire::string(request, number).map(|name| String::from_utf8_lossy(name).into());
    Ok((of(POD_NAMESPACE)?, of(POD_NAME)?))
}

/// A pod of the kubelet with the known CPUs and memory of its containers, and with known containers that the
/// kubelet does not list.
fn merged(known: &Known, ours: &Pod, pod: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut answer = Vec::with_capacity(pod.len());
    let mut listed = Vec::new();
    for field in Fields::of(pod) {
        let field = field?;
        let (POD_CONTAINERS, FieldValue::Bytes(container)) = (field.number, field.value) else {
            answer.extend_from_slice(field.raw);
            continue;
        };
        let name = wire::string(container, CONTAINER_NAME)?;
        let ours = ours.container(name);
        listed.extend(ours.map(|ours| ours.name.as_str()));
        match ours {
            Some(ours) => field.write_with(&edited(known, ours, container)?, &mut answer),
            None => answer.extend_from_slice(field.raw),
        }
    }
    let unlisted = ours.containers.iter().filter(|one| !listed.contains(&one.name.as_str()));
    unlisted.for_each(|container| write_container(container, &mut answer));
    Ok(answer)
}

/// A container of the kubelet with its known CPUs and memory.
fn edited(known: &Known, ours: &Container, container: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut edited = container.to_vec();
    if let Some(cpus) = cpus(known, ours) {
        edited = wire::with_cpus(&edited, CONTAINER_CPUS, &cpus)?;
    }
    if known.allocatable_memory.is_some() && (known.assigns || !ours.memory.is_empty()) {
        edited = with_memory(&edited, CONTAINER_MEMORY, &ours.memory)?;
    }
    Ok(edited)
}

/// The CPUs to show instead of the kubelet's; `None` if the kubelet's stay.
fn cpus(known: &Known, container: &Container) -> Option<CpuSet> {
    if known.assigns { Some(container.exclusive.unwrap_or_default()) } else { container.exclusive }
}

/// A pod that the kubelet does not list.
fn unlisted_pod(pod: &Pod) -> Vec<u8> {
    let mut message = Vec::new();
    write_bytes(POD_NAME, pod.name.as_bytes(), &mut message);
    write_bytes(POD_NAMESPACE, pod.namespace.as_bytes(), &mut message);
    pod.containers.iter().for_each(|container| write_container(container, &mut message));
    message
}

fn write_container(container: &Container, to: &mut Vec<u8>) {
    let mut message = Vec::new();
    write_bytes(CONTAINER_NAME, container.name.as_bytes(), &mut message);
    write_cpus(CONTAINER_CPUS, &container.exclusive.unwrap_or_default(), &mut message);
    write_memory(CONTAINER_MEMORY, &container.memory, &mut message);
    write_bytes(POD_CONTAINERS, &message, to);
}

/// A message with this memory in place of the memory that it has.
fn with_memory(
    message: &[u8],
    number: u64,
    memory: &[ContainerMemory],
) -> Result<Vec<u8>, Malformed> {
    let mut encoded = Vec::new();
    write_memory(number, memory, &mut encoded);
    wire::with_messages(message, number, &encoded)
}

fn write_memory(number: u64, memory: &[ContainerMemory], to: &mut Vec<u8>) {
    for ContainerMemory { kind, bytes, nodes } in memory {
        let mut topology = Vec::new();
        for node in nodes.iter() {
            let mut id = Vec::new();
            write_number(NODE_ID, node as u64, &mut id);
            write_bytes(TOPOLOGY_NODE, &id, &mut topology);
        }
        let mut block = Vec::new();
        write_bytes(MEMORY_TYPE, kind.as_bytes(), &mut block);
        write_number(MEMORY_SIZE, *bytes, &mut block);
        write_bytes(MEMORY_TOPOLOGY, &topology, &mut block);
        write_bytes(number, &block, to);
    }
}

/// A name; empty if it is not UTF-8. Kubernetes has no such and no empty names, so it matches no pod.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests;
