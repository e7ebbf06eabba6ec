//! Policies with `objectConditions`, by every command that knows policies.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {tls: {certificate: s.crt, privateKey: s.key}}
manifests: [policies]
";

const POLICY: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: images}
spec:
  effect: Allow
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [create, update], apiGroups: [""], resources: [pods, pods/status], namespaces: [shop]}
  objectConditions:
  - {name: registry, expression: "object.spec.containers.all(c, c.image.startsWith('corp/'))"}
"#;

/// With configurations of which one says that `/validate` sees what is written.
fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    let entry = |admission: &str| {
        format!("clusters: [{{name: default, kubeconfig: absent, cacheFile: saved{admission}}}]\n")
    };
    portcullis.write(
        "declared.yaml",
        &(CONFIGURATION.to_owned() + &entry(", admission: Declared")),
    );
    portcullis.write("silent.yaml", &(CONFIGURATION.to_owned() + &entry("")));
    portcullis.write(
        "watched.yaml",
        &(CONFIGURATION.to_owned() + &entry(", admission: Watched")),
    );
    portcullis.write("policies/images.yaml", POLICY);
    // What was saved of the cluster: one role.
    let objects = format!(
        "{}\n",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "empty"}})
    );
    let digest = openssl::sha::sha256(objects.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let header = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "ClusterSnapshot", "cluster": "default",
        "objects": 1, "sha256": digest});
    portcullis.write("saved", &format!("{header}\n{objects}"));
    for (name, image) in [("good", "corp/a"), ("bad", "other/a")] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"containers": [{"name": "a", "image": image}]}});
        portcullis.write(&format!("{name}.yaml"), &pod.to_string());
    }
    portcullis
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

const ASK: &str = "--user dora --group devs --verb create --resource pods -n shop";

#[test]
fn authorize_decides_both_halves_where_it_is_given_the_object() {
    let portcullis = set_up();
    let ask =
        |config: &str, more: &str| portcullis.run(&format!("authorize --config {config}.yaml {ASK} {more}"));
    let alone = ask("declared", "");
    assert_eq!(alone.code, 0, "{alone:?}");
    let reason = "allow: allowed by AuthorizationPolicy \"images\" where its objectConditions hold\n";
    assert!(alone.stdout.starts_with(reason), "{alone:?}");
    assert_eq!(ask("declared", "-f good.yaml").code, 0);
    let bad = ask("declared", "-f bad.yaml");
    assert_eq!(bad.code, 1, "{bad:?}");
    assert!(bad.stdout.starts_with(reason), "{bad:?}");
    let refused = "objectConditions hold, which do not: AuthorizationPolicy \"images\": `registry` is false";
    assert!(bad.stdout.contains(refused), "{bad:?}");
    let report = json(&ask("declared", "-f bad.yaml -o json"));
    assert_eq!(report["decision"], "allow");
    assert!(
        report["validate"].to_string().contains("`registry` is false"),
        "{report}"
    );
    // An update is of something.
    let update = portcullis.run(&format!(
        "authorize --config declared.yaml {} -f good.yaml",
        ASK.replace("create", "update")
    ));
    assert_eq!(update.code, 2, "{update:?}");
    assert!(update.stderr.contains("add `--old FILE`"), "{update:?}");
    // Nothing is no object, and one of another kind is never written so.
    portcullis.write("empty.yaml", "# nothing\n");
    portcullis.write(
        "map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: shop}}",
    );
    for (file, said) in [
        ("empty.yaml", "there is no manifest in `empty.yaml`"),
        ("map.yaml", "a ConfigMap is written as `configmaps`, not `pods`"),
    ] {
        let run = ask("declared", &format!("-f {file}"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(said), "{run:?}");
    }
}

#[test]
fn where_nobody_says_that_validate_sees_requests_it_grants_nothing_and_says_why() {
    let portcullis = set_up();
    let run = portcullis.run(&format!("authorize --config silent.yaml {ASK}"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("noOpinion"), "{run:?}");
    assert!(
        run.stdout
            .contains("rule 0 applies, but has objectConditions: /validate is not known to see"),
        "{run:?}"
    );
    let who = portcullis.run("who-can create pods -n shop --config silent.yaml");
    assert!(!who.stdout.contains("devs"), "{who:?}");
}

#[test]
fn who_can_and_what_can_show_the_conditions() {
    let portcullis = set_up();
    let condition = "objectCondition registry: object.spec.containers.all";
    for command in [
        "who-can create pods -n shop",
        "what-can --user dora --group devs -n shop",
    ] {
        let run = portcullis.run(&format!("{command} --config declared.yaml"));
        assert!(run.stdout.contains(condition), "{run:?}");
    }
}

#[test]
fn check_says_what_has_no_effect_and_what_is_not_supported() {
    let portcullis = set_up();
    let check = |config: &str| {
        let run = portcullis.run(&format!("check --config {config}.yaml"));
        format!("{}{}", run.stdout, run.stderr)
    };
    let left_out = "exclude `pods/status`";
    let unknown = "grants nothing, because /validate is not known to see the writes";
    let declared = check("declared");
    assert!(
        declared.contains(left_out) && !declared.contains(unknown),
        "{declared}"
    );
    let silent = check("silent");
    assert!(silent.contains(left_out) && silent.contains(unknown), "{silent}");
    let watched = check("watched");
    assert!(
        watched.contains(left_out) && !watched.contains(unknown) && !watched.contains("Unsupported"),
        "{watched}"
    );
}

#[test]
fn offline_admission_watched_is_taken_for_granted_and_said() {
    let portcullis = set_up();
    let ask = |config: &str| portcullis.run(&format!("authorize --config {config}.yaml {ASK}"));
    let granted = "the result assumes that `/validate` sees the request";
    let watched = ask("watched");
    assert_eq!(watched.code, 0, "{watched:?}");
    assert!(watched.stderr.contains(granted), "{watched:?}");
    let declared = ask("declared");
    assert!(!declared.stderr.contains(granted), "{declared:?}");
}

/// The review of a Pod that dora creates.
fn review(image: &str) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"containers": [{"name": "a", "image": image}]}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": "a", "namespace": "shop",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "dora", "groups": ["devs", "system:authenticated"]}, "object": pod}})
}

#[test]
fn a_suite_decides_both_halves() {
    let portcullis = set_up();
    for (name, image) in [("good", "corp/a"), ("bad", "other/a")] {
        portcullis.write(&format!("{name}.json"), &review(image).to_string());
    }
    let suite = |policies: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\n{policies}\ncases:\n\
             - {{name: asked, request: {{user: dora, groups: [devs], verb: create, resource: pods, namespace: shop}},\n\
             \x20  expect: {{decision: allow, cause: AuthorizationPolicy/images}}}}\n\
             - {{name: good, reviewFile: good.json, phase: validate, expect: {{allowed: true}}}}\n\
             - {{name: bad, reviewFile: bad.json, phase: validate, expect: {{allowed: false, code: 403,\n\
             \x20  cause: AuthorizationPolicy/images, rule: 0}}}}\n"
        )
    };
    for policies in [
        "manifests: [policies]",
        "config: declared.yaml",
        "config: watched.yaml",
    ] {
        portcullis.write("s.yaml", &suite(policies));
        let run = portcullis.run("test s.yaml");
        assert_eq!(run.code, 0, "{policies}: {run:?}");
    }
    portcullis.write("s.yaml", &suite("config: silent.yaml"));
    assert_eq!(portcullis.run("test s.yaml").code, 1);
}

#[test]
fn the_trace_of_admit_shows_what_each_condition_came_to() {
    let portcullis = set_up();
    portcullis.write("bad.json", &review("other/a").to_string());
    let run = portcullis.run("admit --config declared.yaml --review bad.json --phase validate");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "AuthorizationPolicy/images",
        "objectCondition registry",
        "= false",
    ] {
        assert!(run.stdout.contains(said), "{said}: {run:?}");
    }
}

#[test]
fn replay_asks_the_conditions_again_unless_what_they_read_is_redacted() {
    let portcullis = set_up();
    let write = |review: &Value, redacted: &[&str]| {
        let line = json!({"time": "2026-12-01T08:30:00Z", "endpoint": "validate", "cluster": "default", "caller": "api",
            "revision": "0123456789ab", "decision": "allow", "redacted": redacted, "review": review});
        let header = "{\"portcullisRecording\":1,\"program\":\"portcullis 0.1.0\"}";
        portcullis.write(
            "recordings/recording-20261201T080000.000000Z.jsonl",
            &format!("{header}\n{line}\n"),
        );
        let run = portcullis.run("replay --config declared.yaml -o json -- recordings");
        (run.code, json(&run))
    };
    let (code, same) = write(&review("corp/a"), &[]);
    assert_eq!((code, &same["changes"]), (0, &json!([])), "{same}");
    let (code, refused) = write(&review("other/a"), &[]);
    assert_eq!(code, 1, "{refused}");
    assert!(
        refused["changes"]
            .to_string()
            .contains("AuthorizationPolicy/images"),
        "{refused}"
    );
    // The image may have been any.
    let mut hidden = review("other/a");
    hidden["request"]["object"]["spec"]["containers"][0]["image"] = json!("");
    let (_, unknown) = write(&hidden, &["/review/request/object/spec/containers/0/image"]);
    assert_eq!(unknown["changes"], json!([]), "{unknown}");
    assert!(
        unknown.to_string().contains("may read redacted fields"),
        "{unknown}"
    );
}

#[test]
fn convert_writes_the_policy_that_does_what_is_possible_without_a_gateway() {
    let portcullis = set_up();
    let whole = POLICY
        .replace("[create, update]", "[create, update, patch]")
        .replace("[pods, pods/status]", "[pods]");
    portcullis.write("images.yaml", &whole);
    let converted = portcullis.run("convert images.yaml");
    assert!(
        converted
            .stdout
            .contains("kind: ValidatingAdmissionPolicyBinding"),
        "{converted:?}"
    );
    portcullis.write("converted/all.yaml", &converted.stdout);
    for (image, code) in [("corp/a", 0), ("other/a", 1)] {
        portcullis.write("review.json", &review(image).to_string());
        let run = portcullis.run("admit --manifests converted --review review.json --phase validate");
        assert_eq!(run.code, code, "{image}: {run:?}");
        let why = "allows this only where its objectConditions hold";
        assert_eq!(run.stdout.contains(why), code == 1, "{image}: {run:?}");
    }
}
