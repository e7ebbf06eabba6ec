//! RBAC: rules, subjects, bindings, aggregation.
//!
//! The objects of the vectors go to the engine as they are, but for subjects and roles of
//! kinds that are none, which manifests are refused for.

use portcullis_policy::model::Time;
use std::collections::BTreeMap;

use portcullis_policy::authorization::rbac::{
    aggregated_rules, applying_subject, rule_allows as engine_allows, rules_for,
};
use portcullis_policy::authorization::{
    Binding, NeverDeny, Objects, PolicySet, Role, RoleKind, RoleRef, Rule, Subject, SubjectKind,
};
use portcullis_policy::model::{Attributes, Decision, User};
use serde_json::Value;

use crate::harness::{Case, Mismatch, Table};
use crate::{sar, selectors};

pub(crate) const CHECKS: Table = &[
    ("aggregate", aggregate),
    ("authorize", authorize),
    ("ruleAllows", rule_allows),
    ("rulesFor", rules_for_user),
    ("subjectsApply", subjects_apply),
];

/// Whether one rule allows one request.
pub(crate) fn rule_allows(case: &Case<'_>) -> Result<(), Mismatch> {
    let allows = engine_allows(
        &rule(&case.input()["rule"]),
        &attributes(&case.input()["attributes"]),
    );
    case.same("allow", &allows, &case.expect()["allow"].as_bool().unwrap())
}

/// Decision and reason of all bindings together. Where nothing decides, the
/// API server's reason is what went wrong: ours is for the log alone.
fn authorize(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let environment = input["env"].as_str().map_or(input, |name| &case.file[name]);
    let set = PolicySet::new(objects(environment), &NeverDeny::default());
    let attributes = attributes(&input["attributes"]);
    let authorization = set.authorize(&attributes, Time::UNIX_EPOCH);
    let decision = match authorization.decision {
        Decision::Allow => "Allow",
        Decision::Deny => "Deny",
        Decision::NoOpinion => "NoOpinion",
    };
    case.same(
        "decision",
        &decision,
        &case.expect()["decision"].as_str().unwrap(),
    )?;
    let Some(reason) = case.expect()["reason"].as_str() else {
        return Ok(());
    };
    if authorization.decision == Decision::NoOpinion {
        case.same("reason", &authorization.reason.to_string().as_str(), &"")?;
        let wrong = !set.unmatched(&attributes, Time::UNIX_EPOCH).errors.is_empty();
        return case.same(
            "whether something went wrong",
            &wrong,
            &reason.starts_with("RBAC: "),
        );
    }
    case.same("reason", &authorization.reason.to_string().as_str(), &reason)
}

fn rules_for_user(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let objects = objects(input);
    let (rules, _) = rules_for(
        &objects,
        &user(input),
        input["namespace"].as_str().unwrap_or_default(),
    );
    let mut actual: Vec<String> = rules.into_iter().map(|rule| format!("{rule:?}")).collect();
    let mut expected: Vec<String> = list(&case.expect()["rules"], rule)
        .iter()
        .map(|rule| format!("{rule:?}"))
        .collect();
    // The order is not significant.
    actual.sort();
    expected.sort();
    case.same("set of rules", &actual, &expected)
}

fn subjects_apply(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let subjects = subjects(&input["subjects"]);
    let applying = applying_subject(
        &subjects,
        &user(input),
        input["namespace"].as_str().unwrap_or_default(),
    );
    case.same(
        "applies",
        &applying.is_some(),
        &case.expect()["applies"].as_bool().unwrap(),
    )?;
    let index = case.expect()["index"].as_u64().filter(|_| applying.is_some());
    case.same("index", &applying.map(|index| index as u64), &index)
}

/// One pass of the controller over one ClusterRole; `null` stands for no change.
fn aggregate(case: &Case<'_>) -> Result<(), Mismatch> {
    let roles = list(&case.input()["clusterRoles"], role);
    let synced = case.input()["sync"].as_str().unwrap();
    let role = roles
        .iter()
        .find(|role| role.name == synced)
        .ok_or_else(|| Mismatch::new("no such role"))?;
    let after = aggregated_rules(role, &roles).filter(|rules| **rules != *role.rules);
    case.same(
        "changed",
        &after.is_some(),
        &case.expect()["changed"].as_bool().unwrap(),
    )?;
    let expected = case.expect()["rulesAfter"]
        .as_array()
        .map(|rules| rules.iter().map(rule).collect());
    case.same("rules", &after, &expected)
}

// === objects as the vectors write them ===

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().into_iter().flatten().map(read).collect()
}

fn rule(value: &Value) -> Rule {
    Rule {
        verbs: list(&value["verbs"], text).into(),
        api_groups: list(&value["apiGroups"], text).into(),
        resources: list(&value["resources"], text).into(),
        resource_names: list(&value["resourceNames"], text),
        non_resource_urls: list(&value["nonResourceURLs"], |url| text(url).into()),
    }
}

fn role(value: &Value) -> Role {
    let metadata = &value["metadata"];
    let written = &value["aggregationRule"]["clusterRoleSelectors"];
    Role {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        labels: labels(&metadata["labels"]),
        rules: list(&value["rules"], rule).into(),
        aggregation: value["aggregationRule"]
            .is_object()
            .then(|| list(written, |one| selectors::compile(one).unwrap())),
    }
}

fn labels(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// None for one of a kind of role that is none: manifests are refused for it, and the
/// engine has no word for it.
fn binding(value: &Value) -> Option<Binding> {
    let kind = RoleKind::parse(&text(&value["roleRef"]["kind"]))?;
    Some(Binding {
        namespace: text(&value["metadata"]["namespace"]),
        name: text(&value["metadata"]["name"]),
        role: RoleRef {
            kind,
            name: text(&value["roleRef"]["name"]),
        },
        subjects: subjects(&value["subjects"]),
        until: None,
    })
}

/// Without those of a kind that is none: they are nobody.
fn subjects(value: &Value) -> Vec<Subject> {
    let subject = |value: &Value| {
        Some(Subject {
            kind: SubjectKind::parse(&text(&value["kind"]))?,
            name: text(&value["name"]),
            namespace: text(&value["namespace"]),
        })
    };
    list(value, subject).into_iter().flatten().collect()
}

fn objects(value: &Value) -> Objects {
    let both = |one: &str, other: &str| {
        value[one]
            .as_array()
            .into_iter()
            .chain(value[other].as_array())
            .flatten()
    };
    Objects {
        roles: both("clusterRoles", "roles").map(role).collect(),
        bindings: both("clusterRoleBindings", "roleBindings")
            .filter_map(binding)
            .collect(),
        policies: Vec::new(),
        ..Objects::default()
    }
}

fn user(value: &Value) -> User<'_> {
    User {
        name: value["user"].as_str().unwrap_or_default().into(),
        groups: value["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(Into::into)
            .collect(),
        ..User::default()
    }
}

fn attributes(value: &Value) -> Attributes<'_> {
    Attributes {
        user: user(value),
        target: sar::target(value),
    }
}
