//! Warnings about AuthorizationPolicies. For a Limit: that it forbids what every user needs, which
//! is discovery and self reviews, and that it allows impersonation, by which users can escape it.

use super::super::report::Lint;
use super::impersonation::impersonations;
use super::known::{CONSTRAINED, danger, is_everybody};
use super::{labels, left_out, lockout};
use crate::authorization::matching::{
    ClusterScoped, NamespacePattern, Narrowness, ResourcePattern, Wildcard, compare_path_rule,
    compare_resource_rule, is_collection_verb, is_known_cluster_scoped,
};
use crate::authorization::rbac::PathPattern;
use crate::authorization::{AuthorizationPolicy, Effect, NeverDeny, ResourceRule, Subject, SubjectKind};
use crate::field::FieldPath;
use crate::manifest::source::Options;
use crate::model::{ResourceAttributes, SelectorMatch, Selectors, Time, Validity};

/// The warnings about a policy that depend only on it and on `options`, except for the time.
pub(crate) fn lint_alone(
    policy: &AuthorizationPolicy,
    cluster: Option<&str>,
    options: &Options,
    found: &mut Lint<'_>,
) {
    let reviewed = &options.reviewed;
    let is_reviewed = cluster.map_or(!reviewed.is_empty(), |cluster| reviewed.contains_key(cluster));
    lint(policy, &options.never_deny, found);
    left_out::lint_object_conditions(policy, is_reviewed, found);
    lockout::lint(policy, &options.never_deny, found);
    lockout::lint_unasked(policy, &options.api_server_webhooks, found);
    labels::lint_policy(policy, found);
    if options.enforce_authorization {
        left_out::lint_refusals(policy, found);
    }
}

pub(crate) fn lint(policy: &AuthorizationPolicy, never_deny: &NeverDeny, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        let path = spec.field("resourceRules").index(index);
        names_on_create(rule, &path, lint);
        // With these verbs, checks have the name `*`: for all groups, or for the node of the user.
        if !rule.verbs.named().any(|verb| verb.starts_with(CONSTRAINED)) {
            literal_stars(&rule.names, &path.field("names"), lint);
        }
        match policy.effect {
            Effect::Allow => lists_of_all_namespaces(rule, &path, lint),
            Effect::Deny => every_namespace_but_none(rule, &path.field("namespaces"), lint),
            Effect::Limit => {}
        }
    }
    for (index, rule) in policy.non_resource_rules.iter().enumerate() {
        let path = spec.field("nonResourceRules").index(index).field("paths");
        inner_stars(&rule.paths, &path, lint);
        if policy.effect == Effect::Deny {
            folders_without_themselves(policy, &rule.paths, &path, lint);
        }
    }
    match policy.effect {
        Effect::Allow => {
            dangerous_grant(policy, &spec, lint);
            allowed_impersonation(policy, never_deny, &spec, lint);
        }
        Effect::Deny => {
            denies_nobody(policy, never_deny, &spec.field("subjects"), lint);
            super::impersonation::lint_deny(policy, lint);
        }
        Effect::Limit => {
            denies_nobody(policy, never_deny, &spec.field("subjects"), lint);
            lint_limit(policy, lint);
        }
    }
}

/// Warns of names with `create`. Only objects themselves are created without a name; `pods/exec` is
/// created for a pod with a name.
fn names_on_create(rule: &ResourceRule, path: &FieldPath, lint: &mut Lint<'_>) {
    let creates = rule.verbs.includes("create");
    let is_object = |pattern: &ResourcePattern| !matches!(pattern, ResourcePattern::Subresource(..));
    let objects = rule.resources.iter().any(is_object);
    if creates && objects && !rule.names.is_empty() {
        let message = "a create request has no name, so this rule never matches one: write a \
                       separate rule for `create`, without `names`";
        lint.suspicious(&path.field("names"), message);
    }
}

fn literal_stars(names: &[String], path: &FieldPath, lint: &mut Lint<'_>) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| name.contains('*')) {
        let message = format!(
            "`{name}`: patterns are not supported in names, so `*` is an ordinary character: remove \
             `names` to match every name"
        );
        lint.suspicious(&path.index(index), message);
    }
}

fn inner_stars(paths: &[PathPattern], path: &FieldPath, lint: &mut Lint<'_>) {
    for (index, one) in paths
        .iter()
        .enumerate()
        .filter(|(_, one)| one.text().contains('*'))
    {
        let message =
            format!("`{one}`: `*` is a wildcard only at the end, elsewhere it is an ordinary character");
        lint.suspicious(&path.index(index), message);
    }
}

fn lists_of_all_namespaces(rule: &ResourceRule, path: &FieldPath, lint: &mut Lint<'_>) {
    // A rule that excludes namespaces does not allow requests for all namespaces.
    let lists = rule.exclude_namespaces.is_empty()
        && rule.verbs.as_slice().iter().any(|verb| is_collection_verb(verb));
    let Some(index) = rule
        .namespaces
        .iter()
        .position(|namespace| *namespace == NamespacePattern::ClusterScope)
        .filter(|_| lists)
    else {
        return;
    };
    if let Some(resource) = rule
        .resources
        .iter()
        .find(|resource| has_namespaces(rule, resource))
    {
        let message = format!(
            "`\"\"` allows lists of `{resource}` in all namespaces: write a separate rule for \
             cluster-scoped resources"
        );
        lint.suspicious(&path.field("namespaces").index(index), message);
    }
}

/// An author who writes `*` in a Deny rarely means to exclude cluster-scoped objects.
fn every_namespace_but_none(rule: &ResourceRule, path: &FieldPath, lint: &mut Lint<'_>) {
    let all = NamespacePattern::Prefix(String::new());
    let every = rule.namespaces.iter().position(|namespace| *namespace == all);
    if let Some(index) = every.filter(|_| !rule.namespaces.contains(&NamespacePattern::ClusterScope)) {
        let message = "`*` matches every namespace, but not requests without one, such as those for \
                       cluster-scoped objects: remove `namespaces` to deny these too";
        lint.suspicious(&path.index(index), message);
    }
}

/// Whether `resource` is a namespaced resource of Kubernetes, or a wildcard.
fn has_namespaces(rule: &ResourceRule, resource: &ResourcePattern) -> bool {
    let built_in = |group: &str| {
        matches!(
            group,
            "" | "apps"
                | "autoscaling"
                | "batch"
                | "coordination.k8s.io"
                | "discovery.k8s.io"
                | "events.k8s.io"
                | "networking.k8s.io"
                | "policy"
                | "rbac.authorization.k8s.io"
        )
    };
    match resource {
        ResourcePattern::Everything | ResourcePattern::Subresource(Wildcard::Any, _) => true,
        ResourcePattern::Resource(name) | ResourcePattern::Subresource(Wildcard::Named(name), _) => rule
            .api_groups
            .named()
            .any(|group| built_in(group) && !is_known_cluster_scoped(group, name)),
    }
}

fn folders_without_themselves(
    policy: &AuthorizationPolicy,
    paths: &[PathPattern],
    path: &FieldPath,
    lint: &mut Lint<'_>,
) {
    for (index, pattern) in paths.iter().enumerate() {
        let folder = pattern.prefix().and_then(|prefix| prefix.strip_suffix('/'));
        let Some(folder) = folder.filter(|folder| !folder.is_empty()) else {
            continue;
        };
        let mut all = policy.non_resource_rules.iter().flat_map(|rule| &rule.paths);
        if !all.any(|other| other.matches(folder)) {
            let message = format!("`{pattern}` does not include `{folder}` itself: add it");
            lint.suspicious(&path.index(index), message);
        }
    }
}

fn denies_nobody(
    policy: &AuthorizationPolicy,
    never_deny: &NeverDeny,
    path: &FieldPath,
    lint: &mut Lint<'_>,
) {
    if policy
        .subjects
        .iter()
        .all(|subject| is_never_denied(subject, never_deny))
    {
        let message = format!(
            "all subjects are in `authorization.neverDeny` of the configuration, so this {} has no effect: \
             remove them there, or delete the policy",
            policy.effect
        );
        lint.suspicious(path, message);
    }
}

fn is_never_denied(subject: &Subject, never_deny: &NeverDeny) -> bool {
    let Subject {
        kind,
        name,
        namespace,
    } = subject;
    let account = |user: &str| {
        never_deny
            .service_accounts
            .iter()
            .any(|account| account.user_name() == user)
    };
    match kind {
        SubjectKind::User => never_deny.users.contains(name) || account(name),
        SubjectKind::Group => never_deny.groups.contains(name),
        SubjectKind::ServiceAccount => {
            let user = format!("system:serviceaccount:{namespace}:{name}");
            never_deny.users.contains(&user) || account(&user)
        }
    }
}

fn dangerous_grant(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let everybody = policy
        .subjects
        .iter()
        .find(|subject| is_everybody(subject.kind.as_str(), &subject.name));
    let Some(everybody) = everybody.filter(|_| policy.is_unconditional()) else {
        return;
    };
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        if let Some(danger) = danger(
            &rule.verbs,
            &rule.api_groups,
            rule.resources.contains(&ResourcePattern::Everything),
        ) {
            let message = format!(
                "this allows {danger} to the {} `{}`: allow it only to those who need it",
                everybody.kind.as_str(),
                everybody.name
            );
            lint.suspicious(&path.field("resourceRules").index(index), message);
        }
    }
}

fn allowed_impersonation(
    policy: &AuthorizationPolicy,
    never_deny: &NeverDeny,
    path: &FieldPath,
    lint: &mut Lint<'_>,
) {
    let impersonations = impersonations(never_deny);
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        if let Some(granted) = impersonations.iter().find(|one| one.is_allowed_by(rule)) {
            let message = format!(
                "users who may impersonate {} can bypass every Deny: list other names in `names`, or \
                 remove this one from `authorization.neverDeny`",
                granted.whom
            );
            lint.suspicious(&path.field("resourceRules").index(index), message);
        }
    }
}

// Warnings about policies that have expired or are not valid yet.

/// Warns if `validity` does not contain `now`, unless `now` is `None`.
pub(crate) fn lint_validity(validity: &Validity, now: Option<Time>, spec: &FieldPath, lint: &mut Lint<'_>) {
    let Some(now) = now else { return };
    if let Some(end) = validity.not_after.filter(|_| validity.has_ended(now)) {
        let message = format!("expired at {end}: delete it, or set a later `notAfter`");
        lint.suspicious(&spec.field("notAfter"), message);
    } else if let Some(start) = validity.not_before.filter(|start| now < *start) {
        let message = format!("is not in force before {start}");
        lint.suspicious(&spec.field("notBefore"), message);
    }
}

/// The paths that kubectl and client libraries read first, as in `system:discovery`.
const DISCOVERY: [&str; 8] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/openapi",
    "/openapi/*",
    "/version",
    "/version/",
];

/// Verb, API group, resource and name of a request without a namespace.
type SampleRequest = (&'static str, &'static str, &'static str, &'static str);

/// The self reviews that `system:basic-user` grants to everybody, for `kubectl auth can-i` and
/// `kubectl auth whoami`.
const SELF_REVIEWS: [SampleRequest; 3] = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""),
    ("create", "authorization.k8s.io", "selfsubjectrulesreviews", ""),
    ("create", "authentication.k8s.io", "selfsubjectreviews", ""),
];

/// Checks that allow the impersonation of any user.
const IMPERSONATION: [SampleRequest; 2] = [
    ("impersonate", "", "users", "somebody"),
    (
        "impersonate:user-info",
        "authentication.k8s.io",
        "users",
        "somebody",
    ),
];

/// Warns of a Limit that forbids too much, with the missing rules, and of one that users can
/// escape.
fn lint_limit(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    if policy.limits_requests(true) {
        discovery(policy, &spec.field("nonResourceRules"), lint);
    }
    if policy.limits_requests(false) {
        let path = spec.field("resourceRules");
        self_reviews(policy, &path, lint);
        impersonation(policy, &path, lint);
    }
}

fn discovery(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let missing = DISCOVERY
        .into_iter()
        .filter(|pattern| !matches_path(policy, pattern));
    let missing: Vec<String> = missing.map(|pattern| format!("\"{pattern}\"")).collect();
    if !missing.is_empty() {
        let message = format!(
            "this forbids discovery, without which kubectl and most clients do not work: add `{{verbs: [get], \
            paths: [{}]}}`",
            missing.join(", ")
        );
        lint.suspicious(path, message);
    }
}

fn self_reviews(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let missing = SELF_REVIEWS
        .into_iter()
        .filter(|review| matching_rule(policy, *review).is_none());
    let (mut groups, resources): (Vec<&str>, Vec<&str>) =
        missing.map(|(_, group, resource, _)| (group, resource)).unzip();
    groups.dedup();
    if !groups.is_empty() {
        let message = format!(
            "this forbids users to query their own permissions (`kubectl auth can-i`, `kubectl auth whoami`): \
            add `{{verbs: [create], apiGroups: [{}], resources: [{}]}}`",
            groups.join(", "),
            resources.join(", ")
        );
        lint.suspicious(path, message);
    }
}

fn impersonation(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let rule = IMPERSONATION
        .into_iter()
        .find_map(|asked| matching_rule(policy, asked));
    if let Some(rule) = rule {
        let message = "this lets users impersonate others, to whom the Limit does not apply: name the verbs, \
            or set `namespaces`";
        lint.suspicious(&path.index(rule), message);
    }
}

/// Whether a rule matches a path, or all paths of a pattern.
fn matches_path(policy: &AuthorizationPolicy, pattern: &str) -> bool {
    let mut rules = policy.non_resource_rules.iter();
    rules.any(|rule| compare_path_rule(Effect::Limit, rule, pattern, "get").is_match())
}

/// The index of the first rule that matches a request.
fn matching_rule(
    policy: &AuthorizationPolicy,
    (verb, group, resource, name): SampleRequest,
) -> Option<usize> {
    let request = ResourceAttributes {
        verb: verb.into(),
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        name: name.into(),
        ..ResourceAttributes::default()
    };
    let none = Selectors::default();
    let (narrowness, scoped) = (Narrowness::new(&none), ClusterScoped::default());
    let mut rules = policy.resource_rules.iter();
    rules.position(|rule| {
        let selected = |_: &_| SelectorMatch::No;
        compare_resource_rule(Effect::Limit, rule, &request, selected, &narrowness, &scoped).is_match()
    })
}
