mod asked;
mod mutating;
mod patches;
mod validating;

use crate::model::Time;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::admission::Reinvocation;
use crate::admission::matching::{Constraints, MatchRule, NoRules, Operations, RuleScope};
use crate::admission::webhook::{
    CallFailure, ClientConfig, ReviewVersion, SideEffects, Verdict, Webhook, WebhookConfiguration,
    WebhookReply, WebhookTarget,
};
use crate::admission::{
    AdmissionObjects, AdmissionSettings, CompiledMatchCondition, Denial, ExpressionEnvironment,
    FailurePolicy, GroupVersionKind, GroupVersionResource, Operation, Phase, STATIC_SUFFIX, StatusDetails,
};
use crate::authorization::PolicySet;
use crate::model::{CauseKind, Deadline, LabelSelector, User};
use portcullis_cel::json::{self, Document};

// === what is asked ===

/// A webhook for everything.
fn mk_webhook(name: &str) -> Webhook {
    Webhook {
        configuration: "c".into(),
        name: name.into(),
        client: ClientConfig {
            target: WebhookTarget::Url("https://localhost".into()),
            ca_bundle: Vec::new(),
        },
        constraints: Constraints {
            rules: vec![MatchRule {
                operations: Operations::ALL,
                api_groups: vec!["*".into()],
                api_versions: vec!["*".into()],
                resources: vec!["*/*".into()],
                scope: RuleScope::All,
                resource_names: Vec::new(),
            }],
            no_rules: NoRules::Nothing,
            ..Constraints::default()
        },
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(10),
        side_effects: Some(SideEffects::None),
        version: Some(ReviewVersion::V1),
        reinvocation: Reinvocation::Never,
    }
}

/// Webhooks of one configuration, for both phases.
fn mk_set(webhooks: Vec<Webhook>) -> AdmissionSet {
    mk_set_with(webhooks, &AdmissionSettings::default())
}

fn mk_set_with(webhooks: Vec<Webhook>, settings: &AdmissionSettings) -> AdmissionSet {
    let mut configurations: Vec<WebhookConfiguration> = Vec::new();
    for webhook in webhooks {
        match configurations
            .iter_mut()
            .find(|one| one.name == webhook.configuration)
        {
            Some(configuration) => configuration.webhooks.push(Arc::new(webhook)),
            None => configurations.push(WebhookConfiguration {
                name: webhook.configuration.clone(),
                is_static: webhook.configuration.ends_with(STATIC_SUFFIX),
                webhooks: vec![Arc::new(webhook)],
            }),
        }
    }
    let configurations: Vec<_> = configurations.into_iter().map(Arc::new).collect();
    let objects = AdmissionObjects {
        validating_webhooks: configurations.clone(),
        mutating_webhooks: configurations,
        ..AdmissionObjects::default()
    };
    AdmissionSet::new(objects, settings)
}

/// An UPDATE of a pod.
fn mk_request<'o>(object: &'o Document<'static>) -> Request<'o> {
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
    };
    let resource = GroupVersionResource {
        group: "".into(),
        version: "v1".into(),
        resource: "pods".into(),
    };
    Request {
        uid: "u".into(),
        kind: kind.clone(),
        resource: resource.clone(),
        subresource: "".into(),
        request_kind: kind,
        request_resource: resource,
        name: "p".into(),
        namespace: "ns".into(),
        operation: Operation::Update,
        user: User::default(),
        object: Some(object.root()),
        old_object: Some(object.root()),
        options: None,
        dry_run: false,
        written: object.root(),
    }
}

fn pod() -> Document<'static> {
    Document::parse(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"a"}},"spec":{}}"#,
    )
    .unwrap()
}

// === what is answered ===

fn answered(result: Result<WebhookReply, CallFailure>) -> WebhookCallResult {
    WebhookCallResult {
        result,
        took: Duration::from_millis(1),
    }
}

fn failed() -> WebhookCallResult {
    answered(Err(CallFailure::Failed("failed to call webhook: EOF".into())))
}

fn denied(message: &str) -> WebhookCallResult {
    answered(Ok(WebhookReply {
        denial: Some(Denial {
            status: Denial::FAILURE.into(),
            reason: "".into(),
            code: 403,
            message: message.into(),
            details: StatusDetails::default(),
        }),
        ..WebhookReply::default()
    }))
}

fn patching(patch: &str) -> WebhookCallResult {
    answered(Ok(WebhookReply {
        patch: Some(patch.as_bytes().into()),
        patch_type: "JSONPatch".into(),
        ..WebhookReply::default()
    }))
}

/// A webhook's answer in one word: `noop`, `err`, `deny`, `late`; `set k=v`, or
/// only where the label is not there (`once k=v`) or another is (`if other k=v`).
fn behave(what: &str, call: &Call, received: &Document<'_>) -> WebhookCallResult {
    let object = call.object.as_deref().map_or(received, |object| &**object).root();
    let is_there = |label: &str| object.pointer(&format!("/metadata/labels/{label}")).is_some();
    let words: Vec<&str> = what.split(' ').collect();
    let (does, change) = match *words {
        ["noop"] => return answered(Ok(WebhookReply::default())),
        ["err"] => return failed(),
        ["deny"] => return denied("no"),
        ["late"] => return answered(Err(CallFailure::RequestExpired)),
        ["set", change] => (true, change),
        ["once", change] => (!is_there(change.split('=').next().unwrap()), change),
        ["if", label, change] => (is_there(label), change),
        _ => panic!("{what}"),
    };
    let (label, value) = change.split_once('=').unwrap();
    match does {
        true => patching(&format!(
            r#"[{{"op":"add","path":"/metadata/labels/{label}","value":"{value}"}}]"#
        )),
        false => answered(Ok(WebhookReply::default())),
    }
}

/// One run, in which webhooks do what they are called.
fn run(phase: Phase, set: &AdmissionSet, request: &Request<'_>) -> (Outcome, Vec<String>) {
    let access = PolicySet::default();
    let received = pod();
    let mut asked = Vec::new();
    let outcome = Chain::run(
        phase,
        set,
        request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        &mut |call| {
            asked.push(call.webhook.name.clone());
            behave(&call.webhook.name, call, &received)
        },
    );
    (outcome, asked)
}

fn mutate(set: &AdmissionSet) -> (Outcome, Vec<String>) {
    run(Phase::Mutate, set, &mk_request(&pod()))
}

fn validate(set: &AdmissionSet) -> (Outcome, Vec<String>) {
    run(Phase::Validate, set, &mk_request(&pod()))
}

fn message(outcome: &Outcome) -> &str {
    outcome.denial.as_ref().map_or("", |denial| &denial.message)
}

/// The labels that the object ends up with.
fn labels(outcome: &Outcome) -> Value {
    let object = pod();
    let patch = Document::parse(match outcome.patch.as_str() {
        "" => "[]".to_owned(),
        patch => patch.to_owned(),
    });
    let operations = patch.unwrap();
    let operations = json::patch::read(operations.root()).unwrap();
    let after = json::patch::apply(object.root(), operations).unwrap().to_text();
    serde_json::from_str::<Value>(&after).unwrap()["metadata"]["labels"].take()
}

const fn assert_moves_between_threads<T: Send + 'static>() {}
const _: () = assert_moves_between_threads::<Chain>();
