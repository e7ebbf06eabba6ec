//! A compiled expression, in which names are resolved to slots, overloads to functions, and
//! constants to values.
//!
//! It has the structure of cel-go's plan, because the cost that Kubernetes counts depends on it: a
//! chain of selections is one attribute, and a list of constants is a constant.

use std::fmt;
use std::sync::Arc;

use crate::environment::{Environment, Version};
use crate::function::{Cost, Overload};
use crate::library::PreparedArgument;
use crate::types::{ObjectType, Type};
use crate::value::{Entries, Value};
use crate::{EvalError, json};

/// A compiled expression, which several threads can evaluate at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: PlanNode,
    pub(crate) output: Type,
    /// The most local variables in scope at once.
    pub(crate) locals: usize,
    /// The depth of the expression, including the variables that it refers to.
    pub(crate) depth: u32,
    /// The version for which the expression was compiled.
    pub(crate) version: Version,
    /// The name of the variable whose expression this is.
    pub(crate) name: Option<Box<str>>,
}

/// A node of the plan.
#[derive(Debug)]
pub(crate) enum PlanNode {
    Constant(Value<'static>),
    Attribute(Attribute),
    /// `&&` of all operands.
    And(Box<[PlanNode]>),
    /// `||` of all operands.
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
    /// `or`; `orValue` if the flag is set.
    OptionalOr(Box<(PlanNode, PlanNode)>, bool),
}

/// A variable or the result of another node, and the selections from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: AttributeBase,
    pub(crate) qualifiers: Box<[Qualifier]>,
    /// Whether only the presence of the last selection is tested: `has()`.
    pub(crate) is_presence_test: bool,
}

#[derive(Debug)]
pub(crate) enum AttributeBase {
    /// A variable of the environment.
    Variable(usize),
    /// A variable of the environment that is itself an expression. Reading it costs as much as a
    /// selection.
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
    /// No selection: the value only becomes an optional.
    ToOptional,
}

#[derive(Debug)]
pub(crate) struct InSet {
    pub(crate) item: PlanNode,
    pub(crate) set: Entries<'static>,
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    /// The overloads that match the static types. The values decide which one is called.
    pub(crate) overloads: Box<[Arc<Overload>]>,
    pub(crate) arguments: Box<[PlanNode]>,
    pub(crate) cost: Cost,
    /// Whether an error of the first of two arguments keeps the second from being evaluated, which
    /// depends on how upstream dispatches the function.
    pub(crate) stops_at_first_error: bool,
    /// What was prepared at compile time from constant arguments.
    pub(crate) prepared: Option<PreparedArgument>,
    /// Whether this is `!`, which most conditions contain, and for which no overload has to be
    /// found.
    pub(crate) is_negation: bool,
}

#[derive(Debug)]
pub(crate) struct ListNode {
    pub(crate) items: Box<[PlanNode]>,
    /// For each item, whether it is left out if absent; empty if this is so for none.
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
    /// The local variable of the item; with two variables, that of the index or key.
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
    /// `map`, `filter`, `transformList`: a list of the results of the body.
    List,
    /// `transformMap`
    Map,
    /// `transformMapEntry`
    MapEntry,
    /// `optMap`
    OptionalMap,
    /// `optFlatMap`
    OptionalFlatMap,
    /// `sortBy`, whose body returns the sort key. The cost depends on whether the type of the keys
    /// is `known`.
    SortBy {
        known: bool,
    },
}

// === impl Program ===

impl Program {
    /// The type of the result.
    #[must_use]
    pub const fn output(&self) -> &Type {
        &self.output
    }

    /// The number of levels of the expression, including the variables that it refers to: see
    /// [`Environment::add_lazy_variable`](crate::Environment::add_lazy_variable).
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The same program as the expression of the variable `name`, which errors mention.
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

// The variables of an evaluation.

/// The values of an environment's variables for one request.
///
/// A variable that is itself an expression is evaluated when it is first used, and its value is
/// kept.
#[derive(Debug, Default)]
pub struct Activation<'a> {
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) watched: Option<WatchedRoot<'a>>,
}

/// A value for which the last selected part is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchedRoot<'a> {
    root: json::Node<'a>,
    /// The part that was selected last.
    pub(crate) last: Option<json::Node<'a>>,
}

/// A value that few expressions use, and that is expensive to make.
pub trait LazyValue: fmt::Debug + Sync {
    /// Makes the value.
    fn value(&self) -> Value<'_>;
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Variable<'a> {
    #[default]
    Absent,
    Value(Value<'a>),
    Lazy(&'a dyn LazyValue),
    Expression(&'a Program),
    /// Its expression is being evaluated, and must not refer to the variable itself.
    Busy,
    Failed(EvalError),
}

impl<'a> Activation<'a> {
    /// An activation in which no variable has a value yet.
    #[must_use]
    pub fn new(environment: &Environment) -> Self {
        Self {
            variables: vec![Variable::Absent; environment.variables()],
            watched: None,
        }
    }

    /// An activation in which the first variables have these values, in the order of their slots,
    /// and the others have none yet.
    #[must_use]
    pub fn with_values(
        environment: &Environment,
        values: impl IntoIterator<Item = Option<Value<'a>>>,
    ) -> Self {
        let mut variables = Vec::with_capacity(environment.variables());
        let of = |value: Option<_>| value.map_or(Variable::Absent, Variable::Value);
        variables.extend(values.into_iter().map(of));
        variables.resize(variables.len().max(environment.variables()), Variable::Absent);
        Self {
            variables,
            watched: None,
        }
    }

    /// An activation without slots, which [`push`](Self::push) adds in order.
    #[must_use]
    pub fn with_capacity(environment: &Environment) -> Self {
        Self {
            variables: Vec::with_capacity(environment.variables()),
            watched: None,
        }
    }

    /// Adds the next slot, with a value or without.
    pub fn push(&mut self, value: Option<Value<'a>>) {
        self.variables
            .push(value.map_or(Variable::Absent, Variable::Value));
    }

    /// Adds the next slot, whose value is made when it is first used.
    pub fn push_lazy(&mut self, value: &'a dyn LazyValue) {
        self.variables.push(Variable::Lazy(value));
    }

    /// Sets the value of the variable in `slot`; see [`Environment::slot`].
    pub fn set(&mut self, slot: usize, value: Value<'a>) {
        self.put(slot, Variable::Value(value));
    }

    /// Sets the variable in `slot` to the result of `program`, which is evaluated when the variable
    /// is first used.
    pub fn set_lazy(&mut self, slot: usize, program: &'a Program) {
        self.put(slot, Variable::Expression(program));
    }

    /// Marks the variable in `slot` as unknown. Reading it is [`EvalError::Unknown`] with `name`,
    /// the variable's name in expressions.
    pub fn set_unknown(&mut self, slot: usize, name: &'static str) {
        self.put(slot, Variable::Failed(EvalError::Unknown(name)));
    }

    /// From now on, records which part of `root`, a value in JSON text, is selected last; see
    /// [`last_read`](Self::last_read).
    pub fn watch(&mut self, root: json::Node<'a>) {
        self.watched = Some(WatchedRoot { root, last: None });
    }

    /// The part of the [watched](Self::watch) value that the last evaluated expression selected
    /// last, as a JSON Pointer (RFC 6901). For a macro, this is the list or map that it iterates
    /// over; for a false `all()`, the part of the item that decided it. `None` if no part was
    /// selected.
    #[must_use]
    pub fn last_read(&self) -> Option<String> {
        let WatchedRoot { root, last } = self.watched?;
        last?.pointer_from(root)
    }

    /// Records that `node` was selected.
    #[inline]
    pub(crate) fn note(&mut self, node: json::Node<'a>) {
        if let Some(watched) = &mut self.watched
            && node.is_within(watched.root)
        {
            watched.last = Some(node);
        }
    }

    /// The value or error of the variable in `slot`; `None` while it has none.
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

/// Puts `value` at `slot`. Missing slots before it are filled with results of `absent`.
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
