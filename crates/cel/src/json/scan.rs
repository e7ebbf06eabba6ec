//! The scanner: checks the grammar and writes the tape.
//!
//! ```text
//! text ─▶ scan: grammar, tokens ─▶ index: equal keys, wide maps
//! ```
//!
//! The objects that an API server sends consist of short tokens: names, keys, empty maps.
//! So a token is read in a few steps without a loop: the end of a string is looked for in
//! sixteen bytes at once, and what API servers write behind a key is compared as a word.

use std::borrow::Cow;
use std::mem;

use super::text::{find_escape, unescape};
use super::{JsonError, Kind, MAX_DEPTH, MAX_TEXT, MAX_TOKENS, Tape, TapeToken, WIDE, Wide};

/// A list or map that is still open.
#[derive(Clone, Copy)]
struct Frame {
    token: u32,
    count: u32,
    is_map: bool,
    /// A bit for each shape of a key so far. If two keys have the same shape, they may be equal.
    shapes: u64,
    maybe_repeated: bool,
}

/// Where scanning continues, as a position in the text.
enum Resume {
    /// At the beginning of a value in the innermost list or map.
    Into(usize),
    /// At the opening quote of a key.
    Key(usize),
    /// At the end of a value: a comma or closing bracket follows.
    Past(usize),
}

struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    tape: Tape,
    /// The innermost open list or map; outside all of them, it has no token.
    frame: Frame,
    /// The lists and maps around it, the outermost first.
    frames: Vec<Frame>,
}

pub(crate) fn scan(text: &str) -> Result<Tape, JsonError> {
    if text.len() >= MAX_TEXT {
        return Err(JsonError::TooLong);
    }
    let mut tape = Tape::default();
    tape.tokens
        .reserve_exact(likely_tokens(text.as_bytes()).min(MAX_TOKENS));
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        tape,
        frame: Frame::new(u32::MAX, false),
        frames: Vec::with_capacity(16),
    };
    scanner.document()?;
    scanner.tape.wide.sort_unstable_by_key(|wide| wide.token);
    Ok(scanner.tape)
}

/// The longest text of which the tokens are not counted beforehand, in bytes.
const SHORT: usize = 64 << 10;

/// How many tokens there is room for at first.
fn likely_tokens(text: &[u8]) -> usize {
    if text.len() > SHORT {
        return most_tokens(text);
    }
    // Kubernetes' objects have a token for every 9 to 20 bytes.
    text.len() / 9 + 4
}

/// An upper bound for the tokens of a text: each but the first follows one of these bytes.
pub(crate) fn most_tokens(text: &[u8]) -> usize {
    // An empty list or map has nothing in it: its closing bracket is its opening one plus 2 in ASCII.
    let begins = |byte: u8, next: u8| matches!(byte, b'[' | b'{') && next != byte + 2;
    let is_before = |(byte, next): &(&u8, &u8)| matches!(byte, b',' | b':') || begins(**byte, **next);
    1 + text
        .iter()
        .zip(text.get(1..).unwrap_or_default())
        .filter(is_before)
        .count()
}

/// Makes room for more tokens, up to [`MAX_TOKENS`].
#[cold]
fn grow(tokens: &mut Vec<TapeToken>) -> Result<(), JsonError> {
    if tokens.len() >= MAX_TOKENS {
        return Err(JsonError::TooMany);
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

/// The byte that is read beyond the end of the text, which no step accepts.
const END: u8 = 0;

const fn expected(at: usize, expected: &'static str) -> JsonError {
    JsonError::Unexpected { at, expected }
}

/// What may follow a key, and a string, as the first bytes of a word.
const EMPTY_MAP: u64 = u64::from_le_bytes(*b":{},\"\0\0\0");
const STRING: u64 = u64::from_le_bytes(*b":\"\0\0\0\0\0\0");
const MAP: u64 = u64::from_le_bytes(*b":{\"\0\0\0\0\0");
const NEXT_KEY: u64 = u64::from_le_bytes(*b",\"\0\0\0\0\0\0");

/// The first `bytes` of a word.
const fn mask(bytes: u32) -> u64 {
    (1 << (bytes * 8)) - 1
}

impl Scanner<'_> {
    /// The key just read has the shape of an earlier one.
    #[inline(never)]
    pub(crate) fn suspect(&mut self, key: u32) {
        let Frame { token, count, .. } = self.frame;
        // The keys of a wide map are compared when it is closed.
        let is_repeated = count as usize <= WIDE && self.repeats(token, count, key);
        self.frame.maybe_repeated |= is_repeated;
    }

    /// Whether one of the `count` entries of the map at `token` has the text of `key`.
    fn repeats(&self, token: u32, count: u32, key: u32) -> bool {
        let text_of_key = self.key_text(key);
        let mut at = token + 1;
        for _ in 0..count {
            if self.key_text(at) == text_of_key {
                return true;
            }
            at = self.token(at + 1).map_or(at, |value| value.next);
        }
        false
    }

    /// Indexes the list or map that was just closed. Returns how many of its keys are superseded by others.
    #[cold]
    pub(crate) fn index(&mut self, frame: Frame) -> u32 {
        if frame.is_map {
            return self.index_keys(frame.token, frame.count);
        }
        self.index_items(frame.token, frame.count);
        0
    }

    fn index_items(&mut self, token: u32, count: u32) {
        let from = self.tape.order.len();
        self.tape.order.reserve(count as usize);
        let mut item = token + 1;
        for _ in 0..count {
            self.tape.order.push(item);
            item = self.token(item).map_or(item, |token| token.next);
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
            key = self.token(key + 1).map_or(key, |value| value.next);
        }
        // Stable: of equal keys the last written stays last.
        keys.sort_by(|left, right| self.name(*left).cmp(&self.name(*right)));
        let repeated: Vec<u32> = keys
            .windows(2)
            .filter_map(|pair| match pair {
                [left, right] if self.name(*left) == self.name(*right) => Some(*left),
                _ => None,
            })
            .collect();
        for key in &repeated {
            if let Some(token) = self.tape.tokens.get_mut(*key as usize) {
                token.supersede();
            }
        }
        keys.retain(|key| !self.token(*key).is_some_and(TapeToken::superseded));
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

    /// The key, unescaped.
    fn name(&self, key: u32) -> Cow<'_, str> {
        let escaped = self.token(key).is_some_and(TapeToken::escaped);
        unescape(self.key_text(key), escaped)
    }

    /// The key as it is written.
    fn key_text(&self, key: u32) -> &str {
        self.token(key)
            .and_then(|token| self.text.get(token.start as usize..token.end as usize))
            .unwrap_or_default()
    }

    fn token(&self, token: u32) -> Option<TapeToken> {
        self.tape.tokens.get(token as usize).copied()
    }
}

// A quick comparison of keys that distinguishes most of them without reading them.

/// A number below 64 for the string from `start` to `end`, quotes included:
/// equal strings have equal ones, others seldom.
#[inline(always)]
pub(crate) fn shape(bytes: &[u8], start: usize, end: usize) -> usize {
    let byte = |at: usize| bytes.get(at).copied().map_or(0, usize::from);
    let length = end - start;
    let (first, middle, last) = (
        byte(start + 1),
        byte(start + length / 2),
        byte(end.wrapping_sub(2)),
    );
    (length ^ (first << 1) ^ (middle << 3) ^ (last << 2)) & 63
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

/// Each step is given the place at which it begins, and returns the one after it.
impl Scanner<'_> {
    fn document(&mut self) -> Result<(), JsonError> {
        let mut resume = Resume::Into(0);
        loop {
            resume = match resume {
                Resume::Key(at) => self.entries(at)?,
                Resume::Into(at) => self.value(self.space(at))?,
                Resume::Past(at) if self.frames.is_empty() => return self.end(at),
                Resume::Past(at) => self.after_value(at)?,
            };
        }
    }

    /// Reads the key here and those after it, with their values, as long as they are
    /// written as an API server writes them.
    #[inline(always)]
    fn entries(&mut self, mut start: usize) -> Result<Resume, JsonError> {
        loop {
            let at = self.key(start)?;
            let next = self.word(at);
            if next & mask(5) == EMPTY_MAP && self.frames.len() < MAX_DEPTH {
                self.leaf(Kind::Object, at + 1, at + 3)?;
                self.frame.count += 1;
                start = at + 4;
            } else if next & mask(2) == STRING {
                let end = self.string(at + 1, false)?;
                if self.word(end) & mask(2) != NEXT_KEY {
                    return Ok(Resume::Past(end));
                }
                self.frame.count += 1;
                start = end + 1;
            } else if next & mask(3) == MAP {
                self.enter(Kind::Object, at + 1)?;
                start = at + 2;
            } else {
                let at = self.space(at);
                if self.byte(at) != b':' {
                    return Err(expected(at, "`:`"));
                }
                return self.value(self.space(at + 1));
            }
        }
    }

    fn end(&self, at: usize) -> Result<(), JsonError> {
        let at = self.space(at);
        if at >= self.bytes.len() {
            Ok(())
        } else {
            Err(expected(at, "the end"))
        }
    }

    /// Reads one value, or opens it if it is a list or map.
    #[inline(always)]
    fn value(&mut self, at: usize) -> Result<Resume, JsonError> {
        match self.byte(at) {
            b'"' => self.string(at, false).map(Resume::Past),
            b'{' => self.open(at, true),
            b'[' => self.open(at, false),
            _ => self.scalar(at).map(Resume::Past),
        }
    }

    /// What follows a value: a comma, and the key after it, or the ends of what it is in.
    #[inline(always)]
    fn after_value(&mut self, mut at: usize) -> Result<Resume, JsonError> {
        while !self.frames.is_empty() {
            self.frame.count += 1;
            at = self.space(at);
            match (self.byte(at), self.frame.is_map) {
                (b',', true) => return self.quote_of_key(self.space(at + 1)),
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

    /// Opens a list or map, unless it is empty.
    #[inline(always)]
    fn open(&mut self, start: usize, is_map: bool) -> Result<Resume, JsonError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(JsonError::TooDeep { at: start });
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
        self.enter(kind, start)?;
        if is_map {
            self.quote_of_key(at)
        } else {
            Ok(Resume::Into(at))
        }
    }

    /// Opens a list or map that is not empty.
    #[inline(always)]
    fn enter(&mut self, kind: Kind, start: usize) -> Result<(), JsonError> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(JsonError::TooDeep { at: start });
        }
        let token = self.push(TapeToken::new(kind, small(start), 0, 0))?;
        let around = mem::replace(&mut self.frame, Frame::new(token, kind == Kind::Object));
        self.frames.push(around);
        self.tape.levels = self.tape.levels.max(self.frames.len());
        Ok(())
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

    /// Checks that a key begins here.
    #[inline(always)]
    fn quote_of_key(&self, at: usize) -> Result<Resume, JsonError> {
        if self.byte(at) == b'"' {
            Ok(Resume::Key(at))
        } else {
            Err(expected(at, "a key"))
        }
    }

    /// Reads the key whose quote is here.
    #[inline(always)]
    fn key(&mut self, start: usize) -> Result<usize, JsonError> {
        let key = small(self.tape.tokens.len());
        let end = self.string(start, true)?;
        let shape = 1u64 << shape(self.bytes, start, end);
        let is_suspect = self.frame.shapes & shape != 0;
        self.frame.shapes |= shape;
        if is_suspect {
            self.suspect(key);
        }
        Ok(end)
    }

    #[inline(always)]
    fn text(&mut self, start: usize, end: usize, escaped: bool) -> Result<u32, JsonError> {
        let next = small(self.tape.tokens.len()) + 1;
        self.push(TapeToken::string(small(start), small(end), next, escaped))
    }

    /// Adds a token that has none within it.
    #[inline(always)]
    fn leaf(&mut self, kind: Kind, start: usize, end: usize) -> Result<u32, JsonError> {
        let next = small(self.tape.tokens.len()) + 1;
        self.push(TapeToken::new(kind, small(start), small(end), next))
    }

    #[inline(always)]
    fn push(&mut self, token: TapeToken) -> Result<u32, JsonError> {
        let tokens = &mut self.tape.tokens;
        let position = small(tokens.len());
        if tokens.len() == tokens.capacity() {
            grow(tokens)?;
        }
        tokens.push(token);
        Ok(position)
    }

    /// The eight bytes from here on, in little-endian order; 0 if there are fewer.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        match self.bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => 0,
        }
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(END)
    }

    /// Skips white space, of which API servers write none.
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

// Numbers, `true`, `false` and `null`.

impl Scanner<'_> {
    #[inline(never)]
    pub(crate) fn scalar(&mut self, start: usize) -> Result<usize, JsonError> {
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

    fn number(&self, start: usize) -> Result<usize, JsonError> {
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

    fn digits(&self, mut at: usize) -> Result<usize, JsonError> {
        let is_digit = |at| self.byte(at).is_ascii_digit();
        if !is_digit(at) {
            return Err(expected(at, "a digit"));
        }
        while is_digit(at) {
            at += 1;
        }
        Ok(at)
    }

    fn literal(&self, start: usize, word: &'static str) -> Result<usize, JsonError> {
        let rest = self.bytes.get(start..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            Ok(start + word.len())
        } else {
            Err(expected(start, word))
        }
    }
}

// Strings: where they end, and whether their escapes are valid.

impl Scanner<'_> {
    #[inline(always)]
    pub(crate) fn string(&mut self, start: usize, is_key: bool) -> Result<usize, JsonError> {
        let end = find_escape(self.bytes, start + 1);
        if self.byte(end) != b'"' {
            return self.escaped(start, end, is_key);
        }
        self.text(start, end + 1, false)?;
        Ok(end + 1)
    }

    /// Reads a string that is plain up to `at`, and has an escape there or does not end.
    #[inline(never)]
    fn escaped(&mut self, start: usize, mut at: usize, is_key: bool) -> Result<usize, JsonError> {
        let mut is_ambiguous = false;
        loop {
            match self.byte(at) {
                b'"' => break,
                b'\\' => {
                    let length = self.escape(at)?;
                    // A character has two spellings only if one of them is `\uXXXX` or `\/`: keys that have one
                    // are compared unescaped.
                    is_ambiguous |= length > 2 || self.byte(at + 1) == b'/';
                    at = find_escape(self.bytes, at + length);
                }
                END if at >= self.bytes.len() => return Err(expected(at, "`\"`")),
                _ => return Err(expected(at, "no control character in a string")),
            }
        }
        self.frame.maybe_repeated |= is_key && is_ambiguous;
        self.text(start, at + 1, true)?;
        Ok(at + 1)
    }

    /// The length of the escape here.
    fn escape(&self, at: usize) -> Result<usize, JsonError> {
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

#[cfg(test)]
mod tests;
