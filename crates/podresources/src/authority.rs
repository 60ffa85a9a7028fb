//! Makes the requests of every gRPC client acceptable to h2: [`Readable`] replaces the
//! pseudo-header `:authority` in the bytes of a connection.
//!
//! For a unix socket, gRPC's C core (Python, C++, Ruby), grpc-java, and Go with a custom dialer send the
//! path as authority, plain or percent-encoded. h2 resets such a stream with PROTOCOL_ERROR
//! (hyperium/h2#487). The server serves one service, so it does not need the field.

mod frames;
mod headers;

use frames::Rewriter;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use headers::MAX_BLOCK;

const CHUNK: usize = 4096;

/// A client's connection. Bytes that are written to it are not changed.
pub struct Readable<S> {
    inner: S,
    rewriter: Rewriter,
    /// Rewritten bytes, and how many of them the reader has taken.
    ready: Vec<u8>,
    read: usize,
}

impl<S> Readable<S> {
    pub fn new(inner: S) -> Readable<S> {
        Readable { inner, rewriter: Rewriter::default(), ready: Vec::new(), read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Readable<S> {
    /// # Errors
    /// Also if the client sends bytes that cannot be rewritten. The connection cannot be used after that.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let rest = &this.ready[this.read..];
            if !rest.is_empty() {
                let some = rest.len().min(to.remaining());
                to.put_slice(&rest[..some]);
                this.read += some;
                return Poll::Ready(Ok(()));
            }
            this.ready.clear();
            this.read = 0;
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.rewriter
                .push(chunk.filled(), &mut this.ready)
                .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Readable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
