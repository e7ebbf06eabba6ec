//! Kubernetes' own example admission server, as the policies of `config/examples`.
//!
//! An endpoint `/a/b` is the policies named `a-b`: those that mutate, then
//! those that validate what came of it.

use portcullis_policy::model::Time;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use portcullis_cel::json::{Document, patch};
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{
    AdmissionSet, AdmissionSettings, Chain, Outcome, Phase, Request, RunOptions,
};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{Options, Source, load};

use crate::harness::{Case, Mismatch, Table};

pub(crate) const CHECKS: Table = &[("agnhost", endpoint)];

/// The image in the example's ConfigMap, which that server takes as a flag.
const IMAGE: &str = "registry.example.com/sidecar:1";

/// What the server answers in plain text has no counterpart but the status.
pub(crate) fn is_wire(case: &Case<'_>) -> bool {
    let sent_as = case.input()["contentType"].as_str();
    sent_as.is_some_and(|kind| kind != "application/json") || case.input()["method"] != "POST"
}

/// Replies that come late, never, or as a broken connection.
pub(crate) fn is_delay_or_abort(case: &Case<'_>) -> bool {
    ["minDelaySeconds", "neverResponds", "connectionAborted"]
        .iter()
        .any(|field| case.expect().get(field).is_some())
}

fn endpoint(case: &Case<'_>) -> Result<(), Mismatch> {
    let body = &case.input()["body"];
    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let document = Document::parse(body);
    let review = document.as_ref().map(AdmissionReview::decode);
    let Ok(Ok(review)) = review else {
        return case.same("status", &Some(400), &case.expect()["status"].as_u64());
    };
    let name = case.input()["path"].as_str().unwrap();
    let name = name.trim_start_matches('/').replace('/', "-");
    let image = case.input()["flags"]["sidecarImage"].as_str().unwrap_or_default();
    let set = policies(image);

    let expected = &case.expect()["body"]["response"];
    let allowed = expected["allowed"].as_bool().unwrap();
    let mutated = Chain::run(
        Phase::Mutate,
        &set,
        &review.request,
        run(&name),
        &mut fail_every_call,
    );
    let object = patched(&review.request, &mutated.patch);
    let request = Request {
        object: object.as_ref().map(Document::root),
        ..review.request.clone()
    };
    let validated = Chain::run(Phase::Validate, &set, &request, run(&name), &mut fail_every_call);
    let refusal = refusal(&name, &mutated).or_else(|| refusal(&name, &validated));
    case.same("allowed", &refusal.is_none(), &allowed)?;
    if let Some(refusal) = refusal {
        let text = |field| expected["status"][field].as_str();
        let reported = text("message").or_else(|| text("reason")).unwrap_or_default();
        if reported.starts_with("json: ") {
            return Ok(()); // Go's words for an object that it cannot decode.
        }
        return case.same("message", &refusal.as_str(), &reported);
    }
    let expected = patched(&review.request, &case.expect()["patchDecoded"].to_string());
    let text = |object: &Option<Document<'_>>| {
        let text = object.as_ref().map_or("null", |object| object.root().raw());
        serde_json::from_str::<serde_json::Value>(text).unwrap()
    };
    case.same("object", &text(&object), &text(&expected))
}

static ACCESS: LazyLock<PolicySet> = LazyLock::new(PolicySet::default);

fn run(name: &str) -> RunOptions<'_> {
    RunOptions {
        only: Some(name),
        ..RunOptions::new(&*ACCESS, Time::UNIX_EPOCH)
    }
}

/// What is said to the user, without the words that name policy and binding.
fn refusal(name: &str, outcome: &Outcome) -> Option<String> {
    let message = &outcome.denial.as_ref()?.message;
    let prefix = format!("ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: ");
    Some(message.strip_prefix(&prefix).unwrap_or(message).to_owned())
}

/// The object of the request after `text`, a JSON Patch; empty and `null` change nothing.
fn patched(request: &Request<'_>, text: &str) -> Option<Document<'static>> {
    let object = request.object?;
    let text = if matches!(text, "" | "null") { "[]" } else { text };
    let written = Document::parse(text.to_owned()).unwrap();
    let tree = patch::apply(object, patch::read(written.root()).unwrap()).unwrap();
    Some(Document::parse(tree.to_text()).unwrap())
}

/// The examples, with `image` for sidecars.
fn policies(image: &str) -> Arc<AdmissionSet> {
    static SETS: LazyLock<Mutex<BTreeMap<String, Arc<AdmissionSet>>>> = LazyLock::new(Mutex::default);
    let mut sets = SETS.lock().unwrap();
    let set = sets
        .entry(image.to_owned())
        .or_insert_with(|| load_examples(image));
    Arc::clone(set)
}

fn load_examples(image: &str) -> Arc<AdmissionSet> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let sources: Vec<Source> = files
        .map(|path| Source {
            file: path.display().to_string(),
            text: std::fs::read_to_string(&path).unwrap().replace(IMAGE, image),
            cluster: None,
        })
        .collect();
    let (manifests, faults) = load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let policies = manifests.admission(&AdmissionSettings::default());
    Arc::clone(policies.for_cluster("default"))
}
