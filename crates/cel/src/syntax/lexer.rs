//! Splits an expression into tokens.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    End,
    Ident,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    /// An operator or bracket.
    Sign(&'static str),
}

/// Longer ones come first.
const SIGNS: [&str; 28] = [
    "==", "!=", "<=", ">=", "&&", "||", "in", "<", ">", "!", "-", "+", "*", "/", "%", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "=", "&", "|",
];

pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

/// A token and its range of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpannedToken {
    pub(crate) token: Token,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl<'t> Lexer<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token, or the position of an error and its message.
    pub(crate) fn next(&mut self) -> Result<SpannedToken, (usize, String)> {
        self.skip_blanks();
        let from = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(SpannedToken {
                token: Token::End,
                from,
                to: from,
            });
        };
        let (token, length) = match first {
            '0'..='9' => number(rest),
            '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => number(rest),
            '"' | '\'' => (
                Token::String,
                quoted(rest, 0, false).ok_or_else(|| unterminated(from))?,
            ),
            'a'..='z' | 'A'..='Z' | '_' => word(rest, from)?,
            _ => sign(rest).ok_or_else(|| {
                (
                    from,
                    format!("Syntax error: token recognition error at: '{first}'"),
                )
            })?,
        };
        self.at += length;
        Ok(SpannedToken {
            token,
            from,
            to: self.at,
        })
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest
                .bytes()
                .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c));
            self.at += blanks.count();
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }
}

fn unterminated(at: usize) -> (usize, String) {
    (
        at,
        "Syntax error: token recognition error: unterminated string".into(),
    )
}

fn sign(rest: &str) -> Option<(Token, usize)> {
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
    let known = !matches!(*sign, "=" | "&" | "|");
    known.then_some((Token::Sign(sign), sign.len()))
}

/// Reads a name, a keyword, or a string or bytes literal with a prefix.
fn word(rest: &str, from: usize) -> Result<(Token, usize), (usize, String)> {
    let bytes = rest.as_bytes();
    let lower = |at: usize| bytes.get(at).map(u8::to_ascii_lowercase);
    let quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
    let prefix = match (lower(0), lower(1)) {
        (Some(b'b'), Some(b'r')) if quote(2) => Some((Token::Bytes, 2, true)),
        (Some(b'b'), _) if quote(1) => Some((Token::Bytes, 1, false)),
        (Some(b'r'), _) if quote(1) => Some((Token::String, 1, true)),
        _ => None,
    };
    if let Some((token, length, raw)) = prefix {
        return Ok((
            token,
            quoted(rest, length, raw).ok_or_else(|| unterminated(from))?,
        ));
    }
    let length = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let token = if rest.get(..length) == Some("in") {
        Token::Sign("in")
    } else {
        Token::Ident
    };
    Ok((token, length))
}

/// The length of the literal at the start of `rest`, including its prefix and quotes; `None` if it
/// has no end.
fn quoted(rest: &str, prefix: usize, raw: bool) -> Option<usize> {
    let bytes = rest.as_bytes();
    let quote = *bytes.get(prefix)?;
    let triple = bytes.get(prefix..prefix + 3) == Some(&[quote; 3]);
    let mut at = prefix + if triple { 3 } else { 1 };
    loop {
        let byte = *bytes.get(at)?;
        if byte == b'\\' && !raw {
            at += 2;
            continue;
        }
        if triple && bytes.get(at..at + 3) == Some(&[quote; 3]) {
            return Some(at + 3);
        }
        if !triple && byte == quote {
            return Some(at + 1);
        }
        if !triple && matches!(byte, b'\n' | b'\r') {
            return None;
        }
        at += 1;
    }
}

fn number(rest: &str) -> (Token, usize) {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        bytes
            .iter()
            .skip(from)
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let suffixed = |length: usize| match bytes.get(length) {
        Some(b'u' | b'U') => (Token::Uint, length + 1),
        _ => (Token::Int, length),
    };
    if rest.starts_with("0x") {
        let hex = bytes
            .iter()
            .skip(2)
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if hex > 0 {
            return suffixed(2 + hex);
        }
    }
    let mut length = digits(0);
    let mut double = false;
    if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
        double = true;
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            double = true;
            length += 1 + sign + exponent;
        }
    }
    if double {
        (Token::Double, length)
    } else {
        suffixed(length)
    }
}

// String and bytes literals: escapes and quotes.

/// The value of a string literal, which is given with its quotes and prefix.
pub(crate) fn string(literal: &str) -> Result<String, String> {
    let (body, raw) = body(literal);
    if raw {
        return Ok(body);
    }
    let mut text = String::with_capacity(body.len());
    for unit in Units(body.chars()) {
        text.push(match unit? {
            Unit::Char(unit) | Unit::Escape(unit) => unit,
            Unit::Code(code) => char::from_u32(code).ok_or("invalid unicode code point")?,
        });
    }
    Ok(text)
}

/// The value of a bytes literal, which is given with its quotes and prefix.
pub(crate) fn bytes(literal: &str) -> Result<Vec<u8>, String> {
    let (body, raw) = body(literal.get(1..).unwrap_or_default());
    if raw {
        return Ok(body.into_bytes());
    }
    let mut bytes = Vec::with_capacity(body.len());
    for unit in Units(body.chars()) {
        match unit? {
            Unit::Char(unit) => bytes.extend(unit.encode_utf8(&mut [0; 4]).bytes()),
            Unit::Code(code) => bytes.push(u8::try_from(code).map_err(|_| "unable to unescape string")?),
            Unit::Escape(unit) => bytes.push(u8::try_from(unit).map_err(|_| "unable to unescape string")?),
        }
    }
    Ok(bytes)
}

/// The text between the quotes, and whether the literal is raw.
fn body(literal: &str) -> (String, bool) {
    let raw = literal.starts_with(['r', 'R']);
    let quoted = if raw {
        literal.get(1..).unwrap_or_default()
    } else {
        literal
    };
    let triple = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let quote = if triple { 3 } else { 1 };
    let body = quoted.get(quote..quoted.len() - quote).unwrap_or_default();
    (body.replace("\r\n", "\n").replace('\r', "\n"), raw)
}

enum Unit {
    /// A character written as itself.
    Char(char),
    /// A character written as an escape such as `\n`.
    Escape(char),
    /// A character or byte written as a number.
    Code(u32),
}

struct Units<'t>(std::str::Chars<'t>);

impl Units<'_> {
    fn escape(&mut self) -> Result<Unit, String> {
        let escaped = self
            .0
            .next()
            .ok_or("unable to unescape string, found '\\' as last character")?;
        Ok(match escaped {
            'a' => Unit::Escape('\u{7}'),
            'b' => Unit::Escape('\u{8}'),
            'f' => Unit::Escape('\u{c}'),
            'n' => Unit::Escape('\n'),
            'r' => Unit::Escape('\r'),
            't' => Unit::Escape('\t'),
            'v' => Unit::Escape('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => Unit::Escape(escaped),
            'x' | 'X' => Unit::Code(self.code(2, 16, 0)?),
            'u' => Unit::Code(self.code(4, 16, 0)?),
            'U' => Unit::Code(self.code(8, 16, 0)?),
            '0'..='3' => Unit::Code(self.code(2, 8, escaped.to_digit(8).unwrap_or_default())?),
            _ => return Err("unable to unescape string".into()),
        })
    }

    fn code(&mut self, digits: usize, base: u32, start: u32) -> Result<u32, String> {
        (0..digits).try_fold(start, |code, _| {
            let digit = self.0.next().and_then(|digit| digit.to_digit(base));
            digit
                .map(|digit| code.wrapping_mul(base) + digit)
                .ok_or_else(|| "unable to unescape string".into())
        })
    }
}

impl Iterator for Units<'_> {
    type Item = Result<Unit, String>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.next()? {
            '\\' => Some(self.escape()),
            unit => Some(Ok(Unit::Char(unit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_characters() {
        let cases = [
            (r#""a\tb""#, "a\tb"),
            (r"'\x41\101\u00e9\U0001F431\\\''", "AAé🐱\\'"),
            (r"r'\d'", r"\d"),
            ("'''a'b\r\nc'''", "a'b\nc"),
        ];
        for (literal, text) in cases {
            assert_eq!(string(literal).as_deref(), Ok(text), "{literal}");
        }
        assert!(string(r"'\ud800'").is_err());
        assert!(string(r"'\q'").is_err());
    }

    #[test]
    fn escapes_are_bytes() {
        assert_eq!(bytes(r"b'\xff\376é'"), Ok(vec![0xff, 0xfe, 0xc3, 0xa9]));
        assert_eq!(bytes(r"br'\x'"), Ok(br"\x".to_vec()));
        assert!(bytes(r"b'\u0100'").is_err());
    }
}
