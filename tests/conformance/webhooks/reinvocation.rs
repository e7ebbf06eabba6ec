//! Who is asked again, and what the object becomes.

use super::*;
use portcullis_policy::model::Time;

/// Under which the API server notes who changed the object.
const ANNOTATION: &str = "mutation.webhook.admission.k8s.io/";

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
pub(super) fn scripted(path: &str, question: &Value) -> Answer {
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

pub(super) fn reinvocation(case: &Case<'_>) -> Result<(), Mismatch> {
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
        RunOptions::new(&access, Time::UNIX_EPOCH),
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

pub(super) fn end_to_end(case: &Case<'_>) -> Result<(), Mismatch> {
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
        RunOptions::new(&access, Time::UNIX_EPOCH),
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
