//! Checks whether a patch can be merged, and identifies list items.

use std::collections::HashSet;

use super::error::noted_path;
use super::schema::{ListKey, ListType, MapView, ScalarClass, SchemaType};
use super::{ApplyError, FieldMismatches, Schemas};
use crate::admission::GroupVersionKind;
use crate::admission::matching::is_own_group;
use portcullis_cel::json::{Kind, Node, write_string};

/// Checks that every field of the patch is known and has a value of its type, and that no list that
/// is a set or map has duplicate items (`typed/validate.go`).
pub(crate) fn fits(schemas: &Schemas<'_>, of: &SchemaType<'_>, patch: Node<'_>) -> Result<(), ApplyError> {
    let mut walk = FitCheck {
        schemas,
        path: String::new(),
        found: FieldMismatches::default(),
    };
    walk.value(of, patch);
    walk.found.into_error(ApplyError::Patch)
}

/// Checks that the patch contains nothing atomic. A patch that sets one field of an atomic struct
/// rarely means to remove the others, so Kubernetes rejects it.
pub(crate) fn has_no_atomics(
    schemas: &Schemas<'_>,
    of: &SchemaType<'_>,
    patch: Node<'_>,
) -> Result<(), ApplyError> {
    let mut walk = AtomicCheck {
        schemas,
        path: String::new(),
        found: Vec::new(),
    };
    walk.value(of, patch);
    if walk.found.is_empty() {
        Ok(())
    } else {
        Err(ApplyError::Atomic(walk.found))
    }
}

/// Returns an error message if `node` is of another type than `of`, without checking its fields or
/// items. `null` is allowed everywhere.
pub(crate) fn misfit(schemas: &Schemas<'_>, of: &SchemaType<'_>, node: Node<'_>) -> Option<String> {
    let fits = match node.kind() {
        Kind::Null => true,
        Kind::Object => schemas.maps(of).is_some(),
        Kind::Array => of.lists().is_some(),
        Kind::String => matches!(of.scalars(), Some(ScalarClass::String | ScalarClass::Any)),
        Kind::Number => matches!(of.scalars(), Some(ScalarClass::Numeric | ScalarClass::Any)),
        Kind::Bool => matches!(of.scalars(), Some(ScalarClass::Boolean | ScalarClass::Any)),
    };
    (!fits).then(|| match of.scalars() {
        Some(ScalarClass::String) => format!("expected string, got {}", quoted(node)),
        Some(ScalarClass::Numeric) => format!("expected numeric (int or float), got {}", type_name(node)),
        Some(ScalarClass::Boolean) => format!("expected boolean, got {}", quoted(node)),
        Some(ScalarClass::Any) => format!("expected any scalar, got {}", quoted(node)),
        None if schemas.maps(of).is_some() => format!("expected map, got {}", quoted(node)),
        None => format!("expected list, got {}", quoted(node)),
    })
}

/// The JSON of the value, truncated.
fn quoted(node: Node<'_>) -> String {
    const MAX_CHARS: usize = 64;
    let raw = node.raw();
    match raw.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", raw.get(..end).unwrap_or_default()),
        None => raw.to_owned(),
    }
}

fn type_name(node: Node<'_>) -> &'static str {
    match node.kind() {
        Kind::Null => "null",
        Kind::Bool => "bool",
        Kind::Number => "number",
        Kind::String => "string",
        Kind::Array => "list",
        Kind::Object => "map",
    }
}

struct FitCheck<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
    found: FieldMismatches,
}

struct AtomicCheck<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
    found: Vec<String>,
}

// === impl FitCheck ===

impl<'w, 's> FitCheck<'w, 's> {
    fn value(&mut self, of: &'w SchemaType<'s>, node: Node<'_>) {
        if let Some(message) = misfit(self.schemas, of, node) {
            self.found.push(&self.path, message);
            return;
        }
        match node.kind() {
            Kind::Object => {
                if let Some(maps) = self.schemas.maps(of) {
                    self.map(maps, node);
                }
            }
            Kind::Array => {
                if let Some((item, lists)) = of.lists() {
                    self.list(item, lists, node);
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }

    fn map(&mut self, maps: MapView<'w, 's>, node: Node<'_>) {
        let is_root = self.path.is_empty();
        for (name, value) in node.entries() {
            if is_root && is_type_meta(&name) {
                continue;
            }
            let back = self.path.len();
            self.path.push('.');
            self.path.push_str(&name);
            match maps.key(&name) {
                Some(of) => self.value(of, value),
                None => self
                    .found
                    .push(&self.path, "field not declared in schema".to_owned()),
            }
            self.path.truncate(back);
        }
    }

    fn list(&mut self, of: &'w SchemaType<'s>, lists: &ListType<'_>, node: Node<'_>) {
        let mut seen = HashSet::new();
        for (place, value) in node.items().enumerate() {
            let name = match name(lists, value) {
                Ok(name) => name.unwrap_or_else(|| format!("[{place}]")),
                Err(unnamed) => {
                    self.found.push(&self.path, format!("element {place}: {unnamed}"));
                    return;
                }
            };
            let back = self.path.len();
            if seen.contains(&name) {
                self.found
                    .push(&self.path, format!("duplicate entries for key {name}"));
            }
            self.path.push_str(&name);
            self.value(of, value);
            self.path.truncate(back);
            seen.insert(name);
        }
    }
}

/// Whether this is a type field, which a patch cannot change.
pub(crate) fn is_type_meta(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind")
}

// === impl AtomicCheck ===

impl<'w, 's> AtomicCheck<'w, 's> {
    fn value(&mut self, of: &'w SchemaType<'s>, node: Node<'_>) {
        match node.kind() {
            Kind::Object => {
                if let Some(maps) = self.schemas.maps(of) {
                    self.note(maps.atomic);
                    self.map(maps, node);
                }
            }
            Kind::Array => {
                if let Some((item, lists)) = of.lists() {
                    self.note(*lists == ListType::Atomic);
                    self.list(item, node);
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }

    fn note(&mut self, atomic: bool) {
        if atomic && self.found.len() < FieldMismatches::MAX_MISMATCHES {
            self.found.push(noted_path(&self.path));
        }
    }

    /// Checks only declared fields, as Kubernetes does.
    fn map(&mut self, maps: MapView<'w, 's>, node: Node<'_>) {
        for (name, value) in node.entries() {
            if let Some(of) = maps.field(&name) {
                let back = self.path.len();
                self.path.push('.');
                self.path.push_str(&name);
                self.value(of, value);
                self.path.truncate(back);
            }
        }
    }

    fn list(&mut self, of: &'w SchemaType<'s>, node: Node<'_>) {
        for (place, value) in node.items().enumerate() {
            let back = self.path.len();
            self.path.push_str(&format!("[{place}]"));
            self.value(of, value);
            self.path.truncate(back);
        }
    }
}

// Which fields can only be replaced as a whole.

impl Schemas<'_> {
    /// Whether the value at `path` in an object of `kind` can only be replaced as a whole, so that
    /// a configuration must not set it. Paths skip lists: the fields of list items follow the name
    /// of the list. `None` if the kind has no such field.
    ///
    /// # Errors
    ///
    /// [`ApplyError::UnknownKind`].
    pub fn is_atomic(&self, kind: &GroupVersionKind<'_>, path: &[&str]) -> Result<Option<bool>, ApplyError> {
        let mut of = self.of(kind)?;
        for step in path {
            while let Some((item, _)) = of.lists() {
                if self.maps(of).is_some() {
                    break;
                }
                of = item;
            }
            match self.maps(of).and_then(|maps| maps.key(step)) {
                Some(field) => of = field,
                None => return Ok(None),
            }
        }
        let list = of.lists().is_some_and(|(_, lists)| *lists == ListType::Atomic);
        let map = self.maps(of).is_some_and(|maps| maps.atomic);
        Ok(Some(list || map))
    }
}

// The kind of an object after a patch.

/// Checks the type fields of `after`, an object of `kind` after a patch.
///
/// A built-in kind must keep its kind and version, and may omit them. A custom resource must have
/// some kind; whether it is the right one, the API server checks when it stores the object.
///
/// # Errors
///
/// The message with which an API server rejects the request, whatever the failure policy.
pub fn check_type_meta(kind: &GroupVersionKind<'_>, after: Node<'_>) -> Result<(), String> {
    if after.kind() != Kind::Object {
        return Err("the object after the patch is no object".to_owned());
    }
    let version = match kind.group.as_ref() {
        "" => kind.version.to_string(),
        group => format!("{group}/{}", kind.version),
    };
    let is_own = is_own_group(&kind.group);
    for (field, own) in [("apiVersion", version.as_str()), ("kind", kind.kind.as_ref())] {
        let written = after.get(field).filter(|value| !value.is_null());
        if written.is_some_and(|value| value.kind() != Kind::String) {
            return Err(format!("couldn't get version/kind: {field} is no string"));
        }
        match written.and_then(Node::as_str).unwrap_or_default().as_ref() {
            text if text == own => {}
            "" if is_own || field == "apiVersion" => {}
            "" => return Err("Object 'Kind' is missing".to_owned()),
            other if is_own => {
                return Err(format!(
                    "the patch makes {field} {other:?} of {own:?}: unknown conversion"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

// The identity of list items (structured-merge-diff `typed/helpers.go`, `fieldpath/element.go`).

/// The name of an item within its list, as in paths: `[containerPort=80,protocol="TCP"]`, `[="a
/// value of a set"]`. Items with the same name are merged. `None` for an atomic list, whose items
/// have no names.
///
/// # Errors
///
/// Why an item of a set or map has no name.
pub(crate) fn name(lists: &ListType<'_>, item: Node<'_>) -> Result<Option<String>, String> {
    match lists {
        ListType::Atomic => Ok(None),
        ListType::Set => name_in_set(item).map(Some).map_err(str::to_owned),
        ListType::Map(keys) => name_in_map(keys, item).map(Some),
    }
}

fn name_in_set(item: Node<'_>) -> Result<String, &'static str> {
    match item.kind() {
        Kind::Object => Err("associative list without keys has an element that's a map type"),
        Kind::Array => Err("not supported: associative list with lists as elements"),
        Kind::Null => Err("associative list without keys has an element that's an explicit null"),
        Kind::Bool | Kind::Number | Kind::String => {
            let mut name = String::from("[=");
            write(&mut name, item);
            name.push(']');
            Ok(name)
        }
    }
}

fn name_in_map(keys: &[ListKey<'_>], item: Node<'_>) -> Result<String, String> {
    match item.kind() {
        Kind::Null => return Err("associative list with keys may not have a null element".to_owned()),
        Kind::Object => {}
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    }
    let mut name = String::from("[");
    for key in keys {
        let value = item.get(key.name);
        if value.is_none() && key.default.is_none() {
            // An absent key differs from any value.
            continue;
        }
        if name.len() > 1 {
            name.push(',');
        }
        name.push_str(key.name);
        name.push('=');
        match value {
            Some(value) => write(&mut name, value),
            None => name.push_str(key.default.unwrap_or_default()),
        }
    }
    if name.len() == 1 {
        let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    name.push(']');
    Ok(name)
}

/// Writes a value such that equal values have equal representations: `1` and `1.0` do, `1` and
/// `"1"` do not.
fn write(name: &mut String, value: Node<'_>) {
    match value.kind() {
        Kind::String => write_string(name, &value.as_str().unwrap_or_default()),
        Kind::Number => name.push_str(&number(value)),
        Kind::Null | Kind::Bool | Kind::Array | Kind::Object => name.push_str(value.raw()),
    }
}

fn number(value: Node<'_>) -> String {
    match value.as_i64() {
        Some(int) => int.to_string(),
        // Adding zero turns `-0.0` into `0`, which is equal.
        None => (value.as_f64().unwrap_or(f64::NAN) + 0.0).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_as_a_whole_is_told_by_its_path() {
        let kind = |kind: &'static str| GroupVersionKind {
            group: if kind == "Pod" { "" } else { "apps" }.into(),
            version: "v1".into(),
            kind: kind.into(),
        };
        for (of, path, expected) in [
            ("Pod", "spec.containers", Some(false)),
            ("Pod", "spec.containers.args", Some(true)),
            ("Pod", "spec.nodeSelector", Some(true)),
            ("Pod", "spec.tolerations", Some(true)),
            ("Pod", "spec.securityContext", Some(false)),
            ("Pod", "metadata.labels", Some(false)),
            ("Pod", "metadata.labels.a", Some(false)),
            ("Deployment", "spec.template.spec.tolerations", Some(true)),
            ("Deployment", "spec.replicas", Some(false)),
            ("Deployment", "spec.nothing", None),
        ] {
            let path: Vec<&str> = path.split('.').collect();
            let actual = Schemas::builtin().is_atomic(&kind(of), &path).unwrap();
            assert_eq!(actual, expected, "{of} {path:?}");
        }
        assert!(Schemas::builtin().is_atomic(&kind("Widget"), &["spec"]).is_err());
    }
}
