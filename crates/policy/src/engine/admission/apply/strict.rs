//! Strict decoding of an object after a policy's JSON Patch.
//!
//! An API server decodes the result strictly: an unknown field or a value of another type
//! is an error (`jsonPatcher.Patch` of apiserver
//! `pkg/admission/plugin/policy/mutating/patch/json_patch.go`). A newer API server knows
//! more fields, so unknown fields that the object had before are accepted.

use std::collections::HashSet;

use super::check::{is_type_meta, misfit};
use super::schema::SchemaType;
use super::{FieldMismatches, MAX_LEVELS, Schemas};
use crate::engine::admission::GroupVersionKind;
use portcullis_cel::json::{Kind, Node};

/// Checks what differs in `after`, an object of `kind`. A kind that is not built in is
/// free of form.
///
/// # Errors
///
/// The fields that are not known and were not there before, and values of another type
/// than their field's.
pub fn strict(kind: &GroupVersionKind<'_>, before: Node<'_>, after: Node<'_>) -> Result<(), FieldMismatches> {
    let schemas = Schemas::builtin();
    let Ok(of) = schemas.of(kind) else {
        return Ok(());
    };
    let mut walk = StrictWalk::new(schemas);
    walk.value(of, Some(before), after);
    if !walk.unknown.is_empty() {
        let mut old = StrictWalk::new(schemas);
        old.value(of, None, before);
        let known: HashSet<String> = old.unknown.into_iter().map(|field| field.shape).collect();
        for Unknown { path, shape } in walk.unknown {
            if !known.contains(&shape) {
                walk.found
                    .push("", format!("unknown field {:?}", path.trim_start_matches('.')));
            }
        }
    }
    walk.found.none()
}

struct StrictWalk<'s> {
    schemas: &'s Schemas<'static>,
    path: String,
    /// The path without the places in lists: the items of a list are of one type.
    shape: String,
    level: usize,
    unknown: Vec<Unknown>,
    found: FieldMismatches,
}

/// A field that the schema does not have.
struct Unknown {
    path: String,
    shape: String,
}

impl<'s> StrictWalk<'s> {
    fn new(schemas: &'s Schemas<'static>) -> Self {
        Self {
            schemas,
            path: String::new(),
            shape: String::new(),
            level: 0,
            unknown: Vec::new(),
            found: FieldMismatches::default(),
        }
    }

    fn value(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        if before.is_some_and(|before| before.raw() == after.raw()) {
            return;
        }
        if let Some(message) = misfit(self.schemas, of, after) {
            return self.found.push(&self.path, message);
        }
        if matches!(
            of,
            SchemaType::Deduced | SchemaType::Untyped | SchemaType::Scalar(_)
        ) {
            return;
        }
        if self.level == MAX_LEVELS {
            return self
                .found
                .push(&self.path, format!("nested deeper than {MAX_LEVELS} levels"));
        }
        self.level += 1;
        match after.kind() {
            Kind::Object => self.map(of, before, after),
            Kind::Array => self.list(of, before, after),
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
        self.level -= 1;
    }

    fn list(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        let Some((item, _)) = of.lists() else { return };
        for (place, value) in after.items().enumerate() {
            let own = before.and_then(|before| before.item(place));
            self.within(&format!("[{place}]"), "[]", |walk| walk.value(item, own, value));
        }
    }

    fn map(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        let Some(maps) = self.schemas.maps(of) else {
            return;
        };
        let is_root = self.path.is_empty();
        let is_struct = matches!(of, SchemaType::Struct(..));
        for (name, value) in after.entries() {
            if is_root && is_type_meta(&name) {
                continue;
            }
            let step = format!(".{name}");
            let shape = if is_struct { step.as_str() } else { ".*" };
            let own = before.and_then(|before| before.get(&name));
            self.within(&step, shape, |walk| match maps.key(&name) {
                Some(of) => walk.value(of, own, value),
                None if own.is_some() => {}
                None => walk.note_unknown(),
            });
        }
    }

    fn note_unknown(&mut self) {
        const MOST: usize = 1_000;
        if self.unknown.len() < MOST {
            self.unknown.push(Unknown {
                path: self.path.clone(),
                shape: self.shape.clone(),
            });
        }
    }

    fn within(&mut self, step: &str, shape: &str, go: impl FnOnce(&mut Self)) {
        let (path, back) = (self.path.len(), self.shape.len());
        self.path.push_str(step);
        self.shape.push_str(shape);
        go(self);
        self.path.truncate(path);
        self.shape.truncate(back);
    }
}
