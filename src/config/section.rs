//! A mapping of the configuration, read and validated field by field.
//!
//! serde stops at the first value of a wrong type; a user who mends a file
//! wants every fault at once. So the sections are read through here: each
//! reader takes what is right, notes what is not, and goes on.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::duration;
use crate::document::{Document, Node, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// One run over one document.
pub(super) struct Reading<'d> {
    document: &'d Document,
    /// Relative paths of the document start here.
    folder: &'d Path,
    faults: RefCell<Faults>,
}

/// A mapping, or nothing where the document has none.
pub(super) struct Section<'r> {
    reading: &'r Reading<'r>,
    path: FieldPath,
    node: Option<&'r Node>,
}

// === impl Reading ===

impl<'d> Reading<'d> {
    pub(super) fn new(document: &'d Document, folder: &'d Path) -> Self {
        Self {
            document,
            folder,
            faults: RefCell::default(),
        }
    }

    /// The whole document; every field must be one of `fields`.
    pub(super) fn root<'r>(&'r self, fields: &[&str]) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), Some(fields))
    }

    /// The whole document, of a kind that is not ours: unknown fields are no fault.
    pub(super) fn foreign_root<'r>(&'r self) -> Section<'r> {
        Section::new(self, FieldPath::root(), self.document.root(), None)
    }

    /// What was found, in the order of the lines.
    pub(super) fn into_faults(self) -> Faults {
        let mut faults: Vec<Fault> = self.faults.into_inner().into_iter().collect();
        faults.sort_by_key(|fault| fault.place.line);
        let mut sorted = Faults::new();
        sorted.extend(faults);
        sorted
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
    fn new(reading: &'r Reading<'r>, path: FieldPath, node: &'r Node, fields: Option<&[&str]>) -> Self {
        match &node.value {
            Value::Map(entries) => {
                let unknown = |key: &str| fields.is_some_and(|fields| !fields.contains(&key));
                for entry in entries.iter().filter(|entry| unknown(&entry.key)) {
                    let message = format!("unknown field `{}`", entry.key);
                    reading.fault(path.field(&entry.key), FaultKind::NotSupported, message);
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

    /// Where this section is.
    pub(super) fn here(&self) -> Place {
        self.reading.place(self.path.clone())
    }

    /// Notes what is wrong with the field `name`.
    pub(super) fn fault(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.field(name), kind, message);
    }

    /// Notes what is wrong with this section as a whole.
    pub(super) fn fault_here(&self, kind: FaultKind, message: impl Into<String>) {
        self.reading.fault(self.path.clone(), kind, message);
    }

    /// The value of the field `name`; `null` counts as absent, as everywhere in Kubernetes.
    pub(super) fn value(&self, name: &str) -> Option<&'r Node> {
        self.node?.get(name).filter(|node| node.value != Value::Null)
    }

    /// The mapping in the field `name`, whose fields must be among `fields`; without any value if absent.
    pub(super) fn section(&self, name: &str, fields: &[&str]) -> Self {
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
    pub(super) fn optional(&self, name: &str, fields: &[&str]) -> Option<Self> {
        self.value(name).map(|_| self.section(name, fields))
    }

    /// The mapping in the field `name`, of a kind that is not ours.
    pub(super) fn foreign_section(&self, name: &str) -> Self {
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
    pub(super) fn items(&self, name: &str) -> Vec<ListItem<'r>> {
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
    pub(super) fn entries(&self, name: &str) -> Vec<(&'r str, ListItem<'r>)> {
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

    /// The text in the field `name`, not empty.
    pub(super) fn text(&self, name: &str) -> Option<&'r str> {
        match self.value(name)?.as_str() {
            Some("") => {
                self.fault(name, FaultKind::Required, "must not be empty");
                None
            }
            Some(text) => Some(text),
            None => {
                self.fault(name, FaultKind::TypeInvalid, "must be text");
                None
            }
        }
    }

    /// Like [`Section::text`], where nothing between the quotes counts as absent.
    pub(super) fn text_if_any(&self, name: &str) -> Option<&'r str> {
        self.value(name)
            .filter(|node| node.as_str() != Some(""))
            .and_then(|_| self.text(name))
    }

    /// Like [`Section::path`], where nothing between the quotes counts as absent.
    pub(super) fn path_if_any(&self, name: &str) -> Option<PathBuf> {
        self.text_if_any(name)
            .map(|text| resolve(self.reading.folder, text))
    }

    /// Notes what deserves a look at the field `name`.
    pub(super) fn warn(&self, name: &str, kind: FaultKind, message: impl Into<String>) {
        let fault = Fault::warning(self.reading.place(self.path.field(name)), kind, message);
        self.reading.faults.borrow_mut().push(fault);
    }

    /// Like [`Section::text`], for a field that must be there.
    pub(super) fn required_text(&self, name: &str, what: &str) -> Option<&'r str> {
        if self.value(name).is_none() {
            self.fault(name, FaultKind::Required, what);
        }
        self.text(name)
    }

    /// The texts of the list in the field `name`.
    pub(super) fn texts(&self, name: &str) -> Vec<(usize, &'r str)> {
        let items = self.items(name);
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((index, item.text()?)))
            .collect()
    }

    /// Like [`Section::texts`], without the positions.
    pub(super) fn strings(&self, name: &str) -> Vec<String> {
        self.texts(name)
            .into_iter()
            .map(|(_, text)| text.to_owned())
            .collect()
    }

    /// Notes what is wrong with one item of the list in the field `name`.
    pub(super) fn fault_at(&self, name: &str, index: usize, kind: FaultKind, message: impl Into<String>) {
        self.reading
            .fault(self.path.field(name).index(index), kind, message);
    }

    /// The path in the field `name`, made absolute.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|text| resolve(self.reading.folder, text))
    }

    /// Like [`Section::path`], for a field that must be there.
    pub(super) fn required_path(&self, name: &str, what: &str) -> Option<PathBuf> {
        self.required_text(name, what)
            .map(|text| resolve(self.reading.folder, text))
    }

    /// The IP address and port in the field `name`.
    pub(super) fn address(&self, name: &str) -> Option<SocketAddr> {
        let text = self.text(name)?;
        let address = text.parse().ok();
        if address.is_none() {
            let message = format!("`{text}` is not an IP address and port, such as `127.0.0.1:8443`");
            self.fault(name, FaultKind::Invalid, message);
        }
        address
    }

    /// The duration in the field `name`, in Go's syntax; it may be zero.
    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        const FORM: &str = "must be a duration such as `25s` or `1m30s`";
        let node = self.value(name)?;
        let Some(text) = node.as_str() else {
            self.fault(name, FaultKind::TypeInvalid, FORM);
            return None;
        };
        let duration = duration::parse_duration(text);
        if duration.is_none() {
            self.fault(name, FaultKind::Invalid, format!("`{text}`: {FORM}"));
        }
        duration
    }

    /// The duration in the field `name`, longer than nothing.
    pub(super) fn positive_duration(&self, name: &str) -> Option<Duration> {
        let duration = self.duration(name)?;
        if duration.is_zero() {
            self.fault(name, FaultKind::Invalid, "must be longer than 0s");
            return None;
        }
        Some(duration)
    }

    /// The whole number in the field `name`, from 1.
    pub(super) fn positive(&self, name: &str) -> Option<usize> {
        self.whole(name, 1)
    }

    /// The whole number in the field `name`, from 0.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.whole(name, 0)
    }

    fn whole(&self, name: &str, from: usize) -> Option<usize> {
        let number = match &self.value(name)?.value {
            Value::Number(number) => number,
            _ => {
                self.fault(name, FaultKind::TypeInvalid, "must be a whole number");
                return None;
            }
        };
        match number.as_u64().and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number >= from => Some(number),
            _ => {
                self.fault(
                    name,
                    FaultKind::Invalid,
                    format!("`{number}`: must be a whole number from {from}"),
                );
                None
            }
        }
    }

    /// The truth value in the field `name`.
    pub(super) fn boolean(&self, name: &str) -> Option<bool> {
        match self.value(name)?.value {
            Value::Bool(value) => Some(value),
            _ => {
                self.fault(name, FaultKind::TypeInvalid, "must be `true` or `false`");
                None
            }
        }
    }

    /// The value that `choices` gives the text in the field `name`.
    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let choice = choices.iter().find(|(word, _)| *word == text);
        if choice.is_none() {
            let message = format!("`{text}` is none of {}", one_of(choices));
            self.fault(name, FaultKind::NotSupported, message);
        }
        choice.map(|(_, value)| *value)
    }
}

/// One item of a list.
pub(super) struct ListItem<'r> {
    reading: &'r Reading<'r>,
    path: FieldPath,
    node: &'r Node,
}

// === impl Item ===

impl<'r> ListItem<'r> {
    /// The item as a mapping whose fields must be among `fields`.
    pub(super) fn section(&self, fields: &[&str]) -> Section<'r> {
        Section::new(self.reading, self.path.clone(), self.node, Some(fields))
    }

    /// The item as a mapping of a kind that is not ours.
    pub(super) fn foreign_section(&self) -> Section<'r> {
        Section::new(self.reading, self.path.clone(), self.node, None)
    }

    /// Whether it is a text.
    pub(super) fn is_text(&self) -> bool {
        self.node.as_str().is_some()
    }

    /// The item as a text that is not empty.
    pub(super) fn text(&self) -> Option<&'r str> {
        let text = self.text_or_empty();
        if text == Some("") {
            self.fault(FaultKind::Required, "must not be empty");
        }
        text.filter(|text| !text.is_empty())
    }

    /// The item as a text.
    pub(super) fn text_or_empty(&self) -> Option<&'r str> {
        let text = self.node.as_str();
        if text.is_none() {
            self.fault(FaultKind::TypeInvalid, "must be text");
        }
        text
    }

    /// The item as a path, made absolute.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.text().map(|text| resolve(self.reading.folder, text))
    }

    /// Notes what is wrong with it.
    pub(super) fn fault(&self, kind: FaultKind, message: impl Into<String>) {
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

/// The words to choose from, for a message.
pub(super) fn one_of<T>(choices: &[(&str, T)]) -> String {
    choices
        .iter()
        .map(|(word, _)| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
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
