//! Denies and Limits that would lock everybody out, including control plane and administrators, and
//! those for subjects that the API server never asks about.

use std::collections::HashSet;
use std::hash::Hasher as _;

use super::super::report::Lint;
use super::known::is_everybody;
use crate::authorization::authorizer::{Authorizer, Relevance};
use crate::authorization::{
    AuthorizationPolicy, CONTROL_PLANE, Effect, MASTERS, Mode, NeverDeny, Objects, PolicySet, Subject,
    SubjectKind,
};
use crate::document::Document;
use crate::field::FieldPath;
use crate::model::{Attributes, Deadline, Decision, ResourceAttributes, Target, Time, User, Validity};

/// A request that a cluster depends on.
struct EssentialRequest {
    what: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
}

/// Requests that no Deny for everybody should match. A Deny with wildcards matches all of them.
const ESSENTIAL_REQUESTS: [EssentialRequest; 5] = [
    need("reading secrets", "get", "", "secrets", "kube-system"),
    need(
        "renewing leases",
        "update",
        "coordination.k8s.io",
        "leases",
        "kube-system",
    ),
    need(
        "renewing node leases",
        "update",
        "coordination.k8s.io",
        "leases",
        "kube-node-lease",
    ),
    need("reading nodes", "get", "", "nodes", ""),
    need("listing nodes", "list", "", "nodes", ""),
];

/// Users that depend on these requests, in addition to [`CONTROL_PLANE`].
const WORKLOADS: [&str; 2] = ["system:kube-proxy", "system:serviceaccount:NAMESPACE:NAME"];

const AUTHENTICATED: &str = "system:authenticated";

/// The prefix of the service accounts of controllers, which messages summarize because they are
/// many.
const CONTROLLERS: &str = "system:serviceaccount:kube-system:";

const fn need(
    what: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
) -> EssentialRequest {
    EssentialRequest {
        what,
        verb,
        group,
        resource,
        namespace,
    }
}

/// The annotation by which the author confirms a lock-out; its value is the hash of the spec.
const CONFIRM: &str = "portcullis.dev/confirm";

/// The hash of the `spec` of an object, which depends neither on lines, style and order of fields,
/// nor on the version of Portcullis. It need not be cryptographic: the author of the annotation is
/// the author of the spec.
pub(crate) fn spec_hash(document: &Document) -> String {
    let spec = document.root().get("spec").map(|spec| spec.to_json());
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(spec.unwrap_or_default().to_string().as_bytes());
    format!("{:016x}", hasher.finish())
}

/// Warns of a lock-out that is not confirmed.
pub(crate) fn lint(policy: &AuthorizationPolicy, never_deny: &NeverDeny, lint: &mut Lint<'_>) {
    if let Some((path, message)) = lock_out(policy, || lint.document(), never_deny) {
        lint.suspicious(&path, message);
    }
}

/// Returns path and message if `policy`, written as `document`, is a lock-out that is not
/// confirmed: an enforced Deny or Limit for everybody that denies one of [`ESSENTIAL_REQUESTS`]. Its conditions
/// are evaluated for these requests, and may exclude them.
pub(crate) fn lock_out<'d>(
    policy: &AuthorizationPolicy,
    document: impl FnOnce() -> &'d Document,
    never_deny: &NeverDeny,
) -> Option<(FieldPath, String)> {
    let everybody = policy
        .subjects
        .iter()
        .position(|subject| is_everybody(subject.kind.as_str(), &subject.name));
    let subject = everybody.filter(|_| policy.effect.refuses() && policy.mode == Mode::Enforce)?;
    let document = document();
    let hash = spec_hash(document);
    let annotations = document
        .root()
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    let confirmed = annotations.and_then(|annotations| annotations.get(CONFIRM)?.as_str());
    if confirmed == Some(&hash) {
        return None;
    }
    let at_any_time = AuthorizationPolicy {
        validity: Validity::default(),
        ..policy.clone()
    };
    let objects = Objects {
        policies: vec![at_any_time],
        ..Objects::default()
    };
    let set = PolicySet::new(objects, never_deny);
    let needs = denied(&set, "somebody");
    if needs.is_empty() {
        return None;
    }
    let whom = in_words(&denied_users(&set));
    let name = policy.subjects.get(subject).map(|subject| subject.name.as_str());
    let message = format!(
        "this refuses everybody (`{}`), you included, {}, which locks out {whom}: use narrower `subjects`, or \
        exclude them with `excludeSubjects`; if this is intended, set the annotation `{CONFIRM}: \"{hash}\"`",
        name.unwrap_or_default(),
        needs.join(", ")
    );
    Some((
        FieldPath::root().field("spec").field("subjects").index(subject),
        message,
    ))
}

/// Those of [`ESSENTIAL_REQUESTS`] that `set` denies to `user`, who has the groups that the name implies.
fn denied(set: &PolicySet, user: &str) -> Vec<&'static str> {
    let groups = groups(user);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let denies = |need: &&EssentialRequest| {
        let authorization = set.authorize(&need.asked_by(user, &groups), Time::UNIX_EPOCH);
        authorization.decision == Decision::Deny
    };
    ESSENTIAL_REQUESTS
        .iter()
        .filter(denies)
        .map(|need| need.what)
        .collect()
}

/// The users who are denied one of [`ESSENTIAL_REQUESTS`].
fn denied_users(set: &PolicySet) -> Vec<String> {
    let identities = CONTROL_PLANE.iter().chain(&WORKLOADS);
    identities
        .map(|identity| identity.replace('*', "NAME"))
        .filter(|user| !denied(set, user).is_empty())
        .collect()
}

/// The groups that a user name implies.
fn groups(user: &str) -> Vec<String> {
    if let Some((namespace, _)) = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|account| account.split_once(':'))
    {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        return vec!["system:serviceaccounts".to_owned(), of_namespace];
    }
    match user {
        "system:apiserver" => vec!["system:masters".to_owned()],
        node if node.starts_with("system:node:") => vec!["system:nodes".to_owned()],
        _ => Vec::new(),
    }
}

fn in_words(hit: &[String]) -> String {
    if hit.is_empty() {
        return "administrators outside `system:masters`".to_owned();
    }
    let (controllers, others): (Vec<&String>, Vec<&String>) =
        hit.iter().partition(|user| user.starts_with(CONTROLLERS));
    let mut words: Vec<String> = others.iter().map(|user| format!("`{user}`")).collect();
    match controllers.as_slice() {
        [] => {}
        [one] => words.push(format!("`{one}`")),
        [first, more @ ..] => words.push(format!("`{first}` and {} more of `{CONTROLLERS}*`", more.len())),
    }
    words.join(", ")
}

// === impl EssentialRequest ===

impl EssentialRequest {
    fn asked_by<'a>(&self, user: &'a str, groups: &[&'a str]) -> Attributes<'a> {
        let groups = groups.iter().copied().chain([AUTHENTICATED]);
        Attributes {
            user: User {
                name: user.into(),
                groups: groups.map(Into::into).collect(),
                ..User::default()
            },
            target: Target::Resource(Box::new(ResourceAttributes {
                verb: self.verb.into(),
                group: self.group.into(),
                version: "v1".into(),
                resource: self.resource.into(),
                namespace: self.namespace.into(),
                name: if self.verb == "list" {
                    "".into()
                } else {
                    "NAME".into()
                },
                ..ResourceAttributes::default()
            })),
        }
    }
}

// Denies for administrators.

/// The group that kubeadm binds to `cluster-admin`.
const KUBEADM_ADMINISTRATORS: &str = "kubeadm:cluster-admins";

/// The subjects that manifests bind to `cluster-admin`, each with its only cluster.
pub(crate) struct Administrators<'o>(HashSet<(Option<&'o str>, SubjectKind, &'o str, &'o str)>);

impl<'o> Administrators<'o> {
    pub(crate) fn new(bound: impl Iterator<Item = (Option<&'o str>, &'o Subject)>) -> Self {
        let key = |(cluster, who): (Option<&'o str>, &'o Subject)| {
            (cluster, who.kind, who.namespace.as_str(), who.name.as_str())
        };
        Self(bound.map(key).collect())
    }

    /// Warns of each administrator among the subjects of an enforced Deny or Limit, unless the
    /// policy does not apply to it after all.
    pub(crate) fn lint(
        &self,
        policy: &AuthorizationPolicy,
        cluster: Option<&str>,
        never_deny: &NeverDeny,
        lint: &mut Lint<'_>,
    ) {
        if !policy.effect.refuses() || policy.mode != Mode::Enforce {
            return;
        }
        for (index, subject) in policy.subjects.iter().enumerate() {
            if is_left_out(subject, policy, never_deny) {
                continue;
            }
            let Some(message) = self.message(subject, policy.effect, cluster) else {
                continue;
            };
            let path = FieldPath::root().field("spec").field("subjects").index(index);
            lint.suspicious(&path, message);
        }
    }

    fn message(&self, subject: &Subject, effect: Effect, cluster: Option<&str>) -> Option<String> {
        let is_group = |name: &str| subject.kind == SubjectKind::Group && subject.name == name;
        let has = |cluster| {
            let key = (
                cluster,
                subject.kind,
                subject.namespace.as_str(),
                subject.name.as_str(),
            );
            self.0.contains(&key)
        };
        let who = if is_group(MASTERS) {
            return Some(format!(
                "the API server allows `{MASTERS}` everything before it calls a webhook, so this {effect} \
                never applies to it: remove this subject"
            ));
        } else if is_group(KUBEADM_ADMINISTRATORS) {
            "kubeadm makes this group administrators"
        } else if has(None) || has(cluster) {
            "this subject is bound to the ClusterRole `cluster-admin`"
        } else {
            return None;
        };
        Some(format!(
            "{who}, so this {effect} refuses administrators: if this is intended, keep access for somebody \
            with `authorization.neverDeny`, otherwise exclude them with `excludeSubjects`"
        ))
    }
}

/// Whether the policy does not apply to `subject` after all.
fn is_left_out(subject: &Subject, policy: &AuthorizationPolicy, never_deny: &NeverDeny) -> bool {
    let is_never_denied = match subject.kind {
        SubjectKind::User => never_deny.users.contains(&subject.name),
        SubjectKind::Group => never_deny.groups.contains(&subject.name),
        SubjectKind::ServiceAccount => false,
    };
    is_never_denied || policy.exclude_subjects.contains(subject)
}

// Denies for subjects that the API server never asks about.

/// Verb, group, resource and namespace of sample requests: a subject that is skipped for each of
/// them is assumed to be skipped for all.
const REQUESTS: [(&str, &str, &str, &str); 4] = [
    ("get", "", "pods", "default"),
    ("create", "apps", "deployments", "kube-system"),
    ("list", "", "nodes", ""),
    ("update", "example.com", "widgets", "team-a"),
];

/// Warns of subjects that the matchConditions of all of `asked`, the API server's own authorization
/// webhooks, exclude. Does nothing if these are not known.
pub(crate) fn lint_unasked(policy: &AuthorizationPolicy, asked: &[Authorizer], lint: &mut Lint<'_>) {
    if !policy.effect.refuses() || asked.is_empty() {
        return;
    }
    for (index, subject) in policy.subjects.iter().enumerate() {
        let Some(condition) = excluding_condition(subject, asked) else {
            continue;
        };
        let message = format!(
            "the API server never calls the gateway for this subject, so this {} does not apply to it: the \
            matchCondition `{condition}` of its AuthorizationConfiguration excludes it",
            policy.effect
        );
        let path = FieldPath::root().field("spec").field("subjects").index(index);
        lint.suspicious(&path, message);
    }
}

/// Whether the matchConditions of all of `asked`, the API server's own authorization webhooks,
/// exclude `subject`. False for a name that ends in `*`, which is a prefix in some kinds.
#[must_use]
pub fn is_never_asked_about(subject: &Subject, asked: &[Authorizer]) -> bool {
    !asked.is_empty() && excluding_condition(subject, asked).is_some()
}

/// The condition that is false for every sample request of `subject`.
fn excluding_condition(subject: &Subject, asked: &[Authorizer]) -> Option<String> {
    let user = user(subject)?;
    let mut by = None;
    for (verb, group, resource, namespace) in REQUESTS {
        let attributes = Attributes {
            user: user.clone(),
            target: Target::Resource(Box::new(ResourceAttributes {
                verb: verb.into(),
                group: group.into(),
                version: "v1".into(),
                resource: resource.into(),
                namespace: namespace.into(),
                ..ResourceAttributes::default()
            })),
        };
        for authorizer in asked {
            match authorizer.relevance(&attributes, Deadline::NEVER) {
                Relevance::Skipped(condition) => by = Some(condition),
                Relevance::Called | Relevance::Failed(_) => return None,
            }
        }
    }
    by
}

/// A user who is this subject; `None` if its name is a prefix.
fn user(subject: &Subject) -> Option<User<'static>> {
    let mut groups = vec![AUTHENTICATED.to_owned()];
    let name = match subject.kind {
        _ if subject.name.ends_with('*') => return None,
        SubjectKind::User => {
            if subject.name.starts_with("system:node:") {
                groups.push("system:nodes".to_owned());
            }
            subject.name.clone()
        }
        SubjectKind::Group => {
            groups.push(subject.name.clone());
            match subject.name.as_str() {
                "system:nodes" => "system:node:NAME".to_owned(),
                _ => "somebody".to_owned(),
            }
        }
        SubjectKind::ServiceAccount => {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{}", subject.namespace));
            format!("system:serviceaccount:{}:{}", subject.namespace, subject.name)
        }
    };
    Some(User {
        name: name.into(),
        groups: groups.into_iter().map(Into::into).collect(),
        ..User::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::{FailurePolicy, ResourceRule, Subject, SubjectKind};

    #[test]
    fn a_lock_out_names_every_user_that_a_control_plane_needs() {
        let everything = || vec!["*".to_owned()];
        let policy = AuthorizationPolicy {
            name: "everything".to_owned(),
            effect: Effect::Deny,
            subjects: vec![Subject {
                kind: SubjectKind::Group,
                name: AUTHENTICATED.to_owned(),
                namespace: String::new(),
            }],
            resource_rules: vec![ResourceRule {
                verbs: everything().into(),
                api_groups: everything().into(),
                resources: vec!["*".into()],
                ..ResourceRule::default()
            }],
            mode: Mode::Enforce,
            exclude_subjects: Vec::new(),
            non_resource_rules: Vec::new(),
            conditions: Vec::new(),
            object_conditions: Vec::new(),
            liftable: false,
            failure_policy: FailurePolicy::Deny,
            validity: Validity::default(),
            reason: String::new(),
        };
        let objects = Objects {
            policies: vec![policy],
            ..Objects::default()
        };
        let set = |never_deny: &NeverDeny| PolicySet::new(objects.clone(), never_deny);
        let hit_at_all = denied_users(&set(&NeverDeny::nobody()));
        for identity in CONTROL_PLANE.iter().chain(&WORKLOADS) {
            let name = identity.replace('*', "NAME");
            assert!(hit_at_all.contains(&name), "{name}");
        }
        let words = in_words(&denied_users(&set(&NeverDeny::default())));
        assert_eq!(
            words,
            "`system:kube-proxy`, `system:serviceaccount:NAMESPACE:NAME`, \
             `system:serviceaccount:kube-system:clusterrole-aggregation-controller` and 8 more of \
             `system:serviceaccount:kube-system:*`"
        );
    }
}
