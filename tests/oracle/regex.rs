//! Regular expressions: what is refused, in which words, and what is found.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_cel::regex::{CompileFault, Regex};
use serde::{Deserialize, Serialize};

use crate::program::Oracle;
use crate::random::{Random, cases};

#[derive(Serialize)]
struct Question {
    pattern: String,
    texts: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Answer {
    error: String,
    found: Vec<Vec<(usize, usize)>>,
}

struct Case {
    pattern: String,
    texts: Vec<String>,
}

// === impl Case ===

impl Case {
    fn question(&self) -> Question {
        Question {
            pattern: STANDARD.encode(&self.pattern),
            texts: self.texts.iter().map(|text| STANDARD.encode(text)).collect(),
        }
    }

    fn answer(&self) -> Answer {
        let regex = match Regex::new(&self.pattern, &mut |_| true) {
            Ok(regex) => regex,
            Err(CompileFault::Invalid(error)) => {
                return Answer {
                    error: error.to_string(),
                    ..Answer::default()
                };
            }
            Err(CompileFault::Stopped) => panic!("{}: stopped", self.pattern),
        };
        let found = |text: &String| {
            let all = regex.find_all(text, usize::MAX, &mut |_| true).unwrap();
            let matched = regex.is_match(text, &mut |_| true).unwrap();
            assert_eq!(matched, !all.is_empty(), "{} on {text:?}", self.pattern);
            all
        };
        Answer {
            error: String::new(),
            found: self.texts.iter().map(found).collect(),
        }
    }
}

/// Compares all answers, a thousand at a time.
fn compare(oracle: &mut Oracle, cases: &[Case]) {
    let mut differences = Vec::new();
    for some in cases.chunks(1000) {
        let questions: Vec<Question> = some.iter().map(Case::question).collect();
        let expected: Vec<Answer> = oracle.ask(&questions);
        for (case, expected) in some.iter().zip(expected) {
            let actual = case.answer();
            if actual != expected {
                differences.push(format!(
                    "{:?} on {:?}\n  Go   {expected:?}\n  here {actual:?}",
                    case.pattern, case.texts
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ\n{}",
        differences.len(),
        cases.len(),
        differences
            .iter()
            .take(20)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

pub(crate) fn random_patterns_are_read_as_go_reads_them() {
    let Some(mut oracle) = Oracle::start("regex") else {
        return;
    };
    let mut random = Random::of(1);
    let cases: Vec<Case> = (0..cases(20_000)).map(|_| case(&mut random)).collect();
    compare(&mut oracle, &cases);
}

pub(crate) fn every_pattern_of_the_tables_is_read_as_go_reads_it() {
    let Some(mut oracle) = Oracle::start("regex") else {
        return;
    };
    let patterns = written_patterns();
    assert!(patterns.len() > 50, "{} patterns", patterns.len());
    let mut random = Random::of(2);
    let case = |pattern: String| Case {
        texts: (0..8).map(|_| text(&mut random)).collect(),
        pattern,
    };
    compare(&mut oracle, &patterns.into_iter().map(case).collect::<Vec<_>>());
}

/// What stands in quotes behind `matches(`, `find(` and `findAll(` in the tables
/// of expressions, the vectors and the examples, and what can be cut out of it.
fn written_patterns() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![
        root.join("tests/cel"),
        root.join("tests/vectors"),
        root.join("config"),
    ];
    let mut patterns = BTreeSet::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        for call in ["matches(", "find(", "findAll("] {
            for (position, _) in text.match_indices(call) {
                patterns.extend(quoted(&text[position + call.len()..]));
            }
        }
    }
    let cut: Vec<String> = patterns
        .iter()
        .flat_map(|pattern| pattern.char_indices().map(|(end, _)| pattern[..end].to_owned()))
        .collect();
    patterns.extend(cut);
    patterns
}

/// The text in quotes at the start of `text`, read as CEL would.
fn quoted(text: &str) -> Option<String> {
    let raw = text.starts_with('r');
    let text = text.trim_start_matches('r').trim_start_matches('\\');
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let inner = &text[1..text[1..].find(quote)? + 1];
    let inner = inner.trim_end_matches('\\');
    Some(if raw {
        inner.into()
    } else {
        inner.replace("\\\\", "\\")
    })
}

fn case(random: &mut Random) -> Case {
    let mut pattern = String::new();
    let depth = random.below(4);
    alternatives(random, depth, &mut pattern);
    if random.below(8) == 0 {
        damage(random, &mut pattern);
    }
    let texts = (0..4).map(|_| text(random)).collect();
    Case { pattern, texts }
}

/// Cuts a character out of the pattern, or puts one in.
fn damage(random: &mut Random, pattern: &mut String) {
    let boundaries: Vec<usize> = pattern.char_indices().map(|(at, _)| at).collect();
    if boundaries.is_empty() {
        return;
    }
    let at = boundaries[random.below(boundaries.len())];
    if random.below(2) == 0 {
        pattern.remove(at);
    } else {
        pattern.insert_str(
            at,
            random.pick(&["(", ")", "[", "]", "{", "}", "\\", "*", "?", "-", "|", "^", ":"]),
        );
    }
}

fn alternatives(random: &mut Random, depth: usize, out: &mut String) {
    sequence(random, depth, out);
    while random.below(4) == 0 {
        out.push('|');
        sequence(random, depth, out);
    }
}

fn sequence(random: &mut Random, depth: usize, out: &mut String) {
    for _ in 0..random.below(5) {
        piece(random, depth, out);
        if random.below(3) == 0 {
            out.push_str(random.pick(&[
                "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{2,3}", "{0,2}?", "{,2}", "{3,1}",
                "{x}", "{", "{2}?", "**", "{1001}", "{9,}", "{0,1000}",
            ]));
        }
    }
}

fn piece(random: &mut Random, depth: usize, out: &mut String) {
    if depth > 0 && random.below(3) == 0 {
        out.push_str(random.pick(&[
            "(", "(", "(?:", "(?i)", "(?i:", "(?m:", "(?s:", "(?U:", "(?-s:", "(?im-sU:", "(?P<n>",
            "(?<n_1>", "(?P<>", "(?x:", "(?=", "(?<!", "(?i-:", "(?ms)(", "(?i)(",
        ]));
        alternatives(random, depth - 1, out);
        out.push(')');
        return;
    }
    match random.below(10) {
        0 | 1 => class(random, out),
        2 => out.push_str(random.pick(ESCAPES)),
        3 => out.push_str(random.pick(&["^", "$", ".", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G", "."])),
        _ => out.push_str(random.pick(LITERALS)),
    }
}

const LITERALS: &[&str] = &[
    "a", "b", "ab", "abc", "k", "K", "s", "S", "ſ", "\u{212a}", "é", "É", "ж", "Ж", "σ", "ς", "Σ", "1", "0",
    "_", "-", ":", "/", " ", "\n", "&&", "--", "~~", "<", "#", "日", "😀", "}",
];

const ESCAPES: &[&str] = &[
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    r"\pL",
    r"\PL",
    r"\pN",
    r"\p{Greek}",
    r"\P{Greek}",
    r"\p{^Lu}",
    r"\p{Lu}",
    r"\p{L l}",
    r"\p{letter}",
    r"\p{Old_Italic}",
    r"\p{Any}",
    r"\p{Assigned}",
    r"\p{ASCII}",
    r"\p{LC}",
    r"\p{Nope}",
    r"\pl",
    r"\p",
    r"\p{",
    r"\x41",
    r"\x{e9}",
    r"\x{}",
    r"\x{110000}",
    r"\x{D800}",
    r"\x4",
    r"\101",
    r"\0",
    r"\07",
    r"\1",
    r"\8",
    r"\n",
    r"\t",
    r"\a",
    r"\v",
    r"\f",
    r"\r",
    r"\.",
    r"\-",
    r"\_",
    r"\/",
    r"\<",
    r"\e",
    r"\h",
    r"\u0041",
    r"\Qa.b\E",
    r"\Q[",
    r"\E",
    r"\C",
    r"\X",
    r"\é",
    r"\",
];

fn class(random: &mut Random, out: &mut String) {
    out.push('[');
    out.push_str(random.pick(&["", "", "", "^", "]", "^]", "-", "[", "^^"]));
    for _ in 0..random.below(4) {
        match random.below(6) {
            0 => out.push_str(random.pick(ESCAPES)),
            1 => out.push_str(random.pick(&[
                "[:alpha:]",
                "[:^digit:]",
                "[:word:]",
                "[:nope:]",
                "[:space:]",
                "[:punct:]",
                "[:upper:]",
                "[:",
                ":]",
                "[=a=]",
            ])),
            2 => out.push_str(random.pick(&[
                "a-z",
                "A-Z",
                "0-9",
                "a-c",
                "z-a",
                "é-ж",
                "-",
                "--a",
                "+--",
                "&&",
                "A-k",
                "\u{0}-\u{10ffff}",
                r"\x00-\x{10ffff}",
                r"\d-z",
                r"a-\d",
                "Α-Ω",
                "\n",
            ])),
            _ => out.push_str(random.pick(LITERALS)),
        }
    }
    out.push(']');
}

fn text(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(12) {
        text.push_str(random.pick(&[
            "a", "b", "ab", "abc", "k", "K", "s", "S", "ſ", "\u{212a}", "é", "É", "ж", "Ж", "σ", "ς", "Σ",
            "1", "0", "_", "-", ":", "/", " ", "\n", "&", "~", "<", "[", "]", "{", "}", "#", "日", "😀", ".",
            "\\", "A", "Z", "z", "\u{b}", "\t", "\u{a0}", "٣", "(", ")", "^", "$", "|", "?", "a{2}", "\0",
            "\u{fffd}",
        ]));
    }
    text
}
