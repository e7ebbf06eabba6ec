//! Faults of manifests, each with its place.

use super::*;
use crate::engine::{Attributes, Decision, ResourceAttributes, Target, User, Validity};
use crate::field::FaultKind;

fn source(text: &str) -> Source {
    Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    }
}

fn faults(text: &str) -> String {
    let mut faults = Faults::new();
    objects(&[source(text)], &mut faults);
    faults.to_string()
}

/// The faults without what stands before the path in each.
fn paths(text: &str) -> Vec<String> {
    let mut faults = Faults::new();
    objects(&[source(text)], &mut faults);
    faults
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.kind.as_str()))
        .collect()
}

#[test]
fn an_object_as_kubectl_shows_it_is_sound() {
    let text = r#"
apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  aggregationRule:
    clusterRoleSelectors:
    - matchLabels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}
  metadata:
    annotations:
      rbac.authorization.kubernetes.io/autoupdate: "true"
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1"}
    creationTimestamp: "2026-11-21T10:00:00Z"
    finalizers: [example.com/keep]
    generation: 2
    labels: {kubernetes.io/bootstrapping: rbac-defaults}
    managedFields:
    - apiVersion: rbac.authorization.k8s.io/v1
      fieldsType: FieldsV1
      fieldsV1: {f:metadata: {f:labels: {.: {}}}}
      manager: kube-apiserver
      operation: Update
      time: "2026-11-21T10:00:00Z"
    name: view
    ownerReferences:
    - {apiVersion: v1, kind: ConfigMap, name: a, uid: "1", controller: true, blockOwnerDeletion: true}
    resourceVersion: "66"
    selfLink: /apis/rbac.authorization.k8s.io/v1/clusterroles/view
    uid: 6d9e1d05-5bc0-4a4e-8a8e-0d7f1b5d8f9e
  rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [get]
- apiVersion: v1
  kind: Namespace
  metadata: {name: team-a, labels: {team: a}, creationTimestamp: null}
  spec: {finalizers: [kubernetes]}
  status: {phase: Active}
"#;
    assert_eq!(faults(text), "");
}

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
    let told: Vec<_> = faults
        .iter()
        .map(|fault| {
            let path = fault.place.path.to_string();
            (path, fault.place.line, fault.kind, fault.message.as_str())
        })
        .collect();
    let path = "spec.matchResources.namespaceSelector.matchLabels";
    let expected =
        [(13, key), (12, value)].map(|(line, message)| (path.to_owned(), line, FaultKind::Invalid, message));
    assert_eq!(told, expected);
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
fn unknown_kinds_versions_and_fields_are_faults() {
    let text = r#"
{apiVersion: portcullis.dev/v1alpha1, kind: AuthorisationPolicy, metadata: {name: a}}
---
{apiVersion: portcullis.dev/v1, kind: AuthorizationPolicy, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: ClusterRole, metadata: {name: a}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: Webhook, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verb: [get]}]}
---
{kind: ClusterRole, metadata: {name: a}}
"#;
    let mut all = Faults::new();
    objects(&[source(text)], &mut all);
    let told: Vec<String> = all
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.message))
        .collect();
    assert_eq!(
        told,
        [
            "kind: `AuthorisationPolicy`: the kinds of `portcullis.dev` are `AuthorizationPolicy`, `AdmissionException`, `PolicyTest`",
            "apiVersion: `portcullis.dev/v1`: write this kind as `portcullis.dev/v1alpha1`",
            "apiVersion: `rbac.authorization.k8s.io/v1alpha1`: write this kind as \
             `rbac.authorization.k8s.io/v1` or `rbac.authorization.k8s.io/v1beta1`",
            "kind: `Webhook`: the kinds of `admissionregistration.k8s.io` are `ValidatingAdmissionPolicy`, \
             `ValidatingAdmissionPolicyBinding`, `MutatingAdmissionPolicy`, `MutatingAdmissionPolicyBinding`, \
             `ValidatingWebhookConfiguration`, `MutatingWebhookConfiguration`, \
             `ExternalAdmissionHookConfiguration`, `InitializerConfiguration`",
            "rules[0].verb: unknown field `verb`",
            "apiVersion: a manifest says its `apiVersion`",
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

#[test]
fn a_fault_names_file_line_object_and_field() {
    let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: a\n  namespace: b\n\
                rules:\n- apiGroups: ['']\n  resources: [pods]\n";
    assert_eq!(
        faults(text),
        "f.yaml:7: Role/b/a: rules[0].verbs: Required value: a rule needs at least one verb"
    );
}

#[test]
fn the_same_object_twice_for_one_cluster_is_a_fault_that_names_both_places() {
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}\n";
    let older = "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: a}}\n";
    let file = |file: &str, text: &str, cluster: Option<&str>| Source {
        file: file.into(),
        text: text.into(),
        cluster: cluster.map(Into::into),
    };
    let mut faults = Faults::new();
    objects(
        &[
            file("east.yaml", role, Some("east")),
            file("west.yaml", older, Some("west")),
            file("both.yaml", &format!("\n{role}"), None),
            file("west-2.yaml", role, Some("west")),
        ],
        &mut faults,
    );
    assert_eq!(
        faults.to_string(),
        "both.yaml:2: ClusterRole/a: metadata.name: Duplicate value: the same object stands at east.yaml:1 \
         for the cluster `east`, and this one holds for every cluster\n\
         west-2.yaml:1: ClusterRole/a: metadata.name: Duplicate value: the same object stands at west.yaml:1"
    );
}

#[test]
fn what_is_no_object_is_ignored_with_a_warning() {
    let mut all = Faults::new();
    let sources = [source(
        "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [a]}",
    )];
    assert_eq!(objects(&sources, &mut all).len(), 0);
    assert!(!all.has_errors() && all.len() == 1, "{all}");
}

#[test]
fn every_fault_of_an_authorization_policy_is_told() {
    let text = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: Upper, namespace: a}
spec:
  effect: deny
  mode: "Off"
  subjects:
  - {kind: Group, name: "a*b", namespace: c, apiGroup: apps}
  - {kind: ServiceAccount, name: "*", apiGroup: rbac.authorization.k8s.io}
  - {kind: Robot, name: a}
  excludeSubjects: [{kind: User}]
  resourceRules:
  - {}
  - verbs: ["get*", ""]
    apiGroups: [apps/v1]
    resources: ["*/*", pods/, po*, a/b/c, ""]
    namespaces: ["*a", "A*", a.b]
    names: [""]
    selectors: {field: [{key: "", operator: In}], label: [{key: a, operator: Exists, values: [b]}]}
    unlessSelectors: {field: [{key: a, operator: Exists}]}
  nonResourceRules:
  - {verbs: [get]}
  - {paths: [healthz]}
  conditions:
  - {name: "", expression: " "}
  - {name: a, expression: "true"}
  - {name: a, expression: "true"}
  failurePolicy: Ignore
"#;
    assert_eq!(
        paths(text),
        [
            "metadata.name: Invalid value",
            "metadata.namespace: Forbidden",
            "spec.effect: Unsupported value",
            "spec.mode: Unsupported value",
            "spec.subjects[0].name: Invalid value",
            "spec.subjects[0].namespace: Forbidden",
            "spec.subjects[0].apiGroup: Unsupported value",
            "spec.subjects[1].name: Invalid value",
            "spec.subjects[1].namespace: Required value",
            "spec.subjects[1].apiGroup: Unsupported value",
            "spec.subjects[2].kind: Unsupported value",
            "spec.excludeSubjects[0].name: Required value",
            "spec.resourceRules[0].verbs: Required value",
            "spec.resourceRules[0].apiGroups: Required value",
            "spec.resourceRules[0].resources: Required value",
            "spec.resourceRules[1].verbs[0]: Invalid value",
            "spec.resourceRules[1].verbs[1]: Required value",
            "spec.resourceRules[1].apiGroups[0]: Invalid value",
            "spec.resourceRules[1].resources[0]: Invalid value",
            "spec.resourceRules[1].resources[1]: Invalid value",
            "spec.resourceRules[1].resources[2]: Invalid value",
            "spec.resourceRules[1].resources[3]: Invalid value",
            "spec.resourceRules[1].resources[4]: Invalid value",
            "spec.resourceRules[1].namespaces[0]: Invalid value",
            "spec.resourceRules[1].namespaces[1]: Invalid value",
            "spec.resourceRules[1].namespaces[2]: Invalid value",
            "spec.resourceRules[1].names[0]: Invalid value",
            "spec.resourceRules[1].selectors.field[0].key: Required value",
            "spec.resourceRules[1].selectors.field[0].values: Required value",
            "spec.resourceRules[1].selectors.label[0].values: Forbidden",
            "spec.resourceRules[1].unlessSelectors.field[0].operator: Unsupported value",
            "spec.nonResourceRules[0].paths: Required value",
            "spec.nonResourceRules[1].verbs: Required value",
            "spec.nonResourceRules[1].paths[0]: Invalid value",
            "spec.conditions[0].name: Required value",
            "spec.conditions[0].expression: Required value",
            "spec.conditions[2].name: Duplicate value",
            "spec.failurePolicy: Unsupported value",
        ]
    );
}

#[test]
fn an_empty_policy_lacks_what_it_needs() {
    assert_eq!(
        paths("{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy}"),
        [
            "metadata.name: Required value",
            "spec.effect: Required value",
            "spec.subjects: Required value",
            "spec.resourceRules: Required value",
        ]
    );
}

fn policy(effect: &str, rule: &str, rest: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: a}}\nspec:\n  \
         effect: {effect}\n  subjects: [{{kind: Group, name: a}}]\n  {rest}\n  resourceRules:\n  \
         - {{verbs: [list], apiGroups: [\"\"], resources: [pods], {rule}}}\n"
    )
}

#[test]
fn selectors_are_for_allow_and_unless_selectors_and_failure_policy_for_deny() {
    let label = "{label: [{key: a, operator: In, values: [b]}]}";
    let selectors = format!("selectors: {label}");
    let unless = format!("unlessSelectors: {label}");
    let failure = "failurePolicy: NoOpinion";
    assert_eq!(faults(&policy("Allow", &selectors, "")), "");
    assert_eq!(faults(&policy("Deny", &unless, failure)), "");
    assert_eq!(
        paths(&policy("Allow", &unless, failure)),
        [
            "spec.resourceRules[0].unlessSelectors: Forbidden",
            "spec.failurePolicy: Forbidden"
        ]
    );
    assert_eq!(
        paths(&policy("Deny", &selectors, "")),
        ["spec.resourceRules[0].selectors: Forbidden"]
    );
}

#[test]
fn null_and_empty_are_absent() {
    let rule = "namespaces: [], names: null, selectors: {}, unlessSelectors: {field: []}";
    assert_eq!(
        faults(&policy(
            "Allow",
            rule,
            "conditions: null\n  nonResourceRules: []\n  mode: null"
        )),
        ""
    );
}

#[test]
fn more_than_64_conditions_are_too_many() {
    let conditions: String = (0..65)
        .map(|n| format!("{{name: c{n}, expression: 'true'}},"))
        .collect();
    assert_eq!(
        paths(&policy("Allow", "", &format!("conditions: [{conditions}]"))),
        ["spec.conditions: Too many"]
    );
}

#[test]
fn a_cluster_is_decided_by_what_is_its_own_and_what_is_for_all() {
    use crate::engine::{Attributes, Decision, ResourceAttributes, Target, User};
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, \
                rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}";
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, \
                   roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: jane}]}";
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: a}}}";
    let of = |text: &str, cluster: &str| Source {
        cluster: Some(cluster.into()),
        ..source(text)
    };
    let sources = [source(role), of(binding, "east"), of(namespace, "west")];
    let (manifests, faults) = load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let decides = |cluster: &str| {
        let target = Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            resource: "pods".into(),
            name: "a".into(),
            ..ResourceAttributes::default()
        }));
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        manifests
            .policies
            .for_cluster(cluster)
            .authorize(&Attributes { user, target }, Time::UNIX_EPOCH)
            .decision
    };
    assert_eq!(decides("east"), Decision::Allow);
    assert_eq!([decides("west"), decides("default")], [Decision::NoOpinion; 2]);
    let west = &manifests.clusters["west"];
    assert_eq!(west.admission.namespaces.len(), 1);
}

#[test]
fn a_condition_that_does_not_compile_is_a_fault_at_its_expression() {
    let condition =
        "conditions: [{name: a, expression: \"request.user ==\"}, {name: b, expression: \"nobody\"}]";
    assert_eq!(
        paths(&policy("Allow", "", condition)),
        [
            "spec.conditions[0].expression: Invalid value",
            "spec.conditions[1].expression: Invalid value"
        ]
    );
}

/// The period of the policy whose spec has these `times`.
fn period(times: &str) -> Validity {
    let text = format!(
        "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, spec: {{effect: Allow, \
         subjects: [{{kind: User, name: jane}}], nonResourceRules: [{{verbs: [get], paths: [/x]}}], {times}}}}}"
    );
    let mut faults = Faults::new();
    let objects = objects(&[source(&text)], &mut faults);
    assert!(!faults.has_errors(), "{faults}");
    match &objects[0].content {
        object::Content::Policy(policy) => policy.validity,
        other => panic!("{other:?}"),
    }
}

#[test]
fn times_are_read_with_and_without_quotes() {
    let eight = Time::parse("2026-12-01T08:00:00Z");
    for times in [
        "notBefore: 2026-12-01T08:00:00Z",
        "notBefore: \"2026-12-01T08:00:00Z\"",
        "notBefore: 2026-12-01T09:00:00+01:00",
        "notBefore: 2026-12-01T08:00:00.000Z, notAfter: null",
    ] {
        let read = period(times);
        assert_eq!((read.not_before, read.not_after), (eight, None), "{times}");
    }
    let read = period("notBefore: 2026-12-01T08:00:00Z, notAfter: 2026-12-01T08:00:01Z");
    assert_eq!(
        (read.not_before, read.not_after),
        (eight, Time::parse("2026-12-01T08:00:01Z"))
    );
    assert_eq!(period("reason: r"), Validity::default());
}

#[test]
fn times_that_are_none_or_never_hold_are_faults() {
    let faulty = |times: &str| {
        faults(&format!(
            "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, spec: {{effect: Allow, \
             subjects: [{{kind: User, name: jane}}], nonResourceRules: [{{verbs: [get], paths: [/x]}}], {times}}}}}"
        ))
    };
    for (times, said) in [
        (
            "notAfter: tomorrow",
            "spec.notAfter: Invalid value: `tomorrow`: must be a time in RFC 3339",
        ),
        (
            "notBefore: 2026-12-01",
            "spec.notBefore: Invalid value: `2026-12-01`: must be a time",
        ),
        (
            "notAfter: \"\"",
            "spec.notAfter: Invalid value: ``: must be a time",
        ),
        ("notAfter: 1764576000", "spec.notAfter: "),
        (
            "notBefore: 2026-12-01T08:00:00Z, notAfter: 2026-12-01T08:00:00Z",
            "spec.notAfter: Invalid value: `2026-12-01T08:00:00Z`: must be after `notBefore`",
        ),
        (
            "notBefore: 2026-12-01T08:00:00Z, notAfter: 2026-12-01T08:30:00+01:00",
            "spec.notAfter: Invalid value: `2026-12-01T07:30:00Z`: must be after `notBefore`",
        ),
    ] {
        let faults = faulty(times);
        assert!(faults.contains(said), "{times}: {faults}");
    }
}

/// A policy of `cluster` whose only rule has `rule`.
fn selecting(rule: &str, cluster: Option<&str>) -> Source {
    Source {
        cluster: cluster.map(Into::into),
        ..source(&format!(
            "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, spec: {{effect: Allow, \
             subjects: [{{kind: User, name: jane}}], resourceRules: [{{verbs: [get], apiGroups: [\"\"], resources: [pods], {rule}}}]}}}}"
        ))
    }
}

#[test]
fn selectors_that_select_everything_or_nothing_are_faults() {
    for (rule, said) in [
        (
            "namespaceSelector: {}",
            "spec.resourceRules[0].namespaceSelector: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabels: {}, matchExpressions: []}",
            "namespaceSelector: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabels: {a: b}}, namespaces: [\"\"]",
            "namespaceSelector: Forbidden",
        ),
        (
            "namespaceSelector: {matchLabels: {a: b}}, namespaces: [\"\", a]",
            "namespaceSelector: Forbidden",
        ),
        (
            "namespaceSelector: {matchLabels: {\"-\": b}}",
            "namespaceSelector.matchLabels: Invalid value",
        ),
        (
            "namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: [\"1\"]}]}",
            "namespaceSelector.matchExpressions[0].operator: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabel: {a: b}}",
            "unknown field `matchLabel`",
        ),
    ] {
        let mut faults = Faults::new();
        objects(&[selecting(rule, None)], &mut faults);
        assert!(faults.to_string().contains(said), "{rule}: {faults}");
    }
    let mut faults = Faults::new();
    objects(&[selecting("namespaceSelector: null", None)], &mut faults);
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn a_selector_of_which_nobody_tells_is_a_fault() {
    const TIER: &str = "namespaceSelector: {matchLabels: {tier: prod}}";
    let by_name = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}";
    let namespace = |cluster: Option<&str>| Source {
        cluster: cluster.map(Into::into),
        ..source("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let faulty = |sources: &[Source], callers: &[&str], watched: &[&str]| {
        let options = Options {
            clusters: names(callers),
            watched: names(watched),
            ..Options::default()
        };
        let (_, faults) = read(sources, &options);
        if faults.has_errors() {
            faults.to_string()
        } else {
            String::new()
        }
    };
    let of = |cluster| selecting(TIER, cluster);
    let said = "spec.resourceRules[0].namespaceSelector: Required value: neither manifests nor a watch tell of the Namespaces";
    assert!(faulty(&[of(None)], &[], &[]).contains(said));
    for (sources, callers, watched, missing) in [
        (vec![of(None)], vec!["east"], vec![], "`east`"),
        (vec![of(None)], vec!["east", "west"], vec!["east"], "`west`"),
        (
            vec![of(Some("east"))],
            vec!["east", "west"],
            vec!["west"],
            "`east`",
        ),
        (
            vec![of(Some("east")), namespace(Some("west"))],
            vec!["east"],
            vec![],
            "`east`",
        ),
        (
            vec![of(None), namespace(Some("west"))],
            vec!["east"],
            vec![],
            "`east`",
        ),
    ] {
        let faults = faulty(&sources, &callers, &watched);
        assert!(
            faults.contains(said) && faults.contains(missing),
            "{callers:?} {watched:?}: {faults}"
        );
    }
    for (sources, callers, watched) in [
        (vec![selecting(by_name, None)], vec!["east"], vec![]),
        (vec![of(None), namespace(None)], vec!["east"], vec![]),
        (vec![of(None), namespace(None)], vec![], vec![]),
        (vec![of(None)], vec!["east"], vec!["east"]),
        (
            vec![of(Some("east")), namespace(Some("east"))],
            vec!["east", "west"],
            vec![],
        ),
        (
            vec![of(None), namespace(Some("east"))],
            vec!["east", "west"],
            vec!["west"],
        ),
    ] {
        assert_eq!(
            faulty(&sources, &callers, &watched),
            "",
            "{callers:?} {watched:?}"
        );
    }
}

#[test]
fn a_cluster_selects_by_its_own_namespaces_and_the_shared_ones() {
    let rule = "namespaceSelector: {matchLabels: {tier: prod}}";
    let namespace = |name: &str, cluster: Option<&str>| Source {
        cluster: cluster.map(Into::into),
        ..source(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{tier: prod}}}}}}"
        ))
    };
    let sources = [
        selecting(rule, None),
        namespace("all", None),
        namespace("own", Some("east")),
    ];
    let (manifests, faults) = load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let allows = |cluster: &str, namespace: &'static str| {
        let target = Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            ..ResourceAttributes::default()
        }));
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        let set = manifests.policies.for_cluster(cluster);
        set.authorize(&Attributes { user, target }, Time::UNIX_EPOCH)
            .decision
            == Decision::Allow
    };
    assert_eq!([allows("east", "all"), allows("east", "own")], [true, true]);
    assert_eq!([allows("west", "all"), allows("west", "own")], [true, false]);
}

/// The faults of an AdmissionException whose spec has these fields.
fn exception(spec: &str) -> Vec<String> {
    paths(&format!(
        "{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e}}, spec: {{{spec}}}}}"
    ))
}

#[test]
fn an_exception_says_what_it_is_for_until_when_and_why() {
    assert_eq!(
        exception(""),
        [
            "spec.policies: Required value",
            "spec.match: Required value",
            "spec.notAfter: Required value",
            "spec.reason: Required value",
        ]
    );
    let rest = "notAfter: 2027-01-31T00:00:00Z, reason: r";
    let rule = |more: &str| {
        format!(
            "resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]{more}}}]"
        )
    };
    let matching = |matches: &str| {
        exception(&format!(
            "policies: [a, b/c.example.com], match: {{{matches}}}, {rest}"
        ))
    };
    for sound in [
        format!(
            "namespaceSelector: {{matchLabels: {{tier: legacy}}}}, {}",
            rule("")
        ),
        rule(", resourceNames: [p]"),
        format!(
            "objectSelector: {{matchLabels: {{a: b}}}}, {}",
            rule(", resourceNames: [p]")
        ),
    ] {
        assert_eq!(matching(&sound), Vec::<String>::new(), "{sound}");
    }
    for (matches, faults) in [
        ("", vec!["spec.match: Required value"]),
        (
            "namespaceSelector: {matchLabels: {tier: legacy}}",
            vec!["spec.match.resourceRules: Required value"],
        ),
        (
            &rule(""),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!("namespaceSelector: {{}}, {}", rule("")),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!(
                "namespaceSelector: {{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: Exists}}]}}, {}",
                rule("")
            ),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!("objectSelector: {{matchLabels: {{a: b}}}}, {}", rule("")),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
    ] {
        assert_eq!(matching(matches), faults, "{matches}");
    }
    let whole = format!("match: {{{}}}, {rest}", rule(", resourceNames: [p]"));
    for (policies, fault) in [
        ("[\"a*\"]", "spec.policies[0]: Invalid value"),
        ("[\"*\"]", "spec.policies[0]: Invalid value"),
        ("[a, a]", "spec.policies[1]: Duplicate value"),
        ("[\"\"]", "spec.policies[0]: Required value"),
        ("[a/b/c]", "spec.policies[0]: Invalid value"),
    ] {
        assert_eq!(
            exception(&format!("policies: {policies}, {whole}")),
            [fault],
            "{policies}"
        );
    }
    let conditions = "matchConditions: [{name: c, expression: \"object.\"}]";
    assert_eq!(
        exception(&format!("policies: [a], {conditions}, {whole}")),
        ["spec.matchConditions[0].expression: Invalid value"]
    );
    let long = whole.replace("reason: r", &format!("reason: {}", "r".repeat(1025)));
    assert_eq!(
        exception(&format!("policies: [a], {long}")),
        ["spec.reason: Too long"]
    );
    let begins = format!("policies: [a], notBefore: 2026-01-01T00:00:00Z, {whole}");
    assert_eq!(
        exception(&begins),
        ["spec.notBefore: Unsupported value"],
        "it has no beginning"
    );
}
