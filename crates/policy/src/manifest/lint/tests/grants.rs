//! Bindings and rules that grant more than was meant, or nothing.

use super::*;
use crate::authorization::rbac::bootstrap_policy;

#[test]
fn impersonation_of_those_never_denied() {
    let at = "spec.resourceRules[0]";
    let rule = |resource: &str, rest: &str| {
        allow(&format!(
            "verbs: [impersonate], apiGroups: [\"\"], resources: [{resource}], {rest}"
        ))
    };
    warns(
        &rule("users", ""),
        at,
        "the user `system:kube-controller-manager`",
    );
    warns(
        &rule("groups", "names: [system:nodes]"),
        at,
        "the group `system:nodes`",
    );
    warns(
        &rule("serviceaccounts", "namespaces: [kube-*]"),
        at,
        "`kube-system/namespace-controller`",
    );
    silent(&rule("users", "names: [jane]"));
    silent(&rule("serviceaccounts", "namespaces: [team-a]"));
    silent(&rule("uids", ""));
}

#[test]
fn constrained_impersonation_of_those_never_denied() {
    let at = "spec.resourceRules[0]";
    let rule = |mode: &str, resource: &str, rest: &str| {
        allow(&format!(
            "verbs: ['impersonate:{mode}'], apiGroups: [authentication.k8s.io], resources: [{resource}], {rest}"
        ))
    };
    for (mode, resource, rest, whom) in [
        (
            "user-info",
            "users",
            "",
            "the user `system:kube-controller-manager`",
        ),
        (
            "user-info",
            "users",
            "names: [system:kube-scheduler]",
            "`system:kube-scheduler`",
        ),
        ("arbitrary-node", "nodes", "", "nodes, by their group"),
        (
            "arbitrary-node",
            "nodes",
            "names: [node-1]",
            "nodes, by their group",
        ),
        (
            "associated-node",
            "nodes",
            "names: ['*']",
            "nodes, by their group",
        ),
        (
            "serviceaccount",
            "serviceaccounts",
            "namespaces: [kube-*]",
            "`kube-system/namespace-controller`",
        ),
    ] {
        warns(&rule(mode, resource, rest), at, whom);
    }
    // Nobody who is impersonated in this mode is a node, or a service account.
    silent(&rule("user-info", "groups", "names: [system:nodes]"));
    silent(&rule("user-info", "users", "names: [jane]"));
    silent(&rule("serviceaccount", "serviceaccounts", "namespaces: [team-a]"));
    silent(&rule("associated-node", "nodes", "names: [node-1]"));
    silent(
        &rule("user-info", "users", "names: [jane]")
            .replace("'impersonate:user-info'", "'impersonate-on:user-info:get'"),
    );
    silent(&rule("user-info", "userextras/scopes, uids", ""));
    warns(
        &rule("user-info", "users", "names: [jane]").replace("authentication.k8s.io", "\"\""),
        "spec.resourceRules[0].apiGroups",
        "in the group `authentication.k8s.io`",
    );
}

/// A ClusterRole `r` with `rules`, bound to `subjects`, in `namespace` if there is one.
fn bound(rules: &str, namespace: &str, subjects: &str) -> String {
    let (kind, metadata) = match namespace {
        "" => ("ClusterRoleBinding", String::new()),
        namespace => ("RoleBinding", format!(", namespace: {namespace}")),
    };
    format!(
        "{CLUSTER_ROLE}{rules}}}\n---\n{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, \
         metadata: {{name: b{metadata}}}, roleRef: {{kind: ClusterRole, name: r}}, subjects: [{subjects}]}}"
    )
}

#[test]
fn impersonation_granted_by_rbac() {
    let impersonate =
        |resources: &str| format!("[{{verbs: [impersonate], apiGroups: [''], resources: [{resources}]}}]");
    let jane = "{kind: User, name: jane}";
    warns(
        &bound(&impersonate("users"), "", jane),
        "roleRef.name",
        "`system:kube-controller-manager`",
    );
    warns(&bound(EVERYTHING, "", jane), "roleRef.name", "impersonation");
    warns(
        &bound(&impersonate("serviceaccounts"), "kube-system", jane),
        "roleRef.name",
        "namespace-controller",
    );
    let constrained = "[{verbs: ['impersonate:serviceaccount'], apiGroups: [authentication.k8s.io], resources: \
                       [serviceaccounts]}]";
    warns(
        &bound(constrained, "kube-system", jane),
        "roleRef.name",
        "the impersonation of the service account `kube-system/namespace-controller`",
    );
    silent(&bound(constrained, "team-a", jane));
    silent(&bound(&impersonate("serviceaccounts"), "team-a", jane));
    silent(&bound(&impersonate("users"), "kube-system", jane));
    // These may do everything before anybody is asked.
    silent(&bound(EVERYTHING, "", "{kind: Group, name: system:masters}"));
}

#[test]
fn impersonation_granted_by_an_aggregated_role() {
    let text = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit}, \
                aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: edit}}]}}\n---\n\
                {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, \
                metadata: {name: part, labels: {to: edit}}, \
                rules: [{verbs: [impersonate], apiGroups: [''], resources: [users]}]}\n---\n\
                {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, \
                roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: jane}]}";
    warns(
        text,
        "roleRef.name",
        "the ClusterRole `edit` grants the impersonation",
    );
}

#[test]
fn too_much_for_everybody() {
    let everything = |subject: &str| warnings(&bound(EVERYTHING, "team-a", subject));
    let found = everything("{kind: User, name: jane}, {kind: Group, name: system:authenticated}");
    assert_eq!(
        found,
        [
            "subjects[1]: the ClusterRole `r` grants everything to the Group `system:authenticated`: \
             grant it only to those who need it"
        ]
    );
    let escalate = "[{verbs: [get, escalate], apiGroups: [rbac.authorization.k8s.io], resources: [roles]}]";
    warns(
        &bound(escalate, "team-a", "{kind: Group, name: system:serviceaccounts}"),
        "subjects[0]",
        "`escalate`",
    );
    silent(&bound(
        escalate,
        "team-a",
        "{kind: Group, name: system:serviceaccounts:team-a}",
    ));
    let impersonate = "[{verbs: ['impersonate:user-info'], apiGroups: [authentication.k8s.io], resources: [users], \
                       resourceNames: [jane]}]";
    warns(
        &bound(impersonate, "", "{kind: Group, name: system:authenticated}"),
        "subjects[0]",
        "`impersonate:user-info`, which allows privilege escalation",
    );
    // RBAC has no patterns: nobody is called `*`.
    silent(&bound(escalate, "team-a", "{kind: Group, name: '*'}"));
    let rule = "verbs: [bind], apiGroups: ['*'], resources: [roles]";
    let everybody = "{kind: Group, name: '*'}";
    warns(
        &policy("Allow", everybody, &format!("resourceRules: [{{{rule}}}]")),
        "spec.resourceRules[0]",
        "allows `bind`, which allows privilege escalation, to the Group `*`",
    );
    let condition = "conditions: [{name: a, expression: \"request.user == 'jane'\"}]";
    silent(&policy(
        "Allow",
        everybody,
        &format!("{condition}, resourceRules: [{{{rule}}}]"),
    ));
}

#[test]
fn a_binding_to_a_role_that_is_not_there() {
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: a}, \
                   roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: jane}]}";
    let role = |namespace: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: r, namespace: \
             {namespace}}}}}"
        )
    };
    warns(binding, "roleRef.name", "there is no manifest of the Role `r`");
    warns(
        &format!("{binding}\n---\n{}", role("b")),
        "roleRef.name",
        "grants nothing",
    );
    silent(&format!("{binding}\n---\n{}", role("a")));
    let (east, west) = (Some("east"), Some("west"));
    let of = |binding_cluster, role_cluster| {
        warnings_of(&[source(binding, binding_cluster), source(&role("a"), role_cluster)]).len()
    };
    assert_eq!(
        [of(east, None), of(east, east), of(None, east), of(east, west)],
        [0, 0, 0, 1]
    );
}

/// Once, however many bindings there are.
#[test]
fn bindings_of_roles_that_kubernetes_makes_by_itself() {
    let binding = |name: &str, role: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: {name}, namespace: a}}, \
             roleRef: {{kind: ClusterRole, name: {role}}}, subjects: [{{kind: User, name: jane}}]}}"
        )
    };
    warns(
        &binding("b", "view"),
        "roleRef.name",
        "this binding names a ClusterRole that Kubernetes creates by default",
    );
    let several = ["view", "edit", "view"].iter().enumerate();
    let several: Vec<String> = several
        .map(|(number, role)| binding(&format!("b{number}"), role))
        .collect();
    let several = several.join("\n---\n");
    warns(
        &several,
        "roleRef.name",
        "this binding and 2 others name ClusterRoles",
    );
    warns(&several, "roleRef.name", "(`edit`, `view`)");
    warns(
        &binding("b", "viewer"),
        "roleRef.name",
        "there is no manifest of the ClusterRole `viewer`",
    );
    // Where the cluster is watched, it has them.
    let watched = Options {
        watched: ["default".to_owned()].into(),
        ..Options::default()
    };
    let (_, faults) = load(&[source(&several, None)], &watched);
    assert!(faults.is_empty(), "{faults}");
    // And where they are written out, nothing is doubted.
    let own = bootstrap_policy(Version::NEWEST);
    silent(&format!("{own}---\n{several}"));
}

#[test]
fn whoever_may_change_the_labels_that_a_policy_selects_by() {
    let policy = |term: &str| {
        format!(
            "{}\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: a}}}}\n",
            allow(&format!(
                "verbs: [get], apiGroups: [\"\"], resources: [pods], namespaceSelector: \
                 {{matchLabels: {{{term}: prod}}}}"
            ))
        )
    };
    let role = |rule: &str| {
        format!(
            "---\n{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: r}}, rules: [{{{rule}}}]}}\n---\n\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {{name: r}}, \
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}}, \
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ops}}, \
             {{apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"system:masters\"}}]}}\n"
        )
    };
    for rule in [
        "verbs: [patch], apiGroups: [\"\"], resources: [namespaces]",
        "verbs: [update], apiGroups: [\"\"], resources: [namespaces/finalize]",
        "verbs: [create], apiGroups: [\"\"], resources: [namespaces]",
    ] {
        warns(
            &(policy("tier") + &role(rule)),
            "spec.resourceRules[0].namespaceSelector",
            "decide where this applies: Group `ops`; guard the labels",
        );
        silent(&(policy("kubernetes.io/metadata.name") + &role(rule)));
    }
    silent(&(policy("tier") + &role("verbs: [get, delete], apiGroups: [\"\"], resources: [namespaces]")));
    silent(&(policy("tier") + &role("verbs: [patch], apiGroups: [example.com], resources: [namespaces]")));
}
