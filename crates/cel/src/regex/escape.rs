//! Escapes: characters after a backslash.

use super::error::{Code, Fault};
use super::parser::{Parser, skip, until};
use super::ranges::LAST;
use super::tree::Look;

impl<'p> Parser<'p, '_> {
    /// Reads what begins with a backslash, outside brackets; gives what is left.
    pub(crate) fn escaped(&mut self, rest: &'p str) -> Result<&'p str, Fault> {
        let after = skip(rest, 2);
        match rest.as_bytes().get(1) {
            Some(b'A') => return self.look(Look::TextStart, after),
            Some(b'z') => return self.look(Look::TextEnd, after),
            Some(b'b') => return self.look(Look::WordBoundary, after),
            Some(b'B') => return self.look(Look::NoWordBoundary, after),
            // Any byte: Go takes none of a character's.
            Some(b'C') => return Err(Code::Escape.of(until(rest, after))),
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

    /// `\Q…\E`: everything up to the end stands for itself.
    fn quoted(&mut self, text: &'p str) -> Result<&'p str, Fault> {
        let (quoted, after) = text.split_once("\\E").unwrap_or((text, ""));
        for character in quoted.chars() {
            self.work(1)?;
            self.literal(character)?;
        }
        Ok(after)
    }
}

/// The character that an escape stands for, which may be the number of a
/// surrogate, and what is left.
pub(crate) fn character(rest: &str) -> Result<(u32, &str), Fault> {
    let mut characters = rest.chars();
    characters.next();
    let Some(escaped) = characters.next() else {
        return Err(Code::TrailingBackslash.of(""));
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
        None => Err(Code::Escape.of(until(rest, after))),
    }
}

const fn is_octal(character: char) -> bool {
    matches!(character, '0'..='7')
}

/// Up to three octal digits, the first of which is `first`.
fn octal(first: char, after: &str) -> (u32, &str) {
    let more = after.bytes().take(2).take_while(u8::is_ascii_digit);
    let more = more.take_while(|digit| *digit < b'8').count();
    let digits = std::iter::once(first).chain(after.chars().take(more));
    let code = digits.fold(0, |code, digit| code * 8 + digit.to_digit(8).unwrap_or_default());
    (code, skip(after, more))
}

/// `\x41` or `\x{41}`; `after` is what follows the x.
fn hexadecimal<'p>(rest: &'p str, after: &'p str) -> Result<(u32, &'p str), Fault> {
    let mut characters = after.chars();
    let refused = |left: &str| Code::Escape.of(until(rest, left));
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
