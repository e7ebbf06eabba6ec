//! The positions in the file of a string's characters.
//!
//! Because of escapes, the indentation of block scalars and folded lines, a string differs from how
//! it is written. A fault within a string (a CEL expression over ten lines) is still to name its
//! line and column. For this, each string records where it begins, and every position at which the
//! next character is not where the previous one ends.

/// The most positions that are recorded for one string: no expression has so many lines.
const MAX_JUMPS: usize = 10_000;

/// The positions of one string's characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// The column of the first character, from 1, on the line of its node; 0: not known.
    column: u32,
    /// Sorted by the offset in the string.
    jumps: Vec<Jump>,
}

/// A position at which a string continues elsewhere in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Jump {
    /// The byte offset in the string.
    at: usize,
    /// The line, from 1; 0 if nothing is known from here on.
    line: u32,
    /// The column in characters, from 1.
    column: u32,
}

/// Records the layout of a string while it is read.
#[derive(Debug)]
pub(crate) struct LayoutRecorder {
    layout: Layout,
    /// The line on which the scalar begins, from 0.
    line: u32,
    is_begun: bool,
    /// The position at which the next character is expected: byte, line and column.
    next: Option<(usize, u32, usize)>,
}

// === impl Layout ===

impl Layout {
    /// The line and column, from 1, of the byte `at` of `text`, whose node begins on `line`.
    pub(crate) fn position(&self, text: &str, at: usize, line: u32) -> Option<(u32, u32)> {
        let begin = Jump {
            at: 0,
            line: if self.column > 0 { line } else { 0 },
            column: self.column,
        };
        let after = self.jumps.partition_point(|jump| jump.at <= at);
        let from = after
            .checked_sub(1)
            .and_then(|last| self.jumps.get(last).copied())
            .unwrap_or(begin);
        let between = text.get(from.at..at)?.chars().count();
        let column = from.column.checked_add(u32::try_from(between).ok()?)?;
        (from.line > 0).then_some((from.line, column))
    }

    /// The column, then the byte, line and column of each position at which the string continues elsewhere;
    /// none if nothing is known.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let jumps = self.jumps.iter();
        let jumps = jumps.flat_map(|jump| [jump.at as u64, jump.line.into(), jump.column.into()]);
        let column = (*self != Self::default()).then_some(self.column.into());
        column.into_iter().chain(jumps)
    }

    /// The layout that [`numbers`](Self::numbers) were taken from.
    pub(crate) fn of_numbers(numbers: &[u32]) -> Self {
        let Some((&column, jumps)) = numbers.split_first() else {
            return Self::default();
        };
        let (jumps, _) = jumps.as_chunks::<3>();
        let jump = |&[at, line, column]: &[u32; 3]| Jump {
            at: at as usize,
            line,
            column,
        };
        Self {
            column,
            jumps: jumps.iter().map(jump).collect(),
        }
    }

    /// How many values the layout counts as in the limit of values, because of its memory.
    pub(crate) const fn values(&self) -> usize {
        self.jumps.len() / 4
    }

    /// The bytes of memory on the heap.
    pub(crate) const fn bytes(&self) -> usize {
        self.jumps.len() * size_of::<Jump>()
    }

    /// Adds `lines` to each line.
    pub(crate) fn move_down(&mut self, lines: u32) {
        for jump in self.jumps.iter_mut().filter(|jump| jump.line > 0) {
            jump.line = jump.line.saturating_add(lines);
        }
    }

    /// The same layout for a node that is on another line than the string, as that of an alias is.
    /// `line` is the line of the string.
    pub(crate) fn apart_from(&self, line: u32) -> Self {
        let mut jumps = self.jumps.clone();
        if self.column > 0 {
            let begin = Jump {
                at: 0,
                line,
                column: self.column,
            };
            jumps.insert(0, begin);
        }
        Self { column: 0, jumps }
    }
}

// === impl LayoutRecorder ===

impl LayoutRecorder {
    /// A recorder for a scalar that begins on `line`, from 0.
    pub(crate) fn new(line: u32) -> Self {
        Self {
            layout: Layout::default(),
            line,
            is_begun: false,
            next: None,
        }
    }

    /// Records that the byte `at` of the string is at `line` and `column`, both from 0.
    pub(crate) fn read_from(&mut self, at: usize, line: u32, column: usize) {
        if self.goes_on(at, line, column) || self.layout.jumps.len() > MAX_JUMPS {
            return;
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let (line, column) = (line, u32::try_from(column).unwrap_or(u32::MAX - 1));
        if is_first && at == 0 && line == self.line {
            self.layout.column = column + 1;
            return;
        }
        let is_last = self.layout.jumps.len() == MAX_JUMPS;
        self.layout.jumps.push(Jump {
            at,
            line: if is_last { 0 } else { line.saturating_add(1) },
            column: column.saturating_add(1),
        });
    }

    /// Records that the string up to the byte `at` is literally in the file, up to `line` and `column`.
    pub(crate) const fn read_to(&mut self, at: usize, line: u32, column: usize) {
        self.next = Some((at, line, column));
    }

    /// Records that the last part of the string is written differently, such as by an escape.
    pub(crate) const fn skipped(&mut self) {
        self.next = None;
    }

    pub(crate) fn finish(mut self) -> Layout {
        self.layout.jumps.shrink_to_fit();
        self.layout
    }

    /// Whether this position follows the last one on the same line, with only white space between
    /// that is also in the string.
    fn goes_on(&self, at: usize, line: u32, column: usize) -> bool {
        self.next.is_some_and(|(next_at, next_line, next_column)| {
            line == next_line && at.checked_sub(next_at) == column.checked_sub(next_column)
        })
    }
}

// The error for a text that is not a valid document.

/// What is wrong with a text, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The line, from 1.
    pub(crate) line: u32,
    /// The column in characters, from 1.
    pub(crate) column: usize,
    pub(crate) reason: Reason,
    message: String,
}

/// The kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The text violates the syntax of its format.
    Syntax,
    /// There is text after the end of a document.
    Trailing,
    /// The syntax is right, but the content is not: a duplicate key, for example.
    Content,
}

/// The message for a document with more than `max` values.
pub(crate) fn too_many_values(max: usize) -> String {
    format!(
        "the document has more than {max} values: write its objects one by one, with a line `---` between them"
    )
}

// === impl Unreadable ===

impl Unreadable {
    /// An error with `message` at `line` and `column`, both from 0.
    pub(crate) fn new(line: u32, column: usize, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            line: line.saturating_add(1),
            column: column + 1,
            reason,
            message: message.into(),
        }
    }

    /// The same error, `lines` further down.
    pub(crate) fn moved_down(self, lines: u32) -> Self {
        Self {
            line: self.line.saturating_add(lines),
            ..self
        }
    }

    /// The error that there is text at this position after the end of the document.
    pub(crate) fn trailing(self) -> Self {
        Self {
            reason: Reason::Trailing,
            message:
                "unexpected text after the end of the document; begin another document with a line `---`"
                    .to_owned(),
            ..self
        }
    }

    /// The message with the column.
    pub(crate) fn message(&self) -> String {
        format!("{} (column {})", self.message, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::field::FieldPath;

    /// All characters of the string at `a` except white space, looked up in the file by their
    /// places.
    fn all_found(file: &str) -> String {
        let document = parse(Some("f"), file).unwrap().pop().unwrap();
        let path = FieldPath::root().field("a");
        let text = document.text("a").unwrap().to_owned();
        let mut found = String::new();
        for (line, written) in text.split('\n').enumerate() {
            for (column, character) in written.chars().enumerate() {
                if character.is_whitespace() {
                    continue;
                }
                let place = document.place_within(path.clone(), (line + 1, column + 1));
                assert!(place.column > 0, "{file:?}: {character}");
                let line = file.lines().nth(place.line as usize - 1).unwrap();
                let at = line.chars().nth(place.column as usize - 1);
                // For an escaped character, the place is that of the escape.
                assert!(
                    at == Some(character) || at == Some('\\'),
                    "{file:?}: {character} at {}:{} is {at:?}",
                    place.line,
                    place.column
                );
                found.push(character);
            }
        }
        found
    }

    #[test]
    fn every_character_of_a_text_is_found_where_it_is_written() {
        for (file, text) in [
            ("a: b c\n", "bc"),
            ("# é\nä: é\na: 'b ''c'' d'\n", "b'c'd"),
            ("a: \"é \\n b \\u00e9\\x41 c\"\n", "ébéAc"),
            ("a: |\n  has(b)\n    && c\n\n  d\n", "has(b)&&cd"),
            ("x: 1\na: >-\n\n    b\n    c\n\n      d\n    é e\n", "bcdée"),
            ("a: |2\n    b\n   c\n", "bc"),
            ("a: b\n  c\n\n   d e\n", "bcde"),
            ("a: \"b\n  c \\\n  d\n\n   e\"\n", "bcde"),
            ("a: 'b\n  c''s\n\n   d'\n", "bc'sd"),
            ("a:\n  b\n  c\n", "bc"),
            ("# x\n---\na:\n- x\n---\na: !!str &b c d\n", "cd"),
            ("a: x\n---\nx: &b |\n  c\n  d\na: *b\n", "cd"),
            (
                "{\"x\": \"é\", \"a\": \"b\\n \\\"c\\ud83d\\ude00d\\u00e9\"}",
                "b\"c😀dé",
            ),
            ("a: |\r\n  b\r\n  c\r\n", "bc"),
        ] {
            assert_eq!(all_found(file), text, "{file:?}");
        }
    }
}
