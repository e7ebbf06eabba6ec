//! Tracks the frames of an HTTP/2 connection in the received bytes.
//!
//! Only what the [gate](super::gate) needs: where header blocks begin and end. h2
//! interprets the frames and validates them.

/// The first bytes of a connection, before its frames.
const PREFACE: usize = 24;

/// Length, type, flags and stream of a frame.
const HEAD: usize = 9;

/// The largest payload that this side accepts, the least that HTTP/2 allows.
const MAX_PAYLOAD: usize = 16_384;

const HEADERS: u8 = 0x1;
const PUSH_PROMISE: u8 = 0x5;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;

/// The position in the stream of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    head: [u8; HEAD],
    /// How much of `head` is there.
    head_read: usize,
    /// How much of the payload is still to come.
    payload: usize,
    block: HeaderBlock,
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
pub(crate) enum Reach {
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
            head: [0; HEAD],
            head_read: 0,
            payload: PREFACE,
            block: HeaderBlock::Outside,
        }
    }

    /// Whether a header block has begun and not ended.
    pub(crate) fn is_in_block(&self) -> bool {
        self.block != HeaderBlock::Outside
    }

    /// Moves on over the bytes that may pass, `limit` at most: up to the end of
    /// a header block, and not into a block of several frames of which some are missing.
    pub(crate) fn advance(&mut self, bytes: &[u8], limit: usize) -> Reach {
        let mut passed = 0;
        loop {
            let rest = bytes.get(passed..).unwrap_or_default();
            if self.block == HeaderBlock::Continues && self.is_missing(rest) {
                return Reach::Some(passed);
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
                return Reach::BlockEnd(passed);
            }
            if passed >= bytes.len().min(limit) {
                return Reach::Some(passed);
            }
        }
    }

    /// Takes what `bytes` hold of a frame's head; how much that is.
    fn read_head(&mut self, bytes: &[u8]) -> usize {
        let missing = self.head.iter_mut().skip(self.head_read);
        let taken = missing.zip(bytes).map(|(place, byte)| *place = *byte).count();
        self.head_read += taken;
        if self.head_read == HEAD {
            self.head_read = 0;
            let head = FrameHead::of(self.head);
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
            let next = at + HEAD + head.length;
            let is_broken = head.kind != CONTINUATION || head.length > MAX_PAYLOAD;
            if is_broken || (head.ends_block && next <= rest.len()) {
                self.block = HeaderBlock::Passes;
                return false;
            }
            at = next;
        }
        true
    }
}

/// The head of a frame, as far as it matters.
struct FrameHead {
    length: usize,
    kind: u8,
    ends_block: bool,
}

// === impl FrameHead ===

impl FrameHead {
    fn of([high, middle, low, kind, flags, ..]: [u8; HEAD]) -> Self {
        Self {
            length: usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low),
            kind,
            ends_block: flags & END_HEADERS != 0,
        }
    }

    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let head = bytes.get(at..)?.first_chunk::<HEAD>()?;
        Some(Self::of(*head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&head[..], &vec![0; usize::from(length[3])]].concat()
    }

    /// Frames after the preface.
    fn after_preface() -> Frames {
        let mut frames = Frames::new();
        assert_eq!(frames.advance(&[0; PREFACE], PREFACE), Reach::Some(PREFACE));
        frames
    }

    fn advance(frames: &mut Frames, bytes: &[u8]) -> Reach {
        frames.advance(bytes, bytes.len())
    }

    #[test]
    fn a_block_of_one_frame_ends_with_it() {
        let bytes = [
            frame(DATA, 0, 7),
            frame(HEADERS, END_HEADERS, 5),
            frame(DATA, 0, 3),
        ]
        .concat();
        let block_end = 16 + 14;
        for split in 0..block_end {
            let mut frames = after_preface();
            let (first, rest) = bytes.split_at(split);
            assert_eq!(advance(&mut frames, first), Reach::Some(split), "{split}");
            assert_eq!(frames.is_in_block(), split >= 16 + 9, "{split}");
            assert_eq!(
                advance(&mut frames, rest),
                Reach::BlockEnd(block_end - split),
                "{split}"
            );
            assert!(!frames.is_in_block());
        }
    }

    #[test]
    fn a_block_of_several_frames_passes_once_it_is_whole() {
        let bytes = [
            frame(HEADERS, 0, 5),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, END_HEADERS, 2),
            frame(DATA, 0, 1),
        ]
        .concat();
        let whole = 14 + 9 + 11;
        for available in HEAD..whole {
            let mut frames = after_preface();
            assert_eq!(
                advance(&mut frames, &bytes[..available]),
                Reach::Some(HEAD),
                "{available}"
            );
            assert!(frames.is_in_block());
            let rest = &bytes[HEAD..];
            assert_eq!(
                advance(&mut frames, rest),
                Reach::BlockEnd(whole - HEAD),
                "{available}"
            );
        }
    }

    #[test]
    fn what_is_no_block_is_left_to_h2() {
        for broken in [
            frame(DATA, 0, 1),
            frame(HEADERS, END_HEADERS, 1),
            frame(CONTINUATION, 0, 1 << 20),
        ] {
            let bytes = [frame(HEADERS, 0, 5), broken].concat();
            let mut frames = after_preface();
            let mut passed = 0;
            while passed < 14 + HEAD {
                match advance(&mut frames, &bytes[passed..]) {
                    Reach::Some(more) | Reach::BlockEnd(more) => passed += more,
                }
            }
        }
    }

    #[test]
    fn a_limit_stops_anywhere() {
        let bytes = [frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 2)].concat();
        let mut frames = after_preface();
        for passed in 0..bytes.len() - 1 {
            assert_eq!(frames.advance(&bytes[passed..], 1), Reach::Some(1), "{passed}");
        }
        assert_eq!(frames.advance(&bytes[bytes.len() - 1..], 1), Reach::BlockEnd(1));
    }
}
