//! Sets of characters: brackets, `\d` and its like, `\pL`, `[:alpha:]`.

use super::error::{Code, Fault};
use super::escape;
use super::parser::{Parser, skip, until};
use super::ranges::Ranges;
use super::unicode;

/// How many ranges are gathered before they are put in order.
const MANY: usize = 1 << 12;

const DIGIT: &[(u32, u32)] = &[(0x30, 0x39)];
const SPACE: &[(u32, u32)] = &[(0x9, 0xA), (0xC, 0xD), (0x20, 0x20)];
const WORD: &[(u32, u32)] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];

impl<'p> Parser<'p, '_> {
    /// Reads a class in brackets; gives what is left.
    pub(crate) fn class(&mut self, rest: &'p str) -> Result<&'p str, Fault> {
        let mut after = skip(rest, 1);
        let negated = after.starts_with('^');
        if negated {
            after = skip(after, 1);
        }
        let mut ranges = Ranges::default();
        let mut first = true;
        let mut many = MANY;
        while first || !after.starts_with(']') {
            first = false;
            let before = ranges.len();
            after = self.item(rest, after, &mut ranges)?;
            self.work(1 + ranges.len().saturating_sub(before))?;
            if ranges.len() > many {
                ranges = ranges.tidy();
                many = MANY.max(2 * ranges.len());
            }
        }
        let ranges = ranges.tidy();
        self.push_class(if negated { ranges.negated() } else { ranges })?;
        Ok(skip(after, 1))
    }

    /// Reads a class, a character or a range inside brackets, which begin with
    /// `whole`.
    fn item(&mut self, whole: &'p str, rest: &'p str, ranges: &mut Ranges) -> Result<&'p str, Fault> {
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
                return Err(Code::CharRange.of(until(rest, after)));
            }
        }
        if self.flags.fold {
            ranges.add_folded(low, high);
        } else {
            ranges.add(low, high);
        }
        Ok(after)
    }

    /// `[:alpha:]`, if it is one.
    fn named_class(&self, rest: &'p str) -> Result<Option<(Ranges, &'p str)>, Fault> {
        let position = self.pattern.len() - rest.len();
        let Some(inner) = rest.strip_prefix("[:").filter(|_| position + 2 <= self.last_name) else {
            return Ok(None);
        };
        let Some((name, after)) = inner.split_once(":]") else {
            return Ok(None);
        };
        let (name, negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        let Some(ranges) = posix(name) else {
            return Err(Code::CharRange.of(until(rest, after)));
        };
        Ok(Some((self.folded(ranges, negated), after)))
    }

    /// `\d`, `\pL` and the like, if it is one.
    pub(crate) fn escaped_class(&self, rest: &'p str) -> Result<Option<(Ranges, &'p str)>, Fault> {
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

    /// `\pL`, `\p{Greek}`, `\P{^Lu}`.
    fn unicode_class(&self, rest: &'p str) -> Result<(Ranges, &'p str), Fault> {
        let mut negated = rest.starts_with("\\P");
        let inner = skip(rest, 2);
        let (name, after) = match inner.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or_else(|| Code::CharRange.of(rest))?,
            None => inner.split_at(inner.chars().next().map_or(0, char::len_utf8)),
        };
        let (name, inverse) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        negated ^= inverse;
        let Some(class) = unicode::class(name) else {
            return Err(Code::CharRange.of(until(rest, after)));
        };
        let mut ranges = class.ranges;
        if let Some(fold) = class.fold.filter(|_| self.flags.fold) {
            ranges.add_all(fold.as_slice());
            ranges = ranges.tidy();
        }
        Ok((if negated { ranges.negated() } else { ranges }, after))
    }
}

/// One character inside the brackets that begin with `whole`, and what is left.
fn class_character<'p>(whole: &str, rest: &'p str) -> Result<(u32, &'p str), Fault> {
    match rest.chars().next() {
        None => Err(Code::MissingBracket.of(whole)),
        Some('\\') => escape::character(rest),
        Some(character) => Ok((u32::from(character), skip(rest, character.len_utf8()))),
    }
}

/// The classes of POSIX, which are of ASCII.
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
