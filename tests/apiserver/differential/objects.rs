//! Random RBAC objects, such as the API server accepts.

use super::random::Random;
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
pub(crate) const NAMESPACES: [&str; 3] = ["east", "west", "north"];
pub(crate) const USERS: [&str; 6] = ["ann", "bo", "cy", "dee", "*", "system:serviceaccount:east:robot"];
pub(crate) const GROUPS: [&str; 6] = [
    "red",
    "blue",
    "green",
    "*",
    "system:authenticated",
    "system:serviceaccounts:east",
];
pub(crate) const SERVICE_ACCOUNTS: [&str; 3] = ["robot", "builder", "default"];
pub(crate) const VERBS: [&str; 10] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "*",
];
pub(crate) const API_GROUPS: [&str; 5] = ["", "apps", "batch", "example.com", "*"];
/// Some of them mean what they seem to mean (`*/scale`), some do not
/// (`pods/*`, which is a name like any other).
pub(crate) const RESOURCES: [&str; 12] = [
    "pods",
    "pods/log",
    "pods/exec",
    "pods/*",
    "*/log",
    "*/scale",
    "*/*",
    "deployments",
    "deployments/scale",
    "configmaps",
    "widgets",
    "*",
];
pub(crate) const NAMES: [&str; 5] = ["one", "two", "three", "*", ""];
pub(crate) const PATHS: [&str; 10] = [
    "/", "/a", "/a/", "/a/*", "/a*", "/a/b", "/a/b/**", "/*/b", "/c/d", "*",
];

/// How many of each kind.
const ROLES: usize = 20;
const BINDINGS: usize = 30;

/// An object and the collection it is created in.
pub(crate) struct Object {
    pub(crate) collection: String,
    pub(crate) value: Value,
}

/// Roles of both kinds and bindings to them, some to roles that do not exist.
pub(crate) fn generate(random: &mut Random) -> Vec<Object> {
    let mut objects = Vec::new();
    for index in 0..ROLES {
        objects.push(cluster_role(random, index));
        objects.push(role(random, index));
    }
    for index in 0..BINDINGS {
        objects.push(cluster_role_binding(random, index));
        objects.push(role_binding(random, index));
    }
    objects
}

/// Objects that let the user `sentinel` do one thing by each kind. Created
/// after the others, what they grant shows that all were heard of.
pub(crate) fn sentinels() -> Vec<Object> {
    let rule = json!([{"apiGroups": [""], "resources": ["sentinels"], "verbs": ["get"]}]);
    let path = json!([{"nonResourceURLs": ["/sentinel"], "verbs": ["get"]}]);
    let subjects = json!([{"apiGroup": GROUP, "kind": "User", "name": "sentinel"}]);
    let role_ref = |kind| json!({"apiGroup": GROUP, "kind": kind, "name": "sentinel"});
    let namespace = Some(NAMESPACES[0]);
    vec![
        object("ClusterRole", "sentinel", None, json!({"rules": path})),
        object("Role", "sentinel", namespace, json!({"rules": rule})),
        object(
            "ClusterRoleBinding",
            "sentinel",
            None,
            json!({"roleRef": role_ref("ClusterRole"), "subjects": subjects}),
        ),
        object(
            "RoleBinding",
            "sentinel",
            namespace,
            json!({"roleRef": role_ref("Role"), "subjects": subjects}),
        ),
    ]
}

fn object(kind: &str, name: &str, namespace: Option<&str>, mut value: Value) -> Object {
    value["apiVersion"] = format!("{GROUP}/v1").into();
    value["kind"] = kind.into();
    value["metadata"] = json!({"name": name});
    let plural = format!("{}s", kind.to_lowercase());
    let collection = match namespace {
        Some(namespace) => format!("/apis/{GROUP}/v1/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{GROUP}/v1/{plural}"),
    };
    Object { collection, value }
}

fn cluster_role(random: &mut Random, index: usize) -> Object {
    let rules: Vec<Value> = (0..random.below(4))
        .map(|_| {
            if random.one_in(3) {
                path_rule(random)
            } else {
                resource_rule(random)
            }
        })
        .collect();
    object(
        "ClusterRole",
        &format!("cluster-role-{index}"),
        None,
        json!({"rules": rules}),
    )
}

fn role(random: &mut Random, index: usize) -> Object {
    let rules: Vec<Value> = (0..random.below(4)).map(|_| resource_rule(random)).collect();
    let namespace = *random.pick(&NAMESPACES);
    object(
        "Role",
        &format!("role-{index}"),
        Some(namespace),
        json!({"rules": rules}),
    )
}

fn resource_rule(random: &mut Random) -> Value {
    let mut rule = json!({
        "verbs": random.some(&VERBS, 1, 3),
        "apiGroups": random.some(&API_GROUPS, 1, 2),
        "resources": random.some(&RESOURCES, 1, 3),
    });
    if random.one_in(3) {
        rule["resourceNames"] = random.some(&NAMES, 1, 2).into();
    }
    rule
}

fn path_rule(random: &mut Random) -> Value {
    json!({"verbs": random.some(&VERBS, 1, 3), "nonResourceURLs": random.some(&PATHS, 1, 2)})
}

fn cluster_role_binding(random: &mut Random, index: usize) -> Object {
    let subjects: Vec<Value> = (0..random.below(4)).map(|_| subject(random, true)).collect();
    let value = json!({"roleRef": role_ref(random, "ClusterRole"), "subjects": subjects});
    object(
        "ClusterRoleBinding",
        &format!("cluster-binding-{index}"),
        None,
        value,
    )
}

fn role_binding(random: &mut Random, index: usize) -> Object {
    let subjects: Vec<Value> = (0..random.below(4)).map(|_| subject(random, false)).collect();
    let kind = if random.one_in(3) { "ClusterRole" } else { "Role" };
    let value = json!({"roleRef": role_ref(random, kind), "subjects": subjects});
    let namespace = *random.pick(&NAMESPACES);
    object("RoleBinding", &format!("binding-{index}"), Some(namespace), value)
}

/// Often a role that exists; a Role may be one of another namespace, which is
/// as good as none.
fn role_ref(random: &mut Random, kind: &str) -> Value {
    let prefix = if kind == "Role" { "role" } else { "cluster-role" };
    json!({"apiGroup": GROUP, "kind": kind, "name": format!("{prefix}-{}", random.below(ROLES + 3))})
}

fn subject(random: &mut Random, needs_namespace: bool) -> Value {
    match random.below(3) {
        0 => json!({"apiGroup": GROUP, "kind": "User", "name": random.pick(&USERS)}),
        1 => json!({"apiGroup": GROUP, "kind": "Group", "name": random.pick(&GROUPS)}),
        _ => {
            let mut account = json!({"kind": "ServiceAccount", "name": random.pick(&SERVICE_ACCOUNTS)});
            if needs_namespace || !random.one_in(3) {
                account["namespace"] = (*random.pick(&NAMESPACES)).into();
            }
            account
        }
    }
}
