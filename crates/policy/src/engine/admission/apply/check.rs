//! Checks whether a patch may be merged at all.

use std::collections::HashSet;

use super::schema::{Lists, Maps, ScalarClass, SchemaType};
use super::{Error, FieldMismatches, Schemas, item};
use portcullis_cel::json::{Kind, Node};

/// That every field of the patch is known and has a value of its type, and that
/// no set or map of items has one twice (`typed/validate.go`).
pub(crate) fn fits(schemas: &Schemas<'_>, of: &SchemaType<'_>, patch: Node<'_>) -> Result<(), Error> {
    let mut walk = Fits {
        schemas,
        path: String::new(),
        found: FieldMismatches::default(),
    };
    walk.value(of, patch);
    walk.found.into_error(Error::Patch)
}

/// That nothing in the patch is atomic. Whoever writes one field of an atomic
/// struct rarely means to remove the others, so Kubernetes refuses it.
pub(crate) fn has_no_atomics(
    schemas: &Schemas<'_>,
    of: &SchemaType<'_>,
    patch: Node<'_>,
) -> Result<(), Error> {
    let mut walk = Atomics {
        schemas,
        path: String::new(),
        found: Vec::new(),
    };
    walk.value(of, patch);
    if walk.found.is_empty() {
        Ok(())
    } else {
        Err(Error::Atomic(walk.found))
    }
}

/// What is wrong with `node` as a whole, if `of` cannot be such a value.
/// `null` fits everywhere.
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
        Some(ScalarClass::Numeric) => format!("expected numeric (int or float), got {}", sort(node)),
        Some(ScalarClass::Boolean) => format!("expected boolean, got {}", quoted(node)),
        Some(ScalarClass::Any) => format!("expected any scalar, got {}", quoted(node)),
        None if schemas.maps(of).is_some() => format!("expected map, got {}", quoted(node)),
        None => format!("expected list, got {}", quoted(node)),
    })
}

/// The value as it is written, or how it begins.
fn quoted(node: Node<'_>) -> String {
    const MOST: usize = 64;
    let raw = node.raw();
    match raw.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", raw.get(..end).unwrap_or_default()),
        None => raw.to_owned(),
    }
}

fn sort(node: Node<'_>) -> &'static str {
    match node.kind() {
        Kind::Null => "null",
        Kind::Bool => "bool",
        Kind::Number => "number",
        Kind::String => "string",
        Kind::Array => "list",
        Kind::Object => "map",
    }
}

struct Fits<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
    found: FieldMismatches,
}

struct Atomics<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
    found: Vec<String>,
}

// === impl Fits ===

impl<'w, 's> Fits<'w, 's> {
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

    fn map(&mut self, maps: Maps<'w, 's>, node: Node<'_>) {
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

    fn list(&mut self, of: &'w SchemaType<'s>, lists: &Lists<'_>, node: Node<'_>) {
        let mut seen = HashSet::new();
        for (place, value) in node.items().enumerate() {
            let name = match item::name(lists, value) {
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

/// Whether the patch is not asked about it: it is what the object is.
pub(crate) fn is_type_meta(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind")
}

// === impl Atomics ===

impl<'w, 's> Atomics<'w, 's> {
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
                    self.note(*lists == Lists::Atomic);
                    self.list(item, node);
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }

    fn note(&mut self, atomic: bool) {
        if atomic && self.found.len() < FieldMismatches::MOST {
            self.found.push(self.path.clone());
        }
    }

    /// Looks at declared fields alone, as Kubernetes does.
    fn map(&mut self, maps: Maps<'w, 's>, node: Node<'_>) {
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
