//! Converts one rule of a Deny: verbs to the operations of a ValidatingAdmissionPolicy, the rest to
//! its conditions.

use std::collections::BTreeSet;

use portcullis_policy::admission::CONNECT_VERBS;
use portcullis_policy::authorization::matching::{
    ClusterScoped, NamespacePattern, RequestedResource, ResourcePattern, Wildcard,
};
use portcullis_policy::authorization::{AuthorizationPolicy, Effect, NeverDeny, ResourceRule};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::model::NAMESPACE_NAME_LABEL;
use portcullis_policy::model::groups::ADMISSION;
use serde_json::{Value, json};

use super::subjects::{
    any, is_not_exempt, is_not_subject, is_one_of, is_subject, parenthesized, text, texts,
};
use crate::conversion::Conversion;

/// The condition that the request creates a Namespace: for authorization, it has no namespace then.
pub(crate) const NEW_NAMESPACE: &str = "(request.operation == 'CREATE' && request.resource.group == '' && \
                             request.resource.resource == 'namespaces')";

/// The condition that the request is for a Namespace.
const A_NAMESPACE: &str = "(request.resource.group == '' && request.resource.resource == 'namespaces')";

/// The condition that the request is part of a deletecollection.
const COLLECTION: &str = "request.operation == 'DELETE' && !has(request.name)";

/// The parts of a ValidatingAdmissionPolicy.
#[derive(Debug, Default)]
pub(crate) struct RuleParts {
    pub(crate) rules: Vec<Value>,
    pub(crate) conditions: Vec<Value>,
    pub(crate) variables: Vec<Value>,
    /// A further condition on the requests that are denied, which only a validation can evaluate.
    namespace_condition: Option<String>,
    pub(crate) operations: BTreeSet<ConvertedOperation>,
    names: BTreeSet<String>,
    /// Whether the matched requests may be part of a deletecollection.
    pub(crate) deletes_collections: bool,
    /// Whether the matched requests may create Namespaces.
    pub(crate) makes_namespaces: bool,
}

impl RuleParts {
    /// The parts for the rule `index` of `policy`, which is at `path`.
    pub(crate) fn of(
        document: &Document,
        policy: &AuthorizationPolicy,
        index: usize,
        path: &FieldPath,
        made: &mut Conversion,
    ) -> Self {
        let mut parts = Self {
            names: policy
                .conditions
                .iter()
                .map(|condition| condition.name().to_owned())
                .collect(),
            ..Self::default()
        };
        let Some(rule) = policy.resource_rules.get(index) else {
            return parts;
        };
        parts.add_operations(document, rule, path, made);
        parts.deletes_collections = rule.verbs.includes("deletecollection");
        parts.makes_namespaces = parts.may_make_namespaces(rule);
        parts.add_verbs(rule);
        parts.add_subresources(rule);
        parts.add_namespaces(rule);
        parts.add_names(rule);
        if rule.namespace_selector.is_some() {
            let selector = document.nearest(&path.field("namespaceSelector")).to_json();
            parts.select_namespaces(rule, &selector);
        }
        parts.selectors(document, rule, path, made);
        parts
    }

    /// Adds the conditions on the policy's subjects.
    pub(crate) fn add_subjects(&mut self, policy: &AuthorizationPolicy, never_deny: &NeverDeny) {
        if let Some(among) = is_subject(&policy.subjects) {
            self.condition("subjects", among);
        }
        if let Some(outside) = is_not_subject(&policy.exclude_subjects) {
            self.condition("exclude-subjects", outside);
        }
        self.condition("never-deny", is_not_exempt(policy, never_deny));
    }

    /// Adds a matchCondition, whose name is made unique.
    pub(crate) fn condition(&mut self, name: &str, expression: String) {
        let mut own = name.to_owned();
        while !self.names.insert(own.clone()) {
            own.push_str("-0");
        }
        self.conditions
            .push(json!({"name": own, "expression": expression}));
    }

    /// Adds a condition of the policy itself, which keeps its name. With a namespace selector,
    /// which only a validation can evaluate, it becomes a part of the validation: an error of a
    /// matchCondition would deny requests in every namespace.
    pub(crate) fn own_condition(&mut self, name: &str, expression: &str) {
        match &mut self.namespace_condition {
            Some(touched) => *touched = format!("({touched} && ({expression}))"),
            None => self
                .conditions
                .push(json!({"name": name, "expression": expression})),
        }
    }

    /// The validation. For a Deny, it fails if the namespace is selected and all objectConditions
    /// hold; for an Allow, it fails if they do not.
    pub(crate) fn validation(&self, policy: &AuthorizationPolicy) -> String {
        let of_object = policy.object_conditions.iter();
        let of_object = of_object.map(|one| format!("({})", one.expression().trim()));
        let of_object: Vec<String> = of_object.collect();
        let refused = self.namespace_condition.clone().into_iter();
        if policy.effect == Effect::Allow {
            let passes = refused.map(|touched| format!("!{touched}"));
            return passes
                .chain([of_object.join(" && ")])
                .collect::<Vec<_>>()
                .join(" || ");
        }
        match refused.chain(of_object).collect::<Vec<_>>().as_slice() {
            [] => "false".to_owned(),
            [only] => format!("!{only}"),
            several => format!("!({})", several.join(" && ")),
        }
    }

    fn add_operations(
        &mut self,
        document: &Document,
        rule: &ResourceRule,
        path: &FieldPath,
        made: &mut Conversion,
    ) {
        for pattern in &rule.resources {
            match operations_for(rule, pattern) {
                Ok(operations) => {
                    let words: Vec<&str> = operations.iter().map(|one| one.as_str()).collect();
                    self.rules.push(json!({
                        "apiGroups": rule.api_groups.as_slice(),
                        "apiVersions": ["*"],
                        "operations": words,
                        "resources": [as_admission_writes(pattern)],
                    }));
                    self.operations.extend(operations);
                }
                Err((field, reason)) => made.refuse(document, &path.field(field), reason),
            }
        }
        if self.operations.contains(&ConvertedOperation::Update) && !rule.verbs.includes("create") {
            made.note(
                document,
                &path.field("verbs"),
                "a server-side apply that creates the object is a create at admission, which this rule does not deny",
            );
        }
        let is_create = self.operations.contains(&ConvertedOperation::Create);
        if is_create && !rule.names.is_empty() {
            made.note(
                document,
                &path.field("names"),
                "as in authorization, `names` does not apply to the creation of an object",
            );
        }
    }

    /// A delete has a name, a deletecollection has none.
    fn add_verbs(&mut self, rule: &ResourceRule) {
        if !self.operations.contains(&ConvertedOperation::Delete) {
            return;
        }
        match (
            rule.verbs.includes("delete"),
            rule.verbs.includes("deletecollection"),
        ) {
            (true, false) => self.condition(
                "verbs",
                "request.operation != 'DELETE' || has(request.name)".to_owned(),
            ),
            (false, true) => self.condition(
                "verbs",
                "request.operation != 'DELETE' || !has(request.name)".to_owned(),
            ),
            _ => {}
        }
    }

    /// In authorization, `pods/*` matches only the subresources; at admission, it also matches
    /// pods.
    fn add_subresources(&mut self, rule: &ResourceRule) {
        let mut resources = Vec::new();
        for pattern in &rule.resources {
            if let ResourcePattern::Subresource(Wildcard::Named(resource), Wildcard::Any) = pattern
                && !rule.resources.iter().any(|other| includes(other, resource, ""))
            {
                resources.push(resource.as_str());
            }
        }
        if !resources.is_empty() {
            let is_one = is_one_of("request.resource.resource", &resources);
            self.condition("subresources", format!("!({is_one}) || has(request.subResource)"));
        }
    }

    fn add_namespaces(&mut self, rule: &ResourceRule) {
        if !rule.namespaces.is_empty() {
            let mut alternatives = self.namespace_is_one_of(&rule.namespaces);
            alternatives.extend(self.deletes_in_all_namespaces(rule));
            self.condition("namespaces", any(&alternatives));
        }
        if !rule.exclude_namespaces.is_empty() {
            let excluded = any(&self.namespace_is_one_of(&rule.exclude_namespaces));
            let mut alternatives = vec![format!("!({excluded})")];
            alternatives.extend(self.deletes_in_all_namespaces(rule));
            self.condition("exclude-namespaces", any(&alternatives));
        }
    }

    /// Conditions, of which one holds if the namespace of the request matches one of `patterns`.
    fn namespace_is_one_of(&self, patterns: &[NamespacePattern]) -> Vec<String> {
        let within = if self.makes_namespaces {
            format!("has(request.namespace) && !{NEW_NAMESPACE}")
        } else {
            "has(request.namespace)".to_owned()
        };
        let mut named = Vec::new();
        let mut alternatives = Vec::new();
        for pattern in patterns {
            match pattern {
                NamespacePattern::ClusterScope => alternatives.push(format!("!({within})")),
                NamespacePattern::Named(name) => named.push(name.as_str()),
                NamespacePattern::Prefix(prefix) if prefix.is_empty() => alternatives.push(within.clone()),
                NamespacePattern::Prefix(prefix) => {
                    alternatives.push(format!(
                        "{within} && request.namespace.startsWith({})",
                        text(prefix)
                    ));
                }
            }
        }
        if !named.is_empty() {
            let is_one = is_one_of("request.namespace", &named);
            alternatives.insert(0, format!("{within} && {is_one}"));
        }
        alternatives
    }

    /// The condition that the request deletes objects of all namespaces, to which a Deny for some
    /// namespaces applies. `None` if the rule's kinds are known to be cluster-scoped, or it does
    /// not deny such requests.
    fn deletes_in_all_namespaces(&self, rule: &ResourceRule) -> Option<String> {
        if !rule.verbs.includes("deletecollection") {
            return None;
        }
        let known = ClusterScoped::default();
        let scoped: Vec<(&str, &str)> = known
            .known()
            .filter(|(group, resource)| {
                let touches = |pattern: &ResourcePattern| match pattern {
                    ResourcePattern::Everything => true,
                    ResourcePattern::Resource(name) => name == resource,
                    ResourcePattern::Subresource(own, _) => own.includes(resource),
                };
                rule.api_groups.includes(group) && rule.resources.iter().any(touches)
            })
            .collect();
        let is_known = |pattern: &ResourcePattern| match pattern {
            ResourcePattern::Resource(name) => {
                let groups = rule.api_groups.as_slice();
                groups
                    .iter()
                    .all(|group| scoped.contains(&(group.as_str(), name.as_str())))
            }
            _ => false,
        };
        if rule.resources.iter().all(is_known) {
            return None;
        }
        let collection = format!("{COLLECTION} && !has(request.namespace)");
        if scoped.is_empty() {
            return Some(collection);
        }
        let scoped: Vec<String> = scoped
            .iter()
            .map(|(group, resource)| format!("{group}/{resource}"))
            .collect();
        let scoped = texts(scoped.iter().map(String::as_str));
        Some(format!(
            "{collection} && !(request.resource.group + '/' + request.resource.resource in {scoped})"
        ))
    }

    /// Authorization does not know the name of an object that is created, unless the request is for
    /// a subresource.
    fn add_names(&mut self, rule: &ResourceRule) {
        if rule.names.is_empty() {
            return;
        }
        let names: Vec<&str> = rule.names.iter().map(String::as_str).collect();
        let mut named = format!("has(request.name) && {}", is_one_of("request.name", &names));
        if self.operations.contains(&ConvertedOperation::Create) {
            named.push_str(" && (request.operation != 'CREATE' || has(request.subResource))");
        }
        let mut alternatives = vec![named];
        if rule.verbs.includes("deletecollection") {
            alternatives.push(COLLECTION.to_owned());
        }
        self.condition("names", any(&alternatives));
    }

    /// Selects namespaces by their stored labels. For a request for a Namespace, these are its own.
    fn select_namespaces(&mut self, rule: &ResourceRule, selector: &Value) {
        let stored = "namespaceObject != null && has(namespaceObject.metadata.labels) ? \
                      dyn(namespaceObject.metadata.labels) : dyn({})";
        let own = "oldObject != null && has(oldObject.metadata.labels) ? oldObject.metadata.labels : dyn({})";
        let (labels, within) = if rule.api_groups.includes("")
            && rule.resources.iter().any(touches_namespaces)
        {
            (
                format!("{A_NAMESPACE} ? ({own}) : ({stored})"),
                format!(
                    "({A_NAMESPACE} ? has(request.name) && request.operation != 'CREATE' : has(request.namespace))"
                ),
            )
        } else {
            (stored.to_owned(), "has(request.namespace)".to_owned())
        };
        let mut all = vec![within];
        all.extend(requirements(selector));
        let mut alternatives = vec![all.join(" && ")];
        alternatives.extend(self.deletes_in_all_namespaces(rule));
        let touched = parenthesized(&any(&alternatives));
        if touched.contains("variables.namespaceLabels") {
            self.variables
                .push(json!({"name": "namespaceLabels", "expression": labels}));
        }
        self.namespace_condition = Some(touched);
    }

    /// Refuses or ignores selectors, which admission does not see.
    fn selectors(&self, document: &Document, rule: &ResourceRule, path: &FieldPath, made: &mut Conversion) {
        if rule.selectors.is_empty() {
            return;
        }
        let path = path.field("unlessSelectors");
        if rule.verbs.includes("deletecollection") {
            let reason = "admission does not see the selectors of a deletecollection";
            made.refuse(document, &path, reason);
        } else {
            made.note(
                document,
                &path,
                "of the verbs of this rule none comes with selectors, so they are left out",
            );
        }
    }

    fn may_make_namespaces(&self, rule: &ResourceRule) -> bool {
        self.operations.contains(&ConvertedOperation::Create)
            && rule.api_groups.includes("")
            && rule
                .resources
                .iter()
                .any(|pattern| includes(pattern, "namespaces", ""))
    }
}

fn touches_namespaces(pattern: &ResourcePattern) -> bool {
    match pattern {
        ResourcePattern::Everything => true,
        ResourcePattern::Resource(name) => name == "namespaces",
        ResourcePattern::Subresource(resource, _) => resource.includes("namespaces"),
    }
}

/// Unlike in an admission policy, `*` includes subresources, and becomes `*/*`.
fn as_admission_writes(pattern: &ResourcePattern) -> String {
    match pattern {
        ResourcePattern::Everything => "*/*".to_owned(),
        pattern => pattern.to_string(),
    }
}

/// The requirements of a selector, as written, on `variables.namespaceLabels`.
fn requirements(selector: &Value) -> Vec<String> {
    let labels = "variables.namespaceLabels";
    let has = |key: &str| match key {
        NAMESPACE_NAME_LABEL => "true".to_owned(),
        key => format!("{} in {labels}", text(key)),
    };
    let is_one = |key: &str, values: &[&str]| match key {
        // Every namespace has this label, with its name as the value.
        NAMESPACE_NAME_LABEL => is_one_of("request.namespace", values),
        key => {
            let value = format!("{labels}[{}]", text(key));
            format!("{} && {}", has(key), is_one_of(&value, values))
        }
    };
    let mut all = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        all.push(is_one(key, &[value.as_str().unwrap_or_default()]));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        all.push(match expression["operator"].as_str() {
            Some("In") => is_one(key, &values),
            Some("NotIn") => format!("!({})", is_one(key, &values)),
            Some("Exists") => has(key),
            _ => format!("!({})", has(key)),
        });
    }
    all
}

/// Resources for which admission policies are never evaluated, with their verbs
/// (`pkg/kubeapiserver/admission/exclusion` of Kubernetes, and `isExcludedFromAPIHooks` of its
/// policy plugins).
const UNSEEN: [(&str, &str, &[&str]); 10] = [
    ("authentication.k8s.io", "selfsubjectreviews", REVIEWED),
    ("authentication.k8s.io", "tokenreviews", REVIEWED),
    ("authorization.k8s.io", "localsubjectaccessreviews", REVIEWED),
    ("authorization.k8s.io", "selfsubjectaccessreviews", REVIEWED),
    ("authorization.k8s.io", "selfsubjectrulesreviews", REVIEWED),
    ("authorization.k8s.io", "subjectaccessreviews", REVIEWED),
    (ADMISSION, "validatingadmissionpolicies", STORED),
    (ADMISSION, "validatingadmissionpolicybindings", STORED),
    (ADMISSION, "mutatingadmissionpolicies", STORED),
    (ADMISSION, "mutatingadmissionpolicybindings", STORED),
];

const REVIEWED: &[&str] = &["create"];
const STORED: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

/// An operation of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConvertedOperation {
    Create,
    Update,
    Delete,
    Connect,
}

impl ConvertedOperation {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The operations for one of the rule's resources.
///
/// # Errors
///
/// The field of the rule that cannot be converted, and the reason.
pub(crate) fn operations_for(
    rule: &ResourceRule,
    pattern: &ResourcePattern,
) -> Result<BTreeSet<ConvertedOperation>, (&'static str, String)> {
    if let Some(unseen) = unseen(rule, pattern) {
        let reason = format!("`{pattern}` includes `{unseen}`, which admission policies never see");
        return Err(("resources", reason));
    }
    let connects: Vec<_> = CONNECT_VERBS
        .iter()
        .filter(|(resource, subresource, _)| {
            rule.api_groups.includes("") && includes(pattern, resource, subresource)
        })
        .collect();
    if let ([(_, _, verbs)], true) = (connects.as_slice(), is_one(pattern) && is_core_alone(rule)) {
        let missing: Vec<&str> = verbs
            .iter()
            .copied()
            .filter(|verb| !rule.verbs.includes(verb))
            .collect();
        if missing.is_empty() {
            return Ok(BTreeSet::from([ConvertedOperation::Connect]));
        }
        let reason = format!(
            "admission cannot tell by which verb somebody connects to `{pattern}`: name {}, too",
            listed(&missing)
        );
        return Err(("verbs", reason));
    }
    let connecting = connects
        .iter()
        .find(|(_, _, verbs)| verbs.iter().any(|verb| rule.verbs.includes(verb)));
    if let Some((resource, subresource, verbs)) = connecting {
        let reason = format!(
            "`{pattern}` includes `{resource}/{subresource}`, and admission cannot tell by which of the verbs \
             {} somebody connects to that: name the resources without it",
            listed(verbs)
        );
        return Err(("resources", reason));
    }
    of_verbs(rule)
}

fn of_verbs(rule: &ResourceRule) -> Result<BTreeSet<ConvertedOperation>, (&'static str, String)> {
    let mut operations = BTreeSet::new();
    for verb in rule.verbs.as_slice() {
        let operation = match verb.as_str() {
            "create" => ConvertedOperation::Create,
            "update" | "patch" => ConvertedOperation::Update,
            "delete" | "deletecollection" => ConvertedOperation::Delete,
            "*" => {
                let reason = "`*` includes reads, which do not pass through admission: name the verbs that \
                    write";
                return Err(("verbs", reason.to_owned()));
            }
            "get" | "list" | "watch" => {
                return Err(("verbs", format!("`{verb}` reads, and reads pass no admission")));
            }
            verb => {
                return Err((
                    "verbs",
                    format!("no request with the verb `{verb}` passes admission"),
                ));
            }
        };
        operations.insert(operation);
    }
    for (named, other) in [("update", "patch"), ("patch", "update")] {
        if rule.verbs.includes(named) && !rule.verbs.includes(other) {
            let reason = format!("admission cannot distinguish `{named}` from `{other}`: name both");
            return Err(("verbs", reason));
        }
    }
    Ok(operations)
}

fn unseen(rule: &ResourceRule, pattern: &ResourcePattern) -> Option<&'static str> {
    UNSEEN
        .iter()
        .find(|(group, resource, verbs)| {
            rule.api_groups.includes(group)
                && includes(pattern, resource, "")
                && verbs.iter().any(|verb| rule.verbs.includes(verb))
        })
        .map(|(_, resource, _)| *resource)
}

/// Whether `pattern` matches this resource.
pub(crate) fn includes(pattern: &ResourcePattern, resource: &str, subresource: &str) -> bool {
    pattern.includes(&RequestedResource {
        resource,
        subresource: subresource.into(),
    })
}

const fn is_one(pattern: &ResourcePattern) -> bool {
    matches!(
        pattern,
        ResourcePattern::Subresource(Wildcard::Named(_), Wildcard::Named(_))
    )
}

fn is_core_alone(rule: &ResourceRule) -> bool {
    rule.api_groups.as_slice().iter().all(String::is_empty)
}

fn listed(verbs: &[&str]) -> String {
    let quoted: Vec<String> = verbs.iter().map(|verb| format!("`{verb}`")).collect();
    quoted.join(", ")
}
