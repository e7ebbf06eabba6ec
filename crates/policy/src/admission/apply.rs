//! Server-side apply for `ApplyConfiguration` expressions of MutatingAdmissionPolicies, without
//! field managers (`apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`,
//! structured-merge-diff `typed/merge.go`).
//!
//! ```text
//! Object{spec: …}  --configuration-->  JSON text  --check-->  a patch that fits
//!    portcullis_cel::Value       names, values                fields,            |
//!                                                  types, no atomics  v
//!                          object (json::Node)  ---------------->  merge: Tree  --decode--> JSON
//!                                                     ^
//!                 schema.txt: how each built-in type merges, and how Go reads and writes it
//! ```
//!
//! Fields that the configuration does not set stay byte for byte as they are, including fields that
//! the schema does not have: a newer API server may have more. Only the parts of the object that
//! the configuration sets are checked; the API server has validated the rest.

mod check;
mod decode;
mod error;
mod schema;

use std::collections::{HashMap, VecDeque};

use super::GroupVersionKind;
use check::{is_type_meta, misfit};
use error::{WrongName, noted_path};
use portcullis_cel::json::{Document, Kind, Node, Tree, TreeList, write_string};
use portcullis_cel::{Key, List, Map, Value};
use schema::{ListType, MapView, SchemaType};

pub use check::check_type_meta;
pub use decode::{DecodeMode, DecodedObject, decode};
pub use error::{ApplyError, DecodeError, FieldMismatch, FieldMismatches, MAX_CONFIGURATION, MAX_LEVELS};
pub use schema::Schemas;

/// Returns the object as JSON, after merging `configuration`, the value of an expression, into it.
///
/// `kind` is the kind of `object`.
///
/// # Errors
///
/// Those of [`configuration()`] and [`merge()`], and [`ApplyError::Decode`].
pub fn apply(
    kind: &GroupVersionKind<'_>,
    object: Node<'_>,
    configuration: &Value<'_>,
) -> Result<String, ApplyError> {
    let text = self::configuration(configuration)?;
    let document = Document::parse(text).map_err(|_| ApplyError::TooLarge)?;
    if document.levels() > MAX_LEVELS {
        return Err(ApplyError::TooLarge);
    }
    let merged = merge(Schemas::builtin(), kind, object, document.root())?.to_text();
    let decoded = {
        let merged = Document::parse(merged.as_str()).map_err(|_| ApplyError::TooLarge)?;
        decode(kind, object, merged.root(), DecodeMode::Values)?
    };
    Ok(decoded.text.unwrap_or(merged))
}

/// Merges `patch` into the object: maps key by key, lists as `schemas` define.
///
/// `apiVersion` and `kind` of the patch are ignored, as in Kubernetes: those of the object stay.
///
/// # Errors
///
/// Fails if `schemas` do not have the kind, if the patch does not match its schema or would replace
/// an atomic list, map or struct, or if the object does not match its schema.
pub fn merge<'d>(
    schemas: &Schemas<'_>,
    kind: &GroupVersionKind<'_>,
    object: Node<'d>,
    patch: Node<'d>,
) -> Result<Tree<'d>, ApplyError> {
    let of = schemas.of(kind)?;
    check::fits(schemas, of, patch)?;
    check::has_no_atomics(schemas, of, patch)?;
    merge_checked(schemas, of, object, patch)
}

/// Merges `patch`, which has been checked, into `object`.
fn merge_checked<'d>(
    schemas: &Schemas<'_>,
    of: &SchemaType<'_>,
    object: Node<'d>,
    patch: Node<'d>,
) -> Result<Tree<'d>, ApplyError> {
    let mut walk = Merge {
        schemas,
        path: String::new(),
    };
    walk.value(of, Some(object), patch)
}

struct Merge<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
}

/// The items of a list of the patch, with their names.
type NewItems<'d> = Vec<(String, Node<'d>)>;

/// The items of a list of the object that have the name of an item of the patch.
#[derive(Default)]
struct NamedItems<'d> {
    /// The index of each in the object's list, and of the item of the patch.
    places: Vec<(usize, usize)>,
    /// By the index in the patch: how many items have this name, and the last of them.
    of: HashMap<usize, (usize, Node<'d>)>,
}

/// Writes the value of an expression as JSON. It must be an `Object{…}` in which every object has
/// the type name of its field: `Object.spec{…}` for `spec`, also within lists and maps.
///
/// As in Kubernetes, list and map literals of an expression may contain only scalars and objects,
/// while values taken from `object` may be anything. `null` is not allowed in literals.
///
/// # Errors
///
/// [`ApplyError::TypeNames`], [`ApplyError::Value`], and [`ApplyError::TooLarge`].
pub fn configuration(value: &Value<'_>) -> Result<String, ApplyError> {
    let mut writer = ConfigurationWriter {
        out: String::new(),
        path: String::new(),
        name: "Object".to_owned(),
        depth: 0,
        wrong: Vec::new(),
    };
    let Value::Map(map) = value else {
        return Err(writer.type_error(value));
    };
    if map.object_type().is_none() {
        return Err(writer.type_error(value));
    }
    writer.map(map)?;
    if writer.wrong.is_empty() {
        Ok(writer.out)
    } else {
        Err(ApplyError::TypeNames(writer.wrong))
    }
}

struct ConfigurationWriter {
    out: String,
    /// The path of the field that is being written.
    path: String,
    /// The expected type name of an object at this path.
    name: String,
    depth: usize,
    wrong: Vec<WrongName>,
}

// === impl Merge ===

impl<'w, 's> Merge<'w, 's> {
    fn value<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        old: Option<Node<'d>>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, ApplyError> {
        let Some(old) = old.filter(|old| !old.is_null()) else {
            return Ok(Tree::Node(new));
        };
        if let Some(message) = misfit(self.schemas, of, old) {
            return Err(self.error(message));
        }
        let maps = self.schemas.maps(of).filter(|maps| !maps.atomic);
        let lists = of.lists().filter(|(_, lists)| **lists != ListType::Atomic);
        match (old.kind(), new.kind(), maps, lists) {
            // An empty old value is replaced as if it were absent.
            (_, Kind::Object | Kind::Array, ..) if old.is_empty() => Ok(Tree::Node(new)),
            (Kind::Object, Kind::Object, Some(maps), _) => self.map(maps, old, new),
            (Kind::Array, Kind::Array, _, Some((item, lists))) => self.list(item, lists, old, new),
            // `null` counts as an empty map or list, so it adds nothing.
            (Kind::Object, Kind::Null, Some(_), _) | (Kind::Array, Kind::Null, None, Some(_))
                if !old.is_empty() =>
            {
                Ok(Tree::Node(old))
            }
            _ => Ok(Tree::Node(new)),
        }
    }

    fn map<'d>(
        &mut self,
        maps: MapView<'w, 's>,
        old: Node<'d>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, ApplyError> {
        let is_root = self.path.is_empty();
        let mut tree = Tree::Node(old);
        for (name, value) in new.entries() {
            if is_root && is_type_meta(&name) {
                continue;
            }
            let Some(of) = maps.key(&name) else { continue };
            let back = self.path.len();
            self.path.push('.');
            self.path.push_str(&name);
            let merged = self.value(of, old.get(&name), value)?;
            self.path.truncate(back);
            if let Tree::Object(map) = tree.open() {
                map.insert(name, merged);
            }
        }
        Ok(tree)
    }

    /// Merges two lists: the new items keep their order, and the old items that they do not name
    /// are interleaved where that order permits.
    fn list<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        lists: &ListType<'_>,
        old: Node<'d>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, ApplyError> {
        // An object may have far more items than the patch, so memory is used only for the named
        // ones.
        let new = self.new_items(lists, new)?;
        let names = new.iter().map(|(name, _)| name.as_str()).zip(0..).collect();
        let named = self.named_items(lists, old, &names)?;
        // The remaining items that are on both sides, in the new order.
        let mut shared: VecDeque<usize> = (0..new.len())
            .filter(|place| named.of.contains_key(place))
            .collect();
        let mut items = TreeList::new();
        let (mut left, mut right) = (named.places.iter().peekable(), new.iter().enumerate().peekable());
        let mut passed = 0;
        loop {
            let next = left.peek().map_or(old.len(), |(place, _)| *place);
            items.push_run(old, passed, next - passed);
            passed = next;
            let (passes, comes) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (None, Some(_)) => (false, true),
                (Some(_), None) => (true, false),
                (Some((_, name)), Some((next, _))) if name == next => (true, true),
                (Some((_, name)), Some(_)) => match shared.front() {
                    // The old item was merged already, and is skipped.
                    None => (true, true),
                    Some(first) => (first != name, first == name),
                },
            };
            if passes {
                left.next();
                passed += 1;
            }
            if let Some((place, (name, node))) = right.next_if(|_| comes) {
                items.push(self.item(of, name, named.only(place), *node)?);
                shared.pop_front_if(|first| *first == place);
            }
        }
        Ok(Tree::Array(Box::new(items)))
    }

    fn item<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        name: &str,
        old: Option<Node<'d>>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, ApplyError> {
        let back = self.path.len();
        self.path.push_str(name);
        let merged = self.value(of, old, new)?;
        self.path.truncate(back);
        Ok(merged)
    }

    fn new_items<'d>(&self, lists: &ListType<'_>, list: Node<'d>) -> Result<NewItems<'d>, ApplyError> {
        let items = list.items().enumerate();
        items
            .map(|(place, node)| Ok((self.name(lists, place, node)?, node)))
            .collect()
    }

    /// The items of `list` whose names are in `names`.
    fn named_items<'d>(
        &self,
        lists: &ListType<'_>,
        list: Node<'d>,
        names: &HashMap<&str, usize>,
    ) -> Result<NamedItems<'d>, ApplyError> {
        let mut named = NamedItems::default();
        for (place, node) in list.items().enumerate() {
            if let Some(new) = names.get(self.name(lists, place, node)?.as_str()) {
                named.places.push((place, *new));
                let (count, last) = named.of.entry(*new).or_insert((0, node));
                (*count, *last) = (*count + 1, node);
            }
        }
        Ok(named)
    }

    fn name(&self, lists: &ListType<'_>, place: usize, node: Node<'_>) -> Result<String, ApplyError> {
        match check::name(lists, node) {
            Ok(name) => Ok(name.unwrap_or_default()),
            Err(unnamed) => Err(self.error(format!("element {place}: {unnamed}"))),
        }
    }

    /// The patch has been checked, so the error is in the object.
    fn error(&self, message: String) -> ApplyError {
        let mut found = FieldMismatches::default();
        found.push(&self.path, message);
        ApplyError::Object(found)
    }
}

// === impl NamedItems ===

impl<'d> NamedItems<'d> {
    /// The old item that has the name of the item at `new` of the patch. If several have it,
    /// `None`: the new item replaces them all.
    fn only(&self, new: usize) -> Option<Node<'d>> {
        let (count, node) = self.of.get(&new)?;
        (*count == 1).then_some(*node)
    }
}

// === impl ConfigurationWriter ===

impl ConfigurationWriter {
    fn value(&mut self, value: &Value<'_>) -> Result<(), ApplyError> {
        match value {
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Int(int) => self.out.push_str(&int.to_string()),
            // `Display` writes finite doubles as JSON does.
            Value::Double(double) if double.is_finite() => self.out.push_str(&double.to_string()),
            // Escapes can make a string several times as long, so its length is checked before.
            Value::String(text) if text.len() > MAX_CONFIGURATION => return Err(ApplyError::TooLarge),
            Value::String(text) => write_string(&mut self.out, text),
            Value::List(list) => self.list(list)?,
            Value::Map(map) => self.map(map)?,
            other => return Err(self.type_error(other)),
        }
        if self.out.len() > MAX_CONFIGURATION {
            return Err(ApplyError::TooLarge);
        }
        Ok(())
    }

    fn list(&mut self, list: &List<'_>) -> Result<(), ApplyError> {
        if let List::Json(node) = list {
            self.out.push_str(node.raw());
            return Ok(());
        }
        self.open('[')?;
        for (place, item) in list.iter().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            self.within(&format!("[{place}]"), &item)?;
        }
        self.close(']');
        Ok(())
    }

    fn map(&mut self, map: &Map<'_>) -> Result<(), ApplyError> {
        if let Map::Json(node) = map {
            self.out.push_str(node.raw());
            return Ok(());
        }
        let is_typed = note_wrong_name(map, &self.name, &mut self.wrong);
        self.open('{')?;
        for (place, (key, value)) in map.entries().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            let Some(Key::String(key)) = Key::new(&key) else {
                return Err(self.wrong_key(&key));
            };
            if key.len() > MAX_CONFIGURATION {
                return Err(ApplyError::TooLarge);
            }
            write_string(&mut self.out, &key);
            self.out.push(':');
            if is_typed {
                self.field(&key, &value)?;
            } else {
                self.within(&format!(".{}", &*key), &value)?;
            }
        }
        self.close('}');
        Ok(())
    }

    fn field(&mut self, field: &str, value: &Value<'_>) -> Result<(), ApplyError> {
        let (path, name) = (self.path.len(), self.name.len());
        for text in [&mut self.path, &mut self.name] {
            text.push('.');
            text.push_str(field);
        }
        self.value(value)?;
        self.path.truncate(path);
        self.name.truncate(name);
        Ok(())
    }

    /// Writes a value in a list or map literal.
    fn within(&mut self, step: &str, value: &Value<'_>) -> Result<(), ApplyError> {
        let back = self.path.len();
        self.path.push_str(step);
        if is_untyped_literal(value) {
            return Err(self.type_error(value));
        }
        self.value(value)?;
        self.path.truncate(back);
        Ok(())
    }

    fn open(&mut self, bracket: char) -> Result<(), ApplyError> {
        self.depth += 1;
        if self.depth > MAX_LEVELS {
            return Err(ApplyError::TooLarge);
        }
        self.out.push(bracket);
        Ok(())
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        self.out.push(bracket);
    }

    fn type_error(&self, value: &Value<'_>) -> ApplyError {
        self.error(format!("a value of type {} is not allowed here", value.type_of()))
    }

    fn wrong_key(&self, key: &Value<'_>) -> ApplyError {
        self.error(format!("map key is of type {}, not string", key.type_of()))
    }

    fn error(&self, message: String) -> ApplyError {
        let path = noted_path(&self.path);
        ApplyError::Value(FieldMismatch { path, message })
    }
}

/// Whether the value is a list literal, or a map literal without a type name.
fn is_untyped_literal(value: &Value<'_>) -> bool {
    match value {
        Value::List(list) => !matches!(list, List::Json(_)),
        Value::Map(map @ (Map::Borrowed(_) | Map::Shared(_))) => map.object_type().is_none(),
        _ => false,
    }
}

// Checks that objects in an expression have the type names of their fields
// (`CheckTypeNamesMatchFieldPathNames` of `apiserver/pkg/cel/mutation/dynamic/objects.go`).

/// Checks the type names of objects within `value`, the value of a JSON Patch operation, if it is
/// an object: field `f` of an `Object.spec{…}` must be an `Object.spec.f{…}`, also within lists and
/// maps.
///
/// # Errors
///
/// [`ApplyError::TypeNames`].
pub fn type_names(value: &Value<'_>) -> Result<(), ApplyError> {
    let Value::Map(map) = value else {
        return Ok(());
    };
    let Some(of) = map.object_type() else {
        return Ok(());
    };
    let mut names = TypeNames {
        expected: of.name().to_owned(),
        wrong: Vec::new(),
    };
    names.map(map);
    if names.wrong.is_empty() {
        Ok(())
    } else {
        Err(ApplyError::TypeNames(names.wrong))
    }
}

/// Returns whether `map` has a type name, and notes it as wrong unless it is `expected`.
fn note_wrong_name(map: &Map<'_>, expected: &str, wrong: &mut Vec<WrongName>) -> bool {
    let Some(of) = map.object_type() else {
        return false;
    };
    if of.name() != expected && wrong.len() < FieldMismatches::MAX_MISMATCHES {
        wrong.push(WrongName {
            found: of.name().to_owned(),
            expected: noted_path(expected),
        });
    }
    true
}

struct TypeNames {
    expected: String,
    wrong: Vec<WrongName>,
}

impl TypeNames {
    /// Values taken from `object` have no type names and are not checked.
    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Map(Map::Json(_)) | Value::List(List::Json(_)) => {}
            Value::Map(map) => self.map(map),
            Value::List(list) => list.iter().for_each(|item| self.value(&item)),
            _ => {}
        }
    }

    fn map(&mut self, map: &Map<'_>) {
        let is_typed = note_wrong_name(map, &self.expected, &mut self.wrong);
        for (key, value) in map.entries() {
            let back = self.expected.len();
            if is_typed && let Some(Key::String(field)) = Key::new(&key) {
                self.expected.push('.');
                self.expected.push_str(&field);
            }
            self.value(&value);
            self.expected.truncate(back);
        }
    }
}

#[cfg(test)]
mod tests;
