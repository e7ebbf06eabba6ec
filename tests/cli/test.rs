//! `portcullis test`.

use serde_json::Value;

use crate::run::{Portcullis, Run};

const POLICY: &str = "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: readers}
spec:
  effect: Allow
  subjects: [{kind: Group, name: readers}]
  resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [pods]}]
";

/// A suite of `cases`, beside the policy.
fn with_suite(cases: &str) -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/readers.yaml", POLICY);
    let head = "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [readers.yaml]\ncases:\n";
    portcullis.write("policies/readers_test.yaml", &format!("{head}{cases}"));
    portcullis
}

const PASSING: &str = "- name: reads
  request: {user: a, groups: [readers], verb: get, resource: pods, namespace: 'n'}
  expect: {decision: allow, cause: AuthorizationPolicy/readers, rule: 0}
";

#[test]
fn cases_that_pass_are_0() {
    let portcullis = with_suite(PASSING);
    for arguments in ["test policies", "test policies/readers_test.yaml"] {
        let run = portcullis.run(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "1 passed, 0 failed\n"),
            "{run:?}"
        );
    }
}

#[test]
fn a_failing_case_is_1_and_says_what_differs_and_why() {
    let failing = "- name: writes
  request: {user: a, groups: [readers], verb: delete, resource: pods, namespace: 'n'}
  expect: {decision: deny, cause: AuthorizationPolicy/other}
";
    let run = with_suite(&format!("{PASSING}{failing}")).run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "FAIL policies/readers_test.yaml:8: writes",
        "  decision:\n  - deny\n  + noOpinion\n",
        "  cause:\n  - AuthorizationPolicy/other\n",
        "| considered:",
        "1 passed, 1 failed",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
}

#[test]
fn faults_of_a_suite_are_1_and_told_at_once() {
    let faulty = "- name: one
  request: {user: a, verb: get}
  expect: {decision: perhaps}
";
    let run = with_suite(faulty).run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("cases[0].request.resource: "), "{run:?}");
    assert!(
        run.stdout
            .contains("readers_test.yaml:7: PolicyTest: cases[0].expect.decision: "),
        "{run:?}"
    );
}

#[test]
fn unknown_keys_of_a_case_are_faults() {
    let run = with_suite(&PASSING.replace("rule: 0", "rulle: 0")).run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("cases[0].expect.rulle"), "{run:?}");
}

#[test]
fn faults_of_the_policies_are_1() {
    let portcullis = with_suite(PASSING);
    portcullis.write("policies/readers.yaml", &POLICY.replace("Allow", "Permit"));
    let run = portcullis.run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("readers.yaml:5: "), "{run:?}");
}

#[test]
fn a_suite_beside_its_policies_is_no_fault_of_them() {
    let run = with_suite(PASSING).run("check policies");
    assert_eq!((run.code, run.stdout.as_str()), (0, "valid\n"), "{run:?}");
}

#[test]
fn nothing_to_run_is_2() {
    let portcullis = with_suite("");
    portcullis.write("empty/policy.yaml", POLICY);
    for arguments in ["test empty", "test absent", "test"] {
        assert_eq!(portcullis.run(arguments).code, 2, "`{arguments}`");
    }
}

#[test]
fn outcomes_as_json() {
    let run = with_suite(&PASSING.replace("allow", "deny")).run("test policies -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (json["passed"].as_u64(), json["failed"].as_u64()),
        (Some(0), Some(1))
    );
    assert_eq!(json["cases"][0]["name"], "reads");
    assert_eq!(json["cases"][0]["differences"][0]["what"], "decision");
}

const ADMISSION: &str = r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "'owner' in object.metadata.labels", message: name an owner, reason: Forbidden}]
  auditAnnotations: [{key: who, valueExpression: request.userInfo.username}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner}
spec: {policyName: owner, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: one}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 1}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: one}
spec: {policyName: one}
"#;

/// A suite of `cases` about admission, with a review in a file.
fn of_admission(cases: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("owner.yaml", ADMISSION);
    portcullis.write(
        "review.json",
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u","operation":"DELETE",
            "kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"}}}"#,
    );
    let head = "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [owner.yaml]\ncases:\n";
    portcullis.write("suite.yaml", &format!("{head}{cases}"));
    portcullis.run("test suite.yaml")
}

const DEPLOYMENT: &str = "object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: 'n', labels: {LABEL}}, spec: {replicas: 3}}";

#[test]
fn reviews_are_answered_and_compared() {
    let (with, without) = (
        DEPLOYMENT.replace("LABEL", "owner: a"),
        DEPLOYMENT.replace("LABEL", ""),
    );
    let run = of_admission(&format!(
        "- name: refused
  phase: validate
  review: {{userInfo: {{username: jane}}, {without}}}
  expect:
    allowed: false
    message: \"ValidatingAdmissionPolicy 'owner' with binding 'owner' denied request: name an owner\"
    reason: Forbidden
    code: 403
    cause: ValidatingAdmissionPolicy/owner
    rule: 0
    warnings: []
    auditAnnotations: {{owner.who: jane}}
- name: changed and allowed
  review: {{userInfo: {{username: jane}}, {with}}}
  expect: {{allowed: true, code: 200, object: {{spec: {{replicas: 1}}, status: null}}}}
- name: not asked
  policy: one
  review: {{{without}}}
  expect: {{allowed: true, auditAnnotations: {{}}}}
- name: another kind, from a file
  reviewFile: review.json
  expect: {{allowed: true}}
"
    ));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "4 passed, 0 failed\n"),
        "{run:?}"
    );
}

#[test]
fn a_review_that_is_answered_otherwise_says_how() {
    let without = DEPLOYMENT.replace("LABEL", "");
    let run = of_admission(&format!(
        "- name: wrong
  review: {{{without}}}
  expect: {{allowed: true, code: 422, warnings: [w], auditAnnotations: {{owner.who: joe}}, object: {{spec: {{replicas: 2}}}}}}
- name: nobody
  policy: nobody
  review: {{{without}}}
  expect: {{allowed: true}}
"
    ));
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "FAIL suite.yaml:5: wrong",
        "  allowed:\n  - true\n  + false\n",
        "  code:\n  - 422\n  + 403\n",
        "  warnings:\n  - w\n",
        "  auditAnnotations:\n  - owner.who: joe\n",
        "  `object.spec.replicas`:\n  - 2\n  + 1\n",
        "| deny: ValidatingAdmissionPolicy 'owner'",
        "  policy:\n  - nobody\n",
        "0 passed, 2 failed",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
}

#[test]
fn what_a_case_cannot_mean_is_a_fault_with_its_place() {
    let run = of_admission("- {name: misplaced, reviewFile: review.json, expect: {decision: allow, allowed: true}}
- {name: missing, reviewFile: review.json, expect: {code: 200}}
- {name: no such phase, phase: think, reviewFile: review.json, expect: {allowed: true}}
- {name: neither, expect: {allowed: true}}
- {name: both, request: {user: a}, reviewFile: review.json, expect: {allowed: true}}
- {name: no kind, review: {operation: CREATE}, expect: {allowed: true}}
- {name: no file, reviewFile: no.json, expect: {allowed: true}}
- {name: misplaced too, policy: p, request: {user: a, verb: get, resource: pods}, expect: {decision: deny, code: 200}}
");
    for said in [
        "cases[0].expect.decision",
        "cases[1].expect.allowed",
        "cases[2].phase",
        "cases[3]: ",
        "cases[4]: ",
        "cases[5].review: ",
        "cases[6].reviewFile: ",
        "cases[7].policy",
        "cases[7].expect.code",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
}

#[test]
fn a_case_is_decided_at_its_own_time_and_the_others_at_that_of_the_run() {
    let portcullis = with_suite(
        "- name: while it holds
  at: 2026-12-01T09:00:00+01:00
  request: {user: a, groups: [readers], verb: get, resource: pods, namespace: 'n'}
  expect: {decision: allow}
- name: afterwards
  at: 2026-12-01T12:00:00Z
  request: {user: a, groups: [readers], verb: get, resource: pods, namespace: 'n'}
  expect: {decision: noOpinion}
- name: at the time of the run
  request: {user: a, groups: [readers], verb: get, resource: pods, namespace: 'n'}
  expect: {decision: allow}
",
    );
    let policy = POLICY.replace(
        "  effect",
        "  notBefore: 2026-12-01T08:00:00Z\n  notAfter: 2026-12-01T12:00:00Z\n  effect",
    );
    portcullis.write("policies/readers.yaml", &policy);
    let run = portcullis.run("test policies --at 2026-12-01T11:59:59Z");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "3 passed, 0 failed\n"),
        "{run:?}"
    );
    let run = portcullis.run("test policies --at 2026-12-01T07:59:59Z");
    assert!(run.stdout.contains("2 passed, 1 failed"), "{run:?}");
    assert!(run.stdout.contains("is not in force at this time"), "{run:?}");
}

#[test]
fn a_time_that_is_none_is_a_fault_of_its_case() {
    let run = with_suite(&PASSING.replace("  request", "  at: noon\n  request")).run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("cases[0].at: Invalid value: `noon`"),
        "{run:?}"
    );
}

#[test]
fn nothing_is_said_to_be_covered_by_a_suite_that_could_not_be_run() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "suite_test.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: x}\nmanifest: [a.yaml]\ncases: []\n",
    );
    let run = portcullis.run("test --coverage suite_test.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        !run.stdout.contains('%') && run.stdout.contains("coverage: not known"),
        "{run:?}"
    );
    let json = portcullis.run("test --coverage suite_test.yaml -o json");
    assert!(!json.stdout.contains("\"coverage\""), "{json:?}");
}

/// What an aggregated ClusterRole grants stands in others.
#[test]
fn a_rule_that_an_aggregated_role_has_is_covered_where_it_is_written() {
    let portcullis = Portcullis::new();
    let role = |name: &str, rest: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}{rest}\n"
        )
    };
    let rules = |resource: &str| {
        format!(
            ", labels: {{to: \"view\"}}}}\nrules: [{{verbs: [get], apiGroups: [\"\"], resources: [{resource}]}}]"
        )
    };
    let manifests = [
        role("all", "}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {to: view}}]}\nrules: []"),
        role("pods", &rules("pods")),
        role("secrets", &rules("secrets")),
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: all}\nroleRef: {apiGroup: \
         rbac.authorization.k8s.io, kind: ClusterRole, name: all}\nsubjects: [{kind: Group, apiGroup: \
         rbac.authorization.k8s.io, name: dev}]\n"
            .to_owned(),
    ];
    portcullis.write("all.yaml", &manifests.concat());
    portcullis.write(
        "all_test.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: x}\nmanifests: [all.yaml]\ncases:\n\
         - name: pods\n  request: {user: jane, groups: [dev], verb: get, resource: pods, namespace: a}\n  expect: {decision: allow}\n",
    );
    let run = portcullis.run("test --coverage all_test.yaml");
    assert!(run.stdout.contains("secrets"), "{run:?}");
    assert!(!run.stdout.contains("ClusterRole/pods"), "{run:?}");
}
