//! What admission's policies and webhooks apply to: rules, selectors, equivalence.

use std::collections::BTreeMap;

use portcullis_cel::json::Document;
use portcullis_policy::admission::matching::{
    Constraints, Equivalents, FixedNamespaces, MatchError, MatchInput, MatchPolicy, MatchRule,
    MatchedResource, MissingNamespace, NoRules, Operations, RuleScope, RuleTarget, selects_namespace,
    selects_object,
};
use portcullis_policy::admission::{GroupVersionKind, GroupVersionResource, Operation, Request};
use portcullis_policy::model::User;
use portcullis_policy::model::{LabelExpression, LabelSelector};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};

pub(crate) const RULES: Table = &[
    ("match", rule_matches),
    ("exemptAdmissionConfiguration", exempt),
    ("excludedVirtualResource", excluded),
];
pub(crate) const NAMESPACES: Table = &[
    ("matchNamespaceSelector", namespace_selector),
    ("namespaceLabels", namespace_labels),
];
pub(crate) const OBJECTS: Table = &[("matchObjectSelector", object_selector)];
pub(crate) const HOOKS: Table = &[("shouldCallHook", should_call_hook)];
pub(crate) const POLICIES: Table = &[("matchResources", match_resources)];

// === checks ===

fn rule_matches(case: &Case<'_>) -> Result<(), Mismatch> {
    let attributes = &case.input()["attributes"];
    let resource = resource(attributes);
    let Some(operation) = Operation::parse(&text(attributes, "operation")) else {
        return case.same("match", &Value::Bool(false), &case.expect()["match"]);
    };
    let target = RuleTarget {
        resource: &resource,
        subresource: &text(attributes, "subresource"),
        namespace: &text(attributes, "namespace"),
        name: &text(attributes, "name"),
        operation,
    };
    let matches = rule(&case.input()["rule"]).matches(target);
    case.same("match", &Value::Bool(matches), &case.expect()["match"])
}

fn exempt(case: &Case<'_>) -> Result<(), Mismatch> {
    let exempt = kind(&case.input()["kind"]).is_admission_configuration();
    case.same("exempt", &Value::Bool(exempt), &case.expect()["exempt"])
}

fn excluded(case: &Case<'_>) -> Result<(), Mismatch> {
    let resource = resource(&case.input()["groupResource"]);
    let expected = text(case.expect(), "policies") == "always excluded";
    case.same("excluded", &resource.is_virtual(), &expected)
}

fn namespace_selector(case: &Case<'_>) -> Result<(), Mismatch> {
    let object = labelled(&case.input()["objectLabels"]);
    let namespaces = namespaces([&case.file["storedNamespaces"], &case.file["liveOnlyNamespaces"]]);
    let selected = match selector(&case.input()["selector"]) {
        None => json!({"error": true, "code": 500}),
        Some(selector) => with_request(&case.input()["attributes"], &object, |request| {
            let found = selects_namespace(
                &selector,
                request,
                request.object,
                &namespaces,
                MissingNamespace::Fail,
            );
            match found {
                Ok(matches) => json!({"match": matches}),
                Err(MatchError::UnknownNamespace { .. }) => json!({"error": true, "code": 404}),
                Err(_) => json!({"error": true, "code": 500}),
            }
        }),
    };
    case.same("decision", &selected, case.expect())
}

/// The labels are those by which a selector that asks for each selects.
fn namespace_labels(case: &Case<'_>) -> Result<(), Mismatch> {
    let object = labelled(&case.input()["objectLabels"]);
    let namespaces = namespaces([&case.input()["storedNamespaces"]]);
    let selector = selector(&json!({"matchLabels": case.expect()["labels"]}));
    let selector = selector.ok_or_else(|| Mismatch::new("labels that no selector can ask for"))?;
    let found = with_request(&case.input()["attributes"], &object, |request| {
        selects_namespace(
            &selector,
            request,
            request.object,
            &namespaces,
            MissingNamespace::Fail,
        )
    });
    case.same("selected", &found, &Ok(true))
}

fn object_selector(case: &Case<'_>) -> Result<(), Mismatch> {
    let document = |value: &Value| (!value.is_null()).then(|| Document::parse(value.to_string()).unwrap());
    let (object, old) = (
        document(&case.input()["object"]),
        document(&case.input()["oldObject"]),
    );
    let found = match selector(&case.input()["selector"]) {
        None => json!({"error": true, "code": 500}),
        Some(selector) => {
            let root = |document: &Option<Document<'static>>| document.clone();
            let (object, old) = (root(&object), root(&old));
            let matches = selects_object(
                &selector,
                object.as_ref().map(Document::root),
                old.as_ref().map(Document::root),
            );
            json!({"match": matches})
        }
    };
    case.same("decision", &found, case.expect())
}

fn should_call_hook(case: &Case<'_>) -> Result<(), Mismatch> {
    let webhook = &case.input()["webhook"];
    let constraints = Constraints {
        rules: rules(&webhook["rules"]),
        no_rules: NoRules::Nothing,
        ..constraints(webhook)
    };
    let conditions = case.input()["matchConditionsResult"]["matches"]
        .as_bool()
        .unwrap_or(true);
    let found = matched(case, &constraints, |matched| {
        match matched.filter(|_| conditions) {
            None => json!({"call": false}),
            Some(matched) => json!({
                "call": true,
                "resource": shown_resource(matched.resource()),
                "subresource": case.input()["attributes"]["subresource"],
                "kind": shown_kind(matched.kind()),
            }),
        }
    });
    case.same("decision", &found, case.expect())
}

fn match_resources(case: &Case<'_>) -> Result<(), Mismatch> {
    let written = &case.input()["matchResources"];
    let constraints = Constraints {
        rules: rules(&written["resourceRules"]),
        exclude_rules: rules(&written["excludeResourceRules"]),
        ..constraints(written)
    };
    let names_resource = case.expect().get("resource").is_some();
    let found = matched(case, &constraints, |matched| match matched {
        None => json!({"matches": false}),
        Some(matched) => {
            let mut shown = json!({"matches": true, "kind": shown_kind(matched.kind())});
            if names_resource {
                shown["resource"] = shown_resource(matched.resource());
            }
            shown
        }
    });
    case.same("decision", &found, case.expect())
}

// === what cases say, as the engine has it ===

fn matched(
    case: &Case<'_>,
    constraints: &Constraints,
    show: impl Fn(Option<MatchedResource<'_>>) -> Value,
) -> Value {
    let object = labelled(&Value::Null);
    let namespaces = namespaces([&json!({"ns": null})]);
    let equivalents = equivalents(&case.file["equivalenceRegistry"]);
    with_request(&case.input()["attributes"], &object, |request| {
        let asked = kind(&case.input()["requestKind"]);
        let request = Request {
            kind: asked.clone(),
            request_kind: asked,
            ..request.clone()
        };
        let subject = MatchInput {
            request: &request,
            object: request.object,
            namespaces: &namespaces,
            missing: MissingNamespace::Fail,
            equivalents: &equivalents,
        };
        match constraints.matches(subject) {
            Ok(matched) => show(matched),
            Err(fault) => json!({"error": fault.to_string()}),
        }
    })
}

fn with_request<T>(attributes: &Value, object: &Document<'static>, run: impl Fn(&Request<'_>) -> T) -> T {
    let (resource, written) = (resource(attributes), Document::parse("{}").unwrap());
    let request = Request {
        uid: "".into(),
        kind: GroupVersionKind::default(),
        resource: resource.clone(),
        subresource: text(attributes, "subresource").into(),
        request_kind: GroupVersionKind::default(),
        request_resource: resource,
        name: text(attributes, "name").into(),
        namespace: text(attributes, "namespace").into(),
        operation: Operation::parse(&text(attributes, "operation")).unwrap(),
        user: User::default(),
        object: Some(object.root()),
        old_object: None,
        options: None,
        dry_run: false,
        written: written.root(),
    };
    run(&request)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

fn resource(value: &Value) -> GroupVersionResource<'static> {
    GroupVersionResource {
        group: text(value, "group").into(),
        version: text(value, "version").into(),
        resource: text(value, "resource").into(),
    }
}

fn kind(value: &Value) -> GroupVersionKind<'static> {
    GroupVersionKind {
        group: text(value, "group").into(),
        version: text(value, "version").into(),
        kind: text(value, "kind").into(),
    }
}

fn shown_resource(resource: &GroupVersionResource<'_>) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.resource})
}

fn shown_kind(kind: &GroupVersionKind<'_>) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

pub(crate) fn rules(value: &Value) -> Vec<MatchRule> {
    value.as_array().into_iter().flatten().map(rule).collect()
}

fn rule(value: &Value) -> MatchRule {
    MatchRule {
        operations: Operations::of(&texts(&value["operations"])),
        api_groups: texts(&value["apiGroups"]),
        api_versions: texts(&value["apiVersions"]),
        resources: texts(&value["resources"]),
        scope: value["scope"].as_str().map_or(RuleScope::All, RuleScope::from),
        resource_names: texts(&value["resourceNames"]),
    }
}

/// Selectors and policy; where cases leave the policy out, it has no default.
fn constraints(value: &Value) -> Constraints {
    Constraints {
        namespace_selector: selector(&value["namespaceSelector"]).unwrap(),
        object_selector: selector(&value["objectSelector"]).unwrap(),
        match_policy: match value["matchPolicy"].as_str() {
            Some("Equivalent") => MatchPolicy::Equivalent,
            _ => MatchPolicy::Exact,
        },
        ..Constraints::default()
    }
}

/// `None` where Kubernetes has no such selector.
pub(crate) fn selector(value: &Value) -> Option<LabelSelector> {
    let labels: BTreeMap<String, String> = value["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let expressions: Vec<LabelExpression> = value["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| LabelExpression {
            key: text(one, "key"),
            operator: text(one, "operator"),
            values: texts(&one["values"]),
        })
        .collect();
    LabelSelector::compile(&labels, &expressions).ok()
}

fn labelled(labels: &Value) -> Document<'static> {
    Document::parse(json!({"metadata": {"labels": labels}}).to_string()).unwrap()
}

fn namespaces<const N: usize>(known: [&Value; N]) -> FixedNamespaces {
    let known = known.into_iter().filter_map(Value::as_object).flatten();
    FixedNamespaces::new(known.map(|(name, labels)| {
        std::sync::Arc::new(
            Document::parse(json!({"metadata": {"name": name, "labels": labels}}).to_string()).unwrap(),
        )
    }))
}

fn equivalents(registry: &Value) -> Equivalents {
    let mut equivalents = Equivalents::new();
    for entry in registry.as_array().into_iter().flatten() {
        let parts = text(entry, "gvr");
        let [group, version, name] = parts.split('/').collect::<Vec<_>>()[..] else {
            panic!("{parts}")
        };
        let resource = GroupVersionResource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            resource: name.to_owned().into(),
        };
        let is = text(entry, "gvk");
        let is = match is.split('/').collect::<Vec<_>>()[..] {
            [group, version, kind] => GroupVersionKind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: kind.to_owned().into(),
            },
            _ => GroupVersionKind::default(),
        };
        let class = if name == "deployments" { name } else { "" };
        equivalents.register(class, resource, &text(entry, "subresource"), is);
    }
    equivalents
}
