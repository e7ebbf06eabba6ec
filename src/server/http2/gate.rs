//! Decides which received bytes are passed to h2, and when.
//!
//! h2 decodes everything that has arrived before it returns a request, and keeps
//! unfinished header blocks decoded. A compressed block of a few bytes can become half a
//! megabyte, for each stream of each connection. So the gate passes on a few requests at
//! a time, and the next ones when these have been accepted; it passes on a block of
//! several frames only when it is complete. It is also the only place that knows when a
//! block began that does not end.
//!
//! Of the frames it reads only where header blocks begin and end; h2 interprets and validates them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::accept::Connection;

/// The longest compressed header block: one as long as the longest decoded list.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// How much is read at once while a block is awaited.
const CHUNK_BYTES: usize = 4096;

/// What the driver of a connection allows its gate.
#[derive(Debug, Default)]
pub(crate) struct FrameAllowance {
    /// How many header blocks may pass before requests are accepted again.
    blocks: Cell<usize>,
    arrival: Cell<Arrival>,
}

/// Whether more bytes may be there. h2 looks after each request that it hands out, and to
/// look in vain costs more than all else that the gate does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// Nobody says when to look again: always.
    #[default]
    Unknown,
    /// There may be some.
    Possible,
    /// There were none in this turn: the task that drives the connection is woken by the next.
    Exhausted,
}

/// A connection's bytes on their way to h2.
pub(crate) struct Gate<IO> {
    io: IO,
    frames: Frames,
    /// What has arrived and may not pass yet.
    held: BytesMut,
    allowance: Rc<FrameAllowance>,
    connection: Rc<Connection>,
    /// The end of a header block is awaited.
    is_awaiting: bool,
    /// Something was written and not flushed.
    is_unflushed: bool,
}

// === impl FrameAllowance ===

impl FrameAllowance {
    /// Lets so many more through.
    pub(crate) fn grant(&self, blocks: usize) {
        self.blocks.set(blocks);
    }

    /// The connection is polled again: what has arrived meanwhile is read.
    pub(crate) fn begin_turn(&self) {
        self.arrival.set(Arrival::Possible);
    }

    /// Whether nothing is left, so that the gate may hold something back.
    pub(crate) fn is_used_up(&self) -> bool {
        self.blocks.get() == 0
    }

    fn take(&self) {
        self.blocks.set(self.blocks.get().saturating_sub(1));
    }

    /// Notes that nothing is there to be read.
    fn exhaust(&self) {
        if self.arrival.get() == Arrival::Possible {
            self.arrival.set(Arrival::Exhausted);
        }
    }
}

// === impl Gate ===

impl<IO> Gate<IO> {
    pub(crate) fn new(io: IO, connection: Rc<Connection>, allowance: Rc<FrameAllowance>) -> Self {
        Self {
            io,
            frames: Frames::new(),
            held: BytesMut::new(),
            allowance,
            connection,
            is_awaiting: false,
            is_unflushed: false,
        }
    }

    /// How many of `bytes` may pass now, `limit` at most.
    fn pass(&mut self, bytes: &[u8], limit: usize) -> usize {
        let mut passed = 0;
        while passed < bytes.len().min(limit) && !self.allowance.is_used_up() {
            let rest = bytes.get(passed..).unwrap_or_default();
            match self.frames.advance(rest, limit - passed) {
                SafePrefix::Some(more) => {
                    passed += more;
                    break;
                }
                SafePrefix::BlockEnd(more) => {
                    passed += more;
                    self.allowance.take();
                }
            }
        }
        self.note_block();
        passed
    }

    fn is_idle_too_long(&self) -> bool {
        let max = if self.connection.is_proven() {
            MAX_IDLE_FRAMES
        } else {
            MAX_IDLE_FRAMES_UNPROVEN
        };
        self.frames.idle > max
    }

    /// Has the end of a block awaited for its time, and no longer than it takes.
    fn note_block(&mut self) {
        let is_in_block = self.frames.is_in_block();
        if is_in_block != self.is_awaiting {
            self.is_awaiting = is_in_block;
            if is_in_block {
                self.connection.head_began();
            } else {
                self.connection.head_ended();
            }
        }
    }
}

impl<IO: AsyncRead + Unpin> Gate<IO> {
    /// Reads what is there, and looks but once in a turn where nothing is.
    fn poll_arrived(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.allowance.arrival.get() == Arrival::Exhausted {
            return Poll::Pending;
        }
        let read = Pin::new(&mut self.io).poll_read(context, into);
        if read.is_pending() {
            self.allowance.exhaust();
        }
        read
    }

    /// Reads past what h2 asked for. `false` at the end of the stream.
    fn poll_hold(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.held.len() > MAX_BLOCK_BYTES {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let mut chunk = [0; CHUNK_BYTES];
        let mut chunk = ReadBuf::new(&mut chunk);
        ready!(self.poll_arrived(context, &mut chunk))?;
        self.held.extend_from_slice(chunk.filled());
        Poll::Ready(Ok(!chunk.filled().is_empty()))
    }

    /// Reads and lets through what may pass; how much that was.
    fn poll_through(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = into.filled().len();
        ready!(self.poll_arrived(context, into))?;
        let arrived = into.filled().get(before..).unwrap_or_default();
        let passed = self.pass(arrived, arrived.len());
        self.held
            .extend_from_slice(arrived.get(passed..).unwrap_or_default());
        into.set_filled(before + passed);
        Poll::Ready(Ok(passed))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Gate<IO> {
    /// Once the allowance is used up, `Pending` without a promise to wake
    /// anybody: the task that drives the connection grants more and polls again.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.allowance.is_used_up() {
                return Poll::Pending;
            }
            if this.is_idle_too_long() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if this.held.is_empty() {
                let passed = ready!(this.poll_through(context, into))?;
                if passed > 0 || this.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let mut held = std::mem::take(&mut this.held);
            let passed = this.pass(&held, into.remaining());
            into.put_slice(held.get(..passed).unwrap_or_default());
            if passed < held.len() {
                this.held = held.split_off(passed);
            }
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
            if !this.allowance.is_used_up() && !ready!(this.poll_hold(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Gate<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_unflushed = true;
        let written = ready!(Pin::new(&mut this.io).poll_write(context, bytes))?;
        this.frames
            .make_up(written.div_ceil(WRITTEN_BYTES_OF_AN_IDLE_FRAME));
        Poll::Ready(Ok(written))
    }

    /// h2 flushes after each request that it hands out, mostly nothing.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_unflushed {
            ready!(Pin::new(&mut this.io).poll_flush(context))?;
            this.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

/// The first bytes of a connection, before its frames.
const PREFACE_BYTES: usize = 24;

/// Length, type, flags and stream of a frame.
const FRAME_HEAD_BYTES: usize = 9;

/// The largest payload that this side accepts, the least that HTTP/2 allows.
const MAX_PAYLOAD_BYTES: usize = 16_384;

/// How many frames that ask for nothing a connection may send, and one whose caller is not known yet:
/// each takes time of a thread that serves others. Requests, and what is written, make up for them.
const MAX_IDLE_FRAMES: usize = 1_000;
const MAX_IDLE_FRAMES_UNPROVEN: usize = 100;
/// For how many of them a request makes up.
const IDLE_FRAMES_OF_A_REQUEST: usize = 10;
/// For how many bytes that are written there is one: a client says that it has read them.
const WRITTEN_BYTES_OF_AN_IDLE_FRAME: usize = 256;
/// What a DATA frame has at least, unless it is the last.
const MIN_DATA_BYTES: usize = 64;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const PING: u8 = 0x6;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
const END_STREAM: u8 = 0x1;

/// The position in the stream of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    /// How much of `head` is there.
    head_read: usize,
    /// How much of the payload is still to come.
    payload: usize,
    block: HeaderBlock,
    /// How many frames asked for nothing, less those that something made up for.
    idle: usize,
}

/// What the frame at hand has to do with header blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderBlock {
    /// Nothing.
    Outside,
    /// The block goes on after this frame, and nobody has looked whether the rest is there.
    Continues,
    /// The same, and the rest is known to be there.
    Passes,
    /// It ends with this frame.
    Ends,
}

/// How far the bytes at hand go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SafePrefix {
    /// So many of them may pass, and no header block ended with the last one.
    Some(usize),
    /// A header block ended after so many.
    BlockEnd(usize),
}

// === impl Frames ===

impl Frames {
    /// Before the preface.
    pub(crate) const fn new() -> Self {
        Self {
            head: [0; FRAME_HEAD_BYTES],
            head_read: 0,
            payload: PREFACE_BYTES,
            block: HeaderBlock::Outside,
            idle: 0,
        }
    }

    /// A request, or what was written, makes up for so many frames.
    fn make_up(&mut self, frames: usize) {
        self.idle = self.idle.saturating_sub(frames);
    }

    fn note(&mut self, head: &FrameHead) {
        if head.is_idle {
            self.idle += 1;
        } else if head.kind == HEADERS {
            self.make_up(IDLE_FRAMES_OF_A_REQUEST);
        }
    }

    /// Whether a header block has begun and not ended.
    pub(crate) fn is_in_block(&self) -> bool {
        self.block != HeaderBlock::Outside
    }

    /// Moves on over the bytes that may pass, `limit` at most: up to the end of
    /// a header block, and not into a block of several frames of which some are missing.
    pub(crate) fn advance(&mut self, bytes: &[u8], limit: usize) -> SafePrefix {
        let mut passed = 0;
        loop {
            let rest = bytes.get(passed..).unwrap_or_default();
            if self.block == HeaderBlock::Continues && self.is_missing(rest) {
                return SafePrefix::Some(passed);
            }
            let rest = rest.get(..limit.saturating_sub(passed)).unwrap_or(rest);
            if self.payload > 0 {
                let taken = rest.len().min(self.payload);
                self.payload -= taken;
                passed += taken;
            } else {
                passed += self.read_head(rest);
            }
            if self.payload == 0 && self.block == HeaderBlock::Ends {
                self.block = HeaderBlock::Outside;
                return SafePrefix::BlockEnd(passed);
            }
            if passed >= bytes.len().min(limit) {
                return SafePrefix::Some(passed);
            }
        }
    }

    /// Takes what `bytes` hold of a frame's head; how much that is.
    fn read_head(&mut self, bytes: &[u8]) -> usize {
        let missing = self.head.iter_mut().skip(self.head_read);
        let taken = missing.zip(bytes).map(|(place, byte)| *place = *byte).count();
        self.head_read += taken;
        if self.head_read == FRAME_HEAD_BYTES {
            self.head_read = 0;
            let head = FrameHead::of(self.head);
            self.note(&head);
            self.payload = head.length;
            self.block = match (self.block, head.kind) {
                (HeaderBlock::Outside, HEADERS | PUSH_PROMISE) | (HeaderBlock::Passes, CONTINUATION) => {
                    match (head.ends_block, self.block) {
                        (true, _) => HeaderBlock::Ends,
                        (false, HeaderBlock::Passes) => HeaderBlock::Passes,
                        (false, _) => HeaderBlock::Continues,
                    }
                }
                // Not what must follow: h2 ends the connection for it.
                _ => HeaderBlock::Outside,
            };
        }
        taken
    }

    /// Whether frames of the block at hand are missing in `rest`, which begins
    /// with the payload of its first. If the rest is there, or is no block, it may pass.
    fn is_missing(&mut self, rest: &[u8]) -> bool {
        let mut at = self.payload;
        while let Some(head) = FrameHead::at(rest, at) {
            let next = at + FRAME_HEAD_BYTES + head.length;
            let is_broken = head.kind != CONTINUATION || head.length > MAX_PAYLOAD_BYTES;
            if is_broken || (head.ends_block && next <= rest.len()) {
                self.block = HeaderBlock::Passes;
                return false;
            }
            at = next;
        }
        true
    }
}

/// What matters of the head of a frame.
struct FrameHead {
    length: usize,
    kind: u8,
    ends_block: bool,
    /// Whether it is no part of a request.
    is_idle: bool,
}

// === impl FrameHead ===

impl FrameHead {
    fn of([high, middle, low, kind, flags, ..]: [u8; FRAME_HEAD_BYTES]) -> Self {
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Self {
            length,
            is_idle: match kind {
                DATA => length < MIN_DATA_BYTES && flags & END_STREAM == 0,
                // What acknowledges one is written, and makes up for those of an honest client.
                PING | SETTINGS => true,
                PRIORITY | WINDOW_UPDATE => true,
                _ => kind > CONTINUATION,
            },
            kind,
            ends_block: flags & END_HEADERS != 0,
        }
    }

    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let head = bytes.get(at..)?.first_chunk::<FRAME_HEAD_BYTES>()?;
        Some(Self::of(*head))
    }
}

#[cfg(test)]
mod tests;
