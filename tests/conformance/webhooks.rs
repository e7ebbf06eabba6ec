//! Webhooks behind the gateway: who is asked, in which order, and what becomes
//! of their answers. They are really called, over TLS on the loopback address.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::api::{AdmissionReview, ReviewVersion, ask, verify};
use portcullis::config;
use portcullis::engine::PolicySet;
use portcullis::engine::admission::matching::{Constraints, MatchPolicy, NoRules};
use portcullis::engine::admission::mutating::Reinvocation;
use portcullis::engine::admission::webhook::{
    self, Call, ClientConfig, SideEffects, Webhook, WebhookConfiguration, WebhookTarget,
};
use portcullis::engine::admission::{
    AdmissionObjects, AdmissionSet, AdmissionSettings, Chain, FailurePolicy, Outcome, Phase, Run,
};
use portcullis::json::{Document, patch};
use portcullis::manifest::{Options, load};
use portcullis::upstream::Upstreams;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::harness::{Case, Mismatch, Table};
use crate::matching::{rules, selector};
use crate::tools::pki::Authority;
use crate::tools::webhooks::{Answer, Webhooks};
use crate::validation::source;

pub(crate) const DISPATCH: Table = &[("dispatch", dispatch)];
pub(crate) const REINVOCATION: Table = &[
    ("reinvocation", reinvocation),
    ("reinvocationEndToEnd", reinvocation_end_to_end),
];
pub(crate) const RESPONSES: Table = &[("dispatchResponse", response)];

/// A webhook that changes something after all others.
const LAST: &str = "last";
const ANNOTATION: &str = "mutation.webhook.admission.k8s.io/";

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
    let (upstreams, _) = Upstreams::read(&config.unwrap_or_else(|| panic!("{faults}")));
    Live {
        server,
        next,
        upstreams: Mutex::new(upstreams),
        runtime: Runtime::new().unwrap(),
    }
});

/// Asks the server, which answers the question with what `answer` makes of it.
fn call(
    call: &Call,
    review: &AdmissionReview<'_>,
    phase: Phase,
    answer: &dyn Fn(&Value) -> Answer,
) -> webhook::Answer {
    let uid = format!("{}-of-{}", review.request.uid, call.webhook.name);
    let question = ask(call, &review.request, &uid);
    *LIVE.next.lock().unwrap() = answer(&serde_json::from_slice(&question).unwrap());
    let upstreams = {
        let mut before = LIVE.upstreams.lock().unwrap();
        *before = before.with([&call.webhook], Some(&before));
        before.clone()
    };
    let called = upstreams.call(&call.webhook, question, Duration::from_secs(30));
    let body = LIVE.runtime.block_on(called);
    webhook::Answer {
        result: body.and_then(|body| verify(call, &uid, phase, &body)),
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
    let after = patch::apply(object, &operations).unwrap().to_text();
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

// === one configuration against `serverBehaviours` ===

fn behaviour(path: &str, question: &Value) -> Answer {
    let reply = |response| replying(question, response);
    let annotations = json!({"key1": "value1"});
    match path {
        "internalErr" => Answer::http(500, "webhook internal server error"),
        "invalidReq" => Answer::http(101, ""),
        "invalidResp" => Answer::http(200, "webhook invalid response"),
        "nonStatusError" => Answer::Reset,
        "nilResponse" => {
            let review = json!({"apiVersion": question["apiVersion"], "kind": "AdmissionReview"});
            Answer::http(200, review.to_string())
        }
        "disallow" | "shouldNotBeCalled" => reply(json!({"allowed": false, "status": {"code": 403}})),
        "disallowReason" => {
            reply(json!({"allowed": false, "status": {"code": 403, "message": "you shall not pass"}}))
        }
        "allow" => reply(allowed(&json!({"auditAnnotations": annotations}))),
        "invalidAnnotation" => reply(allowed(&json!({"auditAnnotations": {"invalid*key": "value1"}}))),
        "noop" => reply(allowed(&json!({}))),
        "removeLabel" => {
            let mut response = json_patch(&json!([{"op": "remove", "path": "/metadata/labels/remove"}]));
            response["auditAnnotations"] = annotations;
            reply(response)
        }
        "addLabel" => reply(json_patch(
            &json!([{"op": "add", "path": "/metadata/labels/added", "value": "test"}]),
        )),
        "invalidPatch" => reply(allowed(
            &json!({"patchType": "JSONPatch", "patch": STANDARD.encode("[{")}),
        )),
        "invalidMutation" => reply(allowed(
            &json!({"patchType": "JSONPatch", "patch": STANDARD.encode("[{\"op\": \"add\"")}),
        )),
        _ => Answer::http(404, ""),
    }
}

fn path_of(written: &Value) -> String {
    let client = &written["clientConfig"];
    let path = client["url"]
        .as_str()
        .or_else(|| client["service"]["path"].as_str())
        .unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn dispatch(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let written = input["webhooks"].as_array().unwrap();
    let of = |written: &Value| webhook(written, "test-webhooks", written["name"].as_str().unwrap());
    let webhooks = || -> Vec<Webhook> { written.iter().map(of).collect() };
    let phase = match input["phase"].as_str() {
        Some("mutating") => Phase::Mutate,
        _ => Phase::Validate,
    };
    let document = review(
        input["customResource"] == true,
        input["dryRun"] == true,
        &input["extraLabels"],
    );
    let review = AdmissionReview::decode(&document).unwrap();
    let run = |webhooks: Vec<Webhook>| {
        let mut asked = Vec::new();
        let set = set(webhooks, &[]);
        let access = PolicySet::default();
        let outcome = Chain::run(phase, &set, &review.request, Run::new(&access), &mut |one| {
            let written = written
                .iter()
                .find(|written| written["name"] == one.webhook.name.as_str());
            asked.push(one.webhook.name.clone());
            call(one, &review, phase, &|question| match written {
                Some(written) => behaviour(&path_of(written), question),
                None => scripted("/set/last/1", question),
            })
        });
        (outcome, asked)
    };
    let (outcome, _) = run(webhooks());
    case.same("allowed", &outcome.denial.is_none(), &(expect["allowed"] == true))?;
    if let Some(denial) = &outcome.denial {
        let code = expect["code"].as_i64().unwrap_or_default();
        case.same("code", &i64::from(denial.code), &code)?;
        let part = expect["errorContains"].as_str().unwrap_or_default();
        if !denial.message.contains(part) {
            return Err(Mismatch::new(denial.message.clone()));
        }
    }
    same_annotations(case, &outcome, &expect["auditAnnotations"])?;
    if let Some(labels) = expect.get("labels") {
        case.same(
            "labels",
            &patched(&review, &outcome)["metadata"]["labels"],
            labels,
        )?;
    }
    for (name, is_eligible) in expect["eligibleForReinvocation"]
        .as_object()
        .into_iter()
        .flatten()
    {
        // One more, after whose change all are asked again that want to be.
        let last = json!({"admissionReviewVersions": ["v1"], "sideEffects": "None"});
        let mut more = webhooks();
        more.push(webhook(&last, "test-webhooks", LAST));
        let (_, asked) = run(more);
        let times = asked.iter().filter(|one| *one == name).count();
        case.same("asked again", &json!(times > 1), is_eligible)?;
    }
    Ok(())
}

// === what becomes of an HTTP answer ===

fn response(case: &Case<'_>) -> Result<(), Mismatch> {
    for (failure_policy, expected) in case.expect()["byFailurePolicy"].as_object().unwrap() {
        response_under(case, failure_policy, expected)?;
    }
    Ok(())
}

fn response_under(case: &Case<'_>, failure_policy: &str, expected: &Value) -> Result<(), Mismatch> {
    let input = case.input();
    let phase = match input["phase"].as_str() {
        Some("mutating") => Phase::Mutate,
        _ => Phase::Validate,
    };
    let written = json!({"failurePolicy": failure_policy, "sideEffects": "None",
                         "admissionReviewVersions": [input["admissionReviewVersion"]]});
    let set = set(vec![webhook(&written, "test-webhooks", "hook.example.com")], &[]);
    let document = review(false, false, &Value::Null);
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let outcome = Chain::run(phase, &set, &review.request, Run::new(&access), &mut |one| {
        call(one, &review, phase, &|question| http(&input["http"], question))
    });
    case.same(
        "allowed",
        &outcome.denial.is_none(),
        &(expected["allowed"] == true),
    )?;
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    let expected_warnings = expected.get("warnings").cloned().unwrap_or(json!([]));
    case.same("warnings", &json!(warnings), &expected_warnings)?;
    if let Some(labels) = expected.get("labels") {
        case.same(
            "labels",
            &patched(&review, &outcome)["metadata"]["labels"],
            labels,
        )?;
    }
    if expected["nonStatusError"] == true {
        // No Status was made of it; the user is told of an internal error.
        return case.same("code", &outcome.denial.map(|denial| denial.code), &Some(500));
    }
    same_annotations(case, &outcome, &expected["auditAnnotations"])?;
    same_denial(case, &outcome, expected)
}

fn same_denial(case: &Case<'_>, outcome: &Outcome, expected: &Value) -> Result<(), Mismatch> {
    let Some(denial) = &outcome.denial else {
        return Ok(());
    };
    let details = &denial.details;
    case.same("code", &json!(denial.code), &expected["code"])?;
    case.same("reason", &json!(denial.reason), &expected["reason"])?;
    let seconds = expected["retryAfterSeconds"].as_i64().unwrap_or_default();
    case.same("retry", &i64::from(details.retry_after_seconds), &seconds)?;
    if let Some(causes) = expected["details"].get("causes") {
        let actual: Vec<Value> = details
            .causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        case.same("causes", &json!(actual), causes)?;
    }
    let message = expected["message"].as_str().unwrap_or_default();
    // Go's own words follow in what these begin.
    let beginnings = [
        "failed to call webhook",
        "received invalid webhook response",
        "undecodable patch",
    ];
    let beginning = beginnings
        .iter()
        .find_map(|part| Some(message.split_once(part)?.0.to_owned() + part));
    let beginning = beginning.unwrap_or_else(|| match denial.reason.as_ref() {
        "InternalError" if !message.contains("patch type") => "Internal error occurred: ".to_owned(),
        _ => message.to_owned(),
    });
    if denial.message.starts_with(&beginning) {
        Ok(())
    } else {
        Err(Mismatch::new(denial.message.clone()))
    }
}

fn http(written: &Value, question: &Value) -> Answer {
    let uid = question["request"]["uid"].as_str().unwrap();
    let body = written["body"].as_str().unwrap_or_default();
    let body = body
        .replace("\"UID\"", &format!("\"{uid}\""))
        .replace("uid: UID", uid);
    let status = u16::try_from(written["status"].as_u64().unwrap()).unwrap();
    let headers = written["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, value)| {
        let name = match name.as_str() {
            "Content-Type" => "content-type",
            "Retry-After" => "retry-after",
            "Location" => "location",
            other => panic!("{other}"),
        };
        (name, value.as_str().unwrap().to_owned())
    });
    Answer::Http {
        status,
        headers: headers.collect(),
        body: body.into_bytes(),
    }
}

// === reinvocation ===

/// A policy that stands in for a plugin of the API server, which runs in both passes.
fn plugin(expression: &str) -> Vec<Value> {
    let api_version = "admissionregistration.k8s.io/v1";
    vec![
        json!({
            "apiVersion": api_version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "plugin"},
            "spec": {
                "reinvocationPolicy": "IfNeeded",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
            },
        }),
        json!({
            "apiVersion": api_version, "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "plugin"}, "spec": {"policyName": "plugin"},
        }),
    ]
}

fn in_tree(written: &str) -> Vec<Value> {
    let add = "[JSONPatch{op: 'add', path: '/metadata/labels/T', value: '1'}]";
    match written.split_once(':') {
        None if written == "none" => Vec::new(),
        None => plugin(add),
        Some((_, label)) => plugin(&format!("'{label}' in object.metadata.labels ? {add} : []")),
    }
}

/// What the webhook at `path` answers: `/set/k/v`, `/setonce/k/v`, `/setif/k/v/c`, `/noop`, `/deny`, `/err`.
fn scripted(path: &str, question: &Value) -> Answer {
    let labels = &question["request"]["object"]["metadata"]["labels"];
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let set = |key: &str, value: &str| {
        json_patch(&json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}]))
    };
    let response = match *words {
        ["set", key, value] => set(key, value),
        ["setonce", key, value] if labels.get(key).is_none() => set(key, value),
        ["setif", key, value, other] if labels.get(other).is_some() => set(key, value),
        ["noop"] | ["setonce", ..] | ["setif", ..] => allowed(&json!({})),
        ["deny"] => json!({"allowed": false}),
        ["err"] => return Answer::http(500, "..."),
        _ => panic!("{path}"),
    };
    replying(question, response)
}

fn reinvocation(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let written = input["webhooks"].as_array().unwrap();
    let webhooks = written.iter().map(|one| {
        let mut one = one.clone();
        one["admissionReviewVersions"] = json!(["v1"]);
        one["sideEffects"] = json!("None");
        let text = |field: &str| one[field].as_str().unwrap().to_owned();
        webhook(&one, &text("configuration"), &text("name"))
    });
    let set = set(
        webhooks.collect(),
        &in_tree(input["inTreePlugin"].as_str().unwrap()),
    );
    let document = review(false, false, &Value::Null);
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let mut paths = Vec::new();
    let outcome = Chain::run(
        Phase::Mutate,
        &set,
        &review.request,
        Run::new(&access),
        &mut |one| {
            let written = written
                .iter()
                .find(|written| written["name"] == one.webhook.name.as_str());
            let path = written.unwrap()["path"].as_str().unwrap();
            paths.push(path.to_owned());
            call(one, &review, Phase::Mutate, &|question| scripted(path, question))
        },
    );
    let rounds = outcome.webhooks.iter().map(|result| result.round);
    let sequence: Vec<String> = rounds
        .zip(&paths)
        .map(|(round, path)| format!("{round}:{path}"))
        .collect();
    case.same("sequence", &json!(sequence), &expect["sequence"])?;
    case.same(
        "labels",
        &patched(&review, &outcome)["metadata"]["labels"],
        &expect["labels"],
    )?;
    same_annotations(case, &outcome, &expect["auditAnnotations"])?;
    let message = outcome.denial.map(|denial| denial.message);
    // What follows is what the HTTP client says of the status.
    let beginning = |text: &str| text.split(": an error on").next().unwrap_or_default().to_owned();
    let expected = expect["error"].as_str().map(beginning);
    let is_same = match (&message, &expected) {
        (Some(message), Some(expected)) => message.starts_with(expected.as_str()),
        (message, expected) => message.is_none() && expected.is_none(),
    };
    case.same("error", &(is_same, &message), &(true, &message))
}

/// `priorityClassName` to `priority`, as the plugin Priority does; a class that is not there is an error.
const PRIORITY: &str = "has(object.spec.priorityClassName) ? [JSONPatch{op: 'add', path: '/spec/priority', \
                        value: {'low-priority': 1, 'high-priority': 10}[object.spec.priorityClassName]}] : []";

/// What `integrationBehaviours` say of the webhook at `path`.
fn integrated(path: &str, question: &Value) -> Answer {
    let object = &question["request"]["object"];
    let labels = &object["metadata"]["labels"];
    let label = |key: &str, value: &str| {
        json_patch(&json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}]))
    };
    let class = |name: &str| json!({"op": "add", "path": "/spec/priorityClassName", "value": name});
    let response = match path {
        "/settrue" => label("fight", "true"),
        "/setfalse" => label("fight", "false"),
        "/addlabel" if labels["a"] != "true" => label("a", "true"),
        "/conditionaladdlabel" if labels.get("a").is_some() => label("b", "true"),
        "/setpriority" if object["spec"]["priorityClassName"] != "high-priority" => {
            let mut operations = vec![class("high-priority")];
            if object["spec"].get("priority").is_some() {
                operations.push(json!({"op": "remove", "path": "/spec/priority"}));
            }
            json_patch(&Value::Array(operations))
        }
        "/setinvalidpriority" => json_patch(&json!([class("invalid")])),
        _ => allowed(&json!({})),
    };
    replying(question, response)
}

fn reinvocation_end_to_end(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let configuration = input["configuration"].as_str().unwrap();
    let written = input["webhooks"].as_array().unwrap();
    let webhooks = written.iter().enumerate().map(|(place, one)| {
        let mut one = one.clone();
        one["admissionReviewVersions"] = json!(["v1"]);
        webhook(&one, configuration, &format!("w{place}.{configuration}"))
    });
    let set = set(webhooks.collect(), &plugin(PRIORITY));
    let mut spec = json!({});
    if let Some(class) = input["initialPriorityClass"].as_str() {
        spec["priorityClassName"] = json!(class);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
                     "metadata": {"name": "p", "labels": input["podLabels"]}, "spec": spec});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "request", "operation": "CREATE", "name": "p", "namespace": "ns",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "u"}, "object": pod,
        },
    });
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let mut times: Map<String, Value> = written
        .iter()
        .map(|one| (one["path"].as_str().unwrap().to_owned(), json!(0)))
        .collect();
    let outcome = Chain::run(
        Phase::Mutate,
        &set,
        &review.request,
        Run::new(&access),
        &mut |one| {
            let place: usize = one.webhook.name[1..2].parse().unwrap();
            let path = written[place]["path"].as_str().unwrap();
            times[path] = json!(times[path].as_u64().unwrap() + 1);
            call(one, &review, Phase::Mutate, &|question| {
                integrated(path, question)
            })
        },
    );
    case.same("invocations", &Value::Object(times), &expect["invocations"])?;
    case.same(
        "an error",
        &outcome.denial.is_some(),
        &expect["error"].is_string(),
    )?;
    if let Some(labels) = expect.get("labels") {
        case.same(
            "labels",
            &patched(&review, &outcome)["metadata"]["labels"],
            labels,
        )?;
    }
    let Some(expected) = expect["mutatedByRoundIndex"].as_object() else {
        return Ok(());
    };
    let mutated = outcome.audit_annotations.iter().filter_map(|(key, value)| {
        let place = key.strip_prefix(ANNOTATION)?;
        let value: Value = serde_json::from_str(value).unwrap();
        Some((place.to_owned(), value["mutated"].clone()))
    });
    case.same("mutated", &mutated.collect::<Map<_, _>>(), expected)
}
