//! Calls that the runtime makes: ttrpc messages in, answers out.
//!
//! Served by hand, because the `ttrpc` crate's server takes requests of 4 MiB at most (a runtime
//! with NRI 0.6.1 lists all containers of a node in one), handles them in no particular order, and
//! drops the handling of one when its caller gives up.

use std::future::Future;
use std::io;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use ttrpc::proto::{
    Code, Codec, MESSAGE_HEADER_LENGTH, MESSAGE_LENGTH_MAX, MESSAGE_TYPE_REQUEST, MessageHeader,
    Request, Response, Status,
};

/// The longest request that is accepted, as NRI before 0.7 may send it.
const MAX_REQUEST: usize = (16 << 20) + 4096;
/// Calls that may wait for their answers at once. The runtime makes one after the other; more only
/// pile up when it gives up on some.
const MAX_WAITING: usize = 64;

/// What answers a call: the payload of a response, or why there is none.
pub(super) type Reply = Result<Vec<u8>, Status>;

/// How a call is answered.
pub(super) enum Answer<F> {
    /// At once.
    Now(Reply),
    /// When this future is done, which must have a time limit of its own. It runs beside later
    /// calls.
    Later(F),
}

/// Answers `calls` until the connection ends, or `stop` is done and the last answer is written.
///
/// Each call is handed over in the order in which it arrived, after the one before has been taken
/// on. Calls that are no protobuf are answered with `INVALID_ARGUMENT`; the connection goes on.
///
/// # Errors
///
/// When the connection fails or what arrives is no ttrpc.
pub(super) async fn serve<C, F>(
    conn: impl AsyncRead + AsyncWrite + Unpin,
    mut handle: C,
    stop: impl Future,
) -> io::Result<()>
where
    C: FnMut(Request, Instant) -> Answer<F>,
    F: Future<Output = Reply> + Send + 'static,
{
    let (reader, mut writer) = tokio::io::split(conn);
    let mut messages = Messages { reader, buffer: Vec::new() };
    let mut waiting = JoinSet::new();
    let mut stop = pin!(stop);
    let mut stopping = false;
    while !stopping || !waiting.is_empty() {
        tokio::select! {
            biased;
            Some(done) = waiting.join_next() => {
                // An answer that panicked: the caller times out. Nothing in them can.
                let Ok((stream, reply)) = done else { continue };
                write(&mut writer, stream, reply).await?;
            }
            message = messages.next(), if !stopping && waiting.len() < MAX_WAITING => {
                let Some((header, payload)) = message? else { return Ok(()) };
                let stream = header.stream_id;
                if header.type_ != MESSAGE_TYPE_REQUEST {
                    log::debug!("the runtime sent a message of type {} that is no call", header.type_);
                    continue;
                }
                let answer = match Request::decode(&payload) {
                    Ok(request) => handle(request, Instant::now()),
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

/// An error for the caller.
pub(super) fn status(code: Code, message: impl ToString) -> Status {
    ttrpc::get_status(code, message)
}

/// Sends an answer. One that is too long for the runtime's reader would cost the connection: an
/// error goes out instead.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    stream: u32,
    reply: Reply,
) -> io::Result<()> {
    let mut body = encode(reply)?;
    if body.len() > MESSAGE_LENGTH_MAX {
        log::error!("an answer of {} bytes is too long for the runtime", body.len());
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

/// Messages from a stream of bytes.
struct Messages<R> {
    reader: R,
    /// What has been read of the next message, and maybe of more.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    /// The next message; `None` at the stream's end. Dropping the future loses nothing. Memory is
    /// taken for what has arrived, not for what was announced.
    async fn next(&mut self) -> io::Result<Option<(MessageHeader, Vec<u8>)>> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<MESSAGE_HEADER_LENGTH>() {
                let header = MessageHeader::from(head);
                let length = header.length as usize;
                if length > MAX_REQUEST {
                    let error = format!("the runtime announced a call of {length} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                let end = MESSAGE_HEADER_LENGTH + length;
                if self.buffer.len() >= end {
                    let rest = self.buffer.split_off(end);
                    let mut message = std::mem::replace(&mut self.buffer, rest);
                    return Ok(Some((header, message.split_off(MESSAGE_HEADER_LENGTH))));
                }
            }
            self.buffer.reserve(4096);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
