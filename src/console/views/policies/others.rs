//! Objects that decide and are no policies: role bindings, and configurations of webhooks.

use crate::reload::Snapshot;
use portcullis_policy::authorization::{Binding, PolicySet, Role, RoleKind};
use portcullis_policy::engine::admission::Phase;

/// The most subjects that are named.
const MOST_SUBJECTS: usize = 20;

/// A kind, namespace and name.
type ObjectKey<'k> = (&'k str, &'k str, &'k str);

/// What the object does, in words, and how many rules it has; `None` where there is none such in
/// force for `cluster`.
pub(crate) fn about(
    snapshot: &Snapshot,
    cluster: &str,
    (kind, namespace, name): ObjectKey<'_>,
) -> Option<(String, usize)> {
    let phase = match kind {
        "RoleBinding" | "ClusterRoleBinding" => {
            let set = snapshot.policies.for_cluster(cluster);
            let binding = binding(set, (kind, namespace, name))?;
            let rules = role(set, binding).map_or(0, |role| role.rules.len());
            return Some((of_binding(binding), rules));
        }
        "MutatingWebhookConfiguration" => Phase::Mutate,
        "ValidatingWebhookConfiguration" | "ExternalAdmissionHookConfiguration" => Phase::Validate,
        _ => return None,
    };
    let webhooks = snapshot.admission.for_cluster(cluster).webhooks(phase);
    let own: Vec<&str> = webhooks
        .filter(|webhook| namespace.is_empty() && webhook.configuration == name)
        .map(|webhook| webhook.name.as_str())
        .collect();
    (!own.is_empty()).then(|| (format!("registers the webhooks {}", own.join(", ")), own.len()))
}

/// A binding, and the role that it binds.
pub(crate) fn with_role(
    snapshot: &Snapshot,
    cluster: &str,
    (kind, namespace, name): ObjectKey<'_>,
) -> Vec<(String, String, String)> {
    let set = snapshot.policies.for_cluster(cluster);
    let Some(binding) = binding(set, (kind, namespace, name)) else {
        return Vec::new();
    };
    let (role_kind, role_name) = (binding.role.kind, binding.role.name.as_str());
    let role_namespace = role_namespace(binding);
    vec![
        (kind.to_owned(), namespace.to_owned(), name.to_owned()),
        (
            role_kind.to_string(),
            role_namespace.to_owned(),
            role_name.to_owned(),
        ),
    ]
}

fn binding<'s>(set: &'s PolicySet, (kind, namespace, name): ObjectKey<'_>) -> Option<&'s Binding> {
    let is_kind = match kind {
        "RoleBinding" => !namespace.is_empty(),
        "ClusterRoleBinding" => namespace.is_empty(),
        _ => false,
    };
    let mut bindings = set.bindings().filter(|_| is_kind);
    bindings.find(|binding| binding.namespace == namespace && binding.name == name)
}

fn role<'s>(set: &'s PolicySet, binding: &Binding) -> Option<&'s Role> {
    let namespace = role_namespace(binding);
    let mut roles = set.roles().iter();
    let found = roles.find(|role| role.namespace == namespace && role.name == binding.role.name);
    found.map(|role| &**role)
}

fn role_namespace(binding: &Binding) -> &str {
    match binding.role.kind {
        RoleKind::ClusterRole => "",
        RoleKind::Role => &binding.namespace,
    }
}

fn of_binding(binding: &Binding) -> String {
    let subject = |subject: &portcullis_policy::authorization::Subject| {
        let namespace = if subject.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", subject.namespace)
        };
        format!("{} {namespace}{}", subject.kind, subject.name)
    };
    let subjects: Vec<String> = binding.subjects.iter().take(MOST_SUBJECTS).map(subject).collect();
    let more = match binding.subjects.len().saturating_sub(MOST_SUBJECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "gives {} {} to {}{more}",
        binding.role.kind,
        binding.role.name,
        subjects.join(", ")
    )
}
