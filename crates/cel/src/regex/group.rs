//! Groups that begin with `(?`: named groups, flags, non-capturing groups.

use super::error::{Code, Fault};
use super::parser::{Flags, Parser, skip, until};

impl<'p> Parser<'p, '_> {
    /// Reads what begins with `(?`; gives what is left.
    pub(crate) fn group(&mut self, rest: &'p str) -> Result<&'p str, Fault> {
        let python = rest.starts_with("(?P<") && rest.len() > 4;
        let perl = rest.starts_with("(?<") && rest.len() > 3;
        if python || perl {
            return self.named(rest, if perl { 3 } else { 4 });
        }
        self.flagged(rest)
    }

    /// `(?P<name>` or `(?<name>`, whose name begins at `start`.
    fn named(&mut self, rest: &'p str, start: usize) -> Result<&'p str, Fault> {
        let Some(end) = rest.find('>') else {
            return Err(Code::NamedCapture.of(rest));
        };
        let name = rest.get(start..end).unwrap_or_default();
        let after = skip(rest, end + 1);
        let word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(word) {
            return Err(Code::NamedCapture.of(until(rest, after)));
        }
        self.work(end)?;
        self.open(true)?;
        Ok(after)
    }

    /// `(?i)`, `(?i-s:` and the like.
    fn flagged(&mut self, rest: &'p str) -> Result<&'p str, Fault> {
        let mut flags = self.flags;
        let mut off = false;
        // Whether a flag has come since the start or the minus.
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
                _ => return Err(Code::PerlSyntax.of(until(rest, characters.as_str()))),
            }
        }
        Err(Code::PerlSyntax.of(rest))
    }
}

const fn flag(flags: &mut Flags, named: char) -> &mut bool {
    match named {
        'i' => &mut flags.fold,
        'm' => &mut flags.lines,
        's' => &mut flags.dot_all,
        _ => &mut flags.lazy,
    }
}
