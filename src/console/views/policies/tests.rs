use super::*;
use crate::console::page::Representation;
use crate::console::tests::fixtures::TestConsole;
use portcullis_policy::model::{CauseKind, Decision, PolicyResult};
use serde_json::json;

const MANIFESTS: &str = "# first
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: stop, annotations: {note: '<b>bold</b>'}}
spec:
  effect: Deny
  mode: Shadow
  notAfter: '2030-01-01T00:00:00Z'
  subjects: [{kind: Group, name: readers}]
  resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}, {verbs: [get], apiGroups: [''], resources: [nodes]}]
  nonResourceRules: [{verbs: [get], paths: [/metrics]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  validations: [{expression: 'object.spec.replicas < 5'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few-everywhere}
spec: {policyName: few, validationActions: [Warn, Audit]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: idle}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  validations: [{expression: 'true'}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: once}
spec:
  policies: [few]
  match: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments], resourceNames: [web]}]}
  notAfter: '2029-01-01T00:00:00Z'
  reason: migration
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{verbs: [list], apiGroups: [''], resources: [pods]}, {verbs: [get], apiGroups: [''], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: bot, namespace: shop}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: scanner, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"hidden\":1}'}}
webhooks:
- name: scan.example.com
  clientConfig: {url: 'https://scan.example.com/v'}
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
---
apiVersion: v1
kind: Secret
metadata: {name: few, namespace: shop}
data: {token: c2VjcmV0}
";

fn mk_console() -> TestConsole {
    let console = TestConsole::of(MANIFESTS);
    let counters = console.metrics.policies([
        (CauseKind::AuthorizationPolicy, "stop"),
        (CauseKind::ValidatingAdmissionPolicy, "few"),
    ]);
    counters[0].record(PolicyResult::ShadowDeny);
    counters[0].spent(40);
    counters[1].record(PolicyResult::NoMatch);
    for line in [
        r#"{"time":"2026-01-01T00:00:00.000000Z","cluster":"default","endpoint":"authorize","user":"u","decision":"allow","shadow":[{"kind":"AuthorizationPolicy","name":"stop","decision":"deny"}]}"#,
        r#"{"time":"2026-01-02T00:00:00.000000Z","cluster":"default","endpoint":"authorize","user":"u","decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"stop","rule":1},"shadow":[]}"#,
        r#"{"time":"2026-01-03T00:00:00.000000Z","cluster":"default","endpoint":"validate","user":"u","decision":"allow","shadow":[],"exceptions":[{"name":"once","policy":"few"}]}"#,
    ] {
        console.console.push(Decision::Deny, "default", line.as_bytes());
    }
    console
}

#[test]
fn policies_are_listed_with_what_became_of_them() {
    let console = mk_console();
    let list = console.json("/policies").unwrap();
    let rows: Vec<(&str, &str, &str)> = list["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap();
            (text("kind"), text("name"), text("about"))
        })
        .collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!((rows[0].0, rows[0].1), ("AuthorizationPolicy", "stop"));
    assert!(
        rows[0].2.starts_with("deny, in Shadow: ") && rows[0].2.contains("2030-01-01"),
        "{rows:?}"
    );
    assert_eq!(rows[1].2, "bound by few-everywhere (Warn, Audit)");
    assert_eq!(
        rows[2],
        (
            "ValidatingAdmissionPolicy",
            "idle",
            "no binding, so it has no effect"
        )
    );
    assert_eq!(rows[3].2, "excuses denials by few until 2029-01-01T00:00:00Z");
    assert_eq!(
        list["policies"][0]["counts"],
        json!({"matched": 0, "notMatched": 0, "errors": 0, "shadowAllows": 0, "shadowDenies": 1,
            "cost": 40, "meanCost": 40})
    );
    assert_eq!(list["policies"][3]["counts"], json!(null));
    let place = list["policies"][1]["place"].as_str().unwrap();
    assert!(place.ends_with("manifests.yaml:14"), "{place}");
}

#[test]
fn the_list_is_filtered() {
    let console = mk_console();
    for (query, names) in [
        ("filter=ST", &["stop"][..]),
        ("kind=ValidatingAdmissionPolicy", &["few", "idle"]),
        ("unused=yes", &["few", "idle"]),
        ("unused=yes&filter=f", &["few"]),
        ("filter=nothing", &[]),
    ] {
        let list = console.json(&format!("/policies?{query}")).unwrap();
        let found: Vec<&str> = list["policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names, "{query}");
        console.html(&format!("/policies?{query}")).unwrap();
    }
    for (query, message) in [
        ("kind=Secret", "`kind` is `Secret`"),
        ("filtr=a", "`filtr` is not known"),
        ("page=2", "`page` is `2`"),
    ] {
        let error = console
            .html(&format!("/policies?{query}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_policy_is_shown_as_it_is_written_with_its_bindings() {
    let console = mk_console();
    let policy = console.json("/policies/ValidatingAdmissionPolicy/-/few").unwrap();
    let objects: Vec<&str> = policy["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text["object"].as_str().unwrap())
        .collect();
    assert_eq!(
        objects,
        [
            "ValidatingAdmissionPolicy/few",
            "ValidatingAdmissionPolicyBinding/few-everywhere"
        ]
    );
    assert!(
        policy["texts"][0]["text"]
            .as_str()
            .unwrap()
            .contains("object.spec.replicas < 5")
    );
    assert_eq!(
        policy["rules"],
        json!([{"rule": 0, "sentence": "object.spec.replicas < 5", "decided": 0}])
    );
    assert_eq!(policy["subjects"], "CREATE of deployments.apps");
    let exception = console.json("/policies/AdmissionException/-/once").unwrap();
    assert_eq!(exception["subjects"], "CREATE of deployments.apps, named web");
    let policy = console.json("/policies/AuthorizationPolicy/-/stop").unwrap();
    let used: Vec<u64> = policy["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["decided"].as_u64().unwrap())
        .collect();
    assert_eq!(used, [0, 1, 0]);
    assert_eq!(
        (&policy["recent"], &policy["lastSequence"], &policy["lastTime"]),
        (&json!(1), &json!(2), &json!("2026-01-02T00:00:00.000000Z"))
    );
    let page = console.html("/policies/AuthorizationPolicy/-/stop").unwrap();
    assert!(
        page.contains("&#60;b&#62;bold") && !page.contains("<b>"),
        "{page}"
    );
}

const COMMENTED: &str = "---
# why it is there
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: guard}   # its name
spec:
  effect: Deny
  subjects: [{kind: Group, name: dev}]
  excludeSubjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [delete], apiGroups: [apps], resources: [deployments], namespaces: [prod-*]}]
---
# of the next one
apiVersion: v1
kind: Namespace
metadata: {name: a}
";

#[test]
fn a_policy_is_told_in_sentences_and_shown_with_its_comments() {
    let console = TestConsole::of(COMMENTED);
    let url = "/policies/AuthorizationPolicy/-/guard";
    let policy = console.json(url).unwrap();
    assert_eq!(policy["subjects"], "Group dev, but not User jane");
    assert_eq!(
        policy["rules"][0]["sentence"],
        "delete deployments.apps in the namespaces prod-*"
    );
    let text = policy["texts"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("# why it is there\n") && text.contains("# its name"),
        "{text}"
    );
    assert!(!text.contains("next one"), "{text}");
    // A file that says something else by now, or is gone, is not what is in force.
    let file = console
        .state
        .current()
        .config
        .file
        .with_file_name("manifests.yaml");
    for newer in [Some(COMMENTED.replace("[delete]", "[get]")), None] {
        match newer {
            Some(newer) => std::fs::write(&file, newer).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let policy = console.json(url).unwrap();
        let text = policy["texts"][0]["text"].as_str().unwrap();
        assert!(text.contains("delete") && !text.contains('#'), "{text}");
    }
}

#[test]
fn what_a_watched_cluster_has_is_shown_as_it_has_it_and_what_files_have_once() {
    let watched = MANIFESTS.replace(
        "metadata: {name: few}",
        "metadata: {name: few, labels: {of: cluster}}",
    );
    let texts = |console: &TestConsole, url: &str| {
        let object = console.json(url).unwrap();
        let all = object["texts"].as_array().unwrap().iter();
        let text = |one: &serde_json::Value, field: &str| one[field].as_str().unwrap().to_owned();
        all.map(|one| ["object", "place", "text"].map(|field| text(one, field)))
            .collect::<Vec<_>>()
    };
    let few = "/policies/ValidatingAdmissionPolicy/-/few";
    let console = TestConsole::watching("", &watched);
    let [policy, binding] = &texts(&console, few)[..] else {
        panic!("not two objects");
    };
    assert_eq!(policy[..2], ["ValidatingAdmissionPolicy/few", "cluster default"]);
    assert!(
        policy[2].contains("of: cluster") && policy[2].contains("object.spec.replicas < 5"),
        "{policy:?}"
    );
    assert_eq!(binding[0], "ValidatingAdmissionPolicyBinding/few-everywhere");
    let bound = texts(&console, "/policies/RoleBinding/shop/readers");
    let bound: Vec<&str> = bound.iter().map(|[object, ..]| object.as_str()).collect();
    assert_eq!(bound, ["Role/shop/reader", "RoleBinding/shop/readers"]);
    let hook = texts(&console, "/policies/ValidatingWebhookConfiguration/-/scanner");
    assert!(!hook[0][2].contains("last-applied"), "{hook:?}");
    // The file counts, and is what is shown.
    let file = &MANIFESTS[MANIFESTS.find("apiVersion: admissionregistration").unwrap()..];
    let file = file.split("---\n").next().unwrap();
    let both = TestConsole::watching(file, &watched);
    let of_policy = texts(&both, few);
    let of_policy: Vec<_> = of_policy
        .iter()
        .filter(|[object, ..]| object == &policy[0])
        .collect();
    assert_eq!(of_policy.len(), 1, "{of_policy:?}");
    assert!(!of_policy[0][2].contains("of: cluster"), "{of_policy:?}");
}

#[test]
fn a_binding_that_decided_is_shown_with_its_role() {
    let console = mk_console();
    let binding = console.json("/policies/RoleBinding/shop/readers").unwrap();
    assert_eq!(binding["about"], "gives Role reader to ServiceAccount shop/bot");
    assert_eq!(binding["rules"].as_array().unwrap().len(), 2);
    let objects: Vec<&str> = binding["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text["object"].as_str().unwrap())
        .collect();
    assert_eq!(objects, ["RoleBinding/shop/readers", "Role/shop/reader"]);
    console.html("/policies/RoleBinding/shop/readers").unwrap();
}

#[test]
fn a_configuration_of_webhooks_is_shown_without_its_older_copy() {
    let path = "/policies/ValidatingWebhookConfiguration/-/scanner";
    let console = mk_console();
    let configuration = console.json(path).unwrap();
    assert_eq!(configuration["about"], "configures the webhooks scan.example.com");
    assert_eq!(
        configuration["rules"][0]["sentence"],
        "scan.example.com: CREATE of pods"
    );
    let text = configuration["texts"][0]["text"].as_str().unwrap();
    assert!(text.contains("https://scan.example.com/v"), "{text}");
    let page = console.html(path).unwrap();
    assert!(!text.contains("hidden") && !page.contains("hidden"), "{page}");
}

#[test]
fn nothing_else_is_shown_than_policies() {
    let console = mk_console();
    for path in [
        "/policies/Secret/shop/few",
        "/policies/Secret/-/few",
        "/policies/ConfigMap/-/few",
        "/policies/AuthorizationPolicy/-/few",
        "/policies/AuthorizationPolicy/shop/stop",
        "/policies/AuthorizationPolicy",
        "/policies/RoleBinding/-/readers",
        "/policies/MutatingWebhookConfiguration/-/scanner",
        "/policies/ValidatingWebhookConfiguration/shop/scanner",
        "/policies/ClusterRoleBinding/-/readers",
        "/policies/Role/shop/reader",
        "/policies/AuthorizationPolicy/-/stop/x",
    ] {
        let error = console.get(path, Representation::Html).unwrap_err();
        assert_eq!(error.status(), 404, "{path}: {error}");
    }
}

/// A row of usage.
fn row(cluster: &str, user: &str, cause: &str, count: u64) -> String {
    format!(
        "{{\"cluster\":\"{cluster}\",\"user\":\"{user}\",\"endpoint\":\"authorize\",\"attributes\":{{\"verb\":\"get\"}},\
         \"decision\":\"allow\",\"cause\":{cause},\"count\":{count},\
         \"first\":\"2026-11-21T08:00:{count:02}Z\",\"last\":\"2026-11-21T09:00:{count:02}Z\"}}\n"
    )
}

#[test]
fn an_object_shows_by_whom_how_often_and_since_when() {
    const URL: &str = "/policies/RoleBinding/shop/readers";
    assert_eq!(
        mk_console().json(URL).unwrap()["usage"],
        json!(null),
        "nothing is counted"
    );

    let console = TestConsole::with(MANIFESTS, "usage: {folder: usage}\n");
    let nothing = console.json(URL).unwrap();
    assert_eq!(
        nothing["usage"]["error"].as_str().unwrap(),
        "there is no such file or folder: put it there, or correct the path"
    );
    let folder = console
        .state
        .current()
        .config
        .usage
        .as_ref()
        .unwrap()
        .folder
        .clone();
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(console.json(URL).unwrap()["usage"]["since"], "");

    let header = |hour: u32| format!("{{\"portcullisUsage\":1,\"hour\":\"2026-11-21T{hour:02}:00:00Z\"}}\n");
    let readers = r#"{"kind":"RoleBinding","namespace":"shop","name":"readers","rule":1}"#;
    let others = [
        r#"{"kind":"RoleBinding","namespace":"shop","name":"readers-2","rule":1}"#,
        r#"{"kind":"RoleBinding","namespace":"live","name":"readers","rule":1}"#,
        r#"{"kind":"ClusterRoleBinding","name":"readers","rule":1}"#,
    ];
    let write = |hour: u32, rows: &[String]| {
        let path = folder.join(format!("usage-20261121T{hour:02}Z-a.jsonl"));
        std::fs::write(path, header(hour) + &rows.concat()).unwrap();
    };
    write(
        8,
        &[
            row("default", "jane", readers, 5),
            row("default", "<b>eve</b>", readers, 30),
            row("other", "jane", readers, 7),
            row("default\",\"caller\":\"pathToken", "jane", readers, 9),
        ],
    );
    write(
        9,
        &[
            row("default", "jane", readers, 2),
            others.map(|other| row("default", "jane", other, 9)).concat(),
        ],
    );
    let usage = &console.json(URL).unwrap()["usage"];
    assert_eq!(
        *usage,
        json!({"since": "2026-11-21T08:00:00Z", "error": "", "decided": 37, "moreUsers": 0, "users": [
            {"user": "<b>eve</b>", "decided": 30, "first": "2026-11-21T08:00:30Z", "last": "2026-11-21T09:00:30Z"},
            {"user": "jane", "decided": 7, "first": "2026-11-21T08:00:02Z", "last": "2026-11-21T09:00:05Z"},
        ]})
    );
    let html = console.html(URL).unwrap();
    assert!(
        html.contains("37 decisions since") && !html.contains("<b>eve"),
        "{html}"
    );
    let never = console.json("/policies/AuthorizationPolicy/-/stop").unwrap();
    assert_eq!(
        (&never["usage"]["decided"], &never["usage"]["users"]),
        (&json!(0), &json!([]))
    );
}

#[test]
fn decisions_are_counted_for_the_objects_that_they_name() {
    let mut recent = RecentUse::default();
    for (sequence, line) in [
        (
            7,
            r#"{"time":"t7","cluster":"c","decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"a","rule":1}}"#,
        ),
        (
            8,
            r#"{"time":"t8","cluster":"c","cause":{"kind":"AuthorizationPolicy","name":"a","rule":1},"shadow":[{"kind":"AuthorizationPolicy","name":"s","decision":"deny"}]}"#,
        ),
        (
            9,
            r#"{"time":"t9","cluster":"other","cause":{"kind":"AuthorizationPolicy","name":"a","rule":0}}"#,
        ),
        (
            10,
            r#"{"time":"t10","cluster":"c","exceptions":[{"name":"e","policy":"p"}]}"#,
        ),
        (11, "no line"),
    ] {
        recent.add("c", sequence, line.as_bytes());
    }
    let used = recent.of("AuthorizationPolicy", "", "a");
    assert_eq!((used.decided, used.denied), (2, 1));
    assert_eq!(used.last, Some((8, "t8".to_owned())));
    assert_eq!(used.rules, [(1, 2)].into());
    let shadow = recent.of("AuthorizationPolicy", "", "s");
    assert_eq!((shadow.decided, shadow.last), (0, Some((8, "t8".to_owned()))));
    assert_eq!(recent.of("AdmissionException", "", "e").decided, 1);
    assert_eq!(recent.of("AuthorizationPolicy", "", "none"), ObjectUse::default());
}
