//! Decodes documents into serde types, with errors that name their place.

mod failure;

use std::cell::RefCell;
use std::collections::HashMap;

use failure::Failure;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Document, Entry, Node, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath, PathSegment, nearest};

impl Document {
    /// Decodes the document into a `T`. Unknown fields and values of a wrong type are faults that
    /// name their place; if there are any, the result is `None`.
    pub fn decode<T: serde::de::DeserializeOwned>(&self, faults: &mut Faults) -> Option<T> {
        self.decode_at(&FieldPath::root(), faults)
    }

    /// Like [`Document::decode`], for the part at `path`.
    pub fn decode_at<T: serde::de::DeserializeOwned>(
        &self,
        path: &FieldPath,
        faults: &mut Faults,
    ) -> Option<T> {
        let Decoded {
            value, faults: found, ..
        } = decode(self, path);
        let is_sound = found.is_empty();
        faults.extend(found);
        value.filter(|_| is_sound)
    }

    /// Like [`Document::decode`], but passes the value to `check` and returns its result. If a part
    /// cannot be decoded, the result is `None`, but `check` still reports what is wrong with the
    /// rest.
    pub fn decode_and<T: DeserializeOwned, U>(
        &self,
        faults: &mut Faults,
        check: impl FnOnce(T, &mut Faults) -> Option<U>,
    ) -> Option<U> {
        let Decoded {
            value,
            faults: found,
            repaired,
        } = decode(self, &FieldPath::root());
        if found.is_empty() {
            return check(value?, faults);
        }
        faults.extend(found);
        let mut more = Faults::new();
        check(value?, &mut more);
        let is_own = |fault: &Fault| !repaired.iter().any(|path| path.is_related(&fault.place.path));
        faults.extend(more.into_iter().filter(is_own));
        None
    }
}

/// How many values of a wrong type and missing fields are reported in one run.
const MAX_FAILURES: usize = 16;

/// The most passes over a document with failures. Each failure needs one, and a missing field one
/// more for each type of placeholder that is tried.
const MAX_PASSES: usize = 32;

/// The value that stands in for a missing field. They are tried in order until one has the right
/// type.
fn placeholder(number: usize) -> Option<Node> {
    use serde_json::json;
    let all = [json!(""), json!([]), json!({}), json!(false), json!(0)];
    all.into_iter().nth(number).map(Node::from_json)
}

/// The result of decoding a document.
struct Decoded<T> {
    /// The value without its faulty parts; `None` if no repair made the document decodable.
    value: Option<T>,
    faults: Vec<Fault>,
    /// The paths at which the value differs from the document.
    repaired: Vec<FieldPath>,
}

/// Decodes the part at `path`. serde stops at the first value of a wrong type and at the first
/// missing field. To find all of them, the value is removed or a placeholder is put into the
/// missing field, and the document is decoded again.
fn decode<T: DeserializeOwned>(document: &Document, path: &FieldPath) -> Decoded<T> {
    let mut attempt = decode_once(document, path);
    let mut repairs = None;
    for _ in 0..MAX_PASSES {
        let Err((at, failure)) = &attempt.decoded else {
            break;
        };
        // A document without failures is not copied.
        let repairs = repairs.get_or_insert_with(|| Repairs::new(document));
        if !repairs.repair(at, failure) {
            break;
        }
        attempt = decode_once::<T>(&repairs.rest, path);
    }
    let unknown_fields = attempt.unknown.into_iter();
    let mut decoded = Decoded {
        value: attempt.decoded.ok(),
        faults: unknown_fields
            .map(|path| unknown(document, path, &attempt.structs))
            .collect(),
        repaired: Vec::new(),
    };
    if let Some(repairs) = repairs {
        decoded.faults.extend(repairs.failures);
        decoded.repaired = repairs.left_out;
        decoded
            .repaired
            .extend(repairs.filled.into_iter().map(|(path, _)| path));
    }
    decoded
}

/// A copy of a document in which everything that stopped decoding is removed or filled in.
struct Repairs<'d> {
    document: &'d Document,
    rest: Document,
    failures: Vec<Fault>,
    left_out: Vec<FieldPath>,
    /// The paths that were filled in, with the index of the placeholder.
    filled: Vec<(FieldPath, usize)>,
}

impl<'d> Repairs<'d> {
    fn new(document: &'d Document) -> Self {
        Self {
            document,
            rest: document.clone(),
            failures: Vec::new(),
            left_out: Vec::new(),
            filled: Vec::new(),
        }
    }

    /// Reports the failure at `at`, unless a repair caused it, and repairs it. Returns `false` if
    /// that is not possible.
    fn repair(&mut self, at: &FieldPath, failure: &Failure) -> bool {
        if let Some(field) = failure.missing {
            let path = at.field(field);
            let is_left_out = self
                .left_out
                .iter()
                .any(|one| one.steps().starts_with(path.steps()));
            if !is_left_out
                && !self
                    .filled
                    .iter()
                    .any(|(one, _)| at.steps().starts_with(one.steps()))
            {
                self.report(&path, failure);
            }
            self.filled.push((path.clone(), 0));
            return self.fill(&path, 0);
        }
        if let Some((path, tried)) = self
            .filled
            .iter_mut()
            .rfind(|(one, _)| at.steps().starts_with(one.steps()))
        {
            *tried += 1;
            let (path, next) = (path.clone(), *tried);
            return self.fill(&path, next);
        }
        self.report(at, failure);
        self.left_out.push(at.clone());
        self.failures.len() < MAX_FAILURES && self.rest.root.remove(at.steps())
    }

    fn report(&mut self, at: &FieldPath, failure: &Failure) {
        let place = self.document.place(at.clone());
        self.failures
            .push(Fault::error(place, failure.kind, failure.message.clone()));
    }

    fn fill(&mut self, path: &FieldPath, number: usize) -> bool {
        let value = placeholder(number).filter(|_| self.failures.len() < MAX_FAILURES);
        if number > 0 {
            self.rest.root.remove(path.steps());
        }
        value.is_some_and(|value| self.rest.root.insert(path.steps(), value))
    }
}

/// The result of decoding a document once.
struct Attempt<T> {
    /// The value, or the path and the reason of the failure.
    decoded: Result<T, (FieldPath, Failure)>,
    unknown: Vec<FieldPath>,
    structs: KnownFields,
}

/// The fields of each struct for which the document has unknown fields, by path.
type KnownFields = HashMap<FieldPath, &'static [&'static str]>;

/// What the readers of nodes record on the way.
#[derive(Default)]
struct DecodeNotes {
    /// The path of the innermost reader that failed.
    failure: RefCell<Option<FieldPath>>,
    structs: RefCell<KnownFields>,
}

fn decode_once<T: DeserializeOwned>(document: &Document, path: &FieldPath) -> Attempt<T> {
    let notes = DecodeNotes::default();
    let reader = NodeReader {
        node: document.nearest(path),
        at: Position::Base(path),
        notes: &notes,
    };
    let mut unknown = Vec::new();
    let decoded = serde_ignored::deserialize(reader, |ignored| unknown.push(field_path(path, &ignored)));
    let decoded = decoded.map_err(|error| {
        let path = notes.failure.take().unwrap_or_else(|| path.clone());
        (path, error)
    });
    Attempt {
        decoded,
        unknown,
        structs: notes.structs.into_inner(),
    }
}

/// The most supported fields that a fault lists.
const MAX_NAMED_FIELDS: usize = 16;

fn unknown(document: &Document, path: FieldPath, structs: &KnownFields) -> Fault {
    let name = path.steps().last().map_or_else(String::new, |step| match step {
        PathSegment::Field(name) | PathSegment::Key(name) => name.clone(),
        PathSegment::Index(index) => index.to_string(),
    });
    let known = path.parent().and_then(|parent| structs.get(&parent).copied());
    let known = known.unwrap_or_default();
    let hint = match nearest(&name, known.iter().copied()) {
        Some(near) => format!(": did you mean `{near}`?"),
        None if known.is_empty() || known.len() > MAX_NAMED_FIELDS => String::new(),
        None => format!(": supported fields: `{}`", known.join("`, `")),
    };
    Fault::error(
        document.place(path),
        FaultKind::NotSupported,
        format!("unknown field `{name}`{hint}"),
    )
}

/// Converts a path of serde_ignored below `base`.
fn field_path(base: &FieldPath, path: &serde_ignored::Path<'_>) -> FieldPath {
    use serde_ignored::Path;
    match path {
        Path::Root => base.clone(),
        Path::Seq { parent, index } => field_path(base, parent).index(*index),
        Path::Map { parent, key } => field_path(base, parent).field(key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            field_path(base, parent)
        }
    }
}

/// Passes one node to serde. The innermost reader that fails records its path.
struct NodeReader<'d> {
    node: &'d Node,
    at: Position<'d>,
    notes: &'d DecodeNotes,
}

/// The position of a reader, from which a path is made only on failure.
#[derive(Clone, Copy)]
enum Position<'d> {
    Base(&'d FieldPath),
    Field(&'d Position<'d>, &'d str),
    Index(&'d Position<'d>, usize),
}

impl Position<'_> {
    /// The path. Recursion is bounded by the depth of documents.
    fn path(self) -> FieldPath {
        match self {
            Self::Base(path) => path.clone(),
            Self::Field(parent, name) => parent.path().field(name),
            Self::Index(parent, index) => parent.path().index(index),
        }
    }
}

impl<'d> NodeReader<'d> {
    /// A reader for a part of this node.
    fn child<'c>(&self, node: &'c Node, at: Position<'c>) -> NodeReader<'c>
    where
        'd: 'c,
    {
        NodeReader {
            node,
            at,
            notes: self.notes,
        }
    }

    /// Whether this is a `null` in `apiGroups`, which Go reads as the empty name of the core group.
    fn is_null_group(&self) -> bool {
        matches!(self.node.value, Value::Null)
            && matches!(self.at, Position::Index(Position::Field(_, "apiGroups"), _))
    }

    fn noting<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.is_err() {
            self.notes
                .failure
                .borrow_mut()
                .get_or_insert_with(|| self.at.path());
        }
        result
    }
}

impl<'de> Deserializer<'de> for NodeReader<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (.., Some(value)) => visitor.visit_f64(value),
                _ => Err(Failure::custom("a number that cannot be represented")),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(ItemAccess {
                reader: &self,
                items,
                next: 0,
            }),
            Value::Map(entries) => visitor.visit_map(EntryAccess {
                reader: &self,
                entries,
                next: 0,
            }),
        };
        self.noting(result)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        if self.is_null_group() {
            return visitor.visit_str("");
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let result = match &self.node.value {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Map(entries) => match entries.as_slice() {
                [entry] => visitor.visit_enum(Variant { reader: &self, entry }),
                _ => Err(Failure::custom("expected a mapping with one key")),
            },
            _ => Err(Failure::custom("expected a string or a mapping with one key")),
        };
        self.noting(result)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if let Value::Map(entries) = &self.node.value
            && entries.iter().any(|entry| !fields.contains(&entry.key.as_str()))
        {
            self.notes.structs.borrow_mut().insert(self.at.path(), fields);
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct ItemAccess<'r> {
    reader: &'r NodeReader<'r>,
    items: &'r [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for ItemAccess<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let at = Position::Index(&self.reader.at, self.next);
        self.next += 1;
        seed.deserialize(self.reader.child(item, at)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.next)
    }
}

struct EntryAccess<'r> {
    reader: &'r NodeReader<'r>,
    entries: &'r [Entry],
    next: usize,
}

impl<'de> MapAccess<'de> for EntryAccess<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let Some(entry) = self.entries.get(self.next) else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, Failure> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        let Some(entry) = self.entries.get(self.next) else {
            return Err(Failure::custom("a value without a key"));
        };
        self.next += 1;
        let at = Position::Field(&self.reader.at, &entry.key);
        seed.deserialize(self.reader.child(&entry.value, at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len() - self.next)
    }
}

struct Variant<'r> {
    reader: &'r NodeReader<'r>,
    entry: &'r Entry,
}

impl<'r, 'de> EnumAccess<'de> for Variant<'r> {
    type Error = Failure;
    type Variant = NodeReader<'r>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, NodeReader<'r>), Failure> {
        let key: StrDeserializer<'_, Failure> = self.entry.key.as_str().into_deserializer();
        let at = Position::Field(&self.reader.at, &self.entry.key);
        Ok((seed.deserialize(key)?, self.reader.child(&self.entry.value, at)))
    }
}

impl<'de> VariantAccess<'de> for NodeReader<'_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        match self.node.value {
            Value::Null => Ok(()),
            _ => self.noting(Err(Failure::custom("must be empty"))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failure> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_any(visitor)
    }
}
