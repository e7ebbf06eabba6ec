//! Versions as <https://semver.org> has them (blang/semver).

use std::cmp::Ordering;

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    /// What stands after the hyphen; a version with some comes before one without.
    before: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Number(u64),
    Text(String),
}

// === impl Semver ===

impl Semver {
    /// Reads a version of exactly three numbers.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.splitn(3, '.');
        let (major, minor, rest) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, before) = match rest.split_once('-') {
            Some((patch, before)) => (patch, Some(before)),
            None => (rest, None),
        };
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let before = before.map_or(Some(Vec::new()), |before| before.split('.').map(part).collect())?;
        Some(Self {
            numbers: [number(major)?, number(minor)?, number(patch)?],
            before,
        })
    }

    /// Reads a version that may begin with `v`, have leading zeros, or lack
    /// numbers at its end.
    #[must_use]
    pub fn parse_lenient(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last()?.contains(['+', '-']) {
            return None;
        }
        while parts.len() < 3 {
            parts.push("0".into());
        }
        Self::parse(&parts.join("."))
    }

    /// Which version comes first.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let parts = match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_parts(&self.before, &other.before),
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

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse().ok())?
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn part(text: &str) -> Option<Part> {
    if !is_identifier(text) {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(Part::Number);
    }
    Some(Part::Text(text.into()))
}

fn compare_parts(left: &[Part], right: &[Part]) -> Ordering {
    let pairs = left.iter().zip(right).map(|(left, right)| match (left, right) {
        (Part::Number(left), Part::Number(right)) => left.cmp(right),
        (Part::Number(_), Part::Text(_)) => Ordering::Less,
        (Part::Text(_), Part::Number(_)) => Ordering::Greater,
        (Part::Text(left), Part::Text(right)) => left.cmp(right),
    });
    pairs
        .fold(Ordering::Equal, Ordering::then)
        .then(left.len().cmp(&right.len()))
}
