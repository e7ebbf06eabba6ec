//! A compiled expression: names are resolved to slots, overloads to functions, constants
//! to values.
//!
//! It has the structure of cel-go's plan, because the cost that Kubernetes counts depends
//! on that plan: a chain of selections is one attribute, a list of constants is a
//! constant.

use std::fmt;
use std::sync::Arc;

use crate::environment::{Environment, Version};
use crate::function::{Cost, Overload};
use crate::library::PreparedArgument;
use crate::types::{ObjectType, Type};
use crate::value::{Entries, Value};
use crate::{EvalError, json};

/// A compiled expression, ready to be evaluated by many at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: PlanNode,
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
pub(crate) enum PlanNode {
    Constant(Value<'static>),
    Attribute(Attribute),
    /// `&&` of all.
    And(Box<[PlanNode]>),
    /// `||` of all.
    Or(Box<[PlanNode]>),
    Equal(Box<(PlanNode, PlanNode)>),
    NotEqual(Box<(PlanNode, PlanNode)>),
    /// `in` a constant list, which costs nothing by itself.
    InSet(Box<InSet>),
    Call(Box<Call>),
    List(Box<ListNode>),
    Map(Box<[MapEntry]>),
    Object(Box<ObjectNode>),
    Fold(Box<Fold>),
    /// `or`, and `orValue` if the flag is set.
    OptionalOr(Box<(PlanNode, PlanNode)>, bool),
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
    Node(Box<PlanNode>),
    /// `a ? b : c`
    Conditional(Box<[PlanNode; 3]>),
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
    Node(PlanNode),
    /// Nothing is selected, but the value becomes an optional.
    Itself,
}

#[derive(Debug)]
pub(crate) struct InSet {
    pub(crate) item: PlanNode,
    pub(crate) set: Entries<'static>,
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    /// The overloads that may be meant; which one, the values tell.
    pub(crate) overloads: Box<[Arc<Overload>]>,
    pub(crate) arguments: Box<[PlanNode]>,
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
    pub(crate) items: Box<[PlanNode]>,
    /// For each item whether it is left out when absent; empty if none is.
    pub(crate) optional: Box<[bool]>,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: PlanNode,
    pub(crate) value: PlanNode,
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
    pub(crate) value: PlanNode,
    pub(crate) optional: bool,
}

/// A macro over a list or a map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: PlanNode,
    /// The local variable of the item, or of the index or key if there are two.
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    pub(crate) filter: Option<PlanNode>,
    pub(crate) body: PlanNode,
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

// === impl PlanNode ===

impl PlanNode {
    pub(crate) const fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}

// The variables of one evaluation.

/// The values of an environment's variables, for one request.
///
/// A variable that is itself an expression is evaluated when it is first named,
/// and then remembered as long as this lives.
#[derive(Debug, Default)]
pub struct Activation<'a> {
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) watched: Option<WatchedRoot<'a>>,
}

/// A value whose parts are noted when an expression selects them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchedRoot<'a> {
    root: json::Node<'a>,
    /// What was selected last.
    pub(crate) last: Option<json::Node<'a>>,
}

/// A value that few expressions name, and that costs something to make.
pub trait LazyValue: fmt::Debug + Sync {
    /// The value.
    fn value(&self) -> Value<'_>;
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Variable<'a> {
    #[default]
    Absent,
    Value(Value<'a>),
    Lazy(&'a dyn LazyValue),
    Expression(&'a Program),
    /// Being evaluated: it may not name itself.
    Busy,
    Failed(EvalError),
}

impl<'a> Activation<'a> {
    /// No variable has a value yet.
    #[must_use]
    pub fn new(environment: &Environment) -> Self {
        Self {
            variables: vec![Variable::Absent; environment.variables()],
            watched: None,
        }
    }

    /// The first variables have these values, in the order of their slots, and
    /// the others none yet.
    #[must_use]
    pub fn of(environment: &Environment, values: impl IntoIterator<Item = Option<Value<'a>>>) -> Self {
        let mut variables = Vec::with_capacity(environment.variables());
        let of = |value: Option<_>| value.map_or(Variable::Absent, Variable::Value);
        variables.extend(values.into_iter().map(of));
        variables.resize(variables.len().max(environment.variables()), Variable::Absent);
        Self {
            variables,
            watched: None,
        }
    }

    /// No variable has a place yet: [`push`](Self::push) gives them theirs.
    #[must_use]
    pub fn with_room(environment: &Environment) -> Self {
        Self {
            variables: Vec::with_capacity(environment.variables()),
            watched: None,
        }
    }

    /// The value of the next slot, or that it has none.
    pub fn push(&mut self, value: Option<Value<'a>>) {
        self.variables
            .push(value.map_or(Variable::Absent, Variable::Value));
    }

    /// The value of the next slot, made when it is first named.
    pub fn push_lazy(&mut self, value: &'a dyn LazyValue) {
        self.variables.push(Variable::Lazy(value));
    }

    /// Gives the variable `slot` a value; see [`Environment::slot`].
    pub fn set(&mut self, slot: usize, value: Value<'a>) {
        self.put(slot, Variable::Value(value));
    }

    /// Lets the variable `slot` be what `program` evaluates to.
    pub fn set_lazy(&mut self, slot: usize, program: &'a Program) {
        self.put(slot, Variable::Expression(program));
    }

    /// Says that nobody knows the variable `slot`, which expressions call `name`: looking
    /// at it is [`EvalError::Unknown`].
    pub fn set_unknown(&mut self, slot: usize, name: &'static str) {
        self.put(slot, Variable::Failed(EvalError::Unknown(name)));
    }

    /// From now on notes which part of `root`, a value in JSON text, is selected last; see
    /// [`last_read`](Self::last_read).
    pub fn watch(&mut self, root: json::Node<'a>) {
        self.watched = Some(WatchedRoot { root, last: None });
    }

    /// The part of the value that is [watched](Self::watch) which the expression that was evaluated
    /// last selected last, as a JSON Pointer (RFC 6901): of a false `all()` in the item that
    /// decided it, else what the macro went through. `None` where it selected nothing of it.
    #[must_use]
    pub fn last_read(&self) -> Option<String> {
        let WatchedRoot { root, last } = self.watched?;
        last?.pointer_from(root)
    }

    /// Notes that `node` was selected.
    #[inline]
    pub(crate) fn note(&mut self, node: json::Node<'a>) {
        if let Some(watched) = &mut self.watched
            && node.is_within(watched.root)
        {
            watched.last = Some(node);
        }
    }

    /// What the variable `slot` came to; `None` as long as it has no value.
    #[must_use]
    pub fn outcome(&self, slot: usize) -> Option<Result<&Value<'a>, &EvalError>> {
        match self.variables.get(slot)? {
            Variable::Value(value) => Some(Ok(value)),
            Variable::Failed(error) => Some(Err(error)),
            Variable::Absent | Variable::Lazy(_) | Variable::Expression(_) | Variable::Busy => None,
        }
    }

    pub(crate) fn put(&mut self, slot: usize, variable: Variable<'a>) {
        put_at(&mut self.variables, slot, variable, || Variable::Absent);
    }
}

/// Puts `value` at `slot`; slots before it that have none yet get what `absent` makes.
pub(crate) fn put_at<T>(values: &mut Vec<T>, slot: usize, value: T, absent: impl Fn() -> T) {
    if let Some(own) = values.get_mut(slot) {
        *own = value;
        return;
    }
    while values.len() < slot {
        values.push(absent());
    }
    values.push(value);
}
