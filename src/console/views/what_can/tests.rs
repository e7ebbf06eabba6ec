use std::sync::Arc;

use super::*;
use portcullis_policy::manifest::{self, Options, Source};

const MANIFESTS: &str = "
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

fn mk_set() -> Arc<PolicySet> {
    let source = Source {
        file: "policies.yaml".into(),
        text: MANIFESTS.into(),
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    Arc::clone(manifests.policies.for_cluster("default"))
}

fn tables(query: &ViewQuery) -> WhatCanTables {
    let (set, now) = (mk_set(), Time::parse("2026-01-01T00:00:00Z").unwrap());
    let question = WhatCanForm::new(query).unwrap().question().unwrap();
    let answer = question.answer(&set, now);
    let matrix = question.matrix(&set, &answer, now);
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
fn markup_in_names_is_text() {
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
    for hostile in ["<u>", "<b>", "<script"] {
        assert!(!html.contains(hostile), "{hostile}: {html}");
    }
    assert_eq!(html.matches("</textarea>").count(), 1, "{html}");
}
