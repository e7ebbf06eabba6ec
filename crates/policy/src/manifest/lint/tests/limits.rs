//! What a Limit forbids that its users cannot do without.

use super::*;

const PODS: &str = "{verbs: [get], apiGroups: [\"\"], resources: [pods]}";
const REVIEWS: &str = "{verbs: [create], apiGroups: [authorization.k8s.io, authentication.k8s.io], resources: \
     [selfsubjectaccessreviews, selfsubjectrulesreviews, selfsubjectreviews]}";
const DISCOVERY: &str = "{verbs: [get], paths: [\"/api\", \"/api/*\", \"/apis\", \"/apis/*\", \"/openapi\", \
     \"/openapi/*\", \"/version\", \"/version/\"]}";

fn limit(rules: &str) -> String {
    policy("Limit", "{kind: User, name: bot}", rules)
}

#[test]
fn the_self_reviews_with_the_lines_to_add() {
    let path = "spec.resourceRules";
    warns(
        &limit(&format!("resourceRules: [{PODS}]")),
        path,
        &format!(
            "query their own permissions (`kubectl auth can-i`, `kubectl auth whoami`): add `{REVIEWS}`"
        ),
    );
    let mine = "{verbs: [create], apiGroups: [authorization.k8s.io], resources: [\"*\"]}";
    let whoami = "{verbs: [create], apiGroups: [authentication.k8s.io], resources: [selfsubjectreviews]}";
    warns(
        &limit(&format!("resourceRules: [{PODS}, {mine}]")),
        path,
        &format!("add `{whoami}`"),
    );
    silent(&limit(&format!("resourceRules: [{PODS}, {REVIEWS}]")));
    // What it has no rules for it does not limit.
    silent(&limit(&format!("nonResourceRules: [{DISCOVERY}]")));
    silent(&policy(
        "Allow",
        "{kind: User, name: bot}",
        &format!("resourceRules: [{PODS}]"),
    ));
}

#[test]
fn impersonation_by_which_users_leave_it() {
    let words = "this lets users impersonate others, to whom the Limit does not apply";
    let everything = limit(&format!("resourceRules: {EVERYTHING}"));
    warns(&everything, "spec.resourceRules[0]", words);
    let of = |rule: &str| limit(&format!("resourceRules: [{REVIEWS}, {{{rule}}}]"));
    let constrained =
        "verbs: [\"impersonate:user-info\"], apiGroups: [authentication.k8s.io], resources: [users]";
    warns(&of(constrained), "spec.resourceRules[1]", words);
    // One user alone, and what is in a namespace, may be meant.
    silent(&of(
        "verbs: [impersonate], apiGroups: [\"\"], resources: [users], names: [ann]",
    ));
    silent(&of(
        "verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [team-a]",
    ));
}

#[test]
fn discovery_with_the_lines_to_add() {
    let path = "spec.nonResourceRules";
    let only = |paths: &str| limit(&format!("nonResourceRules: [{{verbs: [get], paths: [{paths}]}}]"));
    warns(
        &only("/healthz"),
        path,
        &format!("forbids discovery, without which kubectl and most clients do not work: add `{DISCOVERY}`"),
    );
    warns(
        &only("/api, /apis, \"/api/*\", \"/apis/*\", \"/openapi/*\", \"/version/\""),
        path,
        "add `{verbs: [get], paths: [\"/openapi\", \"/version\"]}`",
    );
    silent(&only("\"*\""));
    warns(
        &limit("nonResourceRules: [{verbs: [head], paths: [\"*\"]}]"),
        path,
        "forbids discovery",
    );
}

#[test]
fn limits_on_everybody_and_on_nobody() {
    let everybody = policy(
        "Limit",
        "{kind: Group, name: 'system:authenticated'}",
        &format!("resourceRules: [{PODS}, {REVIEWS}]"),
    );
    warns(
        &everybody,
        "spec.subjects[0]",
        "this refuses everybody (`system:authenticated`), you included, reading secrets",
    );
    let nobody = policy(
        "Limit",
        "{kind: User, name: 'system:apiserver'}",
        &format!("resourceRules: [{PODS}, {REVIEWS}]"),
    );
    warns(&nobody, "spec.subjects", "so this Limit has no effect");
    let skipped = policy(
        "Limit",
        "{kind: Group, name: 'system:skipped'}",
        &format!("resourceRules: [{PODS}, {REVIEWS}]"),
    );
    warns(&skipped, "spec.subjects[0]", "so this Limit does not apply to it");
}
