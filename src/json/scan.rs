//! The scanner: checks the grammar and writes the tape.
//!
//! ```text
//! text ─▶ quotes: where strings end ─▶ scan: grammar, tokens ─▶ index: equal keys, wide maps
//! ```
//!
//! The objects that an API server sends consist of short tokens: names, keys, empty maps.
//! So a token is read in a few steps without a loop, and the position is passed from one
//! to the next.

mod index;
mod quotes;
mod shape;

use std::mem;

use super::tape::{Kind, Tape, TapeToken, WIDE};
use super::text::plain_end;
use super::{Error, MAX_DEPTH, MAX_TEXT, MAX_TOKENS};
use quotes::{End, Quotes};
use shape::shape;

/// A list or map that is still open.
#[derive(Clone, Copy)]
struct Frame {
    token: u32,
    count: u32,
    is_map: bool,
    /// One bit for each key's shape: a bit set twice means that keys may repeat.
    shapes: u64,
    maybe_repeated: bool,
}

/// Where to go on.
enum Resume {
    /// With the value that begins here, in the innermost list or map.
    Into(usize),
    /// With what follows the value that ends here.
    Past(usize),
}

struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    quotes: Quotes<'t>,
    tape: Tape,
    /// The innermost list or map that is open. Outside all it has no token.
    frame: Frame,
    /// Those around it, the outermost first.
    frames: Vec<Frame>,
}

pub(super) fn scan(text: &str) -> Result<Tape, Error> {
    if text.len() >= MAX_TEXT {
        return Err(Error::TooLong);
    }
    let mut tape = Tape::default();
    // Kubernetes' objects have a token for every 9 to 20 bytes.
    tape.tokens.reserve_exact((text.len() / 9 + 4).min(MAX_TOKENS));
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        quotes: Quotes::new(text.as_bytes()),
        tape,
        frame: Frame::new(u32::MAX, false),
        frames: Vec::with_capacity(16),
    };
    scanner.document()?;
    scanner.tape.wide.sort_unstable_by_key(|wide| wide.token);
    Ok(scanner.tape)
}

/// Makes room for more tokens, up to [`MAX_TOKENS`].
#[cold]
fn grow(tokens: &mut Vec<TapeToken>) -> Result<(), Error> {
    if tokens.len() >= MAX_TOKENS {
        return Err(Error::TooMany);
    }
    let more = tokens.len().min(MAX_TOKENS - tokens.len());
    tokens.reserve_exact(more.max(4));
    Ok(())
}

/// An offset or count within a text shorter than [`MAX_TEXT`].
#[expect(clippy::cast_possible_truncation, reason = "MAX_TEXT is below 2^32")]
const fn small(number: usize) -> u32 {
    number as u32
}

/// What stands beyond the end of the text: nothing that any step accepts.
const END: u8 = 0;

const fn expected(at: usize, expected: &'static str) -> Error {
    Error::Unexpected { at, expected }
}

// === impl Frame ===

impl Frame {
    const fn new(token: u32, is_map: bool) -> Self {
        Self {
            token,
            count: 0,
            is_map,
            shapes: 0,
            maybe_repeated: false,
        }
    }
}

// === impl Scanner ===

/// Each step takes the place that it begins at and returns the one after it.
impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Error> {
        let mut at = 0;
        loop {
            at = match self.value(self.space(at))? {
                Resume::Into(first) => first,
                Resume::Past(end) => match self.after_value(end)? {
                    Resume::Into(next) => next,
                    Resume::Past(end) => break self.end(end),
                },
            };
        }
    }

    fn end(&self, at: usize) -> Result<(), Error> {
        let at = self.space(at);
        if at >= self.bytes.len() {
            Ok(())
        } else {
            Err(expected(at, "the end"))
        }
    }

    /// Reads one value, or goes into one.
    #[inline(always)]
    fn value(&mut self, at: usize) -> Result<Resume, Error> {
        match self.byte(at) {
            b'"' => self.string(at, false).map(Resume::Past),
            b'{' => self.open(at, true),
            b'[' => self.open(at, false),
            _ => self.scalar(at).map(Resume::Past),
        }
    }

    #[inline(never)]
    fn scalar(&mut self, start: usize) -> Result<usize, Error> {
        let (kind, end) = match self.byte(start) {
            b'-' | b'0'..=b'9' => (Kind::Number, self.number(start)?),
            b't' => (Kind::Bool, self.word(start, "true")?),
            b'f' => (Kind::Bool, self.word(start, "false")?),
            b'n' => (Kind::Null, self.word(start, "null")?),
            _ => return Err(expected(start, "a value")),
        };
        self.leaf(kind, start, end)?;
        Ok(end)
    }

    /// What follows a value: a comma, and the key after it, or the ends of what it is in.
    #[inline(always)]
    fn after_value(&mut self, mut at: usize) -> Result<Resume, Error> {
        while !self.frames.is_empty() {
            self.frame.count += 1;
            at = self.space(at);
            match (self.byte(at), self.frame.is_map) {
                (b',', true) => return self.key(self.space(at + 1)).map(Resume::Into),
                (b',', false) => return Ok(Resume::Into(at + 1)),
                (b'}', true) | (b']', false) => {
                    at += 1;
                    self.close(at);
                }
                (_, true) => return Err(expected(at, "`,` or `}`")),
                (_, false) => return Err(expected(at, "`,` or `]`")),
            }
        }
        Ok(Resume::Past(at))
    }

    /// Goes into a list or map, unless it is empty.
    #[inline(always)]
    fn open(&mut self, start: usize, is_map: bool) -> Result<Resume, Error> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(Error::TooDeep { at: start });
        }
        let (kind, end) = if is_map {
            (Kind::Object, b'}')
        } else {
            (Kind::Array, b']')
        };
        let at = self.space(start + 1);
        if self.byte(at) == end {
            self.leaf(kind, start, at + 1)?;
            return Ok(Resume::Past(at + 1));
        }
        let token = self.push(TapeToken::new(kind, small(start), 0, 0))?;
        let around = mem::replace(&mut self.frame, Frame::new(token, is_map));
        self.frames.push(around);
        self.tape.levels = self.tape.levels.max(self.frames.len());
        let first = if is_map { self.key(at)? } else { at };
        Ok(Resume::Into(first))
    }

    #[inline(always)]
    fn close(&mut self, end: usize) {
        let Some(around) = self.frames.pop() else { return };
        let frame = mem::replace(&mut self.frame, around);
        let mut count = frame.count;
        if count as usize > WIDE || frame.maybe_repeated {
            count -= self.index(frame);
        }
        let next = small(self.tape.tokens.len());
        if let Some(token) = self.tape.tokens.get_mut(frame.token as usize) {
            token.close(small(end), next, count);
        }
    }

    /// A key and the colon after it.
    #[inline(always)]
    fn key(&mut self, start: usize) -> Result<usize, Error> {
        if self.byte(start) != b'"' {
            return Err(expected(start, "a key"));
        }
        let key = small(self.tape.tokens.len());
        let end = self.string(start, true)?;
        let shape = 1u64 << shape(self.bytes, start, end);
        let is_suspect = self.frame.shapes & shape != 0;
        self.frame.shapes |= shape;
        if is_suspect {
            self.suspect(key);
        }
        let at = self.space(end);
        if self.byte(at) == b':' {
            Ok(at + 1)
        } else {
            Err(expected(at, "`:`"))
        }
    }

    #[inline(always)]
    fn string(&mut self, start: usize, is_key: bool) -> Result<usize, Error> {
        match self.quotes.string(start) {
            Some(End { at, is_plain: true }) => {
                self.text(start, at + 1, false)?;
                Ok(at + 1)
            }
            _ => self.escaped(start, is_key),
        }
    }

    /// A string that is not plain, or does not end.
    #[inline(never)]
    fn escaped(&mut self, start: usize, is_key: bool) -> Result<usize, Error> {
        let mut at = start + 1;
        let mut is_ambiguous = false;
        loop {
            match self.byte(at) {
                b'"' => break,
                b'\\' => {
                    let length = self.escape(at)?;
                    // What a letter stands for has this one spelling and the one by number.
                    is_ambiguous |= length > 2 || self.byte(at + 1) == b'/';
                    at += length;
                }
                END if at >= self.bytes.len() => return Err(expected(at, "`\"`")),
                0..0x20 => return Err(expected(at, "no control character in a string")),
                _ => at = plain_end(self.bytes, at),
            }
        }
        self.frame.maybe_repeated |= is_key && is_ambiguous;
        self.text(start, at + 1, true)?;
        Ok(at + 1)
    }

    #[inline(always)]
    fn text(&mut self, start: usize, end: usize, escaped: bool) -> Result<u32, Error> {
        let next = small(self.tape.tokens.len()) + 1;
        self.push(TapeToken::string(small(start), small(end), next, escaped))
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

    fn word(&self, start: usize, word: &'static str) -> Result<usize, Error> {
        let rest = self.bytes.get(start..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            Ok(start + word.len())
        } else {
            Err(expected(start, word))
        }
    }

    /// A token with none within it.
    #[inline(always)]
    fn leaf(&mut self, kind: Kind, start: usize, end: usize) -> Result<u32, Error> {
        let next = small(self.tape.tokens.len()) + 1;
        self.push(TapeToken::new(kind, small(start), small(end), next))
    }

    #[inline(always)]
    fn push(&mut self, token: TapeToken) -> Result<u32, Error> {
        let tokens = &mut self.tape.tokens;
        let position = small(tokens.len());
        if tokens.len() == tokens.capacity() {
            grow(tokens)?;
        }
        tokens.push(token);
        Ok(position)
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(END)
    }

    /// Past white space; API servers write none.
    #[inline(always)]
    fn space(&self, at: usize) -> usize {
        match self.byte(at) {
            0..=b' ' => self.more_space(at),
            _ => at,
        }
    }

    #[inline(never)]
    fn more_space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), b' ' | b'\n' | b'\r' | b'\t') {
            at += 1;
        }
        at
    }
}
