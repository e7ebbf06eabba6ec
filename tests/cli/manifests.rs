//! `portcullis admit -f`: plain manifests, and reviews in YAML.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// What is asked is told back: each answer is a warning of its own.
const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: asked}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}
  validations:
  - expression: "false"
    messageExpression: >-
      request.operation + ' ' + request.resource.group + '/' + request.resource.version + '/' + request.resource.resource
      + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)
      + ' ' + request.?namespace.orValue('-') + '/' + request.name + ' by ' + request.userInfo.username
      + ' of ' + request.userInfo.groups.join(',') + (request.dryRun ? ' dry' : '')
      + (object == null ? ' no object' : ' in ' + object.metadata.?namespace.orValue('-'))
      + (oldObject == null ? '' : ' was ' + oldObject.metadata.?labels.orValue({}).?a.orValue('unlabelled'))
      + ' with ' + request.?options.kind.orValue('none')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: asked}
spec: {policyName: asked, validationActions: [Warn]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: not-b}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != 'b'", message: no b}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: not-b}
spec: {policyName: not-b, validationActions: [Deny]}
"#;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n";

fn admit(arguments: &str, input: &str, files: &[(&str, &str)]) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("policies/asked.yaml", POLICIES);
    for (name, text) in files {
        portcullis.write(name, text);
    }
    let arguments = format!("admit --manifests policies {arguments}");
    portcullis.run_with(&arguments.split_whitespace().collect::<Vec<_>>(), input)
}

/// What was asked about a manifest.
fn asked(arguments: &str, input: &str, files: &[(&str, &str)]) -> String {
    let run = admit(&format!("-f - {arguments}"), input, files);
    let line = run.stdout.lines().find(|line| line.starts_with("warning: "));
    let line = line.unwrap_or_else(|| panic!("{run:?}"));
    let (_, asked) = line
        .split_once("denied request: ")
        .unwrap_or(("", line.trim_start_matches("warning: ")));
    let asked =
        asked.strip_prefix("Validation failed for ValidatingAdmissionPolicy 'asked' with binding 'asked': ");
    asked.unwrap_or(line).to_owned()
}

#[test]
fn a_manifest_is_put_into_the_review_that_an_api_server_would_send() {
    let admin = "by system:admin of system:masters,system:authenticated";
    let labelled = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: default, labels: {a: old}}\n";
    let old = [("old.yaml", labelled)];
    for (arguments, input, expected) in [
        (
            "",
            POD,
            format!("CREATE /v1/pods default/p {admin} in default with CreateOptions"),
        ),
        (
            "-n shop --dry-run",
            POD,
            format!("CREATE /v1/pods shop/p {admin} dry in shop with CreateOptions"),
        ),
        (
            "--user jane --group dev --group ops",
            POD,
            "CREATE /v1/pods default/p by jane of dev,ops in default with CreateOptions".to_owned(),
        ),
        (
            "--operation delete",
            labelled,
            format!("DELETE /v1/pods default/p {admin} no object was old with DeleteOptions"),
        ),
        (
            "--operation UPDATE --old old.yaml --subresource status",
            POD,
            format!("UPDATE /v1/pods/status default/p {admin} in default was old with UpdateOptions"),
        ),
        (
            "",
            r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "live"}}"#,
            format!("CREATE apps/v1/deployments live/d {admin} in live with CreateOptions"),
        ),
        (
            "",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: live}\n",
            format!("CREATE /v1/namespaces live/live {admin} in - with CreateOptions"),
        ),
        (
            "",
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\n",
            format!("CREATE rbac.authorization.k8s.io/v1/clusterroles -/r {admin} in - with CreateOptions"),
        ),
        (
            "--subresource eviction",
            "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: p}\n",
            format!("CREATE /v1/pods/eviction default/p {admin} in default with CreateOptions"),
        ),
        (
            "--resource foxen.example.com",
            "apiVersion: example.com/v1\nkind: Fox\nmetadata: {name: f}\n",
            format!("CREATE example.com/v1/foxen default/f {admin} in default with CreateOptions"),
        ),
    ] {
        assert_eq!(asked(arguments, input, &old), expected, "{arguments} {input}");
    }
}

#[test]
fn a_custom_kind_is_what_its_definition_says_or_guessed_with_a_note() {
    let fox = "apiVersion: example.com/v1\nkind: Fox\nmetadata: {name: f}\n";
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                      metadata: {name: foxen.example.com}\n\
                      spec: {group: example.com, scope: Cluster, names: {kind: Fox, plural: foxen}}\n";
    let guessed = admit("-f -", fox, &[]);
    assert!(
        guessed.stdout.contains("CREATE example.com/v1/foxs default/f"),
        "{guessed:?}"
    );
    assert!(
        guessed.stdout.contains(
            "note: the kind `Fox` of `example.com/v1` is not known: assuming the namespaced \
                resource `foxs`; add its CustomResourceDefinition to the manifests, or name it with \
                `--resource`\n"
        ),
        "{guessed:?}"
    );
    let known = admit("-f -", fox, &[("policies/crd.yaml", definition)]);
    assert!(
        known.stdout.contains("CREATE example.com/v1/foxen -/f"),
        "{known:?}"
    );
    assert!(!known.stdout.contains("is not known"), "{known:?}");
}

#[test]
fn several_objects_are_answered_one_by_one() {
    let config = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    let several = format!(
        "{}---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: b}}}}\n",
        config("a")
    );
    let run = admit("-f all.yaml", "", &[("all.yaml", &several)]);
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "# all.yaml:1: ConfigMap/default/a\nallow\n",
        "# all.yaml:8: ConfigMap/default/b\ndeny: ",
        "note: the manifest is evaluated as written: an API server would add defaults first\n",
    ] {
        assert!(run.stdout.contains(said), "{said}: {run:?}");
    }
    let run = admit("-f all.yaml -o json", "", &[("all.yaml", &several)]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["allowed"], false);
    let objects = report["objects"].as_array().unwrap();
    let allowed: Vec<_> = objects
        .iter()
        .map(|object| (&object["name"], &object["line"], &object["allowed"]))
        .collect();
    assert_eq!(
        allowed,
        [
            (&json!("a"), &json!(1), &json!(true)),
            (&json!("b"), &json!(8), &json!(false))
        ]
    );
    assert_eq!(objects[1]["reply"]["response"]["allowed"], false);
    let one = admit("-f all.yaml -o json", "", &[("all.yaml", &config("a"))]);
    assert_eq!(one.code, 0, "{one:?}");
    let report: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(
        (&report["allowed"], &report["reply"]["response"]["allowed"]),
        (&json!(true), &json!(true))
    );
    assert!(
        report["notes"][0].as_str().unwrap().contains("defaults"),
        "{report}"
    );
}

#[test]
fn what_cannot_be_put_into_a_review_is_said() {
    let cluster_role =
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r, namespace: live}\n";
    for (arguments, input, said) in [
        ("-f - --operation UPDATE", POD, "add `--old FILE`"),
        (
            "-f - --old old.yaml",
            POD,
            "`--old` is only for `--operation UPDATE`",
        ),
        (
            "-f - --operation UPDATE --old old.yaml",
            POD,
            "`--old` does not contain this object",
        ),
        ("-f -", "kind: Pod\n", "-:1: Pod: apiVersion: Required value"),
        ("-f -", "apiVersion: v1\nkind: [\n", "-:"),
        ("-f -", "", "there is no manifest in `-`"),
        (
            "-f -",
            cluster_role,
            "-:3: ClusterRole/live/r: metadata.namespace: Invalid value: `clusterroles` are cluster-scoped",
        ),
        (
            "-f - -n other",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: live}\n",
            "is not the namespace of `-n other`",
        ),
        (
            "-f -",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\n",
            "metadata.namespace: Invalid type: must be a string: put it in quotes",
        ),
        ("-f - --review r.json", POD, "cannot be used with"),
        ("", "", "required"),
        ("--review r.json --dry-run", "", "only with `-f`"),
        ("-f nowhere.yaml", "", "cannot read `nowhere.yaml`"),
    ] {
        let run = admit(
            arguments,
            input,
            &[
                ("old.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: other}\n"),
                ("r.json", "{}"),
            ],
        );
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments} {run:?}");
        assert!(run.stderr.contains(said), "{arguments}: {said}: {run:?}");
    }
}

#[test]
fn reviews_may_be_yaml() {
    let review = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest:\n  uid: u\n  operation: CREATE\n  \
                  kind: {group: '', version: v1, kind: ConfigMap}\n  resource: {group: '', version: v1, resource: configmaps}\n  \
                  name: b\n  namespace: live\n  userInfo: {username: jane, groups: [dev]}\n  \
                  object: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: live}}\n";
    let run = admit("--review -", review, &[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.starts_with("deny: ") && run.stdout.contains("no b"),
        "{run:?}"
    );
    let two = admit("--review -", &format!("{review}---\n{review}"), &[]);
    assert!(
        two.code == 2 && two.stderr.contains("`-` has 2 documents: write one review"),
        "{two:?}"
    );
    let access = "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec:\n  user: jane\n  \
                  resourceAttributes: {verb: get, resource: pods, namespace: live}\n";
    let portcullis = Portcullis::new();
    portcullis.write("policies/asked.yaml", POLICIES);
    let run = portcullis.run_with(&["authorize", "--manifests", "policies", "--review", "-"], access);
    assert!(run.code == 1 && run.stdout.starts_with("noOpinion: "), "{run:?}");
    let run = portcullis.run_with(&["authorize", "--manifests", "policies", "--review", "-"], "a: [");
    assert!(run.code == 2 && run.stderr.contains("-:1"), "{run:?}");
}
