//! A JSON reader that borrows its input and reads one value after another.
//!
//! The reader tracks its position and reports what it expected there; the caller interprets the
//! values. Only strings with escapes are copied, and nothing recurses. Like Go, the reader replaces
//! an unpaired surrogate by U+FFFD.

use std::borrow::Cow;

use portcullis_cel::json::{JsonError, MAX_DEPTH, find_escape};

/// The input and a position in it.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// Which of the containers around a value are objects: one bit per level.
#[derive(Default)]
struct Containers {
    objects: [u64; NEAR_WORDS],
    /// The bits of the levels that do not fit into `objects`.
    deeper: Vec<u64>,
    depth: usize,
}

/// The number of words for the first 256 levels, for which nothing is allocated.
const NEAR_WORDS: usize = 4;

impl<'a> Reader<'a> {
    /// A reader at the beginning of `text`.
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Checks that only white space follows.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    /// The error that `expected` was not found at this position.
    pub(crate) const fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Unexpected {
            at: self.at,
            expected,
        }
    }

    /// The first byte of the next token.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.byte() {
            // API servers write no white space.
            Some(byte) if byte > b' ' => Some(byte),
            _ => self.peek_after_space(),
        }
    }

    #[inline(never)]
    fn peek_after_space(&mut self) -> Option<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                byte => return byte,
            }
        }
    }

    /// Consumes `token` if it is next.
    #[inline]
    pub(crate) fn take(&mut self, token: u8) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    /// Consumes `null` if it is next.
    pub(crate) fn take_null(&mut self) -> Result<bool, JsonError> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.literal("null").map(|()| true)
    }

    /// Reads the next key of the current object and its colon; `None` at the end of the object.
    pub(crate) fn key(&mut self, is_first: bool) -> Result<Option<Cow<'a, str>>, JsonError> {
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            Some(b',') if !is_first => self.at += 1,
            _ if !is_first => return Err(self.expected("`,` or `}`")),
            _ => {}
        }
        match self.plain_string() {
            Some(key) if self.byte() == Some(b':') => {
                self.at += 1;
                Ok(Some(Cow::Borrowed(key)))
            }
            Some(key) => self.key_before_space(Cow::Borrowed(key)),
            None => self.key_not_plain(),
        }
    }

    #[inline(never)]
    fn key_not_plain(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
        let key = self.string("a key")?;
        self.key_before_space(key)
    }

    #[inline(never)]
    fn key_before_space(&mut self, key: Cow<'a, str>) -> Result<Option<Cow<'a, str>>, JsonError> {
        if !self.take(b':') {
            return Err(self.expected("`:`"));
        }
        Ok(Some(key))
    }

    /// Whether the current list has another item. Consumes the separator before it, or the end of
    /// the list.
    pub(crate) fn item(&mut self, is_first: bool) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if !is_first => self.at += 1,
            _ if !is_first => return Err(self.expected("`,` or `]`")),
            _ => {}
        }
        Ok(true)
    }

    /// Reads a string.
    pub(crate) fn string(&mut self, expected: &'static str) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.expected(expected));
        }
        if let Some(string) = self.plain_string() {
            return Ok(Cow::Borrowed(string));
        }
        self.at += 1;
        let begin = self.at;
        self.at = find_escape(self.text.as_bytes(), self.at);
        self.string_with_escapes(begin).map(Cow::Owned)
    }

    /// Reads the string that begins at this position, if it is valid and has no escapes.
    #[inline]
    pub(crate) fn plain_string(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        let begin = self.at + 1;
        let end = find_escape(bytes, begin);
        if bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        self.text.get(begin..end)
    }

    /// Whether the next token begins a container that `close` ends at once.
    pub(crate) fn begins_empty(&mut self, close: u8) -> bool {
        let here = self.at;
        self.at += 1;
        let is_empty = self.peek() == Some(close);
        self.at = here;
        is_empty
    }

    /// Skips a value of any type.
    pub(crate) fn skip(&mut self) -> Result<(), JsonError> {
        let mut around = Containers::default();
        let mut is_first = false;
        loop {
            // Skip a scalar, or enter a container.
            if self.take(b'{') {
                around.enter(true).ok_or(JsonError::TooDeep { at: self.at })?;
                is_first = true;
            } else if self.take(b'[') {
                around.enter(false).ok_or(JsonError::TooDeep { at: self.at })?;
                is_first = true;
            } else {
                self.skip_scalar()?;
            }
            // Proceed to the next value, leaving the containers that end here.
            loop {
                let has_next = match around.is_object() {
                    None => return Ok(()),
                    Some(true) => self.skip_key(is_first)?,
                    Some(false) => self.item(is_first)?,
                };
                is_first = false;
                if has_next {
                    break;
                }
                around.leave();
            }
        }
    }

    fn skip_key(&mut self, is_first: bool) -> Result<bool, JsonError> {
        self.key(is_first).map(|key| key.is_some())
    }

    fn skip_scalar(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string("a string").map(drop),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            _ => Err(self.expected("a value")),
        }
    }

    /// Reads `word`.
    pub(crate) fn literal(&mut self, word: &'static str) -> Result<(), JsonError> {
        if self.rest().as_bytes().starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.expected("a value"))
    }

    /// Reads a number and returns it as written.
    pub(crate) fn number(&mut self) -> Result<&'a str, JsonError> {
        let begin = self.at;
        self.at += usize::from(self.byte() == Some(b'-'));
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(self.since(begin))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let begin = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == begin {
            Err(self.expected("a digit"))
        } else {
            Ok(())
        }
    }

    fn string_with_escapes(&mut self, begin: usize) -> Result<String, JsonError> {
        let mut string = self.since(begin).to_owned();
        loop {
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => return Err(self.expected("no control character")),
                None => return Err(self.expected("the end of the string")),
            }
            let begin = self.at;
            self.at = find_escape(self.text.as_bytes(), self.at);
            string.push_str(self.since(begin));
        }
    }

    /// Reads an escape and returns its character.
    fn escape(&mut self) -> Result<char, JsonError> {
        let escaped = self.text.as_bytes().get(self.at + 1);
        let character = match escaped {
            Some(b'u') => return self.unicode_escape(),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.expected("an escape")),
        };
        self.at += 2;
        Ok(character)
    }

    /// Reads `\uXXXX`, or two of these that are a surrogate pair. An unpaired surrogate becomes
    /// U+FFFD.
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let unit = self
            .code_unit()
            .ok_or_else(|| self.expected("four hexadecimal digits"))?;
        self.at += 6;
        let pair = match unit {
            0xD800..=0xDBFF => self.code_unit().filter(|low| (0xDC00..=0xDFFF).contains(low)),
            _ => None,
        };
        if let Some(low) = pair {
            self.at += 6;
            let code = 0x1_0000 + ((u32::from(unit) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Ok(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The code unit of a `\uXXXX` escape at this position.
    fn code_unit(&self) -> Option<u16> {
        let digits = self
            .text
            .as_bytes()
            .get(self.at..self.at + 6)?
            .strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            u16::try_from(digit).ok().map(|digit| unit << 4 | digit)
        })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn since(&self, begin: usize) -> &'a str {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
}

// === impl Containers ===

impl Containers {
    /// Enters an object or a list; `None` if that is too deep.
    fn enter(&mut self, is_object: bool) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        if self.depth / 64 == NEAR_WORDS + self.deeper.len() {
            self.deeper.push(0);
        }
        let word = match (self.depth / 64).checked_sub(NEAR_WORDS) {
            None => self.objects.get_mut(self.depth / 64)?,
            Some(place) => self.deeper.get_mut(place)?,
        };
        let bit = 1 << (self.depth % 64);
        *word = if is_object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Some(())
    }

    const fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Whether the innermost container is an object; `None` outside all.
    fn is_object(&self) -> Option<bool> {
        let innermost = self.depth.checked_sub(1)?;
        let word = match (innermost / 64).checked_sub(NEAR_WORDS) {
            None => self.objects.get(innermost / 64)?,
            Some(place) => self.deeper.get(place)?,
        };
        Some(word >> (innermost % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests;
