use std::sync::Arc;

use super::*;
use portcullis_policy::manifest::{self, Options, Source};

const WHO_CAN_MANIFESTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{verbs: [get, list], apiGroups: [''], resources: [pods, nodes]}, {verbs: [get], nonResourceURLs: [/metrics]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop-readers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: bot, namespace: shop}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: '<b>jane</b>'}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-db}
spec:
  effect: Deny
  notAfter: '2030-01-01T00:00:00Z'
  subjects: [{kind: Group, name: readers}]
  resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], names: [db]}]
  reason: the <i>database</i> is not read
";

fn who_can_set() -> std::sync::Arc<PolicySet> {
    let source = Source {
        file: "policies.yaml".into(),
        text: WHO_CAN_MANIFESTS.into(),
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    std::sync::Arc::clone(manifests.policies.for_cluster("default"))
}

fn now() -> Time {
    Time::parse("2029-01-01T00:00:00Z").unwrap()
}

fn json(answer: &WhoCanAnswer) -> String {
    serde_json::to_string_pretty(&answer.report()).unwrap()
}

/// The question as `portcullis who-can` asks it.
fn asked_by_the_command(verb: &str, target: &str, name: &str, namespace: &str) -> WhoCanQuestion {
    let name = (!name.is_empty()).then_some(name);
    let place = match namespace {
        "" => (!target.starts_with('/')).then_some(Within::AnyNamespace),
        namespace => Some(Within::Namespace(namespace.to_owned())),
    };
    WhoCanQuestion::new(verb, target, name, place).unwrap()
}

#[test]
fn the_form_asks_what_the_command_asks() {
    let set = who_can_set();
    let mut answers = std::collections::BTreeSet::new();
    for verb in ["get", "list", "delete", "*"] {
        for target in ["pods", "nodes", "pods/log", "widgets.example.com", "/metrics"] {
            for name in ["", "db", "other"] {
                for namespace in ["", "shop", "bank"] {
                    if target.starts_with('/') && !(name.is_empty() && namespace.is_empty()) {
                        continue;
                    }
                    let fields = [
                        ("verb", verb),
                        ("resource", target),
                        ("name", name),
                        ("namespace", namespace),
                    ];
                    let query: ViewQuery = fields.into_iter().collect();
                    let form = WhoCanForm::new(&query).unwrap();
                    let answer = json(
                        &form
                            .question()
                            .unwrap()
                            .answer(&set, now(), Deadline::NEVER)
                            .unwrap(),
                    );
                    let expected = asked_by_the_command(verb, target, name, namespace);
                    assert_eq!(
                        answer,
                        json(&expected.answer(&set, now(), Deadline::NEVER).unwrap()),
                        "{fields:?}"
                    );
                    answers.insert(answer);
                }
            }
        }
    }
    // They are not all alike.
    assert!(answers.len() > 5, "{answers:?}");
}

#[test]
fn a_subject_is_shown_with_its_rules_and_what_takes_them_away() {
    let set = who_can_set();
    let query = ViewQuery::parse("verb=get&resource=pods");
    let answer = WhoCanForm::new(&query)
        .unwrap()
        .question()
        .unwrap()
        .answer(&set, now(), Deadline::NEVER)
        .unwrap();
    let table = WhoCanTable::new(&answer, &set, Vec::new(), &query).unwrap();
    let names: Vec<(String, &str)> = table
        .rows
        .iter()
        .map(|row| (row.kind.to_string(), row.name.as_str()))
        .collect();
    let expected = [
        ("Group", "readers"),
        ("Group", "system:masters"),
        ("ServiceAccount", "shop/bot"),
        ("User", "<b>jane</b>"),
    ];
    let mut sorted: Vec<(&str, &str)> = names.iter().map(|(kind, name)| (kind.as_str(), *name)).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    let readers = table.rows.iter().find(|row| row.name == "readers").unwrap();
    assert_eq!(readers.denied_by, ["no-db"]);
    assert_eq!(readers.via[0].0, "ClusterRoleBinding/readers, rule 0");
    assert_eq!(table.denies.len(), 1);
    assert!(
        table.denies[0].limits.contains("2030-01-01"),
        "{:?}",
        table.denies
    );
    let masters = table
        .rows
        .iter()
        .find(|row| row.name == "system:masters")
        .unwrap();
    assert!(masters.via.is_empty());
}

#[test]
fn what_cannot_be_asked_is_said() {
    for (query, message) in [
        ("verb=get", "name a verb and a resource"),
        ("resource=pods", "name a verb and a resource"),
        ("verb=get&resource=%2Fmetrics&name=a", "a path cannot be combined"),
        (
            "verb=get&resource=%2Fmetrics&namespace=a",
            "a path cannot be combined",
        ),
    ] {
        let query = ViewQuery::parse(query);
        let error = WhoCanForm::new(&query)
            .unwrap()
            .question()
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(WhoCanForm::new(&ViewQuery::parse("verb=get&verb=list")).is_err());
}

#[test]
fn markup_in_names_of_who_can_is_text() {
    let set = who_can_set();
    let query = ViewQuery::parse("verb=get&resource=pods");
    let answer = WhoCanForm::new(&query)
        .unwrap()
        .question()
        .unwrap()
        .answer(&set, now(), Deadline::NEVER)
        .unwrap();
    let table = WhoCanTable::new(&answer, &set, vec!["<u>note</u>".into()], &query).unwrap();
    let page = WhoCanPage {
        frame: PageFrame::new("Who can", "/who-can", &"r".into()),
        form: WhoCanForm {
            verb: "\"><script>",
            ..WhoCanForm::default()
        },
        clusters: &ClusterChoice {
            names: vec!["<a>".into(), "b".into()],
            chosen: "<a>".into(),
        },
        answer: Some(table),
    };
    let html = page.render().unwrap();
    for hostile in ["<b>", "<i>", "<u>", "<script>", "<a>"] {
        assert!(!html.contains(hostile), "{hostile}: {html}");
    }
    assert!(html.contains("&#60;b&#62;jane&#60;/b&#62;"), "{html}");
}

const WHAT_CAN_MANIFESTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: editor}
rules:
- {verbs: [get, update], apiGroups: [apps], resources: [deployments, deployments/scale]}
- {verbs: [get], apiGroups: [''], resources: [secrets], resourceNames: ['<b>one</b>']}
- {verbs: [get], nonResourceURLs: [/metrics]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: editor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'cn=editors,ou=groups'}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: frozen}
spec:
  effect: Deny
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [update], apiGroups: [apps], resources: [deployments], names: [web]}]
  reason: frozen
";

fn what_can_set() -> Arc<PolicySet> {
    let source = Source {
        file: "policies.yaml".into(),
        text: WHAT_CAN_MANIFESTS.into(),
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    Arc::clone(manifests.policies.for_cluster("default"))
}

fn tables(query: &ViewQuery) -> WhatCanTables {
    let (set, now) = (what_can_set(), Time::parse("2026-01-01T00:00:00Z").unwrap());
    let question = WhatCanForm::new(query).unwrap().question().unwrap();
    let answer = question.answer(&set, now, Deadline::NEVER).unwrap();
    let matrix = question.matrix(&set, &answer, now, Deadline::NEVER).unwrap();
    WhatCanTables::new(&answer, &set, matrix, query).unwrap()
}

#[test]
fn a_group_may_have_commas_and_stands_on_a_line_of_its_own() {
    let query = ViewQuery::parse("user=jane&groups=a%0D%0A+cn%3Deditors%2Cou%3Dgroups+%0A%0A&group=b");
    let form = WhatCanForm::new(&query).unwrap();
    assert_eq!(form.groups, ["a", "cn=editors,ou=groups", "b"]);
}

#[test]
fn rules_and_the_matrix_say_what_a_deny_leaves() {
    let tables = tables(&ViewQuery::parse(
        "user=jane&groups=cn%3Deditors%2Cou%3Dgroups&namespace=shop",
    ));
    let rows: Vec<(&str, &str, &str)> = tables
        .rows
        .iter()
        .map(|row| (row.verbs.as_str(), row.targets.as_str(), row.limits.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            ("get, update", "deployments.apps, deployments.apps/scale", ""),
            ("get", "secrets", "names: <b>one</b>"),
        ]
    );
    assert_eq!(tables.rows[0].denied_by, ["frozen"]);
    assert_eq!(tables.rows[0].rule, "RoleBinding/shop/editors, rule 0");
    let (_, shares) = tables
        .matrix
        .iter()
        .find(|(resource, _)| resource == "deployments.apps")
        .unwrap();
    assert_eq!(shares, &["yes", "-", "-", "-", "some", "-", "-", "-"]);
    assert_eq!(tables.denies[0].reason, "frozen");
}

#[test]
fn somebody_has_to_be_named() {
    let form = WhatCanForm::new(&ViewQuery::parse("namespace=shop")).unwrap();
    let error = form.question().map(drop).unwrap_err();
    assert_eq!(error, ViewError::Invalid("name a user or a group".to_owned()));
}

#[test]
fn markup_in_names_of_what_can_is_text() {
    let query = ViewQuery::parse("user=jane&groups=cn%3Deditors%2Cou%3Dgroups");
    let form = WhatCanForm {
        user: "<u>".into(),
        groups: vec!["</textarea><script>".into()],
        namespace: String::new(),
    };
    let page = WhatCanPage {
        frame: PageFrame::new("What can", "/what-can", &"r".into()),
        form: &form,
        clusters: &ClusterChoice {
            names: vec!["default".into()],
            chosen: "default".into(),
        },
        answer: Some(tables(&query)),
    };
    let html = page.render().unwrap();
    for hostile in ["<u>", "<b>", "<script>"] {
        assert!(!html.contains(hostile), "{hostile}: {html}");
    }
    assert_eq!(html.matches("</textarea>").count(), 1, "{html}");
}

#[test]
fn a_set_without_bindings_says_that_rbac_is_missing() {
    let note = |set: &PolicySet| unknown_rbac(set, "east");
    assert_eq!(note(&who_can_set()), None);
    let (manifests, _) = manifest::load(&[], &Options::default());
    let note = note(manifests.unwrap().policies.for_cluster("east")).unwrap();
    assert!(note.contains("`east`"), "{note}");
}
