//! Server-side apply for `ApplyConfiguration` expressions of MutatingAdmissionPolicies,
//! without field managers (apiserver `pkg/admission/plugin/policy/mutating/patch/smd.go`,
//! structured-merge-diff `typed/merge.go`).
//!
//! ```text
//! Object{spec: …}  --configuration-->  JSON text  --check-->  a patch that fits
//!    portcullis_cel::Value       names, values                fields,            |
//!                                                  types, no atomics  v
//!                          object (json::Node)  ---------------->  merge: Tree  --decode--> JSON
//!                                                     ^
//!                 schema.txt: how each built-in type merges, and how Go reads and writes it
//! ```
//!
//! Everything that the configuration does not name keeps its text, including fields that
//! the schema does not have: a newer API server may have more. Only the parts of the
//! object that the configuration names are checked; the API server has validated the
//! rest.

mod check;
mod configuration;
mod decode;
mod error;
mod merge;
mod schema;

use super::GroupVersionKind;
use portcullis_cel::Value;
use portcullis_cel::json::{Document, Node, Tree};

pub use check::check_type_meta;
pub use configuration::{configuration, type_names};
pub use decode::{DecodeMode, DecodedObject, decode};
pub use error::{ApplyError, DecodeError, FieldMismatch, FieldMismatches, MAX_CONFIGURATION, MAX_LEVELS};
pub use schema::Schemas;

/// The object as JSON, with what `configuration`, the value of an expression,
/// says of it.
///
/// `kind` is the kind in which `object` is given.
///
/// # Errors
///
/// As [`configuration()`] and [`merge()`], and [`ApplyError::Decode`].
pub fn apply(
    kind: &GroupVersionKind<'_>,
    object: Node<'_>,
    configuration: &Value<'_>,
) -> Result<String, ApplyError> {
    let text = self::configuration(configuration)?;
    let document = Document::parse(text).map_err(|_| ApplyError::TooLarge)?;
    if document.levels() > MAX_LEVELS {
        return Err(ApplyError::TooLarge);
    }
    let merged = merge(Schemas::builtin(), kind, object, document.root())?.to_text();
    let decoded = {
        let merged = Document::parse(merged.as_str()).map_err(|_| ApplyError::TooLarge)?;
        decode(kind, object, merged.root(), DecodeMode::Values)?
    };
    Ok(decoded.text.unwrap_or(merged))
}

/// The object with what `patch` says of it: maps key by key, lists by what
/// `schemas` say of them.
///
/// `apiVersion` and `kind` of the patch do not count, as in Kubernetes: they are
/// the object's.
///
/// # Errors
///
/// A kind that `schemas` do not have, a patch that does not fit its kind or
/// would replace an atomic list, map or struct, or an object that does not fit.
pub fn merge<'d>(
    schemas: &Schemas<'_>,
    kind: &GroupVersionKind<'_>,
    object: Node<'d>,
    patch: Node<'d>,
) -> Result<Tree<'d>, ApplyError> {
    let of = schemas.of(kind)?;
    check::fits(schemas, of, patch)?;
    check::has_no_atomics(schemas, of, patch)?;
    merge::merge(schemas, of, object, patch)
}

#[cfg(test)]
mod tests;
