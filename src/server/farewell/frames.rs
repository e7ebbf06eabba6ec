//! Where HTTP/2 frames begin and end in the bytes of a connection (RFC 9113, 4.1).

/// The length of a frame's header; its first three bytes are that of the rest.
const HEADER_BYTES: usize = 9;

/// How far into a frame the bytes so far lead.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Whether there was a whole frame: the first must be SETTINGS.
    begun: bool,
    header: [u8; HEADER_BYTES],
    /// How much of the header has passed.
    header_passed: usize,
    /// How much of the payload is still to come.
    payload_left: usize,
}

// === impl Frames ===

impl Frames {
    /// Whether a frame has just ended.
    pub(super) const fn is_between(&self) -> bool {
        self.begun && self.header_passed == 0
    }

    /// How many of the next `bytes` surely belong to the frame under way; all if
    /// there is none. At most the rest of its header, or of its payload.
    pub(super) fn left_of_this(&self, bytes: usize) -> usize {
        let left = if self.header_passed < HEADER_BYTES {
            HEADER_BYTES - self.header_passed
        } else {
            self.payload_left
        };
        left.min(bytes)
    }

    /// Follows `bytes`.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes
                .split_at_checked(self.left_of_this(bytes.len()))
                .unwrap_or((bytes, &[]));
            if self.header_passed < HEADER_BYTES {
                self.pass_header(now);
            } else {
                self.payload_left -= now.len();
            }
            if self.header_passed == HEADER_BYTES && self.payload_left == 0 {
                self.begun = true;
                self.header_passed = 0;
            }
            bytes = later;
        }
    }

    fn pass_header(&mut self, bytes: &[u8]) {
        for (place, byte) in self.header.iter_mut().skip(self.header_passed).zip(bytes) {
            *place = *byte;
        }
        self.header_passed += bytes.len();
        if self.header_passed == HEADER_BYTES {
            let [high, middle, low, ..] = self.header;
            self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_its_header_says_however_it_is_cut() {
        let mut bytes = Vec::new();
        for length in [0_usize, 1, 300] {
            bytes.extend_from_slice(&[0, (length >> 8) as u8, length as u8, 4, 0, 0, 0, 0, 0]);
            bytes.extend(vec![0xff; length]);
        }
        let ends = [9, 9 + 10, 19 + 309];
        for step in [1, 2, 7, 9, 10, 100, 1000] {
            let (mut frames, mut passed) = (Frames::default(), 0);
            assert!(!frames.is_between(), "before the first frame");
            for chunk in bytes.chunks(step) {
                frames.pass(chunk);
                passed += chunk.len();
                assert_eq!(
                    frames.is_between(),
                    ends.contains(&passed),
                    "{passed} in steps of {step}"
                );
            }
        }
    }
}
