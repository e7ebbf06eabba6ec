//! AuthorizationPolicies: what they must have, and when they hold.

use super::*;

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
        validated::Content::Policy(policy) => policy.validity,
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

#[test]
fn many_subjects_have_few_rules() {
    let policy = |subjects: usize, rules: usize| {
        let subjects: Vec<String> = (0..subjects)
            .map(|at| format!("{{kind: User, name: u{at}}}"))
            .collect();
        let rules = vec!["{verbs: [get], apiGroups: [''], resources: [pods]}"; rules];
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: p}}\nspec:\n  \
             effect: Deny\n  subjects: [{}]\n  resourceRules: [{}]\n",
            subjects.join(", "),
            rules.join(", ")
        )
    };
    assert_eq!(paths(&policy(400, 500)), [""; 0]);
    assert_eq!(paths(&policy(400, 501)), ["spec: Too many"]);
}
