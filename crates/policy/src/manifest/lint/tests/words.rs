//! Names, patterns and words that match nothing.

use super::*;

#[test]
fn names_on_create() {
    let rule = "apiGroups: [\"\"], names: [a]";
    warns(
        &allow(&format!("verbs: [get, create], resources: [pods], {rule}")),
        "spec.resourceRules[0].names",
        "a create request has no name",
    );
    warns(
        &allow(&format!("verbs: [\"*\"], resources: [pods], {rule}")),
        "spec.resourceRules[0].names",
        "a create request has no name",
    );
    silent(&allow(&format!(
        "verbs: [get, update], resources: [pods], {rule}"
    )));
    silent(&allow(&format!(
        "verbs: [create], resources: [pods/exec], {rule}"
    )));
}

#[test]
fn a_star_in_a_name_or_within_a_path_is_no_pattern() {
    warns(
        &allow("verbs: [get], apiGroups: [\"\"], resources: [pods], names: [\"web-*\"]"),
        "spec.resourceRules[0].names[0]",
        "patterns are not supported in names",
    );
    warns(
        &deny_paths("/a/*/b"),
        "spec.nonResourceRules[0].paths[0]",
        "`*` is a wildcard only at the end",
    );
    silent(&deny_paths("/a*, '*'"));
}

#[test]
fn lists_of_all_namespaces() {
    let rule = |verbs: &str, group: &str, resources: &str| {
        allow(&format!(
            "verbs: [{verbs}], apiGroups: [{group}], resources: [{resources}], namespaces: [\"\", a]"
        ))
    };
    let at = "spec.resourceRules[0].namespaces[0]";
    warns(
        &rule("list", "\"\"", "nodes, pods"),
        at,
        "lists of `pods` in all namespaces",
    );
    warns(&rule("list", "\"*\"", "\"*\""), at, "lists of `*`");
    silent(&rule("get", "\"\"", "pods"));
    silent(&rule("list", "\"\"", "nodes, namespaces"));
    // Whether a custom resource has namespaces is not known.
    silent(&rule("list", "example.com", "widgets"));
}

#[test]
fn words_that_kubernetes_does_not_have_are_named_with_what_may_have_been_meant() {
    let role = |rule: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: a}}, \
             rules: [{{{rule}}}]}}"
        )
    };
    silent(&role(
        "apiGroups: ['', apps, example.com], resources: [pods, deployments, widgets], verbs: [get]",
    ));
    warns(
        &role("apiGroups: [''], resources: [pod], verbs: [get]"),
        "rules[0].resources[0]",
        "did you mean `pods`?",
    );
    warns(
        &role("apiGroups: [''], resources: [deployments], verbs: [get]"),
        "rules[0].resources[0]",
        "but in `\"apps\"`",
    );
    warns(
        &role("apiGroups: [''], resources: [pods], verbs: [gett]"),
        "rules[0].verbs[0]",
        "did you mean `get`?",
    );
    warns(
        &role("nonResourceURLs: [/metrics], verbs: [list]"),
        "rules[0].verbs[0]",
        "HTTP methods",
    );
    warns(
        &allow("verbs: [get], apiGroups: [core], resources: [pods]"),
        "spec.resourceRules[0].apiGroups[0]",
        "the core group is `\"\"`",
    );
}

#[test]
fn rules_that_others_cover_are_named() {
    let role = |rules: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: a}}, \
             rules: [{rules}]}}"
        )
    };
    let pods = "{apiGroups: [''], resources: [pods], verbs: [get]}";
    let all = "{apiGroups: [''], resources: ['*'], verbs: [get, list]}";
    let named = "{apiGroups: [''], resources: [pods], verbs: [get], resourceNames: [a]}";
    warns(
        &role(&format!("{pods}, {all}")),
        "rules[0]",
        "`rules[1]` grants all of this",
    );
    warns(
        &role(&format!("{all}, {named}")),
        "rules[1]",
        "`rules[0]` grants all of this",
    );
    warns(
        &role(&format!("{pods}, {pods}")),
        "rules[1]",
        "`rules[0]` grants all of this",
    );
    silent(&role(&format!(
        "{named}, {{apiGroups: [''], resources: [pods], verbs: [list]}}"
    )));

    let deny = policy(
        "Deny",
        "{kind: Group, name: interns}",
        "resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]",
    )
    .replace("name: a}", "name: all}");
    let allow = policy(
        "Allow",
        "{kind: Group, name: interns}",
        "resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]",
    );
    warns(
        &format!("{deny}\n---\n{allow}"),
        "metadata.name",
        "the Deny `all` refuses everything",
    );
    silent(&format!(
        "{deny}\n---\n{}",
        allow.replace("name: interns", "name: others")
    ));
    silent(&format!(
        "{}\n---\n{allow}",
        deny.replace("spec: {", "spec: {mode: Shadow, ")
    ));
    let of_some = deny.replace(
        "resources: ['*']",
        "resources: ['*'], namespaceSelector: {matchLabels: {tier: prod}}",
    );
    let labelled = "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: prod}}}";
    let all = warnings(&format!("{labelled}\n---\n{of_some}\n---\n{allow}"));
    assert!(
        !all.iter().any(|one| one.contains("refuses everything")),
        "{all:?}"
    );
}
