//! Literal (`|`) and folded (`>`) scalars.

use super::super::Unreadable;
use super::super::layout::LayoutRecorder;
use super::scanner::Scanner;
use super::token::Token;

type Result<T> = std::result::Result<T, Unreadable>;

/// What becomes of the line breaks at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    /// One stays.
    Clip,
    /// `-`: none stays.
    Strip,
    /// `+`: all stay.
    Keep,
}

/// What stands behind `|` or `>`.
struct Header {
    chomping: Chomping,
    /// How much deeper than its parent it is indented; 0: as its first line.
    increment: usize,
}

/// The lines read so far.
#[derive(Default)]
struct Lines {
    text: String,
    /// The break behind the last line.
    line_break: String,
    /// Those of the empty lines after it.
    empty: String,
    /// Whether the last line began with white space: it is not folded.
    was_blank: bool,
}

// === impl Scanner ===

impl Scanner<'_> {
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
        let mut lines = Lines::default();
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
        let token = Token::Scalar {
            text,
            plain: false,
            layout: layout.finish(),
        };
        self.push(token, mark);
        Ok(())
    }

    /// The indicators in either order, a comment, and the end of the line.
    fn block_header(&mut self) -> Result<Header> {
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
        Ok(Header { chomping, increment })
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

    /// Past the indentation and empty lines. The first line that is not empty
    /// says how deep all are indented, where `indent` is still 0.
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

// === impl Lines ===

impl Lines {
    /// A line begins: the break before it becomes a space where lines are folded.
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
