//! No user makes a review fail by what they ask.
//!
//! A review that fails under `failurePolicy: NoOpinion` is left to RBAC, and no Deny
//! applies. So the user here is denied everything, with a reason: any answer without that
//! reason comes from a review that failed.

use crate::cluster::User;
use crate::scenario::{self, Part};

pub(crate) const PART: Part = Part {
    name: "hostile",
    users: &[User {
        name: "hugo",
        groups: &["via:no-opinion"],
    }],
    policies: r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: nothing-for-hugo}
spec:
  effect: Deny
  subjects: [{kind: User, name: hugo}]
  resourceRules:
  - {verbs: ["*"], apiGroups: ["*"], resources: ["*"]}
  nonResourceRules:
  - {verbs: ["*"], paths: ["/metrics*", "/debug*"]}
  reason: nothing for hugo
"#,
};

/// What the API server accepts of a request's head, less room for the rest of
/// it: Go's limit is 1 MiB and 4 KiB.
const LONGEST: usize = (1 << 20) + 3500;

const PODS: &str = "/api/v1/namespaces/kittens/pods";

fn assert_denied(target: &str) {
    let Some(servers) = scenario::shared() else { return };
    let answer = servers.cluster.user("hugo").get(target).unwrap();
    let shown = target.get(..200).unwrap_or(target);
    assert_eq!(answer.status, 403, "{shown}: {}", answer.text());
    assert!(
        answer.text().contains("nothing for hugo"),
        "{shown}: {}",
        answer.text()
    );
}

/// As many times `requirement` as fit into the longest request.
fn assert_denied_with_many(parameter: &str, requirement: &str) {
    let start = format!("{PODS}?{parameter}=");
    let count = (LONGEST - start.len() - 1) / (requirement.len() + 1);
    assert_denied(&format!("{start}{}", vec![requirement; count].join(",")));
}

pub(crate) fn a_mebibyte_of_label_selectors_does_not_make_a_review_fail() {
    assert_denied_with_many("labelSelector", "a");
}

pub(crate) fn a_mebibyte_of_field_selectors_does_not_make_a_review_fail() {
    assert_denied_with_many("fieldSelector", "=<");
}

pub(crate) fn an_empty_key_in_a_field_selector_does_not_make_a_review_fail() {
    for selector in ["%3Dx", "!%3Dx", "%3D", "%3D%3D", "spec.nodeName%3Dnode-1,%3Dx"] {
        assert_denied(&format!("{PODS}?fieldSelector={selector}"));
    }
}

pub(crate) fn odd_names_and_selectors_do_not_make_a_review_fail() {
    for target in [
        "/api/v1/namespaces/kittens/pods/%00",
        "/api/v1/namespaces/kittens/pods/%FF%FE",
        "/api/v1/namespaces/kittens/pods/%F0%9F%90%88",
        "/api/v1/namespaces/%22%5C%0A/pods/p",
        "/api/v1/namespaces/kittens/pods?labelSelector=a%3E1",
        "/api/v1/namespaces/kittens/pods?labelSelector=a%20in%20()",
        "/api/v1/namespaces/kittens/pods?labelSelector=((",
        "/api/v1/namespaces/kittens/pods?fieldSelector=a%5C%2Cb%3Dc",
        "/api/v1/namespaces/kittens/pods?fieldSelector=metadata.name%3D%FF",
        "/apis/no.such.group/v1/things",
        "/metrics%00",
        "/debug/%FF",
    ] {
        assert_denied(target);
    }
}
