//! Plain and quoted scalars. Both may span several lines, which are joined by spaces.

use super::scanner::{Mark, YamlScanner, YamlToken};
use crate::document::layout::{LayoutRecorder, Unreadable};

type Result<T> = std::result::Result<T, Unreadable>;

/// The text read so far, and the white space after it, which counts only if more text follows.
#[derive(Default)]
struct FoldedText {
    text: String,
    spaces: String,
    first_break: String,
    more_breaks: String,
    /// Whether there was a line break after the text.
    broken: bool,
}

/// The meaning of an escape.
enum Escape {
    Text(&'static str),
    /// A number with this many hexadecimal digits.
    Code(usize),
}

// === impl YamlScanner ===

impl YamlScanner<'_> {
    pub(crate) fn plain_scalar(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        let indent = self.indent + 1;
        let mut folded = FoldedText::default();
        let mut layout = LayoutRecorder::new(mark.line);
        loop {
            if self.cursor.is_document_indicator() || self.cursor.is(b'#') {
                break;
            }
            if !self.cursor.is_gap(0) && !self.plain_ends() {
                folded.join();
                self.cursor.note_from(&folded.text, &mut layout);
            }
            while !self.cursor.is_gap(0) && !self.plain_ends() {
                self.cursor.read(&mut folded.text);
            }
            self.cursor.note_to(&folded.text, &mut layout);
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                break;
            }
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                let too_early = isize::try_from(self.cursor.column()).is_ok_and(|column| column < indent);
                if folded.broken && too_early && self.cursor.is(b'\t') {
                    return Err(self.cursor.mark().error("a tab cannot indent; use spaces"));
                }
                folded.white_space(self);
            }
            let column = isize::try_from(self.cursor.column()).unwrap_or(isize::MAX);
            if self.flow == 0 && column < indent {
                break;
            }
        }
        if folded.broken {
            self.key_allowed = true;
        }
        let token = YamlToken::Scalar {
            text: folded.text,
            plain: true,
            layout: layout.finish(),
        };
        self.push(token, mark);
        Ok(())
    }

    fn plain_ends(&self) -> bool {
        (self.cursor.is(b':') && self.cursor.is_gap(1)) || (self.flow > 0 && self.cursor.is_one_of(b",?[]{}"))
    }

    pub(crate) fn quoted_scalar(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        let quote = self.cursor.byte(0);
        self.cursor.skip();
        let mut folded = FoldedText::default();
        let mut layout = LayoutRecorder::new(mark.line);
        loop {
            if self.cursor.is_document_indicator() {
                return Err(self
                    .cursor
                    .mark()
                    .error("`---` or `...` in quoted text; is a quote missing?"));
            }
            if self.cursor.is_end() {
                return Err(mark.error("quoted text without a closing quote"));
            }
            folded.broken = false;
            while !self.cursor.is_gap(0) && !self.quote_ends(quote) {
                self.cursor.note_from(&folded.text, &mut layout);
                if quote == b'"' && self.cursor.is(b'\\') {
                    if self.cursor.is_break(1) {
                        self.cursor.skip();
                        self.cursor.skip_break();
                        folded.broken = true;
                        break;
                    }
                    self.escape(&mut folded.text)?;
                    layout.skipped();
                } else if quote == b'\'' && self.cursor.is(b'\'') {
                    self.cursor.skip();
                    self.cursor.read(&mut folded.text);
                    layout.skipped();
                } else {
                    self.cursor.read(&mut folded.text);
                    self.cursor.note_to(&folded.text, &mut layout);
                }
            }
            if self.cursor.is(quote) {
                break;
            }
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                folded.white_space(self);
            }
            folded.join();
        }
        self.cursor.skip();
        let token = YamlToken::Scalar {
            text: folded.text,
            plain: false,
            layout: layout.finish(),
        };
        self.push(token, mark);
        Ok(())
    }

    /// Whether this is the quote that ends the text. Two single quotes stand for one.
    fn quote_ends(&self, quote: u8) -> bool {
        self.cursor.is(quote) && !(quote == b'\'' && self.cursor.byte(1) == b'\'')
    }

    fn escape(&mut self, text: &mut String) -> Result<()> {
        let mark = self.cursor.mark();
        let escape = escape(self.cursor.byte(1))
            .ok_or_else(|| mark.error("an unknown escape; in double quotes a backslash is written `\\\\`"))?;
        self.cursor.skip();
        self.cursor.skip();
        match escape {
            Escape::Text(escaped) => text.push_str(escaped),
            Escape::Code(digits) => text.push(self.code(digits, mark)?),
        }
        Ok(())
    }

    fn code(&mut self, digits: usize, mark: Mark) -> Result<char> {
        let mut code: u32 = 0;
        for _ in 0..digits {
            let digit = char::from(self.cursor.byte(0))
                .to_digit(16)
                .ok_or_else(|| mark.error(format!("this escape takes {digits} hexadecimal digits")))?;
            code = (code << 4) | digit;
            self.cursor.skip();
        }
        char::from_u32(code).ok_or_else(|| mark.error("an escape that is no character of Unicode"))
    }
}

const fn escape(character: u8) -> Option<Escape> {
    let text = match character {
        b'0' => "\0",
        b'a' => "\x07",
        b'b' => "\x08",
        b't' | b'\t' => "\t",
        b'n' => "\n",
        b'v' => "\x0B",
        b'f' => "\x0C",
        b'r' => "\r",
        b'e' => "\x1B",
        b' ' => " ",
        b'"' => "\"",
        b'\'' => "'",
        b'\\' => "\\",
        b'N' => "\u{85}",
        b'_' => "\u{a0}",
        b'L' => "\u{2028}",
        b'P' => "\u{2029}",
        b'x' => return Some(Escape::Code(2)),
        b'u' => return Some(Escape::Code(4)),
        b'U' => return Some(Escape::Code(8)),
        _ => return None,
    };
    Some(Escape::Text(text))
}

// === impl FoldedText ===

impl FoldedText {
    /// Reads one space, tab or line break.
    fn white_space(&mut self, scanner: &mut YamlScanner<'_>) {
        let cursor = &mut scanner.cursor;
        match (cursor.is_blank(0), self.broken) {
            (true, false) => cursor.read(&mut self.spaces),
            (true, true) => cursor.skip(),
            (false, true) => cursor.read_break(&mut self.more_breaks),
            (false, false) => {
                self.spaces.clear();
                cursor.read_break(&mut self.first_break);
                self.broken = true;
            }
        }
    }

    /// Adds the white space before more text: one line break becomes a space, and of several the
    /// first is dropped.
    fn join(&mut self) {
        if !self.broken {
            self.text.push_str(&self.spaces);
            self.spaces.clear();
            return;
        }
        if self.first_break.starts_with('\n') && self.more_breaks.is_empty() {
            self.text.push(' ');
        } else if !self.first_break.starts_with('\n') {
            self.text.push_str(&self.first_break);
        }
        self.text.push_str(&self.more_breaks);
        self.first_break.clear();
        self.more_breaks.clear();
        self.broken = false;
    }
}

// Literal (`|`) and folded (`>`) scalars.

/// Which of the line breaks at the end are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    /// One is kept.
    Clip,
    /// `-`: none is kept.
    Strip,
    /// `+`: all are kept.
    Keep,
}

/// The indicators after `|` or `>`.
struct BlockHeader {
    chomping: Chomping,
    /// How much deeper than its parent the text is indented; 0: as much as its first line.
    increment: usize,
}

/// The lines read so far.
#[derive(Default)]
struct ScalarLines {
    text: String,
    /// The line break after the last line.
    line_break: String,
    /// The line breaks of the empty lines after it.
    empty: String,
    /// Whether the last line began with white space, and so is not folded.
    was_blank: bool,
}

// === impl YamlScanner ===

impl YamlScanner<'_> {
    pub(crate) fn scan_block_scalar(&mut self) -> Result<()> {
        let mark = self.cursor.mark();
        let is_folded = self.cursor.is(b'>');
        self.cursor.skip();
        let header = self.block_header()?;
        let parent = usize::try_from(self.indent).unwrap_or(0);
        let mut indent = match header.increment {
            0 => 0,
            increment => parent + increment,
        };
        let mut lines = ScalarLines::default();
        let mut layout = LayoutRecorder::new(mark.line);
        self.empty_lines(&mut indent, &mut lines.empty)?;
        while self.cursor.column() == indent && !self.cursor.is_end() {
            lines.begin(self.cursor.is_blank(0), is_folded);
            self.cursor.note_from(&lines.text, &mut layout);
            while !self.cursor.is_line_end() {
                self.cursor.read(&mut lines.text);
            }
            self.cursor.read_break(&mut lines.line_break);
            self.empty_lines(&mut indent, &mut lines.empty)?;
        }
        let text = lines.end(header.chomping);
        let token = YamlToken::Scalar {
            text,
            plain: false,
            layout: layout.finish(),
        };
        self.push(token, mark);
        Ok(())
    }

    /// Reads the indicators in either order, a comment, and the end of the line.
    fn block_header(&mut self) -> Result<BlockHeader> {
        let mut chomping = self.chomping();
        let increment = self.increment()?;
        if chomping.is_none() {
            chomping = self.chomping();
        }
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_line_end() {
            let message = "text on the line of `|` or `>`; begin it on the next line";
            return Err(self.cursor.mark().error(message));
        }
        self.cursor.skip_break();
        let chomping = chomping.unwrap_or(Chomping::Clip);
        Ok(BlockHeader { chomping, increment })
    }

    fn chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.cursor.byte(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.cursor.skip();
        Some(chomping)
    }

    fn increment(&mut self) -> Result<usize> {
        let digit = self.cursor.byte(0);
        if !digit.is_ascii_digit() {
            return Ok(0);
        }
        if digit == b'0' {
            let message = "the indentation of a block scalar must be 1 to 9";
            return Err(self.cursor.mark().error(message));
        }
        self.cursor.skip();
        Ok(usize::from(digit - b'0'))
    }

    /// Skips indentation and empty lines. If `indent` is 0, it is set to the indentation of the
    /// first line that is not empty.
    fn empty_lines(&mut self, indent: &mut usize, breaks: &mut String) -> Result<()> {
        let mut deepest = 0;
        loop {
            let within = |column| *indent == 0 || column < *indent;
            while within(self.cursor.column()) && self.cursor.is(b' ') {
                self.cursor.skip();
            }
            deepest = deepest.max(self.cursor.column());
            if within(self.cursor.column()) && self.cursor.is(b'\t') {
                let message = "a tab cannot indent; use spaces";
                return Err(self.cursor.mark().error(message));
            }
            if !self.cursor.is_break(0) {
                break;
            }
            self.cursor.read_break(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or(0);
            *indent = deepest.max(least).max(1);
        }
        Ok(())
    }
}

// === impl ScalarLines ===

impl ScalarLines {
    /// Begins a line: if lines are folded, the line break before it becomes a space.
    fn begin(&mut self, is_blank: bool, is_folded: bool) {
        let folds = is_folded && !self.was_blank && !is_blank && self.line_break.starts_with('\n');
        if !folds {
            self.text.push_str(&self.line_break);
        } else if self.empty.is_empty() {
            self.text.push(' ');
        }
        self.line_break.clear();
        self.text.push_str(&self.empty);
        self.empty.clear();
        self.was_blank = is_blank;
    }

    fn end(mut self, chomping: Chomping) -> String {
        if chomping != Chomping::Strip {
            self.text.push_str(&self.line_break);
        }
        if chomping == Chomping::Keep {
            self.text.push_str(&self.empty);
        }
        self.text
    }
}
