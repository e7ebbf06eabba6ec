//! The outcome of a run: denial, warnings, audit annotations, patch.

use std::collections::BTreeMap;

use super::denial::Denial;
use super::exceptions::Excused;
use super::webhook::{Call, WebhookResult};
use crate::engine::{Cause, CauseKind, PolicyResult, StatusReason};

/// What a policy came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyEvaluation {
    /// Its kind.
    pub kind: CauseKind,
    /// Its place among those of the kind.
    pub place: usize,
    /// The worst result of its bindings and parameters.
    pub result: PolicyResult,
    /// What its expressions cost, in the units of Kubernetes' CEL cost model.
    pub cost: u64,
}

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
    pub cause: Option<Cause<'static>>,
    /// What each policy that was looked at came to.
    pub evaluations: Vec<PolicyEvaluation>,
    /// What each webhook that was to be asked came to, in the order asked.
    pub webhooks: Vec<WebhookResult>,
    /// What to ask webhooks in shadow mode, once the answer is on its way: they
    /// decide nothing.
    pub shadows: Vec<Call>,
}

// The warnings of a review.

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

// What became of one validation of a ValidatingAdmissionPolicy.

/// What became of one validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationDecision {
    /// It holds.
    Admit,
    /// It does not.
    Deny {
        /// What to tell the user.
        message: String,
        /// Why to say that the request is refused.
        reason: StatusReason,
    },
    /// It could not be evaluated, and the failure policy refuses the request.
    Error {
        /// Why.
        message: String,
    },
    /// It could not be evaluated, and the failure policy lets that pass.
    Ignored {
        /// Why.
        message: String,
    },
}

impl ValidationDecision {
    /// Message and reason, if the request is to be refused.
    pub(crate) fn failure(&self) -> Option<(&str, StatusReason)> {
        match self {
            Self::Admit | Self::Ignored { .. } => None,
            Self::Deny { message, reason } => Some((message, *reason)),
            Self::Error { message } => Some((message, StatusReason::Invalid)),
        }
    }
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
