//! Conditions: CEL expressions over the spec of the review.
//!
//! ```text
//! load:     text -> check (names, types) -> Condition
//! request:  Attributes -> Activation -> Condition::evaluate -> bool | error
//! ```
//!
//! The variable is `request`, the spec of a SubjectAccessReview in its v1 form, whatever
//! the version of the review, as in kube-apiserver's authorizer match conditions
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

/// The deepest nesting of brackets, those in texts counted too: so deep the
/// parser goes on any thread's stack, in a build without optimisation as well.
pub const MAX_NESTING: usize = 64;

/// One condition, compiled. Cheap to clone.
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
    /// Nothing but white space.
    #[error("the expression is empty")]
    Empty,
    /// Deeper than [`MAX_NESTING`].
    #[error("the expression nests deeper than {MAX_NESTING} brackets")]
    TooDeep,
    /// No CEL, too long or too deep, a name or field that is not there, types
    /// that do not fit, or a result that is not statically bool.
    #[error(transparent)]
    Invalid(#[from] CompileError),
}

/// Why a condition has no result for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionEvaluationError {
    /// A field that is absent, an index out of range, a limit that is reached, ….
    #[error(transparent)]
    Failed(#[from] EvalError),
    /// The result is something else than true or false.
    #[error("the result is not a bool")]
    NotBool,
}

/// The result of several conditions.
#[derive(Debug)]
pub(crate) enum ConditionsResult<'c> {
    AllTrue,
    /// The one of this name is false.
    False(&'c str),
    /// None is false, and the one of this name has no result.
    Error(&'c str, ConditionEvaluationError),
}

/// One of `spec.objectConditions`: about the object of a request, which admission alone sees. Cheap to
/// clone.
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
    /// The condition `name` of `expression`, of which `program` was made in the environment of admission
    /// expressions.
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

    /// The name given to it in the manifest.
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
    /// The first reason why `expression` cannot be used. Names that no request
    /// has are refused here rather than at each evaluation.
    pub fn compile(version: Version, name: &str, expression: &str) -> Result<Self, ConditionError> {
        Self::compile_within(version, name, expression, &CompileBudget::new())
    }

    /// The same out of a budget that several conditions share.
    ///
    /// # Errors
    /// The same, or what the budget had not enough of.
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

    /// All must hold; a false one beats one that has no result, and ends it.
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

    /// The name given to it in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.compiled.name
    }

    /// The expression as written.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.compiled.expression
    }

    /// Whether it holds for a request. What it costs is taken from what is left
    /// to `activation`.
    ///
    /// # Errors
    /// There is no result: neither true nor false may be assumed.
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

/// The one variable of conditions.
const REQUEST: &str = "request";

/// The variables of one request, made when the first condition asks for them, and what each of
/// its conditions may take: one that takes much leaves others what they need, so that no policy
/// keeps another from applying.
pub struct RequestActivation<'r> {
    attributes: &'r Attributes<'r>,
    request: OnceCell<Value<'r>>,
    /// Of each condition, at its beginning.
    full: Budget<'r>,
    /// Of the last condition, at its end.
    left: Cell<Budget<'r>>,
    cost: Cell<u64>,
}

/// What conditions may use.
pub(crate) fn environment(version: Version) -> &'static Environment {
    static ENVIRONMENTS: PerVersion<Environment> = PerVersion::new();
    ENVIRONMENTS.of(version, Environment::authorization)
}

// === impl RequestActivation ===

impl<'r> RequestActivation<'r> {
    /// The most units that a condition may cost.
    pub const MAX_COST: u64 = cost::PER_BINDING;

    /// The most bytes that it may allocate.
    pub const MAX_BYTES: usize = 16 << 20;

    /// The variables for `attributes`.
    #[must_use]
    pub const fn new(attributes: &'r Attributes<'r>) -> Self {
        Self::within(attributes, Budget::new(Self::MAX_COST))
    }

    /// The same with a deadline: once it has passed, no condition has a result.
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

    /// What the conditions have cost that were evaluated, together.
    pub(crate) const fn cost(&self) -> u64 {
        self.cost.get()
    }

    pub(crate) fn evaluate<'v>(&'v self, program: &'v Program) -> Result<Value<'v>, EvalError> {
        // Where `request` stands is the same in each.
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
        ("groups", texts(groups)),
    ]);
    let mut extras = Entries::new();
    for (name, values) in extra {
        extras.insert(Key::String(Text::Borrowed(name)), texts(values));
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

/// There only where it says something; a raw one hides the requirements beside it.
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
        ("values", texts(&requirement.values)),
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

fn texts<'r>(texts: &'r [Cow<'r, str>]) -> Value<'r> {
    Value::list(texts.iter().map(|text| Value::str(text)).collect())
}

#[cfg(test)]
mod tests;
