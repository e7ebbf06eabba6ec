//! Evaluation of a program.
//!
//! ```text
//! Program::evaluate -> Evaluation::value(node) -> attribute.rs   a.b[c].?d, has(), ?:
//!                          |                      call.rs        functions, &&, ==, in
//!                          |                      fold.rs        all, exists, map, …
//!                          `-> charge(units) after each step, as upstream observes it
//! ```

mod attribute;
mod call;
mod fold;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::environment::Version;
use super::program::{ListNode, MapEntry, ObjectNode, PlanNode, Program};
use super::regex::Meter;
use super::value::{Entries, Key, List, Text, Value};
use super::{EvalError, cost};
use crate::cost::{
    BYTES_PER_STEP, Budget, FREE_STEPS, LONG_STRING_BYTES, STEPS_BETWEEN_DEADLINE_CHECKS, STEPS_PER_NODE,
    STEPS_PER_ROUND, STEPS_PER_UNIT,
};
use crate::program::{Activation, Variable};

/// The state of one evaluation.
pub(crate) struct Evaluation<'e, 'a> {
    variables: &'e mut Activation<'a>,
    locals: Vec<Value<'a>>,
    /// The deferred costs of local variables that may be variables of `optMap`, by slot.
    deferred: Vec<DeferredCost>,
    version: Version,
    cost: u64,
    limit: u64,
    /// The cost so far of variables that are themselves expressions (`variables.NAME`).
    composed: u64,
    per_expression: u64,
    remaining: u64,
    /// The work of this expression so far, no matter what CEL charges for it.
    steps: u64,
    until_look: u64,
    /// How many bytes it may still allocate.
    bytes: usize,
    /// Set if an attempt with limited memory needs more; `None` if the evaluation is not an
    /// attempt.
    needs_more: Option<&'e AtomicBool>,
    expired: Option<&'e dyn Fn() -> bool>,
}

/// The cost of a local variable of `optMap`, which is charged at its first use.
#[derive(Clone, Copy, Default)]
struct DeferredCost {
    /// The cost that the first use of the variable will be charged.
    due: u64,
    /// The costs charged so far for the first uses of all variables that had this slot.
    paid: u64,
}

impl Program {
    /// Evaluates the expression and takes what it cost from `budget`.
    ///
    /// # Errors
    ///
    /// The expression fails, or exceeds a limit or the deadline.
    pub fn evaluate<'a>(
        &'a self,
        activation: &mut Activation<'a>,
        budget: &mut Budget<'_>,
    ) -> Result<Value<'a>, EvalError> {
        if let Some(watched) = &mut activation.watched {
            watched.last = None;
        }
        let mut evaluation = Evaluation {
            variables: activation,
            locals: Vec::with_capacity(self.locals),
            deferred: Vec::new(),
            version: self.version,
            cost: 0,
            limit: budget.per_expression.min(budget.remaining),
            composed: 0,
            per_expression: budget.per_expression,
            remaining: budget.remaining,
            steps: 0,
            until_look: budget.steps_until_check,
            bytes: budget.bytes,
            needs_more: budget.needs_more,
            expired: budget.expired,
        };
        // A panic in this crate must not leave the caller without an answer: it becomes an error of the
        // expression, and what follows from that is up to the caller.
        let evaluated = catch_unwind(AssertUnwindSafe(|| evaluation.value(&self.root)));
        let result = evaluated.unwrap_or_else(|_| Err(EvalError::internal("the evaluation panicked")));
        budget.steps_until_check = evaluation.until_look;
        budget.bytes = evaluation.bytes;
        let spent = evaluation.cost.saturating_add(evaluation.composed);
        let Some(remaining) = budget.remaining.checked_sub(spent) else {
            budget.remaining = 0;
            return Err(EvalError::OutOfBudget);
        };
        budget.remaining = remaining;
        result
    }
}

// === impl Evaluation ===

impl<'a> Evaluation<'_, 'a> {
    /// Evaluates `node`.
    fn value(&mut self, node: &'a PlanNode) -> Result<Value<'a>, EvalError> {
        self.work(STEPS_PER_NODE)?;
        match node {
            PlanNode::Constant(value) => Ok(value.share()),
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            PlanNode::And(terms) => self.logic(terms, false).map(Value::Bool),
            PlanNode::Or(terms) => self.logic(terms, true).map(Value::Bool),
            PlanNode::Equal(sides) => self.equality(sides, true).map(Value::Bool),
            PlanNode::NotEqual(sides) => self.equality(sides, false).map(Value::Bool),
            PlanNode::InSet(set) => self.in_set(set),
            PlanNode::Call(call) => self.call(call),
            PlanNode::List(list) => self.list(list),
            PlanNode::Map(entries) => self.map(entries),
            PlanNode::Object(object) => self.object(object),
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::OptionalOr(sides, unwrap) => self.optional_or(sides, *unwrap),
        }
    }

    /// The version that the expression was compiled for.
    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// Whether an optional is unwrapped when a variable is read or a conditional chooses it, as before cel-go
    /// 0.29: an optional within an optional becomes one, and a value of a type that is not cel-go's own cannot be
    /// wrapped again.
    fn takes_optionals_apart(&self) -> bool {
        self.version < Version::CEL_GO_0_29
    }

    /// Adds `units` to the cost. Fails if it then exceeds the limit of the expression or of the budget.
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(units);
        if self.cost <= self.limit {
            return Ok(());
        }
        let spent = self.cost.saturating_add(self.composed);
        Err(if spent > self.remaining {
            EvalError::OutOfBudget
        } else {
            EvalError::CostLimit
        })
    }

    /// Fails unless `units` more can be spent. Called before work whose cost is only charged once it is done.
    pub(crate) fn afford(&mut self, units: u64) -> Result<(), EvalError> {
        if self.cost.saturating_add(units) <= self.limit {
            return Ok(());
        }
        self.charge(units)
    }

    /// Called after each round of a loop: checks the deadline from time to time.
    pub(crate) fn tick(&mut self) -> Result<(), EvalError> {
        self.look_after(STEPS_PER_ROUND)
    }

    /// Counts work before it is done: nodes of the expression, items, bytes or comparisons. From time to time, and
    /// before much work, checks the deadline, and fails if the work exceeds what the cost limit can pay for.
    #[inline]
    pub(crate) fn work(&mut self, steps: usize) -> Result<(), EvalError> {
        self.steps = self.steps.saturating_add(steps as u64);
        self.look_after(steps as u64)
    }

    /// Counts bytes before they are allocated.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.has_room(bytes)?;
        self.bytes -= bytes;
        Ok(())
    }

    /// Returns bytes that were counted for a value that was dropped, or turned out to be smaller.
    pub(crate) const fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Fails unless `bytes` more can be allocated.
    pub(crate) fn has_room(&self, bytes: usize) -> Result<(), EvalError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let Some(needs_more) = self.needs_more else {
            return Err(EvalError::MemoryLimit);
        };
        needs_more.store(true, Ordering::Relaxed);
        Err(EvalError::Interrupted)
    }

    /// How many bytes may still be allocated.
    pub(crate) const fn room(&self) -> usize {
        self.bytes
    }

    /// How many items a new list may have.
    pub(crate) const fn room_for_items(&self) -> usize {
        self.bytes / List::BYTES_PER_ITEM
    }

    /// The part of `text` that `part` selects. It is counted if it has to be copied.
    pub(crate) fn part(
        &mut self,
        text: &Text<'a>,
        part: impl for<'t> FnOnce(&'t str) -> &'t str,
    ) -> Result<Value<'a>, EvalError> {
        Ok(Value::String(match text {
            Text::Borrowed(text) => Text::Borrowed(part(text)),
            Text::Shared(text) => {
                let part = part(text);
                self.allocate(part.len() + Text::BYTES)?;
                Text::Shared(part.into())
            }
        }))
    }

    /// Counts the work and the memory of a list of `items` items before it is made.
    pub(crate) fn allocate_items(&mut self, items: usize) -> Result<(), EvalError> {
        self.work(items.saturating_mul(STEPS_PER_NODE))?;
        self.allocate(items.saturating_mul(List::BYTES_PER_ITEM))
    }

    /// Counts the work and the memory of a string of `bytes` bytes before it is made.
    pub(crate) fn allocate_text(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.work(bytes)?;
        self.allocate(bytes.saturating_add(Text::BYTES))
    }

    /// The string that `make` returns, of at most `bytes` bytes. They are counted beforehand, and twice, because
    /// the string exists twice while it is copied to where it is shared.
    pub(crate) fn make_text(
        &mut self,
        bytes: usize,
        make: impl FnOnce() -> String,
    ) -> Result<Value<'a>, EvalError> {
        self.work(bytes)?;
        let twice = bytes.saturating_mul(2);
        self.allocate(twice.saturating_add(Text::BYTES))?;
        let text = make();
        self.release(twice.saturating_sub(text.len()));
        Ok(Value::String(Text::from(text)))
    }

    /// Counts the work of reading a value: long text is searched, unescaped, counted or hashed, whatever CEL
    /// charges for that.
    fn met(&mut self, value: &Value<'_>) -> Result<(), EvalError> {
        match value {
            Value::String(text) if text.len() >= LONG_STRING_BYTES => self.work(text.len() / BYTES_PER_STEP),
            Value::Opaque(opaque) => self.work(opaque.bytes()),
            _ => Ok(()),
        }
    }

    /// Like [`met`](Self::met), for a value that was selected: text that had to be unescaped counts as allocated,
    /// too.
    fn selected(&mut self, value: &Value<'_>) -> Result<(), EvalError> {
        if let Value::String(text) = value
            && text.is_unshared()
        {
            self.allocate(text.len() + Text::BYTES)?;
        }
        self.met(value)
    }

    /// The work so far, converted to units of cost. The first steps are free.
    const fn unpaid(&self) -> u64 {
        self.steps.saturating_sub(FREE_STEPS) / STEPS_PER_UNIT
    }

    /// Charges `units` for a call, and then what the work so far is worth beyond the whole cost.
    fn charge_call(&mut self, units: u64) -> Result<(), EvalError> {
        self.charge(units)?;
        self.charge(self.unpaid().saturating_sub(self.cost))
    }

    #[inline]
    fn look_after(&mut self, steps: u64) -> Result<(), EvalError> {
        if let Some(left) = self.until_look.checked_sub(steps)
            && left > 0
        {
            self.until_look = left;
            return Ok(());
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Result<(), EvalError> {
        self.until_look = STEPS_BETWEEN_DEADLINE_CHECKS;
        if self.unpaid() > self.limit {
            self.charge(self.unpaid())?;
        }
        if self.expired.is_some_and(|expired| expired()) {
            // Other expressions with the same budget check the deadline at once.
            self.until_look = 0;
            return Err(EvalError::Interrupted);
        }
        Ok(())
    }

    /// The check of the deadline, for calls to the host, which count no steps.
    pub(crate) fn expired(&self) -> &dyn Fn() -> bool {
        self.expired.unwrap_or(&|| false)
    }

    /// Runs `run`, which reports its steps to the given meter.
    pub(crate) fn metered<T>(&mut self, run: impl FnOnce(Meter<'_>) -> T) -> Result<T, EvalError> {
        let mut failure = None;
        let result = run(&mut |steps| {
            failure = self.work(steps).err();
            failure.is_none()
        });
        failure.map_or(Ok(result), Err)
    }

    fn list(&mut self, list: &'a ListNode) -> Result<Value<'a>, EvalError> {
        let items = self.items(list);
        self.settle(items, cost::LIST).map(Value::list)
    }

    fn items(&mut self, list: &'a ListNode) -> Result<Vec<Value<'a>>, EvalError> {
        self.allocate_items(list.items.len())?;
        let mut items = Vec::with_capacity(list.items.len());
        for (position, node) in list.items.iter().enumerate() {
            let value = self.value(node)?;
            let optional = list.optional.get(position).copied().unwrap_or_default();
            match value {
                Value::Optional(inner) if optional => items.extend(inner.map(|inner| (*inner).clone())),
                _ if optional => {
                    return Err(EvalError::failed(format_args!(
                        "cannot initialize optional list element from non-optional value {}",
                        value.printed()
                    )));
                }
                value => items.push(value),
            }
        }
        Ok(items)
    }

    fn map(&mut self, entries: &'a [MapEntry]) -> Result<Value<'a>, EvalError> {
        let entries = self.entries(entries);
        self.settle(entries, cost::MAP).map(Value::map)
    }

    fn entries(&mut self, nodes: &'a [MapEntry]) -> Result<Entries<'a>, EvalError> {
        self.allocate(nodes.len() * Entries::BYTES_PER_ENTRY)?;
        let mut entries = Entries::new();
        for node in nodes {
            let key = self.value(&node.key)?;
            self.met(&key)?;
            let key = Key::new(&key).ok_or_else(|| EvalError::failed("unsupported key type"))?;
            let value = self.value(&node.value)?;
            self.put(&mut entries, key, value, node.optional)?;
        }
        Ok(entries)
    }

    fn object(&mut self, object: &'a ObjectNode) -> Result<Value<'a>, EvalError> {
        let fields = self.fields(object);
        self.settle(fields, cost::OBJECT).map(Value::map)
    }

    fn fields(&mut self, object: &'a ObjectNode) -> Result<Entries<'a>, EvalError> {
        self.allocate(object.fields.len() * Entries::BYTES_PER_ENTRY)?;
        let mut fields = Entries::object(std::sync::Arc::clone(&object.of));
        for field in &object.fields {
            let value = self.value(&field.value)?;
            let declared = object.of.field(&field.name);
            if declared == Some(super::Type::String) && value.as_str().is_none() && !field.optional {
                return Err(EvalError::failed(format_args!(
                    "unexpected type for '{}' field",
                    field.name
                )));
            }
            let key = Key::String(Text::Borrowed(&field.name));
            self.put(&mut fields, key, value, field.optional)?;
        }
        if !object.of.is_constructible() {
            return Err(EvalError::failed(format_args!(
                "unknown type '{}'",
                object.of.name()
            )));
        }
        Ok(fields)
    }

    /// Adds an entry, unless it is optional and absent.
    fn put(
        &mut self,
        entries: &mut Entries<'a>,
        key: Key<'a>,
        value: Value<'a>,
        optional: bool,
    ) -> Result<(), EvalError> {
        match value {
            Value::Optional(None) if optional => {
                // Removing an entry moves those after it, and updates their index.
                self.work(entries.len() * STEPS_PER_NODE)?;
                entries.remove(&key);
            }
            Value::Optional(Some(inner)) if optional => entries.insert(key, (*inner).clone()),
            value if optional => {
                return Err(EvalError::failed(format_args!(
                    "cannot initialize optional entry '{}' from non-optional value {}",
                    key.to_value().printed(),
                    value.printed()
                )));
            }
            value => entries.insert(key, value),
        }
        Ok(())
    }

    /// Evaluates `node`. The inner error may still be absorbed by `&&`, `||` or a macro; the outer one ends the
    /// expression.
    fn body(&mut self, node: &'a PlanNode) -> Result<Result<Value<'a>, EvalError>, EvalError> {
        match self.value(node) {
            Err(error) if !error.is_absorbable() => Err(error),
            result => Ok(result),
        }
    }

    /// Charges `units` for making a value, even if that failed with an error that may be absorbed, as upstream
    /// does.
    fn settle<T>(&mut self, made: Result<T, EvalError>, units: u64) -> Result<T, EvalError> {
        match made {
            Ok(made) => {
                self.charge(units)?;
                Ok(made)
            }
            Err(error) if !error.is_absorbable() => Err(error),
            Err(error) => Err(self.charge(units).err().unwrap_or(error)),
        }
    }

    fn optional_or(&mut self, sides: &'a (PlanNode, PlanNode), unwrap: bool) -> Result<Value<'a>, EvalError> {
        match self.value(&sides.0)? {
            Value::Optional(None) => self.value(&sides.1),
            Value::Optional(Some(inner)) if unwrap => Ok((*inner).clone()),
            other if self.takes_optionals_apart() || matches!(other, Value::Optional(_)) => Ok(other),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// The value of a variable of the environment.
    fn variable(&mut self, slot: usize) -> Result<Value<'a>, EvalError> {
        match self.variables.variables.get(slot) {
            Some(Variable::Value(value)) => Ok(value.clone()),
            Some(Variable::Failed(error)) => Err(error.clone()),
            Some(Variable::Lazy(lazy)) => {
                let value = lazy.value();
                self.variables.put(slot, Variable::Value(value.clone()));
                Ok(value)
            }
            Some(Variable::Expression(program)) => self.compose(slot, program),
            Some(Variable::Busy) => Err(EvalError::failed("a variable refers to itself")),
            Some(Variable::Absent) | None => Err(EvalError::failed("no such attribute")),
        }
    }

    /// Evaluates a variable that is an expression, with a cost limit of its own, and remembers the result.
    fn compose(&mut self, slot: usize, program: &'a Program) -> Result<Value<'a>, EvalError> {
        self.variables.put(slot, Variable::Busy);
        let locals = std::mem::replace(&mut self.locals, Vec::with_capacity(program.locals));
        let deferred = std::mem::take(&mut self.deferred);
        let (cost, limit) = (std::mem::take(&mut self.cost), self.limit);
        let steps = std::mem::take(&mut self.steps);
        self.limit = self.per_expression;
        let result = self.value(&program.root);
        self.composed = self.composed.saturating_add(self.cost);
        (self.locals, self.deferred, self.cost, self.limit) = (locals, deferred, cost, limit);
        self.steps = steps;
        if self.composed > self.remaining {
            return Err(EvalError::OutOfBudget);
        }
        let outcome = match result {
            Err(error @ (EvalError::Interrupted | EvalError::OutOfBudget)) => return Err(error),
            Err(error @ EvalError::Unknown(_)) => Err(error),
            Err(error) => {
                let name = program.name.as_deref().unwrap_or_default();
                Err(EvalError::failed(format_args!(
                    "composited variable \"{name}\" fails to evaluate: {error}"
                )))
            }
            Ok(value) => Ok(value),
        };
        let remembered = match &outcome {
            Ok(value) => Variable::Value(value.clone()),
            Err(error) => Variable::Failed(error.clone()),
        };
        self.variables.put(slot, remembered);
        outcome
    }
}
