//! What is in force in the tests: something of every kind, and names that would be markup if a
//! page took them for it.

use serde_json::{Value, json};

use crate::harness::webhooks::Webhooks;

/// Would run a script in a page that took it for markup: as an element, out of an attribute, out
/// of a script, as a reference that is resolved twice, and as an expression of a template.
pub(crate) const MARKUP: &str = "<img class=planted src=x onerror=window.__pwned=1> \
    \"'><script class=planted>window.__pwned=2</script> </textarea></title><b class=planted> \
    &lt;b class=planted&gt; javascript:window.__pwned=3 {{7+7}}${7+7} hx-on:load=\"window.__pwned=4\"";

/// The same as the name of an object, which has no `/` and no `%`.
pub(crate) const MARKUP_NAME: &str = "<img class=planted src=x onerror=window.__pwned=5>\"'?a=b&c#d";

/// Alice reads pods, Carol reads no Secrets, and a policy is tried on Dora.
pub(crate) const AUTHORIZATION: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules:
- {apiGroups: [''], resources: [pods, configmaps], verbs: [get, list, create]}
- {nonResourceURLs: [/version], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: developers-read}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: contractors-see-no-secrets}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: [get, list, watch], apiGroups: [''], resources: [secrets]}]
  reason: contractors see no Secrets
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: tried-on-dora}
spec:
  effect: Deny
  mode: Shadow
  subjects: [{kind: User, name: dora}]
  resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}]
  reason: Dora would list no pods
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: never-matches}
spec:
  effect: Deny
  subjects: [{kind: User, name: nobody-of-this-name}]
  resourceRules: [{verbs: [delete], apiGroups: [''], resources: [nodes]}]
  reason: nobody deletes nodes
";

/// ConfigMaps and Services called `…refused` are refused, and every one of them gets a label.
pub(crate) const ADMISSION: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps, services]}]}
  validations: [{expression: \"!object.metadata.name.endsWith('refused')\", message: this name is refused}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: names}
spec: {policyName: names, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labels}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps, services]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: \"Object{metadata: Object.metadata{labels: {'seen-by': 'portcullis'}}}\"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labels}
spec: {policyName: labels}
";

/// Objects whose names, reasons and messages are markup.
pub(crate) fn hostile() -> String {
    let rbac = "rbac.authorization.k8s.io";
    let objects: [Value; 5] = [
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": MARKUP_NAME, "labels": {"l": "v"}, "annotations": {"a": MARKUP}},
            "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": MARKUP_NAME},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": MARKUP_NAME},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": MARKUP}],
        }),
        json!({
            "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
            "metadata": {"name": "hostile", "annotations": {"a": MARKUP}},
            "spec": {
                "effect": "Deny",
                "subjects": [{"kind": "User", "name": MARKUP}],
                "resourceRules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}],
                "reason": MARKUP,
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "hostile", "annotations": {"a": MARKUP}},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
                "validations": [{"expression": "object.metadata.name != 'hostile'", "message": MARKUP}],
                "auditAnnotations": [{"key": "hostile", "valueExpression": format!("{}", json!(MARKUP))}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "hostile"},
            "spec": {"policyName": "hostile", "validationActions": ["Deny"]},
        }),
    ];
    objects.map(|object| object.to_string()).join("\n---\n")
}

/// Two webhooks behind the gateway.
pub(crate) fn webhooks(server: &Webhooks) -> String {
    let configuration = |kind: &str, name: &str, path: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.example.com"),
                "clientConfig": server.client_config(path),
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 10,
            }],
        })
        .to_string()
    };
    [
        configuration("MutatingWebhookConfiguration", "labeller", "/label"),
        configuration("ValidatingWebhookConfiguration", "guard", "/guard"),
    ]
    .join("\n---\n")
}
