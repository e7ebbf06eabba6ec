//! Lists.

use std::sync::Arc;

use super::Value;
use crate::json;

/// A list.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// The items of somebody else.
    Borrowed(&'a [Value<'a>]),
    /// Items of its own.
    Shared(Arc<[Value<'a>]>),
    /// A list in JSON text, read when it is looked at.
    Json(json::Node<'a>),
}

/// The items of a list, in order.
pub(crate) enum Items<'l, 'a> {
    Values(std::slice::Iter<'l, Value<'a>>),
    Json(json::Items<'a>),
}

// === impl List ===

impl<'a> List<'a> {
    /// How many bytes an item takes, while a list is made of it too.
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
