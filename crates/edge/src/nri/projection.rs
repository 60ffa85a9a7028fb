//! The fields of the runtime's messages that the plugin reads: little, and bounded for each pod.

use super::mounts::{MAX_MOUNTS, is_place, is_propagation};
use ledger::MAX_DEVICES;
use ledger::annotations::{MAX_ANNOTATIONS, MAX_VALUE, is_for_crio, is_pod_option};
use nri::Field::{Message as Part, Number, Text};
use nri::{Field, Fields, Reads};

/// The most annotations of a kind to read of a pod: one more than the ledger accepts, so that it can
/// refuse them.
const MAX_ENTRIES: usize = MAX_ANNOTATIONS + 1;
/// The longest value of a label, and of a runtime's annotation with a container's name.
const MAX_NAME: usize = 256;
/// The longest name of a GPU, or of a part of one: `MIG-GPU-`, a UUID of 36 characters, and `/12/12,`.
const MAX_GPU: usize = 52;
/// The most bytes of a character in UTF-8.
const MAX_CHAR: usize = 4;
/// The longest list of a container's GPUs, with the name of its variable. Of a longer one more is read.
pub(super) const MAX_GPUS: usize = VISIBLE_GPUS.len() + MAX_DEVICES * MAX_GPU;
/// The longest path of a mount that is read, in bytes: Linux has no longer ones.
const MAX_PATH: usize = 4096;
/// The longest option of a mount that is read, in bytes.
const MAX_OPTION: usize = 16;

pub(super) const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
pub(super) const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
pub(super) const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
pub(super) const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
pub(super) const CONTAINERD_CONTAINER_NAME: &str = "io.kubernetes.cri.container-name";
/// What NVIDIA's device plugin and container toolkit call the GPUs of a container.
pub(super) const VISIBLE_GPUS: &str = "NVIDIA_VISIBLE_DEVICES=";
pub(super) const CRIO_METADATA: &str = "io.kubernetes.cri-o.Metadata";

/// Whether an annotation of this name puts a pod or a container into one of CRI-O's workloads, as
/// OpenShift names them.
pub(super) fn is_workload(name: &str) -> bool {
    name.starts_with("target.workload.openshift.io/")
}

const CPU: &[Field<'_>] = &[
    Part(1, &[Number(1)]), // shares
    Part(2, &[Number(1)]), // quota
    Part(3, &[Number(1)]), // period
    Text(6),               // cpus
    Text(7),               // mems
];

const RESOURCES: &[Field<'_>] = &[
    Part(1, &[Part(1, &[Number(1)])]), // memory: limit
    Part(2, CPU),
    Part(3, &[Text(1), Number(2)]), // hugepage_limits: page_size, limit
];

const POD: [Field<'_>; 9] = [
    Text(1), // id
    Text(2), // name
    Text(3), // uid
    Text(4), // namespace
    names(5, |label| [POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)),
    annotations(is_pod_option),
    workload(6),
    Text(7), // runtime_handler
    // linux: pod_resources and cgroup_parent
    Part(8, &[Part(2, RESOURCES), Text(3)]),
];

const POD_FOR_CRIO: [Field<'_>; 10] = {
    let [id, name, uid, namespace, labels, own, workload, handler, linux, ..] = POD;
    [id, name, uid, namespace, labels, own, workload, handler, linux, annotations(is_for_crio)]
};

const CONTAINER: &[Field<'_>] = &[
    Text(1),   // id
    Text(2),   // pod_sandbox_id
    Text(3),   // name
    Number(4), // state
    names(5, |label| {
        [CONTAINER_NAME_LABEL, POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)
    }),
    names(6, |name| [CONTAINERD_CONTAINER_NAME, CRIO_METADATA].contains(&name)),
    workload(6),
    // env
    Field::LastText {
        number: 8,
        is_read: |entry| entry.starts_with(VISIBLE_GPUS),
        max_bytes: MAX_GPUS + MAX_CHAR,
    },
    // mounts: destination and options, of few mounts
    Field::Messages {
        number: 9,
        fields: &[
            Field::LastText { number: 1, is_read: is_place, max_bytes: MAX_PATH },
            Field::LastText { number: 4, is_read: is_propagation, max_bytes: MAX_OPTION },
        ],
        having: &[],
        max_entries: MAX_MOUNTS + 1,
    },
    // linux: devices, resources and cgroups_path
    Part(11, &[devices(KMSG, 1), devices(&[], MAX_DEVICES + 1), Part(3, RESOURCES), Text(5)]),
    Number(14), // created_at
];

/// Major and minor number of `/dev/kmsg`. It shows that a container has all devices of the host, which may
/// come before it.
const KMSG: &[(u32, u64)] = &[(3, 1), (4, 11)];

/// Of an adjustment: linux.resources.
const ADJUSTMENT: &[Field<'_>] = &[Part(6, &[Part(2, &[Part(2, CPU)])])];

/// What is read of each call of the runtime; `for_crio` reads pods' annotations for CRI-O, too.
pub fn reads(for_crio: bool) -> Reads<'static> {
    Reads::Only(Fields {
        pod: if for_crio { &POD_FOR_CRIO } else { &POD },
        container: CONTAINER,
        resources: RESOURCES,
        adjustment: ADJUSTMENT,
    })
}

/// Annotations of a pod's author.
const fn annotations(is_read: fn(&str) -> bool) -> Field<'static> {
    Field::Texts { number: 6, is_read, max_entries: MAX_ENTRIES, max_bytes: MAX_VALUE }
}

/// Only the name of one such annotation says something.
const fn workload(number: u32) -> Field<'static> {
    Field::Texts { number, is_read: is_workload, max_entries: 1, max_bytes: 0 }
}

/// Labels and annotations with names, of which there is a handful.
const fn names(number: u32, is_read: fn(&str) -> bool) -> Field<'static> {
    Field::Texts { number, is_read, max_entries: 4, max_bytes: MAX_NAME }
}

/// Devices of a container: type, major, minor.
const fn devices(having: &'static [(u32, u64)], max_entries: usize) -> Field<'static> {
    Field::Messages { number: 2, fields: &[Text(2), Number(3), Number(4)], having, max_entries }
}
