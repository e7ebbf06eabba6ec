//! String and bytes literals: escapes and quotes.

/// The text of a string literal, quotes and prefix included.
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

/// The bytes of a bytes literal, quotes and prefix included.
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

/// What stands between the quotes, and whether it is raw.
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
    /// A character as it stands.
    Char(char),
    /// A character written as `\n` and its like.
    Escape(char),
    /// A character or byte by its number.
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
