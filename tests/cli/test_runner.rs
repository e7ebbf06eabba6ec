//! `portcullis test`: which cases run, how they are reported, and what they reach.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const POLICIES: &str = r#"apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: readers}
spec:
  effect: Allow
  subjects: [{kind: Group, name: readers}]
  resourceRules:
  - {verbs: [get], apiGroups: [""], resources: [pods]}
  - {verbs: [get], apiGroups: [""], resources: [secrets]}
  nonResourceRules:
  - {verbs: [get], paths: [/metrics]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer, namespace: a}
rules:
- {verbs: [create], apiGroups: [""], resources: [pods]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: writers, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: w}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  matchConditions:
  - {name: not-root, expression: "request.userInfo.username != 'root'"}
  validations:
  - expression: object.spec.replicas < 5
  - expression: object.spec.replicas > 0
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: small}
spec: {policyName: small, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: one}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  reinvocationPolicy: Never
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/spec/replicas', value: 1}]"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: one}
spec: {policyName: one}
"#;

const SUITE: &str = "apiVersion: portcullis.dev/v1alpha1
kind: PolicyTest
metadata: {name: all}
manifests: [policies.yaml]
cases:
- name: reads pods
  request: {user: r, groups: [readers], verb: get, resource: pods, namespace: a}
  expect: {decision: allow}
- name: reads metrics
  request: {user: r, groups: [readers], verb: get, path: /metrics}
  expect: {decision: allow}
- name: writes <pods>
  request: {user: w, verb: create, resource: pods, namespace: a}
  expect: {decision: allow}
- name: many replicas
  phase: validate
  review: {userInfo: {username: jane}, object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: a}, spec: {replicas: 7}}}
  expect: {allowed: false}
";

fn run(arguments: &str, suite: &str) -> (Portcullis, Run) {
    let portcullis = Portcullis::new();
    portcullis.write("suites/policies.yaml", POLICIES);
    portcullis.write("suites/all_test.yaml", suite);
    let run = portcullis.run(&format!("test suites {arguments}"));
    (portcullis, run)
}

#[test]
fn cases_are_chosen_by_suite_and_name() {
    for (regex, count) in [
        ("reads", 2),
        ("^all/reads", 2),
        ("pods>$", 1),
        ("^reads", 0),
        ("all/", 4),
        ("(?i)READS.M", 1),
    ] {
        let (_, run) = run(&format!("--run {regex}"), SUITE);
        if count == 0 {
            assert_eq!(run.code, 2, "{run:?}");
            assert!(
                run.stderr
                    .contains("`--run` matches none of the 4 cases in `suites`"),
                "{run:?}"
            );
        } else {
            assert_eq!(
                (run.code, run.stdout),
                (0, format!("{count} passed, 0 failed\n")),
                "{regex}"
            );
        }
    }
    assert_eq!(run("--run (", SUITE).1.code, 2);
}

#[test]
fn passing_cases_are_listed_on_request() {
    let (_, run) = run("-v --run reads", SUITE);
    assert_eq!(
        run.stdout,
        "ok suites/all_test.yaml:6: reads pods\nok suites/all_test.yaml:9: reads metrics\n2 passed, 0 failed\n"
    );
}

#[test]
fn junit_has_every_case_and_each_failure() {
    let failing = SUITE.replacen("decision: allow", "decision: deny", 1);
    let (portcullis, run) = run("--junit out.xml", &failing);
    assert_eq!(run.code, 1, "{run:?}");
    let xml = std::fs::read_to_string(portcullis.path("out.xml")).unwrap();
    for said in [
        "<testsuites name=\"portcullis\" tests=\"4\" failures=\"1\" errors=\"0\">",
        "<testsuite name=\"suites/all_test.yaml\" tests=\"4\" failures=\"1\" errors=\"0\">",
        "<testcase name=\"writes &lt;pods&gt;\" classname=\"suites/all_test.yaml\" file=\"suites/all_test.yaml\" line=\"12\"/>",
        "<failure message=\"not as expected: decision\">FAIL suites/all_test.yaml:6: reads pods&#10;",
    ] {
        assert!(xml.contains(said), "{said}: {xml}");
    }
    let (portcullis, _) = self::run(
        "--junit out.xml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [gone]\ncases: []\n",
    );
    let xml = std::fs::read_to_string(portcullis.path("out.xml")).unwrap();
    assert!(
        xml.contains("<testsuite name=\"faults\" tests=\"1\" failures=\"0\" errors=\"1\">"),
        "{xml}"
    );
}

#[test]
fn what_no_case_reaches_is_named_with_its_line() {
    let (_, run) = run("--coverage", SUITE);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (
            0,
            "not covered: suites/policies.yaml:9: AuthorizationPolicy/readers: rule 1\n\
             not covered: suites/policies.yaml:41: MutatingAdmissionPolicy/one: no case applies it\n\
             not covered: suites/policies.yaml:48: MutatingAdmissionPolicy/one: spec.mutations[0]\n\
             never false: suites/policies.yaml:31: ValidatingAdmissionPolicy/small: spec.matchConditions `not-root`\n\
             never true: suites/policies.yaml:33: ValidatingAdmissionPolicy/small: spec.validations[0]\n\
             never false: suites/policies.yaml:34: ValidatingAdmissionPolicy/small: spec.validations[1]\n\
             coverage: 72.7 % (policies 2/3, rules 3/4, validations 2/2, mutations 0/1, matchConditions 1/1)\n\
             4 passed, 0 failed\n"
        )
    );
}

#[test]
fn too_little_coverage_fails_on_request() {
    let (_, enough) = run("--coverage --fail-under 72", SUITE);
    assert_eq!(enough.code, 0, "{enough:?}");
    let (_, less) = run("--coverage --fail-under 72.8", SUITE);
    assert_eq!(less.code, 1, "{less:?}");
    assert!(
        less.stdout
            .contains("FAIL: less than 72.8 % is covered\n4 passed, 0 failed\n"),
        "{less:?}"
    );
    assert_eq!(run("--fail-under 72", SUITE).1.code, 2);
    for unusable in ["NaN", "101", "inf"] {
        let (_, run) = run(&format!("--coverage --fail-under {unusable}"), SUITE);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("is no number from 0 to 100"), "{run:?}");
    }
}

#[test]
fn the_first_of_many_failing_cases_are_explained() {
    let case = "- name: reads pods\n  request: {user: r, verb: get, resource: pods, namespace: a}\n  \
                expect: {decision: allow}\n";
    let head = SUITE.split_inclusive("cases:\n").next().unwrap();
    let (_, run) = run("", &(head.to_owned() + &case.repeat(102)));
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.stdout.matches("  | considered:").count(),
        100,
        "{}",
        run.stdout
    );
    let others = "  | only the first 100 failing cases are explained: name this one with `--run`\n";
    assert_eq!(run.stdout.matches(others).count(), 2, "{}", run.stdout);
}

#[test]
fn coverage_as_json_and_by_line() {
    let (portcullis, run) = run("--coverage --coverage-lcov lcov.info -o json", SUITE);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let coverage = &report["coverage"];
    assert_eq!(coverage["rules"], json!({"covered": 3, "total": 4}));
    let percent = coverage["percent"].as_f64().unwrap();
    assert!((percent - 800.0 / 11.0).abs() < 1e-9, "{percent}");
    assert_eq!(
        coverage["missed"][0],
        json!({"file": "suites/policies.yaml", "line": 9, "object": "AuthorizationPolicy/readers", "field": "rule 1"})
    );
    assert_eq!(coverage["oneSided"][1]["never"], true);
    let lines = std::fs::read_to_string(portcullis.path("lcov.info")).unwrap();
    assert_eq!(
        lines,
        "TN:\nSF:suites/policies.yaml\n\
         BRDA:31,0,0,1\nBRDA:31,0,1,0\nBRDA:33,1,0,0\nBRDA:33,1,1,1\nBRDA:34,2,0,1\nBRDA:34,2,1,0\nBRF:6\nBRH:3\n\
         DA:1,2\nDA:8,1\nDA:9,0\nDA:11,1\nDA:17,1\nDA:25,1\nDA:31,1\nDA:33,1\nDA:34,1\nDA:41,0\nDA:48,0\nLF:11\nLH:8\n\
         end_of_record\n"
    );
}

/// Every policy that the project ships is reached by the suites beside it, each
/// expression with both results.
#[test]
fn shipped_policies_are_covered_by_their_suites() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/config/policies");
    let run = Portcullis::new().run(&format!(
        "test {folder} --coverage --fail-under 100 -o json --at 2026-12-01T12:00:00Z"
    ));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (run.code, &report["failed"]),
        (0, &json!(0)),
        "{:#}",
        report["coverage"]
    );
    let coverage = &report["coverage"];
    assert_eq!(
        (&coverage["missed"], &coverage["oneSided"]),
        (&json!([]), &json!([]))
    );
    let total = |part: &str| coverage[part]["total"].as_u64().unwrap();
    assert_eq!(
        total("validations"),
        validations_in(folder.as_ref()),
        "{coverage:#}"
    );
}

/// How many validations the shipped manifests have, suites left out.
fn validations_in(folder: &std::path::Path) -> u64 {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count += validations_in(&path);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lists = text.split("\n  validations:\n").skip(1);
            count += lists
                .map(|list| {
                    list.split("\n---")
                        .next()
                        .unwrap()
                        .matches("  - expression:")
                        .count() as u64
                })
                .sum::<u64>();
        }
    }
    count
}

/// A checkout may hold a link or a named pipe where the outcome is to be written.
#[test]
fn an_outcome_is_written_through_no_link_and_to_no_pipe() {
    for flag in ["--junit", "--coverage-lcov"] {
        let (portcullis, _) = run("", SUITE);
        portcullis.write("kept", "as it was");
        std::os::unix::fs::symlink(portcullis.path("kept"), portcullis.path("link")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(portcullis.path("pipe"))
            .status();
        assert!(made.unwrap().success());
        for (name, what) in [("link", "is a link"), ("pipe", "is a named pipe")] {
            let run = portcullis.run(&format!("test suites {flag} {name}"));
            assert_eq!(run.code, 2, "{flag}: {run:?}");
            assert!(run.stderr.contains(what), "{flag}: {run:?}");
        }
        assert_eq!(
            std::fs::read_to_string(portcullis.path("kept")).unwrap(),
            "as it was"
        );
        // What was written before is replaced.
        portcullis.write("out", &"long ".repeat(100_000));
        portcullis.run(&format!("test suites {flag} out"));
        assert!(
            !std::fs::read_to_string(portcullis.path("out"))
                .unwrap()
                .contains("long")
        );
    }
}

/// A suite comes with a change that others wrote: it reads nothing that they could not bring along.
#[test]
fn a_suite_names_nothing_outside_its_folder_and_the_working_directory() {
    let suite = |field: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\n{field}\n\
             cases:\n- name: a\n  request: {{user: u, verb: get, path: /metrics}}\n  expect: {{decision: noOpinion}}\n"
        )
    };
    let (outside, inside) = (Portcullis::new(), Portcullis::new());
    outside.write("policies.yaml", POLICIES);
    outside.write("review.json", "{}");
    inside.write("policies.yaml", POLICIES);
    std::os::unix::fs::symlink(outside.path(""), inside.path("link")).unwrap();
    let (path, review) = (outside.path("policies.yaml"), outside.path("review.json"));
    let (path, review) = (path.display(), review.display());
    let config = format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: GatewayConfiguration\nmanifests: [{{path: {path}}}]\n"
    );
    inside.write("config.yaml", &config);
    let of_review = suite("manifests: [../policies.yaml]").replace(
        "request: {user: u, verb: get, path: /metrics}",
        &format!("reviewFile: {review}"),
    );
    for (field, text) in [
        ("manifests[0]", suite(&format!("manifests: [{path}]"))),
        ("manifests[1]", suite("manifests: [../policies.yaml, ../link]")),
        ("manifests[0]", suite("manifests: [/]")),
        ("config", suite(&format!("config: {path}"))),
        ("config", suite("config: ../config.yaml")),
        ("cases[0].reviewFile", of_review),
    ] {
        inside.write("suites/a_test.yaml", &text);
        let run = inside.run("test suites");
        assert_ne!(run.code, 0, "{field}: {run:?}");
        let said = format!("{field}: Forbidden");
        assert!(
            run.stdout.contains(&said) && run.stdout.contains("working directory"),
            "{field}: {run:?}"
        );
    }
    inside.write("suites/a_test.yaml", &suite("manifests: [../policies.yaml]"));
    assert_eq!(inside.run("test suites").code, 0);
}

/// Nor do its configuration and its links.
#[test]
fn what_a_suite_s_configuration_and_links_lead_to_is_below_these_too() {
    let suite = |field: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\n{field}\n\
             cases:\n- name: a\n  request: {{user: u, verb: get, path: /metrics}}\n  expect: {{decision: noOpinion}}\n"
        )
    };
    let (outside, inside) = (Portcullis::new(), Portcullis::new());
    outside.write("policies.yaml", POLICIES);
    outside.write("saved", "secret: of another\n");
    outside.write("entries/east.yaml", "name: east\nkubeconfig: k\n");
    let path = |name: &str| outside.path(name).display().to_string();
    let configured = |more: &str| {
        format!(
            "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
             server: {{address: '127.0.0.1:0', tls: {{certificate: a, privateKey: b}}}}\n{more}\n"
        )
    };
    inside.write("policies/own.yaml", POLICIES);
    inside.write("suites/a_test.yaml", &suite("config: ../config.yaml"));
    let refused = |named: &str| {
        let run = inside.run("test suites");
        assert_ne!(run.code, 0, "{named}: {run:?}");
        assert!(
            run.stdout.contains(named) && run.stdout.contains("working directory"),
            "{named}: {run:?}"
        );
        assert!(!run.stdout.contains("of another"), "{run:?}");
    };
    for (more, named) in [
        (
            format!(
                "clusters: [{{name: c, kubeconfig: k, cacheFile: '{}'}}]",
                path("saved")
            ),
            path("saved"),
        ),
        (
            format!(
                "clusters: [{{name: c, kubeconfig: '{}', cacheFile: s}}]",
                path("saved")
            ),
            path("saved"),
        ),
        (format!("clusters: '{}'", path("entries")), path("entries")),
    ] {
        inside.write(
            "config.yaml",
            &configured(&format!("manifests: [policies]\n{more}")),
        );
        refused(&named);
    }
    let link =
        |name: &str| std::os::unix::fs::symlink(outside.path("policies.yaml"), inside.path(name)).unwrap();
    link("policies/link.yaml");
    inside.write("config.yaml", &configured("manifests: [policies]"));
    refused("policies/link.yaml");
    inside.write("suites/a_test.yaml", &suite("manifests: [../policies]"));
    refused("policies/link.yaml");
    std::fs::remove_file(inside.path("policies/link.yaml")).unwrap();
    link("suites/link.yaml");
    refused("suites/link.yaml");
    std::fs::remove_file(inside.path("suites/link.yaml")).unwrap();
    inside.write("suites/a_test.yaml", &suite("config: ../config.yaml"));
    let run = inside.run("test suites");
    assert_eq!(run.code, 0, "{run:?}");
}
