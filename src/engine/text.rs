//! Texts for people: cut to size.

/// Cuts `text` to at most `limit` bytes between characters; what is cut ends in `…`.
pub(super) fn cut(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
