//! Roles and bindings that allow what was used, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::usage::{UsedNames, UsedResource, UserUsage};

const GROUP: &str = "rbac.authorization.k8s.io";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The longest part of an object's name that comes from a user's.
const LONGEST_NAME: usize = 200;

/// Gives each user a name for its roles, which no other user has.
#[derive(Debug, Default)]
pub(crate) struct RoleNames {
    taken: BTreeSet<String>,
}

// === impl RoleNames ===

impl RoleNames {
    /// A name for the roles of `user`. No object's name may contain `/` and `%`.
    pub(crate) fn name(&mut self, user: &str) -> String {
        let short = user.strip_prefix(SERVICE_ACCOUNT).unwrap_or(user);
        let allowed = |character: char| !character.is_control() && !matches!(character, '/' | '%');
        let base: String = short
            .chars()
            .map(|character| if allowed(character) { character } else { '-' })
            .take(LONGEST_NAME)
            .collect();
        let mut name = base.clone();
        let mut next = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{base}-{next}");
            next += 1;
        }
        name
    }
}

/// The objects that allow `user` what `usage` has: for each namespace a Role, for all of them a
/// ClusterRole, and the binding of each.
pub(crate) fn objects(user: &str, name: &str, usage: &UserUsage) -> Vec<Value> {
    let mut namespaces: BTreeMap<&str, Vec<(&UsedResource, &UsedNames)>> = BTreeMap::new();
    for (used, names) in &usage.resources {
        namespaces.entry(&used.namespace).or_default().push((used, names));
    }
    if !usage.paths.is_empty() {
        namespaces.entry("").or_default();
    }
    let mut objects = Vec::new();
    for (namespace, used) in namespaces {
        let mut rules = resource_rules(&used);
        if namespace.is_empty() {
            rules.extend(path_rules(&usage.paths));
        }
        objects.extend(role_and_binding(namespace, name, rules, &subject(user)));
    }
    objects
}

fn role_and_binding(namespace: &str, name: &str, rules: Vec<Value>, subject: &Value) -> [Value; 2] {
    let (role, binding, metadata) = if namespace.is_empty() {
        ("ClusterRole", "ClusterRoleBinding", json!({"name": name}))
    } else {
        let metadata = json!({"name": name, "namespace": namespace});
        ("Role", "RoleBinding", metadata)
    };
    let api_version = format!("{GROUP}/v1");
    [
        json!({"apiVersion": api_version, "kind": role, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version,
            "kind": binding,
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": role, "name": name},
            "subjects": [subject],
        }),
    ]
}

/// The user by name: never a group, whose other members asked for nothing.
fn subject(user: &str) -> Value {
    let account = user
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        _ => json!({"apiGroup": GROUP, "kind": "User", "name": user}),
    }
}

/// As few rules as allow exactly `used`: verbs of one resource with the same names share a rule,
/// then resources of one group with the same verbs and names, then groups.
fn resource_rules(used: &[(&UsedResource, &UsedNames)]) -> Vec<Value> {
    let mut verbs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (used, names) in used {
        let key = (used.group.as_str(), used.resource.as_str(), *names);
        verbs.entry(key).or_default().insert(&used.verb);
    }
    let mut resources: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for ((group, resource, names), verbs) in verbs {
        let key = (group, verbs, names);
        resources.entry(key).or_default().insert(resource);
    }
    let mut groups: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for ((group, verbs, names), resources) in resources {
        let key = (resources, verbs, names);
        groups.entry(key).or_default().insert(group);
    }
    let mut rules = Vec::new();
    for ((resources, verbs, names), groups) in groups {
        let mut rule = json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        if let (UsedNames::Only(names), Some(rule)) = (names, rule.as_object_mut()) {
            rule.insert("resourceNames".to_owned(), json!(names));
        }
        rules.push(rule);
    }
    rules
}

fn path_rules(paths: &BTreeMap<String, BTreeSet<String>>) -> Vec<Value> {
    let mut rules: BTreeMap<&BTreeSet<String>, Vec<&str>> = BTreeMap::new();
    for (path, verbs) in paths {
        rules.entry(verbs).or_default().push(path);
    }
    let rule = |(verbs, paths)| json!({"nonResourceURLs": paths, "verbs": verbs});
    rules.into_iter().map(rule).collect()
}
