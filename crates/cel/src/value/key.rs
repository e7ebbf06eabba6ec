//! What a map can be searched for.

use std::hash::{Hash, Hasher};

use super::{Text, Value};

/// A key of a map.
///
/// An int and a uint of the same number are two keys, as in Kubernetes, though
/// a search for one finds the other.
#[derive(Debug, Clone)]
pub enum Key<'a> {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number, as its bits.
    Double(u64),
    /// Text.
    String(Text<'a>),
}

// === impl Key ===

impl<'a> Key<'a> {
    /// The key that `value` is, if it can be one.
    #[must_use]
    pub fn new(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(Self::Uint(*value)),
            Value::Double(value) => Some(Self::Double(value.to_bits())),
            Value::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    /// The key as a value.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Self::String(text) if &**text == name)
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(own), Self::Bool(other)) => own == other,
            (Self::Int(own), Self::Int(other)) => own == other,
            (Self::Uint(own), Self::Uint(other)) | (Self::Double(own), Self::Double(other)) => own == other,
            (Self::String(own), Self::String(other)) => **own == **other,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Bool(value) => value.hash(state),
            Self::Int(value) => value.hash(state),
            Self::Uint(value) | Self::Double(value) => value.hash(state),
            Self::String(text) => (**text).hash(state),
        }
    }
}

/// The int that `double` is without loss.
#[expect(clippy::cast_possible_truncation, reason = "checked by converting back")]
#[expect(
    clippy::cast_precision_loss,
    reason = "a double that is an int converts back to itself"
)]
pub(crate) fn exact_int(double: f64) -> Option<i64> {
    let int = double as i64;
    (int as f64 == double && double < 9_223_372_036_854_775_808.0).then_some(int)
}

/// The uint that `double` is without loss.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked by converting back"
)]
#[expect(
    clippy::cast_precision_loss,
    reason = "a double that is a uint converts back to itself"
)]
pub(crate) fn exact_uint(double: f64) -> Option<u64> {
    let uint = double as u64;
    (uint as f64 == double && double < 18_446_744_073_709_551_616.0).then_some(uint)
}
