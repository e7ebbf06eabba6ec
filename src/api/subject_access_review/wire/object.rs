//! JSON values read into places that may already hold something.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::RawRequirement;
use crate::engine::Requirement;

/// A JSON object read field by field into `self`.
pub(super) trait Object<'de>: Default {
    /// What an error says was expected.
    const EXPECTED: &'static str;

    /// Reads, or skips, the value of `key`: exactly one value of `map`.
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error>;
}

/// How many list items may still be kept.
pub(super) struct Items {
    /// Groups and extra.
    pub(super) identity: Budget,
    /// Requirements and their values.
    pub(super) selectors: Budget,
}

/// A count that goes down; what no longer fits is skipped and remembered.
pub(super) struct Budget {
    left: Cell<usize>,
    exhausted: Cell<bool>,
}

/// An object; `null` changes nothing.
pub(super) struct Fill<'b, T>(pub(super) &'b mut T, pub(super) &'b Items);

/// A pointer to an object; `null` makes it nil.
pub(super) struct Pointer<'b, T>(pub(super) &'b mut Option<T>, pub(super) &'b Items);

/// A string; `null` changes nothing.
pub(super) struct Text<'b, 'a>(pub(super) &'b mut Cow<'a, str>);

/// A list of strings, replacing what was there; `null` empties it.
pub(super) struct Strings<'b, 'a>(pub(super) &'b mut Vec<Cow<'a, str>>, pub(super) &'b Budget);

/// A list of requirements, replacing what was there; `null` empties it.
pub(super) struct Requirements<'b, 'a>(pub(super) &'b mut Vec<Requirement<'a>>, pub(super) &'b Items);

/// A map to lists of strings, added to what was there; `null` empties it.
pub(super) struct Extra<'b, 'a>(
    pub(super) &'b mut Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>,
    pub(super) &'b Budget,
);

/// Any value: whether it is the empty one of its type.
pub(super) struct Zero;

/// Reads a document that is one object.
pub(super) fn read<'de, T: Object<'de>>(
    text: &'de str,
    into: &mut T,
    items: &Items,
) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Fill(into, items).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Lets a visitor be the seed that starts it.
macro_rules! seed {
    ($visitor:ty $(where $($generics:tt)*)?) => {
        impl<'de, $($($generics)*)?> DeserializeSeed<'de> for $visitor {
            type Value = <Self as Visitor<'de>>::Value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

seed!(Fill<'_, T> where T: Object<'de>);
seed!(Pointer<'_, T> where T: Object<'de>);
seed!(Text<'_, 'de>);
seed!(Strings<'_, 'de>);
seed!(Requirements<'_, 'de>);
seed!(Extra<'_, 'de>);
seed!(Zero);

// === impl Items, Budget ===

impl Items {
    pub(super) fn new(most: usize) -> Self {
        let budget = || Budget {
            left: Cell::new(most),
            exhausted: Cell::new(false),
        };
        Self {
            identity: budget(),
            selectors: budget(),
        }
    }
}

impl Budget {
    /// Whether one more item may be kept.
    fn take(&self) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.exhausted.set(true),
        }
        !self.exhausted.get()
    }

    /// Whether an item was turned away.
    pub(super) fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

// === impl Fill, Pointer ===

impl<'de, T: Object<'de>> Visitor<'de> for Fill<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut key = Cow::default();
        while map.next_key_seed(Text(&mut key))?.is_some() {
            self.0.field(&key, &mut map, self.1)?;
        }
        Ok(())
    }
}

impl<'de, T: Object<'de>> Visitor<'de> for Pointer<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        *self.0 = None;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Fill(self.0.get_or_insert_default(), self.1).visit_map(map)
    }
}

// === impl Text ===

impl<'de> Visitor<'de> for Text<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        *self.0 = Cow::Borrowed(text);
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        *self.0 = Cow::Owned(text.to_owned());
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

// === impl Strings, Requirements, Extra ===

impl<'de> Visitor<'de> for Strings<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.clear();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.clear();
        loop {
            let mut text = Cow::default();
            if list.next_element_seed(Text(&mut text))?.is_none() {
                return Ok(());
            }
            if self.1.take() {
                self.0.push(text);
            }
        }
    }
}

impl<'de> Visitor<'de> for Requirements<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requirements")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.clear();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.clear();
        loop {
            let mut requirement = RawRequirement::default();
            if list.next_element_seed(Fill(&mut requirement, self.1))?.is_none() {
                return Ok(());
            }
            // Once a value was turned away this requirement, and all that follow,
            // may be incomplete: leaving them out only widens the request.
            if self.1.selectors.take() {
                self.0.push(requirement.into());
            }
        }
    }
}

impl<'de> Visitor<'de> for Extra<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map to lists of strings")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.clear();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            let (mut key, mut values) = (Cow::default(), Vec::new());
            if map.next_key_seed(Text(&mut key))?.is_none() {
                return Ok(());
            }
            map.next_value_seed(Strings(&mut values, self.1))?;
            if self.1.take() {
                self.0.push((key, values));
            }
        }
    }
}

// === impl Zero ===

impl<'de> Visitor<'de> for Zero {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(!value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        Ok(value == 0)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        Ok(value == 0)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        Ok(value == 0.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        Ok(text.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut empty = true;
        while list.next_element::<IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(empty)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(empty)
    }
}
