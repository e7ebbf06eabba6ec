//! The reply of a mutating webhook: validated, its patch applied, the outcome encoded.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use portcullis_policy::api::{AdmissionReview, verify};
use portcullis_policy::model::Time;
use portcullis_policy::admission::webhook::WebhookCallResult;
use portcullis_policy::admission::{AdmissionSet, Chain, Phase, RunOptions};
use portcullis_policy::authorization::PolicySet;
use portcullis_cel::json::Document;

const WEBHOOKS: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: one.example.com
  clientConfig: {url: 'https://localhost:1'}
  rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]
  sideEffects: None
  admissionReviewVersions: [v1]
- name: two.example.com
  clientConfig: {url: 'https://localhost:1'}
  rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]
  sideEffects: None
  admissionReviewVersions: [v1beta1]
  reinvocationPolicy: IfNeeded
  failurePolicy: Ignore
";

const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"operation":"CREATE","name":"p","namespace":"ns","userInfo":{"username":"a"},
"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

static POLICIES: LazyLock<Arc<PolicySet>> = LazyLock::new(portcullis_fuzz::policies);
static SET: LazyLock<Arc<AdmissionSet>> = LazyLock::new(|| portcullis_fuzz::admission(WEBHOOKS));
static DOCUMENT: LazyLock<Document<'static>> = LazyLock::new(|| Document::parse(REVIEW).expect("JSON"));

fuzz_target!(|reply: &[u8]| {
    let review = AdmissionReview::decode(&DOCUMENT).expect("a review");
    let mut ask = |call: &_| WebhookCallResult {
        result: verify(call, "u", Phase::Mutate, reply),
        took: Duration::ZERO,
    };
    let outcome = Chain::run(
        Phase::Mutate,
        &SET,
        &review.request,
        RunOptions::new(&**POLICIES, Time::UNIX_EPOCH),
        &mut ask,
    );
    let reply = review.reply(&review.within_version(outcome));
    let _: serde_json::Value = serde_json::from_slice(&reply).expect("a reply is JSON");
});
