//! Collects the faults and the warnings of one object, and says for what its expressions are compiled.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;

use crate::document::{Document, KeptDocument};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place, unsupported_value};
use crate::model::{Deadline, truncate_with_mark};
use portcullis_cel::{CompileBudget, CompileError, MAX_COMPILED_BYTES, Version};

/// How many errors of one document are reported: nobody reads more, and each is longer than what it is
/// about.
pub(crate) const MAX_ERRORS: usize = 100;

/// How much of an expression a message quotes, in bytes.
const MAX_QUOTED_BYTES: usize = 512;

/// The outcome of a check: the rule that the text breaks.
pub(crate) type Syntax = Result<(), &'static str>;

/// For which version expressions are compiled, and until when.
///
/// Whatever the deadline, the expressions of one object are bounded together, in the work of
/// compiling them and in the memory that they take then ([`CompileBudget`]).
#[derive(Debug, Clone, Copy)]
pub struct Compilation<'c> {
    /// Whose API server they are for.
    pub version: Version,
    /// When to give up: what is not compiled by then is at fault.
    pub deadline: Deadline<'c>,
}

/// How those of one object are.
pub(crate) struct ObjectCompilation<'c> {
    pub(crate) version: Version,
    pub(crate) budget: CompileBudget<'c>,
}

/// Without a deadline.
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
    /// How many bytes its programs take.
    pub(crate) const fn compiled_bytes(&self) -> usize {
        MAX_COMPILED_BYTES - self.budget.bytes()
    }
}

/// Collects what is wrong with one document.
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

    /// The same of a document whose expressions are compiled so.
    pub(crate) const fn compiling(self, compilation: &'a ObjectCompilation<'a>) -> Self {
        Self {
            compilation: Some(compilation),
            ..self
        }
    }

    /// What expressions of the document are compiled for: the newest version, if nothing is said.
    pub(crate) fn cel_version(&self) -> Version {
        self.compilation
            .map_or(Version::NEWEST, |compilation| compilation.version)
    }

    /// Compiles something out of what is left for the document.
    pub(crate) fn compile<T>(&self, compile: impl FnOnce(&CompileBudget<'_>) -> T) -> T {
        match self.compilation {
            Some(compilation) => compile(&compilation.budget),
            None => compile(&CompileBudget::new()),
        }
    }

    /// Whether nothing was wrong since [`Report::new`].
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
                let message = format!("more than {MAX_ERRORS} errors: the first are told");
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

    /// The expression `text` at `path` is none: the fault is where in the file `error` is. Of an
    /// expression over several lines that line alone is shown.
    pub(crate) fn does_not_compile(&mut self, path: &FieldPath, text: &str, error: &CompileError) {
        self.push(|document| {
            let (place, wrong) = within(document, path, error);
            let line = text.lines().nth(error.line.saturating_sub(1));
            let shown = truncate_with_mark(line.unwrap_or(text).trim(), MAX_QUOTED_BYTES);
            let message = format!("`{shown}`: compilation failed: {wrong}");
            Fault::error(place, FaultKind::Invalid, message)
        });
    }

    /// `value` is wrong, which is the key or the value of the entry `key`. As upstream it
    /// is reported at the map; the line is that of the entry.
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

    /// `value` is not one of `supported`.
    pub(crate) fn not_supported(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        self.fault(FaultKind::NotSupported, path, unsupported_value(value, supported));
    }

    /// `value` must be there, and one of `supported`.
    pub(crate) fn required_one_of(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, format!("`{}`", supported.join("` or `")));
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// `value` breaks the rule that `syntax` names.
    pub(crate) fn syntax(&mut self, path: &FieldPath, value: &str, syntax: Syntax) {
        if let Err(rule) = syntax {
            self.invalid(path, value, rule);
        }
    }
}

/// Where in the file the expression at `path` has the error, and what to say of it: where the
/// file does not tell, with the place within the expression.
pub(crate) fn within(document: &Document, path: &FieldPath, error: &CompileError) -> (Place, String) {
    let place = document.place_within(path.clone(), (error.line, error.column));
    let wrong = match place.column {
        0 => error.to_string(),
        _ => error.message.clone(),
    };
    (place, wrong)
}

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

#[cfg(test)]
mod tests;
