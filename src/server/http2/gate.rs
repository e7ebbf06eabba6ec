//! Decides which received bytes are passed to h2, and when.
//!
//! h2 decodes everything that has arrived before it returns a request, and keeps unfinished header
//! blocks decoded. A compressed block of a few bytes can become half a megabyte, for each stream of
//! each connection. Therefore the gate passes on a few requests at a time, and the next ones when
//! these have been accepted; a block of several frames is passed on only when it is complete. The
//! gate is also the only place that knows when a block began that has not ended.
//!
//! It reads from the frames only where header blocks begin and end; h2 interprets and validates
//! them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::accept::Connection;

/// The most bytes of a compressed header block, which is as much as a decoded list may have.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// The bytes that are read at once while the rest of a block is awaited.
const CHUNK_BYTES: usize = 4096;

/// The permission of the driver of a connection for its gate.
#[derive(Debug, Default)]
pub(crate) struct FrameAllowance {
    /// The number of header blocks that may pass before requests are accepted again.
    blocks: Cell<usize>,
    arrival: Cell<Arrival>,
}

/// Whether more bytes may have arrived. h2 reads again after each request that it returns, and a
/// read without data costs more than the rest of the gate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The driver does not announce its turns: always read.
    #[default]
    Unknown,
    /// There may be bytes to read.
    Possible,
    /// There were none in this turn. The task of the connection is woken when bytes arrive.
    Exhausted,
}

/// The byte stream of a connection between its socket and h2.
pub(crate) struct Gate<IO> {
    io: IO,
    frames: Frames,
    /// Received bytes that may not pass yet.
    held: BytesMut,
    allowance: Rc<FrameAllowance>,
    connection: Rc<Connection>,
    /// Whether the end of a header block is awaited.
    is_awaiting: bool,
    /// Whether written bytes were not flushed yet.
    is_unflushed: bool,
}

// === impl FrameAllowance ===

impl FrameAllowance {
    /// Sets the number of blocks that may pass.
    pub(crate) fn grant(&self, blocks: usize) {
        self.blocks.set(blocks);
    }

    /// Starts a turn of the driver, in which bytes that have arrived are read.
    pub(crate) fn begin_turn(&self) {
        self.arrival.set(Arrival::Possible);
    }

    /// Whether no further block may pass, so that the gate may be holding bytes back.
    pub(crate) fn is_used_up(&self) -> bool {
        self.blocks.get() == 0
    }

    fn take(&self) {
        self.blocks.set(self.blocks.get().saturating_sub(1));
    }

    /// Records that there are no bytes to read.
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

    /// Returns how many of `bytes` may pass now, `limit` at most.
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
        self.update_head_deadline();
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

    /// Starts the deadline of the connection when a header block begins, and clears it when the
    /// block ends.
    fn update_head_deadline(&mut self) {
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
    /// Reads bytes that have arrived. After a read without data it does not try again in the same
    /// turn.
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

    /// Reads more than h2 requested, to complete a block. Returns `false` at the end of the stream.
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

    /// Reads, and returns the number of bytes that may pass. The others are held.
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
    /// Returns `Pending` without registering the waker once the allowance is used up: the task that
    /// drives the connection grants more and polls again.
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
            .credit_idle(written.div_ceil(WRITTEN_BYTES_OF_AN_IDLE_FRAME));
        Poll::Ready(Ok(written))
    }

    /// h2 flushes after each request that it returns, usually without having written anything.
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

/// The length of the connection preface, which precedes the frames.
const PREFACE_BYTES: usize = 24;

/// The length of a frame header: length, type, flags and stream.
const FRAME_HEAD_BYTES: usize = 9;

/// The largest payload that this side accepts, which is the default and minimum of HTTP/2.
const MAX_PAYLOAD_BYTES: usize = 16_384;

/// The most frames without purpose that a connection, or an unproven one, may have sent: each takes
/// time of a thread that serves other connections. Requests and written bytes compensate for them.
const MAX_IDLE_FRAMES: usize = 1_000;
const MAX_IDLE_FRAMES_UNPROVEN: usize = 100;
/// The number of idle frames for which a request compensates.
const IDLE_FRAMES_OF_A_REQUEST: usize = 10;
/// The written bytes that compensate for one idle frame, because a client sends WINDOW_UPDATE
/// frames for them.
const WRITTEN_BYTES_OF_AN_IDLE_FRAME: usize = 256;
/// The least payload of a DATA frame that is not idle, unless it ends the stream.
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
    /// The number of bytes in `head` that were read.
    head_read: usize,
    /// The bytes of the payload, or of the preface, that are still to come.
    payload: usize,
    block: HeaderBlock,
    /// The number of idle frames, minus those that were compensated.
    idle: usize,
}

/// The relation of the current frame to header blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderBlock {
    /// It is not part of a header block.
    Outside,
    /// The block continues after this frame, and it is not known whether the rest has arrived.
    Continues,
    /// The block continues after this frame, and the rest has arrived.
    Passes,
    /// The block ends with this frame.
    Ends,
}

/// How many of the given bytes may pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SafePrefix {
    /// This number of bytes, after which no header block has just ended.
    Some(usize),
    /// This number of bytes, with which a header block ends.
    BlockEnd(usize),
}

// === impl Frames ===

impl Frames {
    /// The position before the preface.
    pub(crate) const fn new() -> Self {
        Self {
            head: [0; FRAME_HEAD_BYTES],
            head_read: 0,
            payload: PREFACE_BYTES,
            block: HeaderBlock::Outside,
            idle: 0,
        }
    }

    /// Compensates for a number of idle frames.
    fn credit_idle(&mut self, frames: usize) {
        self.idle = self.idle.saturating_sub(frames);
    }

    fn note(&mut self, head: &FrameHead) {
        if head.is_idle {
            self.idle += 1;
        } else if head.kind == HEADERS {
            self.credit_idle(IDLE_FRAMES_OF_A_REQUEST);
        }
    }

    /// Whether a header block has begun and has not ended.
    pub(crate) fn is_in_block(&self) -> bool {
        self.block != HeaderBlock::Outside
    }

    /// Advances over the bytes that may pass, `limit` at most: up to the end of a header block, and
    /// not into a block of several frames of which some are missing.
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

    /// Reads bytes of a frame header, and returns how many it read.
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
                // Not the frame that must follow: h2 ends the connection because of it.
                _ => HeaderBlock::Outside,
            };
        }
        taken
    }

    /// Whether frames of the current block are missing in `rest`, which begins with the payload of
    /// its first frame. If the block is complete or invalid, it may pass.
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

/// The relevant fields of a frame header.
struct FrameHead {
    length: usize,
    kind: u8,
    ends_block: bool,
    /// Whether the frame contributes nothing to a request.
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
                // The acknowledgement that is written compensates for those of an honest client.
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
