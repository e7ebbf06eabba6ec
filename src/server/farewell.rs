//! Connections that are told that the gateway goes.
//!
//! While draining, an HTTP/1.1 connection closes after its next answer; that is
//! the response's doing. HTTP/2 has GOAWAY for it, which actix-web does not
//! send. So the stream under the HTTP/2 connection sends it: it follows the
//! frames that pass and puts one GOAWAY between two of them, saying "no new
//! streams here, those under way will be answered" (RFC 9113, 6.8). Clients such
//! as Go's open another connection for what comes next.
//!
//! Once nothing is in flight, every connection reads as ended, and closes.

mod frames;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use frames::Frames;

/// GOAWAY on stream 0: the last stream is the highest there can be, no error.
const GOAWAY: [u8; 17] = *b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0";

/// How far the parting has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Nobody parts.
    Open,
    /// No new streams.
    Draining,
    /// Nothing is in flight: connections end.
    Closing,
}

/// Tells all connections of the stage, and counts them.
#[derive(Debug)]
pub(super) struct Farewell {
    stage: watch::Sender<Stage>,
    open: Arc<AtomicUsize>,
}

/// A connection's stream.
pub(super) struct Stream<IO> {
    io: IO,
    farewell: Listener,
    /// The frames written so far; `None` for HTTP/1.1.
    frames: Option<Frames>,
    /// How much of GOAWAY is written.
    goaway: usize,
    /// The last write is to be repeated as it was: TLS has taken some of it.
    unfinished_write: bool,
}

/// What a connection knows of the stage.
struct Listener {
    stage: watch::Receiver<Stage>,
    /// The stage at the last look.
    known: Stage,
    /// Wakes the connection's task at the next stage.
    next: Option<Pin<Box<dyn Future<Output = ()>>>>,
    open: Arc<AtomicUsize>,
}

// === impl Farewell ===

impl Default for Farewell {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Open),
            open: Arc::default(),
        }
    }
}

impl Farewell {
    /// Tells every connection, those to come too.
    pub(super) fn tell(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// How many connections there are.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// The stream of a new connection.
    pub(super) fn stream<IO>(&self, io: IO, is_http2: bool) -> Stream<IO> {
        self.open.fetch_add(1, Ordering::AcqRel);
        let farewell = Listener {
            stage: self.stage.subscribe(),
            known: Stage::Open,
            next: None,
            open: Arc::clone(&self.open),
        };
        Stream {
            io,
            farewell,
            frames: is_http2.then(Frames::default),
            goaway: 0,
            unfinished_write: false,
        }
    }
}

// === impl Listener ===

impl Listener {
    /// The stage now. Has the task woken at the next one.
    fn stage(&mut self, context: &mut Context<'_>) -> Stage {
        // Only a change, or the first look, costs more than this comparison.
        if self.stage.has_changed().unwrap_or_default() || self.next.is_none() {
            self.known = *self.stage.borrow_and_update();
            let mut stage = self.stage.clone();
            let mut next: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                // An error means that there will be no other stage.
                let _changed = stage.changed().await;
            });
            if next.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
            self.next = Some(next);
        }
        self.known
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Stream ===

impl<IO> Stream<IO> {
    /// What carries the stream.
    pub(super) const fn io(&self) -> &IO {
        &self.io
    }
}

impl<IO: AsyncWrite + Unpin> Stream<IO> {
    /// Writes GOAWAY if it is due and a frame has just ended.
    fn poll_goaway(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let between_frames = self.frames.as_ref().is_some_and(Frames::is_between);
        if !between_frames || self.unfinished_write || self.farewell.stage(context) == Stage::Open {
            return Poll::Ready(Ok(()));
        }
        while let Some(rest) = GOAWAY.get(self.goaway..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.io).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.goaway += written,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// How much of `bytes` to write now: while GOAWAY waits for the end of a
    /// frame, no more than that frame.
    fn portion(&mut self, bytes: usize, context: &mut Context<'_>) -> usize {
        match &self.frames {
            Some(frames) if self.goaway < GOAWAY.len() && !self.unfinished_write => {
                let left = frames.left_of_this(bytes);
                if self.farewell.stage(context) == Stage::Open {
                    bytes
                } else {
                    left
                }
            }
            _ => bytes,
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.farewell.stage(context) > Stage::Open {
            if let Poll::Ready(written) = this.poll_goaway(context) {
                written?;
                if Pin::new(&mut this.io).poll_flush(context)?.is_pending() {
                    tracing::trace!("GOAWAY waits to be flushed");
                }
            }
            if this.farewell.known == Stage::Closing {
                return Poll::Ready(Ok(()));
            }
        }
        Pin::new(&mut this.io).poll_read(context, into)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Stream<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_goaway(context))?;
        let portion = this.portion(bytes.len(), context);
        let bytes = bytes.get(..portion).unwrap_or(bytes);
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        this.unfinished_write = written.is_pending();
        let written = ready!(written)?;
        if let Some(frames) = &mut this.frames {
            frames.pass(bytes.get(..written).unwrap_or(bytes));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
