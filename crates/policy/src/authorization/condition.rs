//! Conditions: CEL expressions over the spec of the review.
//!
//! ```text
//! load:     string -> check (names, types) -> Condition
//! request:  Attributes -> Activation -> Condition::evaluate -> bool | error
//! ```
//!
//! The variable `request` is the spec of a SubjectAccessReview in its v1 form, regardless of the
//! version of the review, as in kube-apiserver's authorizer match conditions
//! (`apiserver/pkg/authorization/cel/compile.go`).

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::Arc;

use crate::model::{Attributes, Deadline, Requirement, ResourceAttributes, Target, User};
use portcullis_cel::{
    Budget, CompileBudget, CompileError, Entries, Environment, EvalError, Key, PerVersion, Program, Text,
    Type, Value, Version, cost,
};

/// The maximum nesting of brackets, including those in string literals. The parser can recurse this
/// deep on the stack of any thread, even in a build without optimisation.
pub const MAX_NESTING: usize = 64;

/// A compiled condition. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    compiled: Arc<CompiledCondition>,
}

struct CompiledCondition {
    name: String,
    expression: String,
    program: Program,
}

/// Why an expression cannot be a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// Empty, or nothing but white space.
    #[error("the expression is empty")]
    Empty,
    /// Brackets nest deeper than [`MAX_NESTING`].
    #[error("the expression nests brackets more than {MAX_NESTING} levels deep")]
    TooDeep,
    /// Not valid CEL: a syntax error, too long or too deep, an undeclared name or field, types that
    /// do not match, or a result that is not statically `bool`.
    #[error(transparent)]
    Invalid(#[from] CompileError),
}

/// Why a condition could not be evaluated for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionEvaluationError {
    /// For example a field that is absent, an index out of range, or a limit that is reached.
    #[error(transparent)]
    Failed(#[from] EvalError),
    /// The result is neither true nor false.
    #[error("the result is not a bool")]
    NotBool,
}

/// The result of several conditions.
#[derive(Debug)]
pub(crate) enum ConditionsResult<'c> {
    AllTrue,
    /// The condition of this name is false.
    False(&'c str),
    /// None is false, and the condition of this name could not be evaluated.
    Error(&'c str, ConditionEvaluationError),
}

/// One of `spec.objectConditions`: a condition on the object of a request, which only admission
/// sees. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCondition {
    compiled: Arc<CompiledCondition>,
}

// === impl CompiledCondition ===

impl fmt::Debug for CompiledCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledCondition")
            .field("name", &self.name)
            .field("expression", &self.expression)
            .finish_non_exhaustive()
    }
}

impl PartialEq for CompiledCondition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.expression == other.expression
    }
}

impl Eq for CompiledCondition {}

// === impl ObjectCondition ===

impl ObjectCondition {
    /// A condition called `name`. `program` is the result of compiling `expression` in the
    /// environment of admission expressions.
    #[must_use]
    pub fn new(name: &str, expression: &str, program: Program) -> Self {
        let (name, expression) = (name.to_owned(), expression.to_owned());
        Self {
            compiled: Arc::new(CompiledCondition {
                name,
                expression,
                program,
            }),
        }
    }

    /// The name of the condition in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.compiled.name
    }

    /// The expression as written.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.compiled.expression
    }

    pub(crate) fn program(&self) -> &Program {
        &self.compiled.program
    }
}

// === impl Condition ===

impl Condition {
    /// Compiles the condition `name` in the environment of `version`.
    ///
    /// # Errors
    /// The first reason why `expression` cannot be used. Names that no request has are rejected
    /// here instead of at each evaluation.
    pub fn compile(version: Version, name: &str, expression: &str) -> Result<Self, ConditionError> {
        Self::compile_within(version, name, expression, &CompileBudget::new())
    }

    /// Like [`compile`](Self::compile), with a budget that several conditions share.
    ///
    /// # Errors
    /// The errors of [`compile`](Self::compile), or the budget is exhausted.
    pub fn compile_within(
        version: Version,
        name: &str,
        expression: &str,
        budget: &CompileBudget<'_>,
    ) -> Result<Self, ConditionError> {
        if expression.trim().is_empty() {
            return Err(ConditionError::Empty);
        }
        if nesting(expression) > MAX_NESTING {
            return Err(ConditionError::TooDeep);
        }
        let program = environment(version).compile_within(expression, &[Type::Bool], budget)?;
        let (name, expression) = (name.to_owned(), expression.to_owned());
        Ok(Self {
            compiled: Arc::new(CompiledCondition {
                name,
                expression,
                program,
            }),
        })
    }

    /// Evaluates all conditions, which must all hold. A false one takes precedence over one that
    /// could not be evaluated, and ends the evaluation.
    pub(crate) fn all<'c>(
        conditions: &'c [Self],
        activation: &RequestActivation<'_>,
    ) -> ConditionsResult<'c> {
        let mut failed = None;
        for condition in conditions {
            match condition.evaluate(activation) {
                Ok(true) => {}
                Ok(false) => return ConditionsResult::False(condition.name()),
                Err(error) => {
                    failed.get_or_insert((condition.name(), error));
                }
            }
        }
        failed.map_or(ConditionsResult::AllTrue, |(name, error)| {
            ConditionsResult::Error(name, error)
        })
    }

    /// The name of the condition in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.compiled.name
    }

    /// The expression as written.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.compiled.expression
    }

    /// Whether the condition holds for a request.
    ///
    /// # Errors
    /// The condition could not be evaluated: neither true nor false may be assumed.
    pub fn evaluate(&self, activation: &RequestActivation<'_>) -> Result<bool, ConditionEvaluationError> {
        match activation.evaluate(&self.compiled.program)? {
            Value::Bool(holds) => Ok(holds),
            _ => Err(ConditionEvaluationError::NotBool),
        }
    }
}

fn nesting(expression: &str) -> usize {
    let mut deepest = 0;
    let mut depth = 0_usize;
    for byte in expression.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

// The CEL variable `request` of conditions.

/// The only variable of conditions.
const REQUEST: &str = "request";

/// The CEL variable of one request, built when the first condition needs it, and the budget of each
/// condition. Every condition starts with a full budget, so that no policy can keep another one
/// from applying.
pub struct RequestActivation<'r> {
    attributes: &'r Attributes<'r>,
    request: OnceCell<Value<'r>>,
    /// The budget of each condition, at its beginning.
    full: Budget<'r>,
    /// The budget of the last condition, at its end.
    left: Cell<Budget<'r>>,
    cost: Cell<u64>,
}

/// The environment of conditions.
pub(crate) fn environment(version: Version) -> &'static Environment {
    static ENVIRONMENTS: PerVersion<Environment> = PerVersion::new();
    ENVIRONMENTS.of(version, Environment::authorization)
}

// === impl RequestActivation ===

impl<'r> RequestActivation<'r> {
    /// The maximum cost of a condition, in CEL cost units.
    pub const MAX_COST: u64 = cost::PER_BINDING;

    /// The maximum number of bytes that a condition may allocate.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Variables and budget for `attributes`, without a deadline.
    #[must_use]
    pub const fn new(attributes: &'r Attributes<'r>) -> Self {
        Self::within(attributes, Budget::new(Self::MAX_COST))
    }

    /// Sets a deadline, after which no condition can be evaluated.
    #[must_use]
    pub fn until(self, deadline: Deadline<'r>) -> Self {
        Self::within(self.attributes, deadline.budget(Self::MAX_COST))
    }

    const fn within(attributes: &'r Attributes<'r>, budget: Budget<'r>) -> Self {
        let full = budget.allocating(Self::MAX_BYTES);
        Self {
            attributes,
            request: OnceCell::new(),
            full,
            left: Cell::new(full),
            cost: Cell::new(0),
        }
    }

    /// The total cost of the conditions that were evaluated.
    pub(crate) const fn cost(&self) -> u64 {
        self.cost.get()
    }

    pub(crate) fn evaluate<'v>(&'v self, program: &'v Program) -> Result<Value<'v>, EvalError> {
        // `request` has the same slot in the environments of all versions.
        let environment = environment(Version::NEWEST);
        let mut variables = portcullis_cel::Activation::new(environment);
        if let Some(slot) = environment.slot(REQUEST) {
            variables.set(
                slot,
                self.request.get_or_init(|| request(self.attributes)).clone(),
            );
        }
        let mut budget = self.left.get().refilled(&self.full);
        let result = program.evaluate(&mut variables, &mut budget);
        self.left.set(budget);
        let cost = self.full.remaining().saturating_sub(budget.remaining());
        self.cost.set(self.cost.get().saturating_add(cost));
        result
    }
}

fn request<'r>(attributes: &'r Attributes<'r>) -> Value<'r> {
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    let mut entries = fields([
        ("user", Value::str(name)),
        ("uid", Value::str(uid)),
        ("groups", string_list(groups)),
    ]);
    let mut extras = Entries::new();
    for (name, values) in extra {
        extras.insert(Key::String(Text::Borrowed(name)), string_list(values));
    }
    entries.insert(field("extra"), Value::map(extras));
    match &attributes.target {
        Target::Resource(resource) => {
            entries.insert(field("resourceAttributes"), resource_attributes(resource));
        }
        Target::NonResource { path, verb } => {
            let attributes = fields([("path", Value::str(path)), ("verb", Value::str(verb))]);
            entries.insert(field("nonResourceAttributes"), Value::map(attributes));
        }
    }
    Value::map(entries)
}

fn resource_attributes<'r>(resource: &'r ResourceAttributes<'r>) -> Value<'r> {
    let mut entries = fields([
        ("namespace", Value::str(&resource.namespace)),
        ("verb", Value::str(&resource.verb)),
        ("group", Value::str(&resource.group)),
        ("version", Value::str(&resource.version)),
        ("resource", Value::str(&resource.resource)),
        ("subresource", Value::str(&resource.subresource)),
        ("name", Value::str(&resource.name)),
    ]);
    let (selectors, raw) = (&resource.selectors, &resource.raw_selectors);
    for (name, raw, requirements) in [
        ("fieldSelector", &raw.field, &selectors.field),
        ("labelSelector", &raw.label, &selectors.label),
    ] {
        if let Some(selector) = selector(raw, requirements) {
            entries.insert(field(name), selector);
        }
    }
    Value::map(entries)
}

/// The value of a selector; absent if the request has none. A raw selector hides the requirements.
fn selector<'r>(raw: &'r str, requirements: &'r [Requirement<'r>]) -> Option<Value<'r>> {
    let selector = if !raw.is_empty() {
        ("rawSelector", Value::str(raw))
    } else if !requirements.is_empty() {
        (
            "requirements",
            Value::list(requirements.iter().map(requirement).collect()),
        )
    } else {
        return None;
    };
    Some(Value::map(fields([selector])))
}

fn requirement<'r>(requirement: &'r Requirement<'r>) -> Value<'r> {
    Value::map(fields([
        ("key", Value::str(&requirement.key)),
        ("operator", Value::str(requirement.operator.as_str())),
        ("values", string_list(&requirement.values)),
    ]))
}

fn fields<'r, const N: usize>(fields: [(&'static str, Value<'r>); N]) -> Entries<'r> {
    let mut entries = Entries::new();
    for (name, value) in fields {
        entries.insert(field(name), value);
    }
    entries
}

fn field(name: &'static str) -> Key<'static> {
    Key::String(Text::Borrowed(name))
}

fn string_list<'r>(texts: &'r [Cow<'r, str>]) -> Value<'r> {
    Value::list(texts.iter().map(|text| Value::str(text)).collect())
}

#[cfg(test)]
mod tests;
