//! Maps, and objects with fields.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::equal::{exact_int, exact_uint};
use super::{Key, Text, Value};
use crate::json;
use crate::types::{ObjectType, Type};

/// The size up to which maps are searched without an index.
const MAX_UNINDEXED_KEYS: usize = 8;

/// A map.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// Borrowed entries.
    Borrowed(&'a Entries<'a>),
    /// Entries with a reference count.
    Shared(Arc<Entries<'a>>),
    /// A map in JSON text, which is read when it is used.
    Json(json::Node<'a>),
    /// The fields of a caller's structure.
    Object(&'a dyn Object),
}

/// A caller's structure whose fields an expression may read.
///
/// A field that is empty and optional in Kubernetes is absent: reading it is an error, and `has()`
/// is false.
pub trait Object: Sync {
    /// The value of `field`, if it has one.
    fn field(&self, field: &str) -> Option<Value<'_>>;

    /// The names of the fields that have a value.
    fn fields(&self) -> Vec<&str>;

    /// The name for errors of a `field` whose value is unknown: selecting it is
    /// [`EvalError::Unknown`](crate::EvalError::Unknown).
    fn unknown(&self, _field: &str) -> Option<&'static str> {
        None
    }
}

/// Keys and values in insertion order, with distinct keys.
#[derive(Debug, Clone, Default)]
pub struct Entries<'a> {
    entries: Vec<(Key<'a>, Value<'a>)>,
    /// The position of each key, once there are many.
    index: Option<HashMap<Key<'a>, usize, foldhash::fast::RandomState>>,
    /// The type, if this is an object that an expression constructed.
    object_type: Option<Arc<ObjectType>>,
}

/// An iterator over the keys and values of a map, in order.
pub enum MapEntries<'a> {
    /// Borrowed entries.
    Borrowed(std::slice::Iter<'a, (Key<'a>, Value<'a>)>),
    /// Shared entries, and the index of the next one.
    Shared(Arc<Entries<'a>>, usize),
    /// Entries in JSON text.
    Json(json::NodeEntries<'a>),
    /// The present fields of a structure.
    Object(&'a dyn Object, std::vec::IntoIter<&'a str>),
}

// === impl Map ===

impl<'a> Map<'a> {
    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(entries) => entries.len(),
            Self::Shared(entries) => entries.len(),
            Self::Json(node) => node.len(),
            Self::Object(object) => object.fields().len(),
        }
    }

    /// Whether it has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the string key or field `key`.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<Value<'a>> {
        match self {
            Self::Borrowed(entries) => entries.field(key).map(Value::share),
            Self::Shared(entries) => entries.field(key).cloned(),
            Self::Json(node) => node.get(key).map(Value::json),
            Self::Object(object) => object.field(key),
        }
    }

    /// Whether there is a string key or field `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Borrowed(entries) => entries.field(key).is_some(),
            Self::Shared(entries) => entries.field(key).is_some(),
            Self::Json(node) => node.get(key).is_some(),
            Self::Object(object) => object.field(key).is_some(),
        }
    }

    /// The value of `key`. A number also finds an equal number of another type.
    #[must_use]
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        if let Value::String(text) = key {
            return self.field(text);
        }
        match self {
            Self::Borrowed(entries) => entries.search(key).map(Value::share),
            Self::Shared(entries) => entries.search(key).cloned(),
            Self::Json(_) | Self::Object(_) => None,
        }
    }

    /// The keys, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Borrowed(entries) => entries.iter().map(|(key, _)| key.to_value()).collect(),
            Self::Shared(entries) => entries.iter().map(|(key, _)| key.to_value()).collect(),
            Self::Json(node) => node.entries().map(|(key, _)| Value::String(key.into())).collect(),
            Self::Object(object) => object.fields().into_iter().map(Value::str).collect(),
        }
    }

    /// Iterates over keys and values in order, making only one at a time.
    #[must_use]
    pub fn entries(&self) -> MapEntries<'a> {
        match self {
            Self::Borrowed(entries) => MapEntries::Borrowed(entries.entries.iter()),
            Self::Shared(entries) => MapEntries::Shared(Arc::clone(entries), 0),
            Self::Json(node) => MapEntries::Json(node.entries()),
            Self::Object(object) => MapEntries::Object(*object, object.fields().into_iter()),
        }
    }

    /// The first key and its value.
    pub(crate) fn first(&self) -> Option<(Value<'a>, Value<'a>)> {
        self.entries().next()
    }

    /// The object type, if an expression constructed the map as an object.
    #[must_use]
    pub fn object_type(&self) -> Option<&Arc<ObjectType>> {
        match self {
            Self::Borrowed(entries) => entries.object_type.as_ref(),
            Self::Shared(entries) => entries.object_type.as_ref(),
            Self::Json(_) | Self::Object(_) => None,
        }
    }

    pub(crate) fn type_of(&self) -> Type {
        match self.object_type() {
            Some(object) => Type::Object(Arc::clone(object)),
            None => Type::map(Type::Dyn, Type::Dyn),
        }
    }

    pub(crate) fn into_owned(self) -> Entries<'static> {
        let mut entries = Entries {
            object_type: self.object_type().cloned(),
            ..Entries::default()
        };
        for (key, value) in self.entries() {
            if let Some(key) = Key::new(&key.into_owned()) {
                entries.insert(key, value.into_owned());
            }
        }
        entries
    }

    pub(crate) fn share<'b>(&'b self) -> Map<'b>
    where
        'a: 'b,
    {
        match self {
            Self::Borrowed(entries) => Map::Borrowed(entries),
            Self::Shared(entries) => Map::Borrowed(entries),
            Self::Json(node) => Map::Json(*node),
            Self::Object(object) => Map::Object(*object),
        }
    }
}

// === impl MapEntries ===

impl<'a> Iterator for MapEntries<'a> {
    type Item = (Value<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let own = |(key, value): &(Key<'a>, Value<'a>)| (key.to_value(), value.clone());
        match self {
            Self::Borrowed(entries) => entries.next().map(own),
            Self::Shared(entries, next) => {
                *next += 1;
                entries.entries.get(*next - 1).map(own)
            }
            Self::Json(entries) => {
                let (key, value) = entries.next()?;
                Some((Value::String(key.into()), Value::json(value)))
            }
            Self::Object(object, fields) => {
                fields.find_map(|field| Some((Value::str(field), object.field(field)?)))
            }
        }
    }
}

// === impl Object ===

impl fmt::Debug for dyn Object + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields().into_iter().map(|field| (field, self.field(field)));
        f.debug_map().entries(fields).finish()
    }
}

// === impl Entries ===

impl<'a> Entries<'a> {
    /// The bytes of memory of an entry, including the index.
    pub(crate) const BYTES_PER_ENTRY: usize = 192;

    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An object of this type without fields.
    pub(crate) fn object(of: Arc<ObjectType>) -> Self {
        Self {
            object_type: Some(of),
            ..Self::default()
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the value of `key`, replacing an earlier one.
    pub fn insert(&mut self, key: Key<'a>, value: Value<'a>) {
        if let Some(position) = self.position(&key) {
            if let Some(entry) = self.entries.get_mut(position) {
                entry.1 = value;
            }
            return;
        }
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), self.entries.len());
        }
        self.entries.push((key, value));
        if self.index.is_none() && self.entries.len() > MAX_UNINDEXED_KEYS {
            let keys = self.entries.iter().enumerate();
            self.index = Some(keys.map(|(position, (key, _))| (key.clone(), position)).collect());
        }
    }

    /// Removes `key`, if it is there.
    pub(crate) fn remove(&mut self, key: &Key<'_>) {
        if let Some(position) = self.position(key) {
            self.entries.remove(position);
            self.index = None;
        }
    }

    /// Keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Key<'a>, Value<'a>)> {
        self.entries.iter()
    }

    fn field(&self, name: &str) -> Option<&Value<'a>> {
        let position = match &self.index {
            Some(index) => *index.get(&Key::String(Text::Borrowed(name)))?,
            None => self.entries.iter().position(|(key, _)| key.is(name))?,
        };
        self.entries.get(position).map(|(_, value)| value)
    }

    /// The value of `key`, or of an equal number of another type.
    pub(crate) fn search(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let position = match key {
            Value::Int(int) => self.number(Some(*int), u64::try_from(*int).ok(), None),
            Value::Uint(uint) => self.number(i64::try_from(*uint).ok(), Some(*uint), None),
            Value::Double(double) => self.number(exact_int(*double), exact_uint(*double), Some(*double)),
            other => self.position(&Key::new(other)?),
        }?;
        self.entries.get(position).map(|(_, value)| value)
    }

    fn number(&self, int: Option<i64>, uint: Option<u64>, double: Option<f64>) -> Option<usize> {
        let int = int.map(Key::Int).and_then(|key| self.position(&key));
        let uint = || uint.map(Key::Uint).and_then(|key| self.position(&key));
        let double = || {
            double
                .map(|double| Key::Double(double.to_bits()))
                .and_then(|key| self.position(&key))
        };
        int.or_else(uint).or_else(double)
    }

    fn position(&self, key: &Key<'_>) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.entries.iter().position(|(own, _)| own == key),
        }
    }
}

impl<'a> FromIterator<(Key<'a>, Value<'a>)> for Entries<'a> {
    fn from_iter<I: IntoIterator<Item = (Key<'a>, Value<'a>)>>(entries: I) -> Self {
        let mut own = Self::new();
        for (key, value) in entries {
            own.insert(key, value);
        }
        own
    }
}

// Lists.

/// A list.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// Borrowed items.
    Borrowed(&'a [Value<'a>]),
    /// Items with a reference count.
    Shared(Arc<[Value<'a>]>),
    /// A list in JSON text, which is read when it is used.
    Json(json::Node<'a>),
}

/// An iterator over the items of a list, in order.
pub(crate) enum Items<'l, 'a> {
    Values(std::slice::Iter<'l, Value<'a>>),
    Json(json::NodeItems<'a>),
}

// === impl List ===

impl<'a> List<'a> {
    /// The bytes of memory of an item, including those needed temporarily while the list is made.
    pub(crate) const BYTES_PER_ITEM: usize = 2 * size_of::<Value<'static>>();

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(items) => items.len(),
            Self::Shared(items) => items.len(),
            Self::Json(node) => node.len(),
        }
    }

    /// Whether it has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at `index`, from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Borrowed(items) => items.get(index).map(Value::share),
            Self::Shared(items) => items.get(index).cloned(),
            Self::Json(node) => node.item(index).map(Value::json),
        }
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        self.items()
    }

    pub(crate) fn items(&self) -> Items<'_, 'a> {
        match self {
            Self::Borrowed(items) => Items::Values(items.iter()),
            Self::Shared(items) => Items::Values(items.iter()),
            Self::Json(node) => Items::Json(node.items()),
        }
    }

    pub(crate) fn share<'b>(&'b self) -> List<'b>
    where
        'a: 'b,
    {
        match self {
            Self::Borrowed(items) => List::Borrowed(items),
            Self::Shared(items) => List::Borrowed(items),
            Self::Json(node) => List::Json(*node),
        }
    }
}

// === impl Items ===

impl<'a> Iterator for Items<'_, 'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        match self {
            Self::Values(items) => items.next().cloned(),
            Self::Json(items) => items.next().map(Value::json),
        }
    }
}
