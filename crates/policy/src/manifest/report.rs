//! Collects the faults of one object.

use crate::document::Document;
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};
use portcullis_cel::{CompileError, Version};

use super::names::Syntax;

/// Collects what is wrong with one document.
pub(super) struct Report<'a> {
    document: &'a Document,
    faults: &'a mut Faults,
    errors: usize,
    cel_version: Version,
}

impl<'a> Report<'a> {
    pub(super) const fn new(document: &'a Document, faults: &'a mut Faults) -> Self {
        Self {
            document,
            faults,
            errors: 0,
            cel_version: Version::NEWEST,
        }
    }

    /// The same of a document whose expressions are compiled for `version`, not the newest.
    pub(super) const fn compiling_for(self, version: Version) -> Self {
        Self {
            cel_version: version,
            ..self
        }
    }

    /// What expressions of the document are compiled for.
    pub(super) const fn cel_version(&self) -> Version {
        self.cel_version
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

    /// The expression `text` at `path` is none: the fault is where in the file `error` is. Of an
    /// expression over several lines that line alone is shown.
    pub(super) fn does_not_compile(&mut self, path: &FieldPath, text: &str, error: &CompileError) {
        self.errors += 1;
        let (place, wrong) = within(self.document, path, error);
        let line = text.lines().nth(error.line.saturating_sub(1));
        let shown = line.unwrap_or(text).trim();
        let message = format!("`{shown}`: compilation failed: {wrong}");
        self.faults.push(Fault::error(place, FaultKind::Invalid, message));
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

/// Where in the file the expression at `path` has the error, and what to say of it: where the
/// file does not tell, with the place within the expression.
pub(super) fn within(document: &Document, path: &FieldPath, error: &CompileError) -> (Place, String) {
    let place = document.place_within(path.clone(), (error.line, error.column));
    let wrong = match place.column {
        0 => error.to_string(),
        _ => error.message.clone(),
    };
    (place, wrong)
}
