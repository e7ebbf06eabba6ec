//! The schema of the built-in types: how they merge, and how Go reads and writes them.
//!
//! The first is derived from an API server's OpenAPI, as in structured-merge-diff: the fields,
//! which lists are sets or maps, and what is atomic. The second is what the Go types say.

mod declared;
mod read;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Error;
use crate::engine::admission::GroupVersionKind;

/// The types of a set of kinds.
#[derive(Debug, Default)]
pub struct Schemas<'s> {
    /// By group and version, then by kind.
    kinds: HashMap<&'s str, HashMap<&'s str, SchemaType<'s>>>,
    structs: Vec<Struct<'s>>,
}

/// What a value may be, and how two of them merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaType<'s> {
    /// Anything that is neither list nor map.
    Scalar(Scalar),
    /// A list.
    List(Box<Self>, Lists<'s>),
    /// A map of any keys.
    Map(Box<Self>, Atomic),
    /// A map of known keys, by its place; what is said here of atomicity goes
    /// before what the struct says.
    Struct(usize, Option<Atomic>),
    /// Anything: maps merge key by key, lists are atomic.
    Deduced,
    /// Anything, as a whole.
    Untyped,
}

/// Whether it can only be replaced as a whole.
pub(crate) type Atomic = bool;

/// What a scalar is in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// `string`.
    String,
    /// `[]byte`: text in base64.
    Bytes,
    /// `metav1.Time`: seconds.
    Time,
    /// `metav1.MicroTime`: microseconds.
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

/// What a scalar may be where it merges: OpenAPI tells no more apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarClass {
    /// Text.
    String,
    /// A number.
    Numeric,
    /// A truth value.
    Boolean,
    /// Any of these.
    Any,
}

/// How two lists merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lists<'s> {
    /// Not at all.
    Atomic,
    /// Items that are the same scalar are one.
    Set,
    /// Items with the same keys are one and merge.
    Map(Vec<ListKey<'s>>),
}

/// A field that identifies the items of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListKey<'s> {
    pub(crate) name: &'s str,
    /// What an item without the field has there, as JSON.
    pub(crate) default: Option<&'s str>,
}

/// A map of known keys.
#[derive(Debug, Default)]
pub(crate) struct Struct<'s> {
    /// Its name, such as `apps.v1.DeploymentSpec`.
    name: &'s str,
    /// By name, sorted.
    fields: Vec<Field<'s>>,
    atomic: Atomic,
}

/// A known key.
#[derive(Debug)]
pub(crate) struct Field<'s> {
    pub(crate) name: &'s str,
    pub(crate) of: SchemaType<'s>,
    /// Whether Go leaves it out while it is empty (`omitempty`); else it is always written.
    pub(crate) omits_empty: bool,
    /// Whether it is a pointer in Go, which only `null` leaves empty.
    pub(crate) is_pointer: bool,
}

/// A type as far as it concerns maps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maps<'t, 's> {
    fields: &'t [Field<'s>],
    rest: Option<&'t SchemaType<'s>>,
    pub(crate) atomic: Atomic,
}

static BUILTIN: LazyLock<Schemas<'static>> =
    LazyLock::new(|| Schemas::read(include_str!("schema.txt")).unwrap_or_default());

const DEDUCED: &SchemaType<'static> = &SchemaType::Deduced;
const UNTYPED: &SchemaType<'static> = &SchemaType::Untyped;

// === impl Schemas ===

impl Schemas<'static> {
    /// The kinds that are built into Kubernetes, of the version that
    /// `schema.txt` names.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }
}

impl<'s> Schemas<'s> {
    /// Whether a configuration can be applied to objects of this kind.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`].
    pub fn know(&self, kind: &GroupVersionKind<'_>) -> Result<(), Error> {
        self.of(kind).map(|_| ())
    }

    pub(crate) fn of(&self, kind: &GroupVersionKind<'_>) -> Result<&SchemaType<'s>, Error> {
        let version = match kind.group.as_ref() {
            "" => kind.version.to_string(),
            group => format!("{group}/{}", kind.version),
        };
        let unknown = || Error::UnknownKind {
            kind: format!("{version}, Kind={}", kind.kind),
        };
        self.kinds
            .get(version.as_str())
            .and_then(|kinds| kinds.get(kind.kind.as_ref()))
            .ok_or_else(unknown)
    }

    /// The type as far as it concerns maps, if it may be one.
    pub(crate) fn maps<'t>(&'t self, of: &'t SchemaType<'s>) -> Option<Maps<'t, 's>>
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
        Some(Maps { fields, rest, atomic })
    }
}

// === impl SchemaType ===

impl<'s> SchemaType<'s> {
    /// The items' type and how lists merge, if it may be a list.
    pub(crate) fn lists(&self) -> Option<(&Self, &Lists<'s>)> {
        match self {
            Self::List(item, lists) => Some((item, lists)),
            Self::Deduced | Self::Untyped => Some((&Self::Untyped, &Lists::Atomic)),
            Self::Scalar(_) | Self::Map(..) | Self::Struct(..) => None,
        }
    }

    /// What scalars it may be, if any.
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

// === impl Maps ===

impl<'t, 's> Maps<'t, 's> {
    /// The declared fields; none of a map of any keys.
    pub(crate) const fn fields(&self) -> &'t [Field<'s>] {
        self.fields
    }

    /// The field `name`, if it is declared.
    pub(crate) fn declared(&self, name: &str) -> Option<&'t Field<'s>> {
        let place = self.fields.binary_search_by_key(&name, |field| field.name).ok()?;
        self.fields.get(place)
    }

    /// Its type.
    pub(crate) fn field(&self, name: &str) -> Option<&'t SchemaType<'s>> {
        self.declared(name).map(|field| &field.of)
    }

    /// The type of the key `name`, if there may be such a key.
    pub(crate) fn key(&self, name: &str) -> Option<&'t SchemaType<'s>> {
        self.field(name).or(self.rest)
    }
}
