//! The schema of the built-in types: how they merge, and how Go decodes and encodes them.
//!
//! How types merge (fields, which lists are sets or maps, and what is atomic) is derived from the
//! OpenAPI of an API server, as in structured-merge-diff. How they are decoded and encoded is
//! derived from the Go types.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::ApplyError;
use crate::admission::GroupVersionKind;

/// The types of a set of kinds.
#[derive(Debug, Default)]
pub struct Schemas<'s> {
    /// By group and version, then by kind.
    kinds: HashMap<&'s str, HashMap<&'s str, SchemaType<'s>>>,
    structs: Vec<Struct<'s>>,
}

/// The type of a value, which determines how two values merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaType<'s> {
    /// Neither a list nor a map.
    Scalar(Scalar),
    /// A list.
    List(Box<Self>, ListType<'s>),
    /// A map with arbitrary keys.
    Map(Box<Self>, Atomic),
    /// A map with known keys, as the index of a struct. An atomicity given here overrides that of
    /// the struct.
    Struct(usize, Option<Atomic>),
    /// Any value: maps merge key by key, lists are atomic.
    Deduced,
    /// Any value, which is replaced as a whole.
    Untyped,
}

/// Whether a value can only be replaced as a whole.
pub(crate) type Atomic = bool;

/// The Go type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// `string`.
    String,
    /// `[]byte`, in base64.
    Bytes,
    /// `metav1.Time`, with a precision of seconds.
    Time,
    /// `metav1.MicroTime`, with a precision of microseconds.
    MicroTime,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `int32`.
    Int32,
    /// `int64`.
    Int64,
    /// `float64`.
    Double,
    /// `bool`.
    Boolean,
    /// Any of these.
    Any,
}

/// The classes of scalars that merging distinguishes: those of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarClass {
    /// A string.
    String,
    /// A number.
    Numeric,
    /// A boolean.
    Boolean,
    /// Any of these.
    Any,
}

/// How two lists merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType<'s> {
    /// The list is replaced as a whole.
    Atomic,
    /// The list is a set: equal scalars are one item.
    Set,
    /// Items with the same keys are one item, and are merged.
    Map(Vec<ListKey<'s>>),
}

/// A key field of the items of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListKey<'s> {
    pub(crate) name: &'s str,
    /// The default value of the field, as JSON.
    pub(crate) default: Option<&'s str>,
}

/// A map with known keys.
#[derive(Debug, Default)]
pub(crate) struct Struct<'s> {
    /// Its name, such as `apps.v1.DeploymentSpec`.
    name: &'s str,
    /// Sorted by name.
    fields: Vec<SchemaField<'s>>,
    atomic: Atomic,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct SchemaField<'s> {
    pub(crate) name: &'s str,
    pub(crate) of: SchemaType<'s>,
    /// Whether Go omits the field if it is empty (`omitempty`); otherwise it is always written.
    pub(crate) omits_empty: bool,
    /// Whether the field is a pointer in Go, which is empty only if it is null.
    pub(crate) is_pointer: bool,
}

/// The view of a type as a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapView<'t, 's> {
    fields: &'t [SchemaField<'s>],
    rest: Option<&'t SchemaType<'s>>,
    pub(crate) atomic: Atomic,
}

static BUILTIN: LazyLock<Schemas<'static>> =
    LazyLock::new(|| Schemas::read(include_str!("schema.txt")).unwrap_or_default());

const DEDUCED: &SchemaType<'static> = &SchemaType::Deduced;
const UNTYPED: &SchemaType<'static> = &SchemaType::Untyped;

// === impl Schemas ===

impl Schemas<'static> {
    /// The built-in kinds of the Kubernetes version that `schema.txt` names.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }
}

impl<'s> Schemas<'s> {
    /// Checks that a configuration can be applied to objects of this kind.
    ///
    /// # Errors
    ///
    /// [`ApplyError::UnknownKind`].
    pub fn know(&self, kind: &GroupVersionKind<'_>) -> Result<(), ApplyError> {
        self.of(kind).map(|_| ())
    }

    pub(crate) fn of(&self, kind: &GroupVersionKind<'_>) -> Result<&SchemaType<'s>, ApplyError> {
        let version = match kind.group.as_ref() {
            "" => kind.version.to_string(),
            group => format!("{group}/{}", kind.version),
        };
        let unknown = || ApplyError::UnknownKind {
            kind: format!("{version}, Kind={}", kind.kind),
        };
        self.kinds
            .get(version.as_str())
            .and_then(|kinds| kinds.get(kind.kind.as_ref()))
            .ok_or_else(unknown)
    }

    /// The view of the type as a map, if values can be maps.
    pub(crate) fn maps<'t>(&'t self, of: &'t SchemaType<'s>) -> Option<MapView<'t, 's>>
    where
        's: 't,
    {
        let (fields, rest, atomic): (&[_], _, _) = match of {
            SchemaType::Scalar(_) | SchemaType::List(..) => return None,
            SchemaType::Map(value, atomic) => (&[], Some(&**value), *atomic),
            SchemaType::Struct(place, atomic) => {
                let own = self.structs.get(*place)?;
                (&own.fields, None, atomic.unwrap_or(own.atomic))
            }
            SchemaType::Deduced => (&[], Some(DEDUCED), false),
            SchemaType::Untyped => (&[], Some(UNTYPED), true),
        };
        Some(MapView { fields, rest, atomic })
    }
}

// === impl SchemaType ===

impl<'s> SchemaType<'s> {
    /// The type of the items, and how lists merge, if values can be lists.
    pub(crate) fn lists(&self) -> Option<(&Self, &ListType<'s>)> {
        match self {
            Self::List(item, lists) => Some((item, lists)),
            Self::Deduced | Self::Untyped => Some((&Self::Untyped, &ListType::Atomic)),
            Self::Scalar(_) | Self::Map(..) | Self::Struct(..) => None,
        }
    }

    /// The class of scalars that values can be, if any.
    pub(crate) const fn scalars(&self) -> Option<ScalarClass> {
        match self {
            Self::Scalar(scalar) => Some(scalar.class()),
            Self::Deduced | Self::Untyped => Some(ScalarClass::Any),
            Self::List(..) | Self::Map(..) | Self::Struct(..) => None,
        }
    }
}

// === impl Scalar ===

impl Scalar {
    const fn class(self) -> ScalarClass {
        match self {
            Self::String | Self::Bytes => ScalarClass::String,
            Self::Int32 | Self::Int64 | Self::Double => ScalarClass::Numeric,
            Self::Boolean => ScalarClass::Boolean,
            Self::Time | Self::MicroTime | Self::Quantity | Self::IntOrString | Self::Any => ScalarClass::Any,
        }
    }
}

// === impl MapView ===

impl<'t, 's> MapView<'t, 's> {
    /// The declared fields; empty for a map with arbitrary keys.
    pub(crate) const fn fields(&self) -> &'t [SchemaField<'s>] {
        self.fields
    }

    /// The field `name`, if it is declared.
    pub(crate) fn declared(&self, name: &str) -> Option<&'t SchemaField<'s>> {
        let place = self.fields.binary_search_by_key(&name, |field| field.name).ok()?;
        self.fields.get(place)
    }

    /// The type of the field `name`, if it is declared.
    pub(crate) fn field(&self, name: &str) -> Option<&'t SchemaType<'s>> {
        self.declared(name).map(|field| &field.of)
    }

    /// The type of the key `name`, if the key is allowed.
    pub(crate) fn key(&self, name: &str) -> Option<&'t SchemaType<'s>> {
        self.field(name).or(self.rest)
    }
}

// Parses a table of types:
//
// ```text
// # a comment
// kind apps/v1 Deployment apps.v1.Deployment
// type core.v1.ContainerPort containerPort:i32 hostIP?:str protocol?:str
// type meta.v1.LabelSelector ! matchLabels?:{str}         an atomic struct
// ```
//
// | written | is |
// |---|---|
// | `str` `bytes` `time` `microtime` `quantity` `intstr` `i32` `i64` `f64` `bool` `scalar` | a scalar of that Go type, or any |
// | `[T]` `set[T]` `map(k,l="TCP")[T]` | a list: atomic, a set, a map by keys with their defaults |
// | `{T}` `!{T}` | a map with arbitrary keys; an atomic one |
// | `NAME` `!NAME` `~NAME` | a struct; made atomic here; made granular here |
// | `any` `!any` | any value, merged by what it is; replaced as a whole |
// | `FIELD?:T` `FIELD:*T` | a field with `omitempty`; a pointer |

/// The number of the line that cannot be parsed, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SchemaError(usize);

type Places<'s> = HashMap<&'s str, usize>;

impl<'s> Schemas<'s> {
    /// Parses a table.
    pub(crate) fn read(text: &'s str) -> Result<Self, SchemaError> {
        let lines = || text.lines().enumerate().map(|(line, text)| (line + 1, text));
        let named = lines().filter_map(|(_, line)| line.strip_prefix("type ")?.split(' ').next());
        let places: Places<'s> = named.enumerate().map(|(place, name)| (name, place)).collect();
        let mut schemas = Self::default();
        for (number, line) in lines() {
            schemas.line(line, &places).ok_or(SchemaError(number))?;
        }
        Ok(schemas)
    }

    fn line(&mut self, line: &'s str, places: &Places<'s>) -> Option<()> {
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        let mut words = line.split(' ');
        match words.next()? {
            "type" => {
                let name = words.next()?;
                self.structs.push(Struct::read(name, words, places)?);
            }
            "kind" => {
                let (version, kind) = (words.next()?, words.next()?);
                let of = parse_type(words.next()?, places)?;
                self.kinds.entry(version).or_default().insert(kind, of);
            }
            _ => return None,
        }
        Some(())
    }
}

impl<'s> Struct<'s> {
    fn read(name: &'s str, words: impl Iterator<Item = &'s str>, places: &Places<'s>) -> Option<Self> {
        let mut own = Self {
            name,
            ..Self::default()
        };
        for word in words {
            if word == "!" {
                own.atomic = true;
            } else {
                own.fields.push(SchemaField::read(word, places)?);
            }
        }
        own.fields.sort_unstable_by_key(|field| field.name);
        Some(own)
    }
}

impl<'s> SchemaField<'s> {
    fn read(word: &'s str, places: &Places<'s>) -> Option<Self> {
        let (name, of) = word.split_once(':')?;
        let target = of.strip_prefix('*');
        let optional = name.strip_suffix('?');
        Some(Self {
            name: optional.unwrap_or(name),
            of: parse_type(target.unwrap_or(of), places)?,
            omits_empty: optional.is_some(),
            is_pointer: target.is_some(),
        })
    }
}

/// Parses a type.
fn parse_type<'s>(text: &'s str, places: &Places<'s>) -> Option<SchemaType<'s>> {
    if let Some(of) = parse_word(text) {
        return Some(of);
    }
    if let Some(rest) = text.strip_suffix(']') {
        let (lists, item) = parse_list(rest)?;
        return Some(SchemaType::List(Box::new(parse_type(item, places)?), lists));
    }
    let (atomic, rest) = match text.strip_prefix('!') {
        Some(rest) => (Some(true), rest),
        None => match text.strip_prefix('~') {
            Some(rest) => (Some(false), rest),
            None => (None, text),
        },
    };
    if let Some(value) = rest.strip_prefix('{') {
        let value = parse_type(value.strip_suffix('}')?, places)?;
        return Some(SchemaType::Map(Box::new(value), atomic.unwrap_or(false)));
    }
    places.get(rest).map(|place| SchemaType::Struct(*place, atomic))
}

fn parse_word(text: &str) -> Option<SchemaType<'static>> {
    Some(match text {
        "str" => SchemaType::Scalar(Scalar::String),
        "bytes" => SchemaType::Scalar(Scalar::Bytes),
        "time" => SchemaType::Scalar(Scalar::Time),
        "microtime" => SchemaType::Scalar(Scalar::MicroTime),
        "quantity" => SchemaType::Scalar(Scalar::Quantity),
        "intstr" => SchemaType::Scalar(Scalar::IntOrString),
        "i32" => SchemaType::Scalar(Scalar::Int32),
        "i64" => SchemaType::Scalar(Scalar::Int64),
        "f64" => SchemaType::Scalar(Scalar::Double),
        "bool" => SchemaType::Scalar(Scalar::Boolean),
        "scalar" => SchemaType::Scalar(Scalar::Any),
        "any" => SchemaType::Deduced,
        "!any" => SchemaType::Untyped,
        _ => return None,
    })
}

/// How a list merges, and the type of its items.
fn parse_list(text: &str) -> Option<(ListType<'_>, &str)> {
    if let Some(item) = text.strip_prefix('[') {
        return Some((ListType::Atomic, item));
    }
    if let Some(item) = text.strip_prefix("set[") {
        return Some((ListType::Set, item));
    }
    let (keys, item) = text.strip_prefix("map(")?.split_once(")[")?;
    let key = |text| match str::split_once(text, '=') {
        Some((name, default)) => ListKey {
            name,
            default: Some(default),
        },
        None => ListKey {
            name: text,
            default: None,
        },
    };
    let mut keys: Vec<ListKey<'_>> = keys.split(',').map(key).collect();
    keys.sort_unstable_by_key(|key| key.name);
    Some((ListType::Map(keys), item))
}

// The built-in types as types of the CEL type checker.

/// Declares each struct once. A struct within itself is `dyn`.
struct Declarations<'t, 's> {
    schemas: &'t Schemas<'s>,
    done: HashMap<usize, portcullis_cel::Type>,
}

impl<'s> Schemas<'s> {
    /// The CEL type of objects of `kind`: its fields, with lists, maps, strings, booleans and
    /// integers. All other types are `dyn`.
    ///
    /// `None` if the kind is not built in.
    #[must_use]
    pub fn declared(&self, kind: &GroupVersionKind<'_>) -> Option<portcullis_cel::Type> {
        let of = self.of(kind).ok()?;
        let mut declarations = Declarations {
            schemas: self,
            done: HashMap::new(),
        };
        Some(declarations.declare(of))
    }
}

impl<'s> Declarations<'_, 's> {
    fn declare(&mut self, of: &SchemaType<'s>) -> portcullis_cel::Type {
        match of {
            SchemaType::Scalar(Scalar::String) => portcullis_cel::Type::String,
            SchemaType::Scalar(Scalar::Int32 | Scalar::Int64) => portcullis_cel::Type::Int,
            SchemaType::Scalar(Scalar::Boolean) => portcullis_cel::Type::Bool,
            SchemaType::List(item, _) => portcullis_cel::Type::list(self.declare(item)),
            SchemaType::Map(value, _) => {
                portcullis_cel::Type::map(portcullis_cel::Type::String, self.declare(value))
            }
            SchemaType::Struct(place, _) => self.declare_struct(*place),
            // Floating-point numbers, and types that differ between OpenAPI and Go.
            SchemaType::Scalar(_) | SchemaType::Deduced | SchemaType::Untyped => portcullis_cel::Type::Dyn,
        }
    }

    fn declare_struct(&mut self, place: usize) -> portcullis_cel::Type {
        if let Some(done) = self.done.get(&place) {
            return done.clone();
        }
        let Some(own) = self.schemas.structs.get(place) else {
            return portcullis_cel::Type::Dyn;
        };
        self.done.insert(place, portcullis_cel::Type::Dyn);
        let fields: Vec<_> = own
            .fields
            .iter()
            .map(|field| (field.name, self.declare(&field.of)))
            .collect();
        let declared = portcullis_cel::Type::object(own.name, fields);
        self.done.insert(place, declared.clone());
        declared
    }
}
