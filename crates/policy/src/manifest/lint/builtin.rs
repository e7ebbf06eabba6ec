//! What every cluster has: the roles that an API server makes by itself, which no warning doubts and
//! bindings may name although no manifest has them; the groups of everybody, and the rights that are
//! dangerous in their hands.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::rbac::v1 as rbac;

use super::known::CONSTRAINED;
use crate::authorization::Role;
use crate::authorization::rbac::{WildcardSet, bootstrap_policy};
use crate::document::{self, Document};
use crate::field::Faults;
use crate::manifest::compile;
use crate::manifest::report::Report;
use portcullis_cel::Version;

/// Those of one version, by namespace and name.
type Roles = BTreeMap<(String, String), Role>;

static OF_1_36: LazyLock<Roles> = LazyLock::new(|| read(Version::new(36)));
static OF_NEWEST: LazyLock<Roles> = LazyLock::new(|| read(Version::NEWEST));

/// Whether an API server of some version makes exactly this role.
pub(crate) fn is_builtin(role: &Role) -> bool {
    let key = (role.namespace.clone(), role.name.clone());
    [&OF_NEWEST, &OF_1_36]
        .into_iter()
        .any(|roles| roles.get(&key) == Some(role))
}

/// Whether an API server of `version` makes a ClusterRole of this name.
pub(crate) fn has_cluster_role(version: Version, name: &str) -> bool {
    let roles = if version.minor() < Version::NEWEST.minor() {
        &OF_1_36
    } else {
        &OF_NEWEST
    };
    roles.contains_key(&(String::new(), name.to_owned()))
}

fn read(version: Version) -> Roles {
    let documents = document::parse(None, bootstrap_policy(version)).unwrap_or_default();
    let roles = documents.iter().filter_map(role);
    roles
        .map(|role| ((role.namespace.clone(), role.name.clone()), role))
        .collect()
}

fn role(document: &Document) -> Option<Role> {
    let value = document.root().to_json();
    match document.text("kind")? {
        "Role" => serde_json::from_value::<rbac::Role>(value)
            .ok()
            .map(compile::role),
        "ClusterRole" => {
            let role: rbac::ClusterRole = serde_json::from_value(value).ok()?;
            compile::cluster_role(role, &mut Report::new(document, &mut Faults::new()))
        }
        _ => None,
    }
}

/// Groups of which about everybody is a member.
const EVERYBODY: [&str; 4] = [
    "*",
    "system:authenticated",
    "system:unauthenticated",
    "system:serviceaccounts",
];

/// Verbs by which a user can come to have more rights than were given.
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];

/// Whether a Group or User of this name stands for everybody, or for no certain user.
pub(crate) fn is_everybody(kind: &str, name: &str) -> bool {
    match kind {
        "Group" => EVERYBODY.contains(&name),
        "User" => matches!(name, "*" | "system:anonymous"),
        _ => false,
    }
}

/// Why it is dangerous to give such a rule to everybody.
pub(crate) fn danger(
    verbs: &WildcardSet,
    api_groups: &WildcardSet,
    has_every_resource: bool,
) -> Option<String> {
    if verbs.is_all() && api_groups.is_all() && has_every_resource {
        return Some("everything".to_owned());
    }
    let escalates = |verb: &&str| ESCALATING.contains(verb) || verb.starts_with(CONSTRAINED);
    let escalating = verbs.named().find(escalates);
    escalating.map(|verb| format!("`{verb}`, by which rights grow,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_of_the_files_is_read() {
        for (version, roles) in [(Version::new(36), &OF_1_36), (Version::NEWEST, &OF_NEWEST)] {
            let text = bootstrap_policy(version);
            let written: usize = ["\nkind: ClusterRole\n", "\nkind: Role\n"]
                .map(|kind| text.matches(kind).count())
                .iter()
                .sum();
            assert_eq!(roles.len(), written, "{version}");
            for name in ["view", "edit", "admin", "cluster-admin", "system:node"] {
                assert!(has_cluster_role(version, name), "{version}: {name}");
            }
            assert!(!has_cluster_role(version, "viewer"));
        }
        assert_ne!(OF_1_36.len(), OF_NEWEST.len());
    }

    #[test]
    fn a_role_that_says_something_else_is_another() {
        let mut role = OF_NEWEST[&(String::new(), "cluster-admin".to_owned())].clone();
        assert!(is_builtin(&role));
        role.rules = OF_NEWEST[&(String::new(), "system:node".to_owned())]
            .rules
            .clone();
        assert!(!is_builtin(&role));
    }
}
