//! Parses escapes.

use super::class::LAST;
use super::parser::{PatternFlags, PatternParser, StackEntry, skip, until};
use super::tree::{Look, PatternNode, PatternTree, Repeat};
use super::{CompileFault, RegexErrorKind, class};

impl<'p> PatternParser<'p, '_> {
    /// Parses an escape outside brackets. Returns the rest of the pattern.
    pub(crate) fn escaped(&mut self, rest: &'p str) -> Result<&'p str, CompileFault> {
        let after = skip(rest, 2);
        match rest.as_bytes().get(1) {
            Some(b'A') => return self.look(Look::TextStart, after),
            Some(b'z') => return self.look(Look::TextEnd, after),
            Some(b'b') => return self.look(Look::WordBoundary, after),
            Some(b'B') => return self.look(Look::NoWordBoundary, after),
            // A single byte, which Go does not support.
            Some(b'C') => return Err(RegexErrorKind::Escape.of(until(rest, after))),
            Some(b'Q') => return self.quoted(after),
            _ => {}
        }
        if let Some((ranges, after)) = self.escaped_class(rest)? {
            self.push_class(ranges)?;
            return Ok(after);
        }
        let (code, after) = character(rest)?;
        self.literal_code(code)?;
        Ok(after)
    }

    /// Parses `\Q…\E`, between which every character is literal.
    fn quoted(&mut self, text: &'p str) -> Result<&'p str, CompileFault> {
        let (quoted, after) = text.split_once("\\E").unwrap_or((text, ""));
        for character in quoted.chars() {
            self.charge_steps(1)?;
            self.literal(character)?;
        }
        Ok(after)
    }
}

/// The code of the character that an escape stands for, which may be a surrogate, and the rest of
/// the pattern.
pub(crate) fn character(rest: &str) -> Result<(u32, &str), CompileFault> {
    let mut characters = rest.chars();
    characters.next();
    let Some(escaped) = characters.next() else {
        return Err(RegexErrorKind::TrailingBackslash.of(""));
    };
    let after = characters.as_str();
    let code = match escaped {
        '1'..='7' if !after.starts_with(is_octal) => None,
        '0'..='7' => return Ok(octal(escaped, after)),
        'x' => return hexadecimal(rest, after),
        'a' => Some(7),
        'f' => Some(0xC),
        'n' => Some(0xA),
        'r' => Some(0xD),
        't' => Some(9),
        'v' => Some(0xB),
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => Some(u32::from(other)),
        _ => None,
    };
    match code {
        Some(code) => Ok((code, after)),
        None => Err(RegexErrorKind::Escape.of(until(rest, after))),
    }
}

const fn is_octal(character: char) -> bool {
    matches!(character, '0'..='7')
}

/// Parses up to three octal digits, of which `first` is the first.
fn octal(first: char, after: &str) -> (u32, &str) {
    let more = after.bytes().take(2).take_while(u8::is_ascii_digit);
    let more = more.take_while(|digit| *digit < b'8').count();
    let digits = std::iter::once(first).chain(after.chars().take(more));
    let code = digits.fold(0, |code, digit| code * 8 + digit.to_digit(8).unwrap_or_default());
    (code, skip(after, more))
}

/// Parses `\x41` or `\x{41}`; `after` is the rest after the `x`.
fn hexadecimal<'p>(rest: &'p str, after: &'p str) -> Result<(u32, &'p str), CompileFault> {
    let mut characters = after.chars();
    let refused = |left: &str| RegexErrorKind::Escape.of(until(rest, left));
    let Some(first) = characters.next() else {
        return Err(refused(""));
    };
    if first != '{' {
        let second = characters.next();
        let left = characters.as_str();
        return match (first.to_digit(16), second.and_then(|second| second.to_digit(16))) {
            (Some(first), Some(second)) => Ok((first * 16 + second, left)),
            _ => Err(refused(left)),
        };
    }
    let mut code = None;
    while let Some(next) = characters.next() {
        let left = characters.as_str();
        if next == '}' {
            return code.map(|code| (code, left)).ok_or_else(|| refused(left));
        }
        let digit = next.to_digit(16).ok_or_else(|| refused(left))?;
        let longer = code.unwrap_or(0) * 16 + digit;
        if longer > LAST {
            return Err(refused(left));
        }
        code = Some(longer);
    }
    Err(refused(""))
}

// Parses groups that begin with `(?`: named groups, flags, non-capturing groups.

impl<'p> PatternParser<'p, '_> {
    /// Parses the beginning of a group, `(?…`. Returns the rest of the pattern.
    pub(crate) fn group(&mut self, rest: &'p str) -> Result<&'p str, CompileFault> {
        let python = rest.starts_with("(?P<") && rest.len() > 4;
        let perl = rest.starts_with("(?<") && rest.len() > 3;
        if python || perl {
            return self.named(rest, if perl { 3 } else { 4 });
        }
        self.flagged(rest)
    }

    /// Parses `(?P<name>` or `(?<name>`, whose name begins at `start`.
    fn named(&mut self, rest: &'p str, start: usize) -> Result<&'p str, CompileFault> {
        let Some(end) = rest.find('>') else {
            return Err(RegexErrorKind::NamedCapture.of(rest));
        };
        let name = rest.get(start..end).unwrap_or_default();
        let after = skip(rest, end + 1);
        let word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(word) {
            return Err(RegexErrorKind::NamedCapture.of(until(rest, after)));
        }
        self.charge_steps(end)?;
        self.open(true)?;
        Ok(after)
    }

    /// Parses `(?i)`, `(?i-s:` and the like.
    fn flagged(&mut self, rest: &'p str) -> Result<&'p str, CompileFault> {
        let mut flags = self.flags;
        let mut off = false;
        // Whether there was a flag since the start or the minus.
        let mut any = false;
        let mut characters = skip(rest, 2).chars();
        while let Some(character) = characters.next() {
            match character {
                'i' | 'm' | 's' | 'U' => {
                    *flag(&mut flags, character) = !off;
                    any = true;
                }
                '-' if !off => (off, any) = (true, false),
                ':' | ')' if any || !off => {
                    if character == ':' {
                        self.open(false)?;
                    }
                    self.flags = flags;
                    return Ok(characters.as_str());
                }
                _ => return Err(RegexErrorKind::PerlSyntax.of(until(rest, characters.as_str()))),
            }
        }
        Err(RegexErrorKind::PerlSyntax.of(rest))
    }
}

const fn flag(flags: &mut PatternFlags, named: char) -> &mut bool {
    match named {
        'i' => &mut flags.fold,
        'm' => &mut flags.lines,
        's' => &mut flags.dot_all,
        _ => &mut flags.lazy,
    }
}

// Pushes characters, and joins adjacent ones into one literal.

impl PatternParser<'_, '_> {
    pub(crate) fn literal(&mut self, character: char) -> Result<(), CompileFault> {
        self.literal_code(u32::from(character))
    }

    /// Pushes a character by its code, which may be a surrogate.
    pub(crate) fn literal_code(&mut self, code: u32) -> Result<(), CompileFault> {
        let smallest = || class::orbit(code).iter().copied().min();
        let code = if self.flags.fold { smallest() } else { None }.unwrap_or(code);
        self.push(PatternTree::new(PatternNode::Literal(vec![code], self.flags)))
    }

    /// Pushes a tree on the stack. A class of one character, or of the two cases of one, becomes a
    /// literal.
    pub(crate) fn push(&mut self, mut tree: PatternTree) -> Result<(), CompileFault> {
        self.charge_ranges(tree.weight())?;
        if let Some(literal) = self.as_literal(&tree) {
            if self.merge_literals(Some(literal)) {
                return Ok(());
            }
            tree = PatternTree::new(PatternNode::Literal(vec![literal.0], literal.1));
        } else {
            self.merge_literals(None);
        }
        self.check(&tree)?;
        self.stack.push(StackEntry::Tree(tree));
        Ok(())
    }

    fn as_literal(&self, tree: &PatternTree) -> Option<(u32, PatternFlags)> {
        let PatternNode::Class(ranges) = &tree.node else {
            return None;
        };
        let with = |fold| PatternFlags { fold, ..self.flags };
        let pair = |first, second| {
            let orbit = class::orbit(first);
            orbit.len() == 2 && orbit.contains(&second)
        };
        match ranges.as_slice() {
            [(low, high)] if low == high => Some((*low, with(false))),
            [(low, high)] if low + 1 == *high && pair(*low, *high) => Some((*low, with(true))),
            [(one, same), (other, also)] if one == same && other == also && pair(*one, *other) => {
                Some((*one, with(true)))
            }
            _ => None,
        }
    }

    /// If the two topmost trees are literals, joins them into one. `next` then replaces the second
    /// one. Returns whether it did.
    pub(crate) fn merge_literals(&mut self, next: Option<(u32, PatternFlags)>) -> bool {
        let [.., StackEntry::Tree(below), StackEntry::Tree(top)] = self.stack.as_mut_slice() else {
            return false;
        };
        let (PatternNode::Literal(text, flags), PatternNode::Literal(more, other)) =
            (&mut below.node, &mut top.node)
        else {
            return false;
        };
        if flags.fold != other.fold {
            return false;
        }
        text.append(more);
        below.measure();
        match next {
            Some((character, flags)) => {
                *top = PatternTree::new(PatternNode::Literal(vec![character], flags));
                true
            }
            None => {
                self.stack.pop();
                false
            }
        }
    }
}

// Parses repetitions: `*`, `+`, `?`, `{2,3}`.

impl<'p> PatternParser<'p, '_> {
    pub(crate) fn counted(
        &mut self,
        bounds: (Option<u32>, Option<Option<u32>>),
        rest: &'p str,
        after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), CompileFault> {
        let refused = || RegexErrorKind::RepeatCount.of(until(rest, after));
        let (Some(min), Some(max)) = bounds else {
            return Err(refused());
        };
        if min > 1000 || max.is_some_and(|max| max > 1000 || max < min) {
            return Err(refused());
        }
        let repeat = Repeat {
            min,
            max,
            lazy: false,
            counted: true,
        };
        self.repeat(repeat, rest, after, repeated)
    }

    /// Repeats the topmost tree of the stack.
    pub(crate) fn repeat(
        &mut self,
        repeat: Repeat,
        rest: &'p str,
        mut after: &'p str,
        repeated: Option<&'p str>,
    ) -> Result<(&'p str, Option<&'p str>), CompileFault> {
        let other = after.strip_prefix('?');
        after = other.unwrap_or(after);
        if let Some(repeated) = repeated {
            return Err(RegexErrorKind::NestedRepetition.of(until(repeated, after)));
        }
        let Some(StackEntry::Tree(inner)) = self.stack.pop_if(|entry| matches!(entry, StackEntry::Tree(_)))
        else {
            return Err(RegexErrorKind::MissingArgument.of(until(rest, after)));
        };
        let repeat = Repeat {
            lazy: self.flags.lazy != other.is_some(),
            ..repeat
        };
        let tree = PatternTree::new(PatternNode::Repeat(repeat, Box::new(inner)));
        self.check(&tree)?;
        let several = repeat.min >= 2 || repeat.max.is_some_and(|max| max >= 2);
        if several && !tree.repeats_within(1000) {
            return Err(RegexErrorKind::RepeatCount.of(until(rest, after)));
        }
        self.stack.push(StackEntry::Tree(tree));
        Ok((after, Some(rest)))
    }
}

/// Parses the bounds of a count (`2}`, `2,}`, `2,3}`), and returns them with the rest. The outer
/// `None` means that this is not a count but literal text; a bound of `None`, that the number is
/// too large; and `Some(None)`, that there is no upper bound.
#[expect(
    clippy::type_complexity,
    reason = "two bounds, the second of which may be open"
)]
pub(crate) fn count(text: &str) -> Option<((Option<u32>, Option<Option<u32>>), &str)> {
    let (min, rest) = integer(text)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((min, min.map(Some)), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some(((min, Some(None)), rest));
    }
    let (max, rest) = integer(rest)?;
    Some(((min, max.map(Some)), rest.strip_prefix('}')?))
}

/// Parses a number without leading zeros, which is `None` if it is too large.
fn integer(text: &str) -> Option<(Option<u32>, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if number.is_empty() || number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((number.parse().ok(), rest))
}
