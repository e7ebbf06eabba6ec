//! Calls of functions, `&&` and `||`, `==` and `!=`.

use super::Evaluation;
use super::mismatch::{not_a_list, not_an_int, unguarded, worded};
use crate::budget::STEPS_PER_NODE;
use crate::cost;
use crate::error::EvalError;
use crate::function::Cost;
use crate::program::{Call, InSet, Node};
use crate::value::{Opaque, Value, equal, is_incomparable};

/// Stands for an argument or result that failed: it counts 1.
const FAILED: Value<'static> = Value::Null;

impl<'a> Evaluation<'_, 'a> {
    pub(crate) fn call(&mut self, call: &'a Call) -> Result<Value<'a>, EvalError> {
        match &*call.arguments {
            [argument] => {
                let argument = self.value(argument);
                match argument {
                    Ok(Value::Bool(value)) if call.is_negation => {
                        self.charge_call(1)?;
                        Ok(Value::Bool(!value))
                    }
                    Ok(argument) => self.apply(call, &[argument]),
                    Err(error) => self.failed(call, &[FAILED], error),
                }
            }
            [left, right] if !call.sequential => {
                let left = self.body(left)?;
                let right = self.body(right)?;
                match (left, right) {
                    (Ok(left), Ok(right)) => self.apply(call, &[left, right]),
                    (Err(error), right) => self.failed(call, &[FAILED, right.unwrap_or(FAILED)], error),
                    (Ok(left), Err(error)) => self.failed(call, &[left, FAILED], error),
                }
            }
            arguments => self.call_many(call, arguments),
        }
    }

    /// The first argument that fails ends the call; only if it is the last one
    /// do all count.
    fn call_many(&mut self, call: &'a Call, nodes: &'a [Node]) -> Result<Value<'a>, EvalError> {
        let mut arguments = Vec::with_capacity(nodes.len());
        for node in nodes {
            match self.value(node) {
                Ok(argument) => arguments.push(argument),
                Err(error) if arguments.len() + 1 == nodes.len() => {
                    arguments.push(FAILED);
                    return self.failed(call, &arguments, error);
                }
                Err(error) => return Err(error),
            }
        }
        self.apply(call, &arguments)
    }

    fn apply(&mut self, call: &'a Call, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        for argument in arguments {
            self.met(argument)?;
        }
        let overload = match &*call.overloads {
            // Kubernetes' own functions of lists are guarded, cel-go's are not.
            [only] => {
                let is_guarded = matches!(call.cost, Cost::Traversal);
                (!is_guarded || only.takes(arguments)).then_some(only)
            }
            several => several.iter().find(|overload| overload.takes(arguments)),
        };
        let result = match overload.map(|overload| &**overload).or_else(|| unguarded(call)) {
            Some(overload) => (overload.apply)(self, call, arguments),
            None => Err(EvalError::no_such_overload()),
        };
        match result {
            Ok(result) => {
                if matches!(result, Value::Opaque(_) | Value::Optional(Some(_))) {
                    self.allocate(Opaque::BYTES)?;
                }
                let units = self.cost_of(call, arguments, &result)?;
                self.charge_call(units)?;
                Ok(result)
            }
            Err(error) => {
                if error.is_absorbable() {
                    let units = self.cost_of(call, arguments, &FAILED)?;
                    self.charge_call(units)?;
                }
                Err(worded(call, arguments, error, self.version))
            }
        }
    }

    /// One of the arguments failed.
    fn failed(
        &mut self,
        call: &'a Call,
        arguments: &[Value<'a>],
        error: EvalError,
    ) -> Result<Value<'a>, EvalError> {
        if error.is_absorbable() {
            let units = match (self.cost_of(call, arguments, &FAILED), call.cost) {
                (Err(EvalError::Internal(_)), Cost::OfList(..)) => return Err(not_a_list(None)),
                (Err(EvalError::Internal(_)), Cost::OfInt(..)) => return Err(not_an_int(None)),
                (units, _) => units?,
            };
            self.charge_call(units)?;
        }
        Err(error)
    }

    fn cost_of(
        &mut self,
        call: &Call,
        arguments: &[Value<'a>],
        result: &Value<'a>,
    ) -> Result<u64, EvalError> {
        match call.cost {
            Cost::One => Ok(1),
            Cost::Traversal => match arguments.first() {
                Some(value) => cost::traverse_tree(value, &mut |steps| self.work(steps)),
                None => Ok(0),
            },
            Cost::OfFunction(cost) | Cost::OfOverload(cost) => Ok(cost(arguments, result)),
            Cost::OfList(list, cost) => match arguments.get(list) {
                Some(Value::List(_)) => Ok(cost(arguments, result)),
                other => Err(not_a_list(other)),
            },
            Cost::OfInt(int, cost) => match arguments.get(int) {
                Some(Value::Int(_)) => Ok(cost(arguments, result)),
                other => Err(not_an_int(other)),
            },
        }
    }

    /// `&&` (decided by false) or `||` (decided by true): an error counts only
    /// if no other term decides.
    pub(crate) fn logic(&mut self, terms: &'a [Node], decisive: bool) -> Result<bool, EvalError> {
        let mut failure = None;
        for term in terms {
            match self.truth(term) {
                Ok(value) if value == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(error) if error.is_absorbable() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(!decisive), Err)
    }

    /// Whether `node` evaluates to true; an error if to anything but true or false.
    pub(crate) fn truth(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        self.work(STEPS_PER_NODE)?;
        match node {
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Equal(sides) => self.equality(sides, true),
            Node::NotEqual(sides) => self.equality(sides, false),
            node => match self.value(node)?.as_bool() {
                Some(value) => Ok(value),
                None => Err(EvalError::no_such_overload()),
            },
        }
    }

    /// `==` if `expected`, `!=` if not.
    pub(crate) fn equality(&mut self, sides: &'a (Node, Node), expected: bool) -> Result<bool, EvalError> {
        let left = self.body(&sides.0)?;
        let right = self.body(&sides.1)?;
        let failed = FAILED;
        for side in [&left, &right].into_iter().flatten() {
            self.met(side)?;
        }
        // What `==` costs of values of libraries is Kubernetes' own count.
        let cost = if expected { cost::equality } else { cost::smaller };
        self.charge(cost(
            left.as_ref().unwrap_or(&failed),
            right.as_ref().unwrap_or(&failed),
        ))?;
        let (left, right) = (left?, right?);
        if expected && is_incomparable(&left, &right) {
            return Err(EvalError::no_such_overload());
        }
        Ok(self.equal(&left, &right)? == expected)
    }

    /// Whether two values are equal. Each item, entry and piece of text that is
    /// compared counts as work.
    pub(crate) fn equal(&mut self, left: &Value<'_>, right: &Value<'_>) -> Result<bool, EvalError> {
        equal(left, right, &mut |steps| self.work(steps))
    }

    pub(crate) fn in_set(&mut self, set: &'a InSet) -> Result<Value<'a>, EvalError> {
        let item = self.value(&set.item)?;
        self.met(&item)?;
        // What Go has no hash of ends the whole expression upstream.
        if matches!(item, Value::Bytes(_) | Value::Opaque(Opaque::Semver(_))) {
            return Err(EvalError::internal(format!(
                "runtime error: hash of unhashable type {}",
                item.go_type()
            )));
        }
        Ok(Value::Bool(set.set.search(&item).is_some()))
    }
}
