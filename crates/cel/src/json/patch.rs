//! JSON Patch (RFC 6902), as Kubernetes applies it.
//!
//! The API server uses `gopkg.in/evanphx/json-patch.v4`, which is more lenient than the
//! RFC in ways that policies rely on: `replace` adds a key that a map does not have, a
//! negative index counts from the end, and anything before the first `/` of a path is
//! ignored.

mod application;
mod budget;
mod operation;

use super::{Kind, Node, Tree, write_list};
use application::Application;
pub use budget::{MAX_COPIED, PatchBudget};
pub use operation::{Error, PatchOperation};

/// A list of operations, each of which is one. Reading them takes no memory.
#[derive(Debug, Clone, Copy)]
pub struct Patch<'d>(Node<'d>);

/// Reads a patch: a list of maps. `null` is an empty patch.
///
/// # Errors
///
/// [`Error::Malformed`]. What an operation says is judged when it is applied.
pub fn read(patch: Node<'_>) -> Result<Patch<'_>, Error> {
    match patch.kind() {
        Kind::Null | Kind::Array => {}
        _ => return Err(Error::Malformed { expected: "a list" }),
    }
    for operation in patch.items() {
        PatchOperation::read(operation)?;
    }
    Ok(Patch(patch))
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
/// As [`apply_within`].
pub fn apply<'d>(document: Node<'d>, patch: Patch<'d>) -> Result<Tree<'d>, Error> {
    apply_within(document, patch, &mut PatchBudget::new())
}

/// Applies the operations in order, with what `budget` has left.
///
/// # Errors
///
/// That of the first operation which does not apply. Then nothing is changed;
/// whether a failed `test` is an error is for the caller to say.
pub fn apply_within<'d>(
    document: Node<'d>,
    patch: Patch<'d>,
    budget: &mut PatchBudget,
) -> Result<Tree<'d>, Error> {
    let mut run = Application::new(document, budget);
    for operation in patch.operations() {
        run.step(&operation)?;
    }
    Ok(run.into_root())
}

// === impl Patch ===

impl<'d> Patch<'d> {
    /// The operations, in order.
    pub fn operations(self) -> impl Iterator<Item = PatchOperation<'d>> {
        // All of them were read before.
        self.0.items().filter_map(|item| PatchOperation::read(item).ok())
    }
}
