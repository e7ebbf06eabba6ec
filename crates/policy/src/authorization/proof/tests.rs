//! What is proven equals what trying every request of small worlds finds.

mod conditions;
mod diagrams;
mod idle;
mod invariants;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::authorization::fixtures::cases;
use crate::authorization::matching::selectable_namespace;
use crate::authorization::policy_set::tests::reference::{bindings, namespaces, policies, roles};
use crate::authorization::{
    AccessEntry, AccessRequest, AccessRequestSettings, AccessRequestTrust, AccessRequester,
    AuthorizationPolicy, Binding, NeverDeny, Objects, PolicySet, RoleKind, RoleRef, Rule, Subject, fixtures,
};
use crate::model::{Attributes, Deadline, Decision, ResourceAttributes, Selectors, Target, Time, User};

const UNLIMITED: WorkLimit<'static> = WorkLimit {
    parts: usize::MAX,
    deadline: Deadline::NEVER,
};

fn objects() -> impl Strategy<Value = Objects> {
    let of_policies = (policies(), any::<u16>());
    let of_policies = of_policies.prop_map(|(mut policies, liftable)| {
        for (at, policy) in policies.iter_mut().enumerate() {
            policy.liftable = policy.effect.refuses() && liftable >> at & 1 == 1;
        }
        policies
    });
    (roles(), bindings(), of_policies, access_requests(), namespaces()).prop_map(
        |(roles, bindings, policies, access_requests, namespaces)| Objects {
            roles,
            bindings,
            policies,
            access_requests,
            namespaces,
            ..Objects::default()
        },
    )
}

/// Approved and denied ones, which begin and end between [`instants`].
fn access_requests() -> impl Strategy<Value = Vec<AccessRequest>> {
    use proptest::sample::{select, subsequence};

    let lifted: Vec<String> = (0..12).map(|at| format!("p{at}")).collect();
    let request = (
        select(vec!["r1", "r2", "gone"]),
        subsequence(vec!["a", "b"], 0..=2),
        select(vec!["u1", "x", "system:serviceaccount:a:s"]),
        prop_oneof![4 => Just(""), 1 => Just("it's 5")],
        (0..3_i64, 1..4_i64),
        subsequence(lifted, 0..=12),
        prop::bool::weighted(0.1),
    );
    let request = request.prop_map(
        |(role, namespaces, username, uid, (begin, duration_seconds), lifts, is_denied)| AccessRequest {
            name: String::new(),
            role: role.to_owned(),
            namespaces: fixtures::texts(&namespaces),
            duration_seconds,
            reason: "r".to_owned(),
            lifts,
            requester: AccessRequester {
                username: username.to_owned(),
                uid: uid.to_owned(),
                groups: Vec::new(),
            },
            approvals: vec![AccessEntry {
                username: "approver".to_owned(),
                time: instants()[0].plus_seconds(begin),
            }],
            is_denied,
            is_withdrawn: false,
            created: None,
        },
    );
    prop::collection::vec(request, 0..4).prop_map(|mut requests| {
        for (at, request) in requests.iter_mut().enumerate() {
            request.name = format!("a{at}");
        }
        requests
    })
}

/// What decides by `objects`, AccessRequests among them.
fn built(objects: Objects) -> PolicySet {
    let trust = AccessRequestTrust {
        settings: AccessRequestSettings::default(),
        since: None,
    };
    PolicySet::new(objects, &NeverDeny::default()).with_access_request_trust(Some(trust))
}

/// Two sets that share some of their objects.
fn pairs() -> impl Strategy<Value = (Objects, Objects)> {
    (objects(), objects(), any::<[bool; 4]>()).prop_map(|(one, other, shared)| {
        let mut other = other;
        let [roles, bindings, policies, namespaces] = shared;
        if roles {
            other.roles.clone_from(&one.roles);
        }
        if bindings {
            other.bindings = one
                .bindings
                .iter()
                .skip(1)
                .cloned()
                .chain(other.bindings.into_iter().take(2))
                .collect();
        }
        if policies {
            other.policies = one.policies.iter().skip(1).cloned().collect();
        }
        if namespaces {
            other.namespaces.clone_from(&one.namespaces);
            other.access_requests = one.access_requests.iter().skip(1).cloned().collect();
        }
        (one, other)
    })
}

fn users() -> Vec<User<'static>> {
    let mut users = Vec::new();
    let groups = ["g1", "g2", "h", "system:nodes"];
    for name in ["u1", "x", "", "system:node:n"] {
        for of in 0..1 << groups.len() {
            let groups = groups.iter().enumerate().filter(|(at, _)| of >> at & 1 == 1);
            users.push(User {
                name: name.into(),
                groups: groups.map(|(_, group)| (*group).into()).collect(),
                ..User::default()
            });
        }
    }
    for name in ["system:serviceaccount:a:s", "system:serviceaccount:c:s"] {
        let groups = super::sets::groups_of_account(name).unwrap();
        users.push(User {
            name: name.into(),
            groups: groups.map(Into::into).into(),
            ..User::default()
        });
    }
    users
}

/// Requests for resources, as many as an attempt takes, and for every path.
fn targets() -> impl Strategy<Value = Vec<Target<'static>>> {
    let one = |of: &'static [&'static str]| proptest::sample::select(of);
    let resource = (
        (
            one(&["get", "list", "create", "watch", "*"]),
            one(&["", "apps", "*"]),
        ),
        (
            one(&["pods", "nodes", "*", "others", "namespaces"]),
            one(&["", "", "log", "scale", "*"]),
        ),
        (
            one(&["", "a", "ab", "b", "unknown"]),
            one(&["", "n1", "n3", "*", "a"]),
        ),
    );
    let selectors = crate::authorization::policy_set::tests::reference::selectors();
    let resource = (resource, selectors).prop_map(
        |(((verb, group), (resource, subresource), (namespace, name)), selectors): (
            _,
            Selectors<'static>,
        )| {
            Target::Resource(Box::new(ResourceAttributes {
                verb: verb.into(),
                group: group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                namespace: namespace.into(),
                name: name.into(),
                selectors,
                ..ResourceAttributes::default()
            }))
        },
    );
    let paths = ["/a", "/a/", "/a/b", "/b", "*", "", "/éa", "/è"];
    let paths = paths
        .into_iter()
        .flat_map(|path| ["get", "create", "*"].map(|verb| (path, verb)));
    let paths: Vec<Target<'static>> = paths
        .map(|(path, verb)| Target::NonResource {
            path: path.into(),
            verb: verb.into(),
        })
        .collect();
    prop::collection::vec(resource, 24)
        .prop_map(move |resources| resources.into_iter().chain(paths.clone()).collect())
}

/// Labels that the namespace of a request may have, where they are not known to a set.
fn labellings() -> Vec<Option<BTreeMap<String, String>>> {
    let values = [None, Some("x"), Some("y")];
    let pairs = values
        .iter()
        .flat_map(|k| values.iter().map(move |l| [("k", *k), ("l", *l)]));
    let labels = pairs.map(|pair| {
        let written = pair
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        Some(written.collect())
    });
    std::iter::once(None).chain(labels).collect()
}

/// The sets as they decide where the namespace that `attributes` are about has these labels.
fn labelled<const N: usize>(
    sets: [&PolicySet; N],
    attributes: &Attributes<'_>,
    labels: Option<&BTreeMap<String, String>>,
) -> [PolicySet; N] {
    let name = match &attributes.target {
        Target::Resource(request) => selectable_namespace(request),
        Target::NonResource { .. } => "",
    };
    sets.map(|set| match labels.filter(|_| !name.is_empty()) {
        Some(labels) => set.with_namespace(name, labels),
        None => set.clone(),
    })
}

fn instants() -> [Time; 5] {
    [0, 1, 2, 3, 9].map(|second| Time::parse(&format!("2026-12-01T08:00:0{second}Z")).unwrap())
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn a_difference_is_what_every_request_shows((old, new) in pairs(), targets in targets()) {
        let [old, new] = [old, new].map(built);
        let changes = difference(&old, &new, instants()[1], UNLIMITED).unwrap();
        for change in &changes {
            let witnessed = change.witness.is_some() || !change.region.conditions.is_empty();
            prop_assert!(witnessed, "{:?}", change.region);
        }
        let mut labellings = labellings().into_iter().cycle();
        for user in users() {
            for target in &targets {
                let attributes = Attributes { user: user.clone(), target: target.clone() };
                let labels = labellings.next().unwrap();
                let sets = labelled([&old, &new], &attributes, labels.as_ref());
                for at in instants().into_iter().skip(1) {
                    let [before, after] = sets.each_ref().map(|set| set.authorize(&attributes, at).decision);
                    let holding =
                        changes.iter().filter(|change| change.region.contains(&attributes, at, labels.as_ref()));
                    let found: Vec<[Decision; 2]> =
                        holding.map(|change| [change.before.decision, change.after.decision]).collect();
                    let is_right = match before == after {
                        true => found.is_empty(),
                        false => found.contains(&[before, after]) && found.iter().all(|one| *one == [before, after]),
                    };
                    prop_assert!(is_right, "{attributes:?} at {at}: {before:?} {after:?}, found {found:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn reasons_that_changed_are_what_every_request_shows((old, new) in pairs(), targets in targets()) {
        let [old, new] = [old, new].map(built);
        let changes = changed_causes(&old, &new, instants()[1], UNLIMITED).unwrap();
        for change in &changes {
            let witnessed = change.witness.is_some() || !change.region.conditions.is_empty();
            prop_assert!(witnessed, "{:?}", change.region);
        }
        let mut labellings = labellings().into_iter().cycle();
        for user in users() {
            for target in &targets {
                let attributes = Attributes { user: user.clone(), target: target.clone() };
                let labels = labellings.next().unwrap();
                let sets = labelled([&old, &new], &attributes, labels.as_ref());
                for at in instants().into_iter().skip(1) {
                    let answers = sets.each_ref().map(|set| Answer::of(set, &attributes, at));
                    let [before, after] = answers.each_ref().map(|answer| answer.decision);
                    let is_changed = before == after && answers[0].cause != answers[1].cause;
                    let mut holding =
                        changes.iter().filter(|change| change.region.contains(&attributes, at, labels.as_ref()));
                    let is_right = match is_changed {
                        false => holding.next().is_none(),
                        true => holding.clone().next().is_some()
                            && holding.all(|change| [&change.before, &change.after] == answers.each_ref()),
                    };
                    prop_assert!(is_right, "{attributes:?} at {at}: {answers:?}");
                }
            }
        }
    }
}

/// Who may get secrets by a binding to a role that allows it, and what is forbidden but to vault.
fn with_secrets(subjects: Vec<Subject>, policies: Vec<AuthorizationPolicy>) -> PolicySet {
    let secrets = Rule {
        verbs: fixtures::words(&["get"]),
        api_groups: fixtures::words(&[""]),
        resources: fixtures::words(&["secrets"]),
        ..Rule::default()
    };
    let binding = Binding {
        namespace: String::new(),
        name: "b".to_owned(),
        role: RoleRef {
            kind: RoleKind::ClusterRole,
            name: "r".to_owned(),
        },
        subjects,
        until: None,
    };
    let objects = Objects {
        roles: vec![fixtures::role("", "r", vec![secrets])],
        bindings: vec![binding],
        policies,
        ..Objects::default()
    };
    PolicySet::new(objects, &NeverDeny::default())
}

#[test]
fn what_is_not_worked_out_in_time_is_no_answer() {
    let role = fixtures::role(
        "",
        "r",
        vec![Rule {
            verbs: fixtures::words(&["get"]),
            api_groups: fixtures::words(&[""]),
            resources: fixtures::words(&["pods"]),
            ..Rule::default()
        }],
    );
    let binding = |name: &str, subjects| Binding {
        namespace: String::new(),
        name: name.to_owned(),
        role: RoleRef {
            kind: RoleKind::ClusterRole,
            name: "r".to_owned(),
        },
        subjects,
        until: None,
    };
    let objects = |bindings| Objects {
        roles: vec![role.clone()],
        bindings,
        ..Objects::default()
    };
    let old = PolicySet::new(objects(Vec::new()), &NeverDeny::default());
    let new = PolicySet::new(
        objects(vec![binding("b", vec![Subject::group("g1"), Subject::user("u")])]),
        &NeverDeny::default(),
    );
    let now = instants()[0];
    let late = WorkLimit {
        deadline: Deadline::new(&|| true),
        ..UNLIMITED
    };
    assert_eq!(
        difference(&old, &new, now, late).err(),
        Some(ProofLimitError::Deadline)
    );
    let small = WorkLimit {
        parts: 1,
        ..UNLIMITED
    };
    assert_eq!(
        difference(&old, &new, now, small).err(),
        Some(ProofLimitError::Parts)
    );
    assert_eq!(difference(&old, &new, now, UNLIMITED).unwrap().len(), 2);
}
