//! JSON values with their lines.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::layout::{Layout, LayoutRecorder, Reason, Unreadable, too_many_values};
use super::{Entry, MAX_DEPTH, Node, Value, column_number, yaml};

type Result<T> = std::result::Result<T, Unreadable>;

/// Reads consecutive JSON values.
pub(crate) struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// The line, from 0.
    line: u32,
    line_start: usize,
    /// The last byte whose column was computed, and that column, from 0: lines may be long, and are
    /// not to be counted again.
    column_of: (usize, usize),
    max_values: usize,
    /// How many more values the current document may contain.
    left: usize,
}

/// A list or mapping that is not closed yet.
enum OpenValue {
    List {
        start: Start,
        items: Vec<Node>,
    },
    Map {
        start: Start,
        entries: Vec<Entry>,
        keys: HashSet<String>,
        /// The key of the next value.
        key: (String, Start),
    },
}

/// The position at which a value or key begins.
#[derive(Clone, Copy, Default)]
struct Start {
    /// The line, from 1.
    line: u32,
    /// The column, from 0.
    column: usize,
}

// === impl Reader ===

impl<'t> Reader<'t> {
    /// A reader of values that may each contain at most `max_values` values.
    pub(crate) const fn new(text: &'t str, max_values: usize) -> Self {
        Self {
            text,
            at: 0,
            line: 0,
            line_start: 0,
            column_of: (0, 0),
            max_values,
            left: max_values,
        }
    }

    /// The text that has not been read, and the line on which it begins. If white space with a line
    /// break precedes it, it begins after that line break; other white space is left out.
    pub(crate) fn rest(&self) -> (&'t str, u32) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let text = rest.trim_start();
        let space = rest.len() - text.len();
        match rest.get(..space).and_then(|space| space.split_once('\n')) {
            Some((line, _)) => (rest.get(line.len() + 1..).unwrap_or_default(), self.line + 2),
            None => (text, self.line + 1),
        }
    }

    /// Reads the next value; `None` at the end.
    pub(crate) fn next_value(&mut self) -> Result<Option<Node>> {
        self.skip_space();
        if self.at >= self.text.len() {
            return Ok(None);
        }
        self.check_is_json()?;
        self.left = self.max_values;
        let mut open = Vec::new();
        loop {
            if let Some(value) = self.begin_value(&mut open)?
                && let Some(value) = self.complete(value, &mut open)?
            {
                return Ok(Some(value));
            }
        }
    }

    /// Checks that a JSON value comes next. If not, the text may be YAML, and the error is one of
    /// syntax. But text that begins with a number or a literal and goes on is neither.
    fn check_is_json(&self) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        if let Some(Ok(_)) = values.next() {
            return Ok(());
        }
        let unsigned = rest.strip_prefix('-').unwrap_or(rest);
        let is_value = unsigned.starts_with(|first: char| first.is_ascii_digit())
            || ["true", "false", "null"]
                .iter()
                .any(|word| rest.starts_with(word));
        if is_value {
            return Err(self.wrong("unexpected characters after a value"));
        }
        Err(self.error(Reason::Syntax, "not JSON".to_owned()))
    }

    /// Reads a scalar or an empty list or mapping; opens any other list or mapping.
    fn begin_value(&mut self, open: &mut Vec<OpenValue>) -> Result<Option<Node>> {
        self.skip_space();
        let start = self.start();
        self.count(1)?;
        let value = match self.byte() {
            b'{' | b'[' if open.len() >= MAX_DEPTH => {
                return Err(self.error(Reason::Content, format!("nested deeper than {MAX_DEPTH} levels")));
            }
            b'{' => {
                self.at += 1;
                if !self.take(b'}') {
                    let mut keys = HashSet::new();
                    let key = self.key(&mut keys)?;
                    let entries = Vec::new();
                    open.push(OpenValue::Map {
                        start,
                        entries,
                        keys,
                        key,
                    });
                    return Ok(None);
                }
                Value::Map(Vec::new())
            }
            b'[' => {
                self.at += 1;
                if !self.take(b']') {
                    open.push(OpenValue::List {
                        start,
                        items: Vec::new(),
                    });
                    return Ok(None);
                }
                Value::List(Vec::new())
            }
            b'"' => {
                let (text, layout) = self.string()?;
                self.count(layout.values())?;
                let mut node = start.node(Value::String(text));
                node.layout = layout;
                return Ok(Some(node));
            }
            b'-' | b'0'..=b'9' => self.number()?,
            _ => self.word()?,
        };
        Ok(Some(start.node(value)))
    }

    /// Adds `value` to the innermost open list or mapping, and closes those that end after it.
    /// Returns the outermost value once it is complete.
    fn complete(&mut self, mut value: Node, open: &mut Vec<OpenValue>) -> Result<Option<Node>> {
        loop {
            let end = match open.last_mut() {
                None => return Ok(Some(value)),
                Some(OpenValue::List { items, .. }) => {
                    items.push(value);
                    b']'
                }
                Some(OpenValue::Map { entries, key, .. }) => {
                    let (key, start) = std::mem::take(key);
                    entries.push(Entry {
                        key,
                        line: start.line,
                        column: column_number(start.column),
                        value,
                    });
                    b'}'
                }
            };
            if self.take(b',') {
                if let Some(OpenValue::Map { keys, key, .. }) = open.last_mut() {
                    *key = self.key(keys)?;
                }
                return Ok(None);
            }
            if !self.take(end) {
                return Err(self.wrong("`,` or the end of the list or mapping is missing"));
            }
            match open.pop() {
                Some(closed) => value = closed.close(),
                None => return Ok(None),
            }
        }
    }

    fn key(&mut self, keys: &mut HashSet<String>) -> Result<(String, Start)> {
        self.skip_space();
        let start = self.start();
        if self.byte() != b'"' {
            return Err(self.wrong("a key in quotes is missing"));
        }
        let (key, _) = self.string()?;
        if !keys.insert(key.clone()) {
            return Err(self.error(Reason::Content, format!("duplicate key `{key}`")));
        }
        if !self.take(b':') {
            return Err(self.wrong("`:` is missing after a key"));
        }
        Ok((key, start))
    }

    /// Counts `values` more values.
    fn count(&mut self, values: usize) -> Result<()> {
        match self.left.checked_sub(values) {
            Some(left) => self.left = left,
            None => return Err(self.wrong(&too_many_values(self.max_values))),
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(String, Layout)> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start + 1..).unwrap_or_default();
        let mut is_escaped = false;
        let length = rest.iter().position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        });
        let Some(length) = length else {
            return Err(self.wrong("quoted text without a closing quote"));
        };
        let end = start + length + 2;
        let literal = self.text.get(start..end).unwrap_or_default();
        let string = serde_json::from_str(literal)
            .map_err(|_| self.wrong("an invalid escape or control character"))?;
        let column = self.column();
        self.at = end;
        Ok((string, layout(literal, self.line, column)))
    }

    fn start(&mut self) -> Start {
        Start {
            line: self.line + 1,
            column: self.column(),
        }
    }

    /// The column of the current position, from 0.
    fn column(&mut self) -> usize {
        let (known, column) = match self.column_of {
            (at, _) if at < self.line_start => (self.line_start, 0),
            known => known,
        };
        let between = self.text.get(known..self.at).unwrap_or_default();
        let column = column + between.chars().count();
        self.column_of = (self.at, column);
        column
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
        let literal = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        let number: serde_json::Number = serde_json::from_str(literal)
            .map_err(|_| self.error(Reason::Content, format!("the number {literal} is too large")))?;
        self.at += literal.len();
        let whole = number.as_f64().filter(|_| number.is_f64());
        Ok(Value::Number(whole.and_then(yaml::normal).unwrap_or(number)))
    }

    fn word(&mut self) -> Result<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("a value is missing"))
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Consumes `byte` if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.byte() == byte;
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_space(&mut self) {
        loop {
            match self.byte() {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                _ => return,
            }
        }
    }

    fn wrong(&self, message: &str) -> Unreadable {
        self.error(Reason::Content, message.to_owned())
    }

    fn error(&self, reason: Reason, message: String) -> Unreadable {
        let line = self.text.get(self.line_start..self.at).unwrap_or_default();
        Unreadable::new(self.line, line.chars().count(), reason, message)
    }
}

// === impl OpenValue ===

impl OpenValue {
    /// Frees unused capacity: most lists and mappings are short, and a vector first allocates room
    /// for four.
    fn close(self) -> Node {
        match self {
            Self::List { start, mut items } => {
                items.shrink_to_fit();
                start.node(Value::List(items))
            }
            Self::Map {
                start, mut entries, ..
            } => {
                entries.shrink_to_fit();
                start.node(Value::Map(entries))
            }
        }
    }
}

// === impl Start ===

impl Start {
    fn node(self, value: Value) -> Node {
        Node::new(self.line, value).at_column(self.column)
    }
}

/// The layout of the string in the valid `literal`, which begins at `line` and `column`.
fn layout(literal: &str, line: u32, column: usize) -> Layout {
    let mut layout = LayoutRecorder::new(line);
    let text = literal.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let mut characters = text.unwrap_or_default().chars();
    let (mut at, mut column) = (0, column + 1);
    while let Some(character) = characters.next() {
        layout.read_from(at, line, column);
        let (read, written) = match character {
            '\\' => escape(&mut characters),
            other => (other.len_utf8(), 1),
        };
        at += read;
        column += written;
        if character == '\\' {
            layout.skipped();
        } else {
            layout.read_to(at, line, column);
        }
    }
    layout.finish()
}

/// Skips an escape after its backslash. Returns the number of bytes in the string, and the number
/// of characters as written.
fn escape(characters: &mut std::str::Chars<'_>) -> (usize, usize) {
    if characters.next() != Some('u') {
        return (1, 2);
    }
    let code: String = characters.by_ref().take(4).collect();
    match u32::from_str_radix(&code, 16).unwrap_or(0) {
        // The second half of a surrogate pair follows.
        0xD800..=0xDBFF => {
            characters.by_ref().take(6).for_each(drop);
            (4, 12)
        }
        code => (char::from_u32(code).map_or(1, char::len_utf8), 6),
    }
}
