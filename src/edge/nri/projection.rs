//! The part of the runtime's messages that the plugin reads.
//!
//! A pod's author chooses its labels, annotations, environment and mounts, up to megabytes of them,
//! and Rust's protobuf takes 16 times the memory of the wire for short texts, also for fields that
//! `nri.proto` does not declare. So [`parse`] first copies what the plugin reads, which is little
//! and bounded for each pod, and decodes only that. Whatever else is in a message is passed over
//! where it lies.

use super::wire;
use ledger::annotations::{MAX_ANNOTATIONS, is_wish};
use protobuf::rt::{WireType, skip_field_for_tag};
use protobuf::{CodedInputStream, CodedOutputStream, Message};
use std::collections::BTreeMap;
use std::{io, str};

/// The most entries to keep of a map: one more than the ledger accepts, so that it can refuse them.
const MAX_ENTRIES: usize = MAX_ANNOTATIONS + 1;
/// The longest name of a label or annotation in Kubernetes, in bytes. Longer ones are not read.
const MAX_KEY: usize = 253 + 1 + 63;
/// How many characters to keep of a value. Valid ones are shorter, and errors quote fewer.
const MAX_VALUE: usize = 256;

pub(super) const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
pub(super) const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
pub(super) const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
pub(super) const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
pub(super) const CONTAINERD_CONTAINER_NAME: &str = "io.kubernetes.cri.container-name";
pub(super) const CRIO_METADATA: &str = "io.kubernetes.cri-o.Metadata";

/// A field that the plugin reads, by its number.
#[derive(Debug)]
pub enum Field {
    /// A number.
    Number(u32),
    Text(u32),
    Message(u32, &'static [Field]),
    /// A map from text to text, and which of its keys the plugin reads.
    Texts(u32, fn(&str) -> bool),
}

use Field::{Message as Part, Number, Text, Texts};

const CPU: &[Field] = &[
    Part(1, &[Number(1)]), // shares
    Part(2, &[Number(1)]), // quota
    Part(3, &[Number(1)]), // period
    Text(6),               // cpus
    Text(7),               // mems
];

const RESOURCES: &[Field] = &[Part(2, CPU)];

const POD: &[Field] = &[
    Text(1), // id
    Text(2), // name
    Text(3), // uid
    Text(4), // namespace
    Texts(5, |label| [POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)),
    Texts(6, is_wish),
    // linux: pod_resources and cgroup_parent
    Part(8, &[Part(2, RESOURCES), Text(3)]),
];

const CONTAINER: &[Field] = &[
    Text(1),   // id
    Text(2),   // pod_sandbox_id
    Text(3),   // name
    Number(4), // state
    Texts(5, |label| {
        [CONTAINER_NAME_LABEL, POD_UID_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL].contains(&label)
    }),
    Texts(6, |annotation| [CONTAINERD_CONTAINER_NAME, CRIO_METADATA].contains(&annotation)),
    // linux: devices (type, major, minor), resources and cgroups_path
    Part(11, &[Part(2, &[Text(2), Number(3), Number(4)]), Part(3, RESOURCES), Text(5)]),
    Number(14), // created_at
];

/// A message of the runtime, and what the plugin reads of it.
pub trait Projected: Message {
    const FIELDS: &'static [Field];
}

impl Projected for wire::ConfigureRequest {
    const FIELDS: &'static [Field] = &[Text(1), Text(2), Text(3), Number(4), Number(5), Text(6)];
}

impl Projected for wire::SynchronizeRequest {
    const FIELDS: &'static [Field] = &[Part(1, POD), Part(2, CONTAINER), Number(3)];
}

impl Projected for wire::StateChangeEvent {
    const FIELDS: &'static [Field] = &[Number(1), Part(2, POD), Part(3, CONTAINER)];
}

impl Projected for wire::PodRequest {
    const FIELDS: &'static [Field] = &[Part(1, POD)];
}

impl Projected for wire::ContainerRequest {
    const FIELDS: &'static [Field] = &[Part(1, POD), Part(2, CONTAINER)];
}

impl Projected for wire::UpdatePodSandboxRequest {
    const FIELDS: &'static [Field] = &[Part(1, POD), Part(3, RESOURCES)];
}

impl Projected for wire::UpdateContainerRequest {
    const FIELDS: &'static [Field] = &[Part(1, POD), Part(2, CONTAINER), Part(3, RESOURCES)];
}

impl Projected for wire::ValidateContainerAdjustmentRequest {
    // adjust: linux.resources
    const FIELDS: &'static [Field] =
        &[Part(2, CONTAINER), Part(3, &[Part(6, &[Part(2, RESOURCES)])])];
}

/// Decodes what the plugin reads of a message.
///
/// # Errors
/// If the message is malformed, as far as it is read.
pub fn parse<M: Projected>(message: &[u8]) -> protobuf::Result<M> {
    M::parse_from_bytes(&project(message, M::FIELDS)?)
}

/// The part of a message that has these fields, as a message.
fn project(message: &[u8], fields: &[Field]) -> protobuf::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut entries: BTreeMap<u32, usize> = BTreeMap::new();
    let mut input = CodedInputStream::from_bytes(message);
    let mut start = 0;
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        match fields.iter().find(|field| field.tag() == tag) {
            None => skip_field_for_tag(tag, &mut input)?,
            Some(Number(_) | Text(_)) => {
                skip_field_for_tag(tag, &mut input)?;
                kept.extend_from_slice(slice(message, start, input.pos())?);
            }
            Some(Part(number, fields)) => {
                let part = project(content(&mut input, message)?, fields)?;
                CodedOutputStream::vec(&mut kept).write_bytes(*number, &part)?;
            }
            Some(Texts(number, is_read)) => {
                let (key, value) = entry(content(&mut input, message)?)?;
                if key.len() <= MAX_KEY && str::from_utf8(key).is_ok_and(is_read) {
                    let entries = entries.entry(*number).or_default();
                    if *entries < MAX_ENTRIES {
                        *entries += 1;
                        put_entry(&mut kept, *number, key, beginning(value)?)?;
                    }
                }
            }
        }
        start = input.pos();
    }
    Ok(kept)
}

impl Field {
    /// What the field begins with on the wire. With another type it is unknown to protobuf too.
    fn tag(&self) -> u32 {
        match self {
            Number(number) => number << 3 | WireType::Varint as u32,
            Text(number) | Part(number, _) | Texts(number, _) => {
                number << 3 | WireType::LengthDelimited as u32
            }
        }
    }
}

/// Reads a text or message where it lies.
pub(super) fn content<'a>(
    input: &mut CodedInputStream<'_>,
    message: &'a [u8],
) -> protobuf::Result<&'a [u8]> {
    let length = input.read_raw_varint32()?;
    let start = input.pos();
    input.skip_raw_bytes(length)?;
    slice(message, start, input.pos())
}

/// Key and value of a map's entry; the last ones count, and an absent one is empty.
fn entry(entry: &[u8]) -> protobuf::Result<(&[u8], &[u8])> {
    let mut key: &[u8] = &[];
    let mut value: &[u8] = &[];
    let mut input = CodedInputStream::from_bytes(entry);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        if tag == Text(1).tag() {
            key = content(&mut input, entry)?;
        } else if tag == Text(2).tag() {
            value = content(&mut input, entry)?;
        } else {
            skip_field_for_tag(tag, &mut input)?;
        }
    }
    Ok((key, value))
}

fn put_entry(to: &mut Vec<u8>, number: u32, key: &[u8], value: &str) -> protobuf::Result<()> {
    let mut entry = Vec::new();
    CodedOutputStream::vec(&mut entry).write_bytes(1, key)?;
    CodedOutputStream::vec(&mut entry).write_string(2, value)?;
    CodedOutputStream::vec(to).write_bytes(number, &entry)
}

fn beginning(value: &[u8]) -> protobuf::Result<&str> {
    let value = str::from_utf8(value).map_err(io::Error::other)?;
    let end = value.char_indices().nth(MAX_VALUE).map(|(end, _)| end);
    Ok(end.and_then(|end| value.get(..end)).unwrap_or(value))
}

fn slice(message: &[u8], start: u64, end: u64) -> protobuf::Result<&[u8]> {
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let slice = range.and_then(|(start, end)| message.get(start..end));
    Ok(slice.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
}
