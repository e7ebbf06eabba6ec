//! AccessRequests: what they grant and lift, for whom, where and when.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::authorization::rbac::rule_allows;
use crate::authorization::{
    AccessEntry, AccessRequest, AccessRequestSettings, AccessRequestState, AccessRequestTrust,
    AccessRequester, EscalationQuery, EscalationTarget, OpenRequest, OpenResource, OpenTarget, Rule,
    SharedObjects, Within,
};
use crate::model::{CauseKind, Target, User};

const TRUST: AccessRequestTrust = AccessRequestTrust {
    settings: AccessRequestSettings {
        max_duration_seconds: 3_600,
        approvals: 1,
    },
    since: None,
};

fn at(seconds: i64) -> Time {
    Time::UNIX_EPOCH.plus_seconds(seconds)
}

fn approval(username: &str, seconds: i64) -> AccessEntry {
    AccessEntry {
        username: username.to_owned(),
        time: at(seconds),
    }
}

/// Ann asks for `edit` in `prod` for 1,000 seconds, and Bob approves at 10,000.
fn request() -> AccessRequest {
    AccessRequest {
        name: "inc-1".to_owned(),
        role: "edit".to_owned(),
        namespaces: texts(&["prod"]),
        duration_seconds: 1_000,
        reason: "INC-1".to_owned(),
        lifts: Vec::new(),
        requester: AccessRequester {
            username: "ann".to_owned(),
            ..AccessRequester::default()
        },
        approvals: vec![approval("bob", 10_000)],
        is_denied: false,
        is_withdrawn: false,
        created: Some(at(9_000)),
    }
}

fn set_of(
    requests: Vec<AccessRequest>,
    policies: Vec<AuthorizationPolicy>,
    trust: AccessRequestTrust,
) -> PolicySet {
    let objects = Objects {
        roles: vec![
            role("", "edit", vec![allows(&["get", "update"], &["pods"])]),
            role("", "view", vec![allows(&["get"], &["pods", "secrets"])]),
        ],
        policies,
        ..Objects::default()
    };
    let objects = SharedObjects {
        access_requests: requests.into_iter().map(Arc::new).collect(),
        ..objects.into()
    };
    PolicySet::new(objects, &NeverDeny::default()).with_access_request_trust(Some(trust))
}

fn decides(set: &PolicySet, asked: &str, seconds: i64) -> Decision {
    set.authorize(&asks(user("ann", &[]), asked), at(seconds))
        .decision
}

#[test]
fn it_grants_the_role_in_its_namespaces_and_names_who_asked_and_approved() {
    let set = set_of(vec![request()], Vec::new(), TRUST);
    let ann = || user("ann", &[]);
    let decided = set.authorize(&asks(ann(), "update pods prod p"), at(10_500));
    assert_eq!(decided.decision, Decision::Allow);
    assert_eq!(
        decided.reason.to_string(),
        "allowed by AccessRequest \"inc-1\" of ClusterRole \"edit\" to User \"ann\" until 1970-01-01T03:03:20Z, \
         approved by \"bob\": INC-1"
    );
    let cause = decided.cause.unwrap();
    assert_eq!(cause.to_string(), "AccessRequest/inc-1, rule 0");
    for asked in [
        "update pods dev p",
        "update pods - p",
        "delete pods prod p",
        "get secrets prod s",
        "* pods prod",
    ] {
        assert_eq!(decides(&set, asked, 10_500), Decision::NoOpinion, "{asked}");
    }
    let other = user("bob", &["ann"]);
    assert_eq!(
        set.authorize(&asks(other, "get pods prod"), at(10_500)).decision,
        Decision::NoOpinion
    );
    assert!(!set.allows_without_access_requests(&asks(ann(), "get pods prod"), at(10_500), Deadline::NEVER));
    let (_, trace) = set.explain(&asks(ann(), "get pods prod"), at(10_500));
    assert!(matches!(
        trace.events.last().unwrap().finding,
        Finding::Match { rule: 0, .. }
    ));
}

#[test]
fn it_grants_to_the_uid_that_asked_alone() {
    let of = |uid: &str| {
        let mut request = request();
        request.requester.uid = uid.to_owned();
        set_of(vec![request], Vec::new(), TRUST)
    };
    for (asked, asks_now, is_allowed) in [
        ("", "", true),
        ("1", "1", true),
        ("1", "", false),
        ("", "1", false),
        ("1", "2", false),
    ] {
        let mut attributes = asks(user("ann", &[]), "get pods prod");
        attributes.user.uid = asks_now.into();
        let decision = of(asked).authorize(&attributes, at(10_500)).decision;
        assert_eq!(decision == Decision::Allow, is_allowed, "{asked} {asks_now}");
    }
}

#[test]
fn without_trust_or_before_it_none_grants() {
    let set = set_of(vec![request()], Vec::new(), TRUST);
    assert_eq!(
        decides(
            &set.clone().with_access_request_trust(None),
            "get pods prod",
            10_500
        ),
        Decision::NoOpinion
    );
    for (since, created, expected) in [
        (8_999, Some(9_000), Decision::Allow),
        (9_000, Some(9_000), Decision::NoOpinion),
        (8_999, None, Decision::NoOpinion),
    ] {
        let trust = AccessRequestTrust {
            since: Some(at(since)),
            ..TRUST
        };
        let request = AccessRequest {
            created: created.map(at),
            ..request()
        };
        let set = set_of(vec![request], Vec::new(), trust);
        assert_eq!(
            decides(&set, "get pods prod", 10_500),
            expected,
            "{since} {created:?}"
        );
    }
}

#[test]
fn a_replica_grants_what_it_has_seen_approved_until_it_sees_it_end_or_its_time_is_over() {
    let unseen = AccessRequest {
        approvals: Vec::new(),
        ..request()
    };
    let withdrawn = AccessRequest {
        is_withdrawn: true,
        ..request()
    };
    let [behind, ahead, ended] =
        [unseen, request(), withdrawn].map(|seen| set_of(vec![seen], Vec::new(), TRUST));
    for (now, expected) in [
        (
            10_500,
            [Decision::NoOpinion, Decision::Allow, Decision::NoOpinion],
        ),
        (11_000, [Decision::NoOpinion; 3]),
    ] {
        let found = [&behind, &ahead, &ended].map(|replica| decides(replica, "get pods prod", now));
        assert_eq!(found, expected, "{now}");
    }
}

#[test]
fn roles_that_come_later_are_granted_then() {
    let asked = AccessRequest {
        role: "late".to_owned(),
        ..request()
    };
    let set = set_of(vec![asked], Vec::new(), TRUST);
    assert_eq!(decides(&set, "get pods prod", 10_500), Decision::NoOpinion);
    let late = role("", "late", vec![allows(&["get"], &["pods"])]);
    let set = set.with_roles(&[Arc::new(late)]);
    assert_eq!(decides(&set, "get pods prod", 10_500), Decision::Allow);
}

/// Nobody updates pods, and Ann may only get them.
fn refusing(liftable: bool) -> Vec<AuthorizationPolicy> {
    let deny = AuthorizationPolicy {
        resource_rules: vec![rule(&["update", "delete"], &["pods"])],
        liftable,
        ..policy(Effect::Deny, "frozen")
    };
    let limit = AuthorizationPolicy {
        subjects: vec![Subject::user("ann")],
        resource_rules: vec![rule(&["get"], &["*"])],
        liftable,
        ..policy(Effect::Limit, "looks")
    };
    vec![deny, limit]
}

#[test]
fn it_lifts_what_it_names_and_is_liftable_for_what_the_role_allows_there() {
    let of = |lifts: &[&str], liftable| {
        let request = AccessRequest {
            lifts: texts(lifts),
            ..request()
        };
        set_of(vec![request], refusing(liftable), TRUST)
    };
    let both = ["frozen", "looks"];
    for (lifts, liftable, asked, seconds, expected) in [
        (&both[..], true, "update pods prod p", 10_500, Decision::Allow),
        (&both[..1], true, "update pods prod p", 10_500, Decision::Deny),
        (&both[1..], true, "update pods prod p", 10_500, Decision::Deny),
        (&both, false, "update pods prod p", 10_500, Decision::Deny),
        (&both, true, "update pods dev p", 10_500, Decision::Deny),
        (&both, true, "delete pods prod p", 10_500, Decision::Deny),
        (&both, true, "update pods prod p", 11_000, Decision::Deny),
        (&both, true, "get pods prod p", 10_500, Decision::Allow),
    ] {
        let set = of(lifts, liftable);
        assert_eq!(
            decides(&set, asked, seconds),
            expected,
            "{lifts:?} {liftable} {asked} {seconds}"
        );
        let refused = set.refuse(&asks(user("ann", &[]), asked), at(seconds), Deadline::NEVER);
        assert_eq!(
            refused.decision == Decision::Deny,
            expected == Decision::Deny,
            "{lifts:?} {asked}"
        );
    }
    let set = of(&both, true);
    let decided = set.authorize(&asks(user("ann", &[]), "update pods prod p"), at(10_500));
    assert_eq!(decided.cause.unwrap().to_string(), "AccessRequest/inc-1, rule 0");
    let (_, trace) = set.explain(&asks(user("ann", &[]), "update pods prod p"), at(10_500));
    let lifted = trace
        .events
        .iter()
        .filter(|event| matches!(event.finding, Finding::Lifted { .. }));
    assert_eq!(lifted.count(), 2);
    // The verbs of AccessRequests are not lifted by one.
    let ann = asks(user("ann", &[]), "update pods prod p");
    assert!(!set.allows_without_access_requests(&ann, at(10_500), Deadline::NEVER));
}

// A naive reference: each AccessRequest by itself, as the documents say it.

fn reference_grants(
    request: &AccessRequest,
    trust: AccessRequestTrust,
    attributes: &Attributes<'_>,
    now: i64,
) -> bool {
    let needed = trust.settings.approvals;
    let mut people: Vec<&AccessEntry> = Vec::new();
    for entry in &request.approvals {
        let is_new = !people.iter().any(|one| one.username == entry.username);
        if people.len() < needed && is_new && entry.username != request.requester.username {
            people.push(entry);
        }
    }
    let is_approved = people.len() == needed;
    let start = people.iter().map(|entry| entry.time).max();
    let in_time = start.is_some_and(|start| {
        let length = request.duration_seconds.min(trust.settings.max_duration_seconds);
        start <= at(now + 60) && at(now) < start.plus_seconds(length)
    });
    let is_believed = trust
        .since
        .is_none_or(|since| request.created.is_some_and(|created| created > since));
    let is_user =
        request.requester.username == attributes.user.name && request.requester.uid == attributes.user.uid;
    let Target::Resource(asked) = &attributes.target else {
        return false;
    };
    let is_there =
        request.namespaces.is_empty() || request.namespaces.iter().any(|one| *one == asked.namespace);
    let rule = match request.role.as_str() {
        "edit" => allows(&["get", "update"], &["pods"]),
        "view" => allows(&["get"], &["pods", "secrets"]),
        _ => return false,
    };
    !request.is_denied
        && !request.is_withdrawn
        && is_approved
        && in_time
        && is_believed
        && is_user
        && is_there
        && rule_allows(&rule, attributes)
}

fn some_request() -> impl Strategy<Value = AccessRequest> {
    let people = prop::sample::select(vec!["ann", "bob", "eve"]);
    let entries = prop::collection::vec((people.clone(), 0..200_i64), 0..4);
    let namespaces = prop::sample::subsequence(vec!["prod", "dev"], 0..=2);
    let lifts = prop::sample::subsequence(vec!["frozen", "looks"], 0..=2);
    let ends = (prop::bool::weighted(0.15), prop::bool::weighted(0.15));
    let role = prop::sample::select(vec!["edit", "view", "none"]);
    let uid = prop::sample::select(vec!["", "1"]);
    (
        entries,
        namespaces,
        lifts,
        ends,
        (people, uid, role),
        1..200_i64,
        prop::option::of(0..10_i64),
    )
        .prop_map(
            |(entries, namespaces, lifts, (is_denied, is_withdrawn), (who, uid, role), duration, created)| {
                AccessRequest {
                    role: role.to_owned(),
                    namespaces: texts(&namespaces),
                    lifts: texts(&lifts),
                    duration_seconds: duration,
                    approvals: entries
                        .into_iter()
                        .map(|(who, seconds)| approval(who, seconds))
                        .collect(),
                    requester: AccessRequester {
                        username: who.to_owned(),
                        uid: uid.to_owned(),
                        groups: Vec::new(),
                    },
                    is_denied,
                    is_withdrawn,
                    created: created.map(at),
                    ..request()
                }
            },
        )
}

proptest! {
    #[test]
    fn requests_decide_as_each_by_itself_would(
        requests in prop::collection::vec(some_request(), 0..4),
        (approvals, longest, since) in (1..3_usize, 50..200_i64, prop::option::of(0..5_i64)),
        (who, uid) in (prop::sample::select(vec!["ann", "bob"]), prop::sample::select(vec!["", "1"])),
        asked in prop::sample::select(vec![
            "get pods prod", "update pods prod", "update pods dev", "delete pods prod", "get secrets dev", "get pods -",
        ]),
        now in 0..300_i64,
    ) {
        let trust = AccessRequestTrust {
            settings: AccessRequestSettings { max_duration_seconds: longest, approvals },
            since: since.map(at),
        };
        let mut attributes = asks(user(who, &[]), asked);
        attributes.user.uid = uid.into();
        let granting: Vec<&AccessRequest> = requests
            .iter()
            .filter(|request| reference_grants(request, trust, &attributes, now))
            .collect();
        let is_lifted = |name: &str| granting.iter().any(|request| request.lifts.iter().any(|one| one == name));
        let verb = asked.split(' ').next().unwrap();
        let is_frozen = matches!(verb, "update" | "delete") && !is_lifted("frozen");
        let is_limited = who == "ann" && verb != "get" && !is_lifted("looks");
        let expected = match (is_frozen || is_limited, granting.is_empty()) {
            (true, _) => Decision::Deny,
            (false, false) => Decision::Allow,
            (false, true) => Decision::NoOpinion,
        };
        let set = set_of(requests.clone(), refusing(true), trust);
        prop_assert_eq!(set.authorize(&attributes, at(now)).decision, expected);
        let states = requests.iter().filter(|request| {
            let is_asked = request.is_requested_by(&attributes.user);
            is_asked && request.state(Some(trust), at(now)) == AccessRequestState::InForce
        });
        prop_assert!(states.count() >= granting.len());
    }
}

#[test]
fn who_can_and_what_can_list_what_is_in_force_until_it_ends() {
    let set = set_of(vec![request()], Vec::new(), TRUST);
    let open = OpenRequest {
        verb: "update".to_owned(),
        target: OpenTarget::Resource(OpenResource {
            group: String::new(),
            resource: "pods".to_owned(),
            subresource: String::new(),
            name: None,
            within: Within::Namespace("prod".to_owned()),
        }),
    };
    let via = |seconds: i64| {
        let listed = set.who_can(&open, at(seconds), Deadline::NEVER).unwrap();
        let ann = listed.into_iter().find(|grantee| grantee.subject.name == "ann");
        ann.map(|grantee| grantee.via)
    };
    let found = via(10_500).unwrap();
    assert_eq!(
        (found[0].kind, found[0].name.as_str()),
        (CauseKind::AccessRequest, "inc-1")
    );
    assert_eq!((found[0].namespace.as_str(), found.len()), ("prod", 1));
    assert_eq!(found[0].limits, ["until 1970-01-01T03:03:20Z"]);
    assert_eq!((via(9_000), via(11_000)), (None, None));
    let mut ann = user("ann", &[]);
    let rules = |user: &User<'_>| {
        let rules = set
            .what_can(user, &Within::AnyNamespace, at(10_500), Deadline::NEVER)
            .unwrap();
        rules
            .iter()
            .filter(|one| one.via.kind == CauseKind::AccessRequest)
            .count()
    };
    assert_eq!(rules(&ann), 1);
    ann.uid = "1".into();
    assert_eq!(rules(&ann), 0);
}

#[test]
fn who_may_ask_for_a_role_can_come_to_have_it() {
    let asks_for = Rule {
        verbs: words(&["request"]),
        api_groups: words(&["rbac.authorization.k8s.io"]),
        resources: words(&["clusterroles"]),
        resource_names: texts(&["admin"]),
        ..Rule::default()
    };
    let creates = Rule {
        verbs: words(&["create"]),
        api_groups: words(&["portcullis.dev"]),
        resources: words(&["accessrequests"]),
        ..Rule::default()
    };
    let everything = Rule {
        verbs: words(&["*"]),
        api_groups: words(&["*"]),
        resources: words(&["*"]),
        ..Rule::default()
    };
    let set = set(Objects {
        roles: vec![
            role("", "admin", vec![everything]),
            role("", "asks", vec![asks_for, creates]),
        ],
        bindings: vec![binding("", "asks", "asks", vec![Subject::user("ann")])],
        ..Objects::default()
    });
    let query = EscalationQuery {
        from: None,
        to: EscalationTarget::ClusterAdmin,
        accounts: Vec::new(),
    };
    let found = set.escalations(&query, at(0), Deadline::NEVER).unwrap();
    let steps: Vec<_> = found.paths.iter().flat_map(|path| &path.steps).collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].by.starts_with("request clusterroles"), "{}", steps[0].by);
    assert!(
        steps[0]
            .limits
            .iter()
            .any(|limit| limit.contains("somebody else approves"))
    );
}
