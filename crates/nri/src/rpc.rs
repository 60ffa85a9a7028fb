//! Serves the runtime's calls: reads ttrpc messages, and writes the answers.
//!
//! The server of the `ttrpc` crate does not fit: it accepts requests of 4 MiB at most, while a runtime
//! with NRI 0.6.1 lists all containers of a node in one; it handles requests in no particular order, and
//! cancels the handling of a request when its caller gives up.

use crate::CallError;
use crate::projection::content;
use log::Level;
use protobuf::CodedInputStream;
use protobuf::rt::{WireType, skip_field_for_tag};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::{io, str};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use ttrpc::proto::{
    Code, Codec, MESSAGE_HEADER_LENGTH, MESSAGE_LENGTH_MAX, MESSAGE_TYPE_REQUEST, MessageHeader,
    Response, Status,
};
use wording::Repeats;

/// The tags of the fields of ttrpc's `Request`: number, and type on the wire.
const SERVICE: u32 = 1 << 3 | WireType::LengthDelimited as u32;
const METHOD: u32 = 2 << 3 | WireType::LengthDelimited as u32;
const PAYLOAD: u32 = 3 << 3 | WireType::LengthDelimited as u32;
const TIMEOUT_NANO: u32 = 4 << 3 | WireType::Varint as u32;

/// The longest accepted request in bytes: the longest of NRI before 0.7.
const MAX_REQUEST: usize = (16 << 20) + 4096;
/// How many calls may wait for their answers. The runtime makes one call at a time, so several wait only
/// after it has given up on some.
const MAX_WAITING: usize = 64;

/// A call. It borrows from the message, which can have 16 MiB, so there is no second copy.
#[derive(Debug, Default)]
pub(crate) struct RpcRequest<'a> {
    pub(crate) service: &'a str,
    pub(crate) method: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) timeout_nano: i64,
}

impl<'a> RpcRequest<'a> {
    fn decode(message: &'a [u8]) -> protobuf::Result<RpcRequest<'a>> {
        let text = |bytes| str::from_utf8(bytes).map_err(io::Error::other);
        let mut request = RpcRequest::default();
        let mut input = CodedInputStream::from_bytes(message);
        while let Some(tag) = input.read_raw_tag_or_eof()? {
            match tag {
                SERVICE => request.service = text(content(&mut input, message)?)?,
                METHOD => request.method = text(content(&mut input, message)?)?,
                PAYLOAD => request.payload = content(&mut input, message)?,
                TIMEOUT_NANO => request.timeout_nano = input.read_int64()?,
                tag => skip_field_for_tag(tag, &mut input)?,
            }
        }
        Ok(request)
    }
}

/// A line for the log.
pub(crate) type Remark = (Level, String);

/// The reply to a call, and what the log gets about it unless it has that already: a runtime may repeat the call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) content: Result<Vec<u8>, CallError>,
    pub(crate) remark: Option<Remark>,
}

impl From<Result<Vec<u8>, CallError>> for Reply {
    fn from(content: Result<Vec<u8>, CallError>) -> Reply {
        Reply { content, remark: None }
    }
}

type PendingReply<'p> = Pin<Box<dyn Future<Output = Reply> + Send + 'p>>;

pub(crate) enum Handled<'p> {
    Now(Reply),
    /// It has its own time limit, and runs concurrently with later calls.
    Later(PendingReply<'p>),
}

/// Pending replies with the streams of their calls, in the order of arrival.
#[derive(Default)]
struct Waiting<'p>(Vec<(u32, PendingReply<'p>)>);

impl Waiting<'_> {
    /// Waits for the next reply that is ready; for ever if none is pending.
    async fn next(&mut self) -> (u32, Reply) {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                let (stream, answer) = &mut self.0[at];
                if let Poll::Ready(reply) = answer.as_mut().poll(context) {
                    let stream = *stream;
                    drop(self.0.remove(at));
                    return Poll::Ready((stream, reply));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Answers `calls` until the connection ends, or `stop` is done and the last answer is written.
///
/// `handle` gets the calls in the order of their arrival. A reply that it returns is polled before the
/// next call is read. A call that is not protobuf is answered with an error, and does not end the
/// connection.
pub(crate) async fn serve<'p>(
    conn: impl AsyncRead + AsyncWrite + Unpin,
    mut handle: impl FnMut(&RpcRequest<'_>, Instant) -> Handled<'p>,
    repeats: &mut Repeats,
    stop: impl Future,
) -> io::Result<()> {
    let (reader, mut writer) = tokio::io::split(conn);
    let mut messages = Messages { reader, buffer: Vec::new() };
    let mut waiting = Waiting::default();
    let mut stop = pin!(stop);
    let mut stopping = false;
    while !stopping || !waiting.0.is_empty() {
        tokio::select! {
            biased;
            (stream, reply) = waiting.next() => write(&mut writer, stream, reply, repeats).await?,
            message = messages.next(), if !stopping && waiting.0.len() < MAX_WAITING => {
                let Some((header, message)) = message? else { return Ok(()) };
                let stream = header.stream_id;
                if header.type_ != MESSAGE_TYPE_REQUEST {
                    log::debug!("ignoring a message of type {} that is no call", header.type_);
                    continue;
                }
                let payload = message.get(MESSAGE_HEADER_LENGTH..).unwrap_or_default();
                let answer = match RpcRequest::decode(payload) {
                    Ok(request) => handle(&request, Instant::now()),
                    Err(error) => {
                        Handled::Now(Err(CallError::Malformed(error.to_string())).into())
                    }
                };
                match answer {
                    Handled::Now(reply) => write(&mut writer, stream, reply, repeats).await?,
                    Handled::Later(reply) => waiting.0.push((stream, reply)),
                }
            }
            _ = &mut stop, if !stopping => stopping = true,
        }
    }
    Ok(())
}

/// Only an unknown call may be `UNIMPLEMENTED`: the runtime then treats the call as not made. No error
/// may be `DEADLINE_EXCEEDED`: it would treat the plugin as too slow.
fn status(error: &CallError) -> Status {
    let code = match error {
        CallError::Refused(_) => Code::FAILED_PRECONDITION,
        CallError::Unavailable(_) => Code::UNAVAILABLE,
        CallError::Malformed(_) => Code::INVALID_ARGUMENT,
        CallError::TooLong(_) => Code::RESOURCE_EXHAUSTED,
        CallError::Unknown(_) => Code::UNIMPLEMENTED,
        CallError::Internal(_) => Code::INTERNAL,
    };
    ttrpc::get_status(code, error)
}

/// Sends an answer, or an error if the answer is too long: the runtime's reader would close the
/// connection.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    stream: u32,
    reply: Reply,
    repeats: &mut Repeats,
) -> io::Result<()> {
    let Reply { content, mut remark } = reply;
    let mut body = encode(content)?;
    if body.len() > MESSAGE_LENGTH_MAX {
        let line = format!("answer of {} bytes: more than the runtime accepts", body.len());
        remark = Some((Level::Error, line));
        body = encode(Err(CallError::TooLong("the answer is too long".to_owned())))?;
    }
    if let Some((level, line)) = remark
        && let Some(times) = repeats.occurred(&line, Instant::now().into_std())
    {
        log::log!(level, "{line}{times}");
    }
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut message: Vec<u8> = MessageHeader::new_response(stream, length).into();
    message.append(&mut body);
    writer.write_all(&message).await?;
    writer.flush().await
}

fn encode(content: Result<Vec<u8>, CallError>) -> io::Result<Vec<u8>> {
    let mut response = Response::new();
    match content {
        Ok(payload) => {
            response.set_status(ttrpc::get_status(Code::OK, ""));
            response.payload = payload;
        }
        Err(error) => response.set_status(status(&error)),
    }
    response.encode().map_err(io::Error::other)
}

struct Messages<R> {
    reader: R,
    /// The bytes of the next message read so far, and none of the one after it.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    /// The next message, which begins with its header; `None` at the end of the stream. Cancel safe: no
    /// bytes are lost. Memory grows with the bytes that arrived, not with the announced length.
    async fn next(&mut self) -> io::Result<Option<(MessageHeader, Vec<u8>)>> {
        loop {
            let mut end = MESSAGE_HEADER_LENGTH;
            if let Some(head) = self.buffer.first_chunk::<MESSAGE_HEADER_LENGTH>() {
                let header = MessageHeader::from(head);
                let length = header.length as usize;
                if length > MAX_REQUEST {
                    let error = format!("call of {length} bytes: more than {MAX_REQUEST}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                end += length;
                if self.buffer.len() == end {
                    return Ok(Some((header, std::mem::take(&mut self.buffer))));
                }
            }
            let missing = end - self.buffer.len();
            self.buffer.reserve(missing.min(4096));
            let mut reader = (&mut self.reader).take(missing as u64);
            if reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
