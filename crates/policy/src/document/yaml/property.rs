//! Anchors, aliases, tags and directives.

use super::scanner::{MAX_LEVELS, Mark, SimpleKey, YamlScanner, YamlToken};
use crate::document::layout::Unreadable;

/// The characters of a tag besides letters, digits, `_`, `-` and escapes.
const OF_TAGS: &[u8] = b";/?:@&=+$,.!~*'()[]";

type Result<T> = std::result::Result<T, Unreadable>;

// === impl YamlScanner ===

impl YamlScanner<'_> {
    /// `&name` or `*name`
    pub(crate) fn anchor(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        let is_alias = self.cursor.is(b'*');
        self.cursor.skip();
        let name = self.word();
        if name.is_empty() || !(self.cursor.is_gap(0) || self.cursor.is_one_of(b"?:,]}%@`")) {
            let message = "the name of an anchor or alias may contain letters, digits, `_` and `-`; \
                 put text that begins with `&` or `*` in quotes";
            return Err(mark.error(message));
        }
        let token = if is_alias {
            YamlToken::Alias(name)
        } else {
            YamlToken::Anchor(name)
        };
        self.push(token, mark);
        Ok(())
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while self.cursor.is_word() {
            self.cursor.read(&mut word);
        }
        word
    }

    /// `!suffix`, `!handle!suffix` or `!<tag>`
    pub(crate) fn tag(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        let (handle, suffix) = if self.cursor.byte(1) == b'<' {
            (String::new(), self.verbatim_tag(mark)?)
        } else {
            self.short_tag(mark)?
        };
        if !self.cursor.is_gap(0) {
            return Err(mark.error("white space must follow a tag; put text that begins with `!` in quotes"));
        }
        self.push(YamlToken::Tag { handle, suffix }, mark);
        Ok(())
    }

    fn verbatim_tag(&mut self, mark: Mark) -> Result<String> {
        self.cursor.skip();
        self.cursor.skip();
        let tag = self.tag_text(String::new(), false, mark)?;
        if !self.cursor.is(b'>') {
            return Err(mark.error("a tag that begins with `!<` must end with `>`"));
        }
        self.cursor.skip();
        Ok(tag)
    }

    fn short_tag(&mut self, mark: Mark) -> Result<(String, String)> {
        let handle = self.tag_handle();
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.tag_text(String::new(), false, mark)?;
            return Ok((handle, suffix));
        }
        let head = handle.strip_prefix('!').unwrap_or_default().to_owned();
        let suffix = self.tag_text(head, true, mark)?;
        // `!` alone makes the scalar a string.
        Ok(if suffix.is_empty() {
            (String::new(), "!".to_owned())
        } else {
            ("!".to_owned(), suffix)
        })
    }

    /// Reads `!`, `!word!`, or the beginning of a tag without handle.
    fn tag_handle(&mut self) -> String {
        let mut handle = String::new();
        self.cursor.read(&mut handle);
        handle.push_str(&self.word());
        if self.cursor.is(b'!') {
            self.cursor.read(&mut handle);
        }
        handle
    }

    fn tag_text(&mut self, head: String, may_be_empty: bool, mark: Mark) -> Result<String> {
        let mut text = head;
        let start = self.cursor.mark();
        while self.cursor.is_word() || self.cursor.is_one_of(OF_TAGS) || self.cursor.is(b'%') {
            if self.cursor.is(b'%') {
                text.push(self.escaped_character(mark)?);
            } else {
                self.cursor.read(&mut text);
            }
        }
        if !may_be_empty && start == self.cursor.mark() {
            return Err(mark.error("an empty tag; put text that begins with `!` in quotes"));
        }
        Ok(text)
    }

    /// Reads one character that is escaped as in `%C3%A4`.
    fn escaped_character(&mut self, mark: Mark) -> Result<char> {
        let invalid = || mark.error("`%` in a tag must begin a UTF-8 character, as in `%C3%A4`");
        let mut bytes = Vec::new();
        while bytes.len() < 4 && self.cursor.is(b'%') {
            let digit = |ahead| char::from(self.cursor.byte(ahead)).to_digit(16);
            let (high, low) = digit(1).zip(digit(2)).ok_or_else(invalid)?;
            bytes.push(u8::try_from(high << 4 | low).unwrap_or_default());
            (0..3).for_each(|_| self.cursor.skip());
            if let Some(character) = std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| text.chars().next())
            {
                return Ok(character);
            }
        }
        Err(invalid())
    }

    /// `%YAML 1.1` or `%TAG !h! prefix`
    pub(crate) fn scan_directive(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        self.cursor.skip();
        let name = self.word();
        if !self.cursor.is_gap(0) {
            return Err(mark.error("the name of a directive must consist of letters"));
        }
        self.cursor.skip_blanks();
        let token = match name.as_str() {
            "YAML" => self.version(mark)?,
            "TAG" => self.tag_directive(mark)?,
            _ => {
                return Err(mark.error(
                    "a line that begins with `%` is a directive, `%YAML` or `%TAG`; put other text in quotes",
                ));
            }
        };
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_line_end() {
            return Err(self.cursor.mark().error("text after a directive"));
        }
        self.cursor.skip_break();
        self.push(token, mark);
        Ok(())
    }

    fn version(&mut self, mark: Mark) -> Result<YamlToken> {
        let major = self.version_number(mark)?;
        if !self.cursor.is(b'.') {
            return Err(mark.error("expected a version such as `%YAML 1.1`"));
        }
        self.cursor.skip();
        let minor = self.version_number(mark)?;
        Ok(YamlToken::Version { major, minor })
    }

    fn version_number(&mut self, mark: Mark) -> Result<u8> {
        let mut digits = String::new();
        while self.cursor.byte(0).is_ascii_digit() {
            self.cursor.read(&mut digits);
        }
        let number = digits.parse().ok().filter(|_| digits.len() <= 2);
        number.ok_or_else(|| mark.error("expected a version such as `%YAML 1.1`"))
    }

    fn tag_directive(&mut self, mark: Mark) -> Result<YamlToken> {
        let invalid = || mark.error("expected `%TAG !handle! prefix`");
        if !self.cursor.is(b'!') {
            return Err(invalid());
        }
        let handle = self.tag_handle();
        if !handle.ends_with('!') || !self.cursor.is_blank(0) {
            return Err(invalid());
        }
        self.cursor.skip_blanks();
        let prefix = self.tag_text(String::new(), false, mark)?;
        if !self.cursor.is_gap(0) {
            return Err(invalid());
        }
        Ok(YamlToken::TagDirective { handle, prefix })
    }
}

// Tokens for characters such as `-`, `:` and `[`, and their effect on keys and
// indentation.

// === impl YamlScanner ===

impl YamlScanner<'_> {
    pub(crate) fn stream_end(&mut self) -> Result<()> {
        // What is missing at the end of the text is reported at the last token.
        let mark = self.last;
        self.cursor.end_line();
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(YamlToken::StreamEnd, mark);
        Ok(())
    }

    pub(crate) fn directive(&mut self) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.scan_directive()
    }

    pub(crate) fn document_indicator(&mut self, token: YamlToken) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.indicator(token);
        self.cursor.skip();
        self.cursor.skip();
        Ok(())
    }

    pub(crate) fn flow_start(&mut self, token: YamlToken) -> Result<()> {
        self.save_key()?;
        self.keys.push(SimpleKey {
            token: self.next_number(),
            mark: self.cursor.mark(),
            ..SimpleKey::default()
        });
        self.flow += 1;
        if self.flow > MAX_LEVELS {
            return self.refuse("too many nested `[` and `{`");
        }
        self.key_allowed = true;
        self.indicator(token);
        Ok(())
    }

    pub(crate) fn flow_end(&mut self, token: YamlToken) -> Result<()> {
        self.drop_key()?;
        if self.flow > 0 {
            self.flow -= 1;
            if let Some(key) = self.keys.pop() {
                self.key_at.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.indicator(token);
        Ok(())
    }

    pub(crate) fn flow_entry(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        self.indicator(YamlToken::FlowEntry);
        Ok(())
    }

    /// `-`. Within a flow collection, the parser rejects it.
    pub(crate) fn block_entry(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.refuse("a list item (`- `) is not allowed here");
            }
            let mark = self.cursor.mark();
            self.roll(self.column(), None, YamlToken::BlockSequenceStart, mark)?;
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.indicator(YamlToken::BlockEntry);
        Ok(())
    }

    /// `?`
    pub(crate) fn key(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.refuse("a key (`? `) is not allowed here");
            }
            let mark = self.cursor.mark();
            self.roll(self.column(), None, YamlToken::BlockMappingStart, mark)?;
        }
        self.drop_key()?;
        self.key_allowed = self.flow == 0;
        self.indicator(YamlToken::Key);
        Ok(())
    }

    /// `:`, which makes the possible key before it a key.
    pub(crate) fn value(&mut self) -> Result<()> {
        let level = self.keys.len() - 1;
        let is_simple = self.key_is_valid(level)?;
        match self.keys.get_mut(level) {
            Some(key) if is_simple => {
                key.possible = false;
                let SimpleKey { token, mark, .. } = *key;
                self.insert(token, YamlToken::Key, mark);
                let column = isize::try_from(mark.column).unwrap_or(isize::MAX);
                self.roll(column, Some(token), YamlToken::BlockMappingStart, mark)?;
                self.key_at.remove(&token);
                self.key_allowed = false;
            }
            _ => {
                if self.flow == 0 {
                    if !self.key_allowed {
                        return self
                            .refuse("a second `: ` on one line; put text that contains `: ` in quotes");
                    }
                    let mark = self.cursor.mark();
                    self.roll(self.column(), None, YamlToken::BlockMappingStart, mark)?;
                }
                self.key_allowed = self.flow == 0;
            }
        }
        self.indicator(YamlToken::Value);
        Ok(())
    }

    /// Scans a token that may begin a key, and after which no key may begin.
    pub(crate) fn property(&mut self, scan: fn(&mut Self) -> Result<()>) -> Result<()> {
        self.save_key()?;
        self.key_allowed = false;
        scan(self)
    }

    pub(crate) fn block_scalar(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        self.scan_block_scalar()
    }
}
