//! What the two versions and the past make of webhooks. Faults field by field
//! are Kubernetes' own cases (`tests/conformance`).

use std::sync::Arc;
use std::time::Duration;

use crate::admission::Reinvocation;
use crate::admission::matching::MatchPolicy;
use crate::admission::webhook::{ReviewVersion, SideEffects, Webhook, WebhookTarget};
use crate::admission::{AdmissionObjects, FailurePolicy};
use crate::manifest::{Options, Source, load};

fn read(text: &str) -> Result<AdmissionObjects, String> {
    let source = Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    };
    match load(&[source], &Options::default()) {
        (Some(manifests), _) => Ok(manifests.shared.admission),
        (None, faults) => Err(faults
            .iter()
            .map(|fault| format!("{}: {}\n", fault.place.path, fault.message))
            .collect()),
    }
}

fn configuration(version: &str, kind: &str, webhook: &str) -> String {
    format!(
        "{{apiVersion: admissionregistration.k8s.io/{version}, kind: {kind}WebhookConfiguration, \
         metadata: {{name: c}}, webhooks: [{{name: a.example.com, {webhook}}}]}}"
    )
}

const SAID: &str = "sideEffects: None, admissionReviewVersions: [v1]";

fn validating(client: &str) -> Result<Arc<Webhook>, String> {
    let text = configuration("v1", "Validating", &format!("clientConfig: {client}, {SAID}"));
    Ok(read(&text)?.validating_webhooks[0].webhooks[0].clone())
}

#[test]
fn v1_has_its_defaults() {
    let client = "clientConfig: {service: {namespace: ns, name: svc}}";
    let text = configuration("v1", "Mutating", &format!("{client}, {SAID}"));
    let objects = read(&text).unwrap();
    let webhook = &objects.mutating_webhooks[0].webhooks[0];
    assert_eq!(webhook.id(), "c/a.example.com");
    assert_eq!(webhook.failure_policy, FailurePolicy::Fail);
    assert_eq!(webhook.constraints.match_policy, MatchPolicy::Equivalent);
    assert_eq!(webhook.timeout, Duration::from_secs(10));
    assert_eq!(webhook.side_effects, Some(SideEffects::None));
    assert_eq!(webhook.version, Some(ReviewVersion::V1));
    assert_eq!(webhook.reinvocation, Reinvocation::Never);
    let service = WebhookTarget::Service {
        namespace: "ns".into(),
        name: "svc".into(),
        port: 443,
        path: "/".into(),
    };
    assert_eq!(webhook.client.target, service);
}

#[test]
fn v1beta1_has_its_own_defaults() {
    let text = configuration("v1beta1", "Validating", "clientConfig: {url: 'https://h'}");
    let objects = read(&text).unwrap();
    let webhook = &objects.validating_webhooks[0].webhooks[0];
    assert_eq!(webhook.failure_policy, FailurePolicy::Ignore);
    assert_eq!(webhook.constraints.match_policy, MatchPolicy::Exact);
    assert_eq!(webhook.timeout, Duration::from_secs(30));
    assert_eq!(webhook.side_effects, Some(SideEffects::Unknown));
    assert_eq!(webhook.version, Some(ReviewVersion::V1beta1));
}

#[test]
fn the_first_version_that_is_spoken_here_is_asked_in() {
    let webhook = |versions: &str| {
        let said = format!("sideEffects: None, admissionReviewVersions: [{versions}]");
        let text = configuration(
            "v1",
            "Validating",
            &format!("clientConfig: {{url: 'https://h'}}, {said}"),
        );
        read(&text).map(|objects| objects.validating_webhooks[0].webhooks[0].version)
    };
    assert_eq!(webhook("v2, v1beta1, v1"), Ok(Some(ReviewVersion::V1beta1)));
    let reported = webhook("v1alpha1").unwrap_err();
    assert!(
        reported.starts_with("webhooks[0].admissionReviewVersions: "),
        "{reported}"
    );
}

#[test]
fn a_hook_of_the_past_is_a_validating_webhook_asked_in_v1alpha1() {
    let hook = "name: a.example.com, clientConfig: {service: {namespace: ns, name: svc}, caBundle: LS0t}, \
                rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]";
    let text = format!(
        "{{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: ExternalAdmissionHookConfiguration, \
         metadata: {{name: c}}, externalAdmissionHooks: [{{{hook}}}]}}"
    );
    let objects = read(&text).unwrap();
    let webhook = &objects.validating_webhooks[0].webhooks[0];
    assert_eq!(webhook.version, Some(ReviewVersion::V1alpha1));
    assert_eq!(webhook.failure_policy, FailurePolicy::Ignore);
    assert_eq!(webhook.constraints.match_policy, MatchPolicy::Exact);
    assert_eq!(webhook.constraints.rules.len(), 1);
    assert_eq!(webhook.timeout, Duration::from_secs(30));
    // Reviews of then do not tell of dry runs.
    assert_eq!(webhook.side_effects, Some(SideEffects::Unknown));
    assert_eq!(webhook.client.ca_bundle, b"---");
    assert!(matches!(&webhook.client.target, WebhookTarget::Service { path, .. } if path == "/"));
}

#[test]
fn a_bundle_may_have_line_breaks() {
    let webhook = validating("{url: 'https://h', caBundle: \"LS\\r\\n0t\\n\"}").unwrap();
    assert_eq!(webhook.client.ca_bundle, b"---");
    let reported = validating("{url: 'https://h', caBundle: 'a secret?'}").unwrap_err();
    assert!(
        reported.starts_with("webhooks[0].clientConfig.caBundle: must be base64"),
        "{reported}"
    );
}

#[test]
fn a_password_in_a_url_is_not_told() {
    let reported = validating("{url: 'https://user:hunter2@h/?a#b'}").unwrap_err();
    assert!(!reported.contains("hunter2"), "{reported}");
    assert_eq!(reported.lines().count(), 3, "{reported}");
}

#[test]
fn only_mutating_webhooks_are_asked_again() {
    let webhook = format!("clientConfig: {{url: 'https://h'}}, {SAID}, reinvocationPolicy: IfNeeded");
    let reported = read(&configuration("v1", "Validating", &webhook)).unwrap_err();
    assert_eq!(
        reported,
        "webhooks[0].reinvocationPolicy: unknown field `reinvocationPolicy`\n"
    );
    let objects = read(&configuration("v1", "Mutating", &webhook)).unwrap();
    let webhook = &objects.mutating_webhooks[0].webhooks[0];
    assert_eq!(webhook.reinvocation, Reinvocation::IfNeeded);
}

#[test]
fn without_rules_nothing_matches() {
    let webhook = validating("{url: 'https://h'}").unwrap();
    let constraints = &webhook.constraints;
    assert!(constraints.rules.is_empty());
    assert_eq!(constraints.no_rules, crate::admission::matching::NoRules::Nothing);
}
