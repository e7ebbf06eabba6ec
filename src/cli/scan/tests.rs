//! Tests that a scan says what `admit` says, for every user and every state before,
//! or that it cannot say.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::formats::ScanOutcome;
use super::scanner::{CREATED, ObjectScanner};
use portcullis_policy::document::{Document, Node};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::OfflineReview;
use portcullis_policy::explain::objects::{KnownKinds, ManifestRequest};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::manifest::{Options, Source, load};
use portcullis_policy::model::Time;

/// Expressions that look at the object alone, and ones that look at what a scan does not know.
const EXPRESSIONS: [&str; 16] = [
    "true",
    "false",
    "has(object.metadata.labels.a)",
    "object.metadata.labels.a == '1'",
    "object.metadata.labels.b == '1' || object.metadata.labels.a == '1'",
    "request.userInfo.username == 'jane'",
    "has(request.userInfo.extra)",
    "request.?userInfo.username.orValue('') != 'jane'",
    "has(object.metadata.labels.a) || 'dba' in request.userInfo.groups",
    "request.userInfo.groups.exists(g, g == 'dba') && has(object.metadata.labels.b)",
    "oldObject == null || oldObject == object",
    "has(object.metadata.labels.a) || has(oldObject.metadata.labels.a)",
    "authorizer.group('').resource('pods').namespace('n').check('get').allowed()",
    "authorizer.requestResource.check('delete').allowed() || has(object.metadata.labels.b)",
    "variables.jane",
    "!variables.labelled || variables.jane",
];
const USERS: [(&str, &[&str]); 3] = [("jane", &["dba"]), ("bob", &[]), ("root", &["system:masters"])];

#[derive(Debug, Clone)]
struct ScannedPolicy {
    conditions: Vec<&'static str>,
    validations: Vec<&'static str>,
    failure_policy: &'static str,
    actions: Vec<&'static str>,
}

fn policy() -> impl Strategy<Value = ScannedPolicy> {
    // Match conditions come before the variables.
    let conditions = &EXPRESSIONS[..EXPRESSIONS.len() - 2];
    (
        prop::collection::vec(select(conditions), 0..=2),
        prop::collection::vec(select(&EXPRESSIONS[..]), 1..=2),
        select(vec!["Fail", "Ignore"]),
        select(vec![vec!["Deny"], vec!["Warn"], vec!["Deny", "Audit"]]),
    )
        .prop_map(
            |(conditions, validations, failure_policy, actions)| ScannedPolicy {
                conditions,
                validations,
                failure_policy,
                actions,
            },
        )
}

impl ScannedPolicy {
    fn manifests(&self, index: usize) -> [Value; 2] {
        let conditions: Vec<Value> = (self.conditions.iter().enumerate())
            .map(|(place, expression)| json!({"name": format!("c{place}"), "expression": expression}))
            .collect();
        let validations: Vec<Value> = (self.validations.iter())
            .map(|expression| json!({"expression": expression}))
            .collect();
        let api_version = "admissionregistration.k8s.io/v1";
        let name = format!("p{index}");
        let policy = json!({
            "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": self.failure_policy,
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]},
                ]},
                "matchConditions": conditions,
                "variables": [
                    {"name": "jane", "expression": "request.userInfo.username == 'jane'"},
                    {"name": "labelled", "expression": "has(object.metadata.labels.a)"},
                ],
                "validations": validations,
            },
        });
        let binding = json!({
            "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": self.actions},
        });
        [policy, binding]
    }
}

/// What a mutation writes into a label: of the object alone, or of who asks.
const WRITTEN: [&str; 4] = [
    "'1'",
    "has(object.metadata.labels.b) ? '1' : '2'",
    "object.metadata.labels.b",
    "request.userInfo.username",
];

/// A mutation of the Pods that its condition holds for.
#[derive(Debug, Clone)]
struct ScannedMutation {
    condition: Option<&'static str>,
    label: &'static str,
    written: &'static str,
    failure_policy: &'static str,
}

fn mutation() -> impl Strategy<Value = ScannedMutation> {
    let conditions = &EXPRESSIONS[..EXPRESSIONS.len() - 2];
    (
        prop::option::of(select(conditions)),
        select(vec!["a", "b"]),
        select(&WRITTEN[..]),
        select(vec!["Fail", "Ignore"]),
    )
        .prop_map(|(condition, label, written, failure_policy)| ScannedMutation {
            condition,
            label,
            written,
            failure_policy,
        })
}

impl ScannedMutation {
    fn manifests(&self, index: usize) -> [Value; 2] {
        let conditions: Vec<Value> = self
            .condition
            .iter()
            .map(|expression| json!({"name": "c", "expression": expression}))
            .collect();
        let patch = format!(
            "[JSONPatch{{op: 'add', path: '/metadata/labels/{}', value: {}}}]",
            self.label, self.written
        );
        let api_version = "admissionregistration.k8s.io/v1";
        let name = format!("m{index}");
        let policy = json!({
            "apiVersion": api_version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": self.failure_policy,
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]},
                ]},
                "matchConditions": conditions,
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
            },
        });
        let binding = json!({
            "apiVersion": api_version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name},
        });
        [policy, binding]
    }
}

/// A policy that takes from some what the role allows them, or allows others the same.
fn authorization_policy(effect: &str) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "a"},
        "spec": {
            "effect": effect,
            "subjects": [{"kind": "User", "name": if effect == "Deny" { "bob" } else { "jane" }}],
            "resourceRules": [{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}],
            "reason": "r",
        },
    })
}

/// An exception from the first policy, for every user or for some.
fn exception(subjects: bool) -> Value {
    let subjects = if subjects {
        json!([{"kind": "Group", "name": "dba"}])
    } else {
        json!([])
    };
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AdmissionException", "metadata": {"name": "e"},
        "spec": {
            "policies": ["p0"], "subjects": subjects, "notAfter": "2027-01-01T00:00:00Z", "reason": "r",
            "match": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"], "resourceNames": ["p"]},
            ]},
        },
    })
}

fn loaded(manifests: &[Value]) -> LoadedPolicies {
    let source = Source {
        file: "policies.json".into(),
        text: json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string(),
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    LoadedPolicies::of_manifests(manifests)
}

fn scanner(manifests: &[Value]) -> ObjectScanner {
    ObjectScanner {
        loaded: loaded(manifests),
        cluster: "c".into(),
        now: Time::parse("2026-12-01T00:00:00Z").unwrap(),
        kinds: KnownKinds::default(),
        manifests: ManifestRequest::default(),
        phases: CREATED,
    }
}

fn pod(labels: &[&str]) -> Value {
    let labels: serde_json::Map<_, _> = labels
        .iter()
        .map(|label| ((*label).to_owned(), json!("1")))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": labels}})
}

/// Whether `admit` allows what `review` says, by this user, with this object before.
fn admits(scanner: &ObjectScanner, review: &str, user: (&str, &[&str]), before: Option<&Value>) -> bool {
    let mut review: Value = serde_json::from_str(review).unwrap();
    let request = &mut review["request"];
    request["userInfo"] = json!({"username": user.0, "groups": user.1});
    if let Some(before) = before {
        request["operation"] = json!("UPDATE");
        request["oldObject"] = before.clone();
    }
    let answers = RecordedAnswers::default();
    let asked = OfflineReview {
        loaded: &scanner.loaded,
        cluster: &scanner.cluster,
        phases: CREATED,
        only: None,
        now: scanner.now,
        clock: std::time::Instant::now,
        answers: &answers,
        requester_unknown: false,
        deadline: None,
        recorder: None,
    };
    let answered = asked.answer(review.to_string().as_bytes()).unwrap();
    answered.decided.unwrap().outcome.denial.is_none()
}

#[test]
fn neither_an_exception_nor_a_warning_hides_what_is_unknown() {
    // The last of these has an error that the failure policy lets pass.
    let others = ["false", EXPRESSIONS[3]];
    let orders = others.map(|other| [[other, EXPRESSIONS[5]], [EXPRESSIONS[5], other]]);
    for validations in orders.concat() {
        let policy = ScannedPolicy {
            conditions: Vec::new(),
            validations: validations.to_vec(),
            failure_policy: "Ignore",
            actions: vec!["Deny"],
        };
        let mut manifests = policy.manifests(0).to_vec();
        manifests.push(exception(false));
        let scanner = scanner(&manifests);
        let document = Document::new(None, Node::from_json(pod(&[])));
        let findings = scanner.scan(&document).unwrap().findings;
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.result, &*finding.exception))
            .collect();
        assert_eq!(found, [(ScanOutcome::Skip, "")], "{findings:?}");
    }
}

/// The condition of the first is evaluated a second time, once the other changed the object.
#[test]
fn a_condition_that_is_unknown_in_the_second_pass_refuses_nothing() {
    let mutation = |condition, label| ScannedMutation {
        condition,
        label,
        written: "'1'",
        failure_policy: "Fail",
    };
    let mutations = [mutation(Some(EXPRESSIONS[9]), "a"), mutation(None, "b")];
    let manifests: Vec<Value> = (mutations.iter().enumerate())
        .flat_map(|(index, mutation)| mutation.manifests(index))
        .collect();
    let scanner = scanner(&manifests);
    let findings = scanner
        .scan(&Document::new(None, Node::from_json(pod(&["a"]))))
        .unwrap()
        .findings;
    let found: Vec<_> = findings.iter().map(|one| (one.result, &*one.policy)).collect();
    assert_eq!(found, [(ScanOutcome::Skip, "m0")], "{findings:?}");
}

proptest! {
    #[test]
    fn a_scan_says_what_admit_says_whoever_asks(
        policies in prop::collection::vec(policy(), 1..=3),
        mutations in prop::collection::vec(mutation(), 0..=2),
        authorization in prop::option::of(select(vec!["Deny", "Allow"])),
        excepted in prop::option::weighted(0.3, any::<bool>()),
        labels in subsequence(vec!["a", "b"], 0..=2),
        before in subsequence(vec!["a", "b"], 0..=2),
    ) {
        let mut manifests: Vec<Value> = policies.iter().enumerate()
            .flat_map(|(index, policy)| policy.manifests(index)).collect();
        manifests.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}));
        manifests.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}}));
        manifests.extend(mutations.iter().enumerate().flat_map(|(index, mutation)| mutation.manifests(index)));
        manifests.extend(authorization.map(authorization_policy));
        manifests.extend(excepted.map(exception));
        let scanner = scanner(&manifests);
        let object = pod(&labels);
        let document = Document::new(None, Node::from_json(object));
        let findings = scanner.scan(&document).unwrap().findings;
        let refuses = findings.iter().any(|finding| finding.result.rejects());
        let is_unknown = findings.iter()
            .any(|finding| finding.result == ScanOutcome::Skip && finding.exception.is_empty());
        // An exception for some may let pass what a scan says is refused.
        let may_be_excused = excepted == Some(true);
        let review = scanner.manifests.review(&document, &[], &scanner.kinds, &mut Vec::new()).unwrap().review;
        for user in USERS {
            for before in [None, Some(pod(&before))] {
                let admitted = admits(&scanner, &review, user, before.as_ref());
                if refuses && !may_be_excused {
                    prop_assert!(!admitted, "{:?} {:?}: {:?}", user, before, findings);
                }
                if !refuses && !is_unknown {
                    prop_assert!(admitted, "{:?} {:?}: {:?}", user, before, findings);
                }
            }
        }
    }

    #[test]
    fn where_nothing_is_unknown_a_scan_says_what_admit_says(
        policies in prop::collection::vec(policy(), 1..=3),
        labels in subsequence(vec!["a", "b"], 0..=2),
    ) {
        let known = |expressions: &[&'static str]| -> Vec<&'static str> {
            expressions.iter().copied().filter(|one| EXPRESSIONS[..5].contains(one)).collect()
        };
        let manifests: Vec<Value> = policies.iter().enumerate().flat_map(|(index, policy)| {
            let mut validations = known(&policy.validations);
            validations.push("object.metadata.labels.b == '1'");
            ScannedPolicy { conditions: known(&policy.conditions), validations, ..policy.clone() }.manifests(index)
        }).collect();
        let scanner = scanner(&manifests);
        let document = Document::new(None, Node::from_json(pod(&labels)));
        let findings = scanner.scan(&document).unwrap().findings;
        let review = scanner.manifests.review(&document, &[], &scanner.kinds, &mut Vec::new()).unwrap().review;
        prop_assert!(findings.iter().all(|finding| finding.result != ScanOutcome::Skip), "{:?}", findings);
        let refuses = findings.iter().any(|finding| finding.result.rejects());
        prop_assert_eq!(admits(&scanner, &review, USERS[2], None), !refuses, "{:?}", findings);
    }
}
