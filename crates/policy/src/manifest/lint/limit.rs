//! What the users of a Limit cannot do without: discovery, and the reviews by which they ask about
//! themselves. And what lets them out of it: to be somebody else.

use super::warnings::Lint;
use crate::authorization::matching::{ClusterScoped, Narrowness, compare_path_rule, compare_resource_rule};
use crate::authorization::{AuthorizationPolicy, Effect};
use crate::engine::{ResourceAttributes, SelectorMatch, Selectors};
use crate::field::FieldPath;

/// What kubectl and client libraries read before anything else, as `system:discovery` grants it.
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

/// Verb, API group, resource and name of a request in no namespace.
type Asked = (&'static str, &'static str, &'static str, &'static str);

/// What `system:basic-user` grants to everybody: `kubectl auth can-i` and `kubectl auth whoami`.
const SELF_REVIEWS: [Asked; 3] = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""),
    ("create", "authorization.k8s.io", "selfsubjectrulesreviews", ""),
    ("create", "authentication.k8s.io", "selfsubjectreviews", ""),
];

/// By which any user may be impersonated.
const IMPERSONATION: [Asked; 2] = [
    ("impersonate", "", "users", "somebody"),
    (
        "impersonate:user-info",
        "authentication.k8s.io",
        "users",
        "somebody",
    ),
];

/// Warns of a Limit that forbids too much, with the lines that let it be, and of one that can be left.
pub(crate) fn lint(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
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
        .filter(|pattern| !holds_path(policy, pattern));
    let missing: Vec<String> = missing.map(|pattern| format!("\"{pattern}\"")).collect();
    if !missing.is_empty() {
        let message = format!(
            "this forbids discovery, without which kubectl and most clients do nothing: add \
             `{{verbs: [get], paths: [{}]}}`",
            missing.join(", ")
        );
        lint.suspicious(path, message);
    }
}

fn self_reviews(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let missing = SELF_REVIEWS
        .into_iter()
        .filter(|review| holding(policy, *review).is_none());
    let (mut groups, resources): (Vec<&str>, Vec<&str>) =
        missing.map(|(_, group, resource, _)| (group, resource)).unzip();
    groups.dedup();
    if !groups.is_empty() {
        let message = format!(
            "this forbids users to ask what they may do themselves (`kubectl auth can-i`, `kubectl auth \
             whoami`): add `{{verbs: [create], apiGroups: [{}], resources: [{}]}}`",
            groups.join(", "),
            resources.join(", ")
        );
        lint.suspicious(path, message);
    }
}

fn impersonation(policy: &AuthorizationPolicy, path: &FieldPath, lint: &mut Lint<'_>) {
    let rule = IMPERSONATION.into_iter().find_map(|asked| holding(policy, asked));
    if let Some(rule) = rule {
        let message = "this lets users impersonate others, for whom the Limit does not hold: write the verbs \
                       that are meant, or `namespaces`";
        lint.suspicious(&path.index(rule), message);
    }
}

/// Whether a path, or each that a pattern stands for, is within a rule.
fn holds_path(policy: &AuthorizationPolicy, pattern: &str) -> bool {
    let mut rules = policy.non_resource_rules.iter();
    rules.any(|rule| compare_path_rule(Effect::Limit, rule, pattern, "get").is_match())
}

/// The rule within which a request lies.
fn holding(policy: &AuthorizationPolicy, (verb, group, resource, name): Asked) -> Option<usize> {
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
