//! Two connections over one socket.
//!
//! [`new`] takes any stream and returns a [`Mux`], which moves the bytes in [`run`](Mux::run), and
//! the two connections. The reader of the socket never waits for a reader of a connection, so
//! neither connection can delay the other; the number of unread bytes is bounded instead. Writers
//! wait for a small pipe.

use super::frame::{self, FrameError, Framer, PLUGIN_CONN, RUNTIME_CONN, Unframer};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, Join, ReadBuf};
use tokio::sync::mpsc;

/// One connection. Its reading half ends with the multiplexer.
pub type Conn = Join<Incoming, DuplexStream>;

/// How many bytes may wait to be written, and how many to read from the socket at once. The runtime
/// queues up to 256 frames, so its longest message (4 MiB) fits in pieces of this size.
const PIECE: usize = 64 << 10;
/// How many bytes may wait for a connection's reader: twice the longest request of old runtimes (16
/// MiB).
const MAX_WAITING: usize = 32 << 20;
/// The cost of a waiting piece in addition to its bytes, which bounds the number of tiny ones.
const PIECE_COST: usize = 64;

/// Why the multiplexer stopped, other than by the end of the stream.
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

/// Moves bytes between a socket and its two connections, see [`new`].
pub struct Mux<T> {
    trunk: T,
    plugin: Lane,
    runtime: Lane,
}

impl<T> fmt::Debug for Mux<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mux").finish_non_exhaustive()
    }
}

/// The multiplexer's end of a connection.
struct Lane {
    inbox: Inbox,
    outgoing: DuplexStream,
}

/// Splits `trunk` into the connection for the runtime's calls and the one for the plugin's calls,
/// in this order.
///
/// Both exist from the start, so no early bytes get lost. After a drop of the first one the
/// multiplexer sends what was written to it, and ends.
pub fn new<T: AsyncRead + AsyncWrite>(trunk: T) -> (Mux<T>, Conn, Conn) {
    let (plugin, served) = lane();
    let (runtime, called) = lane();
    (Mux { trunk, plugin, runtime }, served, called)
}

fn lane() -> (Lane, Conn) {
    let (queue, pieces) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (outgoing, writer) = tokio::io::duplex(PIECE);
    let incoming = Incoming { pieces, current: Vec::new(), taken: 0, waiting: waiting.clone() };
    (Lane { inbox: Inbox { queue, waiting }, outgoing }, tokio::io::join(incoming, writer))
}

impl<T: AsyncRead + AsyncWrite> Mux<T> {
    /// Runs until either side ends the connection, which is no error. Then the readers see the end
    /// of their streams.
    pub async fn run(self) -> Result<(), MuxError> {
        let (reader, writer) = tokio::io::split(self.trunk);
        tokio::select! {
            end = receive(reader, &self.plugin.inbox, &self.runtime.inbox) => end,
            end = send(writer, self.plugin.outgoing, self.runtime.outgoing) => end.map_err(MuxError::Io),
        }
    }
}

/// Sorts the arriving bytes into the two inboxes.
async fn receive(
    mut trunk: impl AsyncRead + Unpin,
    plugin: &Inbox,
    runtime: &Inbox,
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
            let inbox = match conn {
                PLUGIN_CONN => plugin,
                RUNTIME_CONN => runtime,
                // A later protocol may have more connections; the runtime drops such bytes too.
                _ => continue,
            };
            inbox.put(piece).ok_or(MuxError::Overrun(conn))?;
        }
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

/// Bytes that arrived for a connection.
struct Inbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl Inbox {
    /// Queues a piece; `None` if too many bytes wait already. It drops pieces for a dropped
    /// connection.
    fn put(&self, piece: &[u8]) -> Option<()> {
        let cost = piece.len() + PIECE_COST;
        if self.waiting.fetch_add(cost, Ordering::Relaxed) + cost > MAX_WAITING {
            return None;
        }
        if self.queue.send(piece.to_vec()).is_err() {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
        }
        Some(())
    }
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct Incoming {
    pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    /// The present piece, and the number of its bytes that have been read.
    current: Vec<u8>,
    taken: usize,
    waiting: Arc<AtomicUsize>,
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken == this.current.len() {
            let Some(piece) = ready!(this.pieces.poll_recv(cx)) else { return Poll::Ready(Ok(())) };
            this.waiting.fetch_sub(piece.len() + PIECE_COST, Ordering::Relaxed);
            this.current = piece;
            this.taken = 0;
        }
        // `taken` never exceeds the length.
        let rest = &this.current[this.taken..];
        let now = &rest[..rest.len().min(buffer.remaining())];
        buffer.put_slice(now);
        this.taken += now.len();
        Poll::Ready(Ok(()))
    }
}
