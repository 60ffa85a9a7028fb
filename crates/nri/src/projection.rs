//! Which fields of the runtime's messages a plugin reads.
//!
//! A pod's author chooses its labels, annotations, environment and mounts, up to megabytes of them.
//! Rust's protobuf takes 16 times as much memory for short texts as the wire, even for fields that
//! `nri.proto` does not declare. A plugin that must be small names the [`Fields`] that it reads: only
//! these are copied and decoded, and all others are skipped.

use crate::CallError;
use crate::wire;
use protobuf::rt::{WireType, skip_field_for_tag};
use protobuf::{CodedInputStream, CodedOutputStream, Message};
use std::collections::BTreeMap;
use std::{io, str};

/// The longest name of a label or annotation in Kubernetes, in bytes. Longer ones are not read.
const MAX_KEY: usize = 253 + 1 + 63;

/// What a plugin reads of the runtime's messages.
#[derive(Debug, Clone, Copy)]
pub struct Reads<'a> {
    /// `None` reads everything.
    pub fields: Option<Fields<'a>>,
    /// The most bytes of the fields that are read in a synchronisation, which take a multiple of that in
    /// memory. A longer one is refused.
    pub max_listed_bytes: u64,
}

impl Reads<'_> {
    /// Reads everything. 64 MiB are far more than the list of a node can have.
    pub const ALL: Reads<'static> = Reads { fields: None, max_listed_bytes: 64 << 20 };
}

/// The fields that a plugin reads, by message.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// Fields of `PodSandbox`.
    pub pod: &'a [Field<'a>],
    /// Fields of `Container`.
    pub container: &'a [Field<'a>],
    /// Fields of the new `LinuxResources` in an update.
    pub resources: &'a [Field<'a>],
    /// Fields of `ContainerAdjustment` in a validation.
    pub adjustment: &'a [Field<'a>],
}

/// A field that a plugin reads, by its number.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    /// A number, an enum or a bool.
    Number(u32),
    Text(u32),
    Message(u32, &'a [Field<'a>]),
    /// A list of messages. One without any of these fields is not read.
    Messages(u32, &'a [Field<'a>]),
    /// A map from text to text.
    Texts {
        number: u32,
        is_read: fn(&str) -> bool,
        /// The most entries that are read.
        max_entries: usize,
        /// The rest of a longer value is not read.
        max_chars: usize,
    },
    /// A list of texts.
    Strings {
        number: u32,
        is_read: fn(&str) -> bool,
        /// The most texts that are read.
        max_entries: usize,
        /// Longer texts are not read.
        max_bytes: usize,
    },
}

use Field::{Message as Part, Messages as Parts, Number, Strings, Text, Texts};

/// A field of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestField {
    Number(u32),
    Text(u32),
    Pod(u32),
    Container(u32),
    Resources(u32),
    Adjustment(u32),
}

/// A message that the runtime sends.
pub trait Request: Message {
    const FIELDS: &'static [RequestField];
}

use RequestField as Of;

impl Request for wire::ConfigureRequest {
    const FIELDS: &'static [RequestField] =
        &[Of::Text(1), Of::Text(2), Of::Text(3), Of::Number(4), Of::Number(5), Of::Text(6)];
}

impl Request for wire::SynchronizeRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1), Of::Container(2), Of::Number(3)];
}

impl Request for wire::StateChangeEvent {
    const FIELDS: &'static [RequestField] = &[Of::Number(1), Of::Pod(2), Of::Container(3)];
}

impl Request for wire::PodRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1)];
}

impl Request for wire::ContainerRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1), Of::Container(2)];
}

impl Request for wire::UpdatePodSandboxRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1), Of::Resources(2), Of::Resources(3)];
}

impl Request for wire::UpdateContainerRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1), Of::Container(2), Of::Resources(3)];
}

/// A plugin that names its fields does not get the updates of other containers (field 4).
impl Request for wire::ValidateContainerAdjustmentRequest {
    const FIELDS: &'static [RequestField] = &[Of::Pod(1), Of::Container(2), Of::Adjustment(3)];
}

impl Reads<'_> {
    /// Decodes the fields of a message that the plugin reads.
    ///
    /// # Errors
    /// If the message is malformed; fields that are skipped are not checked.
    pub fn parse<M: Request>(&self, message: &[u8]) -> Result<M, CallError> {
        let parsed = match &self.fields {
            None => M::parse_from_bytes(message),
            Some(fields) => {
                let fields: Vec<Field<'_>> =
                    M::FIELDS.iter().map(|field| fields.of(*field)).collect();
                project(message, &fields).and_then(|read| M::parse_from_bytes(&read))
            }
        };
        parsed.map_err(|error| CallError::Malformed(error.to_string()))
    }
}

impl<'a> Fields<'a> {
    fn of(&self, field: RequestField) -> Field<'a> {
        match field {
            Of::Number(number) => Number(number),
            Of::Text(number) => Text(number),
            Of::Pod(number) => Part(number, self.pod),
            Of::Container(number) => Part(number, self.container),
            Of::Resources(number) => Part(number, self.resources),
            Of::Adjustment(number) => Part(number, self.adjustment),
        }
    }
}

/// A message with only these fields of another.
fn project(message: &[u8], fields: &[Field<'_>]) -> protobuf::Result<Vec<u8>> {
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
            Some(Parts(number, fields)) => {
                let part = project(content(&mut input, message)?, fields)?;
                if !part.is_empty() {
                    CodedOutputStream::vec(&mut kept).write_bytes(*number, &part)?;
                }
            }
            Some(Strings { number, is_read, max_entries, max_bytes }) => {
                let text = content(&mut input, message)?;
                let entries = entries.entry(*number).or_default();
                if text.len() <= *max_bytes
                    && *entries < *max_entries
                    && str::from_utf8(text).is_ok_and(is_read)
                {
                    *entries += 1;
                    kept.extend_from_slice(slice(message, start, input.pos())?);
                }
            }
            Some(Texts { number, is_read, max_entries, max_chars }) => {
                let (key, value) = entry(content(&mut input, message)?)?;
                if key.len() <= MAX_KEY && str::from_utf8(key).is_ok_and(is_read) {
                    let entries = entries.entry(*number).or_default();
                    if *entries < *max_entries {
                        *entries += 1;
                        put_entry(&mut kept, *number, key, beginning(value, *max_chars)?)?;
                    }
                }
            }
        }
        start = input.pos();
    }
    Ok(kept)
}

impl Field<'_> {
    /// The field's number and type on the wire. Protobuf, too, treats the number with another type as an
    /// unknown field.
    fn tag(&self) -> u32 {
        match self {
            Number(number) => number << 3 | WireType::Varint as u32,
            Text(number)
            | Part(number, _)
            | Parts(number, _)
            | Texts { number, .. }
            | Strings { number, .. } => number << 3 | WireType::LengthDelimited as u32,
        }
    }
}

/// The bytes of a text or message, not copied.
pub(crate) fn content<'a>(
    input: &mut CodedInputStream<'_>,
    message: &'a [u8],
) -> protobuf::Result<&'a [u8]> {
    let length = input.read_raw_varint32()?;
    let start = input.pos();
    input.skip_raw_bytes(length)?;
    slice(message, start, input.pos())
}

/// Key and value of a map's entry. If there are several, the last one counts; an absent one is empty.
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

fn beginning(value: &[u8], chars: usize) -> protobuf::Result<&str> {
    let value = str::from_utf8(value).map_err(io::Error::other)?;
    let end = value.char_indices().nth(chars).map(|(end, _)| end);
    Ok(end.and_then(|end| value.get(..end)).unwrap_or(value))
}

fn slice(message: &[u8], start: u64, end: u64) -> protobuf::Result<&[u8]> {
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let slice = range.and_then(|(start, end)| message.get(start..end));
    Ok(slice.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_fields_are_read() {
        let pod = wire::PodSandbox {
            id: "id".into(),
            name: "name".into(),
            annotations: [("a", "1"), ("b", "größer"), ("c", "3")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Default::default()
        };
        let request = wire::PodRequest { pod: Some(pod.clone()).into(), ..Default::default() };
        let bytes = request.write_to_bytes().unwrap();
        assert_eq!(Reads::ALL.parse::<wire::PodRequest>(&bytes), Ok(request));

        let annotation =
            Texts { number: 6, is_read: |key| key == "b", max_entries: 1, max_chars: 3 };
        let fields =
            Fields { pod: &[Text(1), annotation], container: &[], resources: &[], adjustment: &[] };
        let reads = Reads { fields: Some(fields), ..Reads::ALL };
        let read = reads.parse::<wire::PodRequest>(&bytes).unwrap().pod.unwrap();
        assert_eq!((&*read.id, &*read.name), ("id", ""));
        assert_eq!(read.annotations, [("b".to_owned(), "grö".to_owned())].into());
    }
}
