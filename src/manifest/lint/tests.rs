//! Each warning, and what is so near to it that it must not warn.

use crate::engine::Time;
use crate::engine::authorization::authorizer::Authorizer;
use crate::engine::authorization::condition::Condition;
use crate::engine::authorization::{FailurePolicy, NeverDeny};
use crate::manifest::{Options, Source, load};

pub(super) fn source(text: &str, cluster: Option<&str>) -> Source {
    Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: cluster.map(Into::into),
    }
}

pub(super) fn warnings_of(sources: &[Source]) -> Vec<String> {
    let (manifests, faults) = load(
        sources,
        &Options {
            never_deny: NeverDeny::default(),
            now: Time::parse("2026-11-22T12:00:00Z"),
            api_server_webhooks: webhooks(),
            ..Options::default()
        },
    );
    assert!(manifests.is_some(), "{faults}");
    faults
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.message))
        .collect()
}

/// The API server's own webhook, which is not asked about `system:skipped`.
fn webhooks() -> Vec<Authorizer> {
    let expression = "!('system:skipped' in request.groups)";
    vec![Authorizer {
        name: "portcullis".into(),
        match_conditions: vec![Condition::compile("not-skipped", expression).unwrap()],
        failure_policy: FailurePolicy::Deny,
    }]
}

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

fn warnings(text: &str) -> Vec<String> {
    warnings_of(&[source(text, None)])
}

/// The only warning about `text` is at `path` and says `words`.
pub(super) fn warns(text: &str, path: &str, words: &str) {
    let all = warnings(text);
    assert!(
        all.len() == 1 && all[0].starts_with(&format!("{path}: ")) && all[0].contains(words),
        "{all:#?}"
    );
}

pub(super) fn silent(text: &str) {
    assert_eq!(warnings(text), Vec::<String>::new());
}

fn policy(effect: &str, subjects: &str, rules: &str) -> String {
    format!(
        "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, \
         spec: {{effect: {effect}, subjects: [{subjects}], {rules}}}}}"
    )
}

fn allow(rule: &str) -> String {
    policy(
        "Allow",
        "{kind: User, name: jane}",
        &format!("resourceRules: [{{{rule}}}]"),
    )
}

fn deny_paths(paths: &str) -> String {
    policy(
        "Deny",
        "{kind: User, name: jane}",
        &format!("nonResourceRules: [{{verbs: [get], paths: [{paths}]}}]"),
    )
}

#[test]
fn names_on_create() {
    let rule = "apiGroups: [\"\"], names: [a]";
    warns(
        &allow(&format!("verbs: [get, create], resources: [pods], {rule}")),
        "spec.resourceRules[0].names",
        "a create comes without a name",
    );
    warns(
        &allow(&format!("verbs: [\"*\"], resources: [pods], {rule}")),
        "spec.resourceRules[0].names",
        "a create comes without a name",
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
        "names have no patterns",
    );
    warns(
        &deny_paths("/a/*/b"),
        "spec.nonResourceRules[0].paths[0]",
        "only a `*` at the end",
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
        "but no request without one",
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
        "holds nobody up",
    );
    silent(&policy(
        "Deny",
        &format!("{protected}, {{kind: User, name: jane}}"),
        rules,
    ));
    silent(&policy("Allow", protected, rules));
}

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

const CLUSTER_ROLE: &str =
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: ";
const EVERYTHING: &str = "[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]";

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
            "subjects[1]: the ClusterRole `r` grants everything to the Group `system:authenticated`: name those \
          who need it"
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
    // RBAC has no patterns: nobody is called `*`.
    silent(&bound(escalate, "team-a", "{kind: Group, name: '*'}"));
    let rule = "verbs: [bind], apiGroups: ['*'], resources: [roles]";
    let everybody = "{kind: Group, name: '*'}";
    warns(
        &policy("Allow", everybody, &format!("resourceRules: [{{{rule}}}]")),
        "spec.resourceRules[0]",
        "allows `bind`, by which rights grow, to the Group `*`",
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
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: r, namespace: {namespace}}}}}"
        )
    };
    warns(binding, "roleRef.name", "no manifest has the Role `r`");
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

#[test]
fn a_rule_whose_resource_no_request_has() {
    let rules = "[{verbs: [get], apiGroups: [''], resources: [pods, 'pods/*']}]";
    warns(
        &format!("{CLUSTER_ROLE}{rules}}}"),
        "rules[0].resources[1]",
        "`pods/NAME`",
    );
}

#[test]
fn a_parameter_that_no_policy_reads() {
    let parameter = "{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}}";
    let reader = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, \
                  metadata: {name: p}, spec: {paramKind: {apiVersion: example.com/v1, kind: Limit}, \
                  validations: [{expression: 'true'}], matchConstraints: {resourceRules: [{apiGroups: [''], \
                  apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}}\n---\n\
                  {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, \
                  metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}";
    warns(
        parameter,
        "kind",
        "no policy here reads `Limit` of `example.com/v1`",
    );
    silent(&format!("{parameter}\n---\n{reader}"));
}

#[test]
fn a_configuration_for_a_kind_without_schema() {
    let policy = |resource: &str, mutation: &str| {
        format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {{name: a}}, spec: \
             {{reinvocationPolicy: Never, matchConstraints: {{resourceRules: [{{operations: [UPDATE], apiGroups: ['', apps], \
             apiVersions: [v1], resources: [deployments, {resource}]}}]}}, mutations: [{{{mutation}}}]}}}}\n---\n{{apiVersion: \
             admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {{name: b}}, spec: \
             {{policyName: a}}}}"
        )
    };
    let apply = "patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}";
    warns(
        &policy("deployments/scale", apply),
        "spec.matchConstraints.resourceRules[0].resources[1]",
        "of kind `Scale`",
    );
    silent(&policy("deployments/status", apply));
    silent(&policy("pods/binding", apply));
    silent(&policy(
        "deployments/scale",
        "patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/spec\"}]'}",
    ));
}

#[test]
fn policies_outside_their_time() {
    let policy = |times: &str| {
        allow("verbs: [get], apiGroups: [\"\"], resources: [pods]")
            .replace("spec: {", &format!("spec: {{{times}, "))
    };
    warns(
        &policy("notAfter: 2026-11-22T12:00:00Z"),
        "spec.notAfter",
        "ended at 2026-11-22T12:00:00Z and holds no more",
    );
    warns(
        &policy("notBefore: 2026-11-22T12:00:01Z, notAfter: 2026-11-23T12:00:00Z"),
        "spec.notBefore",
        "does not hold before 2026-11-22T12:00:01Z",
    );
    silent(&policy(
        "notBefore: 2026-11-22T12:00:00Z, notAfter: 2026-11-22T12:00:01Z",
    ));
}

#[test]
fn words_that_kubernetes_does_not_have_are_named_with_what_may_have_been_meant() {
    let role = |rule: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: a}}, rules: [{{{rule}}}]}}"
        )
    };
    silent(&role(
        "apiGroups: ['', apps, example.com], resources: [pods, deployments, widgets], verbs: [get]",
    ));
    warns(
        &role("apiGroups: [''], resources: [pod], verbs: [get]"),
        "rules[0].resources[0]",
        "`pods` may have been meant",
    );
    warns(
        &role("apiGroups: [''], resources: [deployments], verbs: [get]"),
        "rules[0].resources[0]",
        "it is one of `\"apps\"`",
    );
    warns(
        &role("apiGroups: [''], resources: [pods], verbs: [gett]"),
        "rules[0].verbs[0]",
        "`get` may have been meant",
    );
    warns(
        &role("nonResourceURLs: [/metrics], verbs: [list]"),
        "rules[0].verbs[0]",
        "HTTP methods",
    );
    warns(
        &allow("verbs: [get], apiGroups: [core], resources: [pods]"),
        "spec.resourceRules[0].apiGroups[0]",
        "the core group is written `\"\"`",
    );
}

#[test]
fn a_deny_over_everybody_that_a_cluster_cannot_live_with_names_who_is_hit() {
    let everything = "resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]";
    let secrets = "resourceRules: [{verbs: [get], apiGroups: [''], resources: [secrets]}]";
    let pods = "resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]";
    warns(
        &policy("Deny", "{kind: Group, name: 'system:authenticated'}", everything),
        "spec.subjects[0]",
        "`system:serviceaccount:kube-system:NAME`",
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
fn bindings_without_policies_and_policies_without_bindings_are_named() {
    let bound = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: 'object.spec.replicas < 5'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: replicas, validationActions: [Deny]}
";
    silent(bound);
    let (policy, binding) = bound.split_once("---").unwrap();
    warns(
        policy,
        "metadata.name",
        "no ValidatingAdmissionPolicyBinding here binds this policy",
    );
    warns(
        binding,
        "spec.policyName",
        "no manifest has the ValidatingAdmissionPolicy `replicas`",
    );
    let misspelt = warnings(&bound.replace("policyName: replicas", "policyName: replica"));
    assert!(
        misspelt
            .iter()
            .any(|one| one.contains("`replicas` may have been meant")),
        "{misspelt:?}"
    );
}

#[test]
fn rules_that_others_cover_are_named() {
    let role = |rules: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: a}}, rules: [{rules}]}}"
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

#[test]
fn expressions_are_checked_against_the_built_in_types_that_rules_name() {
    let policy = |resources: &str, expression: &str| {
        format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: replicas}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: {resources}}}]}}
  variables: [{{name: labels, expression: 'object.metadata.labels'}}]
  validations: [{{expression: \"{expression}\"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: b}}
spec: {{policyName: replicas, validationActions: [Deny]}}
"
        )
    };
    let at = "spec.validations[0].expression";
    warns(
        &policy("[deployments]", "object.spec.replcas < 5"),
        at,
        "for objects of apps/v1, Kind=Deployment: 1:12: undefined field 'replcas': `replicas` may have been meant",
    );
    warns(
        &policy("[deployments]", "object.spec.replicas < '5'"),
        at,
        "no matching overload",
    );
    warns(
        &policy(
            "[deployments]",
            "object.spec.template.spec.containers.name == 'a'",
        ),
        at,
        "field selection",
    );
    for fine in [
        policy(
            "[deployments]",
            "object.spec.replicas < 5 && 'app' in variables.labels",
        ),
        policy("['*']", "object.spec.replcas < 5"),
        policy("[widgets]", "object.spec.replcas < 5").replace("apps", "example.com"),
        policy(
            "[deployments]",
            "object.spec.strategy.rollingUpdate.maxSurge == 1",
        ),
        policy(
            "[deployments]",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('r/'))",
        ),
        policy(
            "[deployments]",
            "oldObject == null || object.metadata.creationTimestamp == oldObject.metadata.creationTimestamp",
        ),
    ] {
        silent(&fine);
    }
}

#[test]
fn whoever_may_change_the_labels_that_a_policy_selects_by() {
    let policy = |term: &str| {
        format!(
            "{}\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: a}}}}\n",
            allow(&format!(
                "verbs: [get], apiGroups: [\"\"], resources: [pods], namespaceSelector: {{matchLabels: {{{term}: prod}}}}"
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
            "decides where this holds: Group `ops`; guard the labels",
        );
        silent(&(policy("kubernetes.io/metadata.name") + &role(rule)));
    }
    silent(&(policy("tier") + &role("verbs: [get, delete], apiGroups: [\"\"], resources: [namespaces]")));
    silent(&(policy("tier") + &role("verbs: [patch], apiGroups: [example.com], resources: [namespaces]")));
}

#[test]
fn exceptions_that_excuse_nothing() {
    let exception = |policy: &str, end: &str, selector: &str| {
        format!(
            "{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e}}, spec: {{policies: [{policy}], \
             match: {{{selector}resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods], \
             resourceNames: [p]}}]}}, notAfter: {end}, reason: r}}}}\n---\n\
             {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: guard}}, spec: \
             {{matchConstraints: {{resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}]}}, validations: [{{expression: \"true\"}}]}}}}\n---\n\
             {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {{name: guard}}, \
             spec: {{policyName: guard, validationActions: [Deny]}}}}\n"
        )
    };
    let later = "2027-01-01T00:00:00Z";
    silent(&exception("guard", later, ""));
    warns(
        &exception("guard", "2026-11-22T12:00:00Z", ""),
        "spec.notAfter",
        "holds no more",
    );
    warns(
        &exception("other", later, ""),
        "spec.policies[0]",
        "nothing of it is excused",
    );
    warns(
        &exception(
            "guard",
            later,
            "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}, ",
        ),
        "spec.match.namespaceSelector",
        "nothing tells of any Namespace",
    );
}
