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
pub enum Reads<'a> {
    All,
    Only(Fields<'a>),
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

/// A field that a plugin reads, by its number. Fields of what a pod's author chooses have bounds, so that
/// no pod can fill the memory of a plugin, or the list of all pods: nothing past them is read.
///
/// Several fields can have one number. The first one that is meant for an entry of a map or list reads
/// it, so that entries of one kind never use up the bound of another.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    /// A number, an enum or a bool.
    Number(u32),
    Text(u32),
    Message(u32, &'a [Field<'a>]),
    /// A list of messages. One without any of these fields is not read.
    Messages {
        number: u32,
        fields: &'a [Field<'a>],
        /// Only messages are read whose fields with these numbers have these values.
        having: &'a [(u32, u64)],
        max_entries: usize,
    },
    /// A map from text to text.
    Texts {
        number: u32,
        is_read: fn(&str) -> bool,
        max_entries: usize,
        /// The rest of a longer value is not read.
        max_bytes: usize,
    },
    /// The last text of a list that is meant.
    LastText {
        number: u32,
        is_read: fn(&str) -> bool,
        /// The rest of a longer text is not read.
        max_bytes: usize,
    },
}

use Field::{LastText, Message as Part, Messages, Number, Text, Texts};

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
        let parsed = match self {
            Reads::All => M::parse_from_bytes(message),
            Reads::Only(fields) => {
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
    // By index of the field.
    let mut entries: BTreeMap<usize, usize> = BTreeMap::new();
    let mut last: BTreeMap<u32, &str> = BTreeMap::new();
    let mut input = CodedInputStream::from_bytes(message);
    let mut start = 0;
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        let mut of_tag = fields.iter().enumerate().filter(|(_, field)| field.tag() == tag);
        match of_tag.clone().next() {
            None => skip_field_for_tag(tag, &mut input)?,
            Some((_, Number(_) | Text(_))) => {
                skip_field_for_tag(tag, &mut input)?;
                kept.extend_from_slice(slice(message, start, input.pos())?);
            }
            Some((_, Part(number, fields))) => {
                let part = project(content(&mut input, message)?, fields)?;
                CodedOutputStream::vec(&mut kept).write_bytes(*number, &part)?;
            }
            Some((_, Messages { number, .. })) => {
                let part = content(&mut input, message)?;
                let numbers = numbers(part)?;
                let meant = of_tag.find_map(|(at, field)| match field {
                    Messages { having, fields, max_entries, .. }
                        if having
                            .iter()
                            .all(|(field, value)| numbers.get(field) == Some(value)) =>
                    {
                        Some((at, fields, max_entries))
                    }
                    _ => None,
                });
                if let Some((at, fields, max)) = meant {
                    let part = project(part, fields)?;
                    if !part.is_empty() && is_within(&mut entries, at, *max) {
                        CodedOutputStream::vec(&mut kept).write_bytes(*number, &part)?;
                    }
                }
            }
            Some((_, LastText { number, is_read, max_bytes })) => {
                if let Ok(text) = str::from_utf8(content(&mut input, message)?)
                    && is_read(text)
                {
                    last.insert(*number, beginning(text, *max_bytes));
                }
            }
            Some((_, Texts { number, .. })) => {
                let (key, value) = entry(content(&mut input, message)?)?;
                let name = str::from_utf8(key).ok().filter(|name| name.len() <= MAX_KEY);
                let meant = of_tag.find_map(|(at, field)| match field {
                    Texts { is_read, max_entries, max_bytes, .. } if name.is_some_and(is_read) => {
                        Some((at, max_entries, max_bytes))
                    }
                    _ => None,
                });
                if let Some((at, max, max_bytes)) = meant
                    && is_within(&mut entries, at, *max)
                {
                    let value = str::from_utf8(value).map_err(io::Error::other)?;
                    put_entry(&mut kept, *number, key, beginning(value, *max_bytes))?;
                }
            }
        }
        start = input.pos();
    }
    for (number, text) in last {
        CodedOutputStream::vec(&mut kept).write_string(number, text)?;
    }
    Ok(kept)
}

/// Counts one more entry of the field at this index, unless it has the most already.
fn is_within(entries: &mut BTreeMap<usize, usize>, field: usize, max: usize) -> bool {
    let entries = entries.entry(field).or_default();
    let within = *entries < max;
    *entries += usize::from(within);
    within
}

impl Field<'_> {
    /// The field's number and type on the wire. Protobuf, too, treats the number with another type as an
    /// unknown field.
    fn tag(&self) -> u32 {
        match self {
            Number(number) => number << 3 | WireType::Varint as u32,
            Text(number)
            | Part(number, _)
            | Messages { number, .. }
            | Texts { number, .. }
            | LastText { number, .. } => number << 3 | WireType::LengthDelimited as u32,
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

/// The numbers in a message by field. If there are several of one, the last one counts.
fn numbers(message: &[u8]) -> protobuf::Result<BTreeMap<u32, u64>> {
    let mut numbers = BTreeMap::new();
    let mut input = CodedInputStream::from_bytes(message);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        if tag & 7 == WireType::Varint as u32 {
            numbers.insert(tag >> 3, input.read_uint64()?);
        } else {
            skip_field_for_tag(tag, &mut input)?;
        }
    }
    Ok(numbers)
}

fn put_entry(to: &mut Vec<u8>, number: u32, key: &[u8], value: &str) -> protobuf::Result<()> {
    let mut entry = Vec::new();
    CodedOutputStream::vec(&mut entry).write_bytes(1, key)?;
    CodedOutputStream::vec(&mut entry).write_string(2, value)?;
    CodedOutputStream::vec(to).write_bytes(number, &entry)
}

/// The longest whole characters of a text that have at most this many bytes.
fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    (0..=bytes).rev().find_map(|end| text.get(..end)).unwrap_or_default()
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
        assert_eq!(Reads::All.parse::<wire::PodRequest>(&bytes), Ok(request));

        let annotation =
            Texts { number: 6, is_read: |key| key == "b", max_entries: 1, max_bytes: 5 };
        let fields =
            Fields { pod: &[Text(1), annotation], container: &[], resources: &[], adjustment: &[] };
        let reads = Reads::Only(fields);
        let read = reads.parse::<wire::PodRequest>(&bytes).unwrap().pod.unwrap();
        assert_eq!((&*read.id, &*read.name), ("id", ""));
        assert_eq!(read.annotations, [("b".to_owned(), "grö".to_owned())].into());
    }
}
