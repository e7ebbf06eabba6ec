//! Types that [`authorization`](crate::authorization) and [`admission`](crate::admission) share:
//! attributes of requests, decisions and their causes, selectors, times.

mod attributes;
mod decision;
mod label_selector;
pub mod selector;
mod time;

use std::borrow::Cow;

pub use attributes::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};
pub use decision::{Cause, CauseKind, Decision, PolicyResult, StatusReason};
pub use label_selector::{
    LabelExpression, LabelSelector, LabelSelectorFault, NAMESPACE_NAME_LABEL, SelectorMatch,
};
pub use time::{Deadline, Time, Validity};

pub(crate) use label_selector::{
    LabelStepsError, common_labels, is_label_key, is_label_value, label_key_faults, label_value_faults,
};

/// The names of the API groups whose objects take part in decisions.
pub mod groups {
    /// Roles and their bindings.
    pub const RBAC: &str = "rbac.authorization.k8s.io";

    /// Admission policies, their bindings, and webhook configurations.
    pub const ADMISSION: &str = "admissionregistration.k8s.io";

    /// Portcullis' own kinds.
    pub const PORTCULLIS: &str = "portcullis.dev";
}

/// The longest beginning of `text` that fits into `limit` bytes, without cutting a character.
#[must_use]
pub fn truncate(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

/// `text`, if it fits into `limit` bytes; otherwise its longest beginning that does, followed by
/// `…`.
#[must_use]
pub fn truncate_with_mark(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", truncate(text, limit)))
}

/// Cuts `text` to at most `limit` bytes between characters, including the `…` that marks the cut.
pub fn cut(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        let end = truncate(&text, limit.saturating_sub(MARK.len())).len();
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_between_characters() {
        assert_eq!(truncate("aé", 2), "a");
        assert_eq!(truncate("aé", 3), "aé");
        assert_eq!(truncate("", 3), "");
        assert_eq!(truncate_with_mark("aé", 3), "aé");
        assert_eq!(truncate_with_mark("aé", 2), "a…");
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut("abc".to_owned(), 3), "abc");
        assert_eq!(cut("abcdef".to_owned(), 5), "ab…");
        for limit in 3..12 {
            let text = cut("ääääääää".to_owned(), limit);
            assert!(text.len() <= limit && text.ends_with('…'), "{limit} {text}");
        }
    }
}
