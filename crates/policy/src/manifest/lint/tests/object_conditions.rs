//! Policies with objectConditions that decide nothing.

use super::*;

fn conditional(effect: &str, resources: &str) -> String {
    policy(
        effect,
        "{kind: User, name: bot}",
        &format!(
            "resourceRules: [{{verbs: [update], apiGroups: [\"\"], resources: [{resources}]}}], objectConditions: \
             [{{name: a, expression: \"has(object.spec)\"}}]"
        ),
    )
}

#[test]
fn an_allow_where_nobody_says_that_validate_sees_requests() {
    let words = "set `admission: Watched` in the cluster's entry of `clusters`";
    warns(&conditional("Allow", "pods"), "spec.objectConditions", words);
    silent(&conditional("Deny", "pods"));
}

#[test]
fn an_access_request_in_a_file() {
    let text = "apiVersion: portcullis.dev/v1alpha1\nkind: AccessRequest\nmetadata: {name: a}\n\
                spec: {role: edit, duration: 1h, reason: r}\n";
    warns(text, "kind", "grants nothing: apply it to the API server");
}

#[test]
fn what_the_registrations_of_init_leave_out() {
    let words = "exclude `pods/status`";
    let path = "spec.resourceRules[0].resources[1]";
    warns(&conditional("Deny", "pods, pods/status"), path, words);
}
