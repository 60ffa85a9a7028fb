//! [`Rewriter`]: the frames of a client (RFC 9113, section 4), with rewritten header blocks. Pure.

use super::headers::{Headers, MAX_BLOCK, RewriteError};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length, type, flags and stream of a frame, in bytes.
const HEAD: usize = 9;
/// The protocol's default. The server does not advertise more.
const MAX_FRAME: usize = 16_384;
/// The most CONTINUATION frames of one block. A client that sends more only wastes the server's time.
const MAX_CONTINUATIONS: usize = 16;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

#[derive(Default)]
pub(crate) struct Rewriter {
    has_preface: bool,
    /// Bytes of an incomplete frame.
    pending: Vec<u8>,
    /// An incomplete header block.
    open: Option<Block>,
    headers: Headers,
}

struct Block {
    stream: [u8; 4],
    /// The flags of the rewritten frame, without END_HEADERS.
    flags: u8,
    priority: Vec<u8>,
    fragments: Vec<u8>,
    continuations: usize,
}

impl Rewriter {
    /// Appends the client's bytes to `to`, rewritten as far as frames are complete. After an error the
    /// connection has to end, as the state of its header compression is lost.
    pub(crate) fn push(&mut self, bytes: &[u8], to: &mut Vec<u8>) -> Result<(), RewriteError> {
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let done = self.take(&pending, to)?;
        pending.drain(..done);
        self.pending = pending;
        Ok(())
    }

    /// Rewrites the complete frames in `bytes`, and returns how many bytes these have.
    fn take(&mut self, bytes: &[u8], to: &mut Vec<u8>) -> Result<usize, RewriteError> {
        let mut done = 0;
        if !self.has_preface {
            let known = bytes.len().min(PREFACE.len());
            if bytes[..known] != PREFACE[..known] {
                return Err(RewriteError("not HTTP/2"));
            }
            if known < PREFACE.len() {
                return Ok(0);
            }
            self.has_preface = true;
            to.extend_from_slice(PREFACE);
            done = PREFACE.len();
        }
        while let Some((head, rest)) = bytes[done..].split_first_chunk::<HEAD>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if length > MAX_FRAME {
                return Err(RewriteError("a frame is too large"));
            }
            let Some(payload) = rest.get(..length) else { break };
            self.frame(head, payload, to)?;
            done += HEAD + length;
        }
        Ok(done)
    }

    fn frame(
        &mut self,
        head: &[u8; HEAD],
        payload: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), RewriteError> {
        let &[_, _, _, kind, flags, stream @ ..] = head;
        let block = match (kind, self.open.take()) {
            (HEADERS, None) => opened(stream, flags, payload)?,
            (CONTINUATION, Some(block)) if block.stream == stream => block.continued(payload)?,
            (CONTINUATION, _) | (_, Some(_)) => {
                return Err(RewriteError("a header block is interrupted"));
            }
            (PUSH_PROMISE, None) => return Err(RewriteError("clients cannot push")),
            (_, None) => {
                to.extend_from_slice(head);
                to.extend_from_slice(payload);
                return Ok(());
            }
        };
        if flags & END_HEADERS == 0 {
            self.open = Some(block);
            return Ok(());
        }
        let rewritten = self.headers.rewrite(&block.fragments)?;
        let length = (block.priority.len() + rewritten.len()) as u32;
        to.extend_from_slice(&length.to_be_bytes()[1..]);
        to.extend_from_slice(&[HEADERS, block.flags | END_HEADERS]);
        to.extend_from_slice(&block.stream);
        to.extend_from_slice(&block.priority);
        to.extend_from_slice(&rewritten);
        Ok(())
    }
}

/// The start of a block, from a HEADERS frame.
fn opened(stream: [u8; 4], flags: u8, payload: &[u8]) -> Result<Block, RewriteError> {
    const SHORT: RewriteError = RewriteError("a HEADERS frame is too short");
    let (padding, rest) = if flags & PADDED == 0 {
        (0, payload)
    } else {
        let (padding, rest) = payload.split_first().ok_or(SHORT)?;
        (usize::from(*padding), rest)
    };
    let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
    let (priority, rest) = rest.split_at_checked(priority).ok_or(SHORT)?;
    let fragment = rest.len().checked_sub(padding).ok_or(SHORT)?;
    let block = Block {
        stream,
        flags: flags & (END_STREAM | PRIORITY),
        priority: priority.to_vec(),
        fragments: Vec::new(),
        continuations: 0,
    };
    block.with(&rest[..fragment])
}

impl Block {
    fn continued(mut self, fragment: &[u8]) -> Result<Block, RewriteError> {
        self.continuations += 1;
        if self.continuations > MAX_CONTINUATIONS {
            return Err(RewriteError("a header block has too many frames"));
        }
        self.with(fragment)
    }

    fn with(mut self, fragment: &[u8]) -> Result<Block, RewriteError> {
        self.fragments.extend_from_slice(fragment);
        if self.fragments.len() > MAX_BLOCK {
            return Err(RewriteError("a header block is too large"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
