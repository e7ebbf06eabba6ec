//! The version that `--version` prints: that of the package, and the commit it was built from.

use std::sync::LazyLock;

/// What `just release`, the image and the release workflow pass to the compiler.
const BUILT_FROM: Option<&str> = option_env!("PORTCULLIS_COMMIT");

/// `git archive` writes the commit into this file (`.gitattributes`), so that a source archive
/// knows it without git. In a working tree it holds the placeholder.
const ARCHIVED_FROM: &str = include_str!("commit.txt");

/// `0.1.0 (7a95838cde01)`, or `0.1.0` where the commit is not known.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| described(env!("CARGO_PKG_VERSION"), BUILT_FROM, ARCHIVED_FROM));
    &TEXT
}

fn described(version: &str, built_from: Option<&str>, archived_from: &str) -> String {
    let known = [built_from.unwrap_or_default(), archived_from]
        .into_iter()
        .map(str::trim)
        .find(|commit| is_commit(commit));
    match known.and_then(|commit| commit.get(..12)) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// Whether `text` is an object name of git, not a placeholder or a branch.
fn is_commit(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "7a95838cde0123456789abcdef0123456789abcd";

    #[test]
    fn the_commit_comes_from_the_build_or_from_the_source_archive() {
        let cases = [
            (Some(COMMIT), "$Format:%H$\n", "0.1.0 (7a95838cde01)"),
            (
                None,
                "7a95838cde0123456789abcdef0123456789abcd\n",
                "0.1.0 (7a95838cde01)",
            ),
            (Some("bbbbbbbbbbbbbbbb"), COMMIT, "0.1.0 (bbbbbbbbbbbb)"),
            (Some(""), COMMIT, "0.1.0 (7a95838cde01)"),
            (None, "$Format:%H$\n", "0.1.0"),
            (Some("unknown"), "$Format:%H$\n", "0.1.0"),
            (Some("7a95838"), "", "0.1.0"),
        ];
        for (built, archived, expected) in cases {
            assert_eq!(
                described("0.1.0", built, archived),
                expected,
                "{built:?} {archived:?}"
            );
        }
    }

    #[test]
    fn git_archive_writes_the_commit_into_the_file_that_is_read() {
        let attributes = include_str!("../../.gitattributes");
        assert!(attributes.contains("src/cli/commit.txt export-subst\n"));
    }
}
