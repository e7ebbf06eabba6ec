//! Documents as nobody writes them: every form of scalar in every place.

use crate::random::Random;

/// Plain scalars, on one line.
const PLAIN: &[&str] = &[
    "a",
    "b",
    "name",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "Y",
    "N",
    "Yes",
    "NO",
    "On",
    "OFF",
    "true",
    "True",
    "FALSE",
    "tRue",
    "null",
    "Null",
    "~",
    "NULL",
    "nil",
    "0",
    "1",
    "-1",
    "+1",
    "12",
    "007",
    "0644",
    "08",
    "0o17",
    "0x1F",
    "0b101",
    "0b2",
    "-0b11",
    "1_000",
    "_1",
    "1__0",
    "1e3",
    "1e-3",
    "1.",
    ".5",
    "1.5",
    "-.5",
    "1e400",
    "123456789012345678",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "1.0",
    "100.0e2",
    "12345678901234567890.5",
    "1:30",
    "190:20:30",
    "2001-12-14",
    "2001-12-14T21:59:43.10-05:00",
    "2001-1-1 1:2:3",
    ".",
    "..",
    "...x",
    "-",
    "--",
    "--x",
    "-x",
    "?x",
    ":x",
    "x:",
    "x:y",
    "a-b",
    "a.b/c",
    "<<",
    "=",
    "a b",
    "a  b c",
    "a #b",
    "a#b",
    "http://x/y?z=1",
    "x?",
    "a,b",
    "(a)",
    "x[0]",
    "x{y}",
    "a'b",
    "a\"b",
    "a\\b",
    "é",
    "日本",
    "🦀",
    "a\tb",
    "0x",
    "0b",
    "1e",
    "+",
    ".e3",
    "1,000",
    "infinity",
    "x&y",
    "x*y",
    "x!y",
    "a|b",
    "a>b",
    "a%b",
    "a@b",
];

/// What cannot be plain, or refused as such, or in JSON.
const ODD: &[&str] = &[
    ".inf", "-.Inf", ".NaN", "@a", "`a", "%a", "&a", "*a", "!a", "- a", "? a", ": a", "a: b", "# a", "|",
    ">", "{", "}", "[", "]", ",", "\"", "'", "\t", "\ta", "!!str", "!!int", "---", "...", "\u{85}",
    "\u{2028}", "\u{feff}", "\u{7f}",
];

const QUOTED: &[&str] = &[
    "''",
    "\"\"",
    "'a'",
    "\"a\"",
    "'it''s'",
    "'yes'",
    "\"12\"",
    "'a: b # c'",
    "\"a\\nb\"",
    "\"\\t\\\\\\\"\"",
    "\"\\x41\\u00e9\\U0001F980\"",
    "\"\\'\"",
    "\"\\0\\a\\b\\v\\f\\r\\e\\_\\N\\L\\P\"",
    "\"a\\ b\"",
    "\"\\/\"",
    "\"\\ud83d\\ude00\"",
    "\"\\q\"",
    "\"\\x4\"",
    "'a\\nb'",
    "\"{a}\"",
    "\"a\tb\"",
    "'\t'",
    "\"- x\"",
    "\"<<\"",
    "'~'",
];

const TAGS: &[&str] = &[
    "!!str",
    "!!int",
    "!!float",
    "!!bool",
    "!!null",
    "!!timestamp",
    "!!binary",
    "!!map",
    "!!seq",
    "!!set",
    "!own",
    "!",
    "!<tag:yaml.org,2002:str>",
    "!<x>",
    "!e!x",
    "!!merge",
    "!%41",
];

pub(crate) struct Generator<'e> {
    random: Random,
    examples: &'e [String],
    /// How many anchors the present document has.
    anchors: usize,
    /// A key that has not been used.
    fresh: usize,
}

// === impl Generator ===

impl<'e> Generator<'e> {
    pub(crate) const fn new(random: Random, examples: &'e [String]) -> Self {
        Self {
            random,
            examples,
            anchors: 0,
            fresh: 0,
        }
    }

    /// A document or a stream; most are valid. None is shorter than four bytes: of
    /// these kubectl reads JSON alone.
    pub(crate) fn document(&mut self) -> String {
        loop {
            let text = self.changed();
            if text.trim_start().len() > 3 {
                return text;
            }
        }
    }

    fn changed(&mut self) -> String {
        self.anchors = 0;
        let mut text = match self.random.below(10) {
            0 => self.example(),
            1 => self.flow(4),
            2 => self.stream(),
            _ => self.block_document(),
        };
        if self.random.below(20) == 0 {
            text = text.replace(
                '\n',
                self.random.pick(&["\r\n", "\r", "\n\n", "\n \n", "\u{2028}\n"]),
            );
        }
        for _ in 0..[0, 0, 0, 1, 1, 2, 4][self.random.below(7)] {
            self.change(&mut text);
        }
        text
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.random.below(count) == 0
    }

    fn block_document(&mut self) -> String {
        let mut text = String::new();
        if self.one_in(30) {
            text.push('\u{feff}');
        }
        if self.one_in(40) {
            text.push_str(self.random.pick(&[
                "%YAML 1.1\n---\n",
                "%TAG !e! tag:e.org:\n---\n",
                "%YAML 1.2\n---\n",
            ]));
        } else if self.one_in(10) {
            text.push_str(
                self.random
                    .pick(&["---\n", "--- # c\n", "# c\n---\n", "---\n---\n"]),
            );
        }
        self.comment(&mut text, 0);
        let depth = 1 + self.random.below(4);
        self.block(&mut text, 0, depth);
        if self.one_in(30) {
            text.push_str(self.random.pick(&["...\n", "---\n", "# end", "...\nb: 2\n"]));
        }
        text
    }

    fn stream(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.random.below(4) {
            self.anchors = 0;
            if self.one_in(3) {
                text.push_str(&self.json(3));
                text.push('\n');
            } else {
                self.block(&mut text, 0, 2);
            }
            text.push_str(
                self.random
                    .pick(&["---\n", "---\n", "--- \n", "---\t# x\n", "\n", "", "--- x\n"]),
            );
        }
        text
    }

    /// Whole lines at `indent`.
    fn block(&mut self, text: &mut String, indent: usize, depth: usize) {
        if depth == 0 {
            text.push_str(&" ".repeat(indent));
            let scalar = self.scalar(indent);
            text.push_str(&scalar);
            text.push('\n');
        } else if self.one_in(3) {
            self.sequence(text, indent, depth);
        } else {
            self.mapping(text, indent, depth);
        }
    }

    fn mapping(&mut self, text: &mut String, indent: usize, depth: usize) {
        for _ in 0..1 + self.random.below(4) {
            self.comment(text, indent);
            text.push_str(&" ".repeat(indent));
            self.entry(text, indent, depth);
        }
    }

    fn entry(&mut self, text: &mut String, indent: usize, depth: usize) {
        if self.anchors > 0 && self.one_in(12) {
            text.push_str("<<: ");
            let value = self.merged();
            text.push_str(&value);
            text.push('\n');
            return;
        }
        let key = self.key();
        if self.one_in(25) {
            text.push_str(&format!("? {key}\n"));
            text.push_str(&" ".repeat(indent));
            text.push(':');
        } else {
            text.push_str(&key);
            text.push_str(self.random.pick(&[":", ":", ":", ":", " :", "\t:"]));
        }
        self.value(text, indent, depth, true);
    }

    /// What stands behind `:` or `-`.
    fn value(&mut self, text: &mut String, indent: usize, depth: usize, of_mapping: bool) {
        let properties = self.properties();
        if !properties.is_empty() {
            text.push(' ');
            text.push_str(&properties);
        }
        match self.random.below(6) {
            0 | 1 if depth > 0 => {
                self.comment_behind(text);
                text.push('\n');
                let deeper = match self.random.below(6) {
                    0 if of_mapping => {
                        self.sequence(text, indent, depth - 1);
                        return;
                    }
                    1 => 1,
                    2 => 4,
                    _ => 2,
                };
                self.block(text, indent + deeper, depth - 1);
            }
            2 if !of_mapping && depth > 0 => {
                text.push(' ');
                self.mapping(text, indent + 2, 0);
            }
            3 if self.one_in(2) => {
                text.push(' ');
                let flow = self.flow(2);
                text.push_str(&flow);
                self.comment_behind(text);
                text.push('\n');
            }
            4 if self.one_in(2) => self.literal(text, indent),
            5 if self.one_in(4) => {
                self.comment_behind(text);
                text.push('\n');
            }
            _ => {
                text.push_str(self.random.pick(&[" ", " ", " ", "  ", "\t", " \t"]));
                let scalar = self.scalar(indent);
                text.push_str(&scalar);
                self.comment_behind(text);
                text.push('\n');
            }
        }
    }

    fn sequence(&mut self, text: &mut String, indent: usize, depth: usize) {
        for _ in 0..1 + self.random.below(3) {
            self.comment(text, indent);
            text.push_str(&" ".repeat(indent));
            text.push('-');
            self.value(text, indent, depth.saturating_sub(1), false);
        }
    }

    fn properties(&mut self) -> String {
        match self.random.below(24) {
            0 | 1 => {
                self.anchors += 1;
                format!("&a{}", self.anchors)
            }
            2 => self.random.pick(TAGS).to_owned(),
            3 => {
                self.anchors += 1;
                format!("{} &a{}", self.random.pick(TAGS), self.anchors)
            }
            _ => String::new(),
        }
    }

    fn merged(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("[{}, {}]", self.alias(), self.alias()),
            1 => "{m: 1, n2: 2}".to_owned(),
            _ => self.alias(),
        }
    }

    fn alias(&mut self) -> String {
        format!("*a{}", 1 + self.random.below(self.anchors.max(1)))
    }

    fn key(&mut self) -> String {
        self.fresh += 1;
        match self.random.below(12) {
            0 => self.random.pick(PLAIN).to_owned(),
            1 => self.random.pick(QUOTED).to_owned(),
            2 => format!("{}.5e{}", self.random.below(100), self.random.below(12)),
            3 if self.one_in(10) => self.random.pick(ODD).to_owned(),
            4 if self.one_in(10) => format!("k{}", "x".repeat(self.random.below(1100))),
            5 if self.one_in(10) => format!("{} {}", self.random.pick(TAGS), self.random.pick(PLAIN)),
            6 if self.one_in(10) && self.anchors > 0 => self.alias() + " ",
            _ => format!("k{}", self.fresh),
        }
    }

    fn scalar(&mut self, indent: usize) -> String {
        match self.random.below(12) {
            0 | 1 => self.random.pick(QUOTED).to_owned(),
            2 if self.one_in(6) => self.random.pick(ODD).to_owned(),
            3 if self.anchors > 0 && self.one_in(2) => self.alias(),
            4 => self.several_lines(indent),
            5 if self.one_in(4) => self.number(),
            _ => self.random.pick(PLAIN).to_owned(),
        }
    }

    fn number(&mut self) -> String {
        let sign = self.random.pick(&["", "", "-", "+"]);
        let prefix = self
            .random
            .pick(&["", "", "0", "0x", "0o", "0b", "00", "0b+", "0X"]);
        let digits = self
            .random
            .pick(&["0123456789", "01", "01234567", "0123456789abcdef", "0123456789_"]);
        let mut text = format!("{sign}{prefix}");
        for _ in 0..self.random.below(22) {
            text.push(char::from(digits.as_bytes()[self.random.below(digits.len())]));
        }
        text.push_str(
            self.random
                .pick(&["", "", "", ".", ".5", "e3", "E-2", ".25e+1", "e", "_"]),
        );
        text
    }

    /// A plain or quoted scalar that goes on at some column.
    fn several_lines(&mut self, indent: usize) -> String {
        let quote = self.random.pick(&["", "'", "\""]);
        let mut text = format!("{quote}w");
        for _ in 0..1 + self.random.below(3) {
            text.push_str(
                self.random
                    .pick(&["\n", "\n", "\n\n", " \n", "\t\n", "\\\n", "\n\t"]),
            );
            let column = if self.one_in(3) {
                self.random.below(6)
            } else {
                indent + 1 + self.random.below(3)
            };
            text.push_str(&" ".repeat(column));
            text.push_str(
                self.random
                    .pick(&["w", "w", "w: x", "# w", "- w", "12", "", "w\\", "\\tw"]),
            );
        }
        text + quote
    }

    fn literal(&mut self, text: &mut String, indent: usize) {
        text.push(' ');
        text.push_str(self.random.pick(&[
            "|", ">", "|-", ">-", "|+", ">+", "|2", ">1-", "|+3", "|0", "|10", "|- # c", "| x",
        ]));
        text.push('\n');
        let column = indent + 1 + self.random.below(4);
        for _ in 0..self.random.below(5) {
            let column = match self.random.below(8) {
                0 => column + 2,
                1 => self.random.below(column + 1),
                _ => column,
            };
            text.push_str(&" ".repeat(column));
            text.push_str(
                self.random
                    .pick(&["l", "l m", "", " ", "\tl", "# l", "l: m", "- l", "l ", "'l"]),
            );
            text.push('\n');
        }
    }

    fn comment(&mut self, text: &mut String, indent: usize) {
        if self.one_in(10) {
            let column = if self.one_in(2) {
                indent
            } else {
                self.random.below(6)
            };
            text.push_str(&" ".repeat(column));
            text.push_str(
                self.random
                    .pick(&["# c\n", "\n", "#\n", "#: {\n", "\t\n", "  \n"]),
            );
        }
    }

    fn comment_behind(&mut self, text: &mut String) {
        if self.one_in(10) {
            text.push_str(self.random.pick(&[" # c", " #", "#c", " ", "\t", "\t# c"]));
        }
    }

    /// A flow collection, or what stands in one.
    fn flow(&mut self, depth: usize) -> String {
        if depth == 0 || self.one_in(5) {
            return self.scalar(0);
        }
        let gap = self.random.pick(&["", " ", " ", "\n", "\t", " # c\n", "\n\t"]);
        let count = self.random.below(4);
        let is_list = self.one_in(2);
        let mut items = Vec::new();
        for _ in 0..count {
            let properties = self.properties();
            let value = format!("{properties} {}", self.flow(depth - 1));
            let key = self.key();
            let colon = self.random.pick(&[": ", ": ", ":", " : ", ":\n ", ":\t"]);
            items.push(match self.random.below(12) {
                0 => value,
                1 => key,
                2 => format!("? {key}{colon}{value}"),
                3 => format!("{colon}{value}"),
                4 => format!("{key}{colon}"),
                _ if is_list => value,
                _ => format!("{key}{colon}{value}"),
            });
        }
        let (open, close) = if is_list { ("[", "]") } else { ("{", "}") };
        let tail = if self.one_in(6) { "," } else { "" };
        format!("{open}{gap}{}{tail}{gap}{close}", items.join(&format!(",{gap}")))
    }

    fn json(&mut self, depth: usize) -> String {
        self.fresh += 1;
        let scalar = self.random.pick(&[
            "1",
            "-0",
            "1.0",
            "1e3",
            "0.1",
            "\"a\"",
            "\"\\/\\u00e9\\ud83d\\ude00\"",
            "true",
            "null",
            "\"\u{7f}\"",
            "1E400",
            "01",
            "12345678901234567890",
            "{}",
            "[]",
        ]);
        if depth == 0 {
            return scalar.to_owned();
        }
        let gap = self.random.pick(&["", " ", "\n", "\t"]);
        let (fresh, inner) = (self.fresh, self.json(depth - 1));
        format!("{{{gap}\"k{fresh}\":{gap}{inner},{gap}\"l\":[{scalar},{gap}{inner}]{gap}}}")
    }

    fn example(&mut self) -> String {
        let mut text = self.examples[self.random.below(self.examples.len())].clone();
        // A part of it, of whole lines.
        if text.len() > 4_000 {
            let lines: Vec<&str> = text.lines().collect();
            let start = self.random.below(lines.len());
            text = lines[start..lines.len().min(start + 80)].join("\n");
        }
        self.change(&mut text);
        text
    }

    /// One small change, somewhere.
    fn change(&mut self, text: &mut String) {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        if places.is_empty() {
            return;
        }
        let at = places[self.random.below(places.len())];
        match self.random.below(5) {
            0 => drop(text.remove(at)),
            1 => text.insert_str(at, self.random.pick(ODD)),
            2 => text.insert_str(
                at,
                self.random
                    .pick(&[" ", "  ", "\n", "\t", ": ", ",", "- ", "\n  ", " #", "?", "\r"]),
            ),
            3 => text.insert_str(at, self.random.pick(PLAIN)),
            _ => {
                let end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
                let line = text[at..end].to_owned();
                text.insert_str(at, &line);
            }
        }
    }
}
