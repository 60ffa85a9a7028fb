//! [`Headers`]: header blocks (HPACK, RFC 7541) with `localhost` as their authority. Pure.
//!
//! The rewritten fields are literals without indexing. So h2's dynamic table stays empty, and only the
//! decoder here has to follow the client's table.

use loona_hpack::Decoder;

/// The longest block in bytes, and the largest size of its decoded fields as RFC 7541 counts it. A gRPC
/// request has less than 1 KiB.
pub(crate) const MAX_BLOCK: usize = 8192;
/// What the protocol adds to the size of a field. The encoding of a literal adds less, so a rewritten
/// block is never longer than [`MAX_BLOCK`].
const OVERHEAD: usize = 32;
/// The most fields in a block. A gRPC request has about ten.
const MAX_FIELDS: usize = 64;
/// The protocol's default. The server does not advertise another one.
const MAX_TABLE: usize = 4096;

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RewriteError(pub(crate) &'static str);

const INVALID: RewriteError = RewriteError("a header block is invalid");
const TOO_LARGE: RewriteError = RewriteError("a header block is too large");

pub(crate) struct Headers(Decoder<'static>);

impl Default for Headers {
    fn default() -> Headers {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MAX_TABLE);
        Headers(decoder)
    }
}

impl Headers {
    pub(crate) fn rewrite(&mut self, block: &[u8]) -> Result<Vec<u8>, RewriteError> {
        check_length(block)?;
        let mut rewritten = Vec::with_capacity(2 * block.len());
        let mut size = 0_usize;
        let result = self.0.decode_with_cb(block, |name, value| {
            let value: &[u8] = if *name == *b":authority" { b"localhost" } else { &value };
            size += name.len() + value.len() + OVERHEAD;
            // One byte can refer to a field as large as the table, so the length of a block does not limit
            // this.
            if size <= MAX_BLOCK {
                rewritten.push(0);
                write_string(&name, &mut rewritten);
                write_string(value, &mut rewritten);
            }
        });
        result.map_err(|_| INVALID)?;
        if size <= MAX_BLOCK { Ok(rewritten) } else { Err(TOO_LARGE) }
    }
}

/// Refuses a block with too many fields before it is decoded: the decoder cannot be stopped, and needs
/// microseconds for each compressed string.
fn check_length(block: &[u8]) -> Result<(), RewriteError> {
    let mut rest = block;
    let mut fields = 0;
    while let Some(&first) = rest.first() {
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(TOO_LARGE);
        }
        // The representations of RFC 7541, section 6: indexed, literal with indexing, new table size, and
        // literal without indexing.
        let (bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let index;
        (index, rest) = integer(rest, bits).ok_or(INVALID)?;
        let strings = if is_literal { 1 + usize::from(index == 0) } else { 0 };
        for _ in 0..strings {
            let length;
            (length, rest) = integer(rest, 7).ok_or(INVALID)?;
            rest = rest.get(length..).ok_or(INVALID)?;
        }
    }
    Ok(())
}

/// A number with a prefix of this many bits (RFC 7541, section 5.1), and the bytes after it.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mask = u8::MAX >> (8 - bits);
    let mut number = usize::from(first & mask);
    if first & mask < mask {
        return Some((number, rest));
    }
    // A longer number exceeds every limit here.
    for shift in [0, 7, 14, 21] {
        let &byte;
        (byte, rest) = rest.split_first()?;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number, rest));
        }
    }
    None
}

/// Appends a string without Huffman code.
fn write_string(text: &[u8], to: &mut Vec<u8>) {
    const FULL: usize = 0x7f;
    if text.len() < FULL {
        to.push(text.len() as u8);
    } else {
        to.push(FULL as u8);
        let mut rest = text.len() - FULL;
        while rest > 0x7f {
            to.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        to.push(rest as u8);
    }
    to.extend_from_slice(text);
}

#[cfg(test)]
mod tests;
