//! Splits characters into tokens.
//!
//! A mapping is recognized only at its first `:`. Until then a possible key waits in the
//! queue, for at most one line and 1,024 characters.

use std::collections::{HashMap, VecDeque};

use super::cursor::{Cursor, Mark};
use crate::document::layout::{Layout, Unreadable};

/// The most characters of a key that no `?` announces.
const MAX_SIMPLE_KEY_CHARS: usize = 1024;

/// The most levels of flow collections, and of indentation.
pub(crate) const MAX_LEVELS: usize = 10_000;

type Result<T> = std::result::Result<T, Unreadable>;

pub(crate) struct YamlScanner<'t> {
    pub(crate) cursor: Cursor<'t>,
    queue: VecDeque<LocatedToken>,
    /// How many tokens have left the queue.
    taken: usize,
    /// Whether the first in the queue is known to be no part of a key.
    ready: bool,
    /// What may be a key: one for the block context and one for each flow level.
    pub(crate) keys: Vec<SimpleKey>,
    /// Which of them begins with the token of that number.
    pub(crate) key_at: HashMap<usize, usize>,
    /// Whether a key may begin here.
    pub(crate) key_allowed: bool,
    /// The column of the innermost block collection; -1 outside of all.
    pub(crate) indent: isize,
    indents: Vec<isize>,
    /// How many flow collections are open.
    pub(crate) flow: usize,
    /// Where the last token began.
    pub(crate) last: Mark,
}

/// What becomes a key if a `:` follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SimpleKey {
    pub(crate) possible: bool,
    /// Nothing else can stand there.
    pub(crate) required: bool,
    /// The number of its first token.
    pub(crate) token: usize,
    pub(crate) mark: Mark,
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

    /// The next token, which stays.
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

    /// Takes the next token.
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

    /// Adds the next token, or those that the next character makes.
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

    /// Past spaces, comments and line breaks. Tabs separate within flow
    /// collections and within a line; none stands where a key may begin.
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

    /// Adds a token before that of number `before`; last, if that one has left the queue.
    pub(crate) fn insert(&mut self, before: usize, token: YamlToken, mark: Mark) {
        let end = self.queue.len();
        let at = before.checked_sub(self.taken).unwrap_or(end).min(end);
        self.queue.insert(at, LocatedToken { token, mark });
    }

    pub(crate) fn next_number(&self) -> usize {
        self.taken + self.queue.len()
    }

    /// Takes one character as `token`.
    pub(crate) fn indicator(&mut self, token: YamlToken) {
        let mark = self.cursor.mark();
        self.cursor.skip();
        self.push(token, mark);
    }

    // --- keys ---

    /// Whether what may be a key still may: a key stands on one line, and is short.
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

    /// Notes that a key may begin here.
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

    /// What may have been a key on this level was none.
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

    /// Opens a block collection at `column` where one is due. Its token comes
    /// before that of number `before`, or last.
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

    /// Ends the block collections that are indented deeper than `column`.
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

/// A token and the place where it begins.
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
        /// Whether it is neither quoted nor a block.
        plain: bool,
        /// Where its characters stand.
        layout: Layout,
    },
}
