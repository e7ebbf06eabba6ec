//! A position in the text, and the characters there.

use crate::document::layout::{LayoutRecorder, Reason, Unreadable};

/// A place in the text, counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// In characters, from the beginning of the text.
    pub(crate) index: usize,
    /// The line.
    pub(crate) line: u32,
    /// In characters, from the beginning of the line.
    pub(crate) column: usize,
}

/// Goes through a text. Past its end there are zero bytes, which stand nowhere
/// in a text that [`forbidden`] accepts.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    mark: Mark,
}

/// Where a control character stands that YAML forbids, and what is to be said of it.
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

// === impl Mark ===

impl Mark {
    /// What is wrong here.
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

    /// The byte `ahead` of the place; 0 past the end.
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

    /// A space or tab.
    pub(crate) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// A line break: LF, CR, NEL, LS or PS.
    pub(crate) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\r' | b'\n' => true,
            0xC2 => self.byte(ahead + 1) == 0x85,
            0xE2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xA8 | 0xA9),
            _ => false,
        }
    }

    /// A line break, or the end.
    pub(crate) fn is_line_end(&self) -> bool {
        self.byte(0) == 0 || self.is_break(0)
    }

    /// A space, a tab, a line break, or the end.
    pub(crate) fn is_gap(&self, ahead: usize) -> bool {
        let byte = self.byte(ahead);
        byte == 0 || matches!(byte, b' ' | b'\t') || self.is_break(ahead)
    }

    /// A letter, digit, `_` or `-` of ASCII.
    pub(crate) fn is_word(&self) -> bool {
        let byte = self.byte(0);
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
    }

    /// `---` or `...` alone at the beginning of a line.
    pub(crate) fn is_document_indicator(&self) -> bool {
        self.is_indicator(b'-') || self.is_indicator(b'.')
    }

    /// Three times `byte`, alone at the beginning of a line.
    pub(crate) fn is_indicator(&self, byte: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.byte(ahead) == byte) && self.is_gap(3)
    }

    /// Past one character that is no line break.
    pub(crate) fn skip(&mut self) {
        self.at += self.width();
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Past spaces and tabs.
    pub(crate) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    /// Past a comment, if there is one.
    pub(crate) fn skip_comment(&mut self) {
        if self.is(b'#') {
            while !self.is_line_end() {
                self.skip();
            }
        }
    }

    /// Past one character, which is added to `out`.
    pub(crate) fn read(&mut self, out: &mut String) {
        let end = self.at + self.width();
        out.push_str(self.text.get(self.at..end).unwrap_or_default());
        self.skip();
    }

    /// Notes that what is read next, behind `text`, stands here.
    pub(crate) fn note_from(&self, text: &str, layout: &mut LayoutRecorder) {
        layout.read_from(text.len(), self.mark.line, self.mark.column);
    }

    /// Notes that `text` was read up to here as it is written.
    pub(crate) fn note_to(&self, text: &str, layout: &mut LayoutRecorder) {
        layout.read_to(text.len(), self.mark.line, self.mark.column);
    }

    /// Past a line break, if there is one.
    pub(crate) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    /// Past a line break, if there is one, which is added to `out`: as LF, but
    /// for LS and PS.
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

    /// At the end, as if a line break stood there.
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
