use crate::manifest::lint::tests::{source, warnings_of};

/// What is said of it in this matter.
fn reported(text: &str) -> Vec<String> {
    let all = warnings_of(&[source(text, None)]);
    let of_this =
        |warning: &String| warning.contains("that the webhook configurations of `portcullis init` exclude");
    all.into_iter().filter(of_this).collect()
}

fn policy(constraints: &str) -> String {
    format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: p}}, \
         spec: {{matchConstraints: {{{constraints}}}, validations: [{{expression: 'true'}}]}}}}\n\
         ---\n\
         {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {{name: p}}, \
         spec: {{policyName: p, validationActions: [Deny]}}}}\n"
    )
}

fn rule(groups: &str, resources: &str) -> String {
    format!(
        "resourceRules: [{{apiGroups: [{groups}], apiVersions: ['*'], operations: ['*'], resources: [{resources}]}}]"
    )
}

#[test]
fn a_policy_that_matches_only_what_registrations_leave_out_is_named() {
    for (groups, resources) in [
        ("authentication.k8s.io", "'*'"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        (
            "''",
            "events, endpoints, nodes, pods/binding, serviceaccounts/token",
        ),
        ("coordination.k8s.io", "leases"),
        ("storage.k8s.io", "csinodes, volumeattachments"),
        ("certificates.k8s.io", "certificatesigningrequests/approval"),
        ("discovery.k8s.io", "endpointslices"),
        ("'*'", "'*/status', '*/finalize'"),
        ("apps", "deployments/status"),
    ] {
        let reported = reported(&policy(&rule(groups, resources)));
        assert_eq!(reported.len(), 1, "{groups} {resources}");
        assert!(
            reported[0].starts_with("spec.matchConstraints: matches only resources"),
            "{reported:?}"
        );
    }
    let name = "matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-system]}]";
    let reported = reported(&policy(&format!(
        "namespaceSelector: {{{name}}}, {}",
        rule("''", "pods")
    )));
    assert!(
        reported.len() == 1 && reported[0].contains("matches only a namespace"),
        "{reported:?}"
    );
}

#[test]
fn a_policy_that_also_matches_something_else_is_not_named() {
    for (groups, resources) in [
        ("''", "events, pods"),
        ("''", "nodes/proxy"),
        ("'*'", "leases"),
        ("'*'", "'*/*'"),
        ("''", "'*'"),
        ("''", "pods/exec"),
        ("example.com", "nodes"),
        ("'', example.com", "endpoints"),
    ] {
        assert_eq!(
            reported(&policy(&rule(groups, resources))),
            [""; 0],
            "{groups} {resources}"
        );
    }
    for expression in [
        "{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}",
        "{key: kubernetes.io/metadata.name, operator: In, values: [kube-system, default]}",
        "{key: team, operator: DoesNotExist}",
    ] {
        let selector = format!("namespaceSelector: {{matchExpressions: [{expression}]}}");
        let text = policy(&format!("{selector}, {}", rule("''", "pods")));
        assert_eq!(reported(&text), [""; 0], "{expression}");
    }
}
