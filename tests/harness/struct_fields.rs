//! The names of the fields that a type is read from, for tests that compare them with a schema.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

/// Tells of the fields of a struct, and has no value.
struct StructFields<'f>(&'f mut Vec<&'static str>);

/// The names, sorted; none where `T` is read as something else than a mapping.
pub(crate) fn struct_fields<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
    let mut found = Vec::new();
    let _ = T::deserialize(StructFields(&mut found));
    found.sort_unstable();
    found
}

// === impl StructFields ===

impl<'de> Deserializer<'de> for StructFields<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.extend(fields);
        StructFields(self.0).deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
