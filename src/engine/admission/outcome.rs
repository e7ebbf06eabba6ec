//! What is answered to an admission question.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::exceptions::Excused;
use super::webhook::{Call, WebhookResult};
use crate::engine::{Cause, CauseKind, Evaluation};

/// The answer.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Why the request is refused; allowed if there is none.
    pub denial: Option<Denial>,
    /// What to tell the user besides.
    pub warnings: Warnings,
    /// What to write into the audit log, by keys such as `policy/key`. The
    /// first value of a key stays.
    pub audit_annotations: BTreeMap<String, String>,
    /// The denials that AdmissionExceptions excused, each policy once.
    pub exceptions: Vec<Excused>,
    /// What to change, as a JSON Patch; empty if nothing.
    pub patch: String,
    /// What refused the request.
    pub cause: Option<Cause>,
    /// What each policy that was looked at came to, by its kind and its place
    /// among those of the kind.
    pub evaluations: Vec<(CauseKind, usize, Evaluation)>,
    /// What each webhook that was to be asked came to, in the order asked.
    pub webhooks: Vec<WebhookResult>,
    /// What to ask webhooks in shadow mode, once the answer is on its way: they
    /// decide nothing.
    pub shadows: Vec<Call>,
}

/// Why a request is refused, as a `metav1.Status` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `Failure`, but webhooks give what they like.
    pub status: Cow<'static, str>,
    /// What sort of refusal: mostly one of [`Reason`], but webhooks give what they like.
    pub reason: Cow<'static, str>,
    /// The HTTP status code; mostly that of the reason.
    pub code: i32,
    /// What and why, for the user.
    pub message: String,
    /// What it is about.
    pub details: Details,
}

/// `metav1.StatusDetails`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// The group of the resource.
    pub group: String,
    /// The resource, which Kubernetes calls its kind here.
    pub kind: String,
    /// The uid of the object.
    pub uid: String,
    /// Each cause.
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again; 0 if nobody says.
    pub retry_after_seconds: i32,
}

/// `metav1.StatusCause`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// What sort of cause.
    pub reason: String,
    /// What and why, for people.
    pub message: String,
    /// The field of the object.
    pub field: String,
}

/// `metav1.StatusReason`, as far as admission gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 413.
    RequestEntityTooLarge,
    /// 422.
    Invalid,
    /// 500.
    InternalError,
    /// 503.
    ServiceUnavailable,
    /// 504.
    Timeout,
}

/// Texts for `Warning` headers, bounded as the API server bounds them
/// (`apiserver/pkg/endpoints/filters/warning.go`).
///
/// No text twice, none with control characters; once all together exceed
/// [`Warnings::TOTAL`] characters, each is cut to [`Warnings::EACH`] and those
/// past the bound are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings {
    texts: Vec<String>,
    characters: usize,
    is_truncating: bool,
}

// === impl Reason ===

impl Reason {
    /// As Kubernetes spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::Invalid => "Invalid",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
        }
    }

    /// The HTTP status code that goes with it.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::RequestEntityTooLarge => 413,
            Self::Invalid => 422,
            Self::InternalError => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// The reason that a policy spells so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Unauthorized" => Some(Self::Unauthorized),
            "Forbidden" => Some(Self::Forbidden),
            "Invalid" => Some(Self::Invalid),
            "RequestEntityTooLarge" => Some(Self::RequestEntityTooLarge),
            _ => None,
        }
    }
}

// === impl Denial ===

impl Denial {
    /// The `status` of a refusal.
    pub const FAILURE: &'static str = "Failure";
}

// === impl Details ===

impl Details {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl StatusCause ===

impl StatusCause {
    /// A cause of which only the words are known.
    #[must_use]
    pub fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }
}

// === impl Warnings ===

impl Warnings {
    /// The most characters of all texts together.
    pub const TOTAL: usize = 4096;
    /// The most characters of each, once they exceed that.
    pub const EACH: usize = 256;

    /// Adds a text.
    pub fn push(&mut self, text: &str) {
        if text.is_empty()
            || (self.is_truncating && self.characters >= Self::TOTAL)
            || text.chars().any(char::is_control)
        {
            return;
        }
        let shown = if self.is_truncating { cut(text) } else { text };
        if self.texts.iter().any(|one| one == shown) {
            return;
        }
        self.characters += shown.chars().count();
        self.texts.push(shown.to_owned());
        if self.characters > Self::TOTAL && !self.is_truncating {
            self.truncate();
        }
    }

    /// The texts, in the order added.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn truncate(&mut self) {
        self.is_truncating = true;
        for text in &mut self.texts {
            let length = cut(text).len();
            text.truncate(length);
        }
        self.characters = self.texts.iter().map(|text| text.chars().count()).sum();
    }
}

fn cut(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(Warnings::EACH)
        .map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(texts: &[&str]) -> Vec<String> {
        let mut warnings = Warnings::default();
        texts.iter().for_each(|text| warnings.push(text));
        warnings.iter().map(str::to_owned).collect()
    }

    #[test]
    fn drops_repeated_empty_and_unprintable_texts() {
        assert_eq!(recorded(&["a", "", "a", "b\n", "é"]), ["a", "é"]);
    }

    #[test]
    fn cuts_every_text_once_all_are_too_long() {
        let (long, longer) = ("é".repeat(300), "x".repeat(4000));
        assert_eq!(recorded(&[&long]), [long.as_str()]);
        let cut = recorded(&[&long, &longer, "short"]);
        assert_eq!(cut, ["é".repeat(256), "x".repeat(256), "short".to_owned()]);
    }

    #[test]
    fn stops_at_the_bound() {
        let mut warnings = Warnings::default();
        for number in 0..10_000 {
            warnings.push(&format!("{number:>300}"));
        }
        let characters: usize = warnings.iter().map(|text| text.chars().count()).sum();
        assert!(characters < Warnings::TOTAL + Warnings::EACH, "{characters}");
    }
}
