//! Namespaces of rules: `""`, `team-a`, `team-*`.

use std::fmt;

/// Which requests a rule means by their namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamespacePattern {
    /// `""`: those without namespace.
    Without,
    /// Those in this one.
    Named(String),
    /// `team-*`: those in one that begins so; `*`, without text, those in any.
    Prefix(String),
}

impl NamespacePattern {
    /// Whether the namespace of a request is one that this stands for; empty for none.
    #[must_use]
    pub fn matches(&self, namespace: &str) -> bool {
        match self {
            Self::Without => namespace.is_empty(),
            Self::Named(name) => name == namespace,
            Self::Prefix(prefix) => !namespace.is_empty() && namespace.starts_with(prefix),
        }
    }

    /// Whether it stands for all that `other` stands for.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(prefix), Self::Named(text) | Self::Prefix(text)) => text.starts_with(prefix),
            _ => self == other,
        }
    }
}

impl From<&str> for NamespacePattern {
    fn from(written: &str) -> Self {
        Self::from(written.to_owned())
    }
}

impl From<String> for NamespacePattern {
    fn from(mut text: String) -> Self {
        if text.is_empty() {
            Self::Without
        } else if text.ends_with('*') {
            text.pop();
            Self::Prefix(text)
        } else {
            Self::Named(text)
        }
    }
}

/// As it is written.
impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Without => Ok(()),
            Self::Named(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_is_none_of_those_that_begin_with_anything() {
        for (pattern, matches, others) in [
            ("", &[""][..], &["a", "*"][..]),
            ("*", &["a", "*"], &[""]),
            ("a", &["a"], &["", "ab", "A"]),
            ("team-*", &["team-", "team-a"], &["", "team", "a-team-a"]),
            ("a**", &["a*", "a*b"], &["a", "ab"]),
        ] {
            let read = NamespacePattern::from(pattern);
            assert_eq!(read.to_string(), pattern);
            assert!(matches.iter().all(|one| read.matches(one)), "{pattern}");
            assert!(!others.iter().any(|one| read.matches(one)), "{pattern}");
        }
        let covers =
            |wide: &str, narrow: &str| NamespacePattern::from(wide).covers(&NamespacePattern::from(narrow));
        assert!(covers("*", "a") && covers("a*", "ab*") && covers("", "") && covers("a", "a"));
        assert!(!covers("*", "") && !covers("ab*", "a*") && !covers("a", "a*") && !covers("", "a"));
    }
}
