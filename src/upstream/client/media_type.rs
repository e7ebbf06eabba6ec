//! `Content-Type` of a reply. Its value does not matter, only whether Go could parse it
//! (`mime.ParseMediaType`); client-go rejects the reply otherwise.

use std::collections::BTreeSet;

/// Whether `text` is a media type, such as `application/json; charset=utf-8`.
pub(crate) fn is_sound(text: &str) -> bool {
    let (base, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
    if !is_type(base.trim()) {
        return false;
    }
    let mut names = BTreeSet::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.trim_end() == ";" {
            return true;
        }
        let Some((name, after)) = parameter(rest) else {
            return false;
        };
        if !names.insert(name.to_ascii_lowercase()) {
            return false;
        }
        rest = after;
    }
}

/// A token, or two with a slash between them.
fn is_type(text: &str) -> bool {
    let (kind, rest) = token(text);
    let subtype = rest.strip_prefix('/').map(token);
    !kind.is_empty()
        && match subtype {
            None => rest.is_empty(),
            Some((subtype, rest)) => !subtype.is_empty() && rest.is_empty(),
        }
}

/// The name of `; name=value`, and what follows it.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let after = match rest.strip_prefix('"') {
        Some(quoted) => quoted_end(quoted)?,
        None => Some(token(rest)).filter(|(value, _)| !value.is_empty())?.1,
    };
    (!name.is_empty()).then_some((name, after))
}

/// What follows the quote that ends a text.
fn quoted_end(text: &str) -> Option<&str> {
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return text.get(place + 1..),
            '\\' => drop(characters.next()),
            '\r' | '\n' => return None,
            _ => {}
        }
    }
    None
}

/// The token that `text` begins with, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let is_part = |character: char| character.is_ascii_graphic() && !r#"()<>@,;:\"/[]?="#.contains(character);
    let end = text.find(|character| !is_part(character)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads_is_sound() {
        for text in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "text/plain;charset=\"utf-8; x\" ; q=1",
            "text",
            " text/plain ;",
            "a/b; c=\"\\\"\"",
            "a/b; c=\"\"",
        ] {
            assert!(is_sound(text), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_not() {
        for text in [
            "",
            "; ; =x",
            "application/json; ; =x",
            "application/",
            "/json",
            "a/b/c",
            "a b/c",
            "a/b; c",
            "a/b; c=",
            "a/b; =d",
            "a/b; c=\"d",
            "a/b; c=d; C=e",
            "a/b, c/d",
        ] {
            assert!(!is_sound(text), "{text}");
        }
    }
}
