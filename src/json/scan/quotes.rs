//! Finds where strings begin and end, in blocks, ahead of the scanner.
//!
//! A byte-by-byte search for the end of a string must finish before the next one can
//! begin. Here a block of 64 bytes becomes a word with a bit for each quote, so that the
//! processor does not have to wait.

/// The quotes of a text that no backslash escapes, in order.
pub(super) struct Quotes<'t> {
    bytes: &'t [u8],
    /// Where the block at hand begins.
    begin: usize,
    /// Where the next one does.
    next: usize,
    /// The quotes of the block that are still to come, a bit for each byte.
    quotes: u64,
    /// 1 if the first byte of the next block is escaped.
    escaped: u64,
    /// Up to here there is neither backslash nor control character from some string on.
    plain_until: usize,
}

/// The end of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Where its closing quote is.
    pub(super) at: usize,
    /// Whether there is neither backslash nor control character in it.
    pub(super) is_plain: bool,
}

const BLOCK: usize = 64;

// === impl Quotes ===

impl<'t> Quotes<'t> {
    pub(super) const fn new(bytes: &'t [u8]) -> Self {
        Self {
            bytes,
            begin: 0,
            next: 0,
            quotes: 0,
            escaped: 0,
            plain_until: 0,
        }
    }

    /// The end of the string that begins at `start`: to be asked for each in turn.
    #[inline(always)]
    pub(super) fn string(&mut self, start: usize) -> Option<End> {
        self.quote()?;
        let at = self.quote()?;
        if self.plain_until <= start {
            self.look_ahead(start);
        }
        Some(End {
            at,
            is_plain: at <= self.plain_until,
        })
    }

    #[inline(always)]
    fn quote(&mut self) -> Option<usize> {
        while self.quotes == 0 {
            self.advance()?;
        }
        let at = self.begin + self.quotes.trailing_zeros() as usize;
        self.quotes &= self.quotes.wrapping_sub(1);
        Some(at)
    }

    /// Finds the first backslash or control character from `start` on.
    #[inline(never)]
    fn look_ahead(&mut self, mut start: usize) {
        let (blocks, tail) = self.bytes.get(start..).unwrap_or_default().as_chunks();
        for block in blocks {
            if any(block, is_other) {
                self.plain_until = start + bits(block, is_other).trailing_zeros() as usize;
                return;
            }
            start += BLOCK;
        }
        self.plain_until = start + tail.iter().take_while(|byte| !is_other(**byte)).count();
    }

    /// Goes to the next block.
    #[inline(never)]
    fn advance(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.next..).filter(|rest| !rest.is_empty())?;
        self.begin = self.next;
        self.next += BLOCK;
        if let Some(block) = rest.first_chunk() {
            self.read(block);
        } else {
            let mut block = [b' '; BLOCK];
            for (own, byte) in block.iter_mut().zip(rest) {
                *own = *byte;
            }
            self.read(&block);
        }
        Some(())
    }

    #[inline]
    fn read(&mut self, block: &[u8; BLOCK]) {
        self.quotes = bits(block, |byte| byte == b'"');
        // A block that ends before `plain_until` begins behind the string that was looked
        // ahead from: it has no backslash.
        let is_plain = self.next <= self.plain_until;
        if self.escaped != 0 || (!is_plain && any(block, is_backslash)) {
            self.quotes &= !self.escaped_by(bits(block, is_backslash));
        }
    }

    /// The bytes that follow a backslash which is not itself escaped. Runs of
    /// one subtraction distinguishes even from odd backslashes, as in simdjson.
    fn escaped_by(&mut self, backslashes: u64) -> u64 {
        const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        let begin = backslashes & !self.escaped;
        let followed = (((begin << 1) | ODD).wrapping_sub(begin)) ^ ODD;
        let escaped = followed ^ (backslashes | self.escaped);
        self.escaped = (followed & backslashes) >> 63;
        escaped
    }
}

const fn is_backslash(byte: u8) -> bool {
    byte == b'\\'
}

const fn is_other(byte: u8) -> bool {
    is_backslash(byte) | (byte < 0x20)
}

#[inline]
fn any(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |any, byte| any | is(*byte))
}

/// A bit for each byte that `is` so, that of the first the lowest.
#[inline]
fn bits(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    let mut flags = [0; BLOCK];
    for (flag, byte) in flags.iter_mut().zip(block) {
        *flag = u8::from(is(*byte));
    }
    let words = flags.as_chunks().0.iter().enumerate();
    words.fold(0, |all, (place, word)| all | gathered(*word) << (place * 8))
}

/// The lowest bits of eight bytes.
const fn gathered(flags: [u8; 8]) -> u64 {
    u64::from_le_bytes(flags).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The strings, byte by byte.
    fn plain(bytes: &[u8]) -> Vec<(usize, End)> {
        let (mut ends, mut start, mut is_plain, mut is_escaped) = (Vec::new(), None, true, false);
        for (at, byte) in bytes.iter().copied().enumerate() {
            if byte == b'"' && !is_escaped {
                match start.take() {
                    Some(start) => ends.push((start, End { at, is_plain })),
                    None => (start, is_plain) = (Some(at), true),
                }
            } else if is_other(byte) {
                is_plain = false;
            }
            is_escaped = byte == b'\\' && !is_escaped;
        }
        ends
    }

    fn check(text: &str) {
        let mut quotes = Quotes::new(text.as_bytes());
        for (start, end) in plain(text.as_bytes()) {
            assert_eq!(quotes.string(start), Some(end), "{text:?} at {start}");
        }
        assert_eq!(quotes.string(text.len()), None, "{text:?}");
    }

    #[test]
    fn strings_end_where_they_do_across_blocks() {
        for length in 0..200 {
            for string in ["", "\\\"", "\\\\", "\\\\\\\"", "\n"] {
                check(&format!(
                    "{}\"{string}\" \"{}\"",
                    " ".repeat(length),
                    "x".repeat(70)
                ));
            }
        }
    }

    proptest! {
        #[test]
        fn strings_end_where_they_do_byte_by_byte(text in r#"[\\"a\n]{0,300}"#) {
            check(&text);
        }
    }
}
