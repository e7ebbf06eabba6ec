//! Warnings about policies that have expired or have not begun.

use super::Lint;
use crate::engine::{Time, Validity};
use crate::field::FieldPath;

/// Warns where `validity` does not contain `now`; without a `now`, of nothing.
pub(crate) fn lint(validity: &Validity, now: Option<Time>, spec: &FieldPath, lint: &mut Lint<'_>) {
    let Some(now) = now else { return };
    if let Some(end) = validity.not_after.filter(|_| validity.has_ended(now)) {
        let message = format!("expired at {end}: delete it, or set a later `notAfter`");
        lint.suspicious(&spec.field("notAfter"), message);
    } else if let Some(start) = validity.not_before.filter(|start| now < *start) {
        let message = format!("is not in force before {start}");
        lint.suspicious(&spec.field("notBefore"), message);
    }
}
