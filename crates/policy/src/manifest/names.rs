//! The syntaxes of Kubernetes' names, as API validation checks them
//! (`apimachinery/pkg/util/validation/validation.go` and `pkg/api/validate/content`).
//!
//! Each function answers what the text breaks: `Err` holds the rule in words.

use crate::engine::is_label_key;

/// The outcome of a check: the rule that the text breaks.
pub(crate) type Syntax = Result<(), &'static str>;

const SUBDOMAIN: &str = "must be a DNS subdomain: at most 253 of a-z, 0-9, `-` and `.`, each part beginning \
                         and ending with a letter or digit";
const LABEL: &str =
    "must be a DNS label: at most 63 of a-z, 0-9 and `-`, beginning and ending with a letter or digit";
const LABEL_1035: &str = "must be a DNS label: at most 63 of a-z, 0-9 and `-`, beginning with a letter and ending with a letter or digit";
const QUALIFIED: &str = "must be a qualified name: an optional DNS subdomain and `/`, then at most 63 of \
                         A-Z, a-z, 0-9, `-`, `_` and `.`, beginning and ending with a letter or digit";

/// A name of most objects (`IsDNS1123Subdomain`).
pub fn dns_subdomain(text: &str) -> Syntax {
    let valid = text.len() <= 253 && text.split('.').all(|part| dns_part(part, usize::MAX));
    valid.then_some(()).ok_or(SUBDOMAIN)
}

/// A name of a Namespace (`IsDNS1123Label`).
pub(crate) fn dns_label(text: &str) -> Syntax {
    dns_part(text, 63).then_some(()).ok_or(LABEL)
}

/// An API version, or a kind in lower case (`IsDNS1035Label`).
pub(crate) fn dns_1035_label(text: &str) -> Syntax {
    let begins_with_letter = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    (begins_with_letter && dns_part(text, 63))
        .then_some(())
        .ok_or(LABEL_1035)
}

/// A name of an RBAC object: whatever fits into one segment of a URL's path (`IsPathSegmentName`).
pub(crate) fn path_segment(text: &str) -> Syntax {
    match text {
        "." | ".." => Err("must not be `.` or `..`"),
        _ if text.contains(['/', '%']) => Err("must not contain `/` or `%`"),
        _ => Ok(()),
    }
}

/// An annotation key, or the name of a condition (`IsQualifiedName`).
pub(crate) fn qualified_name(text: &str) -> Syntax {
    is_label_key(text).then_some(()).ok_or(QUALIFIED)
}

fn dns_part(part: &str, longest: usize) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    spelled(part, longest, edge, |byte| edge(byte) || *byte == b'-')
}

fn spelled(text: &str, longest: usize, edge: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(&edge)
        && bytes.last().is_some_and(&edge)
        && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str) -> Syntax, valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert_eq!(check(text), Ok(()), "`{text}` should be accepted");
        }
        for text in invalid {
            assert!(check(text).is_err(), "`{text}` should be refused");
        }
    }

    #[test]
    fn subdomains() {
        let long = "a".repeat(254);
        table(
            dns_subdomain,
            &["a", "a-b.c0", "1.2.3"],
            &["", "A", "a_b", "-a", "a.", "a..b", "a b", &long],
        );
        assert_eq!(dns_subdomain(&"a".repeat(253)), Ok(()));
    }

    #[test]
    fn labels() {
        let long = "a".repeat(64);
        table(
            dns_label,
            &["default", "0", "a-1"],
            &["", "a.b", "a-", "é", &long],
        );
    }

    #[test]
    fn path_segments() {
        table(
            path_segment,
            &["system:node", "a b", "Ä", "..."],
            &[".", "..", "a/b", "50%"],
        );
    }

    #[test]
    fn qualified_names() {
        let long = "a".repeat(64);
        table(
            qualified_name,
            &[
                "app",
                "A_b.c",
                "example.com/app",
                "rbac.example.com/aggregate-to-view",
            ],
            &[
                "",
                "/app",
                "example.com/",
                "a/b/c",
                "Example.com/app",
                "-a",
                &long,
            ],
        );
    }
}
