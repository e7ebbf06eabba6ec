//! `portcullis test`.

use serde_json::Value;

use crate::run::Portcullis;

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
  request: {user: a, groups: [readers], verb: get, resource: pods, namespace: n}
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
  request: {user: a, groups: [readers], verb: delete, resource: pods, namespace: n}
  expect: {decision: deny, cause: AuthorizationPolicy/other}
";
    let run = with_suite(&format!("{PASSING}{failing}")).run("test policies");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "FAIL policies/readers_test.yaml:8: writes",
        "decision: expected `deny`, got `noOpinion`",
        "cause: expected `AuthorizationPolicy/other`, got ``",
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
    assert_eq!((run.code, run.stdout.as_str()), (0, "sound\n"), "{run:?}");
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
