//! Field paths and faults: errors and warnings with the place where they occur.
//!
//! Wording and format follow Kubernetes' `apimachinery/pkg/util/validation/field`, so that a fault
//! reads like an error of `kubectl apply`. Validation collects all faults instead of stopping at
//! the first.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The path of a value in a document, such as `spec.resourceRules[0].verbs`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FieldPath(Vec<PathSegment>);

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathSegment {
    /// A field of a mapping: `.name`.
    Field(String),
    /// An item of a list: `[3]`.
    Index(usize),
    /// An entry of a mapping whose keys are data: `[key]`.
    Key(String),
}

/// The kind of a fault, in Kubernetes' terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// A required value is missing (`FieldValueRequired`).
    Required,
    /// A value is invalid (`FieldValueInvalid`).
    Invalid,
    /// A value outside an enumeration, or an unknown field (`FieldValueNotSupported`).
    NotSupported,
    /// A value that must be unique occurs twice (`FieldValueDuplicate`).
    Duplicate,
    /// A value must not be present (`FieldValueForbidden`).
    Forbidden,
    /// A string is too long (`FieldValueTooLong`).
    TooLong,
    /// A list has too many items (`FieldValueTooMany`).
    TooMany,
    /// A value of the wrong type (`FieldValueTypeInvalid`).
    TypeInvalid,
    /// A referenced object does not exist (`FieldValueNotFound`).
    NotFound,
    /// A value is valid, but grants more or does less than it seems to. Only in warnings.
    Suspicious,
    /// The document cannot be read at all.
    Unreadable,
}

/// Whether a fault prevents the use of what it is found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The whole set is not used.
    Error,
    /// It takes effect, but probably not as intended.
    Warning,
}

/// Where a fault is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the user named it; `None` if there is no file.
    pub file: Option<Arc<str>>,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// The character in the line, from 1; 0 if only the line is known.
    pub column: u32,
    /// The object, as `Kind/name` or `Kind/namespace/name`; empty if there is none.
    pub object: String,
    /// The field within the object or document.
    pub path: FieldPath,
}

/// An error or warning: the place, the problem, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The place.
    pub place: Place,
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The kind of fault.
    pub kind: FaultKind,
    /// The problem and the remedy: lower case, no full stop, user input in backticks.
    pub message: String,
}

/// How many errors of one run are kept, and how many warnings. One more says that there are more.
const MAX_FAULTS: usize = 1_000;

/// The faults of one run, in the order found: the first 1,000 errors, the first 1,000 warnings, and
/// of each whether there are more. So warnings do not displace errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    kept: Vec<Fault>,
    /// How many of the kept faults are errors.
    errors: usize,
}

// === impl FieldPath ===

impl FieldPath {
    /// The document itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// This path extended by the field `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.with(PathSegment::Field(name.to_owned()))
    }

    /// This path without its last step; `None` for the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// This path extended by the list item `index`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(PathSegment::Index(index))
    }

    /// This path extended by the entry `key` of a mapping whose keys are data.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(PathSegment::Key(key.to_owned()))
    }

    /// The steps from the document to the value.
    #[must_use]
    pub fn steps(&self) -> &[PathSegment] {
        &self.0
    }

    /// Whether this path is `other` or below it.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Whether one of the paths is the other or below it.
    pub(crate) fn is_related(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0) || other.0.starts_with(&self.0)
    }

    /// Truncates the path to the first steps that fit into `bytes` bytes.
    fn cut(&mut self, bytes: usize) {
        let mut left = bytes;
        let within = self.0.iter().take_while(|step| {
            let length = match step {
                PathSegment::Field(name) | PathSegment::Key(name) => name.len(),
                PathSegment::Index(_) => 0,
            };
            left.checked_sub(length + 1).map(|after| left = after).is_some()
        });
        let within = within.count();
        self.0.truncate(within);
        self.0.shrink_to_fit();
    }

    fn heap_bytes(&self) -> usize {
        let names = self.0.iter().map(|step| match step {
            PathSegment::Field(name) | PathSegment::Key(name) => name.capacity(),
            PathSegment::Index(_) => 0,
        });
        self.0.capacity() * size_of::<PathSegment>() + names.sum::<usize>()
    }

    fn with(&self, step: PathSegment) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathSegment::Field(name) if position == 0 => f.write_str(name)?,
                PathSegment::Field(name) => write!(f, ".{name}")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

// === impl FaultKind ===

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Required,
        Self::Invalid,
        Self::NotSupported,
        Self::Duplicate,
        Self::Forbidden,
        Self::TooLong,
        Self::TooMany,
        Self::TypeInvalid,
        Self::NotFound,
        Self::Suspicious,
        Self::Unreadable,
    ];

    /// The name of the kind for programs, which never changes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Invalid => "invalid",
            Self::NotSupported => "not-supported",
            Self::Duplicate => "duplicate",
            Self::Forbidden => "forbidden",
            Self::TooLong => "too-long",
            Self::TooMany => "too-many",
            Self::TypeInvalid => "type-invalid",
            Self::NotFound => "not-found",
            Self::Suspicious => "suspicious",
            Self::Unreadable => "unreadable",
        }
    }

    /// The words with which Kubernetes begins the message of such an error.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TypeInvalid => "Invalid type",
            Self::NotFound => "Not found",
            Self::Suspicious => "Suspicious",
            Self::Unreadable => "Unreadable",
        }
    }

    /// The reason of this cause in a `metav1.Status` (`field.ErrorType`).
    #[must_use]
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid | Self::Suspicious | Self::Unreadable => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

// === impl Place ===

impl Place {
    /// A file as a whole.
    #[must_use]
    pub fn of_file(path: &Path) -> Self {
        Self {
            file: Some(path.display().to_string().into()),
            ..Self::default()
        }
    }

    /// The same file and object, with the field `path`.
    #[must_use]
    pub fn at(&self, path: FieldPath) -> Self {
        Self { path, ..self.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(file) = &self.file {
            f.write_str(file)?;
            separator = ": ";
        }
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        if !self.object.is_empty() {
            write!(f, "{separator}{}", self.object)?;
            separator = ": ";
        }
        if !self.path.steps().is_empty() {
            write!(f, "{separator}{}", self.path)?;
        }
        Ok(())
    }
}

// === impl Fault ===

impl Fault {
    /// A fault that prevents the use of what it is found in.
    #[must_use]
    pub fn error(place: Place, kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            place,
            severity: Severity::Error,
            kind,
            message: message.into(),
        }
    }

    fn heap_bytes(&self) -> usize {
        let Place {
            file, object, path, ..
        } = &self.place;
        let file = file.as_ref().map_or(0, |file| file.len());
        file + object.capacity() + self.message.capacity() + path.heap_bytes()
    }

    /// A fault that does not prevent the use of what it is found in.
    #[must_use]
    pub fn warning(place: Place, kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            place,
            severity: Severity::Warning,
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

// === impl Faults ===

impl Faults {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kept: Vec::new(),
            errors: 0,
        }
    }

    /// Adds a fault, unless there are too many of its severity: otherwise, a document with an error
    /// every few bytes would fill the memory.
    pub fn push(&mut self, fault: Fault) {
        let is_error = fault.severity == Severity::Error;
        let (alike, words) = match is_error {
            true => (self.errors, "errors"),
            false => (self.warnings(), "warnings"),
        };
        let kept = match alike {
            0..MAX_FAULTS => fault,
            MAX_FAULTS => Fault {
                message: format!("there are more than {MAX_FAULTS} {words}: correct these first"),
                kind: FaultKind::TooMany,
                ..fault
            },
            _ => return,
        };
        self.errors += usize::from(is_error);
        self.kept.push(kept);
    }

    const fn warnings(&self) -> usize {
        self.kept.len() - self.errors
    }

    /// Whether there are so many warnings that no more are kept.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.warnings() > MAX_FAULTS
    }

    /// Adds the faults of another run.
    pub fn append(&mut self, other: Self) {
        self.extend(other);
    }

    /// The first `count` faults, with paths and messages of about `bytes` bytes each at most, and
    /// one more that says how many are left out.
    #[must_use]
    pub fn bounded(mut self, count: usize, bytes: usize) -> Self {
        let more = self.kept.len().saturating_sub(count);
        self.kept.truncate(count);
        self.errors = self
            .kept
            .iter()
            .filter(|fault| fault.severity == Severity::Error)
            .count();
        for fault in &mut self.kept {
            cut(&mut fault.message, bytes);
            fault.place.path.cut(bytes);
        }
        if let Some(last) = self.kept.last().filter(|_| more > 0) {
            let place = Place {
                path: FieldPath::root(),
                ..last.place.clone()
            };
            let message = format!("{more} more errors");
            self.push(Fault::error(place, FaultKind::TooMany, message));
        }
        self.kept.shrink_to_fit();
        self
    }

    /// An upper bound of the bytes of memory that the faults take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_faults = self.kept.iter().map(Fault::heap_bytes).sum::<usize>();
        self.kept.capacity() * size_of::<Fault>() + of_faults
    }

    /// Whether one of the faults is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there are no faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many faults are kept, warnings included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Iterates over the faults in the order found.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.kept.iter()
    }
}

/// Cuts `text` to at most `bytes` bytes between characters, and marks the cut with a further `…`.
fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
        text.shrink_to_fit();
    }
}

impl IntoIterator for Faults {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_iter()
    }
}

impl Extend<Fault> for Faults {
    fn extend<T: IntoIterator<Item = Fault>>(&mut self, faults: T) {
        faults.into_iter().for_each(|fault| self.push(fault));
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.kept.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

// Suggestions for misspelled words.

/// Longer words are not compared: no word that Kubernetes knows is nearly as long.
const MAX_MISSPELLED_BYTES: usize = 256;

/// The word among `words` that is nearest to `written`, if it is near enough to be a misspelling:
/// singular for plural, another case, or up to a third of its letters mistyped, but at most three.
#[must_use]
pub fn nearest<'w>(written: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if written.len() > MAX_MISSPELLED_BYTES {
        return None;
    }
    let lower = written.to_ascii_lowercase();
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    words
        .into_iter()
        .filter(|word| *word != written)
        .map(|word| (distance(&lower, &word.to_ascii_lowercase()), word))
        .filter(|(distance, word)| *distance <= allowed || is_plural(&lower, word))
        .min()
        .map(|(_, word)| word)
}

/// The message that `value` is not one of `supported`, and which of them may have been meant.
#[must_use]
pub fn unsupported_value(value: &str, supported: &[&str]) -> String {
    let meant = match nearest(value, supported.iter().copied()) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    };
    format!("`{value}`: supported values: `{}`{meant}", supported.join("`, `"))
}

fn is_plural(singular: &str, word: &str) -> bool {
    let stem = singular.strip_suffix('y').unwrap_or(singular);
    word.strip_prefix(stem)
        .is_some_and(|ending| ["s", "es", "ies"].contains(&ending))
}

/// The number of letters to add, remove, replace or swap with their neighbour (optimal string
/// alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, counterpart) in other.iter().enumerate() {
            let cell = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(letter != counterpart);
            let mut best = replaced
                .min(cell(&last, column + 1) + 1)
                .min(cell(&next, column) + 1);
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(counterpart)
                && other.get(column - 1) == Some(letter);
            if swapped {
                best = best.min(cell(&before, column - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
