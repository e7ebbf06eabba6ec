//! Anchors, aliases, tags and directives.

use super::super::Unreadable;
use super::cursor::Mark;
use super::scanner::Scanner;
use super::token::Token;

/// What a tag may contain beside letters, digits, `_`, `-` and escapes.
const OF_TAGS: &[u8] = b";/?:@&=+$,.!~*'()[]";

type Result<T> = std::result::Result<T, Unreadable>;

// === impl Scanner ===

impl Scanner<'_> {
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
            Token::Alias(name)
        } else {
            Token::Anchor(name)
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
        self.push(Token::Tag { handle, suffix }, mark);
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
        // `!` alone makes text of what follows.
        Ok(if suffix.is_empty() {
            (String::new(), "!".to_owned())
        } else {
            ("!".to_owned(), suffix)
        })
    }

    /// `!`, `!word!`, or the beginning of a tag without handle.
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

    /// One character as `%C3%A4`.
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

    fn version(&mut self, mark: Mark) -> Result<Token> {
        let major = self.version_number(mark)?;
        if !self.cursor.is(b'.') {
            return Err(mark.error("expected a version such as `%YAML 1.1`"));
        }
        self.cursor.skip();
        let minor = self.version_number(mark)?;
        Ok(Token::Version { major, minor })
    }

    fn version_number(&mut self, mark: Mark) -> Result<u8> {
        let mut digits = String::new();
        while self.cursor.byte(0).is_ascii_digit() {
            self.cursor.read(&mut digits);
        }
        let number = digits.parse().ok().filter(|_| digits.len() <= 2);
        number.ok_or_else(|| mark.error("expected a version such as `%YAML 1.1`"))
    }

    fn tag_directive(&mut self, mark: Mark) -> Result<Token> {
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
        Ok(Token::TagDirective { handle, prefix })
    }
}
