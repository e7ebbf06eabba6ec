//! Who can and what can say what asking about every request says.

use super::*;
use crate::authorization::matching::subject_matches;
use crate::authorization::rbac::{compare_rule, subject_applies};
use crate::authorization::{
    AllowedShare, Grantee, OpenRequest, OpenResource, OpenTarget, Permission, SubjectKind, Via, Within,
};

const USERS: &[&str] = &[
    "u1",
    "u2",
    "u9",
    "x",
    "u*",
    "*",
    "system:serviceaccount:a:*",
    "system:serviceaccount:a:s",
    "system:serviceaccount:b:*",
    "system:serviceaccount:b:s",
    "system:node:n",
];
const USER_GROUPS: &[&[&str]] = &[
    &[],
    &["g1"],
    &["g2"],
    &["g9"],
    &["h"],
    &["*"],
    &["g*"],
    &["system:nodes"],
    &["g1", "g2"],
    &["g1", "h"],
];
const OBJECT_NAMES: &[&str] = &["", "n1", "n2", "n9", "*", "a"];
const OBJECT_NAMESPACES: &[&str] = &["", "a", "a*9", "a9", "ab", "ab9", "b", "unknown", "zz"];

/// A user with the groups that an API server adds.
fn realistic(name: &str, groups: &[&str]) -> User<'static> {
    let mut groups = groups.to_vec();
    if let Some(account) = name.strip_prefix("system:serviceaccount:") {
        let is_of_a = account.starts_with("a:");
        let own = if is_of_a {
            "system:serviceaccounts:a"
        } else {
            "system:serviceaccounts:b"
        };
        groups.extend(["system:serviceaccounts", own]);
    }
    groups.push("system:authenticated");
    user(name, &groups)
}

/// Everybody there is.
fn everybody() -> Vec<User<'static>> {
    let of = |name: &'static str| {
        let groups = USER_GROUPS.iter().filter(move |groups| may_be_in(name, groups));
        groups.map(move |groups| realistic(name, groups))
    };
    USERS.iter().flat_map(|name| of(name)).collect()
}

/// Whether a user of this name may be in `groups` besides those that an API server adds: a node is in its
/// own alone, and a service account in none.
fn may_be_in(name: &str, groups: &[&str]) -> bool {
    if name.starts_with("system:serviceaccount:") {
        return groups.is_empty();
    }
    !name.starts_with("system:node:") || groups.is_empty() || groups == ["system:nodes"]
}

fn is_member(grantee: &Grantee, user: &User<'_>) -> bool {
    if grantee.is_pattern {
        subject_matches(&grantee.subject, user)
    } else {
        subject_applies(&grantee.subject, user, "")
    }
}

fn within() -> BoxedStrategy<Within> {
    prop_oneof![
        2 => Just(Within::AnyNamespace),
        2 => select(&["a", "ab", "b", "unknown"][..]).prop_map(|name| Within::Namespace(name.to_owned())),
        1 => Just(Within::NoNamespace),
    ]
    .boxed()
}

fn open_request() -> BoxedStrategy<OpenRequest> {
    let resource = (
        one(&["get", "list", "create", "*"]),
        one(&["", "apps"]),
        one(&["pods", "pods", "nodes", "*", "namespaces"]),
        one(&["", "", "log", "scale"]),
        prop::option::weighted(0.4, one(&["n1", "n9", "a"])),
        within(),
    )
        .prop_map(|(verb, group, resource, subresource, name, within)| OpenRequest {
            verb,
            target: OpenTarget::Resource(OpenResource {
                group,
                resource,
                subresource,
                name,
                within,
            }),
        });
    let path = (one(&["get", "create"]), one(ASKED_PATHS)).prop_map(|(verb, path)| OpenRequest {
        verb,
        target: OpenTarget::Path(path),
    });
    prop_oneof![4 => resource, 1 => path].boxed()
}

/// The widest request, and the narrowest that some rule speaks of.
fn narrowest(objects: &Objects) -> Vec<Selectors<'static>> {
    let mut all = Selectors::default();
    for rule in objects.policies.iter().flat_map(|policy| &policy.resource_rules) {
        all.field.extend(rule.selectors.field.iter().cloned());
        all.label.extend(rule.selectors.label.iter().cloned());
    }
    vec![Selectors::default(), all]
}

/// Every request that `open` stands for, in a small world.
fn requests(open: &OpenRequest, objects: &Objects) -> Vec<Target<'static>> {
    let OpenTarget::Resource(asked) = &open.target else {
        let OpenTarget::Path(path) = &open.target else {
            unreachable!()
        };
        return vec![Target::NonResource {
            path: path.clone().into(),
            verb: open.verb.clone().into(),
        }];
    };
    let is_namespaces = asked.group.is_empty() && asked.resource == "namespaces";
    let is_scoped = objects.cluster_scoped.contains(&asked.group, &asked.resource);
    let about_many = ["list", "create", "*"].contains(&open.verb.as_str());
    let by_selector = ["list", "create"].contains(&open.verb.as_str());
    let names: Vec<&str> = match &asked.name {
        Some(name) => vec![name],
        None if is_namespaces => [OBJECT_NAMES, OBJECT_NAMESPACES].concat(),
        None => OBJECT_NAMES.to_vec(),
    };
    let mut found = Vec::new();
    for name in names {
        let namespaces: Vec<&str> = match &asked.within {
            _ if is_namespaces && (asked.name.is_some() && !by_selector || !about_many) => vec![name],
            _ if is_scoped => vec![""],
            Within::AnyNamespace => OBJECT_NAMESPACES.to_vec(),
            Within::Namespace(namespace) => vec![namespace],
            Within::NoNamespace => vec![""],
        };
        for namespace in namespaces {
            for selectors in narrowest(objects) {
                found.push(Target::Resource(Box::new(ResourceAttributes {
                    verb: open.verb.clone().into(),
                    group: asked.group.clone().into(),
                    resource: asked.resource.clone().into(),
                    subresource: asked.subresource.clone().into(),
                    namespace: namespace.to_owned().into(),
                    name: name.to_owned().into(),
                    selectors,
                    ..ResourceAttributes::default()
                })));
            }
        }
    }
    found
}

fn is_in(via: &Via, target: &Target<'_>) -> bool {
    match target {
        Target::Resource(asked) => via.namespace.is_empty() || asked.namespace == via.namespace,
        Target::NonResource { .. } => via.namespace.is_empty(),
    }
}

fn is_by(via: &Via, answer: &crate::authorization::Authorization<'_>) -> bool {
    let cause = answer.cause.as_ref().unwrap();
    (
        via.kind,
        via.namespace.as_str(),
        via.name.as_str(),
        Some(via.rule),
    ) == (cause.kind, &*cause.namespace, &*cause.name, cause.rule)
}

fn check_who_can(objects: &Objects, open: &OpenRequest, now: Time) -> Result<(), TestCaseError> {
    let set = PolicySet::new(objects.clone(), &NeverDeny::default());
    let listed = set.who_can(open, now, Deadline::NEVER).unwrap();
    for target in requests(open, objects) {
        for user in everybody() {
            let asked = Attributes {
                user,
                target: target.clone(),
            };
            let answer = set.authorize(&asked, now);
            let own: Vec<&Grantee> = listed
                .iter()
                .filter(|grantee| is_member(grantee, &asked.user))
                .collect();
            if answer.decision == Decision::Allow {
                let is_listed = own
                    .iter()
                    .any(|grantee| grantee.via.iter().any(|via| is_by(via, &answer)));
                prop_assert!(
                    is_listed,
                    "{:?} is allowed {:?} by {:?}\n{:#?}",
                    asked.user,
                    target,
                    answer.cause,
                    listed
                );
            }
            for grantee in own {
                for via in grantee
                    .via
                    .iter()
                    .filter(|via| via.limits.is_empty() && is_in(via, &target))
                {
                    let is_free = answer.decision == Decision::Allow;
                    let denier = answer.cause.as_ref().map(|cause| &*cause.name);
                    let is_told = grantee.denied_by.iter().any(|name| Some(&**name) == denier);
                    prop_assert!(
                        is_free || is_told,
                        "{:?} may not {:?}: {:?} {:#?} {:?}",
                        asked.user,
                        target,
                        answer,
                        grantee,
                        via
                    );
                }
            }
        }
    }
    Ok(())
}

/// Some of those for whom a subject stands, alone and with a group each.
fn members(grantee: &Grantee) -> Vec<User<'static>> {
    let name = grantee.subject.name.as_str();
    let stem = name.strip_suffix('*').filter(|_| grantee.is_pattern);
    let any = everybody();
    let made: Vec<User<'static>> = match (grantee.subject.kind, stem) {
        (SubjectKind::User, None) => {
            let groups = USER_GROUPS.iter().filter(|groups| may_be_in(name, groups));
            groups.map(|groups| realistic(name, groups)).collect()
        }
        (SubjectKind::ServiceAccount, _) => {
            let user = format!("system:serviceaccount:{}:{name}", grantee.subject.namespace);
            vec![realistic(&user, &[])]
        }
        (SubjectKind::Group, None) => {
            let with_name = |groups: &&[&'static str]| [groups, &[name][..]].concat();
            let in_group = |user: &&'static str| {
                let user = *user;
                let groups = USER_GROUPS.iter().map(with_name);
                let possible = groups.filter(move |groups| may_be_in(user, groups));
                possible.map(move |groups| realistic(user, &groups))
            };
            USERS.iter().flat_map(|user| in_group(user)).collect()
        }
        _ => Vec::new(),
    };
    any.into_iter()
        .chain(made)
        .filter(|user| is_member(grantee, user))
        .collect()
}

/// Policies that a manifest can hold: of a field, presence cannot be required.
fn written_policies() -> BoxedStrategy<Vec<AuthorizationPolicy>> {
    let is_known = |one: &Requirement<'_>| !matches!(one.operator, Operator::Exists | Operator::DoesNotExist);
    policies()
        .prop_map(move |mut policies| {
            for rule in policies.iter_mut().flat_map(|policy| &mut policy.resource_rules) {
                rule.selectors.field.retain(is_known);
            }
            policies
        })
        .boxed()
}

/// Without conditions, and with at most one policy that denies or limits.
fn plain_policies() -> BoxedStrategy<Vec<AuthorizationPolicy>> {
    written_policies()
        .prop_map(|policies| {
            let mut has_deny = false;
            let mut kept = Vec::new();
            for mut policy in policies {
                policy.conditions.clear();
                let denies = policy.effect != Effect::Allow && policy.mode == Mode::Enforce;
                if !(denies && has_deny) {
                    has_deny |= denies;
                    kept.push(policy);
                }
            }
            kept
        })
        .boxed()
}

proptest! {
    #![proptest_config(crate::authorization::fixtures::cases(100))]

    #[test]
    fn whoever_is_allowed_is_listed_and_what_is_unlimited_is_allowed(
        roles in roles(),
        bindings in bindings(),
        policies in written_policies(),
        namespaces in namespaces(),
        (open, now) in (open_request(), instant()),
    ) {
        let objects = Objects { roles, bindings, policies, namespaces, ..Objects::default() };
        check_who_can(&objects, &open, now)?;
    }

    #[test]
    fn whoever_is_listed_is_allowed_something(
        roles in roles(),
        bindings in bindings(),
        policies in plain_policies(),
        namespaces in namespaces(),
        (open, now) in (open_request(), instant()),
    ) {
        let objects = Objects { roles, bindings, policies, namespaces, ..Objects::default() };
        let set = PolicySet::new(objects.clone(), &NeverDeny::default());
        let targets = requests(&open, &objects);
        for grantee in set.who_can(&open, now, Deadline::NEVER).unwrap().iter().filter(|grantee| grantee.subject.name != "system:masters") {
            let is_allowed = members(grantee).into_iter().any(|user| targets.iter().any(|target| {
                let asked = Attributes { user: user.clone(), target: target.clone() };
                set.authorize(&asked, now).decision == Decision::Allow
            }));
            prop_assert!(is_allowed, "{:#?} may {:?}?", grantee, open);
        }
    }

    #[test]
    fn what_a_user_can_do_is_what_is_allowed(
        roles in roles(),
        bindings in bindings(),
        policies in written_policies(),
        namespaces in namespaces(),
        (user, within, now) in (select(everybody()), within(), instant()),
        opens in prop::collection::vec(open_request(), 12),
    ) {
        let objects = Objects { roles, bindings, policies, namespaces, ..Objects::default() };
        let set = PolicySet::new(objects.clone(), &NeverDeny::default());
        let listed = set.what_can(&user, &within, now, Deadline::NEVER).unwrap();
        for mut open in opens {
            if let OpenTarget::Resource(asked) = &mut open.target {
                asked.within = within.clone();
            }
            let (mut count, mut allowed) = (0, 0);
            for target in requests(&open, &objects) {
                let asked = Attributes { user: user.clone(), target };
                let answer = set.authorize(&asked, now);
                count += 1;
                allowed += usize::from(answer.decision == Decision::Allow);
                check_permissions(&set, &listed, &asked, &answer)?;
            }
            let allowance = set.allowance(&user, &open, now);
            prop_assert!(allowance != AllowedShare::None || allowed == 0, "{open:?} {allowed}");
            prop_assert!(allowance != AllowedShare::Full || allowed == count, "{open:?} {allowed} of {count}");
        }
    }
}

fn check_permissions(
    set: &PolicySet,
    listed: &[Permission],
    asked: &Attributes<'_>,
    answer: &crate::authorization::Authorization<'_>,
) -> Result<(), TestCaseError> {
    let is_namespaces = matches!(&asked.target, Target::Resource(target) if target.resource == "namespaces");
    if answer.decision == Decision::Allow && !is_namespaces {
        let is_listed = listed.iter().any(|permission| is_by(&permission.via, answer));
        prop_assert!(is_listed, "{:?} by {:?} of {:#?}", asked, answer.cause, listed);
    }
    for permission in listed
        .iter()
        .filter(|permission| is_in(&permission.via, &asked.target))
    {
        let binding = set.bindings().find(|binding| {
            permission.via.kind != CauseKind::AuthorizationPolicy
                && (&binding.namespace, &binding.name) == (&permission.via.namespace, &permission.via.name)
        });
        let Some(binding) = binding else { continue };
        let home = if binding.role.kind == RoleKind::Role {
            binding.namespace.as_str()
        } else {
            ""
        };
        let role = set
            .roles()
            .iter()
            .find(|role| role.namespace == home && role.name == binding.role.name)
            .unwrap();
        if compare_rule(&role.rules[permission.via.rule], asked).is_match()
            && answer.decision == Decision::Deny
        {
            let denier = answer.cause.as_ref().unwrap().name.as_ref();
            let is_told = permission.denied_by.iter().any(|name| &**name == denier);
            prop_assert!(is_told, "{:?} denied by {denier} {:#?}", asked, permission);
        }
    }
    Ok(())
}
