//! The values that expressions evaluate to.
//!
//! Values borrow from their sources: the text of a JSON document, the constants of a program, or
//! the caller's structures. `'a` is the lifetime of all of these. Cloning a value never copies a
//! list, a map or a string.

mod equal;
mod map;
mod quantity;
mod semver;
mod time;
mod url;

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::json;
use crate::library::authorizer::{AccessCheckBuilder, AccessCheckDecision};
use crate::library::formats::NamedFormat;
use crate::types::Type;

pub use equal::Key;
pub use map::{Entries, List, Map, MapEntries, Object};
pub use quantity::{Quantity, QuantityFault};
pub use semver::{Semver, SemverFault};
pub use time::{Duration, Timestamp};
pub use url::{UrlFault, UrlValue};

pub(crate) use equal::{Work, compare, equal, exact_int, is_incomparable, steps_of_order};
pub(crate) use time::{CivilTime, missing_zone, offset as zone_offset};

/// A CEL value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// A string.
    String(Text<'a>),
    /// A sequence of bytes.
    Bytes(Bytes<'a>),
    /// A length of time.
    Duration(Duration),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map, or an object with fields.
    Map(Map<'a>),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'a>>>),
    /// A type.
    Type(Arc<Type>),
    /// A value of a library type.
    Opaque(Opaque<'a>),
}

// === impl Value ===

impl<'a> Value<'a> {
    /// The value of JSON text, as an API server reads it: a number that is written as an integer
    /// and fits is an int; other numbers are doubles.
    #[must_use]
    pub fn json(node: json::Node<'a>) -> Self {
        match node.kind() {
            json::Kind::Null => Self::Null,
            json::Kind::Bool => Self::Bool(node.as_bool().unwrap_or_default()),
            json::Kind::Number => match node.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(node.as_f64().unwrap_or(f64::NAN)),
            },
            json::Kind::String => Self::String(node.as_str().map_or(Text::Borrowed(""), Text::from)),
            json::Kind::Array => Self::List(List::Json(node)),
            json::Kind::Object => Self::Map(Map::Json(node)),
        }
    }

    /// A borrowed string.
    #[must_use]
    pub const fn str(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// An owned string.
    #[must_use]
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// An owned list.
    #[must_use]
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::Shared(items.into()))
    }

    /// An owned map.
    #[must_use]
    pub fn map(entries: Entries<'a>) -> Self {
        Self::Map(Map::Shared(Arc::new(entries)))
    }

    /// An optional with a value.
    #[must_use]
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// An optional without a value.
    #[must_use]
    pub const fn none() -> Self {
        Self::Optional(None)
    }

    /// The string, if the value is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean, if the value is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The same value, borrowing what this one owns.
    ///
    /// For a constant of a program, this is cheaper than a clone.
    pub(crate) fn share<'b>(&'b self) -> Value<'b>
    where
        'a: 'b,
    {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(value) => Value::Double(*value),
            Self::String(text) => Value::String(Text::Borrowed(text)),
            Self::Bytes(bytes) => Value::Bytes(Bytes::Borrowed(bytes)),
            Self::List(list) => Value::List(list.share()),
            Self::Map(map) => Value::Map(map.share()),
            other => other.clone(),
        }
    }

    /// The same value with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Uint(value) => Value::Uint(value),
            Self::Double(value) => Value::Double(value),
            Self::String(text) => Value::string(&*text),
            Self::Bytes(bytes) => Value::Bytes(Bytes::from(bytes.to_vec())),
            Self::Duration(duration) => Value::Duration(duration),
            Self::Timestamp(timestamp) => Value::Timestamp(timestamp),
            Self::List(list) => Value::list(list.items().map(Value::into_owned).collect()),
            Self::Map(map) => Value::map(map.into_owned()),
            Self::Optional(inner) => {
                Value::Optional(inner.map(|inner| Arc::new((*inner).clone().into_owned())))
            }
            Self::Type(of) => Value::Type(of),
            Self::Opaque(opaque) => opaque.into_owned().map_or(Value::Null, Value::Opaque),
        }
    }

    /// The type that the value has at run time.
    #[must_use]
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(map) => map.type_of(),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Type(_) => Type::of_type(Type::Dyn),
            Self::Opaque(opaque) => Type::Opaque(opaque.type_name()),
        }
    }

    /// Flattens nested optionals, as upstream does when something is selected from an optional, or
    /// when it is the result of a conditional.
    pub(crate) fn collapsed(self) -> Self {
        match self {
            Self::Optional(Some(inner)) => match &*inner {
                Self::Optional(None) => Self::some(Self::Null),
                Self::Optional(Some(_)) => (*inner).clone().collapsed(),
                // Upstream converts a type back as a string with its name.
                Self::Type(of) => {
                    let name = of.to_string();
                    let name = name.split('(').next().unwrap_or_default();
                    Self::some(Self::String(Text::from(name.to_owned())))
                }
                _ => Self::Optional(Some(inner)),
            },
            other => other,
        }
    }

    /// Whether the value is the zero value of its type, as `optional.ofNonZeroValue` defines it.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(duration) => duration.nanoseconds() == 0,
            Self::Timestamp(timestamp) => timestamp.is_zero(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Optional(_) | Self::Type(_) | Self::Opaque(_) => false,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::str(text)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

// Values of library types.

/// A value of a library type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Opaque<'a> {
    /// A quantity of a resource.
    Quantity(Arc<Quantity>),
    /// A quantity that `add` or `sub` returned. Kubernetes holds it as a pointer, and so finds no
    /// value equal to it.
    ComputedQuantity(Arc<Quantity>),
    /// A URL.
    Url(Arc<UrlValue>),
    /// An IP address.
    Ip(IpAddr),
    /// A network in CIDR notation: an address and the length of its prefix in bits.
    Cidr(IpAddr, u8),
    /// A semantic version.
    Semver(Arc<Semver>),
    /// A named string format.
    Format(&'static NamedFormat),
    /// An authorizer check that is still being built.
    Check(Arc<AccessCheckBuilder<'a>>),
    /// The decision of the authorizer.
    Decision(Arc<AccessCheckDecision>),
}

// === impl Opaque ===

impl<'a> Opaque<'a> {
    /// The bytes of such a value besides its strings.
    pub(crate) const BYTES: usize = 256;

    /// The bytes of memory that the value points to. Any operation on it takes about as many steps.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Quantity(quantity) | Self::ComputedQuantity(quantity) => quantity.bytes(),
            Self::Url(url) => url.bytes(),
            Self::Semver(semver) => semver.bytes(),
            Self::Check(check) => check.question.bytes(),
            Self::Decision(answer) => answer.bytes(),
            Self::Ip(_) | Self::Cidr(..) | Self::Format(_) => 0,
        }
    }

    /// The name of the type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) | Self::ComputedQuantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Check(check) => check.type_name(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// The same value with nothing borrowed; `None` if that is not possible.
    pub(crate) fn into_owned(self) -> Option<Opaque<'static>> {
        Some(match self {
            Self::Quantity(quantity) => Opaque::Quantity(quantity),
            Self::ComputedQuantity(quantity) => Opaque::ComputedQuantity(quantity),
            Self::Url(url) => Opaque::Url(url),
            Self::Ip(ip) => Opaque::Ip(ip),
            Self::Cidr(ip, bits) => Opaque::Cidr(ip, bits),
            Self::Semver(semver) => Opaque::Semver(semver),
            Self::Format(format) => Opaque::Format(format),
            Self::Decision(answer) => Opaque::Decision(answer),
            Self::Check(_) => return None,
        })
    }

    /// The quantity, if the value is one.
    pub(crate) fn quantity(&self) -> Option<&Quantity> {
        match self {
            Self::Quantity(quantity) | Self::ComputedQuantity(quantity) => Some(quantity),
            _ => None,
        }
    }

    /// Whether both values are equal; `None` if they cannot be compared.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Quantity(own) | Self::ComputedQuantity(own), Self::Quantity(other)) => {
                Some(own.compare(other).is_eq())
            }
            (Self::Url(own), Self::Url(other)) => Some(own == other),
            (Self::Ip(own), Self::Ip(other)) => Some(own == other),
            (Self::Cidr(own, bits), Self::Cidr(other, other_bits)) => {
                Some(own == other && bits == other_bits)
            }
            (Self::Semver(own), Self::Semver(other)) => Some(own.compare(other).is_eq()),
            (Self::Format(own), Self::Format(other)) => Some(own.name == other.name),
            _ => None,
        }
    }
}

/// The bytes of an address.
pub(crate) const fn address_bytes(ip: &IpAddr) -> u64 {
    match ip {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    }
}

// Strings and bytes, borrowed or shared.

/// A string.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// A borrowed string.
    Borrowed(&'a str),
    /// A string with a reference count.
    Shared(Arc<str>),
}

/// Bytes.
#[derive(Debug, Clone)]
pub enum Bytes<'a> {
    /// Borrowed bytes.
    Borrowed(&'a [u8]),
    /// Bytes with a reference count.
    Shared(Arc<[u8]>),
}

impl<'a> Text<'a> {
    /// The bytes of memory of a shared string besides its contents.
    pub(crate) const BYTES: usize = 32;

    /// Whether the string has a reference count, and this is the only reference.
    pub(crate) fn is_unshared(&self) -> bool {
        matches!(self, Self::Shared(text) if Arc::strong_count(text) == 1)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Borrowed(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(bytes.into())
    }
}
