//! The webhook configurations of a cluster that call this gateway: which requests are certain to
//! reach its `/validate` and `/mutate`, decided before their objects are known.
//!
//! A request is covered if one webhook is certain to be called for it, whatever its object is, and
//! the API server rejects the request if that call fails. What is uncertain is not covered.
//!
//! Follows `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic/webhook.go`.

use std::sync::Arc;

use super::environment::{
    AUTHORIZER, Expression, ExpressionEnvironment, NAMESPACE_OBJECT, OBJECT, OLD_OBJECT, PARAMS, REQUEST,
    REQUEST_RESOURCE,
};
use super::matching::{Equivalents, MatchPolicy, MatchRule, RuleTarget};
use super::variables::{UserView, optional};
use super::webhook::Webhook;
use super::{CONNECT_VERBS, CompiledMatchCondition, FailurePolicy, GroupVersionResource, Operation, Phase};
use crate::authorization::AdmissionCoverage;
use crate::authorization::matching::is_known_cluster_scoped;
use crate::model::{
    Attributes, Deadline, NAMESPACE_NAME_LABEL, ResourceAttributes, SelectorMatch, Target, Time,
};
use portcullis_cel::{Activation, Budget, Map, Object, ReadExtent, ReadStep, Value, Version, cost};

/// For how many seconds after a webhook configuration is written an API server may still use the
/// previous one.
const TAKES_EFFECT_SECONDS: i64 = 10;

/// The fields of `request` with the resource, whose version is not known.
const RESOURCES: [&str; 2] = ["resource", "requestResource"];

/// The most webhooks that a message names.
const MAX_NAMED: usize = 3;

/// The webhooks of a cluster whose path is one of this gateway's.
#[derive(Debug)]
pub struct GatewayWebhooks {
    webhooks: Vec<Registration>,
    equivalents: Equivalents,
    environment: ExpressionEnvironment,
}

/// A webhook of a cluster whose path is one of this gateway's.
#[derive(Debug)]
pub struct Registration {
    phase: Phase,
    webhook: Arc<Webhook>,
    since: Option<Time>,
    /// Why it covers no request at all, if so.
    unfit: Option<String>,
}

/// The variable `request` of `matchConditions`, before the object of the request is known.
#[derive(Debug)]
struct RequestBeforeAdmission<'r> {
    operation: Operation,
    request: &'r ResourceAttributes<'r>,
    is_cluster_scoped: bool,
    resource: AnyVersion<'r>,
    user: UserView<'r>,
}

/// The resource of a request, whose version is not known.
#[derive(Debug)]
struct AnyVersion<'r>(&'r ResourceAttributes<'r>);

// === impl GatewayWebhooks ===

impl GatewayWebhooks {
    /// Creates the registrations of a cluster with these `equivalents`; the expressions of
    /// `webhooks` are compiled for `version`.
    #[must_use]
    pub fn new(webhooks: Vec<Registration>, equivalents: Equivalents, version: Version) -> Self {
        Self {
            webhooks,
            equivalents,
            environment: ExpressionEnvironment::new(version, false),
        }
    }

    /// Whether both cover the same requests for the same reasons.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.webhooks.iter().zip(&other.webhooks);
        self.webhooks.len() == other.webhooks.len()
            && self.environment.version() == other.environment.version()
            && self.equivalents.custom() == other.equivalents.custom()
            && pairs.all(|(one, other)| {
                Arc::ptr_eq(&one.webhook, &other.webhook)
                    && (one.phase, one.since, &one.unfit) == (other.phase, other.since, &other.unfit)
            })
    }

    /// The webhooks that cover no request at all, with the reasons.
    pub fn unfit(&self) -> impl Iterator<Item = (&Webhook, &str)> {
        let all = self.webhooks.iter();
        all.filter_map(|one| Some((&*one.webhook, one.unfit.as_deref()?)))
    }

    /// The webhooks that may cover requests.
    pub fn fit(&self) -> impl Iterator<Item = &Webhook> {
        let fit = self.webhooks.iter().filter(|one| one.unfit.is_none());
        fit.map(|one| &*one.webhook)
    }

    fn of_phase(&self, phase: Phase) -> impl Iterator<Item = &Registration> {
        self.webhooks.iter().filter(move |one| one.phase == phase)
    }

    /// Since when a webhook of `phase` without match conditions is called for each of these writes.
    fn since(&self, phase: Phase, writes: &[(Operation, ResourceAttributes<'_>)]) -> Option<Time> {
        let covers_all = |one: &Registration| {
            let covers = |(operation, request): &(Operation, ResourceAttributes<'_>)| {
                self.has_rule(&one.webhook, *operation, request)
                    && one.selects_namespace_of(
                        request,
                        is_known_cluster_scoped(&request.group, &request.resource),
                    )
            };
            one.unfit.is_none() && one.webhook.match_conditions.is_empty() && writes.iter().all(covers)
        };
        let covering = self.of_phase(phase).filter(|one| covers_all(one));
        covering.filter_map(Registration::takes_effect).min()
    }

    /// Why `one` is not certain to be called for the request.
    fn why_not(
        &self,
        one: &Registration,
        (attributes, request): (&Attributes<'_>, &ResourceAttributes<'_>),
        is_cluster_scoped: bool,
        (now, deadline): (Time, Deadline<'_>),
    ) -> Option<String> {
        if one.unfit.is_some() {
            return one.unfit.clone();
        }
        if one.takes_effect().is_none_or(|from| now < from) {
            let seconds = TAKES_EFFECT_SECONDS;
            return Some(format!(
                "its configuration was written less than {seconds} seconds ago, so some API servers may not \
                use it yet"
            ));
        }
        let operations = operations(request);
        if let Some(missing) = operations
            .iter()
            .find(|operation| !self.has_rule(&one.webhook, **operation, request))
        {
            return Some(format!("no rule covers {} in every version", missing.as_str()));
        }
        if !one.selects_namespace_of(request, is_cluster_scoped) {
            return Some("its namespaceSelector excludes the namespace, or may exclude it".to_owned());
        }
        let conditions = &one.webhook.match_conditions;
        let mut budget = deadline.budget(cost::PER_MATCH_CONDITIONS);
        for operation in operations {
            let announced = RequestBeforeAdmission {
                operation: *operation,
                request,
                is_cluster_scoped,
                resource: AnyVersion(request),
                user: UserView::of(&attributes.user),
            };
            let is_true = |expression: &Expression, budget: &mut Budget<'_>| {
                let mut activation = announced.activation(&self.environment);
                let result = expression.program().evaluate(&mut activation, budget);
                matches!(result, Ok(Value::Bool(true)))
            };
            let unsure = conditions
                .iter()
                .find(|one| !is_true(&one.expression, &mut budget));
            if let Some(condition) = unsure {
                return Some(format!(
                    "its matchCondition `{}` is false, or not known to be true whatever the object is",
                    condition.name
                ));
            }
        }
        None
    }

    /// Whether a rule of `webhook` matches the operation in any version of the resource.
    fn has_rule(&self, webhook: &Webhook, operation: Operation, request: &ResourceAttributes<'_>) -> bool {
        let constraints = &webhook.constraints;
        constraints.rules.iter().any(|rule| {
            rule.api_versions.iter().any(|version| {
                let resource = GroupVersionResource {
                    group: request.group.as_ref().into(),
                    version: version.as_str().into(),
                    resource: request.resource.as_ref().into(),
                };
                let is_any = version == "*"
                    || constraints.match_policy == MatchPolicy::Equivalent
                        && self.equivalents.has(&resource, &request.subresource);
                is_any && matches(rule, &resource, operation, request)
            })
        })
    }
}

impl AdmissionCoverage for GatewayWebhooks {
    fn why_not_covered(
        &self,
        attributes: &Attributes<'_>,
        is_cluster_scoped: bool,
        (now, deadline): (Time, Deadline<'_>),
    ) -> Option<String> {
        let Target::Resource(request) = &attributes.target else {
            return Some("paths do not pass through admission".to_owned());
        };
        let mut reasons = Vec::new();
        for one in self.of_phase(Phase::Validate) {
            // The first webhook that covers the request ends the search.
            let why = self.why_not(one, (attributes, request), is_cluster_scoped, (now, deadline))?;
            let Webhook {
                configuration, name, ..
            } = &*one.webhook;
            reasons.push(format!("{configuration}/{name}: {why}"));
        }
        if reasons.is_empty() {
            return Some("no ValidatingWebhookConfiguration calls its `/validate`".to_owned());
        }
        reasons.truncate(MAX_NAMED);
        Some(reasons.join("; "))
    }

    fn covered_since(&self, group: &str, resource: &str) -> Option<Time> {
        let write = |operation, subresource: &'static str| {
            let request = ResourceAttributes {
                group: group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                ..ResourceAttributes::default()
            };
            (operation, request)
        };
        let of_object = [write(Operation::Create, ""), write(Operation::Update, "")];
        let of_status = [write(Operation::Update, "status")];
        let mut since = None;
        for phase in [Phase::Validate, Phase::Mutate] {
            for writes in [&of_object[..], &of_status[..]] {
                since = since.max(Some(self.since(phase, writes)?));
            }
        }
        since
    }
}

/// Whether the rule matches the request, ignoring its version.
fn matches(
    rule: &MatchRule,
    resource: &GroupVersionResource<'_>,
    operation: Operation,
    request: &ResourceAttributes<'_>,
) -> bool {
    rule.matches_in_any_version(RuleTarget {
        resource,
        subresource: &request.subresource,
        namespace: &request.namespace,
        name: &request.name,
        operation,
    })
}

/// Whether the request is for Namespaces, which have their own name as namespace.
fn is_of_namespaces(request: &ResourceAttributes<'_>) -> bool {
    request.group.is_empty() && request.resource == "namespaces"
}

/// All operations that admission may see for the request.
fn operations(request: &ResourceAttributes<'_>) -> &'static [Operation] {
    let is_this = |(name, subresource, _): &(&str, &str, _)| {
        request.group.is_empty() && request.resource == *name && request.subresource == *subresource
    };
    if CONNECT_VERBS.iter().any(is_this) {
        return &[Operation::Connect];
    }
    match request.verb.as_ref() {
        "create" => &[Operation::Create],
        // Updates and patches may create an object.
        "update" | "patch" => &[Operation::Update, Operation::Create],
        "delete" | "deletecollection" => &[Operation::Delete],
        _ => &[
            Operation::Create,
            Operation::Update,
            Operation::Delete,
            Operation::Connect,
        ],
    }
}

// === impl Registration ===

impl Registration {
    /// Creates the registration of a webhook of `phase`. Its configuration was last written at
    /// `since`, if known; `misses` says why its calls do not reach this gateway, if they do not.
    #[must_use]
    pub fn new(phase: Phase, webhook: Arc<Webhook>, since: Option<Time>, misses: Option<String>) -> Self {
        let why = misses.or_else(|| uncovering_reason(&webhook));
        let undated = || "it is not known when its configuration was written".to_owned();
        Self {
            unfit: why.or_else(|| since.is_none().then(undated)),
            phase,
            webhook,
            since,
        }
    }

    /// The time from which every API server calls it.
    fn takes_effect(&self) -> Option<Time> {
        Some(self.since?.plus_seconds(TAKES_EFFECT_SECONDS))
    }

    /// Whether `namespaceSelector` is certain to select the namespace of the object.
    fn selects_namespace_of(&self, request: &ResourceAttributes<'_>, is_cluster_scoped: bool) -> bool {
        let selector = &self.webhook.constraints.namespace_selector;
        let has_no_namespace = is_cluster_scoped && !is_of_namespaces(request);
        selector.is_empty()
            || has_no_namespace
            || !request.namespace.is_empty()
                && selector.selects_by_name(&request.namespace) == SelectorMatch::Yes
    }
}

/// Why a webhook covers no request, whichever server it calls.
fn uncovering_reason(webhook: &Webhook) -> Option<String> {
    let constraints = &webhook.constraints;
    let opaque = webhook
        .match_conditions
        .iter()
        .find(|one| uses_partly_known_value(&one.expression));
    if webhook.failure_policy != FailurePolicy::Fail {
        Some("its failurePolicy is not Fail".to_owned())
    } else if !constraints.object_selector.is_empty() {
        Some("it has an objectSelector".to_owned())
    } else if !constraints.namespace_selector.requires_only_the_name() {
        Some(format!(
            "its namespaceSelector uses labels other than `{NAMESPACE_NAME_LABEL}`"
        ))
    } else {
        let why = |one: &CompiledMatchCondition| {
            format!("its matchCondition `{}` uses `request` as a whole", one.name)
        };
        opaque.map(why)
    }
}

/// Whether an expression uses as a whole a part of `request` that is only partly known.
fn uses_partly_known_value(expression: &Expression) -> bool {
    let reads = expression.program().reads();
    let mut of_request = reads.iter().filter(|read| read.slot == REQUEST);
    of_request.any(|read| match read.path.as_slice() {
        [] | [ReadStep::Any, ..] => true,
        [ReadStep::Key(field)] => RESOURCES.contains(&&**field) && read.extent != ReadExtent::Presence,
        [ReadStep::Key(field), ReadStep::Any, ..] => RESOURCES.contains(&&**field),
        [ReadStep::Key(_), ..] => false,
    })
}

// === impl RequestBeforeAdmission ===

impl RequestBeforeAdmission<'_> {
    /// Whether its review has no namespace. For a Namespace, the review has its name.
    fn has_no_namespace(&self) -> bool {
        self.is_cluster_scoped && !is_of_namespaces(self.request)
    }

    /// The variables of expressions, of which only `request` is known.
    fn activation<'a>(&'a self, environment: &'a ExpressionEnvironment) -> Activation<'a> {
        let mut activation = Activation::new(environment.cel());
        for (slot, name) in [
            (OBJECT, "`object`"),
            (OLD_OBJECT, "`oldObject`"),
            (NAMESPACE_OBJECT, "`namespaceObject`"),
            (PARAMS, "`params`"),
            (AUTHORIZER, "`authorizer`"),
            (REQUEST_RESOURCE, "`authorizer.requestResource`"),
        ] {
            activation.set_unknown(slot, name);
        }
        activation.set(REQUEST, Value::Map(Map::Object(self)));
        activation
    }
}

/// The fields that are certain. If the name is not known, neither is `has(request.name)`.
impl Object for RequestBeforeAdmission<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        let request = self.request;
        match field {
            "resource" | "requestResource" => Some(Value::Map(Map::Object(&self.resource))),
            "subResource" | "requestSubResource" => optional(&request.subresource),
            "name" => optional(&request.name),
            "namespace" => optional(&request.namespace),
            "operation" => Some(Value::str(self.operation.as_str())),
            "userInfo" => Some(Value::Map(Map::Object(&self.user))),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<&str> {
        vec!["operation", "userInfo"]
    }

    fn unknown(&self, field: &str) -> Option<&'static str> {
        match field {
            "kind" | "requestKind" | "dryRun" | "options" => Some("what admission alone shows"),
            "name" if self.request.name.is_empty() => Some("`request.name`"),
            "namespace" if self.request.namespace.is_empty() && !self.has_no_namespace() => {
                Some("`request.namespace`")
            }
            _ => None,
        }
    }
}

impl Object for AnyVersion<'_> {
    fn field(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "group" => Some(Value::str(&self.0.group)),
            "resource" => Some(Value::str(&self.0.resource)),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<&str> {
        vec!["group", "resource", "version"]
    }

    fn unknown(&self, field: &str) -> Option<&'static str> {
        (field == "version").then_some("the version of the resource")
    }
}

#[cfg(test)]
mod tests;
