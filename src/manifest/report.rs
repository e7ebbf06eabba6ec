//! Collects the faults of one object.

use crate::document::Document;
use crate::field::{Fault, FaultKind, Faults, FieldPath};

use super::names::Syntax;

/// Collects what is wrong with one document.
pub(super) struct Report<'a> {
    document: &'a Document,
    faults: &'a mut Faults,
    errors: usize,
}

impl<'a> Report<'a> {
    pub(super) const fn new(document: &'a Document, faults: &'a mut Faults) -> Self {
        Self {
            document,
            faults,
            errors: 0,
        }
    }

    /// Whether nothing was wrong since [`Report::new`].
    pub(super) const fn is_valid(&self) -> bool {
        self.errors == 0
    }

    pub(super) fn fault(&mut self, kind: FaultKind, path: &FieldPath, message: impl Into<String>) {
        self.errors += 1;
        self.faults
            .push(Fault::error(self.document.place(path.clone()), kind, message));
    }

    pub(super) fn required(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.fault(FaultKind::Required, path, message);
    }

    pub(super) fn invalid(&mut self, path: &FieldPath, value: &str, message: impl AsRef<str>) {
        self.fault(
            FaultKind::Invalid,
            path,
            format!("`{value}`: {}", message.as_ref()),
        );
    }

    /// `value` is wrong, which is the key or the value of the entry `key`. As upstream it
    /// is reported at the map; the line is that of the entry.
    pub(super) fn invalid_entry(&mut self, map: &FieldPath, key: &str, value: &str, message: &str) {
        self.errors += 1;
        let place = self.document.place(map.key(key)).at(map.clone());
        let message = format!("`{value}`: {message}");
        self.faults.push(Fault::error(place, FaultKind::Invalid, message));
    }

    pub(super) fn forbidden(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.fault(FaultKind::Forbidden, path, message);
    }

    /// `value` is not one of `supported`.
    pub(super) fn not_supported(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        let supported = supported
            .iter()
            .map(|one| format!("`{one}`"))
            .collect::<Vec<_>>()
            .join(", ");
        self.fault(
            FaultKind::NotSupported,
            path,
            format!("`{value}`: supported values: {supported}"),
        );
    }

    /// `value` must be there, and one of `supported`.
    pub(super) fn required_one_of(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, format!("`{}`", supported.join("` or `")));
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// `value` breaks the rule that `syntax` names.
    pub(super) fn syntax(&mut self, path: &FieldPath, value: &str, syntax: Syntax) {
        if let Err(rule) = syntax {
            self.invalid(path, value, rule);
        }
    }
}
