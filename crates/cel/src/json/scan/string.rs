//! Strings: where they end, and whether their escapes are ones.

use super::{END, Scanner, expected};
use crate::json::Error;
use crate::json::text::plain_end;

impl Scanner<'_> {
    #[inline(always)]
    pub(crate) fn string(&mut self, start: usize, is_key: bool) -> Result<usize, Error> {
        let end = plain_end(self.bytes, start + 1);
        if self.byte(end) != b'"' {
            return self.escaped(start, end, is_key);
        }
        self.text(start, end + 1, false)?;
        Ok(end + 1)
    }

    /// A string that is plain up to `at` and no further, or does not end.
    #[inline(never)]
    fn escaped(&mut self, start: usize, mut at: usize, is_key: bool) -> Result<usize, Error> {
        let mut is_ambiguous = false;
        loop {
            match self.byte(at) {
                b'"' => break,
                b'\\' => {
                    let length = self.escape(at)?;
                    // What a letter stands for has this one spelling and the one by number.
                    is_ambiguous |= length > 2 || self.byte(at + 1) == b'/';
                    at = plain_end(self.bytes, at + length);
                }
                END if at >= self.bytes.len() => return Err(expected(at, "`\"`")),
                _ => return Err(expected(at, "no control character in a string")),
            }
        }
        self.frame.maybe_repeated |= is_key && is_ambiguous;
        self.text(start, at + 1, true)?;
        Ok(at + 1)
    }

    /// How long the escape here is.
    fn escape(&self, at: usize) -> Result<usize, Error> {
        match self.byte(at + 1) {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(2),
            b'u' if self
                .bytes
                .get(at + 2..at + 6)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
            {
                Ok(6)
            }
            _ => Err(expected(at, "a known escape")),
        }
    }
}
