//! Resolves bindings to the rules that they grant (`VisitRulesFor` of
//! `pkg/registry/rbac/validation/rule.go`).

use std::borrow::Borrow;
use std::collections::HashMap;

use crate::authorization::{Binding, Objects, Role, RoleKind, RoleRef, Rule};
use crate::engine::User;

use super::subject::applying_subject;

/// Finds roles by scope and name.
#[derive(Debug)]
pub struct RoleResolver<'o, R> {
    roles: &'o [R],
    places: HashMap<(&'o str, &'o str), usize>,
}

/// A binding grants nothing, in kube-apiserver's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RoleNotFoundError {
    /// There is no such Role in the namespace of the binding.
    #[error("role.rbac.authorization.k8s.io {0:?} not found")]
    Role(String),
    /// There is no such ClusterRole.
    #[error("clusterrole.rbac.authorization.k8s.io {0:?} not found")]
    ClusterRole(String),
}

/// The rules that apply to `user` in `namespace` (empty for cluster scope), and
/// why bindings that apply grant nothing. Roles must be aggregated already.
///
/// Linear in the bindings: meant for tools and tests.
#[must_use]
pub fn rules_for<'o>(
    objects: &'o Objects,
    user: &User<'_>,
    namespace: &str,
) -> (Vec<&'o Rule>, Vec<RoleNotFoundError>) {
    let roles = RoleResolver::new(&objects.roles);
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for binding in in_order(&objects.bindings) {
        let in_scope = binding.is_cluster_wide() || binding.namespace == namespace;
        if !in_scope || applying_subject(&binding.subjects, user, &binding.namespace).is_none() {
            continue;
        }
        match roles.resolve(&binding.role, &binding.namespace) {
            Ok(role) => rules.extend(&role.rules),
            Err(error) => errors.push(error),
        }
    }
    (rules, errors)
}

fn in_order(bindings: &[Binding]) -> Vec<&Binding> {
    let mut bindings: Vec<&Binding> = bindings.iter().collect();
    bindings.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    bindings
}

// === impl RoleNotFoundError ===

impl RoleNotFoundError {
    /// That the role of `reference` is not there.
    #[must_use]
    pub fn of(reference: &RoleRef) -> Self {
        let name = reference.name.clone();
        match reference.kind {
            RoleKind::Role => Self::Role(name),
            RoleKind::ClusterRole => Self::ClusterRole(name),
        }
    }
}

// === impl RoleResolver ===

impl<'o, R: Borrow<Role>> RoleResolver<'o, R> {
    /// Finds `roles`; of two of the same name, the first.
    #[must_use]
    pub fn new(roles: &'o [R]) -> Self {
        let mut places = HashMap::with_capacity(roles.len());
        for (place, role) in roles.iter().map(Borrow::borrow).enumerate() {
            places
                .entry((role.namespace.as_str(), role.name.as_str()))
                .or_insert(place);
        }
        Self { roles, places }
    }

    /// The role that `reference` means in a binding of `namespace`.
    ///
    /// # Errors
    /// There is none.
    pub fn resolve(&self, reference: &RoleRef, namespace: &str) -> Result<&'o R, RoleNotFoundError> {
        let place = self.place(reference, namespace)?;
        let role = self.roles.get(place);
        role.ok_or_else(|| RoleNotFoundError::of(reference))
    }

    /// The index of that role among those of [`RoleResolver::new`].
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, reference: &RoleRef, namespace: &str) -> Result<usize, RoleNotFoundError> {
        let scope = match reference.kind {
            // A ClusterRoleBinding has no namespace in which a Role could be.
            RoleKind::Role => Some(namespace).filter(|namespace| !namespace.is_empty()),
            RoleKind::ClusterRole => Some(""),
        };
        let place = scope.and_then(|scope| self.places.get(&(scope, reference.name.as_str())));
        place.copied().ok_or_else(|| RoleNotFoundError::of(reference))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::Subject;

    fn role(namespace: &str, name: &str, verb: &str) -> Role {
        let rules = vec![Rule {
            verbs: [verb].into_iter().collect(),
            ..Rule::default()
        }];
        Role {
            namespace: namespace.into(),
            name: name.into(),
            rules: rules.into(),
            ..Role::default()
        }
    }

    fn binding(namespace: &str, name: &str, kind: RoleKind, role: &str) -> Binding {
        Binding {
            namespace: namespace.into(),
            name: name.into(),
            role: RoleRef {
                kind,
                name: role.into(),
            },
            subjects: vec![Subject::user("alice")],
        }
    }

    #[test]
    fn cluster_wide_first_then_the_namespace_and_what_is_missing_stops_nothing() {
        let objects = Objects {
            roles: vec![
                role("", "view", "list"),
                role("ns", "view", "get"),
                role("other", "view", "watch"),
            ],
            bindings: vec![
                binding("other", "a", RoleKind::Role, "view"),
                binding("ns", "b", RoleKind::Role, "view"),
                binding("ns", "a", RoleKind::Role, "gone"),
                binding("", "z", RoleKind::ClusterRole, "view"),
                binding("", "y", RoleKind::Role, "view"),
                binding("", "x", RoleKind::ClusterRole, "gone"),
            ],
            policies: Vec::new(),
            ..Objects::default()
        };
        let alice = User {
            name: "alice".into(),
            ..User::default()
        };
        let verbs = |namespace: &str| -> Vec<String> {
            rules_for(&objects, &alice, namespace)
                .0
                .iter()
                .flat_map(|rule| rule.verbs.as_slice().to_vec())
                .collect()
        };
        assert_eq!(verbs("ns"), ["list", "get"]);
        assert_eq!(verbs(""), ["list"]);
        let errors: Vec<String> = rules_for(&objects, &alice, "ns")
            .1
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            errors,
            [
                "clusterrole.rbac.authorization.k8s.io \"gone\" not found",
                "role.rbac.authorization.k8s.io \"view\" not found",
                "role.rbac.authorization.k8s.io \"gone\" not found",
            ]
        );
    }
}
