//! Collects the errors and warnings of one object, and holds the compilation settings of its
//! expressions.

use std::cell::OnceCell;
use std::cmp::Ordering;

use crate::document::{Document, PackedDocument};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place, unsupported_value};
use crate::model::{Deadline, truncate_with_mark};
use portcullis_cel::{CompileBudget, CompileError, MAX_COMPILED_BYTES, Version};

/// The most errors that are reported of one document. Nobody reads more, and each takes more memory
/// than the value that it is about.
pub(crate) const MAX_ERRORS: usize = 100;

/// The most bytes of an expression that a message quotes.
const MAX_QUOTED_BYTES: usize = 512;

/// The result of a syntax check; `Err` is the rule that the string breaks.
pub(crate) type SyntaxResult = Result<(), &'static str>;

/// The version for which expressions are compiled, and the deadline.
///
/// Independently of the deadline, the expressions of one object share a budget of compile steps and
/// of memory for the compiled programs ([`CompileBudget`]).
#[derive(Debug, Clone, Copy)]
pub struct Compilation<'c> {
    /// The Kubernetes version of the API server.
    pub version: Version,
    /// The deadline; an expression that is not compiled by then is an error.
    pub deadline: Deadline<'c>,
}

/// The compilation of the expressions of one object.
pub(crate) struct ObjectCompilation<'c> {
    pub(crate) version: Version,
    pub(crate) budget: CompileBudget<'c>,
}

/// A compilation without a deadline.
impl From<Version> for Compilation<'_> {
    fn from(version: Version) -> Self {
        Self {
            version,
            deadline: Deadline::NEVER,
        }
    }
}

impl<'c> Compilation<'c> {
    pub(crate) fn of_object(self) -> ObjectCompilation<'c> {
        ObjectCompilation {
            version: self.version,
            budget: self.deadline.compile_budget(),
        }
    }
}

impl ObjectCompilation<'_> {
    /// The bytes of the programs compiled so far.
    pub(crate) const fn compiled_bytes(&self) -> usize {
        MAX_COMPILED_BYTES - self.budget.bytes()
    }
}

/// Collects the errors of one document.
pub(crate) struct Report<'a> {
    document: &'a Document,
    faults: &'a mut Faults,
    errors: usize,
    compilation: Option<&'a ObjectCompilation<'a>>,
}

impl<'a> Report<'a> {
    pub(crate) const fn new(document: &'a Document, faults: &'a mut Faults) -> Self {
        Self {
            document,
            faults,
            errors: 0,
            compilation: None,
        }
    }

    /// Sets the compilation of the document's expressions.
    pub(crate) const fn compiling(self, compilation: &'a ObjectCompilation<'a>) -> Self {
        Self {
            compilation: Some(compilation),
            ..self
        }
    }

    /// The version for which expressions are compiled; the newest one by default.
    pub(crate) fn cel_version(&self) -> Version {
        self.compilation
            .map_or(Version::NEWEST, |compilation| compilation.version)
    }

    /// Calls `compile` with the remaining budget of the document.
    pub(crate) fn compile<T>(&self, compile: impl FnOnce(&CompileBudget<'_>) -> T) -> T {
        match self.compilation {
            Some(compilation) => compile(&compilation.budget),
            None => compile(&CompileBudget::new()),
        }
    }

    /// Whether there were no errors since [`Report::new`].
    pub(crate) const fn is_valid(&self) -> bool {
        self.errors == 0
    }

    pub(crate) fn fault(&mut self, kind: FaultKind, path: &FieldPath, message: impl Into<String>) {
        self.push(|document| Fault::error(document.place(path.clone()), kind, message));
    }

    fn push(&mut self, fault: impl FnOnce(&Document) -> Fault) {
        self.errors += 1;
        match self.errors.cmp(&MAX_ERRORS) {
            Ordering::Less => self.faults.push(fault(self.document)),
            Ordering::Equal => {
                let message = format!("more than {MAX_ERRORS} errors: only the first are listed");
                let place = self.document.place(FieldPath::root());
                self.faults.push(Fault::error(place, FaultKind::TooMany, message));
            }
            Ordering::Greater => {}
        }
    }

    pub(crate) fn required(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.fault(FaultKind::Required, path, message);
    }

    pub(crate) fn invalid(&mut self, path: &FieldPath, value: &str, message: impl AsRef<str>) {
        self.fault(
            FaultKind::Invalid,
            path,
            format!("`{value}`: {}", message.as_ref()),
        );
    }

    /// Reports that the expression `text` at `path` does not compile, at the line and column of
    /// `error`. Of an expression over several lines, only that line is quoted.
    pub(crate) fn does_not_compile(&mut self, path: &FieldPath, text: &str, error: &CompileError) {
        self.push(|document| {
            let (place, wrong) = error_place(document, path, error);
            let line = text.lines().nth(error.line.saturating_sub(1));
            let shown = truncate_with_mark(line.unwrap_or(text).trim(), MAX_QUOTED_BYTES);
            let message = format!("`{shown}`: compilation failed: {wrong}");
            Fault::error(place, FaultKind::Invalid, message)
        });
    }

    /// Reports that `value`, the key or value of the entry `key`, is invalid. As in Kubernetes, the
    /// path is that of the map; the line is that of the entry.
    pub(crate) fn invalid_entry(&mut self, map: &FieldPath, key: &str, value: &str, message: &str) {
        self.push(|document| {
            let place = document.place(map.key(key)).at(map.clone());
            let message = format!("`{value}`: {message}");
            Fault::error(place, FaultKind::Invalid, message)
        });
    }

    pub(crate) fn forbidden(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.fault(FaultKind::Forbidden, path, message);
    }

    /// Reports that `value` is not one of `supported`.
    pub(crate) fn not_supported(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        self.fault(FaultKind::NotSupported, path, unsupported_value(value, supported));
    }

    /// Checks that `value` is not empty, and one of `supported`.
    pub(crate) fn required_one_of(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, format!("`{}`", supported.join("` or `")));
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// Reports the rule that `value` breaks, if `syntax` is an error.
    pub(crate) fn syntax(&mut self, path: &FieldPath, value: &str, syntax: SyntaxResult) {
        if let Err(rule) = syntax {
            self.invalid(path, value, rule);
        }
    }
}

/// Returns the place in the file of an error in the expression at `path`, and the message. If the
/// column in the file is not known, the message contains the position within the expression.
pub(crate) fn error_place(document: &Document, path: &FieldPath, error: &CompileError) -> (Place, String) {
    let place = document.place_within(path.clone(), (error.line, error.column));
    let wrong = match place.column {
        0 => error.to_string(),
        _ => error.message.clone(),
    };
    (place, wrong)
}

/// Collects the warnings about one object.
pub(crate) struct Lint<'a> {
    document: &'a PackedDocument,
    /// The unpacked document, unpacked for the first warning.
    unpacked: OnceCell<Document>,
    pub(crate) faults: &'a mut Faults,
}

impl<'a> Lint<'a> {
    pub(crate) const fn new(document: &'a PackedDocument, faults: &'a mut Faults) -> Self {
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

    /// Whether no more warnings are kept, so that checks can be skipped.
    pub(crate) fn is_full(&self) -> bool {
        self.faults.is_full()
    }

    /// The place of `path` in the document.
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.document().place(path)
    }

    /// The document as it was read.
    pub(crate) fn document(&self) -> &Document {
        self.unpacked.get_or_init(|| self.document.unpack())
    }
}

#[cfg(test)]
mod tests;
