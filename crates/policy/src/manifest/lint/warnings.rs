//! Where warnings go.

use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest::validated::KeptDocument;

/// Collects the warnings about one object.
pub(crate) struct Lint<'a> {
    pub(crate) document: &'a KeptDocument,
    pub(crate) faults: &'a mut Faults,
}

impl Lint<'_> {
    pub(crate) fn suspicious(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.warn(FaultKind::Suspicious, path, message);
    }

    pub(crate) fn warn(&mut self, kind: FaultKind, path: &FieldPath, message: impl Into<String>) {
        self.faults
            .push(Fault::warning(self.document.place(path.clone()), kind, message));
    }
}
