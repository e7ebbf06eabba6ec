//! JSON objects decoded field by field, repeated keys included.

use std::borrow::Cow;
use std::cell::Cell;

use super::reader::Reader;
use crate::engine::{Operator, Requirement};
use portcullis_cel::json::JsonError;

/// A JSON object read field by field into `self`.
pub(crate) trait JsonFields<'a>: Default {
    /// What an error says was expected.
    const EXPECTED: &'static str;

    /// Reads, or skips, the value of `key`: exactly one value.
    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError>;
}

/// How many list items may still be kept.
pub(crate) struct ListItems {
    /// Groups and extra.
    pub(crate) identity: ListBudget,
    /// Requirements and their values.
    pub(crate) selectors: ListBudget,
}

/// A count that goes down; what no longer fits is skipped and remembered.
pub(crate) struct ListBudget {
    left: Cell<usize>,
    exhausted: Cell<bool>,
}

/// The user's extra: keys and their values, in the order received.
pub(crate) type Extra<'a> = Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>;

/// Reads a document that is one object.
pub(crate) fn read<'a, T: JsonFields<'a>>(
    text: &'a str,
    into: &mut T,
    items: &ListItems,
) -> Result<(), JsonError> {
    let mut reader = Reader::new(text);
    reader.fill(into, items)?;
    reader.end()
}

// === impl ListItems and ListBudget ===

impl ListItems {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            identity: ListBudget::new(most),
            selectors: ListBudget::new(most),
        }
    }
}

impl ListBudget {
    const fn new(most: usize) -> Self {
        Self {
            left: Cell::new(most),
            exhausted: Cell::new(false),
        }
    }

    /// Whether one more item may be kept.
    fn take(&self) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.exhausted.set(true),
        }
        !self.exhausted.get()
    }

    /// Whether an item was turned away.
    pub(crate) const fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// An object; `null` changes nothing.
    pub(crate) fn fill<T: JsonFields<'a>>(
        &mut self,
        into: &mut T,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        if !self.take(b'{') {
            return match self.take_null()? {
                true => Ok(()),
                false => Err(self.expected(T::EXPECTED)),
            };
        }
        let mut is_first = true;
        while let Some(key) = self.key(is_first)? {
            into.field(key.as_bytes(), self, items)?;
            is_first = false;
        }
        Ok(())
    }

    /// A pointer to an object; `null` makes it nil.
    pub(crate) fn pointer<T: JsonFields<'a>>(
        &mut self,
        into: &mut Option<T>,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        if self.take_null()? {
            *into = None;
            return Ok(());
        }
        self.fill(into.get_or_insert_default(), items)
    }

    /// A string; `null` changes nothing.
    pub(crate) fn text(&mut self, into: &mut Cow<'a, str>) -> Result<(), JsonError> {
        match self.plain_string() {
            Some(text) => {
                *into = Cow::Borrowed(text);
                Ok(())
            }
            None => self.text_not_plain(into),
        }
    }

    #[inline(never)]
    fn text_not_plain(&mut self, into: &mut Cow<'a, str>) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'n') => self.literal("null"),
            _ => self.string("a string").map(|text| *into = text),
        }
    }

    /// `true` or `false`; `null` changes nothing.
    pub(crate) fn boolean(&mut self, into: &mut bool) -> Result<(), JsonError> {
        match self.peek() {
            Some(b't') => self.literal("true").map(|()| *into = true),
            Some(b'f') => self.literal("false").map(|()| *into = false),
            _ if self.take_null()? => Ok(()),
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    /// A list of strings, replacing what was there; `null` empties it.
    pub(crate) fn strings(
        &mut self,
        into: &mut Vec<Cow<'a, str>>,
        budget: &ListBudget,
    ) -> Result<(), JsonError> {
        into.clear();
        self.list("a list of strings", |reader| {
            let mut text = Cow::default();
            reader.text(&mut text)?;
            if budget.take() {
                into.push(text);
            }
            Ok(())
        })
    }

    /// A list of requirements, replacing what was there; `null` empties it.
    pub(crate) fn requirements(
        &mut self,
        into: &mut Vec<Requirement<'a>>,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        into.clear();
        self.list("a list of requirements", |reader| {
            let mut requirement = RawRequirement::default();
            reader.fill(&mut requirement, items)?;
            // Once a value was turned away this requirement, and all that follow,
            // may be incomplete: leaving them out only widens the request.
            if items.selectors.take() {
                into.push(requirement.into());
            }
            Ok(())
        })
    }

    /// A map to lists of strings, added to what was there; `null` empties it.
    pub(crate) fn extra(&mut self, into: &mut Extra<'a>, budget: &ListBudget) -> Result<(), JsonError> {
        if self.take_null()? {
            into.clear();
            return Ok(());
        }
        if !self.take(b'{') {
            return Err(self.expected("a map to lists of strings"));
        }
        let mut is_first = true;
        while let Some(key) = self.key(is_first)? {
            let mut values = Vec::new();
            self.strings(&mut values, budget)?;
            if budget.take() {
                into.push((key, values));
            }
            is_first = false;
        }
        Ok(())
    }

    /// Skips a value: whether it is the empty one of its type.
    pub(crate) fn is_zero(&mut self) -> Result<bool, JsonError> {
        let is_zero = match self.peek() {
            Some(b'"') => return Ok(self.string("a string")?.is_empty()),
            Some(b'-' | b'0'..=b'9') => return Ok(self.number()?.parse::<f64>() == Ok(0.0)),
            Some(b'n' | b'f') => true,
            Some(b't') => false,
            Some(b'{') => self.begins_empty(b'}'),
            _ => self.begins_empty(b']'),
        };
        self.skip()?;
        Ok(is_zero)
    }

    fn list(
        &mut self,
        expected: &'static str,
        mut read_item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if !self.take(b'[') {
            return match self.take_null()? {
                true => Ok(()),
                false => Err(self.expected(expected)),
            };
        }
        let mut is_first = true;
        while self.item(is_first)? {
            read_item(self)?;
            is_first = false;
        }
        Ok(())
    }
}

/// One requirement while it is read.
#[derive(Default)]
struct RawRequirement<'a> {
    key: Cow<'a, str>,
    operator: Cow<'a, str>,
    values: Vec<Cow<'a, str>>,
}

impl<'a> JsonFields<'a> for RawRequirement<'a> {
    const EXPECTED: &'static str = "a requirement";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match key {
            b"key" => reader.text(&mut self.key),
            b"operator" => reader.text(&mut self.operator),
            b"values" => reader.strings(&mut self.values, &items.selectors),
            _ => reader.skip(),
        }
    }
}

impl<'a> From<RawRequirement<'a>> for Requirement<'a> {
    fn from(raw: RawRequirement<'a>) -> Self {
        let operator = match raw.operator.as_bytes() {
            b"In" => Operator::In,
            b"NotIn" => Operator::NotIn,
            b"Exists" => Operator::Exists,
            b"DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown(raw.operator),
        };
        Self {
            key: raw.key,
            operator,
            values: raw.values,
        }
    }
}
