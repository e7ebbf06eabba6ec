//! Denies that do not hold, or hold too much.

use super::*;

#[test]
fn a_deny_that_the_api_server_never_asks_about_names_the_condition() {
    let rules = "resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]";
    warns(
        &policy(
            "Deny",
            "{kind: User, name: jane}, {kind: Group, name: 'system:skipped'}",
            rules,
        ),
        "spec.subjects[1]",
        "the matchCondition `not-skipped`",
    );
    silent(&policy("Deny", "{kind: User, name: jane}", rules));
    silent(&policy("Allow", "{kind: Group, name: 'system:skipped'}", rules));
}

#[test]
fn a_deny_for_every_namespace_leaves_out_what_has_none() {
    let rule = |effect: &str, namespaces: &str| {
        let rule = format!("verbs: [get], apiGroups: [\"\"], resources: [nodes], namespaces: [{namespaces}]");
        policy(
            effect,
            "{kind: User, name: jane}",
            &format!("resourceRules: [{{{rule}}}]"),
        )
    };
    warns(
        &rule("Deny", "a, '*'"),
        "spec.resourceRules[0].namespaces[1]",
        "but not requests without one",
    );
    silent(&rule("Deny", "'*', ''"));
    silent(&rule("Deny", "'team-*'"));
    silent(&rule("Allow", "'*'"));
}

#[test]
fn a_folder_without_itself() {
    warns(
        &deny_paths("/debug/*"),
        "spec.nonResourceRules[0].paths[0]",
        "does not include `/debug` itself",
    );
    silent(&deny_paths("/debug, /debug/*"));
    silent(&deny_paths("/debug*, /debug/*"));
    silent(&deny_paths("/*"));
    silent(&policy(
        "Allow",
        "{kind: User, name: a}",
        "nonResourceRules: [{verbs: [get], paths: [/debug/*]}]",
    ));
}

#[test]
fn a_deny_that_holds_nobody_up() {
    let rules = "resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [pods]}]";
    let protected = "{kind: Group, name: system:nodes}, {kind: User, name: system:apiserver}, \
                     {kind: ServiceAccount, namespace: kube-system, name: namespace-controller}, \
                     {kind: User, name: system:serviceaccount:kube-system:generic-garbage-collector}";
    warns(
        &policy("Deny", protected, rules),
        "spec.subjects",
        "this Deny has no effect",
    );
    silent(&policy(
        "Deny",
        &format!("{protected}, {{kind: User, name: jane}}"),
        rules,
    ));
    silent(&policy("Allow", protected, rules));
}

#[test]
fn a_deny_for_everybody_that_breaks_a_cluster_names_the_affected_users() {
    let everything = "resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]";
    let secrets = "resourceRules: [{verbs: [get], apiGroups: [''], resources: [secrets]}]";
    let pods = "resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]";
    warns(
        &policy("Deny", "{kind: Group, name: 'system:authenticated'}", everything),
        "spec.subjects[0]",
        "more of `system:serviceaccount:kube-system:*`",
    );
    warns(
        &policy("Deny", "{kind: User, name: '*'}", secrets),
        "spec.subjects[0]",
        "reading secrets",
    );
    for silent_one in [
        policy("Deny", "{kind: User, name: '*'}", pods),
        policy("Deny", "{kind: Group, name: interns}", everything),
        policy("Deny", "{kind: User, name: '*'}", secrets).replace("spec: {", "spec: {mode: Shadow, "),
        policy("Deny", "{kind: User, name: '*'}", secrets).replace(
            "spec: {",
            "spec: {conditions: [{name: c, expression: \"request.user == 'joe'\"}], ",
        ),
    ] {
        silent(&silent_one);
    }
}

#[test]
fn a_deny_on_impersonation_that_misses_the_constrained_modes() {
    let deny = |rules: &str| {
        policy(
            "Deny",
            "{kind: User, name: jane}",
            &format!("resourceRules: [{rules}]"),
        )
    };
    let legacy = |resource: &str, rest: &str| {
        format!("{{verbs: [impersonate], apiGroups: [\"\"], resources: [{resource}]{rest}}}")
    };
    let at = "spec.resourceRules[0].verbs";
    warns(
        &deny(&legacy("users, groups", "")),
        at,
        "`verbs: [\"impersonate:user-info\", \"impersonate:arbitrary-node\", \"impersonate:associated-node\"]`, \
         `apiGroups: [authentication.k8s.io]` and `resources: [users, nodes, groups]`",
    );
    warns(
        &deny(&legacy("serviceaccounts", "")),
        at,
        "`resources: [serviceaccounts]`",
    );
    warns(
        &deny(&legacy("users", ", names: [kim]")),
        at,
        "`resources: [users]`",
    );
    warns(
        &deny(&legacy("users", ", names: ['system:node:a']")),
        at,
        "`resources: [nodes]`",
    );
    // Every group, and still the legacy verb alone.
    let everywhere = "{verbs: [impersonate], apiGroups: ['*'], resources: ['*']}";
    warns(&deny(everywhere), at, "impersonate:serviceaccount");

    let constrained = "{verbs: ['impersonate:user-info', 'impersonate:arbitrary-node', \
                       'impersonate:associated-node'], apiGroups: [authentication.k8s.io], resources: \
                       [users, nodes, groups]}";
    silent(&deny(&format!("{}, {constrained}", legacy("users, groups", ""))));
    silent(&deny("{verbs: ['*'], apiGroups: ['*'], resources: ['*']}").replace("jane", "kim"));
}

#[test]
fn a_deny_on_administrators_says_whom_it_refuses() {
    let rules = "resourceRules: [{verbs: [delete], apiGroups: [''], resources: [secrets]}]";
    let at = "spec.subjects[0]";
    let masters = policy("Deny", "{kind: Group, name: 'system:masters'}", rules);
    warns(&masters, at, "never applies to it");
    let kubeadm = policy("Deny", "{kind: Group, name: 'kubeadm:cluster-admins'}", rules);
    warns(&kubeadm, at, "kubeadm makes this group administrators");
    silent(&kubeadm.replace("Deny", "Allow"));
    silent(&kubeadm.replace("spec: {", "spec: {mode: Shadow, "));
    silent(&kubeadm.replace(
        "spec: {",
        "spec: {excludeSubjects: [{kind: Group, name: 'kubeadm:cluster-admins'}], ",
    ));

    let binding = |kind: &str, role: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {role}}}\n\
             rules: [{{verbs: ['*'], apiGroups: ['*'], resources: ['*']}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n\
             metadata: {{name: admins, namespace: {namespace}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n\
             subjects: [{{kind: Group, name: platform, apiGroup: rbac.authorization.k8s.io}}]\n---\n",
            namespace = if kind == "RoleBinding" { "a" } else { "''" },
        )
    };
    let deny = policy("Deny", "{kind: Group, name: platform}", rules);
    let said = "bound to the ClusterRole `cluster-admin`";
    let warnings = |text: &str| load(&[source(text, None)], &Options::default()).1.to_string();
    let both = binding("ClusterRoleBinding", "cluster-admin") + &deny;
    assert!(warnings(&both).contains(said), "{}", warnings(&both));
    for other in [
        binding("RoleBinding", "cluster-admin"),
        binding("ClusterRoleBinding", "edit"),
    ] {
        let found = warnings(&(other + &deny));
        assert!(!found.contains(said), "{found}");
    }
}
