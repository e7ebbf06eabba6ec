use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::cluster::tests::fixtures::{TestAnswer, api_server, block_on};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn limits() -> WatchedKind {
    WatchedKind::of_object("example.com/v1", "Limit")
}

fn group(name: &str, version: &str, kind: &str, freshness: &str) -> Value {
    let resource =
        json!({"resource": "any", "responseKind": {"kind": kind}, "scope": "Cluster", "verbs": []});
    json!({
        "metadata": {"name": name},
        "versions": [{"version": version, "resources": [resource], "freshness": freshness}],
    })
}

fn groups(of: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "items": of})
}

/// The groups that an API server has besides the core group.
fn everywhere() -> Vec<Value> {
    let named = ALWAYS_SERVED_GROUPS
        .iter()
        .map(|name| group(name, "v1", "Any", "Current"));
    named.collect()
}

fn definition(kind: &str) -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true});
    let spec = json!({
        "group": "example.com", "names": {"kind": kind, "plural": "any"}, "scope": "Namespaced", "versions": [version],
    });
    json!({"metadata": {"name": format!("{kind}.example.com"), "resourceVersion": "7"}, "spec": spec})
}

fn definitions(items: &[Value]) -> Value {
    json!({
        "kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "100"}, "items": items,
    })
}

/// What an API server answers that has no Limits.
fn without_limits(path: &str) -> TestAnswer {
    let answer = match path {
        "/api" => groups(&[group("", "v1", "Pod", "Current")]),
        "/apis" => groups(&everywhere()),
        "/apis/apiextensions.k8s.io/v1" => json!({"kind": "APIResourceList", "resources": [
            {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "verbs": ["list", "watch"]},
        ]}),
        DEFINITIONS => definitions(&[definition("Other")]),
        other => panic!("{other}"),
    };
    (StatusCode::OK, answer)
}

/// The evidence of a server that answers at `path` otherwise, where definitions of version 100
/// are known.
fn evidence_with(path: &'static str, answer: TestAnswer) -> AbsenceEvidence {
    block_on(async move {
        let server = api_server(move |uri| match uri.path() == path {
            true => answer.clone(),
            false => without_limits(uri.path()),
        });
        evidence_of_absence(&server, &limits(), Some(100)).await.unwrap()
    })
}

#[test]
fn what_an_api_server_lists_nowhere_is_absent() {
    let as_it_is = without_limits("/api");
    assert_eq!(evidence_with("/api", as_it_is), AbsenceEvidence::Proven);
}

#[test]
fn a_server_that_says_something_else_is_no_evidence() {
    let ok = |answer: Value| (StatusCode::OK, answer);
    let refused = |status: StatusCode| (status, json!({"kind": "Status", "message": "no"}));
    let mut lists_it = everywhere();
    lists_it.push(group("example.com", "v2", "Limit", "Current"));
    let mut is_stale = everywhere();
    is_stale.push(group("example.com", "v2", "Other", "Stale"));
    let mut unreadable = definition("Limit");
    unreadable["spec"] = json!("?");
    let mut older = definitions(&[]);
    older["metadata"]["resourceVersion"] = json!("99");
    for (path, answer, expected) in [
        ("/api", refused(StatusCode::NOT_FOUND), "`/api`: no"),
        ("/apis", refused(StatusCode::NOT_FOUND), "`/apis`: no"),
        ("/api", ok(groups(&[])), "does not list the group ``"),
        (
            "/apis",
            ok(groups(&everywhere()[1..])),
            "does not list the group `apps`",
        ),
        (
            "/apis",
            ok(groups(&everywhere()[..2])),
            "does not list the group `apiextensions.k8s.io`",
        ),
        (
            "/apis",
            ok(json!({"kind": "APIGroupList", "groups": []})),
            "not an APIGroupDiscoveryList",
        ),
        ("/apis", ok(groups(&lists_it)), "lists it among what it serves"),
        ("/apis", ok(groups(&is_stale)), "lists it among what it serves"),
        (
            DEFINITIONS,
            ok(definitions(&[definition("Limit")])),
            "`Limit.example.com` defines it",
        ),
        (
            DEFINITIONS,
            ok(definitions(&[unreadable])),
            "`Limit.example.com` defines it",
        ),
        (DEFINITIONS, ok(older), "older than those that are known"),
        (
            "/apis/apiextensions.k8s.io/v1",
            refused(StatusCode::NOT_FOUND),
            "CustomResourceDefinitions are not served",
        ),
    ] {
        let AbsenceEvidence::Contradicted(why) = evidence_with(path, answer) else {
            panic!("{expected}");
        };
        assert!(why.contains(expected), "{why}");
    }
    let undefined = evidence_with(DEFINITIONS, refused(StatusCode::FORBIDDEN));
    assert_eq!(undefined, AbsenceEvidence::Undefined);
}
