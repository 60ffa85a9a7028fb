//! The fields of the runtime's messages that the plugin reads: little, and bounded for each pod.

use super::mounts::{is_place, is_propagation};
use ledger::annotations::{MAX_ANNOTATIONS, MAX_READ, is_read};
use nri::Field::{Message as Part, Messages as Parts, Number, Text};
use nri::{CallError, Field, Fields, Reads, Request};

/// The most entries to read of a map: one more than the ledger accepts, so that it can refuse them.
const MAX_ENTRIES: usize = MAX_ANNOTATIONS + 1;
/// How many characters to read of a value. Valid ones are shorter, and errors quote fewer.
const MAX_VALUE: usize = 256;
/// The most lists of GPUs that are read of a container: the last one counts.
const MAX_GPU_ENTRIES: usize = 4;
/// The longest list of GPUs that is read, in bytes: some hundred UUIDs.
const MAX_GPUS: usize = 8192;
/// The longest path of a mount that is read, in bytes: Linux has no longer ones.
const MAX_PATH: usize = 4096;
/// The longest option of a mount that is read, in bytes.
const MAX_OPTION: usize = 16;
/// The most bytes of all pods and containers that the plugin reads: some thousand containers have
/// one MiB.
const MAX_LISTED_BYTES: u64 = 8 << 20;

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

const POD: &[Field<'_>] = &[
    Text(1), // id
    Text(2), // name
    Text(3), // uid
    Text(4), // namespace
    texts(5, |label| [POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)),
    Field::Texts {
        number: 6, // annotations
        is_read: |name| is_read(name) || is_workload(name),
        max_entries: MAX_READ + 1,
        max_chars: MAX_VALUE,
    },
    Text(7), // runtime_handler
    // linux: pod_resources and cgroup_parent
    Part(8, &[Part(2, RESOURCES), Text(3)]),
];

const CONTAINER: &[Field<'_>] = &[
    Text(1),   // id
    Text(2),   // pod_sandbox_id
    Text(3),   // name
    Number(4), // state
    texts(5, |label| {
        [CONTAINER_NAME_LABEL, POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)
    }),
    texts(6, |name| {
        [CONTAINERD_CONTAINER_NAME, CRIO_METADATA].contains(&name) || is_workload(name)
    }),
    // env
    Field::Strings {
        number: 8,
        is_read: |entry| entry.starts_with(VISIBLE_GPUS),
        max_entries: MAX_GPU_ENTRIES,
        max_bytes: MAX_GPUS,
    },
    // mounts: destination and options, of few mounts
    Parts(
        9,
        &[
            Field::Strings { number: 1, is_read: is_place, max_entries: 1, max_bytes: MAX_PATH },
            Field::Strings {
                number: 4,
                is_read: is_propagation,
                max_entries: 1,
                max_bytes: MAX_OPTION,
            },
        ],
    ),
    // linux: devices (type, major, minor), resources and cgroups_path
    Part(11, &[Part(2, &[Text(2), Number(3), Number(4)]), Part(3, RESOURCES), Text(5)]),
    Number(14), // created_at
];

/// Of an adjustment: linux.resources.
const ADJUSTMENT: &[Field<'_>] = &[Part(6, &[Part(2, &[Part(2, CPU)])])];

/// For each call of the runtime.
pub const READS: Reads<'static> = Reads {
    fields: Some(Fields {
        pod: POD,
        container: CONTAINER,
        resources: RESOURCES,
        adjustment: ADJUSTMENT,
    }),
    max_listed_bytes: MAX_LISTED_BYTES,
};

const fn texts(number: u32, is_read: fn(&str) -> bool) -> Field<'static> {
    Field::Texts { number, is_read, max_entries: MAX_ENTRIES, max_chars: MAX_VALUE }
}

/// Decodes what the plugin reads of a message.
///
/// # Errors
/// If the message is malformed, as far as it is read.
pub fn parse<M: Request>(message: &[u8]) -> Result<M, CallError> {
    READS.parse(message)
}
