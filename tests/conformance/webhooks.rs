//! Webhooks behind the gateway: who is asked, in which order, and what becomes
//! of their answers. They are really called, over TLS on the loopback address.

mod dispatch;
mod reinvocation;
mod responses;
mod time;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::config::{self, HeldBack};
use portcullis::webhooks::{ConfiguredWebhook, Upstreams};
use portcullis_cel::json::{Document, patch};
use portcullis_policy::admission::Reinvocation;
use portcullis_policy::admission::matching::{Constraints, MatchPolicy, NoRules};
use portcullis_policy::admission::webhook::{
    self, Call, ClientConfig, SideEffects, Webhook, WebhookConfiguration, WebhookTarget,
};
use portcullis_policy::admission::{
    AdmissionObjects, AdmissionSet, AdmissionSettings, Chain, FailurePolicy, Outcome, Phase, RunOptions,
};
use portcullis_policy::api::{AdmissionReview, ReviewVersion, encode_review, verify};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{Options, load};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::harness::{Case, Mismatch, Table};
use crate::matching::{rules, selector};
use crate::tools::pki::Authority;
use crate::tools::webhooks::{Answer, Webhooks};
use crate::validation::source;

pub(crate) const DISPATCH: Table = &[("dispatch", dispatch::dispatch)];
pub(crate) const REINVOCATION: Table = &[
    ("reinvocation", reinvocation::reinvocation),
    ("reinvocationEndToEnd", reinvocation::end_to_end),
    ("timeout", time::timeout),
];
pub(crate) const RESPONSES: Table = &[("dispatchResponse", responses::response)];

// === skips ===

/// Whether a webhook is nowhere.
pub(crate) fn has_no_client(case: &Case<'_>) -> bool {
    let mut webhooks = case.input()["webhooks"].as_array().into_iter().flatten();
    webhooks.any(|webhook| {
        let client = &webhook["clientConfig"];
        client.get("url").is_none() && client.get("service").is_none()
    })
}

/// Whether the reply is YAML.
pub(crate) fn is_yaml(case: &Case<'_>) -> bool {
    let body = case.input()["http"]["body"].as_str();
    body.is_some_and(|body| body.starts_with("apiVersion:"))
}

// === calls ===

/// One server, which answers what the case says.
struct Live {
    server: Webhooks,
    next: Arc<Mutex<Answer>>,
    /// Those of the call before, whose connection goes on.
    upstreams: Mutex<Upstreams>,
    runtime: Runtime,
}

static LIVE: LazyLock<Live> = LazyLock::new(|| {
    let next = Arc::new(Mutex::new(Answer::http(500, "")));
    let scripted = Arc::clone(&next);
    let server = Webhooks::of(&Authority::new("webhooks"), &[])
        .on("/hook", move |_| scripted.lock().unwrap().clone())
        .start();
    let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
                server: {address: '127.0.0.1:18443', tls: {certificate: s.crt, privateKey: s.key}}\n\
                upstreams: {breaker: {failures: 0}}\n";
    let (config, faults) = config::parse("gateway.yaml".as_ref(), text, "/".as_ref());
    let (upstreams, _) = Upstreams::read(
        &config.unwrap_or_else(|| panic!("{faults}")),
        None,
        &mut HeldBack::new(),
    );
    Live {
        server,
        next,
        upstreams: Mutex::new(upstreams),
        runtime: Runtime::new().unwrap(),
    }
});

/// Asks the server, which answers the question with what `answer` makes of it.
fn call(
    one: &Call,
    review: &AdmissionReview<'_>,
    phase: Phase,
    answer: &dyn Fn(&Value) -> Answer,
) -> webhook::WebhookCallResult {
    call_within(one, review, phase, Duration::from_secs(30), answer)
}

/// The same, with so much time.
fn call_within(
    call: &Call,
    review: &AdmissionReview<'_>,
    phase: Phase,
    timeout: Duration,
    answer: &dyn Fn(&Value) -> Answer,
) -> webhook::WebhookCallResult {
    let uid = format!("{}-of-{}", review.request.uid, call.webhook.name);
    let question = encode_review(call, &review.request, &uid);
    *LIVE.next.lock().unwrap() = answer(&serde_json::from_slice(&question).unwrap());
    let upstreams = {
        let mut before = LIVE.upstreams.lock().unwrap();
        *before = before.with([ConfiguredWebhook::everywhere(&call.webhook)], Some(&before));
        before.clone()
    };
    let called = upstreams.call(("default", &call.webhook), question, timeout, None, None, None);
    let body = LIVE.runtime.block_on(called);
    webhook::WebhookCallResult {
        result: body.and_then(|reply| verify(call, &uid, phase, &reply.body)),
        took: Duration::ZERO,
    }
}

// === what cases say, as the engine has it ===

fn webhook(written: &Value, configuration: &str, name: &str) -> Webhook {
    let text = |field: &str| written[field].as_str().unwrap_or_default();
    let select = |field: &str| selector(&written[field]).unwrap_or_default();
    let versions = written["admissionReviewVersions"].as_array();
    let mut versions = versions.into_iter().flatten().filter_map(Value::as_str);
    let everything = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                             "resources": ["*/*"]}]);
    let written_rules = written.get("rules").unwrap_or(&everything);
    Webhook {
        configuration: configuration.to_owned(),
        name: name.to_owned(),
        client: ClientConfig {
            target: WebhookTarget::Url(LIVE.server.url("/hook")),
            ca_bundle: LIVE.server.authority().to_vec(),
        },
        constraints: Constraints {
            namespace_selector: select("namespaceSelector"),
            object_selector: select("objectSelector"),
            rules: rules(written_rules),
            no_rules: NoRules::Nothing,
            match_policy: MatchPolicy::Equivalent,
            ..Constraints::default()
        },
        match_conditions: Vec::new(),
        failure_policy: match text("failurePolicy") {
            "Ignore" => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        },
        timeout: Duration::from_secs(30),
        side_effects: match text("sideEffects") {
            "None" => Some(SideEffects::None),
            "NoneOnDryRun" => Some(SideEffects::NoneOnDryRun),
            "Some" => Some(SideEffects::Some),
            "Unknown" => Some(SideEffects::Unknown),
            _ => None,
        },
        version: versions.find_map(|version| match version {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }),
        reinvocation: match text("reinvocationPolicy") {
            "IfNeeded" => Reinvocation::IfNeeded,
            _ => Reinvocation::Never,
        },
    }
}

/// These webhooks for both phases, beside what manifests say.
fn set(webhooks: Vec<Webhook>, manifests: &[Value]) -> AdmissionSet {
    let mut configurations: Vec<WebhookConfiguration> = Vec::new();
    for webhook in webhooks {
        let own = configurations
            .iter_mut()
            .find(|one| one.name == webhook.configuration);
        match own {
            Some(own) => own.webhooks.push(Arc::new(webhook)),
            None => configurations.push(WebhookConfiguration {
                name: webhook.configuration.clone(),
                is_static: false,
                webhooks: vec![Arc::new(webhook)],
            }),
        }
    }
    let configurations: Vec<_> = configurations.into_iter().map(Arc::new).collect();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": "webhook-test", "labels": {"runlevel": "0"}}});
    let all = [manifests, &[namespace]].concat();
    let (loaded, faults) = load(&[source(&all)], &Options::default());
    let loaded = loaded.unwrap_or_else(|| panic!("{faults}"));
    let objects = AdmissionObjects {
        validating_webhooks: configurations.clone(),
        mutating_webhooks: configurations,
        ..loaded.shared.admission
    };
    AdmissionSet::new(objects, &AdmissionSettings::default())
}

/// An UPDATE of the pod, or of the custom resource, that the files describe.
fn review(is_custom: bool, dry_run: bool, labels: &Value) -> Document<'static> {
    let (group, resource, kind, name) = match is_custom {
        true => ("custom.example.com", "crd", "Crd", "my-test-crd"),
        false => ("", "pod", "Pod", "my-pod"),
    };
    let version = if is_custom { "custom.example.com/v1" } else { "v1" };
    let mut own = Map::from_iter([(format!("{resource}.name"), json!(name))]);
    own.extend(labels.as_object().cloned().unwrap_or_default());
    let object = |metadata: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        if !is_custom {
            object["spec"] = json!({"containers": null});
        }
        object
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "request", "operation": "UPDATE", "name": name, "namespace": "webhook-test",
            "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "userInfo": {"username": "webhook-test"}, "dryRun": dry_run,
            "object": object(json!({"name": name, "namespace": "webhook-test", "labels": own})),
            "oldObject": object(json!({"name": name, "namespace": "webhook-test"})),
        },
    });
    Document::parse(review.to_string()).unwrap()
}

/// What the object becomes.
fn patched(review: &AdmissionReview<'_>, outcome: &Outcome) -> Value {
    let object = review.request.object.unwrap();
    if outcome.patch.is_empty() || outcome.denial.is_some() {
        return serde_json::from_str(object.raw()).unwrap();
    }
    let operations = Document::parse(outcome.patch.clone()).unwrap();
    let operations = patch::read(operations.root()).unwrap();
    let after = patch::apply(object, operations).unwrap().to_text();
    serde_json::from_str(&after).unwrap()
}

/// The audit annotations but for those of which the one has values and the other only paths.
fn same_annotations(case: &Case<'_>, outcome: &Outcome, expected: &Value) -> Result<(), Mismatch> {
    let is_common = |key: &str| {
        !key.starts_with("patch.webhook.admission.k8s.io/")
            && !key.starts_with("paths.webhook.portcullis.dev/")
    };
    let actual: Map<String, Value> = outcome
        .audit_annotations
        .iter()
        .filter(|(key, _)| is_common(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut expected = expected.as_object().cloned().unwrap_or_default();
    expected.retain(|key, _| is_common(key));
    case.same("audit annotations", &actual, &expected)
}

fn allowed(response: &Value) -> Value {
    let mut response = response.clone();
    response["allowed"] = json!(true);
    response
}

fn json_patch(operations: &Value) -> Value {
    allowed(&json!({"patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())}))
}

/// A reply with this response, in the version and under the uid asked.
fn replying(question: &Value, mut response: Value) -> Answer {
    response["uid"] = question["request"]["uid"].clone();
    let review =
        json!({"apiVersion": question["apiVersion"], "kind": "AdmissionReview", "response": response});
    Answer::http(200, review.to_string())
}
