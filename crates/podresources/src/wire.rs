//! Protobuf's wire format without a schema: the fields of a message in their order, each with its bytes.
//!
//! <https://protobuf.dev/programming-guides/encoding/>

use cpuset::CpuSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid message")]
pub struct Malformed;

/// The longest encoding of 64 bits.
const MAX_VARINT: usize = 10;
const MAX_NUMBER: u64 = (1 << 29) - 1;
/// How deep groups may be nested: protobuf's parsers allow 100 nested messages.
const MAX_GROUPS: usize = 100;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const GROUP: u64 = 3;
const END_GROUP: u64 = 4;
const FIXED32: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Varint(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Groups and numbers of a fixed size.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    pub(crate) value: FieldValue<'a>,
    /// The bytes of the tag, kept because a number has several encodings.
    tag: &'a [u8],
    /// All bytes of the field, with its tag.
    pub(crate) raw: &'a [u8],
}

impl Field<'_> {
    /// Appends this field with other bytes as its value.
    pub(crate) fn write_with(&self, content: &[u8], to: &mut Vec<u8>) {
        if self.value == FieldValue::Bytes(content) {
            to.extend_from_slice(self.raw);
        } else {
            to.extend_from_slice(self.tag);
            write_varint(content.len() as u64, to);
            to.extend_from_slice(content);
        }
    }
}

/// The fields of a message; ends after the first error.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = field(self.0);
        self.0 = field.map_or(&[], |field| &self.0[field.raw.len()..]);
        Some(field)
    }
}

/// The last value of a string: protobuf's parsers, too, take the last one.
pub(crate) fn string(message: &[u8], number: u64) -> Result<&[u8], Malformed> {
    let mut last: &[u8] = &[];
    for field in Fields::of(message) {
        let field = field?;
        if let (true, FieldValue::Bytes(bytes)) = (field.number == number, field.value) {
            last = bytes;
        }
    }
    Ok(last)
}

/// The first field of a message, which must not be empty.
fn field(message: &[u8]) -> Result<Field<'_>, Malformed> {
    let (key, tag_length) = varint(message)?;
    let number = key >> 3;
    let kind = key & 7;
    if number == 0 || number > MAX_NUMBER {
        return Err(Malformed);
    }
    let (tag, rest) = message.split_at(tag_length);
    let (value, length) = match kind {
        VARINT => {
            let (number, length) = varint(rest)?;
            (FieldValue::Varint(number), length)
        }
        FIXED64 => (FieldValue::Other, 8),
        FIXED32 => (FieldValue::Other, 4),
        BYTES => {
            let (length, before) = varint(rest)?;
            let length = usize::try_from(length).map_err(|_| Malformed)?;
            let end = before.checked_add(length).ok_or(Malformed)?;
            (FieldValue::Bytes(rest.get(before..end).ok_or(Malformed)?), end)
        }
        GROUP => (FieldValue::Other, group(rest, number)?),
        _ => return Err(Malformed),
    };
    let raw = message.get(..tag_length + length).ok_or(Malformed)?;
    Ok(Field { number, value, tag, raw })
}

/// The length of a group, without the tag that begins it and with the one that ends it.
fn group(message: &[u8], number: u64) -> Result<usize, Malformed> {
    let mut open = vec![number];
    let mut at = 0;
    while let Some(&innermost) = open.last() {
        let rest = message.get(at..).ok_or(Malformed)?;
        let (key, tag_length) = varint(rest)?;
        match key & 7 {
            END_GROUP if key >> 3 == innermost => {
                open.pop();
                at += tag_length;
            }
            GROUP if open.len() < MAX_GROUPS => {
                open.push(key >> 3);
                at += tag_length;
            }
            GROUP | END_GROUP => return Err(Malformed),
            _ => at += field(rest)?.raw.len(),
        }
    }
    Ok(at)
}

/// A number, and the length of its encoding.
fn varint(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        // The tenth byte has only the last of 64 bits.
        if at == MAX_VARINT - 1 && byte > 1 {
            return Err(Malformed);
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((number, at + 1));
        }
    }
    Err(Malformed)
}

fn write_varint(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

pub(crate) fn write_bytes(number: u64, bytes: &[u8], to: &mut Vec<u8>) {
    write_varint(number << 3 | BYTES, to);
    write_varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

/// Appends a number, or nothing if it is 0, which is what a parser takes a missing one for.
pub(crate) fn write_number(number: u64, value: u64, to: &mut Vec<u8>) {
    if value > 0 {
        write_varint(number << 3 | VARINT, to);
        write_varint(value, to);
    }
}

/// Appends CPUs as packed numbers, or nothing if there are none.
pub(crate) fn write_cpus(number: u64, cpus: &CpuSet, to: &mut Vec<u8>) {
    let mut packed = Vec::new();
    cpus.iter().for_each(|cpu| write_varint(cpu as u64, &mut packed));
    if !packed.is_empty() {
        write_bytes(number, &packed, to);
    }
}

/// A message with these CPUs in place of those that it has, packed or not. A message without any gets
/// them where an encoder writes them: after the fields with lower numbers.
pub(crate) fn with_cpus(message: &[u8], number: u64, cpus: &CpuSet) -> Result<Vec<u8>, Malformed> {
    let mut encoded = Vec::new();
    write_cpus(number, cpus, &mut encoded);
    let is_cpus = |field: &Field<'_>| field.number == number && field.value != FieldValue::Other;
    with_fields(message, number, is_cpus, &encoded)
}

/// A message with these encoded messages in place of those with this number, as [`with_cpus`].
pub(crate) fn with_messages(
    message: &[u8],
    number: u64,
    encoded: &[u8],
) -> Result<Vec<u8>, Malformed> {
    let is_message =
        |field: &Field<'_>| field.number == number && matches!(field.value, FieldValue::Bytes(_));
    with_fields(message, number, is_message, encoded)
}

fn with_fields(
    message: &[u8],
    number: u64,
    is_replaced: impl Fn(&Field<'_>) -> bool,
    encoded: &[u8],
) -> Result<Vec<u8>, Malformed> {
    let mut first = None;
    let mut after = 0;
    let mut at = 0;
    for field in Fields::of(message) {
        let field = field?;
        if is_replaced(&field) {
            first = first.or(Some(at));
        }
        at += field.raw.len();
        if field.number < number {
            after = at;
        }
    }
    let (before, behind) = message.split_at(first.unwrap_or(after));
    let mut edited = Vec::with_capacity(message.len() + encoded.len());
    edited.extend_from_slice(before);
    edited.extend_from_slice(encoded);
    for field in Fields::of(behind) {
        let field = field?;
        if !is_replaced(&field) {
            edited.extend_from_slice(field.raw);
        }
    }
    Ok(edited)
}

#[cfg(test)]
pub(crate) mod tests;
