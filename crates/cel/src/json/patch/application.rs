//! The operations of a patch, applied one after the other.

use std::borrow::Cow;

use super::{PatchBudget, PatchError, PatchOperation};
use crate::json::{Kind, MAX_OPENED, Node, Tree};

pub(crate) struct Application<'d, 'b> {
    root: Tree<'d>,
    budget: &'b mut PatchBudget,
}

/// The map or list that a path ends in, and its last step.
struct PathEnd<'r, 'd> {
    container: &'r mut Tree<'d>,
    key: Cow<'d, str>,
    op: &'r str,
    path: &'r str,
}

impl<'d, 'b> Application<'d, 'b> {
    pub(crate) const fn new(document: Node<'d>, budget: &'b mut PatchBudget) -> Self {
        Self {
            root: Tree::Node(document),
            budget,
        }
    }

    /// The document after the operations so far.
    pub(crate) fn into_root(self) -> Tree<'d> {
        self.root
    }

    pub(crate) fn step(&mut self, operation: &PatchOperation<'d>) -> Result<(), PatchError> {
        let path = &operation.path;
        match operation.op.as_ref() {
            "add" => self.add("add", path, operation.value()),
            "remove" => self.take("remove", path).map(|_| ()),
            "replace" if path.is_empty() => self.replace_document(operation),
            "replace" => self.change("replace", path, |target| target.replace(operation.value())),
            "move" => {
                let value = self.take("move", from(operation)?)?;
                self.add("move", path, value)
            }
            "copy" => {
                let target = self.target("copy", from(operation)?)?;
                let value = target.get()?.map_or(Tree::Null, Cow::into_owned);
                self.budget.copy(value.extent())?;
                self.add("copy", path, value)
            }
            "test" => self.test(operation),
            op => Err(PatchError::UnknownOperation { op: op.to_owned() }),
        }
    }

    #[expect(
        clippy::ptr_arg,
        reason = "keys that are borrowed from the patch stay borrowed"
    )]
    fn add(&mut self, op: &str, path: &Cow<'d, str>, value: Tree<'d>) -> Result<(), PatchError> {
        let extent = value.extent();
        if steps(path) + extent.levels > MAX_OPENED {
            return Err(PatchError::TooLarge { what: "nest so deep" });
        }
        self.budget.shift(extent.notes)?;
        self.change(op, path, |target| target.add(value))
    }

    fn take(&mut self, op: &str, path: &Cow<'d, str>) -> Result<Tree<'d>, PatchError> {
        self.change(op, path, |target| target.remove())
    }

    /// Changes the value at `path`, and charges that to the budget.
    #[expect(
        clippy::ptr_arg,
        reason = "keys that are borrowed from the patch stay borrowed"
    )]
    fn change<T>(
        &mut self,
        op: &str,
        path: &Cow<'d, str>,
        change: impl FnOnce(&mut PathEnd<'_, 'd>) -> Result<T, PatchError>,
    ) -> Result<T, PatchError> {
        let mut target = self.target(op, path)?;
        let before = target.pieces();
        let result = change(&mut target)?;
        let after = target.pieces();
        self.budget.shift(before.max(after))?;
        self.budget.note(after.saturating_sub(before).max(1))?;
        Ok(result)
    }

    fn replace_document(&mut self, operation: &PatchOperation<'d>) -> Result<(), PatchError> {
        let value = operation
            .value
            .filter(|value| matches!(value.kind(), Kind::Array | Kind::Object));
        self.root = Tree::Node(value.ok_or(PatchError::ScalarDocument)?);
        Ok(())
    }

    fn test(&mut self, operation: &PatchOperation<'d>) -> Result<(), PatchError> {
        let path = operation.path.as_ref();
        // To `test`, a missing key of a map, `null` and no value at all are the same.
        let wanted = operation.value.filter(|value| !value.is_null());
        let is_wanted = |found: Option<&Tree<'d>>| match (found.filter(|found| !found.is_null()), wanted) {
            (None, None) => true,
            (Some(found), Some(wanted)) => same(found, wanted),
            _ => false,
        };
        let equal = if path.is_empty() {
            is_wanted(Some(&self.root))
        } else {
            is_wanted(self.target("test", &operation.path)?.get()?.as_deref())
        };
        if equal {
            Ok(())
        } else {
            Err(PatchError::TestFailed {
                path: path.to_owned(),
            })
        }
    }

    fn target<'r>(&'r mut self, op: &'r str, path: &'r Cow<'d, str>) -> Result<PathEnd<'r, 'd>, PatchError> {
        match path {
            Cow::Borrowed(path) => self.walk(op, path, Cow::Borrowed),
            Cow::Owned(path) => self.walk(op, path, |step| Cow::Owned(step.to_owned())),
        }
    }

    /// Opens every value on the way to the end of `path`. `key` turns a step without an escape into a key.
    fn walk<'r, 'p: 'r>(
        &'r mut self,
        op: &'r str,
        path: &'p str,
        key: impl Fn(&'p str) -> Cow<'d, str>,
    ) -> Result<PathEnd<'r, 'd>, PatchError> {
        let missing = || PatchError::MissingPath {
            op: op.to_owned(),
            path: path.to_owned(),
        };
        if steps(path) > MAX_OPENED {
            return Err(PatchError::TooLarge { what: "nest so deep" });
        }
        let (_, within) = path.split_once('/').ok_or_else(missing)?;
        let (parents, last) = match within.rsplit_once('/') {
            Some((parents, last)) => (Some(parents), last),
            None => (None, within),
        };
        let mut container = opened(&mut self.root, self.budget)?;
        for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
            let next = match container {
                Tree::Object(map) => map.get_mut(&decode(step, &key)),
                Tree::Array(items) => {
                    self.budget.shift(items.pieces())?;
                    position(step, items.len()).and_then(|position| items.get_mut(position))
                }
                Tree::Node(_) | Tree::Null => None,
            };
            container = opened(next.ok_or_else(missing)?, self.budget)?;
        }
        match container {
            Tree::Object(_) | Tree::Array(_) => Ok(PathEnd {
                container,
                key: decode(last, &key),
                op,
                path,
            }),
            Tree::Node(_) | Tree::Null => Err(missing()),
        }
    }
}

/// Opens `tree`, and charges that to the budget.
fn opened<'r, 'd>(tree: &'r mut Tree<'d>, budget: &mut PatchBudget) -> Result<&'r mut Tree<'d>, PatchError> {
    if tree.is_closed() {
        budget.note(1)?;
    }
    Ok(tree.open())
}

impl<'d> PathEnd<'_, 'd> {
    /// How many pieces of a list a change here may shift.
    const fn pieces(&self) -> usize {
        match &*self.container {
            Tree::Array(items) => items.pieces(),
            _ => 0,
        }
    }

    /// `None` where a map has no such key; a list without the item is an error.
    fn get(&self) -> Result<Option<Cow<'_, Tree<'d>>>, PatchError> {
        let place = self.place(0)?;
        Ok(match &*self.container {
            Tree::Array(items) => items.get(place),
            Tree::Object(map) => map.get(&self.key),
            Tree::Node(_) | Tree::Null => None,
        })
    }

    fn add(&mut self, value: Tree<'d>) -> Result<(), PatchError> {
        let place = self.place(1)?;
        match self.container {
            Tree::Array(items) => items.insert(place, value),
            Tree::Object(map) => map.insert(self.key.clone(), value),
            Tree::Node(_) | Tree::Null => {}
        }
        Ok(())
    }

    fn replace(&mut self, value: Tree<'d>) -> Result<(), PatchError> {
        let place = self.place(0)?;
        match self.container {
            Tree::Array(items) => {
                if let Some(item) = items.get_mut(place) {
                    *item = value;
                }
            }
            Tree::Object(map) => map.insert(self.key.clone(), value),
            Tree::Node(_) | Tree::Null => {}
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<Tree<'d>, PatchError> {
        let place = self.place(0)?;
        match self.container {
            Tree::Array(items) => items.remove(place).ok_or_else(|| self.no_item()),
            Tree::Object(map) => map.remove(&self.key).ok_or_else(|| PatchError::MissingKey {
                op: self.op.to_owned(),
                path: self.path.to_owned(),
                key: self.key.to_string(),
            }),
            Tree::Node(_) | Tree::Null => Ok(Tree::Null),
        }
    }

    /// The index that the last step names in a list, at most `beyond` places after the last item.
    fn place(&self, beyond: usize) -> Result<usize, PatchError> {
        match &*self.container {
            Tree::Array(items) if beyond > 0 && self.key == "-" => Ok(items.len()),
            Tree::Array(items) => position(&self.key, items.len() + beyond).ok_or_else(|| self.no_item()),
            _ => Ok(0),
        }
    }

    fn no_item(&self) -> PatchError {
        PatchError::Index {
            op: self.op.to_owned(),
            path: self.path.to_owned(),
            key: self.key.to_string(),
        }
    }
}

fn from<'o, 'd>(operation: &'o PatchOperation<'d>) -> Result<&'o Cow<'d, str>, PatchError> {
    operation.from.as_ref().ok_or_else(|| PatchError::MissingFrom {
        op: operation.op.to_string(),
    })
}

/// The index below `limit` that `step` names; a negative one counts back from `limit`.
fn position(step: &str, limit: usize) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    let place = if index < 0 {
        limit.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(index).ok()?
    };
    (place < limit).then_some(place)
}

fn steps(path: &str) -> usize {
    memchr::memchr_iter(b'/', path.as_bytes()).count()
}

/// Unescapes a step of a path. A step without an escape is made a `key` as it is.
fn decode<'p, 'd>(step: &'p str, key: impl Fn(&'p str) -> Cow<'d, str>) -> Cow<'d, str> {
    if step.contains('~') {
        step.replace("~1", "/").replace("~0", "~").into()
    } else {
        key(step)
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
                    .items()
                    .zip(node.items())
                    .all(|(item, other)| same(&item, other))
        }
        Tree::Object(map) => {
            node.kind() == Kind::Object
                && map.len() == node.len()
                && map
                    .entries()
                    .all(|(key, value)| node.get(&key).is_some_and(|other| same(&value, other)))
        }
    }
}
