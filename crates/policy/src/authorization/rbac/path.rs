//! Non-resource paths, of rules and of `--authorization-always-allow-paths`; and sets of words with
//! `*`.

use std::fmt;

/// One of a rule's `nonResourceURLs`: a path, or a prefix if it ends in `*`. Paths are not
/// normalised (`NonResourceURLMatches` of `pkg/apis/rbac/v1/evaluation_helpers.go`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// The path or prefix, without the trailing stars.
    text: String,
    /// The number of trailing stars: 0 for an exact path, and any other number for a prefix.
    stars: usize,
}

/// Paths in the form of kube-apiserver's `--authorization-always-allow-paths`: exact, or a prefix
/// if the path ends in `*`. A leading `/` is ignored (`apiserver/pkg/authorization/path/path.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlwaysAllowPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

/// A path contains a `*` that is not at its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`*` is allowed only at the end in `{0}`")]
pub struct InvalidPath(pub String);

// === impl PathPattern ===

impl PathPattern {
    /// Whether the pattern matches a request's path.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        match self.prefix() {
            Some(prefix) => path.starts_with(prefix),
            None => self.text == path,
        }
    }

    /// Whether the pattern matches everything that `other` matches (`nonResourceURLCovers` of
    /// `component-helpers/auth/rbac/validation/policy_comparator.go`).
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match self.prefix() {
            Some(prefix) => other.text.starts_with(prefix),
            None => self == other,
        }
    }

    /// The prefix that matching paths have; `None` if the pattern is an exact path.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        (self.stars > 0).then_some(self.text.as_str())
    }

    /// The path or prefix, without stars.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<&str> for PathPattern {
    fn from(written: &str) -> Self {
        let text = written.trim_end_matches('*');
        Self {
            stars: written.len() - text.len(),
            text: text.to_owned(),
        }
    }
}

impl From<String> for PathPattern {
    fn from(written: String) -> Self {
        Self::from(written.as_str())
    }
}

/// The pattern as manifests spell it.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        (0..self.stars).try_for_each(|_| f.write_str("*"))
    }
}

// === impl AlwaysAllowPaths ===

impl AlwaysAllowPaths {
    /// These exact paths and prefixes; a leading `/` is ignored.
    #[must_use]
    pub fn new(exact: &[&str], prefixes: &[&str]) -> Self {
        let paths = |list: &[&str]| list.iter().map(|path| without_slash(path).to_owned()).collect();
        Self {
            exact: paths(exact),
            prefixes: paths(prefixes),
        }
    }

    /// Parses paths.
    ///
    /// # Errors
    /// The first path with a `*` that is not at its end.
    pub fn parse(paths: &[String]) -> Result<Self, InvalidPath> {
        let mut parsed = Self::default();
        for path in paths {
            parsed.add(path)?;
        }
        Ok(parsed)
    }

    /// Parses a path, and adds it; the empty path is `/`.
    ///
    /// # Errors
    /// The path has a `*` that is not at its end.
    pub fn add(&mut self, written: &str) -> Result<(), InvalidPath> {
        let path = without_slash(written);
        let (list, path) = match path.strip_suffix('*') {
            Some(prefix) => (&mut self.prefixes, prefix),
            None => (&mut self.exact, path),
        };
        if path.contains('*') {
            return Err(InvalidPath(written.to_owned()));
        }
        list.push(path.to_owned());
        Ok(())
    }

    /// The paths as they are written in a configuration, sorted: `/healthz`, `/healthz/*`.
    #[must_use]
    pub fn patterns(&self) -> Vec<String> {
        let exact = self.exact.iter().map(|path| format!("/{path}"));
        let prefixes = self.prefixes.iter().map(|path| format!("/{path}*"));
        let mut patterns: Vec<String> = exact.chain(prefixes).collect();
        patterns.sort();
        patterns
    }

    /// The exact paths and the prefixes as they may occur in requests: with and without the leading
    /// slash.
    pub(crate) fn request_forms(&self) -> (Vec<String>, Vec<String>) {
        let both = |texts: &[String]| {
            let slashed = texts.iter().map(|text| format!("/{text}"));
            let bare = texts.iter().filter(|text| !text.starts_with('/')).cloned();
            slashed.chain(bare).collect()
        };
        (both(&self.exact), both(&self.prefixes))
    }

    /// Whether there are no paths.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    /// Whether `path` matches.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        let path = without_slash(path);
        self.exact.iter().any(|exact| exact == path)
            || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// `path` as it is compared, without a leading slash, like kube-apiserver does.
fn without_slash(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

// Verbs, API groups, and RBAC's resources: words, of which `*` means all.

/// The words of one field of a rule, of which any may match; `*` matches all (`VerbMatches`,
/// `APIGroupMatches` and `ResourceMatches` of `pkg/apis/rbac/v1/evaluation_helpers.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WildcardSet {
    written: Vec<String>,
    is_all: bool,
}

impl WildcardSet {
    /// The word that matches all words.
    pub const ALL: &'static str = "*";

    /// Whether it contains `*`.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether it contains no words, so that nothing matches.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Whether `word` matches. A requested `*` is only matched by `*`.
    #[must_use]
    pub fn includes(&self, word: &str) -> bool {
        let mut written = self.written.iter();
        // Comparing the core group, which is empty, with each word would be slow: see `Interner`.
        self.is_all
            || if word.is_empty() {
                written.any(String::is_empty)
            } else {
                written.any(|one| one == word)
            }
    }

    /// Whether `word` matches, or is `*` while the set is not empty.
    #[must_use]
    pub fn touches(&self, word: &str) -> bool {
        self.includes(word) || word == Self::ALL && !self.is_empty()
    }

    /// Whether it matches every word of `other`.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.written.iter().all(|word| self.includes(word))
    }

    /// The words other than `*`.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let words = self.written.iter().map(String::as_str);
        words.filter(|word| *word != Self::ALL)
    }

    /// The words as written, in their order.
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
    fn rule_paths_match_as_upstream() {
        for (url, path) in [
            ("*", "/anything"),
            ("*", ""),
            ("/healthz", "/healthz"),
            ("/healthz*", "/healthz"),
            ("/healthz*", "/healthz/ping"),
            ("/healthz/*", "/healthz/"),
            ("/healthz/**", "/healthz/ping"),
            ("/a*b", "/a*b"),
            ("/foo/*", "/foo/*"),
        ] {
            let read = PathPattern::from(url);
            assert_eq!(read.to_string(), url);
            assert!(read.matches(path), "{url} {path}");
        }
        for (url, path) in [
            ("/healthz/*", "/healthz"),
            ("/healthz", "/healthz/"),
            ("/healthz", "/HEALTHZ"),
            ("/a*b", "/axb"),
            ("/foo", "/foo/../foo"),
            ("", "/"),
        ] {
            assert!(!PathPattern::from(url).matches(path), "{url} {path}");
        }
    }

    #[test]
    fn always_open_paths_ignore_one_leading_slash() {
        let paths = |list: &[&str]| {
            AlwaysAllowPaths::parse(&list.iter().map(|&path| path.to_owned()).collect::<Vec<_>>())
        };
        let open = paths(&["/healthz", "livez", "/readyz/*", "/"]).unwrap();
        for path in [
            "/healthz",
            "healthz",
            "/livez",
            "/readyz/",
            "/readyz/etcd",
            "/",
            "",
        ] {
            assert!(open.contains(path), "{path}");
        }
        for path in ["//healthz", "/healthz/", "/readyz", "//"] {
            assert!(!open.contains(path), "{path}");
        }
        assert!(paths(&["*"]).unwrap().contains("/anything"));
        assert!(!paths(&[]).unwrap().contains("/"));
        for bad in ["/foo*bar", "/foo**", "**"] {
            assert!(paths(&[bad]).is_err(), "{bad}");
        }
    }

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
