//! Two connections over one socket, the *trunk*.
//!
//! `split` takes any stream and returns the two connections and a future that moves the bytes. The
//! reader of the trunk never waits for a reader of a connection, so neither connection can delay the
//! other; the number of unread bytes is bounded instead. Writers wait while a small pipe is full.

use crate::frame::{self, FrameError, Framer, PLUGIN_CONN, RUNTIME_CONN, Unframer};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, Join, duplex, join,
};
use tokio::task::{unconstrained, yield_now};

/// One connection. Its reading half ends when the multiplexer ends.
pub(crate) type Conn = Join<DuplexStream, DuplexStream>;

/// How many bytes may wait to be written, and how many are read from the socket at once. The runtime
/// queues up to 256 frames, so its longest message (4 MiB) fits into the queue in pieces of this size.
const PIECE: usize = 64 << 10;
/// How many bytes may wait for the reader of a connection: twice the longest request of old runtimes
/// (16 MiB).
const MAX_WAITING: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum MuxError {
    #[error("the connection to the runtime failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the connection to the runtime ended inside a frame")]
    Truncated,
    #[error("more than {MAX_WAITING} unread bytes from the runtime on connection {0}")]
    Overrun(u32),
}

impl MuxError {
    /// Whether the other side is gone. It may have been killed in the middle of a frame, or before it
    /// has read all bytes.
    pub(crate) fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        match self {
            MuxError::Truncated => true,
            MuxError::Io(error) => matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected
            ),
            MuxError::Frame(_) | MuxError::Overrun(_) => false,
        }
    }
}

/// Splits `trunk` into the connection for the runtime's calls and the one for the plugin's calls, in this
/// order. Both exist from the start, so early bytes are not lost.
///
/// The future runs until either side ends the connection, which is no error. Then the readers see the
/// end of their streams. If the first connection is dropped, the future sends what was written to it,
/// and ends.
pub(crate) fn split(
    trunk: impl AsyncRead + AsyncWrite,
) -> (impl Future<Output = Result<(), MuxError>>, Conn, Conn) {
    let (plugin_incoming, plugin_reader) = duplex(MAX_WAITING);
    let (plugin_outgoing, plugin_writer) = duplex(PIECE);
    let (runtime_incoming, runtime_reader) = duplex(MAX_WAITING);
    let (runtime_outgoing, runtime_writer) = duplex(PIECE);
    let (reader, writer) = tokio::io::split(trunk);
    let moved = async move {
        tokio::select! {
            end = receive(reader, plugin_incoming, runtime_incoming) => end,
            end = send(writer, plugin_outgoing, runtime_outgoing) => end.map_err(MuxError::Io),
        }
    };
    (moved, join(plugin_reader, plugin_writer), join(runtime_reader, runtime_writer))
}

async fn receive(
    mut trunk: impl AsyncRead + Unpin,
    mut plugin: DuplexStream,
    mut runtime: DuplexStream,
) -> Result<(), MuxError> {
    let mut buffer = vec![0; PIECE];
    let mut unframer = Unframer::default();
    loop {
        let read = trunk.read(&mut buffer).await?;
        let mut bytes = &buffer[..read];
        if bytes.is_empty() {
            return if unframer.between_frames() { Ok(()) } else { Err(MuxError::Truncated) };
        }
        while let Some((conn, piece)) = unframer.next(&mut bytes)? {
            let incoming = match conn {
                PLUGIN_CONN => &mut plugin,
                RUNTIME_CONN => &mut runtime,
                // A later version of the protocol may have more connections. The runtime ignores bytes of
                // unknown ones, too.
                _ => continue,
            };
            if !put(incoming, piece).await {
                return Err(MuxError::Overrun(conn));
            }
        }
        // Lets the readers, which run in the same task, take these bytes first. Otherwise a long message
        // would be in memory twice.
        yield_now().await;
    }
}

/// Queues bytes for the reader of a connection without waiting; `false` if the queue is full. Bytes for
/// a dropped connection are dropped.
async fn put(incoming: &mut DuplexStream, piece: &[u8]) -> bool {
    let write = poll_fn(|cx| Poll::Ready(Pin::new(&mut *incoming).poll_write(cx, piece)));
    // Without `unconstrained`, tokio's cooperative budget could make this pending although the pipe has
    // space.
    match unconstrained(write).await {
        Poll::Ready(Ok(written)) => written == piece.len(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

/// Sends the bytes of the two connections, until the first one is dropped and empty.
async fn send(
    mut trunk: impl AsyncWrite + Unpin,
    mut plugin: DuplexStream,
    mut runtime: DuplexStream,
) -> io::Result<()> {
    let mut plugin_piece = vec![0; PIECE];
    let mut runtime_piece = vec![0; PIECE];
    let mut plugin_framer = Framer::default();
    let mut runtime_framer = Framer::default();
    let mut runtime_open = true;
    let mut frames = Vec::new();
    loop {
        frames.clear();
        tokio::select! {
            read = plugin.read(&mut plugin_piece) => {
                let bytes = &plugin_piece[..read?];
                if bytes.is_empty() {
                    return trunk.shutdown().await;
                }
                encode(&mut frames, PLUGIN_CONN, &mut plugin_framer, bytes);
            }
            read = runtime.read(&mut runtime_piece), if runtime_open => {
                let bytes = &runtime_piece[..read?];
                runtime_open = !bytes.is_empty();
                encode(&mut frames, RUNTIME_CONN, &mut runtime_framer, bytes);
            }
        }
        trunk.write_all(&frames).await?;
        trunk.flush().await?;
    }
}

fn encode(frames: &mut Vec<u8>, conn: u32, framer: &mut Framer, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (payload, rest) = bytes.split_at(framer.cut(bytes));
        frames.extend(frame::header(conn, payload.len()));
        frames.extend(payload);
        bytes = rest;
    }
}
