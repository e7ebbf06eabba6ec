//! The pass over the text: checks the grammar and writes the tape.

use super::document::{Tape, Token, WIDE, Wide};
use super::text::unescape;
use super::{Error, Kind, MAX_DEPTH, MAX_TEXT, MAX_TOKENS};

/// A list or map that is still open.
struct Frame {
    token: u32,
    count: u32,
    is_map: bool,
    /// One bit for each key's shape: a bit set twice means that keys may repeat.
    shapes: u64,
    maybe_repeated: bool,
}

struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    tape: Tape,
    frames: Vec<Frame>,
    /// Whether the last string has an escape that could be spelt otherwise.
    is_ambiguous: bool,
}

pub(super) fn scan(text: &str) -> Result<Tape, Error> {
    if text.len() >= MAX_TEXT {
        return Err(Error::TooLong);
    }
    let mut tape = Tape::default();
    // Kubernetes' objects have a token for every 11 to 20 bytes.
    tape.tokens.reserve((text.len() / 12).min(MAX_TOKENS) + 4);
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        tape,
        frames: Vec::with_capacity(16),
        is_ambiguous: false,
    };
    scanner.document()?;
    scanner.tape.wide.sort_unstable_by_key(|wide| wide.token);
    Ok(scanner.tape)
}

/// An offset or count within a text shorter than [`MAX_TEXT`].
#[expect(clippy::cast_possible_truncation, reason = "MAX_TEXT is below 2^32")]
const fn small(number: usize) -> u32 {
    number as u32
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Error> {
        loop {
            if self.value()? {
                continue;
            }
            if self.after_value()? {
                break;
            }
        }
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    /// Reads one value, or opens one: then its first item is to be read next.
    fn value(&mut self) -> Result<bool, Error> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.string().map(|()| false),
            Some(b'{') => self.open(Kind::Object, b'}'),
            Some(b'[') => self.open(Kind::Array, b']'),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| false),
            Some(b't') => self.literal("true", Kind::Bool),
            Some(b'f') => self.literal("false", Kind::Bool),
            Some(b'n') => self.literal("null", Kind::Null),
            _ => Err(self.expected("a value")),
        }
    }

    /// What follows a value: a comma, or the ends of what it is in. True at the end of all.
    fn after_value(&mut self) -> Result<bool, Error> {
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(true);
            };
            frame.count += 1;
            let is_map = frame.is_map;
            self.skip_space();
            match (self.peek(), is_map) {
                (Some(b','), false) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some(b','), true) => {
                    self.at += 1;
                    self.skip_space();
                    self.key()?;
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.close(),
                (_, true) => return Err(self.expected("`,` or `}`")),
                (_, false) => return Err(self.expected("`,` or `]`")),
            }
        }
    }

    /// Opens a list or map; true if it has a first item.
    fn open(&mut self, kind: Kind, end: u8) -> Result<bool, Error> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(Error::TooDeep { at: self.at });
        }
        let token = self.push(Token::new(kind, small(self.at), 0, 0))?;
        let is_map = kind == Kind::Object;
        self.frames.push(Frame {
            token,
            count: 0,
            is_map,
            shapes: 0,
            maybe_repeated: false,
        });
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(end) {
            self.close();
            return Ok(false);
        }
        if is_map {
            self.key()?;
        }
        Ok(true)
    }

    fn close(&mut self) {
        self.at += 1;
        let Some(frame) = self.frames.pop() else { return };
        let mut count = frame.count;
        if frame.is_map && (count as usize > WIDE || frame.maybe_repeated) {
            count -= self.index_keys(frame.token, count);
        } else if count as usize > WIDE {
            self.index_items(frame.token, count);
        }
        let next = small(self.tape.tokens.len());
        if let Some(token) = self.tape.tokens.get_mut(frame.token as usize) {
            token.close(small(self.at), next, count);
        }
    }

    fn key(&mut self) -> Result<(), Error> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key"));
        }
        let start = self.at;
        let key = self.tape.tokens.len();
        self.is_ambiguous = false;
        self.string()?;
        let shape = 1u64 << (self.shape(start, self.at) & 63);
        if let Some(&Frame {
            token, count, shapes, ..
        }) = self.frames.last()
        {
            let is_suspect = shapes & shape != 0 && count as usize <= WIDE;
            let is_repeated = self.is_ambiguous || (is_suspect && self.repeats(token, count, key));
            if let Some(frame) = self.frames.last_mut() {
                frame.maybe_repeated |= is_repeated;
                frame.shapes |= shape;
            }
        }
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.expected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    /// Whether one of the `count` entries of the map at `token` has the text of `key`.
    fn repeats(&self, token: u32, count: u32, key: usize) -> bool {
        let text = |token: Token| self.bytes.get(token.start as usize..token.end as usize);
        let Some(text_of_key) = self.tape.tokens.get(key).map(|key| text(*key)) else {
            return false;
        };
        let mut at = token as usize + 1;
        for _ in 0..count {
            let Some(earlier) = self.tape.tokens.get(at) else {
                return false;
            };
            if text(*earlier) == text_of_key {
                return true;
            }
            at = self
                .tape
                .tokens
                .get(at + 1)
                .map_or(at, |value| value.next as usize);
        }
        false
    }

    /// A cheap mix of length, first, middle and last byte of a key: equal keys have equal shapes.
    fn shape(&self, start: usize, end: usize) -> usize {
        let byte = |at: usize| self.bytes.get(at).copied().map_or(0, usize::from);
        let length = end - start;
        length ^ (byte(start + 1) << 1) ^ (byte(start + length / 2) << 3) ^ (byte(end.wrapping_sub(2)) << 2)
    }

    #[inline]
    fn string(&mut self) -> Result<(), Error> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at += plain_prefix(self.bytes.get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.expected("no control character in a string")),
                None => return Err(self.expected("`\"`")),
            }
        }
        self.at += 1;
        let next = small(self.tape.tokens.len()) + 1;
        self.push(Token::string(small(start), small(self.at), next, escaped))
            .map(|_| ())
    }

    fn escape(&mut self) -> Result<(), Error> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'/') => {
                self.at += 2;
                self.is_ambiguous = true;
            }
            Some(b'u')
                if self
                    .bytes
                    .get(self.at + 2..self.at + 6)
                    .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
            {
                self.at += 6;
                self.is_ambiguous = true;
            }
            _ => return Err(self.expected("a known escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.expected("a digit")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.scalar(Kind::Number, start)
    }

    fn digits(&mut self) -> Result<(), Error> {
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.skip_digits();
                Ok(())
            }
            _ => Err(self.expected("a digit")),
        }
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &'static str, kind: Kind) -> Result<bool, Error> {
        let start = self.at;
        if !self
            .bytes
            .get(start..)
            .is_some_and(|rest| rest.starts_with(word.as_bytes()))
        {
            return Err(self.expected(word));
        }
        self.at += word.len();
        self.scalar(kind, start).map(|()| false)
    }

    fn scalar(&mut self, kind: Kind, start: usize) -> Result<(), Error> {
        let next = small(self.tape.tokens.len()) + 1;
        self.push(Token::new(kind, small(start), small(self.at), next))
            .map(|_| ())
    }

    fn push(&mut self, token: Token) -> Result<u32, Error> {
        let position = self.tape.tokens.len();
        if position >= MAX_TOKENS {
            return Err(Error::TooMany);
        }
        self.tape.tokens.push(token);
        Ok(small(position))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    const fn expected(&self, expected: &'static str) -> Error {
        Error::Unexpected {
            at: self.at,
            expected,
        }
    }

    // --- indexes of what has just been closed ---

    fn index_items(&mut self, token: u32, count: u32) {
        let from = self.tape.order.len();
        let mut item = token + 1;
        for _ in 0..count {
            self.tape.order.push(item);
            item = self
                .tape
                .tokens
                .get(item as usize)
                .map_or(item, |token| token.next);
        }
        self.wide(token, from);
    }

    /// Orders the keys, marks those that a later equal key supersedes, and
    /// keeps the order if the map is wide. Returns how many were superseded.
    fn index_keys(&mut self, token: u32, count: u32) -> u32 {
        let mut keys = Vec::with_capacity(count as usize);
        let mut key = token + 1;
        for _ in 0..count {
            keys.push(key);
            key = self
                .tape
                .tokens
                .get(key as usize + 1)
                .map_or(key, |value| value.next);
        }
        // Stable: of equal keys the last written stays last.
        keys.sort_by(|left, right| self.key_bytes(*left).cmp(&self.key_bytes(*right)));
        let repeated: Vec<u32> = keys
            .windows(2)
            .filter_map(|pair| match pair {
                [left, right] if self.key_bytes(*left) == self.key_bytes(*right) => Some(*left),
                _ => None,
            })
            .collect();
        for key in &repeated {
            if let Some(token) = self.tape.tokens.get_mut(*key as usize) {
                token.supersede();
            }
        }
        keys.retain(|key| {
            !self
                .tape
                .tokens
                .get(*key as usize)
                .is_some_and(|token| token.superseded())
        });
        if keys.len() > WIDE {
            let from = self.tape.order.len();
            self.tape.order.extend(keys);
            self.wide(token, from);
        }
        small(repeated.len())
    }

    fn wide(&mut self, token: u32, from: usize) {
        self.tape.wide.push(Wide {
            token,
            from: small(from),
            to: small(self.tape.order.len()),
        });
    }

    fn key_bytes(&self, key: u32) -> std::borrow::Cow<'_, str> {
        let Some(token) = self.tape.tokens.get(key as usize) else {
            return "".into();
        };
        let quoted = self
            .text
            .get(token.start as usize..token.end as usize)
            .unwrap_or_default();
        unescape(quoted, token.escaped())
    }
}

/// How many bytes from the start are neither quote, backslash nor control character.
#[inline]
fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGHS
    }
    let mut length = 0;
    for chunk in bytes.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let special =
            zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\'))) | control;
        // A borrow can only mark bytes above the first true one, and that is the one looked for.
        if special != 0 {
            return length + (special.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let rest = bytes.get(length..).unwrap_or_default();
    length
        + rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\') || *byte < 0x20)
            .unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_prefix_finds_the_first_special_byte_at_every_offset() {
        for special in [b'"', b'\\', 0x00, 0x1f, b'\n'] {
            for length in 0..40 {
                let mut bytes = vec![b'!'; 40];
                bytes[length] = special;
                assert_eq!(plain_prefix(&bytes), length, "{special:#x} at {length}");
            }
        }
        let text = "ünïcödé and a long tail without quotes";
        assert_eq!(plain_prefix(text.as_bytes()), text.len());
        assert_eq!(
            plain_prefix(&[0x7f, 0x80, 0xff, b' ', b'!', b'#', b'[', b']', 0x21]),
            9
        );
    }
}
