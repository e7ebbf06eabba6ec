//! The CEL variables of admission expressions, for one policy and one request.
//!
//! ```text
//! object, oldObject ─────── nodes of the review's JSON ──┐
//! request ───────────────── a view of the Request ───────┼─▶ Activation ─▶ expressions
//! params, namespaceObject ─ nodes of manifests ──────────┤
//! authorizer ────────────── the cluster's own policies ──┘
//! variables.NAME ────────── programs, evaluated on first use
//! ```

use std::borrow::Cow;
use std::cell::Cell;

use super::authorizer::AuthorizerVariables;
use super::environment::{AUTHORIZER, Expression, ExpressionEnvironment, OLD_OBJECT, REQUEST_RESOURCE};
use super::matching::MatchedResource;
use super::run::{LastSelectedField, PolicyExpression, Recorder, TraceStep};
use super::{CompiledMatchCondition, FailurePolicy, GroupVersionKind, GroupVersionResource, Request};
use crate::model::{Deadline, User};
use portcullis_cel::json::Node;
use portcullis_cel::{Activation, Budget, EvalError, Map, Object, Program, Value, cost};

/// The variable `request`: the AdmissionRequest as the API server presents it to expressions. Empty
/// optional fields are absent.
///
/// `CreateAdmissionRequest` of `apiserver/pkg/admission/plugin/cel/condition.go`.
#[derive(Debug)]
pub(crate) struct RequestView<'r> {
    request: &'r Request<'r>,
    kind: &'r GroupVersionKind<'r>,
    resource: &'r GroupVersionResource<'r>,
    user: UserView<'r>,
    requester_unknown: bool,
}

/// `request.userInfo`.
#[derive(Debug)]
pub(crate) struct UserView<'r> {
    user: &'r User<'r>,
    extra: ExtraView<'r>,
}

#[derive(Debug)]
struct ExtraView<'r>(&'r User<'r>);

/// The values that all expressions of one evaluation of a policy share.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'g> {
    pub(crate) object: Option<Node<'g>>,
    pub(crate) old_object: Option<Node<'g>>,
    pub(crate) request: &'g RequestView<'g>,
    pub(crate) params: Option<Node<'g>>,
    pub(crate) namespace: NamespaceObject<'g>,
    pub(crate) access: &'g AuthorizerVariables<'g>,
    pub(crate) recorder: Option<&'g dyn Recorder>,
    /// The cost of expressions is added to this counter.
    pub(crate) spent: &'g Cell<u64>,
}

/// The variable `namespaceObject`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamespaceObject<'g> {
    /// `null`: the object is cluster-scoped.
    Null,
    /// The known Namespace.
    Known(Node<'g>),
    /// The Namespace is not known: using it is an error.
    Unknown,
}

// === impl Inputs ===

impl<'g> Inputs<'g> {
    /// Returns an evaluator for a set of expressions. As in Kubernetes, each set evaluates the
    /// variables that it uses itself, and their cost counts for the set.
    pub(crate) fn sequence(&self, environment: &'g ExpressionEnvironment) -> Sequence<'g> {
        Sequence::new(
            self.activation(environment),
            environment,
            self.recorder,
            self.spent,
        )
    }

    fn activation(&self, environment: &'g ExpressionEnvironment) -> Activation<'g> {
        let node = |node: Option<Node<'g>>| Some(node.map_or(Value::Null, Value::json));
        let namespace = match self.namespace {
            NamespaceObject::Null => Some(Value::Null),
            NamespaceObject::Known(object) => Some(Value::json(object)),
            NamespaceObject::Unknown => None,
        };
        // Variables are pushed in the order of their slots.
        let mut activation = Activation::with_capacity(environment.cel());
        activation.push(node(self.object));
        activation.push(node(self.old_object));
        activation.push(Some(Value::Map(Map::Object(self.request))));
        activation.push(namespace);
        activation.push(node(self.params));
        activation.push_lazy(&self.access.authorizer);
        activation.push_lazy(&self.access.request_resource);
        if self.request.requester_unknown {
            activation.set_unknown(OLD_OBJECT, "`oldObject`");
            activation.set_unknown(AUTHORIZER, "`authorizer`, which answers about the user,");
            activation.set_unknown(REQUEST_RESOURCE, "`authorizer`, which answers about the user,");
        }
        if let (Some(_), Some(object)) = (self.recorder, self.object) {
            activation.watch(object);
        }
        for variable in environment.variables() {
            activation.set_lazy(variable.slot, variable.expression.program());
        }
        activation
    }
}

// === impl RequestView ===

impl<'r> RequestView<'r> {
    /// The view for validations and mutations: resource and kind as matched.
    pub(crate) fn new(request: &'r Request<'r>, matched: &'r MatchedResource<'r>) -> Self {
        Self::with_resource(request, matched.resource(), matched.kind())
    }

    /// The view for match conditions: the requested resource, and the kind as matched.
    pub(crate) fn for_conditions(request: &'r Request<'r>, matched: &'r MatchedResource<'r>) -> Self {
        Self::with_resource(request, &request.request_resource, matched.kind())
    }

    /// Sets whether the requester is unknown.
    pub(crate) fn with_unknown_requester(mut self, requester_unknown: bool) -> Self {
        self.requester_unknown = requester_unknown;
        self
    }

    /// The view with resource and kind as the API server sent them.
    pub(crate) const fn as_sent(request: &'r Request<'r>) -> Self {
        Self::with_resource(request, &request.resource, &request.kind)
    }

    const fn with_resource(
        request: &'r Request<'r>,
        resource: &'r GroupVersionResource<'r>,
        kind: &'r GroupVersionKind<'r>,
    ) -> Self {
        Self {
            request,
            kind,
            resource,
            user: UserView::of(&request.user),
            requester_unknown: false,
        }
    }
}

impl Object for RequestView<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        let request = self.request;
        match field {
            "kind" => Some(Value::Map(Map::Object(self.kind))),
            "resource" => Some(Value::Map(Map::Object(self.resource))),
            "requestKind" => Some(Value::Map(Map::Object(&request.request_kind))),
            "requestResource" => Some(Value::Map(Map::Object(&request.request_resource))),
            "subResource" | "requestSubResource" => optional(&request.subresource),
            "name" => optional(&request.name),
            "namespace" => optional(&request.namespace),
            "operation" => Some(Value::str(request.operation.as_str())),
            "userInfo" => Some(Value::Map(Map::Object(&self.user))),
            "dryRun" => Some(Value::Bool(request.dry_run)),
            "options" => Some(request.options.map_or(Value::Null, Value::json)),
            _ => None,
        }
    }

    fn unknown(&self, field: &str) -> Option<&'static str> {
        (self.requester_unknown && field == "userInfo").then_some("`request.userInfo`")
    }

    fn fields(&self) -> Vec<&str> {
        let names = [
            "kind",
            "resource",
            "subResource",
            "requestKind",
            "requestResource",
            "requestSubResource",
            "name",
            "namespace",
            "operation",
            "userInfo",
            "dryRun",
            "options",
        ];
        names
            .into_iter()
            .filter(|name| self.field(name).is_some())
            .collect()
    }
}

impl Object for GroupVersionKind<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "group" => Some(Value::str(&self.group)),
            "version" => Some(Value::str(&self.version)),
            "kind" => Some(Value::str(&self.kind)),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<&str> {
        vec!["group", "version", "kind"]
    }
}

impl Object for GroupVersionResource<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "group" => Some(Value::str(&self.group)),
            "version" => Some(Value::str(&self.version)),
            "resource" => Some(Value::str(&self.resource)),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<&str> {
        vec!["group", "version", "resource"]
    }
}

impl<'r> UserView<'r> {
    pub(crate) const fn of(user: &'r User<'r>) -> Self {
        Self {
            user,
            extra: ExtraView(user),
        }
    }
}

impl Object for UserView<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "username" => optional(&self.user.name),
            "uid" => optional(&self.user.uid),
            "groups" if !self.user.groups.is_empty() => Some(list(&self.user.groups)),
            "extra" if !self.user.extra.is_empty() => Some(Value::Map(Map::Object(&self.extra))),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<&str> {
        let names = ["username", "uid", "groups", "extra"];
        names
            .into_iter()
            .filter(|name| self.field(name).is_some())
            .collect()
    }
}

impl Object for ExtraView<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        let (_, values) = self.0.extra.iter().rev().find(|(key, _)| key == field)?;
        Some(list(values))
    }

    fn fields(&self) -> Vec<&str> {
        self.0.extra.iter().map(|(key, _)| key.as_ref()).collect()
    }
}

/// The string; `None` if it is empty.
pub(crate) fn optional(text: &str) -> Option<Value<'_>> {
    (!text.is_empty()).then(|| Value::str(text))
}

fn list<'v>(items: &'v [Cow<'v, str>]) -> Value<'v> {
    Value::list(items.iter().map(|item| Value::str(item)).collect())
}

// Evaluates a sequence of expressions with a shared cost budget.

/// The result of one expression.
#[derive(Debug, Clone)]
pub enum ExpressionResult<'a> {
    /// There is no expression.
    Absent,
    /// Its value.
    Value(Value<'a>),
    /// Why it has no value.
    Failed(String),
}

/// Evaluates expressions that share their variables.
pub(crate) struct Sequence<'a> {
    activation: Activation<'a>,
    environment: &'a ExpressionEnvironment,
    recorder: Option<&'a dyn Recorder>,
    /// The cost of these and other expressions.
    spent: &'a Cell<u64>,
    /// The slots of the variables that were passed to the recorder.
    recorded: Vec<usize>,
}

// === impl ExpressionResult ===

impl ExpressionResult<'_> {
    /// The value, if it is a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(value) => value.as_str(),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

// === impl Sequence ===

impl<'a> Sequence<'a> {
    pub(crate) const fn new(
        activation: Activation<'a>,
        environment: &'a ExpressionEnvironment,
        recorder: Option<&'a dyn Recorder>,
        spent: &'a Cell<u64>,
    ) -> Self {
        Self {
            activation,
            environment,
            recorder,
            spent,
            recorded: Vec::new(),
        }
    }

    /// Evaluates the expressions in order.
    ///
    /// # Errors
    ///
    /// The budget is exhausted; then no expression has a result.
    pub(crate) fn run(
        mut self,
        expressions: impl Iterator<Item = (PolicyExpression<'a>, Option<&'a Expression>)>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<ExpressionResult<'a>>, EvalError> {
        let mut results = Vec::with_capacity(expressions.size_hint().0);
        for (part, expression) in expressions {
            results.push(match expression {
                None => ExpressionResult::Absent,
                Some(expression) => self.one(part, expression, budget)?,
            });
        }
        Ok(results)
    }

    pub(crate) fn one(
        &mut self,
        part: PolicyExpression<'a>,
        expression: &'a Expression,
        budget: &mut Budget<'_>,
    ) -> Result<ExpressionResult<'a>, EvalError> {
        self.program(part, expression.text(), expression.program(), budget)
    }

    /// Evaluates `program`, which was compiled from `text`.
    pub(crate) fn program(
        &mut self,
        part: PolicyExpression<'a>,
        text: &'a str,
        program: &'a Program,
        budget: &mut Budget<'_>,
    ) -> Result<ExpressionResult<'a>, EvalError> {
        let before = budget.remaining();
        if let Some(recorder) = self.recorder {
            recorder.begin();
        }
        let result = program.evaluate(&mut self.activation, budget);
        let cost = before.saturating_sub(budget.remaining());
        self.spent.set(self.spent.get().saturating_add(cost));
        if let Some(recorder) = self.recorder {
            self.record_variables(recorder);
            recorder.record(TraceStep::Expression {
                part,
                text,
                program,
                result: result.as_ref(),
                read: LastSelectedField(&self.activation),
                cost,
            });
        }
        match result {
            Ok(value) => Ok(ExpressionResult::Value(value)),
            Err(EvalError::OutOfBudget) => Err(EvalError::OutOfBudget),
            Err(error) => Ok(ExpressionResult::Failed(format!(
                "expression '{text}' resulted in error: {error}"
            ))),
        }
    }

    #[cold]
    fn record_variables(&mut self, recorder: &dyn Recorder) {
        for variable in self.environment.variables() {
            let Some(result) = self.activation.outcome(variable.slot) else {
                continue;
            };
            if !self.recorded.contains(&variable.slot) {
                self.recorded.push(variable.slot);
                recorder.record(TraceStep::Variable {
                    name: &variable.name,
                    program: variable.expression.program(),
                    result,
                });
            }
        }
    }
}

// Match conditions of policies and webhooks
// (`apiserver/pkg/admission/plugin/webhook/matchconditions/matcher.go`).

/// The result of all match conditions together: a false condition takes precedence over a failed
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchConditions {
    /// All conditions are true.
    Match,
    /// A condition is false, which is named, or one failed and the failure policy is Ignore.
    NoMatch(Option<String>),
    /// A condition failed, none is false, and the failure policy is Fail.
    Error(String),
}

impl MatchConditions {
    /// Evaluates all `conditions` with a cost budget of their own.
    pub(crate) fn evaluate<'g>(
        conditions: &'g [CompiledMatchCondition],
        policy: FailurePolicy,
        environment: &'g ExpressionEnvironment,
        inputs: &Inputs<'g>,
        deadline: Deadline<'g>,
    ) -> Self {
        if conditions.is_empty() {
            return Self::Match;
        }
        let expressions = conditions.iter().map(|condition| {
            (
                PolicyExpression::Condition(&condition.name),
                Some(&condition.expression),
            )
        });
        let mut budget = deadline.budget(cost::PER_MATCH_CONDITIONS);
        match inputs.sequence(environment).run(expressions, &mut budget) {
            Ok(results) => Self::combine(
                conditions.iter().map(|one| one.name.as_str()).zip(&results),
                policy,
            ),
            Err(error) => Self::fail(policy, error.to_string()),
        }
    }

    /// Combines the results of named conditions.
    pub fn combine<'c, 'v: 'c>(
        results: impl IntoIterator<Item = (&'c str, &'c ExpressionResult<'v>)>,
        policy: FailurePolicy,
    ) -> Self {
        let mut failures: Vec<&str> = Vec::new();
        for (name, result) in results {
            match result {
                ExpressionResult::Value(Value::Bool(false)) => return Self::NoMatch(Some(name.to_owned())),
                // Like `utilerrors.NewAggregate`, which drops repeated messages.
                ExpressionResult::Failed(failure) if !failures.contains(&failure.as_str()) => {
                    failures.push(failure)
                }
                _ => {}
            }
        }
        match failures.as_slice() {
            [] => Self::Match,
            [only] => Self::fail(policy, (*only).to_owned()),
            several => Self::fail(policy, format!("[{}]", several.join(", "))),
        }
    }

    fn fail(policy: FailurePolicy, message: String) -> Self {
        match policy {
            FailurePolicy::Fail => Self::Error(message),
            FailurePolicy::Ignore => Self::NoMatch(None),
        }
    }
}
