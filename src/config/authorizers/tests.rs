use std::fs;

use super::*;

const ANY: AuthorizerTypes<'_> = AuthorizerTypes {
    known: &["Webhook", "RBAC"],
    repeatable: &["Webhook"],
    in_cluster: true,
    cel_version: Version::NEWEST,
};

/// A folder with `k` in it, a kubeconfig for what is read here.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("k"), "").unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    folder
}

/// One valid webhook, with `fields` in the place of those of the same names.
fn webhook(fields: &[(&str, &str)]) -> String {
    let mut all = vec![
        ("timeout", "3s"),
        ("subjectAccessReviewVersion", "v1"),
        ("failurePolicy", "NoOpinion"),
        ("connectionInfo", "{type: KubeConfigFile, kubeConfigFile: k}"),
    ];
    for (name, value) in fields {
        all.retain(|(field, _)| field != name);
        all.push((name, value));
    }
    let fields: Vec<_> = all
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    format!("{{type: Webhook, name: w, webhook: {{{}}}}}", fields.join(", "))
}

fn faults_of(entries: &str) -> String {
    let text = format!("authorizers: [{entries}]");
    check("f", &text, folder().path(), ANY)
        .to_string()
        .replace("f:1: authorizers", "")
}

fn read(folder: &Path, entry: &str) -> Vec<AuthorizerEntry> {
    let text = format!("authorizers: [{entry}]");
    let documents = document::parse(None, &text).unwrap();
    let reading = ReadContext::new(&documents[0], folder);
    let read = authorizers(&reading.root(&["authorizers"]), "authorizers", ANY);
    assert_eq!(reading.into_faults().to_string(), "");
    read
}

#[test]
fn reads_an_entry_with_upstreams_defaults() {
    let folder = folder();
    let read = read(folder.path(), &webhook(&[]));
    let [authorizer] = read.as_slice() else {
        panic!("one")
    };
    assert_eq!(authorizer.rules.name, "w");
    assert_eq!(authorizer.timeout, Duration::from_secs(3));
    assert_eq!(authorizer.version, SubjectAccessReviewVersion::V1);
    assert_eq!(authorizer.rules.failure_policy, FailurePolicy::NoOpinion);
    assert_eq!(authorizer.kubeconfig, folder.path().join("k"));
    assert_eq!(authorizer.authorized_ttl, Some(Duration::from_secs(300)));
    assert_eq!(authorizer.unauthorized_ttl, Some(Duration::from_secs(30)));
    assert_eq!(authorizer.rules.match_conditions, []);
}

#[test]
fn reads_every_field() {
    let entry = webhook(&[
        ("subjectAccessReviewVersion", "v1beta1"),
        ("failurePolicy", "Deny"),
        ("authorizedTTL", "0s"),
        ("cacheAuthorizedRequests", "false"),
        ("unauthorizedTTL", "1m"),
        ("cacheUnauthorizedRequests", "true"),
        ("matchConditionSubjectAccessReviewVersion", "v1"),
        (
            "matchConditions",
            "[{expression: has(request.resourceAttributes)}, {expression: \"request.user != 'x'\"}]",
        ),
    ]);
    let folder = folder();
    let read = read(folder.path(), &entry);
    let authorizer = &read[0];
    assert_eq!(authorizer.version, SubjectAccessReviewVersion::V1beta1);
    assert_eq!(authorizer.rules.failure_policy, FailurePolicy::Deny);
    assert_eq!(authorizer.authorized_ttl, None, "switched off");
    assert_eq!(authorizer.unauthorized_ttl, Some(Duration::from_secs(60)));
    let named: Vec<_> = authorizer
        .rules
        .match_conditions
        .iter()
        .map(|condition| (condition.name(), condition.expression()))
        .collect();
    assert_eq!(
        named,
        [
            ("matchConditions[0]", "has(request.resourceAttributes)"),
            ("matchConditions[1]", "request.user != 'x'")
        ]
    );
}

#[test]
fn reports_what_upstream_reports_of_a_webhook() {
    let table: &[(&str, &str, &str)] = &[
        ("timeout", "0s", ".timeout: Required value"),
        ("timeout", "31s", ".timeout: Invalid value"),
        ("timeout", "-1s", ".timeout: Invalid value"),
        ("timeout", "null", ".timeout: Required value"),
        ("authorizedTTL", "-1s", ".authorizedTTL: Invalid value"),
        ("unauthorizedTTL", "5", ".unauthorizedTTL: Invalid type"),
        (
            "cacheAuthorizedRequests",
            "'no'",
            ".cacheAuthorizedRequests: Invalid type",
        ),
        (
            "subjectAccessReviewVersion",
            "''",
            ".subjectAccessReviewVersion: Required",
        ),
        (
            "subjectAccessReviewVersion",
            "v2",
            ".subjectAccessReviewVersion: Unsupported",
        ),
        (
            "matchConditionSubjectAccessReviewVersion",
            "v1beta1",
            ".matchConditionSubjectAccessReviewVersion: Unsupported",
        ),
        (
            "matchConditions",
            "[{expression: 'true'}]",
            ".matchConditionSubjectAccessReviewVersion: Required",
        ),
        ("failurePolicy", "null", ".failurePolicy: Required value"),
        ("failurePolicy", "Fail", ".failurePolicy: Unsupported value"),
        ("connectionInfo", "null", ".connectionInfo.type: Required value"),
        ("connectionInfo", "{type: X}", ".connectionInfo.type: Unsupported"),
        (
            "connectionInfo",
            "{type: KubeConfigFile}",
            ".connectionInfo.kubeConfigFile: Required",
        ),
        (
            "connectionInfo",
            "{type: KubeConfigFile, kubeConfigFile: gone}",
            ".connectionInfo.kubeConfigFile: Invalid",
        ),
        (
            "connectionInfo",
            "{type: KubeConfigFile, kubeConfigFile: d}",
            "must be a regular file",
        ),
        (
            "connectionInfo",
            "{type: InClusterConfig, kubeConfigFile: k}",
            ".connectionInfo.kubeConfigFile: Invalid",
        ),
        ("ttl", "5s", ".ttl: Unsupported value: unknown field"),
    ];
    for (field, value, expected) in table {
        let found = faults_of(&webhook(&[(field, value)]));
        assert!(
            found.contains(&format!("[0].webhook{expected}")) || found.contains(expected),
            "{field}: {value}: {found}"
        );
        assert!(!found.contains('\n'), "{field}: {value}: {found}");
    }
}

#[test]
fn reports_conditions_at_their_expressions() {
    let conditions = "[{expression: ' '}, {expression: 'true'}, {expression: 'true'}, {expression: request.usr}, \
                      {expression: request.user}]";
    let found = faults_of(&webhook(&[
        ("matchConditionSubjectAccessReviewVersion", "v1"),
        ("matchConditions", conditions),
    ]));
    for (index, expected) in [(0, "Required"), (2, "Duplicate"), (3, "Invalid"), (4, "Invalid")] {
        let place = format!("[0].webhook.matchConditions[{index}].expression: {expected}");
        assert!(found.contains(&place), "{place} in {found}");
    }
    let many: Vec<_> = (0..65).map(|n| format!("{{expression: '{n} == 0'}}")).collect();
    let found = faults_of(&webhook(&[
        ("matchConditionSubjectAccessReviewVersion", "v1"),
        ("matchConditions", &format!("[{}]", many.join(", "))),
    ]));
    assert!(
        found.starts_with("[0].webhook.matchConditions: Too many"),
        "{found}"
    );
}

#[test]
fn types_and_names_are_unique_where_they_must_be() {
    let (one, other) = (webhook(&[]), webhook(&[]).replace("name: w", "name: x"));
    let table = [
        (format!("{one}, {other}"), ""),
        (format!("{one}, {one}"), "[1].name: Duplicate value"),
        ("{type: RBAC, name: rbac}".into(), ""),
        (
            "{type: RBAC, name: rbac}, {type: RBAC, name: b}".into(),
            "[1].type: Duplicate",
        ),
        ("{type: ABAC, name: abac}".into(), "[0].type: Unsupported value"),
        ("{name: abac}".into(), "[0].type: Required value"),
        ("{type: RBAC}".into(), "[0].name: Required value"),
        ("{type: RBAC, name: A}".into(), "[0].name: Invalid value"),
        (
            "{type: RBAC, name: a, webhook: {}}".into(),
            "[0].webhook: Invalid value",
        ),
        ("{type: Webhook, name: a}".into(), "[0].webhook: Required value"),
        (String::new(), ": Required value: at least one"),
    ];
    for (entries, expected) in table {
        let found = faults_of(&entries);
        assert!(
            found.starts_with(expected) && found.is_empty() == expected.is_empty(),
            "{entries}: {found}"
        );
    }
}

#[test]
fn names_in_the_domains_of_kubernetes_are_warned_of() {
    let named = |name: &str| faults_of(&webhook(&[]).replace("name: w,", &format!("name: {name},")));
    for (name, domain) in [
        ("k8s.io", "k8s.io"),
        ("gate.k8s.io", "k8s.io"),
        ("a.b.kubernetes.io", "kubernetes.io"),
    ] {
        let said = named(name);
        assert!(
            said.contains(&format!("names in `{domain}` are reserved")),
            "{said}"
        );
    }
    for name in ["portcullis", "k8s.io.example.com", "myk8s.io"] {
        assert_eq!(named(name), "", "{name}");
    }
}

#[test]
fn the_api_server_s_own_configuration_is_warned_of_too() {
    let folder = folder();
    let write = |name: &str, more: &str| {
        let entry = webhook(&[]).replace("name: w,", &format!("name: {name},"));
        let text = format!("kind: AuthorizationConfiguration\nauthorizers:\n- {entry}\n{more}");
        fs::write(folder.path().join("authorization-configuration.yaml"), text).unwrap();
        warnings_next_to(&folder.path().join("portcullis.yaml"), Version::NEWEST).to_string()
    };
    let said = write("gate.k8s.io", "");
    assert!(
        said.contains("authorization-configuration.yaml:3: authorizers[0].name"),
        "{said}"
    );
    assert_eq!(write("gate", ""), "");
    // What has faults is the API server's to judge.
    assert_eq!(write("gate.k8s.io", "- {type: Unknown, name: a}\n"), "");
}
