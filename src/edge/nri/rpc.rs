//! The runtime's calls: ttrpc messages in, answers out.
//!
//! The `ttrpc` crate's server does not fit: it takes requests of 4 MiB at most (a runtime with NRI
//! 0.6.1 lists all containers of a node in one), handles them in no particular order, and drops the
//! handling of a request when its caller gives up.

use super::projection::content;
use protobuf::CodedInputStream;
use protobuf::rt::{WireType, skip_field_for_tag};
use std::future::Future;
use std::pin::{Pin, pin};
use std::{io, str};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use ttrpc::proto::{
    Code, Codec, MESSAGE_HEADER_LENGTH, MESSAGE_LENGTH_MAX, MESSAGE_TYPE_REQUEST, MessageHeader,
    Response, Status,
};

/// The fields of ttrpc's `Request`: number, and type on the wire.
const SERVICE: u32 = 1 << 3 | WireType::LengthDelimited as u32;
const METHOD: u32 = 2 << 3 | WireType::LengthDelimited as u32;
const PAYLOAD: u32 = 3 << 3 | WireType::LengthDelimited as u32;
const TIMEOUT_NANO: u32 = 4 << 3 | WireType::Varint as u32;

/// The longest accepted request in bytes: the longest of NRI before 0.7.
const MAX_REQUEST: usize = (16 << 20) + 4096;
/// How many calls may wait for their answers. The runtime makes one after the other, so more wait
/// only if it gives up on some.
const MAX_WAITING: usize = 64;

/// A call. Its parts lie in the message, the only copy of its bytes: they can be 16 MiB.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    pub(super) service: &'a str,
    pub(super) method: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) timeout_nano: i64,
}

impl<'a> Request<'a> {
    fn decode(message: &'a [u8]) -> protobuf::Result<Request<'a>> {
        let text = |bytes| str::from_utf8(bytes).map_err(io::Error::other);
        let mut request = Request::default();
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

pub(super) type Reply = Result<Vec<u8>, Status>;

pub(super) enum Answer {
    Now(Reply),
    /// It has its own time limit, and runs beside later calls.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Answers `calls` until the connection ends, or `stop` is done and the last answer is written.
///
/// `handle` gets the calls in the order of their arrival. The answer to a call that is not protobuf
/// is `INVALID_ARGUMENT`; the connection goes on.
pub(super) async fn serve(
    conn: impl AsyncRead + AsyncWrite + Unpin,
    mut handle: impl FnMut(&Request<'_>, Instant) -> Answer,
    stop: impl Future,
) -> io::Result<()> {
    let (reader, mut writer) = tokio::io::split(conn);
    let mut messages = Messages { reader, buffer: Vec::new() };
    let mut waiting = JoinSet::new();
    let mut stop = pin!(stop);
    let mut stopping = false;
    while !stopping || !waiting.is_empty() {
        tokio::select! {
            biased;
            Some(done) = waiting.join_next() => {
                // Only a panic in an answer leads here; the caller times out then.
                let Ok((stream, reply)) = done else { continue };
                write(&mut writer, stream, reply).await?;
            }
            message = messages.next(), if !stopping && waiting.len() < MAX_WAITING => {
                let Some((header, message)) = message? else { return Ok(()) };
                let stream = header.stream_id;
                if header.type_ != MESSAGE_TYPE_REQUEST {
                    log::debug!("ignoring a message of type {} that is no call", header.type_);
                    continue;
                }
                let payload = message.get(MESSAGE_HEADER_LENGTH..).unwrap_or_default();
                let answer = match Request::decode(payload) {
                    Ok(request) => handle(&request, Instant::now()),
                    Err(error) => Answer::Now(Err(status(Code::INVALID_ARGUMENT, error))),
                };
                match answer {
                    Answer::Now(reply) => write(&mut writer, stream, reply).await?,
                    Answer::Later(reply) => {
                        waiting.spawn(async move { (stream, reply.await) });
                    }
                }
            }
            _ = &mut stop, if !stopping => stopping = true,
        }
    }
    Ok(())
}

pub(super) fn status(code: Code, message: impl ToString) -> Status {
    ttrpc::get_status(code, message)
}

/// Sends an answer, or an error if the answer is too long: the runtime's reader would close the
/// connection.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    stream: u32,
    reply: Reply,
) -> io::Result<()> {
    let mut body = encode(reply)?;
    if body.len() > MESSAGE_LENGTH_MAX {
        log::error!("answer of {} bytes: more than the runtime accepts", body.len());
        body = encode(Err(status(Code::RESOURCE_EXHAUSTED, "the answer is too long")))?;
    }
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut message: Vec<u8> = MessageHeader::new_response(stream, length).into();
    message.append(&mut body);
    writer.write_all(&message).await?;
    writer.flush().await
}

fn encode(reply: Reply) -> io::Result<Vec<u8>> {
    let mut response = Response::new();
    match reply {
        Ok(payload) => {
            response.set_status(status(Code::OK, ""));
            response.payload = payload;
        }
        Err(status) => response.set_status(status),
    }
    response.encode().map_err(io::Error::other)
}

struct Messages<R> {
    reader: R,
    /// The bytes of the next message so far, and none beyond.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    /// The next message, with its header in front; `None` at the stream's end. A drop of the future
    /// loses no bytes. Memory grows with the bytes that arrived, not with the announced length.
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
