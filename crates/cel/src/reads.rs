//! Finds what an expression may read. The result depends only on its plan, not on the values.
//!
//! The result contains everything that is read, and possibly more.

use std::collections::HashMap;

use super::program::{Attribute, AttributeBase, Fold, PlanNode, Program, Qualifier, QualifierKey};

/// A part of a variable that an expression may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeRead {
    /// The variable of the environment.
    pub slot: usize,
    /// The path from the variable.
    pub path: Vec<ReadStep>,
    /// How much of the value at the path is read.
    pub extent: ReadExtent,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadStep {
    /// A field, or a string key.
    Key(Box<str>),
    /// Any field, key or item.
    Any,
}

/// How much of a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadExtent {
    /// The whole value.
    Value,
    /// Only which items or entries the value has.
    Entries,
    /// Only whether the value is present.
    Presence,
}

/// The variable and the path from which a local variable gets its values.
type LocalOrigin = Option<(usize, Vec<ReadStep>)>;

/// Collects the reads.
#[derive(Default)]
struct ReadCollector {
    reads: Vec<AttributeRead>,
    /// The origin of each local variable; `None` if what it reads is already among the reads.
    locals: HashMap<usize, LocalOrigin>,
}

// === impl Program ===

impl Program {
    /// Everything that the expression may read, without variables that are expressions themselves
    /// and what those read.
    #[must_use]
    pub fn reads(&self) -> Vec<AttributeRead> {
        let mut finder = ReadCollector::default();
        finder.node(&self.root);
        finder.reads
    }
}

// === impl AttributeRead ===

impl AttributeRead {
    /// Whether the value at `place`, a path from the variable, may affect what is read.
    #[must_use]
    pub fn may_depend_on(&self, place: &[String]) -> bool {
        let is_same = |(step, name): (&ReadStep, &String)| match step {
            ReadStep::Any => true,
            ReadStep::Key(key) => **key == **name,
        };
        let mut both = self.path.iter().zip(place);
        both.all(is_same)
            && match self.extent {
                ReadExtent::Value => true,
                ReadExtent::Entries => place.len() <= self.path.len(),
                ReadExtent::Presence => place.len() < self.path.len(),
            }
    }
}

// === impl ReadCollector ===

impl ReadCollector {
    fn nodes<'n>(&mut self, nodes: impl IntoIterator<Item = &'n PlanNode>) {
        nodes.into_iter().for_each(|node| self.node(node));
    }

    fn node(&mut self, node: &PlanNode) {
        match node {
            PlanNode::Constant(_) => {}
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            PlanNode::And(parts) | PlanNode::Or(parts) => self.nodes(parts),
            PlanNode::Equal(pair) | PlanNode::NotEqual(pair) | PlanNode::OptionalOr(pair, _) => {
                self.nodes([&pair.0, &pair.1]);
            }
            PlanNode::InSet(set) => self.node(&set.item),
            PlanNode::Call(call) => self.nodes(&call.arguments),
            PlanNode::List(list) => self.nodes(&list.items),
            PlanNode::Map(entries) => self.nodes(entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            PlanNode::Object(object) => self.nodes(object.fields.iter().map(|field| &field.value)),
            PlanNode::Fold(fold) => self.fold(fold),
        }
    }

    fn attribute(&mut self, attribute: &Attribute) {
        self.within(attribute);
        if let Some((slot, path)) = self.origin(attribute) {
            let extent = if attribute.is_presence_test {
                ReadExtent::Presence
            } else {
                ReadExtent::Value
            };
            self.reads.push(AttributeRead { slot, path, extent });
        }
    }

    /// Adds what is read in order to determine the base and the selections.
    fn within(&mut self, attribute: &Attribute) {
        match &attribute.base {
            AttributeBase::Variable(_) | AttributeBase::Lazy(_) | AttributeBase::Local(_) => {}
            AttributeBase::Node(node) => self.node(node),
            AttributeBase::Conditional(parts) => self.nodes(parts.iter()),
        }
        for qualifier in &attribute.qualifiers {
            if let QualifierKey::Node(node) = &qualifier.key {
                self.node(node);
            }
        }
    }

    /// The variable and path from which the value comes, unless it is already among the reads.
    fn origin(&self, attribute: &Attribute) -> LocalOrigin {
        let (slot, mut path) = match &attribute.base {
            AttributeBase::Variable(slot) => (*slot, Vec::new()),
            AttributeBase::Local(local) => self.locals.get(local).cloned().flatten()?,
            AttributeBase::Lazy(_) | AttributeBase::Node(_) | AttributeBase::Conditional(_) => return None,
        };
        path.extend(attribute.qualifiers.iter().filter_map(step));
        Some((slot, path))
    }

    fn fold(&mut self, fold: &Fold) {
        let origin = match &fold.range {
            PlanNode::Attribute(attribute) if !attribute.is_presence_test => {
                self.within(attribute);
                self.origin(attribute)
            }
            range => {
                self.node(range);
                None
            }
        };
        if let Some((slot, path)) = &origin {
            self.reads.push(AttributeRead {
                slot: *slot,
                path: path.clone(),
                extent: ReadExtent::Entries,
            });
        }
        let item = origin.map(|(slot, mut path)| {
            path.push(ReadStep::Any);
            (slot, path)
        });
        match fold.second {
            // The keys or indexes are already read with the range.
            Some(second) => {
                self.locals.insert(fold.first, None);
                self.locals.insert(second, item);
            }
            None => {
                self.locals.insert(fold.first, item);
            }
        }
        self.nodes(fold.filter.as_ref());
        self.node(&fold.body);
    }
}

fn step(qualifier: &Qualifier) -> Option<ReadStep> {
    match &qualifier.key {
        QualifierKey::Field(name) => Some(ReadStep::Key(name.clone())),
        QualifierKey::Constant(value) => Some(match value.as_str() {
            Some(key) => ReadStep::Key(key.into()),
            None => ReadStep::Any,
        }),
        QualifierKey::Node(_) => Some(ReadStep::Any),
        QualifierKey::ToOptional => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Environment, Type, Version};

    /// Whether the expression may depend on each of the places.
    fn touched(expression: &str, places: &[&str]) -> Vec<bool> {
        let environment = Environment::new(Version::NEWEST)
            .variable("object", Type::Dyn)
            .variable("other", Type::Dyn);
        let program = environment.compile(expression, &[Type::Bool, Type::Dyn]).unwrap();
        let slot = environment.slot("object").unwrap();
        let reads = program.reads();
        let is_touched = |place: &&str| {
            let place: Vec<String> = place.split('/').skip(1).map(str::to_owned).collect();
            reads
                .iter()
                .any(|read| read.slot == slot && read.may_depend_on(&place))
        };
        places.iter().map(is_touched).collect()
    }

    #[test]
    fn what_an_expression_may_look_at_is_found() {
        for (expression, place, expected) in [
            ("object.a.b == 1", "/a/b", true),
            ("object.a.b == 1", "/a/b/c", true),
            ("object.a.b == 1", "/a", true),
            ("object.a.b == 1", "/a/c", false),
            ("object == other", "/a/b", true),
            ("other.a == 1", "/a", false),
            ("object['a'].b == 1", "/a/b", true),
            ("object['a'].b == 1", "/b", false),
            ("object[other.x].b == 1", "/a/b", true),
            ("object[other.x].b == 1", "/a/c", false),
            ("object.l[0] == 1", "/l/3", true),
            ("other[object.k] == 1", "/k", true),
            // A redacted value leaves a mark, so it still counts as present.
            ("has(object.a.b)", "/a/b", false),
            ("has(object.a.b)", "/a/b/c", false),
            ("has(object.a.b)", "/a", true),
            ("object.?a.b.hasValue()", "/a/b", true),
            ("object.?a.orValue(1) == 1", "/a", true),
            // Macros read items one by one.
            ("object.l.all(i, i.x == 1)", "/l/0/y", false),
            ("object.l.all(i, i.x == 1)", "/l/0/x", true),
            ("object.l.all(i, i.x == 1)", "/l", true),
            ("object.l.all(i, has(i.x))", "/l/0/x", false),
            ("object.l.exists(i, i == 1)", "/l/0/y", true),
            ("object.l.filter(i, i.x == 1).size() > 0", "/l/0/y", true),
            ("object.l.all(i, i.m.all(j, j.x == 1))", "/l/0/m/k/y", false),
            ("object.l.all(i, i.m.all(j, j.x == 1))", "/l/0/m/k/x", true),
            ("object.l.all(i, other.l.all(j, i.x == j.x))", "/l/0/x", true),
            ("object.m.all(k, v, k == 'a')", "/m/a/x", false),
            ("object.m.all(k, v, v.x == 1)", "/m/a/x", true),
            ("object.m.all(k, v, v.x == 1)", "/m/a/y", false),
            ("(object.l + other.l).all(i, i.x == 1)", "/l/0/y", true),
            ("size(object.l) == 1", "/l/0", true),
            // Reads are found in every kind of expression.
            ("other.a == 1 ? object.a == 1 : true", "/a", true),
            ("(other.a == 1 ? object : other).b == 1", "/a", true),
            ("[object.a] == [1]", "/a", true),
            ("{'k': object.a} == {'k': 1}", "/a", true),
            ("string(object.a) in ['x']", "/a", true),
            ("true || object.a", "/a", true),
        ] {
            assert_eq!(touched(expression, &[place]), [expected], "{expression} {place}");
        }
    }
}
