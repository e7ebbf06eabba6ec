//! Classes of characters: brackets, `\d` and the like, `\pL`, `[:alpha:]`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::parser::{PatternParser, skip, until};
use super::{CompileFault, RegexErrorKind, atom};

/// The most ranges that are collected before they are sorted and merged.
const MAX_UNSORTED_RANGES: usize = 1 << 12;

const DIGIT: &[(u32, u32)] = &[(0x30, 0x39)];
const SPACE: &[(u32, u32)] = &[(0x9, 0xA), (0xC, 0xD), (0x20, 0x20)];
const WORD: &[(u32, u32)] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];

impl<'p> PatternParser<'p, '_> {
    /// Parses a class in brackets. Returns the rest of the pattern.
    pub(crate) fn class(&mut self, rest: &'p str) -> Result<&'p str, CompileFault> {
        let mut after = skip(rest, 1);
        let negated = after.starts_with('^');
        if negated {
            after = skip(after, 1);
        }
        let mut ranges = Ranges::default();
        let mut first = true;
        let mut many = MAX_UNSORTED_RANGES;
        while first || !after.starts_with(']') {
            first = false;
            let before = ranges.len();
            after = self.item(rest, after, &mut ranges)?;
            self.charge_steps(1 + ranges.len().saturating_sub(before))?;
            if ranges.len() > many {
                ranges = ranges.tidy();
                many = MAX_UNSORTED_RANGES.max(2 * ranges.len());
            }
        }
        let ranges = ranges.tidy();
        self.push_class(if negated { ranges.negated() } else { ranges })?;
        Ok(skip(after, 1))
    }

    /// Parses a class, a character or a range within brackets; `whole` begins with the bracket.
    fn item(&mut self, whole: &'p str, rest: &'p str, ranges: &mut Ranges) -> Result<&'p str, CompileFault> {
        if let Some((named, after)) = self.named_class(rest)? {
            ranges.add_all(named.as_slice());
            return Ok(after);
        }
        if let Some((class, after)) = self.escaped_class(rest)? {
            ranges.add_all(class.as_slice());
            return Ok(after);
        }
        let (low, mut after) = class_character(whole, rest)?;
        let mut high = low;
        if let Some(end) = after.strip_prefix('-')
            && !end.is_empty()
            && !end.starts_with(']')
        {
            (high, after) = class_character(whole, end)?;
            if high < low {
                return Err(RegexErrorKind::CharRange.of(until(rest, after)));
            }
        }
        if self.flags.fold {
            ranges.add_folded(low, high);
        } else {
            ranges.add(low, high);
        }
        Ok(after)
    }

    /// Parses `[:alpha:]` and the like, if it is one.
    fn named_class(&self, rest: &'p str) -> Result<Option<(Ranges, &'p str)>, CompileFault> {
        let position = self.pattern.len() - rest.len();
        let Some(inner) = rest.strip_prefix("[:").filter(|_| position + 2 <= self.last_name) else {
            return Ok(None);
        };
        let Some((name, after)) = inner.split_once(":]") else {
            return Ok(None);
        };
        let (name, negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        let Some(ranges) = posix(name) else {
            return Err(RegexErrorKind::CharRange.of(until(rest, after)));
        };
        Ok(Some((self.folded(ranges, negated), after)))
    }

    /// Parses `\d`, `\pL` and the like, if it is one.
    pub(crate) fn escaped_class(&self, rest: &'p str) -> Result<Option<(Ranges, &'p str)>, CompileFault> {
        let Some(&[b'\\', letter]) = rest.as_bytes().first_chunk() else {
            return Ok(None);
        };
        let ranges = match letter.to_ascii_lowercase() {
            b'd' => DIGIT,
            b's' => SPACE,
            b'w' => WORD,
            b'p' => return self.unicode_class(rest).map(Some),
            _ => return Ok(None),
        };
        let ranges = self.folded(ranges, letter.is_ascii_uppercase());
        Ok(Some((ranges, skip(rest, 2))))
    }

    fn folded(&self, ranges: &[(u32, u32)], negated: bool) -> Ranges {
        let mut all = Ranges::default();
        for (low, high) in ranges {
            if self.flags.fold {
                all.add_folded(*low, *high);
            } else {
                all.add(*low, *high);
            }
        }
        let all = all.tidy();
        if negated { all.negated() } else { all }
    }

    /// Parses `\pL`, `\p{Greek}`, `\P{^Lu}` and the like.
    fn unicode_class(&self, rest: &'p str) -> Result<(Ranges, &'p str), CompileFault> {
        let mut negated = rest.starts_with("\\P");
        let inner = skip(rest, 2);
        let (name, after) = match inner.strip_prefix('{') {
            Some(braced) => braced
                .split_once('}')
                .ok_or_else(|| RegexErrorKind::CharRange.of(rest))?,
            None => inner.split_at(inner.chars().next().map_or(0, char::len_utf8)),
        };
        let (name, inverse) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        negated ^= inverse;
        let Some(class) = class(name) else {
            return Err(RegexErrorKind::CharRange.of(until(rest, after)));
        };
        let mut ranges = class.ranges;
        if let Some(fold) = class.fold.filter(|_| self.flags.fold) {
            ranges.add_all(fold.as_slice());
            ranges = ranges.tidy();
        }
        Ok((if negated { ranges.negated() } else { ranges }, after))
    }
}

/// Parses a character within brackets. Returns its code and the rest; `whole` begins with the
/// bracket.
fn class_character<'p>(whole: &str, rest: &'p str) -> Result<(u32, &'p str), CompileFault> {
    match rest.chars().next() {
        None => Err(RegexErrorKind::MissingBracket.of(whole)),
        Some('\\') => atom::character(rest),
        Some(character) => Ok((u32::from(character), skip(rest, character.len_utf8()))),
    }
}

/// The POSIX classes, which contain only ASCII.
const fn posix(name: &str) -> Option<&'static [(u32, u32)]> {
    let ranges: &[(u32, u32)] = match name.as_bytes() {
        b"alnum" => &[(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)],
        b"alpha" => &[(0x41, 0x5A), (0x61, 0x7A)],
        b"ascii" => &[(0, 0x7F)],
        b"blank" => &[(0x9, 0x9), (0x20, 0x20)],
        b"cntrl" => &[(0, 0x1F), (0x7F, 0x7F)],
        b"digit" => DIGIT,
        b"graph" => &[(0x21, 0x7E)],
        b"lower" => &[(0x61, 0x7A)],
        b"print" => &[(0x20, 0x7E)],
        b"punct" => &[(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
        b"space" => &[(0x9, 0xD), (0x20, 0x20)],
        b"upper" => &[(0x41, 0x5A)],
        b"word" => WORD,
        b"xdigit" => &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
        _ => return None,
    };
    Some(ranges)
}

// Sets of characters.

/// The last character.
pub(crate) const LAST: u32 = 0x10_FFFF;

/// Ranges of characters, both ends included. They may contain surrogates, which no string does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

// === impl Ranges ===

impl Ranges {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self(ranges.into_iter().collect())
    }

    /// The number of ranges.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_slice(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub(crate) fn add(&mut self, low: u32, high: u32) {
        if let Some((first, last)) = self.0.last_mut()
            && *first <= low
            && low <= last.saturating_add(1)
        {
            *last = high.max(*last);
            return;
        }
        self.0.push((low, high));
    }

    pub(crate) fn add_all(&mut self, ranges: &[(u32, u32)]) {
        for (low, high) in ranges {
            self.add(*low, *high);
        }
    }

    /// Adds a range, and the characters that are equal to one in it under case folding.
    pub(crate) fn add_folded(&mut self, low: u32, high: u32) {
        self.add(low, high);
        for (character, orbit) in orbits_within(low, high) {
            for other in orbit {
                if *other != character {
                    self.add(*other, *other);
                }
            }
        }
    }

    /// Sorts the ranges, and merges overlapping ones.
    pub(crate) fn tidy(mut self) -> Self {
        self.0.sort_unstable();
        let mut tidy = Self::default();
        tidy.add_all(&self.0);
        tidy
    }

    /// The complement of a tidy set.
    pub(crate) fn negated(&self) -> Self {
        let mut negated = Self::default();
        let mut next = 0;
        for (low, high) in &self.0 {
            if next < *low {
                negated.add(next, low - 1);
            }
            next = high + 1;
        }
        if next <= LAST {
            negated.add(next, LAST);
        }
        negated
    }

    pub(crate) fn contains(&self, character: u32) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&character))
    }

    /// The ranges without surrogates.
    pub(crate) fn characters(&self) -> impl Iterator<Item = (char, char)> + '_ {
        let halves = |&(low, high): &(u32, u32)| {
            let below = (low, high.min(0xD7FF));
            let above = (low.max(0xE000), high);
            [below, above].into_iter().filter(|(low, high)| low <= high)
        };
        let ranges = self.0.iter().flat_map(halves);
        ranges.filter_map(|(low, high)| Some((char::from_u32(low)?, char::from_u32(high)?)))
    }
}

// The Unicode tables of Go's regular expressions, from `unicode.txt`.

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::read(include_str!("unicode.txt")));

#[derive(Default)]
struct Tables {
    classes: HashMap<&'static str, Class>,
    aliases: HashMap<&'static str, &'static str>,
    /// The characters that have other cases, sorted, each with the index of its orbit.
    folding: Vec<(u32, usize)>,
    orbits: Vec<Vec<u32>>,
}

/// The characters of a class in `\p{…}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    pub(crate) ranges: Ranges,
    /// The characters that case folding adds, if any.
    pub(crate) fold: Option<Ranges>,
}

/// The class of this name. Like Go, ignores case, spaces, hyphens and underscores.
pub(crate) fn class(name: &str) -> Option<Class> {
    let name = canonical(name);
    let tables = &*TABLES;
    match name.as_str() {
        "Any" => {
            let any = Ranges::new([(0, LAST)]);
            Some(Class {
                fold: Some(any.clone()),
                ranges: any,
            })
        }
        "Assigned" => tables.classes.get("Cn").map(|unassigned| Class {
            ranges: unassigned.ranges.negated(),
            fold: None,
        }),
        // The long s and the Kelvin sign fold to ASCII letters.
        "Ascii" => Some(Class {
            ranges: Ranges::new([(0, 0x7F)]),
            fold: Some(Ranges::new([(0x17F, 0x17F), (0x212A, 0x212A)])),
        }),
        name => {
            let named = tables.classes.get(name);
            named
                .or_else(|| tables.classes.get(tables.aliases.get(name)?))
                .cloned()
        }
    }
}

/// The characters that are equal to this one under case folding, including itself; empty if there
/// are no others.
pub(crate) fn orbit(character: u32) -> &'static [u32] {
    orbits_within(character, character)
        .next()
        .map_or(&[], |(_, orbit)| orbit)
}

/// The characters from `low` to `high` that have other cases, each with its orbit.
pub(crate) fn orbits_within(low: u32, high: u32) -> impl Iterator<Item = (u32, &'static [u32])> {
    let tables = &*TABLES;
    let start = tables.folding.partition_point(|(character, _)| *character < low);
    let folding = tables.folding.get(start..).unwrap_or_default();
    folding
        .iter()
        .take_while(move |(character, _)| *character <= high)
        .filter_map(|(character, orbit)| Some((*character, tables.orbits.get(*orbit)?.as_slice())))
}

fn canonical(name: &str) -> String {
    let kept = name
        .chars()
        .filter(|character| !matches!(character, '_' | '-' | ' '));
    let cased = kept.enumerate().map(|(position, character)| match position {
        0 => character.to_ascii_uppercase(),
        _ => character.to_ascii_lowercase(),
    });
    cased.collect()
}

// === impl Tables ===

impl Tables {
    /// Parses the lines of `unicode.txt`, whose first lines explain the format.
    fn read(text: &'static str) -> Self {
        let mut tables = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            if kind == "orbit" {
                tables.add_orbit(words.filter_map(number).collect());
                continue;
            }
            let Some(name) = words.next() else { continue };
            match kind {
                "class" => tables.classes.entry(name).or_default().ranges = ranges(words),
                "fold" => tables.classes.entry(name).or_default().fold = Some(ranges(words)),
                "alias" => {
                    tables.aliases.insert(name, words.next().unwrap_or_default());
                }
                _ => {}
            }
        }
        tables.folding.sort_unstable();
        tables
    }

    fn add_orbit(&mut self, orbit: Vec<u32>) {
        let position = self.orbits.len();
        self.folding
            .extend(orbit.iter().map(|character| (*character, position)));
        self.orbits.push(orbit);
    }
}

fn ranges(words: std::str::Split<'_, char>) -> Ranges {
    let mut ranges = Ranges::default();
    for word in words {
        let (range, step) = word.split_once('/').unwrap_or((word, "1"));
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (Some(low), Some(high), Some(step)) = (number(low), number(high), number(step)) else {
            continue;
        };
        if step == 1 {
            ranges.add(low, high);
            continue;
        }
        for character in (low..=high).step_by(step as usize) {
            ranges.add(character, character);
        }
    }
    ranges
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}
