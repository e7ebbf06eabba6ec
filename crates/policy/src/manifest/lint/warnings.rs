//! Where warnings go.

use std::borrow::Cow;
use std::cell::OnceCell;

use crate::document::Document;
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};
use crate::manifest::validated::KeptDocument;

/// Collects the warnings about one object.
pub(crate) struct Lint<'a> {
    pub(crate) document: &'a KeptDocument,
    /// The document unpacked, once there is a warning to place.
    unpacked: OnceCell<Cow<'a, Document>>,
    pub(crate) faults: &'a mut Faults,
}

impl<'a> Lint<'a> {
    pub(crate) const fn new(document: &'a KeptDocument, faults: &'a mut Faults) -> Self {
        Self {
            document,
            unpacked: OnceCell::new(),
            faults,
        }
    }

    pub(crate) fn suspicious(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.warn(FaultKind::Suspicious, path, message);
    }

    pub(crate) fn warn(&mut self, kind: FaultKind, path: &FieldPath, message: impl Into<String>) {
        let place = self.place(path.clone());
        self.faults.push(Fault::warning(place, kind, message));
    }

    /// Whether no more warnings are kept: there is no need to look for others.
    pub(crate) fn is_full(&self) -> bool {
        self.faults.is_full()
    }

    /// The place of `path` in the document.
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.unpacked.get_or_init(|| self.document.get()).place(path)
    }
}
