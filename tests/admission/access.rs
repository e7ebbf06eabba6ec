//! Questions about access that expressions put.

use super::*;

/// What a policy with these validations says of alice's configmap, where she
/// may create configmaps in `ns` and the service account `ns/robot` read nodes.
fn asked(validations: &[&str]) -> Outcome {
    let validations: Vec<String> = validations
        .iter()
        .map(|text| format!("  - expression: {}", json!(text)))
        .collect();
    let policy = mk_policy(&format!("  validations:\n{}", validations.join("\n")), "Deny");
    let manifests = manifests(&format!(
            "{policy}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: writer, namespace: ns}}
rules: [{{apiGroups: [''], resources: [configmaps], verbs: [create]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: writer, namespace: ns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: reader}}
rules: [{{apiGroups: [''], resources: [nodes], verbs: [get]}}, {{nonResourceURLs: [/metrics], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: reader}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:serviceaccounts:ns'}}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: own-node}}
spec:
  effect: Allow
  subjects: [{{kind: User, name: alice}}]
  resourceRules:
  - verbs: [list]
    apiGroups: ['']
    resources: [pods]
    selectors: {{field: [{{key: spec.nodeName, operator: In, values: [n1]}}], label: [{{key: team, operator: Exists}}]}}
"
    ));
    let set = manifests.admission(&AdmissionSettings::default()).shared;
    let run = RunOptions::new(&*manifests.policies.shared, Time::UNIX_EPOCH);
    outcome(Phase::Validate, &set, &mk_review(&json!({})), run)
}

#[test]
fn questions_about_access_are_answered_by_the_policies_of_the_cluster() {
    let robot = "authorizer.serviceAccount('ns', 'robot')";
    let pods = "authorizer.group('').resource('pods')";
    for (expression, expected) in [
        ("authorizer.requestResource.check('create').allowed()", true),
        ("authorizer.requestResource.check('delete').allowed()", false),
        (
            "authorizer.requestResource.check('create').reason().contains('writer')",
            true,
        ),
        ("authorizer.requestResource.check('delete').errored()", false),
        (
            "authorizer.group('').resource('configmaps').namespace('other').check('create').allowed()",
            false,
        ),
        ("authorizer.path('/metrics').check('get').allowed()", false),
        (&format!("{robot}.path('/metrics').check('get').allowed()"), true),
        (
            &format!("{robot}.group('').resource('nodes').name('n').check('get').allowed()"),
            true,
        ),
        (&format!("{pods}.check('list').allowed()"), false),
        (
            &format!(
                "{pods}.fieldSelector('spec.nodeName=n1').labelSelector('team in (a,b)').check('list').allowed()"
            ),
            true,
        ),
        (
            &format!(
                "{pods}.fieldSelector('spec.nodeName=n1').labelSelector('-x,team').check('list').allowed()"
            ),
            false,
        ),
    ] {
        let outcome = asked(&[expression]);
        let said = match &outcome.denial {
            None => true,
            Some(denial) => {
                assert!(denial.message.contains("failed expression"), "{}", denial.message);
                false
            }
        };
        assert_eq!(said, expected, "{expression}");
    }
}
