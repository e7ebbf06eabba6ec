//! Policies that hold for a while.

use super::*;
use crate::model::Validity;

fn time(text: &str) -> Time {
    Time::parse(text).unwrap()
}

fn morning(effect: Effect, name: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: vec![rule(&["get"], &["pods"])],
        validity: Validity {
            not_before: Some(time("2026-12-01T08:00:00Z")),
            not_after: Some(time("2026-12-01T12:00:00Z")),
        },
        ..policy(effect, name)
    }
}

fn always(effect: Effect, name: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        validity: Validity::default(),
        ..morning(effect, name)
    }
}

fn asked() -> Attributes<'static> {
    asks(user("jane", &[]), "get pods ns p")
}

const BEFORE: &str = "2026-12-01T07:59:59.999999999Z";
const FIRST: &str = "2026-12-01T08:00:00Z";
const LAST: &str = "2026-12-01T11:59:59.999999999Z";
const AFTER: &str = "2026-12-01T12:00:00Z";

#[test]
fn a_policy_holds_from_not_before_on_and_before_not_after() {
    for (effect, holds) in [(Effect::Allow, Decision::Allow), (Effect::Deny, Decision::Deny)] {
        let set = policies(vec![morning(effect, "a")]);
        for (now, decision) in [
            (BEFORE, Decision::NoOpinion),
            (FIRST, holds),
            (LAST, holds),
            (AFTER, Decision::NoOpinion),
        ] {
            assert_eq!(
                set.authorize(&asked(), time(now)).decision,
                decision,
                "{effect:?} {now}"
            );
        }
    }
}

#[test]
fn one_end_alone_is_no_other_end() {
    let mut begins = morning(Effect::Allow, "a");
    begins.validity.not_after = None;
    let mut ends = morning(Effect::Allow, "a");
    ends.validity.not_before = None;
    for (policy, now, decision) in [
        (&begins, BEFORE, Decision::NoOpinion),
        (&begins, "9999-12-31T00:00:00Z", Decision::Allow),
        (&ends, "0001-01-01T00:00:00Z", Decision::Allow),
        (&ends, AFTER, Decision::NoOpinion),
    ] {
        let set = policies(vec![policy.clone()]);
        assert_eq!(set.authorize(&asked(), time(now)).decision, decision, "{now}");
    }
}

#[test]
fn a_policy_outside_its_time_is_as_if_absent() {
    let set = policies(vec![
        morning(Effect::Deny, "a"),
        always(Effect::Deny, "b"),
        AuthorizationPolicy {
            mode: Mode::Shadow,
            ..morning(Effect::Deny, "c")
        },
        AuthorizationPolicy {
            conditions: vec![condition("request.nonResourceAttributes.path == '/a'")],
            ..morning(Effect::Deny, "d")
        },
    ]);
    for (now, cause, shadows, reported) in [(FIRST, "a", 1, 2), (AFTER, "b", 0, 1)] {
        let mut evaluated = 0;
        let mut count = |_, _| evaluated += 1;
        let answer = set.authorize_observed(&asked(), time(now), crate::model::Deadline::NEVER, &mut count);
        assert_eq!(answer.cause.unwrap().name, cause, "{now}");
        assert_eq!(answer.shadow.len(), shadows, "{now}");
        assert_eq!(evaluated, reported, "what is absent is not counted: {now}");
    }
}

#[test]
fn the_trace_names_what_does_not_hold_now() {
    let set = policies(vec![
        morning(Effect::Allow, "a"),
        AuthorizationPolicy {
            resource_rules: Vec::new(),
            ..morning(Effect::Allow, "b")
        },
    ]);
    let findings = |now| -> Vec<bool> {
        let (_, trace) = set.explain(&asked(), time(now));
        let events = trace.events.into_iter();
        events.map(|event| event.finding == Finding::NotInForce).collect()
    };
    assert_eq!(findings(AFTER), [true, true]);
    assert_eq!(findings(FIRST), [false], "the first that allows ends it");
}

#[test]
fn why_nothing_matched_counts_and_names_only_what_holds() {
    let mut far = always(Effect::Allow, "far");
    far.resource_rules = vec![rule(&["list"], &["nodes"])];
    let mut near = morning(Effect::Allow, "near");
    near.resource_rules = vec![rule(&["get"], &["nodes"])];
    let set = policies(vec![far, near]);
    for (now, count, nearest) in [(FIRST, 2, "near"), (BEFORE, 1, "far"), (AFTER, 1, "far")] {
        let unmatched = set.unmatched(&asked(), time(now));
        assert_eq!(unmatched.policies, count, "{now}");
        assert_eq!(unmatched.nearest[0].name, nearest, "{now}");
    }
}

#[test]
fn a_period_that_cannot_be_is_never() {
    let mut never = morning(Effect::Allow, "never");
    never.validity.not_after = never.validity.not_before;
    let set = policies(vec![never]);
    for now in [BEFORE, FIRST, AFTER] {
        assert_eq!(set.authorize(&asked(), time(now)).decision, Decision::NoOpinion);
        assert_eq!(set.unmatched(&asked(), time(now)).policies, 0);
    }
}

#[test]
fn the_ends_of_policies_are_told() {
    let set = policies(vec![morning(Effect::Deny, "a"), always(Effect::Deny, "b")]);
    assert_eq!(set.ends().collect::<Vec<_>>(), [("a", time(AFTER))]);
}
