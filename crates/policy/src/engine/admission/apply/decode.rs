//! The object as an API server has it after a mutation: read into its Go type and written again.
//!
//! ```text
//! before ─ patch or configuration ─▶ after ─ decode ─▶ after, as Go writes it │ error
//! ```
//!
//! Go leaves out what is empty where its type says so (`omitempty`), writes other fields even if
//! nobody set them, and has one spelling of quantities, times and bytes. Defaults are code and are
//! not filled in here. Only what differs from the object before is read; everything else was written by
//! an API server.
//!
//! A newer API server may know fields that are not known here, so those are kept. They are errors
//! only where a policy's JSON Patch adds them (`jsonPatcher.Patch` of apiserver
//! `pkg/admission/plugin/policy/mutating/patch/json_patch.go`).

mod reading;
mod scalar;
mod walk;

use std::collections::HashSet;

use super::error::{DecodeError, FieldMismatches};
use super::schema::Schemas;
use crate::engine::admission::GroupVersionKind;
use portcullis_cel::json::Node;
pub use reading::Reading;
use walk::{Unknown, Walk};

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// It, as Go writes it; `None` if that is how it was written already.
    pub text: Option<String>,
    /// Whether it is another object than before. A field that is not known makes no difference
    /// (`apimachinery/pkg/api/equality/semantic.go`).
    pub is_changed: bool,
}

/// The object of `kind` that was `before` and is `after`. One of a kind that is not built in has
/// no Go type, and is as it is.
///
/// # Errors
///
/// What of the change is not of its field's type or, read strictly, not known at all.
pub fn decode(
    kind: &GroupVersionKind<'_>,
    before: Node<'_>,
    after: Node<'_>,
    reading: Reading,
) -> Result<Decoded, DecodeError> {
    let schemas = Schemas::builtin();
    let Ok(of) = schemas.of(kind) else {
        return Ok(Decoded {
            text: None,
            is_changed: !before.same(after),
        });
    };
    let mut walk = Walk::new(schemas, reading);
    walk.value(of, Some(before), after);
    let Walk {
        out,
        is_changed,
        found,
        mut unknown,
        ..
    } = walk;
    found.none().map_err(DecodeError::Mismatches)?;
    if reading == Reading::Strict && !unknown.is_empty() {
        let mut old = Walk::new(schemas, reading);
        old.value(of, None, before);
        let known: HashSet<String> = old.unknown.into_iter().map(|field| field.shape).collect();
        unknown.retain(|field| !known.contains(&field.shape));
        if !unknown.is_empty() {
            let paths = unknown.into_iter().take(FieldMismatches::MOST);
            return Err(DecodeError::Unknown(paths.map(Unknown::into_path).collect()));
        }
    }
    Ok(Decoded {
        text: (out != after.raw()).then_some(out),
        is_changed,
    })
}

#[cfg(test)]
mod tests;
