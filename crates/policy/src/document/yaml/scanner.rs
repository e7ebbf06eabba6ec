//! Splits characters into tokens.
//!
//! A mapping is recognised only at its first `:`. Until then, a possible key waits in the queue,
//! for at most one line and 1,024 characters.

use std::collections::{HashMap, VecDeque};

use crate::document::layout::{Layout, LayoutRecorder, Reason, Unreadable};

/// A position in the text, counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The index of the character in the text.
    pub(crate) index: usize,
    pub(crate) line: u32,
    /// The index of the character in the line.
    pub(crate) column: usize,
}

/// Iterates over a text. Past its end it yields zero bytes, which do not occur in a text that
/// [`forbidden`] accepts.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    mark: Mark,
}

/// The position of the first control character that YAML forbids, and the error for it.
pub(crate) fn forbidden(text: &str) -> Option<(usize, Unreadable)> {
    let is_forbidden = |c: char| !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    let (at, character) = text.char_indices().find(|(_, c)| is_forbidden(*c))?;
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let message = format!(
        "the control character U+{:04X} is not allowed",
        u32::from(character)
    );
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    Some((at, Unreadable::new(line, column, Reason::Syntax, message)))
}

/// The most characters of a key without `?`.
const MAX_SIMPLE_KEY_CHARS: usize = 1024;

/// The most levels of flow collections, and of indentation.
pub(crate) const MAX_LEVELS: usize = 10_000;

type Result<T> = std::result::Result<T, Unreadable>;

pub(crate) struct YamlScanner<'t> {
    pub(crate) cursor: Cursor<'t>,
    queue: VecDeque<LocatedToken>,
    /// The number of tokens that have left the queue.
    taken: usize,
    /// Whether the first token in the queue is known not to begin a key.
    ready: bool,
    /// The possible keys: one for the block context and one for each flow level.
    pub(crate) keys: Vec<SimpleKey>,
    /// The level of a possible key, by the number of its first token.
    pub(crate) key_at: HashMap<usize, usize>,
    /// Whether a key may begin here.
    pub(crate) key_allowed: bool,
    /// The column of the innermost block collection; -1 outside of all.
    pub(crate) indent: isize,
    indents: Vec<isize>,
    /// The number of open flow collections.
    pub(crate) flow: usize,
    /// The position of the last token.
    pub(crate) last: Mark,
}

/// A possible key, which becomes a key if a `:` follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SimpleKey {
    pub(crate) possible: bool,
    /// Whether only a key is allowed at this position.
    pub(crate) required: bool,
    /// The number of its first token.
    pub(crate) token: usize,
    pub(crate) mark: Mark,
}

// === impl Mark ===

impl Mark {
    /// A syntax error at this position.
    pub(crate) fn error(self, message: impl Into<String>) -> Unreadable {
        Unreadable::new(self.line, self.column, Reason::Syntax, message)
    }
}

// === impl Cursor ===

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            mark: Mark::default(),
        }
    }

    pub(crate) const fn mark(&self) -> Mark {
        self.mark
    }

    pub(crate) const fn column(&self) -> usize {
        self.mark.column
    }

    /// The byte at `ahead` bytes after the current position; 0 past the end.
    pub(crate) fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(crate) fn is(&self, byte: u8) -> bool {
        self.byte(0) == byte
    }

    pub(crate) fn is_one_of(&self, bytes: &[u8]) -> bool {
        let byte = self.byte(0);
        byte != 0 && bytes.contains(&byte)
    }

    pub(crate) fn is_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Whether there is a space or tab.
    pub(crate) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// Whether there is a line break: LF, CR, NEL, LS or PS.
    pub(crate) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\r' | b'\n' => true,
            0xC2 => self.byte(ahead + 1) == 0x85,
            0xE2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xA8 | 0xA9),
            _ => false,
        }
    }

    /// Whether there is a line break, or the end of the text.
    pub(crate) fn is_line_end(&self) -> bool {
        self.byte(0) == 0 || self.is_break(0)
    }

    /// Whether there is a space, a tab, a line break, or the end of the text.
    pub(crate) fn is_gap(&self, ahead: usize) -> bool {
        let byte = self.byte(ahead);
        byte == 0 || matches!(byte, b' ' | b'\t') || self.is_break(ahead)
    }

    /// Whether there is an ASCII letter, a digit, `_` or `-`.
    pub(crate) fn is_word(&self) -> bool {
        let byte = self.byte(0);
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
    }

    /// Whether there is `---` or `...` alone at the beginning of a line.
    pub(crate) fn is_document_indicator(&self) -> bool {
        self.is_indicator(b'-') || self.is_indicator(b'.')
    }

    /// Whether there is three times `byte`, alone at the beginning of a line.
    pub(crate) fn is_indicator(&self, byte: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.byte(ahead) == byte) && self.is_gap(3)
    }

    /// Skips one character, which must not be a line break.
    pub(crate) fn skip(&mut self) {
        self.at += self.width();
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Skips spaces and tabs.
    pub(crate) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    /// Skips a comment, if there is one.
    pub(crate) fn skip_comment(&mut self) {
        if self.is(b'#') {
            while !self.is_line_end() {
                self.skip();
            }
        }
    }

    /// Reads one character and appends it to `out`.
    pub(crate) fn read(&mut self, out: &mut String) {
        let end = self.at + self.width();
        out.push_str(self.text.get(self.at..end).unwrap_or_default());
        self.skip();
    }

    /// Records that what is read next, after `text`, begins at this position.
    pub(crate) fn note_from(&self, text: &str, layout: &mut LayoutRecorder) {
        layout.read_from(text.len(), self.mark.line, self.mark.column);
    }

    /// Records that `text` up to this position is literally in the file.
    pub(crate) fn note_to(&self, text: &str, layout: &mut LayoutRecorder) {
        layout.read_to(text.len(), self.mark.line, self.mark.column);
    }

    /// Skips a line break, if there is one.
    pub(crate) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    /// Reads a line break, if there is one, and appends it to `out`. All but LS and PS are appended
    /// as LF.
    pub(crate) fn read_break(&mut self, out: &mut String) {
        if !self.is_break(0) {
            return;
        }
        let width = match self.byte(0) {
            b'\r' if self.byte(1) == b'\n' => {
                self.mark.index += 1;
                2
            }
            _ => self.width(),
        };
        match self.text.get(self.at..self.at + width) {
            Some(separator) if width == 3 => out.push_str(separator),
            _ => out.push('\n'),
        }
        self.at += width;
        self.mark.index += 1;
        self.mark.line += 1;
        self.mark.column = 0;
    }

    /// At the end of the text, acts as if there were a line break.
    pub(crate) fn end_line(&mut self) {
        if self.mark.column != 0 {
            self.mark.line += 1;
            self.mark.column = 0;
        }
    }

    fn width(&self) -> usize {
        match self.byte(0) {
            0..0x80 => 1,
            0x80..0xE0 => 2,
            0xE0..0xF0 => 3,
            0xF0.. => 4,
        }
    }
}

// === impl YamlScanner ===

impl<'t> YamlScanner<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            cursor: Cursor::new(text),
            queue: VecDeque::new(),
            taken: 0,
            ready: false,
            keys: vec![SimpleKey::default()],
            key_at: HashMap::new(),
            key_allowed: true,
            indent: -1,
            indents: Vec::new(),
            flow: 0,
            last: Mark::default(),
        }
    }

    /// Returns the next token without consuming it.
    pub(crate) fn peek(&mut self) -> Result<&LocatedToken> {
        if !self.ready {
            while self.queue.is_empty() || self.first_may_be_key()? {
                self.scan()?;
            }
            self.ready = true;
        }
        let end = self.cursor.mark();
        self.queue
            .front()
            .ok_or_else(|| end.error("the document ends too early"))
    }

    /// Consumes the next token.
    pub(crate) fn take(&mut self) -> Result<LocatedToken> {
        self.peek()?;
        self.ready = false;
        self.taken += 1;
        let end = self.cursor.mark();
        self.queue
            .pop_front()
            .ok_or_else(|| end.error("the document ends too early"))
    }

    fn first_may_be_key(&mut self) -> Result<bool> {
        match self.key_at.get(&self.taken).copied() {
            Some(level) => self.key_is_valid(level),
            None => Ok(false),
        }
    }

    /// Scans the next character or scalar, and adds the tokens that result.
    fn scan(&mut self) -> Result<()> {
        self.skip_to_token();
        self.unroll(self.column());
        let cursor = &self.cursor;
        if cursor.is_end() {
            return self.stream_end();
        }
        if cursor.column() == 0 && cursor.is(b'%') {
            return self.directive();
        }
        if cursor.is_indicator(b'-') {
            return self.document_indicator(YamlToken::DocumentStart);
        }
        if cursor.is_indicator(b'.') {
            return self.document_indicator(YamlToken::DocumentEnd);
        }
        let gap_follows = cursor.is_gap(1);
        match cursor.byte(0) {
            b'[' => self.flow_start(YamlToken::FlowSequenceStart),
            b'{' => self.flow_start(YamlToken::FlowMappingStart),
            b']' => self.flow_end(YamlToken::FlowSequenceEnd),
            b'}' => self.flow_end(YamlToken::FlowMappingEnd),
            b',' => self.flow_entry(),
            b'-' if gap_follows => self.block_entry(),
            b'?' if self.flow > 0 || gap_follows => self.key(),
            b':' if self.flow > 0 || gap_follows => self.value(),
            b'*' | b'&' => self.property(Self::anchor),
            b'!' => self.property(Self::tag),
            b'|' | b'>' if self.flow == 0 => self.block_scalar(),
            b'\'' | b'"' => self.property(Self::quoted_scalar),
            b'|' | b'>' => self.refuse("a block scalar cannot stand within `[…]` or `{…}`"),
            b'@' | b'`' | b'%' => {
                self.refuse("no plain text begins with this character; put the text in quotes")
            }
            b'\t' => self.refuse("a tab cannot indent; use spaces"),
            _ => self.property(Self::plain_scalar),
        }
    }

    pub(crate) fn column(&self) -> isize {
        isize::try_from(self.cursor.column()).unwrap_or(isize::MAX)
    }

    pub(crate) fn refuse(&self, message: &str) -> Result<()> {
        Err(self.cursor.mark().error(message))
    }

    /// Skips spaces, comments and line breaks. Tabs are skipped within flow collections and within
    /// a line, but not where a key may begin.
    fn skip_to_token(&mut self) {
        loop {
            while self.cursor.is(b' ') || (self.cursor.is(b'\t') && (self.flow > 0 || !self.key_allowed)) {
                self.cursor.skip();
            }
            self.cursor.skip_comment();
            if !self.cursor.is_break(0) {
                return;
            }
            self.cursor.skip_break();
            if self.flow == 0 {
                self.key_allowed = true;
            }
        }
    }

    // --- the queue ---

    pub(crate) fn push(&mut self, token: YamlToken, mark: Mark) {
        self.last = mark;
        self.queue.push_back(LocatedToken { token, mark });
    }

    /// Inserts a token before that with the number `before`; at the end if that token has left the
    /// queue.
    pub(crate) fn insert(&mut self, before: usize, token: YamlToken, mark: Mark) {
        let end = self.queue.len();
        let at = before.checked_sub(self.taken).unwrap_or(end).min(end);
        self.queue.insert(at, LocatedToken { token, mark });
    }

    pub(crate) fn next_number(&self) -> usize {
        self.taken + self.queue.len()
    }

    /// Reads one character as `token`.
    pub(crate) fn indicator(&mut self, token: YamlToken) {
        let mark = self.cursor.mark();
        self.cursor.skip();
        self.push(token, mark);
    }

    // --- keys ---

    /// Whether a possible key can still become one: it must be on one line, and short.
    pub(crate) fn key_is_valid(&mut self, level: usize) -> Result<bool> {
        let here = self.cursor.mark();
        let Some(key) = self.keys.get_mut(level).filter(|key| key.possible) else {
            return Ok(false);
        };
        if key.mark.line >= here.line && key.mark.index + MAX_SIMPLE_KEY_CHARS >= here.index {
            return Ok(true);
        }
        key.possible = false;
        if key.required {
            return Err(no_colon(key.mark));
        }
        Ok(false)
    }

    /// Records that a key may begin here.
    pub(crate) fn save_key(&mut self) -> Result<()> {
        if !self.key_allowed {
            return Ok(());
        }
        self.drop_key()?;
        let key = SimpleKey {
            possible: true,
            required: self.flow == 0 && self.indent == self.column(),
            token: self.next_number(),
            mark: self.cursor.mark(),
        };
        if let Some(last) = self.keys.last_mut() {
            *last = key;
            self.key_at.insert(key.token, self.keys.len() - 1);
        }
        Ok(())
    }

    /// Discards the possible key of this level.
    pub(crate) fn drop_key(&mut self) -> Result<()> {
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else {
            return Ok(());
        };
        if key.required {
            return Err(no_colon(key.mark));
        }
        key.possible = false;
        self.key_at.remove(&key.token);
        Ok(())
    }

    // --- indentation ---

    /// Opens a block collection at `column`, if that is deeper than the current one. Its token is
    /// inserted before that with the number `before`, or added at the end.
    pub(crate) fn roll(
        &mut self,
        column: isize,
        before: Option<usize>,
        token: YamlToken,
        mark: Mark,
    ) -> Result<()> {
        if self.flow > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > MAX_LEVELS {
            return Err(mark.error("too deeply indented"));
        }
        match before {
            Some(number) => self.insert(number, token, mark),
            None => self.push(token, mark),
        }
        Ok(())
    }

    /// Closes the block collections that are indented deeper than `column`.
    pub(crate) fn unroll(&mut self, column: isize) {
        if self.flow > 0 {
            return;
        }
        while self.indent > column {
            self.push(YamlToken::BlockEnd, self.cursor.mark());
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }
}

fn no_colon(mark: Mark) -> Unreadable {
    mark.error("a key without `:` after it, on the same line")
}

// The tokens of a YAML text.

/// A token and the position where it begins.
#[derive(Debug, Clone)]
pub(crate) struct LocatedToken {
    pub(crate) token: YamlToken,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlToken {
    StreamEnd,
    /// `%YAML 1.1`
    Version {
        major: u8,
        minor: u8,
    },
    /// `%TAG !h! prefix`
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        text: String,
        /// Whether the scalar is neither quoted nor a block.
        plain: bool,
        /// The positions of the text's characters.
        layout: Layout,
    },
}
