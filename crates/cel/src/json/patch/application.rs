//! The operations of a patch, applied one after the other.

use std::borrow::Cow;

use super::operation::{Error, PatchOperation};
use crate::json::{Kind, MAX_OPENED, Node, Tree};

/// The most bytes that the `copy` operations of one patch may add, as the API
/// server's `JSONPatchMaxCopyBytes`.
pub const MAX_COPIED: usize = 3 << 20;

/// The most list items that one patch may shift, and values that it may move.
const MAX_SHIFTED: usize = 100_000_000;

pub(super) struct Application<'d> {
    root: Tree<'d>,
    copied: usize,
    shifted: usize,
}

/// The map or list that a path ends in, and its last step.
struct PathEnd<'r, 'd> {
    container: &'r mut Tree<'d>,
    key: Cow<'r, str>,
    op: &'r str,
    path: &'r str,
}

impl<'d> Application<'d> {
    pub(super) fn new(document: Node<'d>) -> Self {
        Self {
            root: Tree::Node(document),
            copied: 0,
            shifted: 0,
        }
    }

    /// What the document has become.
    pub(super) fn into_root(self) -> Tree<'d> {
        self.root
    }

    pub(super) fn step(&mut self, operation: &PatchOperation<'d>) -> Result<(), Error> {
        let path = operation.path.as_ref();
        match operation.op.as_ref() {
            "add" => self.add("add", path, operation.value()),
            "remove" => self.take("remove", path).map(|_| ()),
            "replace" if path.is_empty() => self.replace_document(operation),
            "replace" => self.target("replace", path)?.replace(operation.value()),
            "move" => {
                let value = self.take("move", from(operation)?)?;
                self.add("move", path, value)
            }
            "copy" => {
                let value = self
                    .target("copy", from(operation)?)?
                    .get()?
                    .cloned()
                    .unwrap_or(Tree::Null);
                self.copied += value.to_text().len();
                if self.copied > MAX_COPIED {
                    return Err(Error::TooLarge {
                        what: "copy more than 3 MiB",
                    });
                }
                self.add("copy", path, value)
            }
            "test" => self.test(operation),
            op => Err(Error::UnknownOperation { op: op.to_owned() }),
        }
    }

    fn add(&mut self, op: &str, path: &str, value: Tree<'d>) -> Result<(), Error> {
        let (depth, values) = value.extent();
        if steps(path) + depth > MAX_OPENED {
            return Err(Error::TooLarge { what: "nest so deep" });
        }
        self.shift(values)?;
        let mut target = self.target(op, path)?;
        let shifted = target.length();
        target.add(value)?;
        self.shift(shifted)
    }

    fn take(&mut self, op: &str, path: &str) -> Result<Tree<'d>, Error> {
        let mut target = self.target(op, path)?;
        let shifted = target.length();
        let value = target.remove()?;
        self.shift(shifted)?;
        Ok(value)
    }

    fn shift(&mut self, items: usize) -> Result<(), Error> {
        self.shifted += items;
        if self.shifted > MAX_SHIFTED {
            Err(Error::TooLarge {
                what: "shift so many items",
            })
        } else {
            Ok(())
        }
    }

    fn replace_document(&mut self, operation: &PatchOperation<'d>) -> Result<(), Error> {
        let value = operation
            .value
            .filter(|value| matches!(value.kind(), Kind::Array | Kind::Object));
        self.root = Tree::Node(value.ok_or(Error::ScalarDocument)?);
        Ok(())
    }

    fn test(&mut self, operation: &PatchOperation<'d>) -> Result<(), Error> {
        let path = operation.path.as_ref();
        let found = if path.is_empty() {
            Some(&self.root)
        } else {
            self.target("test", path)?.into_value()?
        };
        // A missing key of a map, `null` and no value at all are the same to it.
        let wanted = operation.value.filter(|value| !value.is_null());
        let equal = match (found.filter(|found| !found.is_null()), wanted) {
            (None, None) => true,
            (Some(found), Some(wanted)) => same(found, wanted),
            _ => false,
        };
        if equal {
            Ok(())
        } else {
            Err(Error::TestFailed {
                path: path.to_owned(),
            })
        }
    }

    fn target<'r>(&'r mut self, op: &'r str, path: &'r str) -> Result<PathEnd<'r, 'd>, Error> {
        let missing = || Error::MissingPath {
            op: op.to_owned(),
            path: path.to_owned(),
        };
        if steps(path) > MAX_OPENED {
            return Err(Error::TooLarge { what: "nest so deep" });
        }
        let (_, steps) = path.split_once('/').ok_or_else(missing)?;
        let mut steps: Vec<&str> = steps.split('/').collect();
        let key = decode(steps.pop().unwrap_or_default());
        let mut container = self.root.open();
        for step in steps {
            let next = match container {
                Tree::Object(map) => map.get_mut(&decode(step)),
                Tree::Array(items) => {
                    position(step, items.len(), items.len()).and_then(|position| items.get_mut(position))
                }
                Tree::Node(_) | Tree::Null => None,
            };
            container = next.ok_or_else(missing)?.open();
        }
        match container {
            Tree::Object(_) | Tree::Array(_) => Ok(PathEnd {
                container,
                key,
                op,
                path,
            }),
            Tree::Node(_) | Tree::Null => Err(missing()),
        }
    }
}

impl<'r, 'd> PathEnd<'r, 'd> {
    /// How many items a change here may shift.
    const fn length(&self) -> usize {
        match &*self.container {
            Tree::Array(items) => items.len(),
            _ => 0,
        }
    }

    /// `None` where a map has no such key; a list without the item is an error.
    fn get(&self) -> Result<Option<&Tree<'d>>, Error> {
        match &*self.container {
            Tree::Array(items) => {
                let position = position(&self.key, items.len(), items.len()).ok_or_else(|| self.no_item())?;
                Ok(items.get(position))
            }
            Tree::Object(map) => Ok(map.get(&self.key)),
            Tree::Node(_) | Tree::Null => Ok(None),
        }
    }

    fn into_value(self) -> Result<Option<&'r Tree<'d>>, Error> {
        let no_item = self.no_item();
        match self.container {
            Tree::Array(items) => {
                let position = position(&self.key, items.len(), items.len()).ok_or(no_item)?;
                Ok(items.get(position))
            }
            Tree::Object(map) => Ok(map.get(&self.key)),
            Tree::Node(_) | Tree::Null => Ok(None),
        }
    }

    fn add(&mut self, value: Tree<'d>) -> Result<(), Error> {
        let no_item = self.no_item();
        match self.container {
            Tree::Array(items) if self.key == "-" => items.push(value),
            Tree::Array(items) => {
                let place = position(&self.key, items.len() + 1, items.len() + 1).ok_or(no_item)?;
                items.insert(place, value);
            }
            Tree::Object(map) => map.insert(Cow::Owned(self.key.to_string()), value),
            Tree::Node(_) | Tree::Null => {}
        }
        Ok(())
    }

    fn replace(&mut self, value: Tree<'d>) -> Result<(), Error> {
        let no_item = self.no_item();
        match self.container {
            Tree::Array(items) => {
                let place = position(&self.key, items.len(), items.len());
                *place.and_then(|place| items.get_mut(place)).ok_or(no_item)? = value;
            }
            Tree::Object(map) => map.insert(Cow::Owned(self.key.to_string()), value),
            Tree::Node(_) | Tree::Null => {}
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<Tree<'d>, Error> {
        let no_item = self.no_item();
        match self.container {
            Tree::Array(items) => {
                let place = position(&self.key, items.len(), items.len()).ok_or(no_item)?;
                Ok(items.remove(place))
            }
            Tree::Object(map) => map.remove(&self.key).ok_or_else(|| Error::MissingKey {
                op: self.op.to_owned(),
                path: self.path.to_owned(),
                key: self.key.to_string(),
            }),
            Tree::Node(_) | Tree::Null => Ok(Tree::Null),
        }
    }

    fn no_item(&self) -> Error {
        Error::Index {
            op: self.op.to_owned(),
            path: self.path.to_owned(),
            key: self.key.to_string(),
        }
    }
}

fn from<'o>(operation: &'o PatchOperation<'_>) -> Result<&'o str, Error> {
    operation.from.as_deref().ok_or_else(|| Error::MissingFrom {
        op: operation.op.to_string(),
    })
}

/// The place that `step` names among the first `limit`; a negative one counts back from `end`.
fn position(step: &str, limit: usize, end: usize) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    let place = if index < 0 {
        end.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(index).ok()?
    };
    (place < limit).then_some(place)
}

fn steps(path: &str) -> usize {
    memchr::memchr_iter(b'/', path.as_bytes()).count()
}

fn decode(step: &str) -> Cow<'_, str> {
    if step.contains('~') {
        step.replace("~1", "/").replace("~0", "~").into()
    } else {
        step.into()
    }
}

fn same(tree: &Tree<'_>, node: Node<'_>) -> bool {
    match tree {
        Tree::Node(own) => own.same(node),
        Tree::Null => node.is_null(),
        Tree::Array(items) => {
            node.kind() == Kind::Array
                && items.len() == node.len()
                && items
                    .iter()
                    .zip(node.items())
                    .all(|(item, other)| same(item, other))
        }
        Tree::Object(map) => {
            node.kind() == Kind::Object
                && map.len() == node.len()
                && map
                    .entries()
                    .all(|(key, value)| node.get(key).is_some_and(|other| same(value, other)))
        }
    }
}
