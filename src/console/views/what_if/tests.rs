use serde_json::{Value, json};

use super::*;
use crate::console::tests::fixtures::TestConsole;
use crate::state::tests::fixtures::now;
use portcullis_policy::model::{Attributes, Decision, ResourceAttributes, Target, Time, User};

const MANIFESTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{verbs: [list], apiGroups: [''], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  variables: [{name: most, expression: 'int(params.data.most)'}, {name: hidden, expression: 'params.data.token'}]
  validations: [{expression: 'variables.hidden != \"\" && object.spec.replicas <= variables.most', message: too many}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec: {policyName: few, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: default}
data: {most: '3', token: s3cr3t}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: \"replace\", path: \"/metadata/labels/a\", value: \"<b>new</b>\"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
";

const DENY: &str = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: stop}\n\
    spec:\n  effect: Deny\n  reason: <i>closed</i>\n  subjects: [{kind: Group, name: readers}]\n  \
    resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}]\n";

fn mk_deployment(replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, labels: {{a: '<u>old</u>'}}}}\nspec: {{replicas: {replicas}}}\n"
    )
}

fn manifest_json(console: &TestConsole, form: &[(&str, &str)]) -> Result<Value, ViewError> {
    let page = console.post(form, Representation::Json)?;
    Ok(serde_json::from_str(&page.body).unwrap())
}

#[test]
fn a_request_by_its_fields_is_answered_as_by_the_command() {
    let console = TestConsole::of(MANIFESTS);
    let answered = console.get(
        "/what-if?user=jane&group=readers%0Aother&verb=list&resource=pods&namespace=shop&selector=app%3Dweb",
        Representation::Json,
    );
    let resource = ResourceAttributes {
        verb: "list".into(),
        version: "*".into(),
        resource: "pods".into(),
        namespace: "shop".into(),
        selectors: portcullis_policy::model::Selectors {
            label: portcullis_policy::model::selector::parse_labels("app=web").unwrap(),
            ..<_>::default()
        },
        ..ResourceAttributes::default()
    };
    let attributes = Attributes {
        user: User {
            name: "jane".into(),
            groups: vec!["readers".into(), "other".into()],
            ..User::default()
        },
        target: Target::Resource(Box::new(resource)),
    };
    let loaded = in_force(&console.state.current());
    let answer = AuthorizationAnswer::new(&loaded, "default", &attributes, Time::from(now()));
    let expected = serde_json::to_string_pretty(&answer.report()).unwrap() + "\n";
    assert_eq!(answered.unwrap().body, expected);
    let told = console
        .html("/what-if?user=jane&group=readers&verb=list&resource=pods")
        .unwrap();
    assert!(told.contains("<strong class=\"allow\">allow</strong>"), "{told}");
    assert!(told.contains("ClusterRoleBinding/readers, rule 0"), "{told}");
}

#[test]
fn what_cannot_be_asked_is_said_beside_the_form() {
    let console = TestConsole::of(MANIFESTS);
    let page = console
        .get("/what-if?verb=list&extra=x&selector=%21%21", Representation::Html)
        .unwrap();
    assert_eq!(page.status, 400);
    for field in ["`user`", "`resource`", "`extra`", "`selector`"] {
        assert!(page.body.contains(field), "{field}: {}", page.body);
    }
    assert!(page.body.contains("value=\"list\""));
    for (url, message) in [
        ("/what-if?verb=list", "a user or a group is required"),
        ("/what-if", "name a request"),
        ("/what-if?usr=a", "`usr` is not known"),
        ("/what-if?user=u&verb=get&path=/x&at=noon", "RFC 3339"),
        (
            "/what-if?user=u&verb=get&path=/x&cluster=mars",
            "there is no cluster `mars`",
        ),
    ] {
        let error = console.json(url).unwrap_err().to_string();
        assert!(error.contains(message), "{url}: {error}");
    }
    let prepared =
        "/what-if?user=jane&group=readers&operation=UPDATE&resource=deployments.apps&namespace=shop&name=web";
    let page = console.get(prepared, Representation::Html).unwrap();
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<option selected>UPDATE</option>") && page.body.contains("value=\"jane\""));
    assert!(!page.body.contains("type=\"hidden\""), "{}", page.body);
    assert_eq!(console.get("/what-if", Representation::Html).unwrap().status, 200);
}

#[test]
fn a_manifest_is_answered_with_its_changes_and_steps() {
    let console = TestConsole::of(MANIFESTS);
    let manifest = mk_deployment(2);
    let answer = manifest_json(&console, &[("manifest", &manifest), ("operation", "CREATE")]).unwrap();
    assert_eq!(answer["allowed"], json!(true), "{answer}");
    let page = console
        .post(&[("manifest", &manifest)], Representation::Html)
        .unwrap()
        .body;
    assert!(
        page.contains("<del><code>&#34;&#60;u&#62;old&#60;/u&#62;&#34;</code></del>"),
        "{page}"
    );
    assert!(
        page.contains("<ins><code>&#34;&#60;b&#62;new&#60;/b&#62;&#34;</code></ins>"),
        "{page}"
    );
    assert!(page.contains("/metadata/labels/a"));
    let denied = console
        .post(&[("manifest", &mk_deployment(9))], Representation::Html)
        .unwrap()
        .body;
    assert!(
        denied.contains("<strong class=\"deny\">deny</strong>"),
        "{denied}"
    );
    assert!(
        denied.contains("too many") && denied.contains("ValidatingAdmissionPolicy/few"),
        "{denied}"
    );
}

#[test]
fn nothing_shows_what_a_parameter_holds() {
    let console = TestConsole::of(MANIFESTS);
    for replicas in [2, 9] {
        let manifest = mk_deployment(replicas);
        for representation in [Representation::Html, Representation::Json] {
            let body = console
                .post(&[("manifest", &manifest)], representation)
                .unwrap()
                .body;
            assert!(body.contains("not shown"), "{body}");
            assert!(!body.contains("s3cr3t"), "{body}");
        }
    }
    let policies: Vec<&str> = MANIFESTS.split("---\n").collect();
    // In the place of one that a binding in force gives parameters, or a binding that does.
    let binding = policies[3].replace("metadata: {name: few}", "metadata: {name: mine}");
    for (pasted, name) in [(policies[2], "few"), (binding.as_str(), "mine")] {
        let manifest = mk_deployment(1);
        let error = manifest_json(&console, &[("manifest", &manifest), ("policy", pasted)]).unwrap_err();
        assert!(
            error.to_string().contains(&format!("`{name}` takes parameters")),
            "{error}"
        );
    }
}

#[test]
fn a_policy_on_trial_is_checked_and_compared() {
    let console = TestConsole::of(MANIFESTS);
    for verb in ["list", "get", "list"] {
        let line = format!(
            r#"{{"time":"2026-01-01T00:00:00.000000Z","cluster":"default","endpoint":"authorize","user":"<s>joe</s>","groups":["readers"],"attributes":{{"verb":"{verb}","resource":"pods"}},"decision":"allow"}}"#
        );
        console.console.push(Decision::Allow, "default", line.as_bytes());
    }
    let request = [
        ("user", "jane"),
        ("group", "readers"),
        ("verb", "list"),
        ("resource", "pods"),
    ];
    let form = [&request[..], &[("policy", DENY)]].concat();
    let answer = manifest_json(&console, &form).unwrap();
    assert_eq!(
        answer["objects"],
        json!([{"name": "AuthorizationPolicy/stop", "replaces": false}])
    );
    assert_eq!(answer["request"]["inForce"]["decision"], "allow");
    assert_eq!(answer["request"]["onTrial"]["decision"], "deny");
    assert_eq!(
        (&answer["recent"]["decided"], &answer["recent"]["unknown"]),
        (&json!(3), &json!(0))
    );
    let group = &answer["recent"]["groups"][0];
    assert_eq!(
        (&group["from"], &group["to"], &group["cause"], &group["count"]),
        (
            &json!("allow"),
            &json!("deny"),
            &json!("AuthorizationPolicy/stop"),
            &json!(2)
        )
    );
    let change = &answer["recent"]["changes"][0];
    assert_eq!(
        (
            &change["sequence"],
            &change["before"]["cause"],
            &change["after"]["cause"]
        ),
        (
            &json!(3),
            &json!("ClusterRoleBinding/readers"),
            &json!("AuthorizationPolicy/stop")
        )
    );
    let page = console.post(&form, Representation::Html).unwrap().body;
    assert!(
        page.contains("&#60;i&#62;closed&#60;/i&#62;") && !page.contains("<i>"),
        "{page}"
    );
    // Nothing was put in force.
    assert_eq!(
        console
            .json("/what-if?user=jane&group=readers&verb=list&resource=pods")
            .unwrap()["decision"],
        "allow"
    );
    let faulty = DENY.replace("Deny", "Refuse");
    let answer = manifest_json(&console, &[("policy", &faulty)]).unwrap();
    assert_eq!(
        (&answer["faults"][0]["line"], &answer["faults"][0]["severity"]),
        (&json!(5), &json!("error"))
    );
    assert_eq!(answer["objects"], json!([]));
    assert!(answer.get("recent").is_none(), "{answer}");
}

#[test]
fn what_is_no_manifest_is_said() {
    let console = TestConsole::of(MANIFESTS);
    let many = (mk_deployment(1) + "---\n").repeat(51);
    for (form, message) in [
        (vec![("manifest", "kind: [")], "manifest"),
        (vec![("manifest", "kind: Pod")], "apiVersion"),
        (
            vec![
                ("manifest", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}"),
                ("operation", "UPDATE"),
            ],
            "before the change",
        ),
        (vec![("manifest", many.as_str())], "51 objects"),
        (
            vec![("manifest", "a: b"), ("operation", "ERASE")],
            "`operation` is `ERASE`",
        ),
        (vec![("manifst", "a: b")], "`manifst` is not known"),
    ] {
        let error = manifest_json(&console, &form).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn a_whole_review_is_not_pasted_by_accident_into_markup() {
    let console = TestConsole::of(MANIFESTS);
    let manifest = "</textarea><script>alert(1)</script>";
    let page = console
        .post(&[("manifest", manifest)], Representation::Html)
        .unwrap();
    assert_eq!(page.status, 400);
    assert!(!page.body.contains("<script>"), "{}", page.body);
}
