//! The Unicode tables of Go's regular expressions, out of `unicode.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::ranges::{LAST, Ranges};

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::read(include_str!("unicode.txt")));

#[derive(Default)]
struct Tables {
    classes: HashMap<&'static str, Class>,
    aliases: HashMap<&'static str, &'static str>,
    /// Each character that folds, in order, with where its orbit is.
    folding: Vec<(u32, usize)>,
    orbits: Vec<Vec<u32>>,
}

/// The characters that a name in `\p{…}` stands for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    pub(crate) ranges: Ranges,
    /// What case folding adds, if it adds anything.
    pub(crate) fold: Option<Ranges>,
}

/// The class of this name, as Go looks it up: letters of any case, without
/// spaces, hyphens and underscores.
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

/// The characters that case folding holds for the same as this one, itself
/// among them; empty if there is no other.
pub(crate) fn orbit(character: u32) -> &'static [u32] {
    orbits_within(character, character)
        .next()
        .map_or(&[], |(_, orbit)| orbit)
}

/// The characters from `low` to `high` that fold, each with its orbit.
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
    /// Reads the lines of `unicode.txt`; its head says what they are.
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
