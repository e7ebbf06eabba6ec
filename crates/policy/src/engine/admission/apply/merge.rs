//! The merge of two values of one type (structured-merge-diff `typed/merge.go`
//! with the rule "keep the right-hand side").

use std::collections::{HashMap, HashSet, VecDeque};

use super::check::{is_type_meta, misfit};
use super::schema::{Lists, Maps, SchemaType};
use super::{Error, FieldMismatches, Schemas, item};
use portcullis_cel::json::{Kind, Node, Tree};

/// `object` with what `patch` says; the patch has been checked.
pub(super) fn merge<'d>(
    schemas: &Schemas<'_>,
    of: &SchemaType<'_>,
    object: Node<'d>,
    patch: Node<'d>,
) -> Result<Tree<'d>, Error> {
    let mut walk = Merge {
        schemas,
        path: String::new(),
    };
    walk.value(of, Some(object), patch)
}

struct Merge<'w, 's> {
    schemas: &'w Schemas<'s>,
    path: String,
}

/// The items of one of two lists, with their names.
type Side<'d> = Vec<(String, Node<'d>)>;

// === impl Merge ===

impl<'w, 's> Merge<'w, 's> {
    fn value<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        old: Option<Node<'d>>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, Error> {
        let Some(old) = old.filter(|old| !old.is_null()) else {
            return Ok(Tree::Node(new));
        };
        if let Some(message) = misfit(self.schemas, of, old) {
            return Err(self.error(message));
        }
        let maps = self.schemas.maps(of).filter(|maps| !maps.atomic);
        let lists = of.lists().filter(|(_, lists)| **lists != Lists::Atomic);
        match (old.kind(), new.kind(), maps, lists) {
            // Empty and absent stay apart only where there is nothing to merge.
            (_, Kind::Object | Kind::Array, ..) if old.is_empty() => Ok(Tree::Node(new)),
            (Kind::Object, Kind::Object, Some(maps), _) => self.map(maps, old, new),
            (Kind::Array, Kind::Array, _, Some((item, lists))) => self.list(item, lists, old, new),
            // `null` is an empty map or list, and so adds nothing to one.
            (Kind::Object, Kind::Null, Some(_), _) | (Kind::Array, Kind::Null, None, Some(_))
                if !old.is_empty() =>
            {
                Ok(Tree::Node(old))
            }
            _ => Ok(Tree::Node(new)),
        }
    }

    fn map<'d>(&mut self, maps: Maps<'w, 's>, old: Node<'d>, new: Node<'d>) -> Result<Tree<'d>, Error> {
        let is_root = self.path.is_empty();
        let mut tree = Tree::Node(old);
        for (name, value) in new.entries() {
            if is_root && is_type_meta(&name) {
                continue;
            }
            let Some(of) = maps.key(&name) else { continue };
            let back = self.path.len();
            self.path.push('.');
            self.path.push_str(&name);
            let merged = self.value(of, old.get(&name), value)?;
            self.path.truncate(back);
            if let Tree::Object(map) = tree.open() {
                map.insert(name, merged);
            }
        }
        Ok(tree)
    }

    /// The new items in their order, and among them the old ones that they do
    /// not name, each where that order leaves its place.
    fn list<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        lists: &Lists<'_>,
        old: Node<'d>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, Error> {
        let old = self.side(lists, old)?;
        let new = self.side(lists, new)?;
        let olds = unique(&old);
        let news: HashSet<&str> = new.iter().map(|(name, _)| name.as_str()).collect();
        // The items of both sides that are yet to come, in the new order.
        let mut shared: VecDeque<&String> = new
            .iter()
            .map(|(name, _)| name)
            .filter(|name| olds.contains_key(name.as_str()))
            .collect();
        let mut items = Vec::with_capacity(old.len().max(new.len()));
        let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let (passes, comes) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (None, Some(_)) => (false, true),
                (Some((name, node)), _) if !news.contains(name.as_str()) => {
                    items.push(Tree::Node(*node));
                    (true, false)
                }
                (Some(_), None) => (true, false),
                (Some((name, _)), Some((next, _))) if name == next => (true, true),
                (Some((name, _)), Some(_)) => match shared.front() {
                    // The old item was merged before: only its place is left.
                    None => (true, true),
                    Some(first) => (*first != name, *first == name),
                },
            };
            if passes {
                left.next();
            }
            if let Some((name, node)) = right.next_if(|_| comes) {
                items.push(self.item(of, name, olds.get(name.as_str()).copied().flatten(), *node)?);
                shared.pop_front_if(|first| *first == name);
            }
        }
        Ok(Tree::Array(items))
    }

    fn item<'d>(
        &mut self,
        of: &'w SchemaType<'s>,
        name: &str,
        old: Option<Node<'d>>,
        new: Node<'d>,
    ) -> Result<Tree<'d>, Error> {
        let back = self.path.len();
        self.path.push_str(name);
        let merged = self.value(of, old, new)?;
        self.path.truncate(back);
        Ok(merged)
    }

    fn side<'d>(&self, lists: &Lists<'_>, list: Node<'d>) -> Result<Side<'d>, Error> {
        let named = |(place, node): (usize, Node<'d>)| match item::name(lists, node) {
            Ok(name) => Ok((name.unwrap_or_default(), node)),
            Err(unnamed) => Err(self.error(format!("element {place}: {unnamed}"))),
        };
        list.items().enumerate().map(named).collect()
    }

    /// The patch was checked, so what does not fit is the object's.
    fn error(&self, message: String) -> Error {
        let mut found = FieldMismatches::default();
        found.push(&self.path, message);
        Error::Object(found)
    }
}

/// The items by their names. Of several with one name none is merged with the
/// new item, which replaces them all.
fn unique<'i, 'd>(side: &'i Side<'d>) -> HashMap<&'i str, Option<Node<'d>>> {
    let mut items = HashMap::with_capacity(side.len());
    for (name, node) in side {
        items
            .entry(name.as_str())
            .and_modify(|first| *first = None)
            .or_insert(Some(*node));
    }
    items
}
