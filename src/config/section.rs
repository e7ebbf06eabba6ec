//! A mapping of the configuration, read and validated field by field.
//!
//! serde stops at the first value of a wrong type, but users want to see every fault at
//! once. So sections are read with this: each reader takes the valid values, records the
//! faults, and continues.

mod values;

use std::cell::RefCell;

/// What to do about a value that is not a string.
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
    /// The fields that each mapping may have, by its path without positions in lists: of
    /// everything that this thread has read.
    pub(crate) static FIELDS_READ: RefCell<BTreeMap<String, BTreeSet<String>>> = RefCell::default();
}

/// Fields by their former name, and the name that they have now.
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

/// One run over one document.
pub(crate) struct ReadContext<'d> {
    document: &'d Document,
    /// Relative paths of the document start here.
    folder: &'d Path,
    /// Where what it names may be.
    scope: FileScope,
    faults: RefCell<Faults>,
}

/// A mapping, or nothing where the document has none.
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

    /// A run over a tenant's document: what it names is below its folder.
    pub(crate) fn of_tenant(document: &'d Document, folder: &'d Path) -> Self {
        Self {
            scope: FileScope::below(folder),
            ..Self::new(document, folder)
        }
    }

    /// The whole document; every field must be one of `fields`.
    pub(crate) fn root<'r>(&'r self, fields: &[&str]) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), Some(fields))
    }

    /// The whole document, of a kind that is not ours: unknown fields are no fault.
    pub(crate) fn foreign_root<'r>(&'r self) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), None)
    }

    /// What was found, in the order of the lines, those of other files last.
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

    /// `text`, which stands at `place`, as an absolute path.
    fn located(&self, place: FieldPath, text: &str) -> Option<PathBuf> {
        let path = resolve(self.folder, text);
        if self.scope.holds(&path) {
            return Some(path);
        }
        let message = format!(
            "`{text}` leads out of `{}`, where all files of this entry must be",
            self.folder.display()
        );
        self.fault(place, FaultKind::Forbidden, message);
        None
    }

    /// Where `path` is. The file says which object it is in: there is one to a file.
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
    /// `fields`: those that may be there; `None`: any.
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

    /// Where what the document names may be.
    pub(crate) fn scope(&self) -> FileScope {
        self.reading.scope.clone()
    }

    /// Where this section is.
    pub(crate) fn here(&self) -> Place {
        self.reading.place(self.path.clone())
    }

    /// Notes what is wrong with the field `name`.
    pub(crate) fn fault(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.field(name), kind, message);
    }

    /// Notes what is wrong with the text of the field `name` at its character `at` (line and
    /// column, from 1).
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

    /// Notes the faults of another file that this one names.
    pub(crate) fn append(&self, faults: Faults) {
        self.reading.faults.borrow_mut().append(faults);
    }

    /// Notes what is wrong with this section as a whole.
    pub(crate) fn fault_here(&self, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.clone(), kind, message);
    }

    /// The value of the field `name`; `null` counts as absent, as everywhere in Kubernetes.
    pub(crate) fn value(&self, name: &str) -> Option<&'r Node> {
        self.node?.get(name).filter(|node| node.value != Value::Null)
    }

    /// The mapping in the field `name`, whose fields must be among `fields`; without any value if absent.
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

    /// The mapping in the field `name`, if the field is there.
    pub(crate) fn optional(&self, name: &str, fields: &[&str]) -> Option<Self> {
        self.value(name).map(|_| self.section(name, fields))
    }

    /// The mapping in the field `name`, of a kind that is not ours.
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

    /// Notes what is wrong with one item of the list in the field `name`.
    pub(crate) fn fault_at(&self, name: &str, index: usize, kind: FaultKind, message: impl Into<String>) {
        self.reading
            .fault(self.path.field(name).index(index), kind, message);
    }

    /// Notes what deserves a look at the field `name`.
    pub(crate) fn warn(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        let fault = Fault::warning(self.reading.place(self.path.field(name)), kind, message);
        self.reading.faults.borrow_mut().push(fault);
    }
}

/// What is wrong with the field `name` of the mapping at `path`, which may have `fields`.
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

    /// The item as a mapping of a kind that is not ours.
    pub(crate) fn foreign_section(&self) -> Section<'r> {
        Section::new(self.reading, self.path.clone(), self.node, None)
    }

    /// Whether it is a text.
    pub(crate) fn is_text(&self) -> bool {
        self.node.as_str().is_some()
    }

    /// The item as a text that is not empty.
    pub(crate) fn text(&self) -> Option<&'r str> {
        let text = self.text_or_empty();
        if text == Some("") {
            self.fault(FaultKind::Required, "must not be empty");
        }
        text.filter(|text| !text.is_empty())
    }

    /// The item as a text.
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

    /// Notes what is wrong with it.
    pub(crate) fn fault(&self, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.clone(), kind, message);
    }
}

/// `text` as a path from `folder` on, without `.` and `..`: as Go's
/// `filepath.Join`, so that we read the very file that client-go reads.
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
