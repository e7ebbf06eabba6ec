//! Numbers, `true`, `false` and `null`.

use super::{Scanner, expected};
use crate::json::Error;
use crate::json::tape::Kind;

impl Scanner<'_> {
    #[inline(never)]
    pub(crate) fn scalar(&mut self, start: usize) -> Result<usize, Error> {
        let (kind, end) = match self.byte(start) {
            b'-' | b'0'..=b'9' => (Kind::Number, self.number(start)?),
            b't' => (Kind::Bool, self.literal(start, "true")?),
            b'f' => (Kind::Bool, self.literal(start, "false")?),
            b'n' => (Kind::Null, self.literal(start, "null")?),
            _ => return Err(expected(start, "a value")),
        };
        self.leaf(kind, start, end)?;
        Ok(end)
    }

    fn number(&self, start: usize) -> Result<usize, Error> {
        let mut at = start + usize::from(self.byte(start) == b'-');
        at = match self.byte(at) {
            b'0' => at + 1,
            _ => self.digits(at)?,
        };
        if self.byte(at) == b'.' {
            at = self.digits(at + 1)?;
        }
        if matches!(self.byte(at), b'e' | b'E') {
            at += 1;
            at += usize::from(matches!(self.byte(at), b'+' | b'-'));
            at = self.digits(at)?;
        }
        Ok(at)
    }

    fn digits(&self, mut at: usize) -> Result<usize, Error> {
        let is_digit = |at| self.byte(at).is_ascii_digit();
        if !is_digit(at) {
            return Err(expected(at, "a digit"));
        }
        while is_digit(at) {
            at += 1;
        }
        Ok(at)
    }

    fn literal(&self, start: usize, word: &'static str) -> Result<usize, Error> {
        let rest = self.bytes.get(start..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            Ok(start + word.len())
        } else {
            Err(expected(start, word))
        }
    }
}
