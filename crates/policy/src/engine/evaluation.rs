//! The result of a policy, as metrics count it.

use std::fmt;

/// What an evaluated policy came to, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyResult {
    /// It applies and is enforced.
    Match,
    /// It was looked at and does not apply.
    NoMatch,
    /// A condition has no result.
    Error,
    /// In Shadow it would allow.
    ShadowAllow,
    /// In Shadow it would deny.
    ShadowDeny,
}

impl PolicyResult {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Match,
        Self::NoMatch,
        Self::Error,
        Self::ShadowAllow,
        Self::ShadowDeny,
    ];

    /// The value of the metric's label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::NoMatch => "noMatch",
            Self::Error => "error",
            Self::ShadowAllow => "shadowAllow",
            Self::ShadowDeny => "shadowDeny",
        }
    }
}

impl fmt::Display for PolicyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
