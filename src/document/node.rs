//! Values with the lines they stand on.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::field::Step;

/// A value and its line, from 1 (0: not known).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The line on which the value begins.
    pub line: u32,
    /// The value.
    pub value: Value,
}

/// What YAML and JSON have in common.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// Text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The line of the key.
    pub line: u32,
    /// The value.
    pub value: Node,
}

/// Reads all documents; a failure is a line and what is wrong there.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, (u32, String)> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        budget: serde_saphyr::budget! {
            // A manifest folder of a large cluster is one `List` of some 100 MB.
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_documents: 1_000_000,
            max_total_scalar_bytes: 1 << 30,
            // Reading recurses: a level takes some 5 KB of stack, so this fits into half
            // a megabyte. Unoptimised it is eight times that.
            max_depth: 100,
        },
    };
    serde_saphyr::from_multiple_with_options::<Spanned<Wrapped>>(text, options)
        .map(|documents| documents.into_iter().map(node).collect())
        .map_err(|error| {
            let line = error.location().map_or(0, |location| line(location.line()));
            (line, error.without_snippet().to_string())
        })
}

fn line(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

fn node(spanned: Spanned<Wrapped>) -> Node {
    Node {
        line: line(spanned.referenced.line()),
        value: spanned.value.0,
    }
}

impl Node {
    /// The entry `name` of a mapping.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == name)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The item `index` of a list.
    #[must_use]
    pub fn item(&self, index: usize) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Takes away the value at `path`: the entry of the innermost mapping on the
    /// way, so that no item of a list changes its place. `false` where there is none.
    pub(super) fn leave_out(&mut self, path: &[Step]) -> bool {
        let Some((step, rest)) = path.split_first() else {
            return false;
        };
        match (&mut self.value, step) {
            (Value::Map(entries), Step::Field(name) | Step::Key(name)) => {
                let Some(index) = entries.iter().position(|entry| entry.key == *name) else {
                    return false;
                };
                let within = entries
                    .get_mut(index)
                    .is_some_and(|entry| entry.value.leave_out(rest));
                if !within {
                    entries.remove(index);
                }
                true
            }
            (Value::List(items), Step::Index(index)) => {
                items.get_mut(*index).is_some_and(|item| item.leave_out(rest))
            }
            _ => false,
        }
    }

    /// The text, where it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// `value`, which stands on no line.
    #[must_use]
    pub fn from_json(value: serde_json::Value) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text),
            serde_json::Value::Array(items) => Value::List(items.into_iter().map(Self::from_json).collect()),
            serde_json::Value::Object(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key,
                        line: 0,
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self { line: 0, value }
    }

    /// The same value without its lines.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect(),
        }
    }
}

/// What a document is made of, told by serde what it looks like.
struct Wrapped(Value);

impl<'de> Deserialize<'de> for Wrapped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Wrapped)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Wrapped>>()? {
            items.push(node(item));
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let value = node(access.next_value()?);
            entries.push(Entry {
                key: key.value,
                line: line(key.referenced.line()),
                value,
            });
        }
        Ok(Value::Map(entries))
    }
}
