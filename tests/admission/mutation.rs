//! Policies that change what is sent.

use super::*;

pub(super) fn mk_mutation(name: &str, reinvocation: &str, patch: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}
  reinvocationPolicy: {reinvocation}
  mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: \"{patch}\"}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}}}
"
    )
}

fn mutated(text: &str, object: &Value) -> Outcome {
    let access = PolicySet::default();
    let run = RunOptions::new(&access, Time::UNIX_EPOCH);
    outcome(Phase::Mutate, &mk_set(text), &mk_review(object), run)
}

#[test]
fn mutations_become_one_small_patch() {
    let text = mk_mutation(
        "a",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/a~1b', value: string(size(object.data))}]",
    ) + &mk_mutation(
        "b",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/c', value: object.data['a/b'] + '!'}]",
    );
    let outcome = mutated(
        &text,
        &json!({"data": {"x": "1"}, "big": 9_007_199_254_740_993_u64}),
    );
    assert_eq!(outcome.denial, None);
    assert_eq!(
        serde_json::from_str::<Value>(&outcome.patch).unwrap(),
        json!([
            {"op": "add", "path": "/data/a~1b", "value": "1"},
            {"op": "add", "path": "/data/c", "value": "1!"},
        ])
    );
}

#[test]
fn a_test_that_fails_changes_nothing() {
    let text = mk_mutation(
        "a",
        "Never",
        "[JSONPatch{op: 'test', path: '/data/x', value: 'other'}, JSONPatch{op: 'remove', path: '/data'}]",
    );
    let outcome = mutated(&text, &json!({"data": {"x": "1"}}));
    assert_eq!((outcome.denial, outcome.patch.as_str()), (None, ""));
}

#[test]
fn a_mutation_that_does_not_apply_refuses() {
    let text = mk_mutation("a", "Never", "[JSONPatch{op: 'remove', path: '/missing'}]");
    let denial = mutated(&text, &json!({})).denial.unwrap();
    assert!(
        denial
            .message
            .starts_with("policy 'a' with binding 'a' denied request: JSON Patch: "),
        "{}",
        denial.message
    );
    assert_eq!((denial.reason.as_ref(), denial.code), ("Invalid", 403));
}

#[test]
fn what_a_patch_adds_that_the_type_does_not_have_is_an_error() {
    let refused = |patch: &str, object: &Value| {
        let denial = mutated(&mk_mutation("a", "Never", patch), object).denial;
        denial.map(|denial| denial.message)
    };
    let before = "Internal error occurred: ";
    for (patch, expected) in [
        (
            "[JSONPatch{op: 'add', path: '/bogus', value: 'x'}]",
            "strict decoding error: unknown field \"bogus\"",
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/bogus', value: 'x'}]",
            "strict decoding error: unknown field \"metadata.bogus\"",
        ),
        (
            "[JSONPatch{op: 'add', path: '/data', value: 1}]",
            ".data: expected map, got 1",
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: [1]}]",
            ".metadata.finalizers[0]: expected string, got 1",
        ),
    ] {
        let reported = refused(patch, &json!({"metadata": {"name": "a"}}));
        assert_eq!(reported, Some(format!("{before}{expected}")), "{patch}");
    }
    // A newer API server knows fields of which nothing is known here.
    let newer = json!({"later": {"a": 1}, "metadata": {"name": "a", "later": 1, "ownerReferences": [
        {"name": "o", "later": true}]}});
    let insert = "[JSONPatch{op: 'add', path: '/metadata/ownerReferences/0', value: {'name': 'first'}}]";
    assert_eq!(refused(insert, &newer), None);
}

#[test]
fn objects_in_a_patch_bear_the_names_of_their_fields() {
    let reported = |value: &str| {
        let patch = format!("[JSONPatch{{op: 'add', path: '/metadata', value: {value}}}]");
        let denial = mutated(&mk_mutation("a", "Never", &patch), &json!({})).denial;
        denial.map_or_else(String::new, |denial| denial.message)
    };
    for good in [
        "Object.metadata{labels: Object.metadata.labels{a: '1'}}",
        "Object.any.name{ownerReferences: [Object.any.name.ownerReferences{name: 'o'}]}",
        "Object{annotations: {'a': 'b'}}",
    ] {
        assert_eq!(reported(good), "", "{good}");
    }
    let mismatch = |found: &str, expected: &str| {
        format!(
            "type mismatch: unexpected type name \"{found}\", expected \"{expected}\", which matches field \
             name path from root Object type"
        )
    };
    for (bad, expected) in [
        (
            "Object.metadata{labels: Object.metadata.wrong{a: '1'}}",
            mismatch("Object.metadata.wrong", "Object.metadata.labels"),
        ),
        (
            "Object{ownerReferences: [Object.other{name: 'o'}]}",
            mismatch("Object.other", "Object.ownerReferences"),
        ),
    ] {
        let reported = reported(bad);
        assert!(reported.ends_with(&expected), "{reported}");
    }
}

/// Each takes away what it copies, so that the object never becomes large.
#[test]
fn what_mutations_copy_is_bounded_through_a_review() {
    let megabyte = json!({"data": {"a": "a".repeat(1 << 20)}});
    let copies = |name: &str| {
        let copy = "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/b'}, JSONPatch{op: 'remove', path: '/data/b'}]";
        mk_mutation(name, "Never", copy)
    };
    let code = |names: &[&str]| {
        let policies: String = names.iter().map(|name| copies(name)).collect();
        mutated(&policies, &megabyte).denial.map(|denial| denial.code)
    };
    assert_eq!(code(&["a", "b"]), None);
    assert_eq!(code(&["a", "b", "c", "d"]), Some(403));
}

#[test]
fn a_policy_runs_again_if_others_changed_the_object_after_it() {
    let count = "[JSONPatch{op: 'add', path: '/immutable', value: size(object.data) == 1}]";
    let grow = "[JSONPatch{op: 'add', path: '/data/grown', value: 'yes'}]";
    let seen = |reinvocation| {
        let text = mk_mutation("a", reinvocation, count) + &mk_mutation("b", "Never", grow);
        let outcome = mutated(&text, &json!({"data": {}}));
        let patch: Value = serde_json::from_str(&outcome.patch).unwrap();
        patch
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["path"] == "/immutable")
            .unwrap()["value"]
            .clone()
    };
    assert_eq!(seen("Never"), false);
    assert_eq!(seen("IfNeeded"), true);
}

#[test]
fn values_of_patches_are_the_json_that_an_api_server_makes() {
    let patch = |value: &str| {
        let expression = format!("[JSONPatch{{op: 'add', path: '/data', value: {value}}}]");
        mutated(&mk_mutation("a", "Never", &expression), &json!({}))
    };
    let made = patch(
        "{'t': dyn(timestamp('2020-01-01T00:00:00.5Z')), 'd': dyn(duration('90m')), 'o': dyn(optional.of('1'))}",
    );
    assert_eq!(made.denial, None);
    assert_eq!(
        serde_json::from_str::<Value>(&made.patch).unwrap(),
        json!([{"op": "add", "path": "/data", "value": {
            "t": "2020-01-01T00:00:00.5Z", "d": "5400s", "o": "1",
        }}])
    );
    for refused in [
        "{1: 'a'}",
        "{true: 'a'}",
        "{'q': quantity('1')}",
        "{'o': optional.none()}",
    ] {
        assert!(patch(refused).denial.is_some(), "{refused}");
    }
}

/// A policy that applies where its condition holds, under a failure policy.
fn mk_conditional(name: &str, failure_policy: &str, condition: &str, patch: &str) -> String {
    let spec = format!(
        "spec:\n  failurePolicy: {failure_policy}\n  matchConditions: [{{name: c, expression: \"{condition}\"}}]"
    );
    mk_mutation(name, "Never", patch).replacen("spec:", &spec, 1)
}

#[test]
fn an_object_that_does_not_decode_is_an_internal_error_whatever_the_failure_policy() {
    for failure_policy in ["Fail", "Ignore"] {
        let text = mk_conditional(
            "a",
            failure_policy,
            "true",
            "[JSONPatch{op: 'add', path: '/bogus', value: 'x'}]",
        );
        // Upstream's policies run in any order; what fails them under their failure policies counts less.
        let other = mk_mutation("b", "Never", "[JSONPatch{op: 'remove', path: '/missing'}]");
        let outcome = mutated(&(text + &other), &json!({"metadata": {"name": "c"}}));
        let denial = outcome.denial.unwrap();
        assert_eq!(
            (denial.code, denial.reason.as_ref(), denial.message.as_str()),
            (
                500,
                "InternalError",
                "Internal error occurred: strict decoding error: unknown field \"bogus\""
            )
        );
        assert_eq!(outcome.cause.unwrap().name, "a");
    }
}

#[test]
fn no_mutation_changes_of_which_kind_an_object_is() {
    let refused = |path: &str, value: &str, object: &Value| {
        let patch = format!("[JSONPatch{{op: 'replace', path: '{path}', value: {value}}}]");
        let mut review = mk_review(object);
        review["request"]["kind"]["kind"] = object["kind"].clone();
        if object["kind"] == "Widget" {
            for field in ["kind", "resource"] {
                review["request"][field]["group"] = json!("example.com");
            }
        }
        let access = PolicySet::default();
        let text =
            mk_conditional("a", "Ignore", "true", &patch).replace("apiGroups: ['']", "apiGroups: ['*']");
        let run = RunOptions::new(&access, Time::UNIX_EPOCH);
        let denial = outcome(Phase::Mutate, &mk_set(&text), &review, run).denial;
        denial.map(|denial| denial.code)
    };
    let built_in = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let custom = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "c"}});
    for (path, value, of_built_in, of_custom) in [
        ("/kind", "'Secret'", Some(500), None),
        ("/apiVersion", "'v2'", Some(500), None),
        ("/kind", "1", Some(500), Some(500)),
        ("/apiVersion", "1", Some(500), Some(500)),
        // A kind that is not said is that of the object; a custom resource has no other word for it.
        ("/kind", "''", None, Some(500)),
        ("/apiVersion", "''", None, None),
    ] {
        assert_eq!(refused(path, value, &built_in), of_built_in, "{path} {value}");
        // Of others the API server itself says what is wrong, as of what users send.
        assert_eq!(refused(path, value, &custom), of_custom, "{path} {value}");
    }
}

#[test]
fn no_mutation_is_asked_about_a_deletion() {
    let text = mk_conditional(
        "a",
        "Fail",
        "object.metadata.name != 'x'",
        "[JSONPatch{op: 'add', path: '/data/a', value: 'b'}]",
    )
    .replace("[CREATE]", "['*']");
    let access = PolicySet::default();
    let object = json!({"metadata": {"name": "c"}, "data": {}});
    for (operation, is_asked) in [("CREATE", true), ("UPDATE", true), ("DELETE", false)] {
        let mut review = mk_review(&object);
        review["request"]["operation"] = json!(operation);
        review["request"]["oldObject"] = object.clone();
        if operation == "DELETE" {
            review["request"]["object"] = Value::Null;
        }
        let run = RunOptions::new(&access, Time::UNIX_EPOCH);
        let outcome = outcome(Phase::Mutate, &mk_set(&text), &review, run);
        assert_eq!(outcome.denial, None, "{operation}");
        assert_eq!(!outcome.evaluations.is_empty(), is_asked, "{operation}");
        assert_eq!(!outcome.patch.is_empty(), is_asked, "{operation}");
    }
}

#[test]
fn once_something_changed_the_conditions_of_every_policy_are_evaluated_again() {
    let removes = mk_mutation("b", "Never", "[JSONPatch{op: 'remove', path: '/data'}]");
    for (failure_policy, expected) in [("Fail", Some("Invalid")), ("Ignore", None)] {
        let needs_data = mk_conditional(
            "a",
            failure_policy,
            "object.data.x == '1'",
            "[JSONPatch{op: 'add', path: '/data/y', value: '2'}]",
        );
        let outcome = mutated(&(needs_data + &removes), &json!({"data": {"x": "1"}}));
        let denial = outcome.denial;
        assert_eq!(
            denial.as_ref().map(|denial| denial.reason.as_ref()),
            expected,
            "{denial:?}"
        );
        let message = denial.map_or_else(String::new, |denial| denial.message);
        assert_eq!(
            message.contains("no such key: data"),
            expected.is_some(),
            "{message}"
        );
    }
    // A condition that merely no longer holds is no error.
    let needs_none = mk_conditional(
        "a",
        "Fail",
        "has(object.data)",
        "[JSONPatch{op: 'add', path: '/data/y', value: '2'}]",
    );
    assert_eq!(
        mutated(&(needs_none + &removes), &json!({"data": {"x": "1"}})).denial,
        None
    );
}
