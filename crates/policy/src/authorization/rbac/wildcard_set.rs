//! Verbs, API groups, and RBAC's resources: words, or `*` for all.

/// The words of a rule, any of which may be meant; a `*` among them is all
/// (`VerbMatches`, `APIGroupMatches` and `ResourceMatches` of
/// `pkg/apis/rbac/v1/evaluation_helpers.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WildcardSet {
    written: Vec<String>,
    is_all: bool,
}

impl WildcardSet {
    /// The word that is all of them.
    pub const ALL: &'static str = "*";

    /// Whether `*` is among them.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether there is none, which means nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Whether `word` is one of them. A requested `*` is only in a `*`.
    #[must_use]
    pub fn includes(&self, word: &str) -> bool {
        let mut written = self.written.iter();
        // The core group is empty, and to compare no bytes at no address is slow: see `Interner`.
        self.is_all
            || if word.is_empty() {
                written.any(String::is_empty)
            } else {
                written.any(|one| one == word)
            }
    }

    /// Whether `word` is one of them, or stands for all, and there is one.
    #[must_use]
    pub fn touches(&self, word: &str) -> bool {
        self.includes(word) || word == Self::ALL && !self.is_empty()
    }

    /// Whether it has every word that `other` has.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.written.iter().all(|word| self.includes(word))
    }

    /// Those that are not `*`.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let words = self.written.iter().map(String::as_str);
        words.filter(|word| *word != Self::ALL)
    }

    /// As written, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.written
    }
}

impl From<Vec<String>> for WildcardSet {
    fn from(written: Vec<String>) -> Self {
        let is_all = written.iter().any(|word| word == Self::ALL);
        Self { written, is_all }
    }
}

impl<W: Into<String>> FromIterator<W> for WildcardSet {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        words.into_iter().map(Into::into).collect::<Vec<String>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_all_and_a_requested_star_is_within_no_other() {
        let set = |words: &[&str]| words.iter().copied().collect::<WildcardSet>();
        for (words, word, includes, touches) in [
            (&["get", "list"][..], "list", true, true),
            (&["get"], "list", false, false),
            (&["get"], "*", false, true),
            (&["get"], "GET", false, false),
            (&["get", "*"], "list", true, true),
            (&["*"], "*", true, true),
            (&["**", "g*"], "get", false, false),
            (&[], "*", false, false),
            (&[], "", false, false),
            (&[""], "", true, true),
        ] {
            let set = set(words);
            assert_eq!(set.includes(word), includes, "{words:?} {word}");
            assert_eq!(set.touches(word), touches, "{words:?} {word}");
            assert_eq!(set.as_slice(), words);
        }
        assert!(set(&["*"]).covers(&set(&["get", "*"])) && set(&["a", "b"]).covers(&set(&["b"])));
        assert!(!set(&["get"]).covers(&set(&["*"])) && set(&[]).covers(&set(&[])));
    }
}
