//! Each warning, and what is so near to it that it must not warn.

mod admission;
mod denies;
mod grants;
mod limits;
mod object_conditions;
mod words;

use crate::authorization::authorizer::Authorizer;
use crate::authorization::condition::Condition;
use crate::authorization::{FailurePolicy, NeverDeny};
use crate::manifest::{Options, Source, load};
use crate::model::Time;
use portcullis_cel::Version;

pub(crate) fn source(text: &str, cluster: Option<&str>) -> Source {
    Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: cluster.map(Into::into),
    }
}

pub(crate) fn warnings_of(sources: &[Source]) -> Vec<String> {
    let (manifests, faults) = load(
        sources,
        &Options {
            never_deny: NeverDeny::default(),
            now: Time::parse("2026-11-22T12:00:00Z"),
            api_server_webhooks: webhooks(),
            ..Options::default()
        },
    );
    assert!(manifests.is_some(), "{faults}");
    faults
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.message))
        .collect()
}

/// The API server's own webhook, which is not asked about `system:skipped`.
fn webhooks() -> Vec<Authorizer> {
    let expression = "!('system:skipped' in request.groups)";
    vec![Authorizer {
        name: "portcullis".into(),
        match_conditions: vec![Condition::compile(Version::NEWEST, "not-skipped", expression).unwrap()],
        failure_policy: FailurePolicy::Deny,
    }]
}

fn warnings(text: &str) -> Vec<String> {
    warnings_of(&[source(text, None)])
}

/// The only warning about `text` is at `path` and says `words`.
pub(crate) fn warns(text: &str, path: &str, words: &str) {
    let all = warnings(text);
    assert!(
        all.len() == 1 && all[0].starts_with(&format!("{path}: ")) && all[0].contains(words),
        "{all:#?}"
    );
}

pub(crate) fn silent(text: &str) {
    assert_eq!(warnings(text), Vec::<String>::new());
}

fn policy(effect: &str, subjects: &str, rules: &str) -> String {
    format!(
        "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, \
         spec: {{effect: {effect}, subjects: [{subjects}], {rules}}}}}"
    )
}

fn allow(rule: &str) -> String {
    policy(
        "Allow",
        "{kind: User, name: jane}",
        &format!("resourceRules: [{{{rule}}}]"),
    )
}

const CLUSTER_ROLE: &str =
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: ";
const EVERYTHING: &str = "[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]";

#[test]
fn policies_outside_their_time() {
    let policy = |times: &str| {
        allow("verbs: [get], apiGroups: [\"\"], resources: [pods]")
            .replace("spec: {", &format!("spec: {{{times}, "))
    };
    warns(
        &policy("notAfter: 2026-11-22T12:00:00Z"),
        "spec.notAfter",
        "expired at 2026-11-22T12:00:00Z",
    );
    warns(
        &policy("notBefore: 2026-11-22T12:00:01Z, notAfter: 2026-11-23T12:00:00Z"),
        "spec.notBefore",
        "is not in force before 2026-11-22T12:00:01Z",
    );
    silent(&policy(
        "notBefore: 2026-11-22T12:00:00Z, notAfter: 2026-11-22T12:00:01Z",
    ));
}

fn deny_paths(paths: &str) -> String {
    policy(
        "Deny",
        "{kind: User, name: jane}",
        &format!("nonResourceRules: [{{verbs: [get], paths: [{paths}]}}]"),
    )
}
