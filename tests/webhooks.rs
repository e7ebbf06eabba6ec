//! Webhooks among policies, as manifests say: who is asked, about what.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

#[path = "webhooks/bounds.rs"]
mod bounds;
#[path = "harness/inner.rs"]
mod inner;
#[path = "harness/reviews.rs"]
mod reviews;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use inner::{manifests, patched};
use portcullis_cel::json::Document;
use portcullis_policy::admission::run::{MatchFinding, Recorder, TraceStep};
use portcullis_policy::admission::webhook::{Call, CallFailure, WebhookCallResult, WebhookReply};
use portcullis_policy::admission::{AdmissionSet, AdmissionSettings, Chain, Outcome, Phase, RunOptions};
use portcullis_policy::api::{AdmissionReview, ReviewVersion};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::model::Time;
use reviews::creation_of_pod;
use serde_json::{Value, json};

const PODS: &str = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}";

/// A configuration of each kind with one webhook, called as the configuration.
fn mk_webhook(kind: &str, name: &str, more: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata: {{name: {name}}}
webhooks:
- name: {name}.example.com
  clientConfig: {{url: 'https://localhost/{name}'}}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{PODS}]
  {more}
"
    )
}

fn mk_mutation(name: &str, expression: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{PODS}]}}
  reinvocationPolicy: IfNeeded
  mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: \"{expression}\"}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}}}
"
    )
}

fn mk_set(text: &str) -> Arc<AdmissionSet> {
    manifests(text).admission(&AdmissionSettings::default()).shared
}

fn mk_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {}}, "spec": {}})
}

/// The creation of a pod.
fn mk_review() -> Document<'static> {
    Document::parse(creation_of_pod("ns", &mk_pod()).to_string()).unwrap()
}

fn answer(reply: WebhookReply) -> WebhookCallResult {
    WebhookCallResult {
        result: Ok(reply),
        took: Duration::ZERO,
    }
}

fn allowing() -> WebhookCallResult {
    answer(WebhookReply::default())
}

fn patching(operations: &Value) -> WebhookCallResult {
    answer(WebhookReply {
        patch: Some(operations.to_string().into_bytes().into()),
        patch_type: "JSONPatch".to_owned(),
        ..WebhookReply::default()
    })
}

/// What comes of a run, who was asked, and what the object has become.
fn run(phase: Phase, text: &str, ask: impl Fn(&Call) -> WebhookCallResult) -> (Outcome, Vec<String>, Value) {
    let (set, document, access) = (mk_set(text), mk_review(), PolicySet::default());
    let review = AdmissionReview::decode(&document).unwrap();
    let mut asked = Vec::new();
    let outcome = Chain::run(
        phase,
        &set,
        &review.request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        &mut |call| {
            asked.push(call.webhook.configuration.clone());
            ask(call)
        },
    );
    let after = patched(&mk_pod(), &outcome.patch);
    (outcome, asked, after)
}

fn message(outcome: &Outcome) -> &str {
    outcome.denial.as_ref().map_or("", |denial| &denial.message)
}

const ADD_B: &str = "'a' in object.metadata.labels && !('b' in object.metadata.labels) ? \
                     [JSONPatch{op: 'add', path: '/metadata/labels/b', value: '1'}] : []";

#[test]
fn a_policy_that_answers_a_webhook_with_a_change_has_it_asked_again() {
    let text = mk_mutation("p", ADD_B) + &mk_webhook("Mutating", "w", "reinvocationPolicy: IfNeeded");
    let (outcome, asked, object) = run(Phase::Mutate, &text, |call| {
        let seen = call.object.as_ref().map(|object| object.text().to_owned());
        match seen {
            None => patching(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "1"}])),
            Some(seen) => {
                assert!(seen.contains(r#""b":"1""#), "{seen}");
                allowing()
            }
        }
    });
    assert_eq!(asked, ["w", "w"]);
    assert_eq!(object["metadata"]["labels"], json!({"a": "1", "b": "1"}));
    assert!(outcome.denial.is_none());
    let rounds: Vec<_> = outcome
        .webhooks
        .iter()
        .map(|one| (one.round, one.changed.len()))
        .collect();
    assert_eq!(rounds, [(0, 1), (1, 0)]);
}

#[test]
fn what_a_policy_refuses_no_webhook_is_asked_about() {
    let mutation = mk_mutation("p", "[JSONPatch{op: 'remove', path: '/none'}]");
    let validation = "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: 'false'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
";
    for (phase, kind, policy) in [
        (Phase::Mutate, "Mutating", mutation.as_str()),
        (Phase::Validate, "Validating", validation),
    ] {
        let (outcome, asked, _) = run(phase, &(policy.to_owned() + &mk_webhook(kind, "w", "")), |_| {
            allowing()
        });
        assert!(
            asked.is_empty() && message(&outcome).contains("denied request"),
            "{outcome:?}"
        );
    }
}

#[test]
fn match_conditions_see_the_object_as_changed_so_far_and_never_the_namespace() {
    let first = mk_webhook("Mutating", "first", "");
    for (expression, policy, expected) in [
        ("object.metadata.labels[\\\"a\\\"] == \\\"1\\\"", "Fail", ""),
        ("namespaceObject == null", "Fail", ""),
        ("request.resource.resource == \\\"pods\\\"", "Fail", ""),
        ("!has(object.metadata.labels.a)", "Fail", "not asked"),
        ("object.spec.none == 1", "Ignore", "not asked"),
        ("object.spec.none == 1", "Fail", "pods \"p\" is forbidden: "),
    ] {
        let conditions = format!(
            "failurePolicy: {policy}\n  matchConditions: [{{name: c, expression: \"{expression}\"}}]"
        );
        let text = first.clone() + &mk_webhook("Mutating", "second", &conditions);
        let (outcome, asked, _) = run(Phase::Mutate, &text, |call| {
            match call.webhook.configuration.as_str() {
                "first" => patching(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "1"}])),
                _ => allowing(),
            }
        });
        match expected {
            "" => assert_eq!(asked, ["first", "second"], "{expression}: {outcome:?}"),
            "not asked" => assert_eq!((asked.len(), message(&outcome)), (1, ""), "{expression}"),
            beginning => {
                assert!(message(&outcome).starts_with(beginning), "{outcome:?}");
                assert_eq!(outcome.denial.unwrap().code, 403);
            }
        }
    }
}

/// An API server would drop the field, and set what is not written to its
/// default, before the second webhook sees the object.
#[test]
fn between_webhooks_nothing_is_dropped_and_nothing_gets_a_default() {
    let text = mk_webhook("Mutating", "first", "reinvocationPolicy: IfNeeded")
        + &mk_webhook("Mutating", "second", "");
    let (outcome, asked, object) = run(Phase::Mutate, &text, |call| match &call.object {
        None => patching(&json!([{"op": "add", "path": "/spec/bogus", "value": "x"}])),
        Some(seen) => {
            assert_eq!(seen.root().pointer("/spec").unwrap().raw(), r#"{"bogus":"x"}"#);
            allowing()
        }
    });
    assert_eq!(asked, ["first", "second"]);
    assert_eq!(object["spec"], json!({"bogus": "x"}));
    let key = "mutation.webhook.admission.k8s.io/round_0_index_0";
    assert_eq!(
        outcome.audit_annotations[key],
        r#"{"configuration":"first","webhook":"first.example.com","mutated":false}"#,
        "but what the kind does not have is no change, as in the API server"
    );
}

#[test]
fn hooks_of_the_past_are_asked_in_their_version_and_change_nothing() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: past}
externalAdmissionHooks:
- name: past.example.com
  clientConfig: {service: {namespace: ns, name: svc}, caBundle: LS0t}
  rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
";
    let (outcome, asked, _) = run(Phase::Validate, text, |call| {
        assert_eq!(call.version, ReviewVersion::V1alpha1);
        WebhookCallResult {
            result: Err(CallFailure::Failed("failed to call webhook: EOF".to_owned())),
            took: Duration::ZERO,
        }
    });
    assert_eq!((asked.len(), message(&outcome)), (1, ""), "they fail open");
    let (_, asked, _) = run(Phase::Mutate, text, |_| allowing());
    assert!(asked.is_empty());
}

#[test]
fn a_recorder_hears_of_webhooks_and_initializers() {
    #[derive(Default)]
    struct Heard(RefCell<Vec<String>>);

    impl Recorder for Heard {
        fn record(&self, step: TraceStep<'_>) {
            let line = match step {
                TraceStep::Webhook { webhook, finding } => match finding {
                    MatchFinding::Applies { .. } => format!("{} applies", webhook.configuration),
                    MatchFinding::Misses(miss) => format!("{}: {}", webhook.configuration, miss.as_str()),
                    MatchFinding::Fails(why) => why,
                },
                TraceStep::Called { call, .. } => format!("{} is asked", call.webhook.configuration),
                TraceStep::CallCompleted(result) => format!("{:?}", result.verdict),
                TraceStep::Initializer { name, is_there, .. } => format!("{name} is there: {is_there}"),
                TraceStep::Changed { patch, .. } => patch,
                _ => return,
            };
            self.0.borrow_mut().push(line);
        }
    }

    let initializer = "---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: i}
initializers: [{name: i.example.com, rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}]
";
    let elsewhere = mk_webhook("Mutating", "elsewhere", "").replace("[pods]", "[nodes]");
    let set = mk_set(&(mk_webhook("Mutating", "w", "") + &elsewhere + initializer));
    let (document, access, heard) = (mk_review(), PolicySet::default(), Heard::default());
    let review = AdmissionReview::decode(&document).unwrap();
    let run = RunOptions {
        recorder: Some(&heard),
        ..RunOptions::new(&access, Time::UNIX_EPOCH)
    };
    let outcome = Chain::run(Phase::Mutate, &set, &review.request, run, &mut |_| {
        patching(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "1"}]))
    });
    assert!(message(&outcome).contains("there is no MutatingAdmissionPolicy of that name"));
    assert_eq!(
        heard.0.into_inner(),
        [
            "elsewhere: no rule matches the request",
            "w applies",
            "w is asked",
            "Allowed",
            r#"[{"op":"add","path":"/metadata/labels/a","value":"1"}]"#,
            "i.example.com is there: false",
        ]
    );
}

#[test]
fn once_a_webhook_changed_the_object_the_conditions_of_every_policy_are_evaluated_again() {
    let condition =
        "matchConditions: [{name: c, expression: \"!has(object.metadata.annotations) || 1 / 0 == 1\"}]";
    let policy = mk_mutation("p", "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}]")
        .replace("IfNeeded", "Never")
        .replacen("spec:", &format!("spec:\n  {condition}"), 1);
    let webhook = mk_webhook("Mutating", "w", "");
    let annotating =
        |_: &Call| patching(&json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]));
    let (outcome, asked, _) = run(Phase::Mutate, &(policy + &webhook), annotating);
    assert_eq!(asked, ["w"]);
    assert!(
        message(&outcome).contains("policy 'p' with binding 'p' denied request: ")
            && message(&outcome).contains("division by zero"),
        "{outcome:?}"
    );
}
