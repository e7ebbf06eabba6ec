//! AdmissionExceptions: what they excuse, and what never.

use std::sync::Arc;

use serde_json::{Value, json};

use portcullis_cel::Version;
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::{CallFailure, WebhookCallResult, WebhookReply};
use portcullis_policy::admission::{
    AdmissionSet, AdmissionSettings, Chain, Denial, Outcome, Phase, RunOptions, StatusDetails,
};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::document;
use portcullis_policy::manifest::{Options, ValidatedObject, assemble, read};
use portcullis_policy::model::Time;

use crate::{inner, reviews};

/// A policy `name` whose validation says `expression`, bound with `actions`.
fn policy(name: &str, resource: &str, expression: &str, actions: &str) -> String {
    let group = if resource.contains('.') {
        resource.split_once('.').unwrap().1
    } else {
        ""
    };
    let resource = resource.split('.').next().unwrap();
    format!(
        "---\n{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: \"{name}\"}}, \
         spec: {{matchConstraints: {{resourceRules: [{{apiGroups: [\"{group}\"], apiVersions: [\"*\"], operations: [\"*\"], \
         resources: [\"{resource}\"]}}]}}, validations: [{{expression: \"{expression}\"}}]}}}}\n---\n\
         {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {{name: \"{name}\"}}, \
         spec: {{policyName: \"{name}\", validationActions: [{actions}]}}}}\n"
    )
}

const NAMESPACE: &str =
    "---\n{apiVersion: v1, kind: Namespace, metadata: {name: old, labels: {tier: legacy}}}\n";

/// An exception `e` for `policies` and whatever `matches`.
fn exception(policies: &str, matches: &str) -> String {
    format!(
        "---\n{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e}}, spec: \
         {{policies: [{policies}], match: {{{matches}}}, notAfter: 2027-01-01T00:00:00Z, reason: SEC-1}}}}\n"
    )
}

fn for_legacy(policies: &str, resources: &str) -> String {
    exception(
        policies,
        &format!(
            "namespaceSelector: {{matchLabels: {{tier: legacy}}}}, resourceRules: [{{apiGroups: [\"*\"], \
             apiVersions: [\"*\"], operations: [\"*\"], resources: [{resources}]}}]"
        ),
    )
}

fn objects(text: &str) -> Vec<Arc<ValidatedObject>> {
    let (objects, faults) = read(&[inner::source(text)], &Options::default());
    let objects = objects.unwrap_or_else(|| panic!("{faults}"));
    objects.objects().cloned().collect()
}

/// What was watched from the API server of `default`.
fn watched(text: &str) -> Vec<Arc<ValidatedObject>> {
    let documents = document::parse(None, text).unwrap();
    let read = |document| ValidatedObject::read(document, "default".into(), Version::NEWEST).unwrap();
    documents.into_iter().map(read).map(Arc::new).collect()
}

fn set_of(objects: Vec<Arc<ValidatedObject>>) -> Arc<AdmissionSet> {
    let manifests = assemble(&objects, &Options::default());
    let admission = manifests.admission(&AdmissionSettings::default());
    Arc::clone(admission.for_cluster("default"))
}

fn set(text: &str) -> Arc<AdmissionSet> {
    set_of(objects(text))
}

fn review(kind: &str, resource: &str, namespace: &str, request: &Value) -> Value {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "o", "namespace": namespace}});
    let all = json!({
        "uid": "u", "operation": "CREATE", "name": "o", "namespace": namespace,
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "userInfo": {"username": "jane"}, "object": object,
    });
    reviews::admission(&reviews::with(all, request))
}

fn pod(request: &Value) -> Value {
    review("Pod", "pods", "old", request)
}

fn judged(set: &AdmissionSet, review: &Value, reply: Result<WebhookReply, CallFailure>) -> Outcome {
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let now = Time::parse("2026-12-01T00:00:00Z").unwrap();
    Chain::run(
        Phase::Validate,
        set,
        &review.request,
        RunOptions::new(&access, now),
        &mut |_| WebhookCallResult {
            result: reply.clone(),
            took: std::time::Duration::ZERO,
        },
    )
}

fn outcome(set: &AdmissionSet, review: &Value) -> Outcome {
    judged(set, review, Ok(WebhookReply::default()))
}

fn allows(set: &AdmissionSet, review: &Value) -> bool {
    outcome(set, review).denial.is_none()
}

#[test]
fn a_denial_is_excused_and_the_answer_says_by_whom() {
    let text = policy("no", "pods", "false", "Deny") + NAMESPACE + &for_legacy("\"no\"", "pods");
    let outcome = outcome(&set(&text), &pod(&json!({})));
    assert!(outcome.denial.is_none() && outcome.cause.is_none());
    assert_eq!(
        outcome.audit_annotations["exceptions.portcullis.dev"],
        r#"[{"name":"e","policy":"no","reason":"SEC-1"}]"#
    );
}

#[test]
fn every_denial_needs_an_exception_of_its_own() {
    let policies =
        policy("no", "pods", "false", "Deny") + &policy("nor", "pods", "false", "Deny") + NAMESPACE;
    let one = outcome(
        &set(&(policies.clone() + &for_legacy("\"no\"", "pods"))),
        &pod(&json!({})),
    );
    assert_eq!(one.cause.unwrap().name, "nor");
    assert_eq!(one.exceptions.len(), 1, "what was excused is told all the same");
    assert!(allows(
        &set(&(policies + &for_legacy("\"no\", \"nor\"", "pods"))),
        &pod(&json!({}))
    ));
}

#[test]
fn names_are_exact() {
    for policies in ["\"n\"", "\"no2\"", "\"configuration/no\""] {
        let text = policy("no", "pods", "false", "Deny") + NAMESPACE + &for_legacy(policies, "pods");
        assert!(!allows(&set(&text), &pod(&json!({}))), "{policies}");
    }
}

#[test]
fn an_error_is_never_excused() {
    let text =
        policy("no", "pods", "object.spec.missing == 1", "Deny") + NAMESPACE + &for_legacy("\"no\"", "pods");
    let outcome = outcome(&set(&text), &pod(&json!({})));
    assert!(outcome.denial.is_some() && outcome.exceptions.is_empty());
}

#[test]
fn warnings_and_audit_annotations_stay() {
    for (actions, warnings) in [("Deny, Audit", 0), ("Warn, Audit", 1)] {
        let text = policy("no", "pods", "false", actions) + NAMESPACE + &for_legacy("\"no\"", "pods");
        let outcome = outcome(&set(&text), &pod(&json!({})));
        assert!(outcome.denial.is_none(), "{actions}");
        assert_eq!(outcome.warnings.iter().count(), warnings, "{actions}");
        let failure = "validation.policy.admission.k8s.io/validation_failure";
        assert!(outcome.audit_annotations.contains_key(failure), "{actions}");
    }
}

#[test]
fn nothing_of_portcullis_itself_is_excused() {
    let resource = "admissionexceptions.portcullis.dev";
    let by_name = "resourceRules: [{apiGroups: [\"*\"], apiVersions: [\"*\"], operations: [\"*\"], resources: [\"*\"], \
                   resourceNames: [o]}]";
    let text = policy("no", resource, "false", "Deny") + &exception("\"no\"", by_name);
    let asked = review("AdmissionException", resource, "", &json!({}));
    assert!(!allows(&set(&text), &asked));
    let other = policy("no", "nodes", "false", "Deny") + &exception("\"no\"", by_name);
    assert!(allows(&set(&other), &review("Node", "nodes", "", &json!({}))));
}

#[test]
fn a_namespace_selector_excuses_no_cluster_scoped_object_and_no_unknown_namespace() {
    let text = policy("no", "*", "false", "Deny") + NAMESPACE + &for_legacy("\"no\"", "\"*\"");
    let set_of_all = set(&text);
    assert!(allows(&set_of_all, &pod(&json!({}))));
    assert!(!allows(&set_of_all, &review("Node", "nodes", "", &json!({}))));
    assert!(!allows(&set_of_all, &review("Pod", "pods", "new", &json!({}))));
    let not_prod = text.replace(
        "{matchLabels: {tier: legacy}}, resource",
        "{matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}, resource",
    );
    assert!(!allows(
        &set(&not_prod),
        &review("Pod", "pods", "new", &json!({}))
    ));
}

#[test]
fn namespaces_are_excused_by_the_labels_that_are_stored() {
    let text = policy("no", "namespaces", "false", "Deny") + NAMESPACE + &for_legacy("\"no\"", "namespaces");
    let set = set(&text);
    let labelled = |tier: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old", "labels": {"tier": tier}}});
    let asked = |operation: &str, new: Value, old: Value| {
        let request = json!({"operation": operation, "name": "old", "object": new, "oldObject": old});
        allows(&set, &review("Namespace", "namespaces", "old", &request))
    };
    assert!(asked("UPDATE", labelled("prod"), labelled("legacy")));
    assert!(asked("DELETE", Value::Null, labelled("legacy")));
    assert!(
        !asked("UPDATE", labelled("legacy"), labelled("prod")),
        "not by what it is to have"
    );
    assert!(
        !asked("CREATE", labelled("legacy"), Value::Null),
        "nothing of it is stored"
    );
}

#[test]
fn the_object_selector_looks_at_the_new_object_and_of_a_delete_at_the_old() {
    let matches = "objectSelector: {matchLabels: {app: db}}, resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], \
                   operations: [\"*\"], resources: [pods], resourceNames: [o]}]";
    let set = set(&(policy("no", "pods", "false", "Deny") + &exception("\"no\"", matches)));
    let labelled = |app: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "o", "labels": {"app": app}}});
    let asked = |operation: &str, new: Value, old: Value| {
        allows(
            &set,
            &pod(&json!({"operation": operation, "object": new, "oldObject": old})),
        )
    };
    assert!(asked("UPDATE", labelled("db"), labelled("web")));
    assert!(!asked("UPDATE", labelled("web"), labelled("db")));
    assert!(asked("DELETE", Value::Null, labelled("db")));
}

const WEBHOOK: &str = "---\n{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: guard}, \
     webhooks: [{name: hooks.example.com, clientConfig: {url: \"https://h\"}, sideEffects: None, admissionReviewVersions: [v1], \
     rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}]}\n";

fn refusal() -> WebhookReply {
    WebhookReply {
        denial: Some(Denial {
            status: Denial::FAILURE.into(),
            reason: "Forbidden".into(),
            code: 403,
            message: "no".into(),
            details: StatusDetails::default(),
        }),
        ..WebhookReply::default()
    }
}

#[test]
fn what_a_webhook_refuses_is_excused_and_no_failure_to_ask_it() {
    let text = WEBHOOK.to_owned() + NAMESPACE + &for_legacy("guard/hooks.example.com", "pods");
    let set_of_all = set(&text);
    let refused = judged(&set_of_all, &pod(&json!({})), Ok(refusal()));
    assert!(refused.denial.is_none());
    assert_eq!(refused.exceptions[0].policy, "guard/hooks.example.com");
    for failure in [CallFailure::Failed("gone".into()), CallFailure::RequestExpired] {
        let failed = judged(&set_of_all, &pod(&json!({})), Err(failure));
        assert!(failed.denial.is_some() && failed.exceptions.is_empty());
    }
    let other = set(&(WEBHOOK.to_owned() + NAMESPACE + &for_legacy("guard", "pods")));
    assert!(judged(&other, &pod(&json!({})), Ok(refusal())).denial.is_some());
}

#[test]
fn a_watched_exception_excuses_no_policy_of_files() {
    let (deny, excuse) = (
        policy("no", "pods", "false", "Deny"),
        for_legacy("\"no\"", "pods"),
    );
    let asked = pod(&json!({}));
    let all = |files: &str, of_cluster: &str| {
        let mut all = if files.is_empty() {
            Vec::new()
        } else {
            objects(files)
        };
        all.extend(watched(of_cluster));
        allows(&set_of(all), &asked)
    };
    assert!(
        !all(&(deny.clone() + NAMESPACE), &excuse),
        "both are of different hands"
    );
    assert!(
        all("", &(deny.clone() + NAMESPACE + &excuse)),
        "what is watched is excused by what is"
    );
    assert!(
        all(&excuse, &(deny + NAMESPACE)),
        "files excuse whatever they name"
    );
}
