//! Impersonation, by the legacy verb and by the constrained modes that kube-apiserver supports
//! since 1.36 (KEP-5284).
//!
//! Impersonation is allowed if one mode allows all of its checks. The legacy mode checks
//! `impersonate` for users, groups and service accounts in the core group. Each other mode checks
//! `impersonate:MODE` in `authentication.k8s.io`, and `impersonate-on:MODE:VERB` for the request
//! itself (`apiserver/pkg/endpoints/filters/impersonation/mode.go`).

use super::super::report::Lint;
use super::known::CONSTRAINED;
use crate::authorization::matching::{ClusterScoped, Narrowness, RequestedResource, compare_resource_rule};
use crate::authorization::rbac::rule_allows;
use crate::authorization::{AuthorizationPolicy, Effect, NeverDeny, ResourceRule, Rule};
use crate::field::FieldPath;
use crate::model::{Attributes, ResourceAttributes, SelectorMatch, Selectors, Target, User};

/// The legacy verb.
const IMPERSONATE: &str = "impersonate";
/// The group of the checks of constrained modes.
pub(crate) const GROUP: &str = "authentication.k8s.io";

const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A resource that the legacy mode checks, and the check of a constrained mode in its place.
struct ModePair {
    group: &'static str,
    resource: &'static str,
    mode: &'static str,
    constrained: &'static str,
}

const COUNTERPARTS: [ModePair; 6] = [
    counterpart("", "users", "user-info", "users"),
    counterpart("", "users", "arbitrary-node", "nodes"),
    counterpart("", "users", "associated-node", "nodes"),
    counterpart("", "groups", "user-info", "groups"),
    counterpart("", "serviceaccounts", "serviceaccount", "serviceaccounts"),
    counterpart(GROUP, "uids", "user-info", "uids"),
];

const fn counterpart(
    group: &'static str,
    resource: &'static str,
    mode: &'static str,
    constrained: &'static str,
) -> ModePair {
    ModePair {
        group,
        resource,
        mode,
        constrained,
    }
}

// === who may be impersonated ===

/// A check of one mode, for the impersonation of a user whom no Deny applies to.
pub(crate) struct Impersonation {
    request: ResourceAttributes<'static>,
    /// Whether every name is such a user.
    is_of_any_name: bool,
    /// The kind and name of the impersonated user.
    pub(crate) whom: String,
}

/// The checks for impersonating the users, groups and service accounts of `never_deny`.
pub(crate) fn impersonations(never_deny: &NeverDeny) -> Vec<Impersonation> {
    let users = never_deny.users.iter().flat_map(|name| of_user(name));
    let groups = never_deny.groups.iter().flat_map(|name| of_group(name));
    let accounts = never_deny.service_accounts.iter().flat_map(|account| {
        let whom = format!("the service account `{}/{}`", account.namespace, account.name);
        of_account(&account.namespace, &account.name, &whom)
    });
    users.chain(groups).chain(accounts).collect()
}

fn of_user(name: &str) -> Vec<Impersonation> {
    let whom = format!("the user `{name}`");
    let account = name.strip_prefix(SERVICE_ACCOUNT);
    if let Some((namespace, name)) = account.and_then(|account| account.split_once(':')) {
        return of_account(namespace, name, &whom);
    }
    let legacy = Impersonation::of(IMPERSONATE, "", "users", name, &whom);
    let constrained = match name.strip_prefix(NODE) {
        Some(node) => Impersonation::of("impersonate:arbitrary-node", GROUP, "nodes", node, &whom),
        None => Impersonation::of("impersonate:user-info", GROUP, "users", name, &whom),
    };
    vec![legacy, constrained]
}

fn of_group(name: &str) -> Vec<Impersonation> {
    let whom = format!("the group `{name}`");
    let legacy = Impersonation::of(IMPERSONATE, "", "groups", name, &whom);
    if name == NODES {
        // Only users impersonated as nodes can be members of this group.
        let whom = format!("nodes, by their group `{NODES}`");
        let any = Impersonation {
            is_of_any_name: true,
            ..Impersonation::of("impersonate:arbitrary-node", GROUP, "nodes", "", &whom)
        };
        let own = Impersonation::of("impersonate:associated-node", GROUP, "nodes", "*", &whom);
        return vec![legacy, any, own];
    }
    // For four or more groups, the check is for the name `*`.
    let constrained =
        [name, "*"].map(|name| Impersonation::of("impersonate:user-info", GROUP, "groups", name, &whom));
    [legacy].into_iter().chain(constrained).collect()
}

fn of_account(namespace: &str, name: &str, whom: &str) -> Vec<Impersonation> {
    let questions = [(IMPERSONATE, ""), ("impersonate:serviceaccount", GROUP)];
    let asked = questions.map(|(verb, group)| {
        let mut asked = Impersonation::of(verb, group, "serviceaccounts", name, whom);
        asked.request.namespace = namespace.to_owned().into();
        asked
    });
    asked.into()
}

impl Impersonation {
    fn of(verb: &'static str, group: &'static str, resource: &'static str, name: &str, whom: &str) -> Self {
        Self {
            request: ResourceAttributes {
                verb: verb.into(),
                group: group.into(),
                resource: resource.into(),
                name: name.to_owned().into(),
                ..ResourceAttributes::default()
            },
            is_of_any_name: false,
            whom: whom.to_owned(),
        }
    }

    /// The namespace of a RoleBinding that can grant this; empty if only a ClusterRoleBinding can.
    pub(crate) fn namespace(&self) -> &str {
        &self.request.namespace
    }

    /// Whether the RBAC `rule` allows it.
    pub(crate) fn is_granted_by(&self, rule: &Rule) -> bool {
        let target = Target::Resource(Box::new(self.check_for(&rule.resource_names)));
        let user = User::default();
        rule_allows(rule, &Attributes { user, target })
    }

    /// Whether an Allow with `rule` allows it.
    pub(crate) fn is_allowed_by(&self, rule: &ResourceRule) -> bool {
        // The labels of the namespace are not known, so any selector may select it.
        let selected = |_: &_| {
            if self.request.namespace.is_empty() {
                SelectorMatch::No
            } else {
                SelectorMatch::Yes
            }
        };
        let none = Selectors::default();
        compare_resource_rule(
            Effect::Allow,
            rule,
            &self.check_for(&rule.names),
            selected,
            &Narrowness::new(&none),
            &ClusterScoped::default(),
        )
        .is_match()
    }

    /// The check. If every name is such a user, it is for one of `names`.
    fn check_for(&self, names: &[String]) -> ResourceAttributes<'static> {
        let mut request = self.request.clone();
        if let Some(name) = names.first().filter(|_| self.is_of_any_name) {
            request.name = name.clone().into();
        }
        request
    }
}

// === what a Deny misses ===

/// Warns of a Deny for the legacy verb that does not deny the constrained modes.
pub(crate) fn lint_deny(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        if !rule.verbs.named().any(|verb| verb == IMPERSONATE) {
            continue;
        }
        let is_missed = |one: &&ModePair| {
            one.is_of(rule) && !policy.resource_rules.iter().any(|other| one.is_denied_by(other))
        };
        let missed: Vec<&ModePair> = COUNTERPARTS.iter().filter(is_missed).collect();
        if missed.is_empty() {
            continue;
        }
        let message = format!(
            "since 1.36, kube-apiserver also allows impersonation by other verbs, which this Deny does not \
            match: add a rule with `verbs: [{}]`, `apiGroups: [{GROUP}]` and `resources: [{}]`",
            listed(missed.iter().map(|one| format!("\"{CONSTRAINED}{}\"", one.mode))),
            listed(missed.iter().map(|one| one.constrained.to_owned())),
        );
        let path = FieldPath::root().field("spec").field("resourceRules");
        lint.suspicious(&path.index(index).field("verbs"), message);
    }
}

/// A hint at the checks of constrained modes, if the question is about the legacy verb.
pub(crate) fn constrained_mode_hint(verb: &str, group: &str, resource: &str) -> Option<String> {
    let is_meant = |one: &&ModePair| one.group == group && one.resource == resource;
    let others = COUNTERPARTS
        .iter()
        .filter(is_meant)
        .filter(|_| verb == IMPERSONATE);
    let others: Vec<String> = others
        .map(|one| format!("`{CONSTRAINED}{} {}.{GROUP}`", one.mode, one.constrained))
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "since 1.36, kube-apiserver also allows this impersonation to users who have {}: check that, too",
            others.join(" or ")
        )
    })
}

/// Joins the words, without repetitions.
fn listed(words: impl Iterator<Item = String>) -> String {
    let mut once: Vec<String> = Vec::new();
    for word in words {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    once.join(", ")
}

impl ModePair {
    /// Whether `rule` for the legacy verb matches this check.
    fn is_of(&self, rule: &ResourceRule) -> bool {
        let is_node = |name: &String| name.starts_with(NODE);
        let is_named = match self.constrained {
            "nodes" => rule.names.is_empty() || rule.names.iter().any(is_node),
            "users" => rule.names.is_empty() || !rule.names.iter().all(is_node),
            _ => true,
        };
        is_named && covers(rule, self.group, self.resource)
    }

    fn is_denied_by(&self, rule: &ResourceRule) -> bool {
        let verb = format!("{CONSTRAINED}{}", self.mode);
        rule.verbs.includes(&verb) && covers(rule, GROUP, self.constrained)
    }
}

fn covers(rule: &ResourceRule, group: &str, resource: &str) -> bool {
    let requested = RequestedResource {
        resource,
        subresource: "".into(),
    };
    rule.api_groups.includes(group) && rule.resources.iter().any(|pattern| pattern.includes(&requested))
}
