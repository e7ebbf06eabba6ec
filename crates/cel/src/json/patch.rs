//! JSON Patch (RFC 6902), as Kubernetes applies it.
//!
//! The API server uses `gopkg.in/evanphx/json-patch.v4`, which is more lenient than the
//! RFC in ways that policies rely on: `replace` adds a key that a map does not have, a
//! negative index counts from the end, and anything before the first `/` of a path is
//! ignored.

mod application;
mod operation;

use super::{Kind, Node, Tree, write_list};
use application::Application;
pub use application::MAX_COPIED;
pub use operation::{Error, PatchOperation};

/// Reads a patch: a list of maps. `null` is an empty patch.
///
/// # Errors
///
/// [`Error::Malformed`]. What an operation says is judged when it is applied.
pub fn read(patch: Node<'_>) -> Result<Vec<PatchOperation<'_>>, Error> {
    match patch.kind() {
        Kind::Null => Ok(Vec::new()),
        Kind::Array => patch.items().map(PatchOperation::read).collect(),
        _ => Err(Error::Malformed { expected: "a list" }),
    }
}

/// Writes a patch as JSON.
#[must_use]
pub fn write(operations: &[PatchOperation<'_>]) -> String {
    let mut out = String::new();
    write_list(&mut out, operations, |out, operation| operation.write(out));
    out
}

/// Applies the operations in order.
///
/// # Errors
///
/// That of the first operation which does not apply. Then nothing is changed;
/// whether a failed `test` is an error is for the caller to say.
pub fn apply<'d>(document: Node<'d>, operations: &[PatchOperation<'d>]) -> Result<Tree<'d>, Error> {
    let mut run = Application::new(document);
    for operation in operations {
        run.step(operation)?;
    }
    Ok(run.into_root())
}
