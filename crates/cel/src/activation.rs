//! The variables of one evaluation.

use std::fmt;

use super::environment::Environment;
use super::error::EvalError;
use super::json;
use super::program::Program;
use super::value::Value;

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
