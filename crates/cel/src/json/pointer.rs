//! JSON Pointers (RFC 6901): `/metadata/labels/example.com~1team`.

use std::borrow::Cow;

/// The steps of a pointer; `None` if it is neither empty nor begins with `/`.
#[must_use]
pub fn steps(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    Some(pointer.strip_prefix('/')?.split('/').map(unescape).collect())
}

/// The index that a step names: decimal, no sign, no leading zero.
#[must_use]
pub fn index(step: &str) -> Option<usize> {
    let canonical = step == "0" || (!step.starts_with('0') && step.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { step.parse().ok() } else { None }
}

/// A key as one step of a pointer: `~` becomes `~0`, `/` becomes `~1`.
#[must_use]
pub fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        key.replace('~', "~0").replace('/', "~1").into()
    } else {
        key.into()
    }
}

fn unescape(step: &str) -> Cow<'_, str> {
    // `~1` first, else `~01` would become `/` instead of `~1`.
    if step.contains('~') {
        step.replace("~1", "/").replace("~0", "~").into()
    } else {
        step.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_unescaped() {
        assert_eq!(steps(""), Some(vec![]));
        assert_eq!(steps("/"), Some(vec!["".into()]));
        assert_eq!(
            steps("/a~1b/~01/c"),
            Some(vec!["a/b".into(), "~1".into(), "c".into()])
        );
        assert_eq!(steps("a"), None);
        assert_eq!(escape("a/~b"), "a~1~0b");
    }

    #[test]
    fn an_index_is_canonical() {
        for (step, expected) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("01", None),
            ("-1", None),
            ("+1", None),
        ] {
            assert_eq!(index(step), expected, "{step}");
        }
        assert_eq!(index(""), None);
        assert_eq!(index("99999999999999999999999"), None);
    }
}
