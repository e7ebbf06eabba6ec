//! Authorization checks (apiserver `pkg/cel/library/authz.go`).

use std::fmt;
use std::sync::Arc;

use super::formats;
use super::standard::{Computed, no_such_overload};
use crate::evaluate::Evaluation;
use crate::function::{Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Bool, String as Str};
use crate::value::{Opaque, Text, Value};
use crate::{EvalError, cost};

/// Decides the authorization checks of expressions. The caller of an evaluation implements it.
///
/// An expression may make the same check many times; caching is left to the implementation.
pub trait AuthorizeAccess: Sync {
    /// Decides a check. Once `expired` returns `true`, the result is meaningless.
    fn authorize(
        &self,
        question: AccessCheckAttributes,
        expired: &dyn Fn() -> bool,
    ) -> Arc<AccessCheckDecision>;
}

/// An authorization check: may this user do this?
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AccessCheckAttributes {
    /// The namespace and name of the service account that is checked; `None` for the user of the
    /// request.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The path, if this is not a request for a resource.
    pub path: Option<String>,
    /// The API group. The API version is `*`.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource; empty if there is none.
    pub subresource: String,
    /// The namespace; empty if there is none.
    pub namespace: String,
    /// The name of the object; empty if there is none.
    pub name: String,
    /// The field selector as written; empty if there is none.
    pub field_selector: String,
    /// The label selector as written; empty if there is none.
    pub label_selector: String,
}

/// The decision of the authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessCheckDecision {
    /// Whether access is allowed.
    pub allowed: bool,
    /// The reason of the decision.
    pub reason: String,
    /// The error, if there was one.
    pub error: Option<String>,
}

/// An authorization check that is still being built.
#[derive(Clone)]
pub struct AccessCheckBuilder<'a> {
    pub(crate) host: &'a dyn AuthorizeAccess,
    pub(crate) stage: CheckStage,
    pub(crate) question: AccessCheckAttributes,
}

/// How much of a check is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckStage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl AccessCheckAttributes {
    /// The bytes of all strings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let account = self.service_account.iter();
        let account = account.flat_map(|(namespace, name)| [namespace, name]);
        let texts = [
            &self.verb,
            &self.group,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector,
            &self.label_selector,
        ];
        let texts = texts.into_iter().chain(&self.path).chain(account);
        texts.map(String::len).sum()
    }
}

impl AccessCheckDecision {
    /// The bytes of all strings.
    pub(crate) fn bytes(&self) -> usize {
        self.reason.len() + self.error.as_ref().map_or(0, String::len)
    }
}

impl AccessCheckBuilder<'_> {
    pub(crate) const fn type_name(&self) -> &'static str {
        match self.stage {
            CheckStage::Authorizer => "kubernetes.authorization.Authorizer",
            CheckStage::Path => "kubernetes.authorization.PathCheck",
            CheckStage::Group => "kubernetes.authorization.GroupCheck",
            CheckStage::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }
}

impl fmt::Debug for AccessCheckBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("stage", &self.stage)
            .field("question", &self.question)
            .finish()
    }
}

impl<'a> Value<'a> {
    /// The value of the variable `authorizer`.
    #[must_use]
    pub fn authorizer(host: &'a dyn AuthorizeAccess) -> Self {
        let check = AccessCheckBuilder {
            host,
            stage: CheckStage::Authorizer,
            question: AccessCheckAttributes::default(),
        };
        Self::Opaque(Opaque::Check(Arc::new(check)))
    }

    /// The value of the variable `authorizer.requestResource`. `question` has the group, resource,
    /// subresource, namespace and name of the request.
    #[must_use]
    pub fn resource_check(host: &'a dyn AuthorizeAccess, question: AccessCheckAttributes) -> Self {
        Self::Opaque(Opaque::Check(Arc::new(AccessCheckBuilder {
            host,
            stage: CheckStage::Resource,
            question,
        })))
    }
}

/// The type of the variable `authorizer`.
pub(crate) const AUTHORIZER: Type = Type::Opaque("kubernetes.authorization.Authorizer");
/// The type of the variable `authorizer.requestResource`.
pub(crate) const RESOURCE_CHECK: Type = Type::Opaque("kubernetes.authorization.ResourceCheck");
const PATH_CHECK: Type = Type::Opaque("kubernetes.authorization.PathCheck");
const GROUP_CHECK: Type = Type::Opaque("kubernetes.authorization.GroupCheck");
const DECISION: Type = Type::Opaque("kubernetes.authorization.Decision");

pub(crate) fn functions() -> Vec<Overload> {
    let nominal = Cost::OfFunction(|_, _| 1);
    let asked = Cost::OfFunction(|_, _| cost::AUTHORIZER_CHECK);
    let of = |id, name, from: Type, to: Type, apply: Apply| {
        Overload::member(id, name, [from, Str], to, apply).cost(nominal)
    };
    let answer =
        |id, name, to: Type, apply: Apply| Overload::member(id, name, [DECISION], to, apply).cost(nominal);
    vec![
        of("authorizer_path", "path", AUTHORIZER, PATH_CHECK, path),
        of("authorizer_group", "group", AUTHORIZER, GROUP_CHECK, group),
        Overload::member(
            "authorizer_serviceaccount",
            "serviceAccount",
            [AUTHORIZER, Str, Str],
            AUTHORIZER,
            service_account,
        )
        .cost(nominal),
        of(
            "groupcheck_resource",
            "resource",
            GROUP_CHECK,
            RESOURCE_CHECK,
            resource,
        ),
        of(
            "resourcecheck_subresource",
            "subresource",
            RESOURCE_CHECK,
            RESOURCE_CHECK,
            subresource,
        ),
        of(
            "resourcecheck_namespace",
            "namespace",
            RESOURCE_CHECK,
            RESOURCE_CHECK,
            namespace,
        ),
        of("resourcecheck_name", "name", RESOURCE_CHECK, RESOURCE_CHECK, name),
        of("pathcheck_check", "check", PATH_CHECK, DECISION, check).cost(asked),
        of("resourcecheck_check", "check", RESOURCE_CHECK, DECISION, check).cost(asked),
        answer("decision_errored", "errored", Bool, errored),
        answer("decision_error", "error", Str, error),
        answer("decision_allowed", "allowed", Bool, allowed),
        answer("decision_reason", "reason", Str, reason),
    ]
}

/// The selectors of a check, added in 1.31.
pub(crate) fn selectors() -> Vec<Overload> {
    let parsed = Cost::OfFunction(|arguments, _| {
        arguments
            .get(1)
            .map_or(1, |text| selector(cost::plain_size(text)))
    });
    let of = |id, name, apply: Apply| {
        Overload::member(id, name, [RESOURCE_CHECK, Str], RESOURCE_CHECK, apply).cost(parsed)
    };
    vec![
        of("authorizer_fieldselector", "fieldSelector", field_selector),
        of("authorizer_labelselector", "labelSelector", label_selector),
    ]
}

/// The cost of parsing a selector, and of making a requirement for every two characters.
fn selector(size: u64) -> u64 {
    let requirements = size.div_ceil(2);
    cost::LIST + cost::traverse(size) + requirements.saturating_mul(cost::LIST + cost::OBJECT)
}

/// The check and the string to add to it, if the check is at `stage`.
fn check_and_string<'l, 'a>(
    arguments: &'l [Value<'a>],
    stage: CheckStage,
) -> Result<(&'l AccessCheckBuilder<'a>, &'l Text<'a>), EvalError> {
    match arguments {
        [Value::Opaque(Opaque::Check(check)), Value::String(text)] if check.stage == stage => {
            Ok((check, text))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the check changed by `change`, which adds `added` bytes. The memory is checked before
/// the strings are copied.
fn with_change<'a>(
    own: &Evaluation<'_, 'a>,
    check: &AccessCheckBuilder<'a>,
    stage: CheckStage,
    added: usize,
    change: impl FnOnce(&mut AccessCheckAttributes),
) -> Computed<'a> {
    own.has_room(check.question.bytes().saturating_add(added))?;
    let mut question = check.question.clone();
    change(&mut question);
    Ok(Value::Opaque(Opaque::Check(Arc::new(AccessCheckBuilder {
        host: check.host,
        stage,
        question,
    }))))
}

fn path<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, path) = check_and_string(arguments, CheckStage::Authorizer)?;
    if path.trim().is_empty() {
        return Err(EvalError::failed("path must not be empty"));
    }
    with_change(own, check, CheckStage::Path, path.len(), |question| {
        question.path = Some(path.to_string())
    })
}

fn group<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, group) = check_and_string(arguments, CheckStage::Authorizer)?;
    with_change(own, check, CheckStage::Group, group.len(), |question| {
        question.group = group.to_string()
    })
}

fn service_account<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [
        Value::Opaque(Opaque::Check(check)),
        Value::String(namespace),
        Value::String(name),
    ] = arguments
    else {
        return no_such_overload();
    };
    if check.stage != CheckStage::Authorizer {
        return no_such_overload();
    }
    if !formats::dns1123_subdomain(name, false).is_empty() {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !formats::dns1123_label(namespace, false).is_empty() {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let added = namespace.len() + name.len();
    let account = (namespace.to_string(), name.to_string());
    with_change(own, check, CheckStage::Authorizer, added, |question| {
        question.service_account = Some(account)
    })
}

fn resource<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, resource) = check_and_string(arguments, CheckStage::Group)?;
    if resource.trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    with_change(own, check, CheckStage::Resource, resource.len(), |question| {
        question.resource = resource.to_string()
    })
}

fn subresource<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, text) = check_and_string(arguments, CheckStage::Resource)?;
    with_change(own, check, CheckStage::Resource, text.len(), |question| {
        question.subresource = text.to_string()
    })
}

fn namespace<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, text) = check_and_string(arguments, CheckStage::Resource)?;
    with_change(own, check, CheckStage::Resource, text.len(), |question| {
        question.namespace = text.to_string()
    })
}

fn name<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, text) = check_and_string(arguments, CheckStage::Resource)?;
    with_change(own, check, CheckStage::Resource, text.len(), |question| {
        question.name = text.to_string()
    })
}

fn field_selector<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, text) = check_and_string(arguments, CheckStage::Resource)?;
    with_change(own, check, CheckStage::Resource, text.len(), |question| {
        question.field_selector = text.to_string()
    })
}

fn label_selector<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (check, text) = check_and_string(arguments, CheckStage::Resource)?;
    with_change(own, check, CheckStage::Resource, text.len(), |question| {
        question.label_selector = text.to_string()
    })
}

fn check<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Check(check)), Value::String(verb)] = arguments else {
        return no_such_overload();
    };
    if !matches!(check.stage, CheckStage::Path | CheckStage::Resource) {
        return no_such_overload();
    }
    own.afford(cost::AUTHORIZER_CHECK)?;
    own.has_room(check.question.bytes().saturating_add(verb.len()))?;
    let question = AccessCheckAttributes {
        verb: verb.to_string(),
        ..check.question.clone()
    };
    let answer = check.host.authorize(question, own.expired());
    Ok(Value::Opaque(Opaque::Decision(answer)))
}

fn errored<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Decision(answer))] => Ok(Value::Bool(answer.error.is_some())),
        _ => no_such_overload(),
    }
}

fn error<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Decision(answer))] => {
            let error = answer.error.as_deref().unwrap_or_default();
            own.allocate_text(error.len())?;
            Ok(Value::string(error))
        }
        _ => no_such_overload(),
    }
}

fn allowed<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Decision(answer))] => Ok(Value::Bool(answer.allowed)),
        _ => no_such_overload(),
    }
}

fn reason<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Decision(answer))] => {
            own.allocate_text(answer.reason.len())?;
            Ok(Value::string(answer.reason.as_str()))
        }
        _ => no_such_overload(),
    }
}
