//! RBAC: every fault of roles, aggregations and bindings.

use super::*;

#[test]
fn every_fault_of_a_role_is_told() {
    let text = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a/b, labels: {"-x": "y z"}}
rules:
- {}
- {verbs: [get], nonResourceURLs: [/metrics], resources: [pods]}
- {verbs: [get], apiGroups: [], resources: []}
"#;
    assert_eq!(
        paths(text),
        [
            "metadata.name: Invalid value",
            "metadata.namespace: Required value",
            "metadata.labels: Invalid value",
            "metadata.labels: Invalid value",
            "rules[0].verbs: Required value",
            "rules[0].apiGroups: Required value",
            "rules[0].resources: Required value",
            "rules[1].nonResourceURLs: Invalid value",
            "rules[1].nonResourceURLs: Invalid value",
            "rules[2].apiGroups: Required value",
            "rules[2].resources: Required value",
        ]
    );
}

#[test]
fn a_bad_label_of_a_selector_is_reported_at_match_labels_in_the_words_of_kubernetes() {
    let text = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: p
  validationActions: [Deny]
  matchResources:
    namespaceSelector:
      matchLabels:
        good: "yes"
        team: "a b"
        -x: c
"#;
    let mut faults = Faults::new();
    objects(&[source(text)], &mut faults);
    let value = "`a b`: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
                 or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let key = "`-x`: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
               end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
               regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let reported: Vec<_> = faults
        .iter()
        .map(|fault| {
            let path = fault.place.path.to_string();
            (path, fault.place.line, fault.kind, fault.message.as_str())
        })
        .collect();
    let path = "spec.matchResources.namespaceSelector.matchLabels";
    let expected =
        [(13, key), (12, value)].map(|(line, message)| (path.to_owned(), line, FaultKind::Invalid, message));
    assert_eq!(reported, expected);
}

#[test]
fn every_fault_of_an_aggregation_is_told() {
    let text = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: a, namespace: b}
aggregationRule:
  clusterRoleSelectors:
  - matchLabels: {a: "b c"}
    matchExpressions:
    - {key: "", operator: In}
    - {key: a, operator: Exists, values: [b]}
    - {key: a, operator: in, values: ["-"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: c}
aggregationRule: {}
"#;
    assert_eq!(
        paths(text),
        [
            "metadata.namespace: Forbidden",
            "aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].key: Invalid value",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].key: Invalid value",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[1].values: Forbidden",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[2].operator: Invalid value",
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[2].values[0]: Invalid value",
            "aggregationRule.clusterRoleSelectors: Required value",
        ]
    );
}

#[test]
fn every_fault_of_a_binding_is_told() {
    let text = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: a}
roleRef: {apiGroup: v1, kind: Role, name: ""}
subjects:
- {kind: User, apiGroup: v1, name: ""}
- {kind: ServiceAccount, apiGroup: rbac.authorization.k8s.io, name: Bad_Name}
- {kind: user, name: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: a, namespace: b}
roleRef: {kind: Role, name: ..}
subjects:
- {kind: ServiceAccount, name: of-the-same-namespace}
- {kind: User, name: "any text: even / this"}
"#;
    assert_eq!(
        paths(text),
        [
            "roleRef.apiGroup: Unsupported value",
            "roleRef.kind: Unsupported value",
            "roleRef.name: Required value",
            "subjects[0].name: Required value",
            "subjects[0].apiGroup: Unsupported value",
            "subjects[1].name: Invalid value",
            "subjects[1].apiGroup: Unsupported value",
            "subjects[1].namespace: Required value",
            "subjects[2].kind: Unsupported value",
            "roleRef.name: Invalid value",
        ]
    );
}

#[test]
fn v1beta1_of_rbac_is_read_as_v1() {
    let text = r#"
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: ClusterRoleBinding
metadata: {name: a}
roleRef: {kind: ClusterRole, name: a}
subjects: [{kind: User, name: jane}]
"#;
    assert_eq!(faults(text), "");
}
