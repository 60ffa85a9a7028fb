//! Two connections over one socket.
//!
//! [`new`] takes any stream and gives a [`Mux`], whose [`run`](Mux::run) moves the bytes, and the
//! two connections. The reader of the socket never waits for a reader of a connection, so neither
//! can hold up the other; instead each may fall only so far behind. Writers do wait: what is
//! written is bounded by a small pipe.

use super::frame::{self, FrameError, Framer, PLUGIN_CONN, RUNTIME_CONN, Unframer};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, Join, ReadBuf};
use tokio::sync::mpsc;

/// One connection: its reading half ends when the multiplexer does.
pub type Conn = Join<Incoming, DuplexStream>;

/// Bytes that may wait to be written, and that are read from the socket at once. The runtime queues
/// up to 256 frames, so its longest message (4 MiB) is far from overflowing that in pieces of this
/// size.
const PIECE: usize = 64 << 10;
/// Bytes that may wait for a connection's reader: the longest request of old runtimes (16 MiB)
/// twice.
const MAX_WAITING: usize = 32 << 20;
/// What a waiting piece costs besides its bytes, so that many tiny ones are not free.
const PIECE_COST: usize = 64;

/// Why the multiplexer stopped, other than by the end of the stream.
#[derive(Debug, thiserror::Error)]
pub enum MuxError {
    /// The socket failed.
    #[error("the connection to the runtime failed: {0}")]
    Io(#[from] io::Error),
    /// The peer does not speak the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stream ended inside a frame.
    #[error("the connection to the runtime ended in the middle of a frame")]
    Truncated,
    /// The peer sends faster than anyone reads.
    #[error(
        "the runtime has sent over {MAX_WAITING} bytes on connection {0} that wait for an answer to earlier ones"
    )]
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

/// Takes `trunk` apart into the connection on which we are called and the one on which we call, in
/// this order.
///
/// Both exist at once, so nothing that arrives early is lost. Dropping the first one ends the
/// multiplexer, after all that was written to it is on its way.
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
    /// Runs until either side ends the connection; its readers then see the end of their streams.
    ///
    /// # Errors
    ///
    /// When the socket fails or the peer breaks the protocol. An orderly end is none.
    pub async fn run(self) -> Result<(), MuxError> {
        let (reader, writer) = tokio::io::split(self.trunk);
        tokio::select! {
            end = receive(reader, &self.plugin.inbox, &self.runtime.inbox) => end,
            end = send(writer, self.plugin.outgoing, self.runtime.outgoing) => end.map_err(MuxError::Io),
        }
    }
}

/// Sorts what arrives into the two inboxes, until the end.
async fn receive(
    mut trunk: impl AsyncRead + Unpin,
    plugin: &Inbox,
    runtime: &Inbox,
) -> Result<(), MuxError> {
    let mut buffer = vec![0; PIECE];
    let mut unframer = Unframer::default();
    loop {
        let read = trunk.read(&mut buffer).await?;
        let mut bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return if unframer.between_frames() { Ok(()) } else { Err(MuxError::Truncated) };
        }
        while let Some((conn, piece)) = unframer.next(&mut bytes)? {
            let inbox = match conn {
                PLUGIN_CONN => plugin,
                RUNTIME_CONN => runtime,
                // For a connection that a later protocol may have: dropped, as the runtime does.
                _ => continue,
            };
            inbox.put(piece).ok_or(MuxError::Overrun(conn))?;
        }
    }
}

/// Sends what is written to the two connections, until the first one is dropped and empty.
async fn send(
    mut trunk: impl AsyncWrite + Unpin,
    mut plugin: DuplexStream,
    mut runtime: DuplexStream,
) -> io::Result<()> {
    let (mut plugin_piece, mut runtime_piece) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut plugin_framer, mut runtime_framer) = (Framer::default(), Framer::default());
    let mut runtime_open = true;
    let mut frames = Vec::new();
    loop {
        frames.clear();
        tokio::select! {
            read = plugin.read(&mut plugin_piece) => {
                let bytes = plugin_piece.get(..read?).unwrap_or_default();
                if bytes.is_empty() {
                    return trunk.shutdown().await;
                }
                encode(&mut frames, PLUGIN_CONN, &mut plugin_framer, bytes);
            }
            read = runtime.read(&mut runtime_piece), if runtime_open => {
                let bytes = runtime_piece.get(..read?).unwrap_or_default();
                runtime_open = !bytes.is_empty();
                encode(&mut frames, RUNTIME_CONN, &mut runtime_framer, bytes);
            }
        }
        trunk.write_all(&frames).await?;
        trunk.flush().await?;
    }
}

/// Appends `bytes` of a connection to `frames`.
fn encode(frames: &mut Vec<u8>, conn: u32, framer: &mut Framer, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (payload, rest) = bytes.split_at(framer.cut(bytes));
        frames.extend(frame::header(conn, payload.len()));
        frames.extend(payload);
        bytes = rest;
    }
}

/// Where the multiplexer leaves what arrives for a connection.
struct Inbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl Inbox {
    /// Leaves a piece; `None` if too much waits already. Pieces for a connection that was dropped
    /// are dropped too.
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
    /// The piece being read, and how much of it has been.
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
        let mut rest = this.current.get(this.taken..).unwrap_or_default();
        if rest.is_empty() {
            let Some(piece) = ready!(this.pieces.poll_recv(cx)) else { return Poll::Ready(Ok(())) };
            this.waiting.fetch_sub(piece.len() + PIECE_COST, Ordering::Relaxed);
            (this.current, this.taken) = (piece, 0);
            rest = &this.current;
        }
        let (now, _) = rest.split_at(rest.len().min(buffer.remaining()));
        buffer.put_slice(now);
        this.taken += now.len();
        Poll::Ready(Ok(()))
    }
}
