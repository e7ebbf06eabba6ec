//! Escapes of quoted texts.

/// `text` with the escapes of CEL, Go, JSON and Rust replaced by what they mean; `None` where there
/// are none. What is no escape stays.
pub(crate) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let (mut rest, mut is_any) = (text, false);
    while let Some(escape) = memchr::memchr(b'\\', rest) {
        let (before, after) = rest.split_at(escape);
        plain.extend_from_slice(before);
        let length = unescape(after.get(1..).unwrap_or_default(), &mut plain);
        is_any |= length > 0;
        if length == 0 {
            plain.push(b'\\');
        }
        rest = after.get(1 + length..).unwrap_or_default();
    }
    plain.extend_from_slice(rest);
    is_any.then_some(plain)
}

/// Writes what the escape means of which this comes after the `\`, and gives how many bytes it has;
/// 0 where it is none.
fn unescape(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let Some(letter) = escape.first() else { return 0 };
    let byte = match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'"' | b'\'' | b'`' | b'\\' | b'/' | b'?' => *letter,
        b'x' | b'X' => return write_byte(digits(escape, 1, 2, 16), plain),
        b'0' if digits(escape, 0, 3, 8).is_none() => 0,
        b'0'..=b'7' => return write_byte(digits(escape, 0, 3, 8), plain),
        b'u' if escape.get(1) == Some(&b'{') => return write_braced(escape, plain),
        b'u' => return write_utf16(escape, plain),
        b'U' => return write_character(digits(escape, 1, 8, 16), plain),
        _ => return 0,
    };
    plain.push(byte);
    1
}

/// The number that so many digits are, and where they end.
fn digits(escape: &[u8], from: usize, count: usize, radix: u32) -> Option<(u32, usize)> {
    let end = from + count;
    let digits = std::str::from_utf8(escape.get(from..end)?).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
    Some((number, end))
}

fn write_byte(found: Option<(u32, usize)>, plain: &mut Vec<u8>) -> usize {
    let Some((number, end)) = found else { return 0 };
    let Ok(byte) = u8::try_from(number) else { return 0 };
    plain.push(byte);
    end
}

fn write_character(found: Option<(u32, usize)>, plain: &mut Vec<u8>) -> usize {
    let Some((number, end)) = found else { return 0 };
    let Some(character) = char::from_u32(number) else {
        return 0;
    };
    plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    end
}

/// `u{7f}`.
fn write_braced(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let close = escape.iter().take(9).position(|byte| *byte == b'}');
    let found = close.and_then(|close| digits(escape, 2, close.checked_sub(2)?, 16));
    write_character(found.map(|(number, end)| (number, end + 1)), plain)
}

/// `u00e4`, or both halves of a surrogate pair.
fn write_utf16(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let Some((first, end)) = digits(escape, 1, 4, 16) else {
        return 0;
    };
    let second = || {
        let second = escape.get(end..)?.strip_prefix(b"\\u")?;
        digits(second, 0, 4, 16)
    };
    match (first, second()) {
        (0xd800..0xdc00, Some((second @ 0xdc00..0xe000, length))) => {
            let character = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            write_character(Some((character, end + 2 + length)), plain)
        }
        _ => write_character(Some((first, end)), plain),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_escape_is_what_it_stands_for() {
        let escaped = br#"\0\a\b\f\n\r\t\v\\\'\"\`\/\?\x41\101\u00e4\ud83d\ude00\U0001f600\u{7f}"#;
        let plain = "\0\u{7}\u{8}\u{c}\n\r\t\u{b}\\'\"`/?AAä😀😀\u{7f}";
        assert_eq!(unescaped(escaped).unwrap(), plain.as_bytes());
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [
            "",
            "plain",
            "\\",
            "\\q",
            "\\x4",
            "\\u12",
            "\\u{110000}",
            "\\u{}",
            "\\ud800",
            "\\800",
            "\\u+123",
        ] {
            assert_eq!(unescaped(text.as_bytes()), None, "{text}");
        }
        assert_eq!(unescaped(br"\q\n").unwrap(), b"\\q\n");
    }

    proptest! {
        #[test]
        fn what_json_and_rust_escape_is_found_again(text in "[^\0]*") {
            let json = serde_json::to_string(&text).unwrap();
            for quoted in [json, format!("{text:?}")] {
                let plain = unescaped(quoted.as_bytes()).unwrap_or(quoted.into_bytes());
                prop_assert_eq!(String::from_utf8(plain).unwrap(), format!("\"{text}\""));
            }
        }
    }
}
