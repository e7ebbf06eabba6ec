//! Manifests to the policies that decide.

use std::sync::Arc;

use super::{Manifests, Scope};
use crate::engine::{NeverDeny, Objects, Policies, PolicySet};

impl Manifests {
    /// The policies of every cluster: a cluster with manifests of its own is
    /// decided for by these and the shared ones together.
    #[must_use]
    pub fn policies(&self, never_deny: &NeverDeny) -> Policies {
        let set = |own: Option<&Scope>| {
            let objects = own.into_iter().fold(self.shared.objects.clone(), together);
            Arc::new(PolicySet::new(objects, never_deny))
        };
        Policies {
            shared: set(None),
            clusters: self
                .clusters
                .iter()
                .map(|(name, scope)| (name.clone(), set(Some(scope))))
                .collect(),
        }
    }
}

fn together(mut shared: Objects, own: &Scope) -> Objects {
    let Objects {
        roles,
        bindings,
        policies,
    } = own.objects.clone();
    shared.roles.extend(roles);
    shared.bindings.extend(bindings);
    shared.policies.extend(policies);
    shared
}
