//! Where the characters of a text stand in the file.
//!
//! What is written and what is meant differ in length: by escapes, by the indentation of a
//! block, by lines that are folded. So that a fault within a text (a CEL expression over ten
//! lines) can name its line and column all the same, each text remembers where it begins, and
//! every place at which it goes on elsewhere than right behind what is before it.

/// The most places of one text that are remembered: no expression has so many lines.
const MAX_JUMPS: usize = 10_000;

/// Where the characters of one text stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// The column of its beginning, from 1, on the line of its node; 0: not known.
    column: u32,
    /// In the order of the text.
    jumps: Vec<Jump>,
}

/// A place at which a text goes on elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Jump {
    /// The byte of the text.
    at: usize,
    /// From 1; 0: from here on nothing is known.
    line: u32,
    /// In characters, from 1.
    column: u32,
}

/// Follows a text while it is read.
#[derive(Debug)]
pub(crate) struct LayoutRecorder {
    layout: Layout,
    /// The line on which the scalar begins, from 0.
    line: u32,
    is_begun: bool,
    /// What comes next if the text goes on where it is: byte, line and column.
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

    /// As how many values it counts, for the memory that it takes.
    pub(crate) const fn values(&self) -> usize {
        self.jumps.len() / 4
    }

    /// How many bytes it takes besides its own.
    pub(crate) const fn bytes(&self) -> usize {
        self.jumps.len() * size_of::<Jump>()
    }

    /// Adds `lines` to each line.
    pub(crate) fn move_down(&mut self, lines: u32) {
        for jump in self.jumps.iter_mut().filter(|jump| jump.line > 0) {
            jump.line = jump.line.saturating_add(lines);
        }
    }

    /// The same, for a node that does not begin on `line`, as the text does.
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
    /// For a scalar that begins on `line`, from 0.
    pub(crate) fn new(line: u32) -> Self {
        Self {
            layout: Layout::default(),
            line,
            is_begun: false,
            next: None,
        }
    }

    /// The byte `at` of the text comes from `line` and `column`, both from 0.
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

    /// What was read up to the byte `at` is as it is written, up to `line` and `column`.
    pub(crate) const fn read_to(&mut self, at: usize, line: u32, column: usize) {
        self.next = Some((at, line, column));
    }

    /// What was read last is shorter than it is written.
    pub(crate) const fn skipped(&mut self) {
        self.next = None;
    }

    pub(crate) fn finish(mut self) -> Layout {
        self.layout.jumps.shrink_to_fit();
        self.layout
    }

    /// Whether nothing but white space of this line stands between this and what was read.
    fn goes_on(&self, at: usize, line: u32, column: usize) -> bool {
        self.next.is_some_and(|(next_at, next_line, next_column)| {
            line == next_line && at.checked_sub(next_at) == column.checked_sub(next_column)
        })
    }
}

// The error for a text that is not a valid document.

/// What is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// From 1.
    pub(crate) line: u32,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) reason: Reason,
    message: String,
}

/// What sort of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The text breaks the rules of its format.
    Syntax,
    /// There is more after the end of a document.
    Trailing,
    /// The text follows them, and says what cannot be: a key twice, say.
    Content,
}

/// What is wrong with a document of more than `max` values.
pub(crate) fn too_many_values(max: usize) -> String {
    format!(
        "the document has more than {max} values: write its objects one by one, with a line `---` between them"
    )
}

// === impl Unreadable ===

impl Unreadable {
    /// `message` about what stands at `line` and `column`, both counted from 0.
    pub(crate) fn new(line: u32, column: usize, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            line: line.saturating_add(1),
            column: column + 1,
            reason,
            message: message.into(),
        }
    }

    /// The same where `lines` more stand above.
    pub(crate) fn moved_down(self, lines: u32) -> Self {
        Self {
            line: self.line.saturating_add(lines),
            ..self
        }
    }

    /// The same place: the document has ended before it.
    pub(crate) fn trailing(self) -> Self {
        Self {
            reason: Reason::Trailing,
            message: "text after the end of the document; begin another document with a line `---`"
                .to_owned(),
            ..self
        }
    }

    /// The message, with the column.
    pub(crate) fn message(&self) -> String {
        format!("{} (column {})", self.message, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::field::FieldPath;

    /// Every character of the text at `a` that is no white space, found in the file by its place.
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
                // An escape is found where it begins.
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
