//! How many bindings grant a request, by a plain reading of RBAC: where it is
//! exactly one, every authorizer must name that one.

use serde_json::Value;

/// The RBAC objects of a cluster, as it lists them.
pub(crate) struct Objects {
    pub(crate) cluster_roles: Vec<Value>,
    pub(crate) roles: Vec<Value>,
    pub(crate) cluster_role_bindings: Vec<Value>,
    pub(crate) role_bindings: Vec<Value>,
}

impl Objects {
    /// The number of bindings that grant what the spec of a review asks.
    pub(crate) fn granting(&self, spec: &Value) -> usize {
        let namespace = text(&spec["resourceAttributes"], "namespace");
        let cluster_wide = self
            .cluster_role_bindings
            .iter()
            .filter(|binding| self.grants(binding, spec));
        let within = self.role_bindings.iter().filter(|binding| {
            !namespace.is_empty()
                && text(&binding["metadata"], "namespace") == namespace
                && self.grants(binding, spec)
        });
        cluster_wide.count() + within.count()
    }

    fn grants(&self, binding: &Value, spec: &Value) -> bool {
        let namespace = text(&binding["metadata"], "namespace");
        let applies = list(binding, "subjects")
            .iter()
            .any(|subject| is(subject, namespace, spec));
        applies && self.rules(binding).iter().any(|rule| allows(rule, spec))
    }

    fn rules(&self, binding: &Value) -> &[Value] {
        let role_ref = &binding["roleRef"];
        let roles = if role_ref["kind"] == "Role" {
            &self.roles
        } else {
            &self.cluster_roles
        };
        let role = roles.iter().find(|role| {
            role["metadata"]["name"] == role_ref["name"]
                && (role_ref["kind"] != "Role"
                    || role["metadata"]["namespace"] == binding["metadata"]["namespace"])
        });
        role.map_or(&[], |role| list(role, "rules"))
    }
}

fn is(subject: &Value, namespace: &str, spec: &Value) -> bool {
    let name = text(subject, "name");
    match text(subject, "kind") {
        "User" => text(spec, "user") == name,
        "Group" => has(spec, "groups", name),
        _ => {
            let namespace = subject["namespace"].as_str().unwrap_or(namespace);
            text(spec, "user") == format!("system:serviceaccount:{namespace}:{name}")
        }
    }
}

fn allows(rule: &Value, spec: &Value) -> bool {
    let has_or_all = |attributes: &Value, key: &str, list: &str| {
        has(rule, list, "*") || has(rule, list, text(attributes, key))
    };
    if let Some(attributes) = spec.get("nonResourceAttributes") {
        let path = text(attributes, "path");
        let covers = |pattern: &Value| {
            let pattern = pattern.as_str().unwrap_or_default();
            pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
        };
        return has_or_all(attributes, "verb", "verbs") && list(rule, "nonResourceURLs").iter().any(covers);
    }
    let attributes = &spec["resourceAttributes"];
    has_or_all(attributes, "verb", "verbs")
        && has_or_all(attributes, "group", "apiGroups")
        && allows_resource(rule, attributes)
        && (list(rule, "resourceNames").is_empty() || has(rule, "resourceNames", text(attributes, "name")))
}

fn allows_resource(rule: &Value, attributes: &Value) -> bool {
    let (resource, subresource) = (text(attributes, "resource"), text(attributes, "subresource"));
    if subresource.is_empty() {
        return has(rule, "resources", "*") || has(rule, "resources", resource);
    }
    has(rule, "resources", "*")
        || has(rule, "resources", &format!("{resource}/{subresource}"))
        || has(rule, "resources", &format!("*/{subresource}"))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn has(value: &Value, key: &str, item: &str) -> bool {
    list(value, key).iter().any(|candidate| candidate == item)
}
