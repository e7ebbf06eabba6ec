//! Semantic versions as defined by <https://semver.org> (blang/semver).

use std::cmp::Ordering;

use crate::brief;
use crate::go_format::Quoted;

/// A semantic version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    /// The pre-release identifiers. A version with some precedes the same version without.
    pre_release: Vec<PreReleasePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PreReleasePart {
    Number(u64),
    Text(String),
}

/// Why a string is not a version, with upstream's message, cut to 2 KiB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SemverFault(String);

type Parsed<T> = Result<T, SemverFault>;

// === impl Semver ===

impl Semver {
    /// Parses a version of exactly three numbers.
    ///
    /// # Errors
    ///
    /// The first error in the string.
    pub fn parse(text: &str) -> Result<Self, SemverFault> {
        if text.is_empty() {
            return Err(SemverFault("Version string empty".into()));
        }
        let mut numbers = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return Err(SemverFault("No Major.Minor.Patch elements found".into()));
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, before) = match rest.split_once('-') {
            Some((patch, before)) => (patch, Some(before)),
            None => (rest, None),
        };
        let numbers = [
            number("major", "Major", major)?,
            number("minor", "Minor", minor)?,
            number("patch", "Patch", patch)?,
        ];
        let before = before.map_or(Ok(Vec::new()), |before| before.split('.').map(part).collect())?;
        build.map_or(Ok(()), |build| build.split('.').try_for_each(check_build))?;
        Ok(Self {
            numbers,
            pre_release: before,
        })
    }

    /// Parses a version that may begin with `v`, have leading zeros, or lack the last numbers.
    ///
    /// # Errors
    ///
    /// Those of [`parse`](Self::parse).
    pub fn parse_lenient(text: &str) -> Result<Self, SemverFault> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            let message = "short version cannot contain PreRelease/Build meta data";
            return Err(SemverFault(message.into()));
        }
        while parts.len() < 3 {
            parts.push("0".into());
        }
        Self::parse(&parts.join("."))
    }

    /// The bytes of memory of a pre-release identifier besides its string.
    const BYTES_PER_PART: usize = 48;

    /// The bytes of memory of the pre-release identifiers.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.pre_release.iter().map(|part| match part {
            PreReleasePart::Number(_) => 0,
            PreReleasePart::Text(text) => text.len(),
        });
        self.pre_release.len() * Self::BYTES_PER_PART + texts.sum::<usize>()
    }

    /// An upper bound of the bytes of memory for the pre-release identifiers in `text`.
    pub(crate) fn max_bytes_of(text: &str) -> usize {
        let dots = text.bytes().filter(|byte| *byte == b'.').count();
        dots * Self::BYTES_PER_PART + text.len()
    }

    /// Compares by precedence.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let parts = match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_parts(&self.pre_release, &other.pre_release),
        };
        self.numbers.cmp(&other.numbers).then(parts)
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.into();
    }
    let trimmed = part.trim_start_matches('0');
    let missing = !trimmed.starts_with(|digit: char| digit.is_ascii_digit());
    if missing {
        format!("0{trimmed}")
    } else {
        trimmed.into()
    }
}

impl SemverFault {
    /// The message `what`, followed by the quoted `text`.
    fn about(what: &str, text: &str) -> Self {
        Self(brief(format_args!("{what} {}", Quoted(text))))
    }
}

fn number(name: &str, title: &str, text: &str) -> Parsed<u64> {
    if !is_numeric(text) {
        let what = format!("Invalid character(s) found in {name} number");
        return Err(SemverFault::about(&what, text));
    }
    if has_leading_zeros(text) {
        let what = format!("{title} number must not contain leading zeroes");
        return Err(SemverFault::about(&what, text));
    }
    parse_number(text)
}

/// Parses like `strconv.ParseUint`, for strings that consist of digits or are empty.
fn parse_number(text: &str) -> Parsed<u64> {
    text.parse().map_err(|_| {
        let reason = if text.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        let quoted = Quoted(text);
        SemverFault(brief(format_args!(
            "strconv.ParseUint: parsing {quoted}: {reason}"
        )))
    })
}

fn has_leading_zeros(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn is_numeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn check_build(text: &str) -> Parsed<()> {
    if text.is_empty() {
        return Err(SemverFault("Build meta data is empty".into()));
    }
    if !is_alphanumeric(text) {
        let what = "Invalid character(s) found in build meta data";
        return Err(SemverFault::about(what, text));
    }
    Ok(())
}

fn part(text: &str) -> Parsed<PreReleasePart> {
    if text.is_empty() {
        return Err(SemverFault("Prerelease is empty".into()));
    }
    if !is_alphanumeric(text) {
        let what = "Invalid character(s) found in prerelease";
        return Err(SemverFault::about(what, text));
    }
    if !is_numeric(text) {
        return Ok(PreReleasePart::Text(text.into()));
    }
    if has_leading_zeros(text) {
        let what = "Numeric PreRelease version must not contain leading zeroes";
        return Err(SemverFault::about(what, text));
    }
    parse_number(text).map(PreReleasePart::Number)
}

fn compare_parts(left: &[PreReleasePart], right: &[PreReleasePart]) -> Ordering {
    let pairs = left.iter().zip(right).map(|(left, right)| match (left, right) {
        (PreReleasePart::Number(left), PreReleasePart::Number(right)) => left.cmp(right),
        (PreReleasePart::Number(_), PreReleasePart::Text(_)) => Ordering::Less,
        (PreReleasePart::Text(_), PreReleasePart::Number(_)) => Ordering::Greater,
        (PreReleasePart::Text(left), PreReleasePart::Text(right)) => left.cmp(right),
    });
    pairs
        .fold(Ordering::Equal, Ordering::then)
        .then(left.len().cmp(&right.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_version_is_told_in_upstreams_words() {
        for (text, message) in [
            ("", "Version string empty"),
            ("1.2", "No Major.Minor.Patch elements found"),
            ("v1.2.3", r#"Invalid character(s) found in major number "v1""#),
            ("1.02.3", r#"Minor number must not contain leading zeroes "02""#),
            ("1.2.x-0", r#"Invalid character(s) found in patch number "x""#),
            ("1..3", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            (
                "1.2.99999999999999999999",
                r#"strconv.ParseUint: parsing "99999999999999999999": value out of range"#,
            ),
            ("1.2.3-", "Prerelease is empty"),
            (
                "1.2.3-01",
                r#"Numeric PreRelease version must not contain leading zeroes "01""#,
            ),
            ("1.2.3-a.b_+", r#"Invalid character(s) found in prerelease "b_""#),
            ("1.2.3+", "Build meta data is empty"),
            (
                "1.2.3+a\n",
                r#"Invalid character(s) found in build meta data "a\n""#,
            ),
        ] {
            let reported = Semver::parse(text).unwrap_err();
            assert_eq!(reported.to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_short_version_ends_there() {
        let reported = Semver::parse_lenient("v1.2-rc").unwrap_err();
        assert_eq!(
            reported.to_string(),
            "short version cannot contain PreRelease/Build meta data"
        );
        assert_eq!(Semver::parse_lenient("v01.2"), Semver::parse("1.2.0"));
    }
}
