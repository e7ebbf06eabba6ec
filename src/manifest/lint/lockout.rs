//! Denies that refuse about everybody what a cluster and its administrators need.

use super::Lint;
use super::grants::is_everybody;
use crate::engine::authorization::{AuthorizationPolicy, Effect, Mode, NeverDeny, Objects, PolicySet};
use crate::engine::{Attributes, Decision, ResourceAttributes, Target, Time, User, Validity};
use crate::field::FieldPath;

/// A request that much depends on.
struct Need {
    what: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
}

/// What no Deny over everybody should hold up. A Deny over wildcards touches all of them.
const NEEDS: [Need; 5] = [
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

/// Who stops working without them, as far as neither `neverDeny` nor `excludeSubjects` leaves
/// them out: the user and its groups.
const IDENTITIES: [(&str, &[&str]); 8] = [
    ("system:kube-controller-manager", &[]),
    ("system:kube-scheduler", &[]),
    ("system:apiserver", &["system:masters"]),
    ("kube-apiserver-kubelet-client", &[]),
    ("system:node:NAME", &["system:nodes"]),
    ("system:kube-proxy", &[]),
    (
        "system:serviceaccount:kube-system:NAME",
        &["system:serviceaccounts", "system:serviceaccounts:kube-system"],
    ),
    (
        "system:serviceaccount:NAMESPACE:NAME",
        &["system:serviceaccounts", "system:serviceaccounts:NAMESPACE"],
    ),
];

const AUTHENTICATED: &str = "system:authenticated";

const fn need(
    what: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
) -> Need {
    Need {
        what,
        verb,
        group,
        resource,
        namespace,
    }
}

/// Warns of an enforced Deny that is about everybody and touches one of [`NEEDS`]. Conditions
/// are evaluated on those requests: one that lets them pass is no lock-out.
pub(super) fn lint(policy: &AuthorizationPolicy, never_deny: &NeverDeny, lint: &mut Lint<'_>) {
    let everybody = policy
        .subjects
        .iter()
        .position(|subject| is_everybody(subject.kind.as_str(), &subject.name));
    let Some(subject) = everybody.filter(|_| policy.effect == Effect::Deny && policy.mode == Mode::Enforce)
    else {
        return;
    };
    let at_any_time = AuthorizationPolicy {
        validity: Validity::default(),
        ..policy.clone()
    };
    let objects = Objects {
        policies: vec![at_any_time],
        ..Objects::default()
    };
    let set = PolicySet::new(objects, never_deny);
    let denied = |user: &str, groups: &[&str]| -> Vec<&'static str> {
        let denies = |need: &&Need| {
            let authorization = set.authorize(&need.asked_by(user, groups), Time::UNIX_EPOCH);
            authorization.decision == Decision::Deny
        };
        NEEDS.iter().filter(denies).map(|need| need.what).collect()
    };
    let needs = denied("somebody", &[]);
    if needs.is_empty() {
        return;
    }
    let hit: Vec<&str> = IDENTITIES
        .iter()
        .filter(|(user, groups)| !denied(user, groups).is_empty())
        .map(|(user, _)| *user)
        .collect();
    let whom = match hit.as_slice() {
        [] => "administrators outside `system:masters`".to_owned(),
        hit => hit
            .iter()
            .map(|user| format!("`{user}`"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let name = policy.subjects.get(subject).map(|subject| subject.name.as_str());
    let message = format!(
        "this refuses `{}` {}, which locks out {whom}: name those whom it is meant for, or leave others out by \
         `excludeSubjects`",
        name.unwrap_or_default(),
        needs.join(", ")
    );
    let path = FieldPath::root().field("spec").field("subjects").index(subject);
    lint.suspicious(&path, message);
}

// === impl Need ===

impl Need {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::authorization::CONTROL_PLANE;

    /// Whether a name with `NAME` in it stands for `identity`.
    fn stands_for(name: &str, identity: &str) -> bool {
        match name.split_once("NAME") {
            Some((start, _)) => identity.starts_with(start),
            None => name == identity,
        }
    }

    #[test]
    fn a_lock_out_names_whoever_a_control_plane_was_seen_to_need() {
        for identity in CONTROL_PLANE {
            let is_named = IDENTITIES.iter().any(|(name, _)| stands_for(name, identity));
            assert!(is_named, "{identity}");
        }
    }
}
