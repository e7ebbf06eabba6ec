//! Non-resource paths, of rules and of `--authorization-always-allow-paths`.

/// Whether a rule's `nonResourceURLs` entry covers a request's path: equal, or
/// ends in `*` and what is before its last stars is a prefix. Paths are not
/// cleaned (`NonResourceURLMatches` of `pkg/apis/rbac/v1/evaluation_helpers.go`).
#[must_use]
pub fn non_resource_url_matches(url: &str, path: &str) -> bool {
    url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

/// Whether `owner` covers everything that the entry `requested` covers
/// (`nonResourceURLCovers` of `component-helpers/auth/rbac/validation/policy_comparator.go`).
#[must_use]
pub fn non_resource_url_covers(owner: &str, requested: &str) -> bool {
    non_resource_url_matches(owner, requested)
}

/// Paths in the form of kube-apiserver's `--authorization-always-allow-paths`:
/// exact, or with one `*` at the end a prefix; a leading `/` does not count
/// (`apiserver/pkg/authorization/path/path.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlwaysAllowPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

/// A `*` that is not at the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`*` is allowed only at the end in `{0}`")]
pub struct InvalidPath(pub String);

impl AlwaysAllowPaths {
    /// These paths, and all that begin with one of `prefixes`; a leading `/` does not count.
    #[must_use]
    pub fn new(exact: &[&str], prefixes: &[&str]) -> Self {
        let paths = |list: &[&str]| list.iter().map(|path| without_slash(path).to_owned()).collect();
        Self {
            exact: paths(exact),
            prefixes: paths(prefixes),
        }
    }

    /// Reads each path.
    ///
    /// # Errors
    /// The first that has a `*` before its end.
    pub fn parse(paths: &[String]) -> Result<Self, InvalidPath> {
        let mut parsed = Self::default();
        for path in paths {
            parsed.add(path)?;
        }
        Ok(parsed)
    }

    /// Reads one more path; the empty one is `/`.
    ///
    /// # Errors
    /// It has a `*` before its end.
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

    /// Each as it may be written, by its text: `/healthz`, `/healthz/*`.
    #[must_use]
    pub fn patterns(&self) -> Vec<String> {
        let exact = self.exact.iter().map(|path| format!("/{path}"));
        let prefixes = self.prefixes.iter().map(|path| format!("/{path}*"));
        let mut patterns: Vec<String> = exact.chain(prefixes).collect();
        patterns.sort();
        patterns
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    /// Whether `path` is one of them.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        let path = without_slash(path);
        self.exact.iter().any(|exact| exact == path)
            || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

fn without_slash(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
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
            assert!(non_resource_url_matches(url, path), "{url} {path}");
        }
        for (url, path) in [
            ("/healthz/*", "/healthz"),
            ("/healthz", "/healthz/"),
            ("/healthz", "/HEALTHZ"),
            ("/a*b", "/axb"),
            ("/foo", "/foo/../foo"),
            ("", "/"),
        ] {
            assert!(!non_resource_url_matches(url, path), "{url} {path}");
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
}
