//! A compiled expression: names are resolved to slots, overloads to functions, constants
//! to values.
//!
//! It has the structure of cel-go's plan, because the cost that Kubernetes counts depends
//! on that plan: a chain of selections is one attribute, a list of constants is a
//! constant.

use std::sync::Arc;

use super::environment::Version;
use super::function::{Cost, Overload};
use super::library::PreparedArgument;
use super::types::{ObjectType, Type};
use super::value::{Entries, Value};

/// A compiled expression, ready to be evaluated by many at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Node,
    pub(crate) output: Type,
    /// How many local variables it needs at most.
    pub(crate) locals: usize,
    /// How deep it is, together with the variables that it names.
    pub(crate) depth: u32,
    /// The version that it was compiled for.
    pub(crate) version: Version,
    /// The variable whose expression it is.
    pub(crate) name: Option<Box<str>>,
}

/// One step.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Attribute(Attribute),
    /// `&&` of all.
    And(Box<[Node]>),
    /// `||` of all.
    Or(Box<[Node]>),
    Equal(Box<(Node, Node)>),
    NotEqual(Box<(Node, Node)>),
    /// `in` a constant list, which costs nothing by itself.
    InSet(Box<InSet>),
    Call(Box<Call>),
    List(Box<ListNode>),
    Map(Box<[MapEntry]>),
    Object(Box<ObjectNode>),
    Fold(Box<Fold>),
    /// `or`, and `orValue` if the flag is set.
    OptionalOr(Box<(Node, Node)>, bool),
}

/// A variable, or the result of another step, and what is selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: AttributeBase,
    pub(crate) qualifiers: Box<[Qualifier]>,
    /// Whether only the presence of the last qualifier is asked: `has()`.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum AttributeBase {
    /// A variable of the environment.
    Variable(usize),
    /// A variable of the environment that is itself an expression; naming it
    /// costs a selection.
    Lazy(usize),
    /// A variable of a comprehension.
    Local(usize),
    Node(Box<Node>),
    /// `a ? b : c`
    Conditional(Box<[Node; 3]>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Field(Box<str>),
    Constant(Value<'static>),
    Node(Node),
    /// Nothing is selected, but the value becomes an optional.
    Itself,
}

#[derive(Debug)]
pub(crate) struct InSet {
    pub(crate) item: Node,
    pub(crate) set: Entries<'static>,
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    /// The overloads that may be meant; which one, the values tell.
    pub(crate) overloads: Box<[Arc<Overload>]>,
    pub(crate) arguments: Box<[Node]>,
    pub(crate) cost: Cost,
    /// Whether the first of two arguments that fails keeps the other from being
    /// evaluated: a property of how upstream binds the function.
    pub(crate) sequential: bool,
    /// What could be worked out of constant arguments beforehand.
    pub(crate) prepared: Option<PreparedArgument>,
    /// Whether it is `!`, which most conditions have, and which needs no search for its
    /// overload.
    pub(crate) is_negation: bool,
}

#[derive(Debug)]
pub(crate) struct ListNode {
    pub(crate) items: Box<[Node]>,
    /// For each item whether it is left out when absent; empty if none is.
    pub(crate) optional: Box<[bool]>,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct ObjectNode {
    pub(crate) of: Arc<ObjectType>,
    pub(crate) fields: Box<[ObjectField]>,
}

#[derive(Debug)]
pub(crate) struct ObjectField {
    pub(crate) name: Box<str>,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// A macro over a list or a map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Node,
    /// The local variable of the item, or of the index or key if there are two.
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter`, `transformList`: a list of what the body gives.
    List,
    /// `transformMap`
    Map,
    /// `transformMapEntry`
    MapEntry,
    /// `optMap`
    OptionalMap,
    /// `optFlatMap`
    OptionalFlatMap,
    /// `sortBy`: the body gives the key to sort by.
    /// Whether the type of the keys is `known` decides what it costs.
    SortBy {
        known: bool,
    },
}

// === impl Program ===

impl Program {
    /// The type of what it evaluates to.
    #[must_use]
    pub const fn output(&self) -> &Type {
        &self.output
    }

    /// How many levels it has, together with the variables that it names: see
    /// [`Environment::add_lazy_variable`](crate::Environment::add_lazy_variable).
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The same as the expression of the variable `name`, which errors tell.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }
}

// === impl Node ===

impl Node {
    pub(crate) const fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}
