//! A mapping of the configuration, read and validated field by field.
//!
//! serde stops at the first value of a wrong type, but users want to see all errors at once. So
//! every reader of a section takes the valid values, records the errors, and continues.

mod values;

use std::cell::RefCell;

/// The message for a value that is not a string, with the remedy if there is one.
const fn not_a_string(node: &Node) -> &'static str {
    match node.value {
        Value::Bool(_) | Value::Number(_) => "must be a string: put it in quotes",
        _ => "must be a string",
    }
}

#[cfg(test)]
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::files::FileScope;
use portcullis_policy::document::{Document, Node, Value};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place, nearest};
pub(crate) use values::{one_of, parse_duration};

#[cfg(test)]
thread_local! {
    /// The fields that each mapping may have, for all mappings that this thread has read. The key
    /// is the path without list indexes.
    pub(crate) static FIELDS_READ: RefCell<BTreeMap<String, BTreeSet<String>>> = RefCell::default();
}

/// Former names of fields, with their present names.
const RENAMED: [(&str, &str); 8] = [
    ("age", "maxAge"),
    ("bytes", "maxBytes"),
    ("decisions", "maxDecisions"),
    ("drain", "shutdownTimeout"),
    ("exceptions", "acceptExceptions"),
    ("interval", "pollInterval"),
    ("snapshot", "cacheFile"),
    ("unauthenticated", "authenticationTimeout"),
];

/// The reading of one document, which collects the errors.
pub(crate) struct ReadContext<'d> {
    document: &'d Document,
    /// The folder against which relative paths are resolved.
    folder: &'d Path,
    /// Where the files that the document names may be.
    scope: FileScope,
    faults: RefCell<Faults>,
}

/// A mapping of the document; empty if the document does not have it.
pub(crate) struct Section<'r> {
    reading: &'r ReadContext<'r>,
    path: FieldPath,
    node: Option<&'r Node>,
}

// === impl ReadContext ===

impl<'d> ReadContext<'d> {
    pub(crate) fn new(document: &'d Document, folder: &'d Path) -> Self {
        Self {
            document,
            folder,
            scope: FileScope::Anywhere,
            faults: RefCell::default(),
        }
    }

    /// For a tenant's document: the files that it names must be below `folder`.
    pub(crate) fn of_tenant(document: &'d Document, folder: &'d Path) -> Self {
        Self {
            scope: FileScope::below(folder),
            ..Self::new(document, folder)
        }
    }

    /// The root of the document, whose fields must all be among `fields`.
    pub(crate) fn root<'r>(&'r self, fields: &[&str]) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), Some(fields))
    }

    /// The root of a document whose kind is not ours: unknown fields are allowed.
    pub(crate) fn foreign_root<'r>(&'r self) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), None)
    }

    /// The errors and warnings in the order of lines; those of other files last.
    pub(crate) fn into_faults(self) -> Faults {
        let mut faults: Vec<Fault> = self.faults.into_inner().into_iter().collect();
        let own = self.document.place(FieldPath::root()).file;
        faults.sort_by_key(|fault| match fault.place.file == own {
            true => (None, fault.place.line),
            false => (fault.place.file.clone(), fault.place.line),
        });
        let mut sorted = Faults::new();
        sorted.extend(faults);
        sorted
    }

    /// `text`, the value at `place`, as an absolute path. Records an error if it is outside of the
    /// scope.
    fn located(&self, place: FieldPath, text: &str) -> Option<PathBuf> {
        let path = resolve(self.folder, text);
        if self.scope.contains(&path) {
            return Some(path);
        }
        let message = format!(
            "`{text}` leads out of `{}`, which must contain all files of this entry",
            self.folder.display()
        );
        self.fault(place, FaultKind::Forbidden, message);
        None
    }

    /// The place of `path`. The object is not named, because a file holds only one.
    fn place(&self, path: FieldPath) -> Place {
        Place {
            object: String::new(),
            ..self.document.place(path)
        }
    }

    fn fault(&self, path: FieldPath, kind: FaultKind, message: impl Into<String>) {
        self.faults
            .borrow_mut()
            .push(Fault::error(self.place(path), kind, message));
    }
}

// === impl Section ===

impl<'r> Section<'r> {
    /// `fields` are the fields that are allowed; with `None`, all are.
    fn new(reading: &'r ReadContext<'r>, path: FieldPath, node: &'r Node, fields: Option<&[&str]>) -> Self {
        #[cfg(test)]
        note_fields(&path, fields);
        match &node.value {
            Value::Map(entries) => {
                for entry in entries {
                    if let Some(message) = unknown_field(&path, &entry.key, fields) {
                        reading.fault(path.field(&entry.key), FaultKind::NotSupported, message);
                    }
                }
                Self {
                    reading,
                    path,
                    node: Some(node),
                }
            }
            Value::Null => Self {
                reading,
                path,
                node: None,
            },
            _ => {
                reading.fault(path.clone(), FaultKind::TypeInvalid, "must be a mapping");
                Self {
                    reading,
                    path,
                    node: None,
                }
            }
        }
    }

    /// Where the files that the document names may be.
    pub(crate) fn scope(&self) -> FileScope {
        self.reading.scope.clone()
    }

    /// The place of this section.
    pub(crate) fn here(&self) -> Place {
        self.reading.place(self.path.clone())
    }

    /// Records an error of the field `name`.
    pub(crate) fn fault(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.field(name), kind, message);
    }

    /// Records an error within the string in the field `name`, `at` this line and column (from 1).
    pub(crate) fn fault_within(&self, name: &str, at: (usize, usize), message: &str) {
        let place = self.reading.document.place_within(self.path.field(name), at);
        let message = match place.column {
            0 => format!("{}:{}: {message}", at.0, at.1),
            _ => message.to_owned(),
        };
        let place = Place {
            object: String::new(),
            ..place
        };
        let fault = Fault::error(place, FaultKind::Invalid, message);
        self.reading.faults.borrow_mut().push(fault);
    }

    /// Records the errors and warnings of another file that the document names.
    pub(crate) fn append(&self, faults: Faults) {
        self.reading.faults.borrow_mut().append(faults);
    }

    /// Records an error of this section as a whole.
    pub(crate) fn fault_here(&self, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.clone(), kind, message);
    }

    /// The value of the field `name`. As everywhere in Kubernetes, `null` counts as absent.
    pub(crate) fn value(&self, name: &str) -> Option<&'r Node> {
        self.node?.get(name).filter(|node| node.value != Value::Null)
    }

    /// The mapping in the field `name`, whose fields must be among `fields`; empty if the field is
    /// absent.
    pub(crate) fn section(&self, name: &str, fields: &[&str]) -> Self {
        let path = self.path.field(name);
        match self.value(name) {
            Some(node) => Self::new(self.reading, path, node, Some(fields)),
            None => Self {
                reading: self.reading,
                path,
                node: None,
            },
        }
    }

    /// The mapping in the field `name`, if it is present.
    pub(crate) fn optional(&self, name: &str, fields: &[&str]) -> Option<Self> {
        self.value(name).map(|_| self.section(name, fields))
    }

    /// The mapping in the field `name`, whose kind is not ours: unknown fields are allowed.
    pub(crate) fn foreign_section(&self, name: &str) -> Self {
        let path = self.path.field(name);
        match self.value(name) {
            Some(node) => Self::new(self.reading, path, node, None),
            None => Self {
                reading: self.reading,
                path,
                node: None,
            },
        }
    }

    /// The items of the list in the field `name`.
    pub(crate) fn items(&self, name: &str) -> Vec<ListItem<'r>> {
        let path = self.path.field(name);
        match self.value(name).map(|node| &node.value) {
            None => Vec::new(),
            Some(Value::List(items)) => items
                .iter()
                .enumerate()
                .map(|(index, node)| ListItem {
                    reading: self.reading,
                    path: path.index(index),
                    node,
                })
                .collect(),
            Some(_) => {
                self.fault(name, FaultKind::TypeInvalid, "must be a list");
                Vec::new()
            }
        }
    }

    /// The entries of the mapping in the field `name`, by key.
    pub(crate) fn entries(&self, name: &str) -> Vec<(&'r str, ListItem<'r>)> {
        let path = self.path.field(name);
        match self.value(name).map(|node| &node.value) {
            None => Vec::new(),
            Some(Value::Map(entries)) => entries
                .iter()
                .map(|entry| {
                    let item = ListItem {
                        reading: self.reading,
                        path: path.field(&entry.key),
                        node: &entry.value,
                    };
                    (entry.key.as_str(), item)
                })
                .collect(),
            Some(_) => {
                self.fault(name, FaultKind::TypeInvalid, "must be a mapping");
                Vec::new()
            }
        }
    }

    /// Records an error of one item of the list in the field `name`.
    pub(crate) fn fault_at(&self, name: &str, index: usize, kind: FaultKind, message: impl Into<String>) {
        self.reading
            .fault(self.path.field(name).index(index), kind, message);
    }

    /// Records a warning about the field `name`.
    pub(crate) fn warn(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        let fault = Fault::warning(self.reading.place(self.path.field(name)), kind, message);
        self.reading.faults.borrow_mut().push(fault);
    }
}

/// The message about the field `name`, if the mapping at `path` may only have `fields` and it is
/// not one of them.
fn unknown_field(path: &FieldPath, name: &str, fields: Option<&[&str]>) -> Option<String> {
    let fields = fields.filter(|fields| !fields.contains(&name))?;
    let renamed = RENAMED
        .iter()
        .find(|(old, new)| *old == name && fields.contains(new));
    Some(match renamed {
        Some((_, new)) => format!("renamed to `{}`", path.field(new)),
        None => match nearest(name, fields.iter().copied()) {
            Some(near) => format!("unknown field `{name}`: did you mean `{near}`?"),
            None => format!(
                "unknown field `{name}`: supported fields: `{}`",
                fields.join("`, `")
            ),
        },
    })
}

#[cfg(test)]
fn note_fields(path: &FieldPath, fields: Option<&[&str]>) {
    let Some(fields) = fields else { return };
    let path = path.to_string();
    let parts: Vec<&str> = path.split(['[', ']']).step_by(2).collect();
    let fields = fields.iter().map(|field| (*field).to_owned());
    FIELDS_READ.with_borrow_mut(|read| read.entry(parts.join("[]")).or_default().extend(fields));
}

/// One item of a list.
pub(crate) struct ListItem<'r> {
    reading: &'r ReadContext<'r>,
    path: FieldPath,
    node: &'r Node,
}

// === impl ListItem ===

impl<'r> ListItem<'r> {
    /// The item as a mapping whose fields must be among `fields`.
    pub(crate) fn section(&self, fields: &[&str]) -> Section<'r> {
        Section::new(self.reading, self.path.clone(), self.node, Some(fields))
    }

    /// The item as a mapping whose kind is not ours: unknown fields are allowed.
    pub(crate) fn foreign_section(&self) -> Section<'r> {
        Section::new(self.reading, self.path.clone(), self.node, None)
    }

    /// Whether the item is a string.
    pub(crate) fn is_text(&self) -> bool {
        self.node.as_str().is_some()
    }

    /// The item as a string, which must not be empty.
    pub(crate) fn text(&self) -> Option<&'r str> {
        let text = self.text_or_empty();
        if text == Some("") {
            self.fault(FaultKind::Required, "must not be empty");
        }
        text.filter(|text| !text.is_empty())
    }

    /// The item as a string.
    pub(crate) fn text_or_empty(&self) -> Option<&'r str> {
        let text = self.node.as_str();
        if text.is_none() {
            self.fault(FaultKind::TypeInvalid, not_a_string(self.node));
        }
        text
    }

    /// The item as a path, made absolute.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.text()
            .and_then(|text| self.reading.located(self.path.clone(), text))
    }

    /// Records an error of this item.
    pub(crate) fn fault(&self, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.clone(), kind, message);
    }
}

/// Resolves `text` against `folder` and removes `.` and `..`, like Go's `filepath.Join`, so that
/// the gateway reads the same file as client-go.
fn resolve(folder: &Path, text: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in folder.join(text).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_as_go_does() {
        let table = [
            ("a", "/etc/p/a"),
            ("./a/./b", "/etc/p/a/b"),
            ("../a", "/etc/a"),
            ("a/../../b", "/etc/b"),
            ("../../../../a", "/a"),
            ("/abs", "/abs"),
            ("/abs/../x", "/x"),
        ];
        for (text, expected) in table {
            assert_eq!(resolve(Path::new("/etc/p"), text), Path::new(expected), "{text}");
        }
    }
}
