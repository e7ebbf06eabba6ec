//! Warnings about dangerous rights that a rule grants.

use crate::engine::authorization::matching::{ClusterScoped, Narrowness, compare_resource_rule};
use crate::engine::authorization::rbac::{WildcardSet, rule_allows};
use crate::engine::authorization::{Effect, NeverDeny, ResourceRule, Rule};
use crate::engine::{Attributes, ResourceAttributes, Selected, Selectors, Target, User};

/// Groups of which about everybody is a member.
const EVERYBODY: [&str; 4] = [
    "*",
    "system:authenticated",
    "system:unauthenticated",
    "system:serviceaccounts",
];

/// Verbs by which a user can come to have more rights than were given.
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];

/// Whether a Group or User of this name is about everybody, or nobody in particular.
pub(super) fn is_everybody(kind: &str, name: &str) -> bool {
    match kind {
        "Group" => EVERYBODY.contains(&name),
        "User" => matches!(name, "*" | "system:anonymous"),
        _ => false,
    }
}

/// Why it is dangerous to give such a rule to everybody.
pub(super) fn danger(
    verbs: &WildcardSet,
    api_groups: &WildcardSet,
    has_every_resource: bool,
) -> Option<String> {
    if verbs.is_all() && api_groups.is_all() && has_every_resource {
        return Some("everything".to_owned());
    }
    let escalating = verbs.named().find(|verb| ESCALATING.contains(verb));
    escalating.map(|verb| format!("`{verb}`, by which rights grow,"))
}

/// The impersonation of somebody whom no Deny can hold up.
pub(super) struct Impersonation {
    request: ResourceAttributes<'static>,
    /// The kind and name of whoever is impersonated.
    pub(super) whom: String,
}

/// One for each name of `never_deny` that can be impersonated.
pub(super) fn impersonations(never_deny: &NeverDeny) -> Vec<Impersonation> {
    let cluster_wide = |resource: &'static str, kind: &str, name: &String| {
        impersonation(resource, "", name.clone(), format!("{kind} `{name}`"))
    };
    let users = never_deny
        .users
        .iter()
        .map(|name| cluster_wide("users", "the user", name));
    let groups = never_deny
        .groups
        .iter()
        .map(|name| cluster_wide("groups", "the group", name));
    let accounts = never_deny.service_accounts.iter().map(|account| {
        let whom = format!("the service account `{}/{}`", account.namespace, account.name);
        impersonation("serviceaccounts", &account.namespace, account.name.clone(), whom)
    });
    users.chain(groups).chain(accounts).collect()
}

fn impersonation(resource: &'static str, namespace: &str, name: String, whom: String) -> Impersonation {
    let request = ResourceAttributes {
        verb: "impersonate".into(),
        resource: resource.into(),
        namespace: namespace.to_owned().into(),
        name: name.into(),
        ..ResourceAttributes::default()
    };
    Impersonation { request, whom }
}

impl Impersonation {
    /// The namespace that a RoleBinding must have to grant this; empty where none can.
    pub(super) fn namespace(&self) -> &str {
        &self.request.namespace
    }

    /// Whether RBAC's `rule` allows it.
    pub(super) fn is_granted_by(&self, rule: &Rule) -> bool {
        let target = Target::Resource(Box::new(self.request.clone()));
        rule_allows(
            rule,
            &Attributes {
                user: User::default(),
                target,
            },
        )
    }

    /// Whether an Allow with `rule` allows it.
    pub(super) fn is_allowed_by(&self, rule: &ResourceRule) -> bool {
        let none = Selectors::default();
        // By its labels, any namespace may be one that is selected.
        let selected = |_: &_| {
            if self.request.namespace.is_empty() {
                Selected::No
            } else {
                Selected::Yes
            }
        };
        let narrowness = Narrowness::new(&none);
        compare_resource_rule(
            Effect::Allow,
            rule,
            &self.request,
            selected,
            &narrowness,
            &ClusterScoped::default(),
        )
        .is_match()
    }
}
