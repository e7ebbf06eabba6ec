//! Truncation of texts, between characters.

use std::borrow::Cow;

/// `text`, or as much of it as fits `limit` bytes without cutting a character.
#[must_use]
pub fn truncate(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

/// `text`, or as much of it as fits `limit` bytes, followed by `…`.
#[must_use]
pub fn truncate_with_mark(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", truncate(text, limit)))
}

/// Cuts `text` to at most `limit` bytes between characters; what is cut ends in `…`.
pub fn cut(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        let end = truncate(&text, limit.saturating_sub(MARK.len())).len();
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_between_characters() {
        assert_eq!(truncate("aé", 2), "a");
        assert_eq!(truncate("aé", 3), "aé");
        assert_eq!(truncate("", 3), "");
        assert_eq!(truncate_with_mark("aé", 3), "aé");
        assert_eq!(truncate_with_mark("aé", 2), "a…");
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut("abc".to_owned(), 3), "abc");
        assert_eq!(cut("abcdef".to_owned(), 5), "ab…");
        for limit in 3..12 {
            let text = cut("ääääääää".to_owned(), limit);
            assert!(text.len() <= limit && text.ends_with('…'), "{limit} {text}");
        }
    }
}
