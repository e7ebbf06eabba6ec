//! Conditions: all must hold, a false one beats one that errors, and an error
//! never lets more through than the policy's author said.

use super::*;
use crate::authorization::Observer;
use crate::model::Deadline;

const TRUE: &str = "request.user == 'alice'";
const FALSE: &str = "request.user == 'bob'";
const ERROR: &str = "request.nonResourceAttributes.path == '/'";

fn with(
    effect: Effect,
    failure_policy: FailurePolicy,
    mode: Mode,
    conditions: &[&str],
) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        conditions: conditions
            .iter()
            .map(|expression| condition(expression))
            .collect(),
        failure_policy,
        mode,
        ..policy(effect, "p")
    }
}

fn decide(policy: AuthorizationPolicy) -> (Decision, Vec<PolicyResult>) {
    let mut reported = Vec::new();
    let mut observer = |_: usize, evaluation| reported.push(evaluation);
    let set = policies(vec![policy]);
    let answer = set.authorize_observed(
        &asks(user("alice", &[]), "get pods ns p"),
        Time::UNIX_EPOCH,
        Deadline::NEVER,
        &mut observer,
    );
    (answer.decision, reported)
}

#[test]
fn all_must_hold_and_false_beats_an_error() {
    let (deny, none) = (Decision::Deny, Decision::NoOpinion);
    for (conditions, decision, evaluation) in [
        (&[TRUE][..], deny, PolicyResult::Match),
        (&[TRUE, TRUE], deny, PolicyResult::Match),
        (&[TRUE, FALSE], none, PolicyResult::NoMatch),
        (&[ERROR, FALSE], none, PolicyResult::NoMatch),
        (&[FALSE, ERROR], none, PolicyResult::NoMatch),
        (&[TRUE, ERROR], deny, PolicyResult::Error),
    ] {
        let actual = decide(with(Effect::Deny, FailurePolicy::Deny, Mode::Enforce, conditions));
        assert_eq!(actual, (decision, vec![evaluation]), "{conditions:?}");
    }
}

/// Adds up what is reported of the policy that is asked.
#[derive(Default)]
struct Spending(u64);

impl Observer for Spending {
    fn evaluated(&mut self, _: usize, _: PolicyResult) {}

    fn spent(&mut self, policy: usize, cost: u64) {
        assert_eq!(policy, 0);
        self.0 += cost;
    }
}

#[test]
fn what_conditions_cost_is_reported_for_their_policy_in_shadow_too() {
    let spent = |mode, conditions: &[&str]| {
        let mut spending = Spending::default();
        let set = policies(vec![with(Effect::Deny, FailurePolicy::Deny, mode, conditions)]);
        let asked = asks(user("alice", &[]), "get pods ns p");
        set.authorize_observed(&asked, Time::UNIX_EPOCH, Deadline::NEVER, &mut spending);
        spending.0
    };
    assert_eq!(spent(Mode::Enforce, &[]), 0);
    let one = spent(Mode::Enforce, &[TRUE]);
    assert!(one > 0);
    assert_eq!(spent(Mode::Enforce, &[TRUE, TRUE]), 2 * one);
    assert_eq!(spent(Mode::Shadow, &[TRUE]), one);
}

#[test]
fn an_error_denies_if_the_failure_policy_says_so_and_never_allows() {
    let error = |effect, failure_policy| decide(with(effect, failure_policy, Mode::Enforce, &[ERROR]));
    let reported = vec![PolicyResult::Error];
    assert_eq!(
        error(Effect::Deny, FailurePolicy::Deny),
        (Decision::Deny, reported.clone())
    );
    assert_eq!(
        error(Effect::Deny, FailurePolicy::NoOpinion),
        (Decision::NoOpinion, reported.clone())
    );
    assert_eq!(
        error(Effect::Allow, FailurePolicy::Deny),
        (Decision::NoOpinion, reported.clone())
    );
    assert_eq!(
        error(Effect::Allow, FailurePolicy::NoOpinion),
        (Decision::NoOpinion, reported)
    );
    let set = policies(vec![with(
        Effect::Deny,
        FailurePolicy::Deny,
        Mode::Enforce,
        &[ERROR],
    )]);
    let answer = set.authorize(&asks(user("alice", &[]), "get pods ns p"), Time::UNIX_EPOCH);
    assert_eq!(
        answer.reason.to_string(),
        "denied by AuthorizationPolicy \"p\" (condition \"c\" could not be evaluated)"
    );
}

#[test]
fn in_shadow_an_error_is_recorded_with_what_enforce_would_have_decided() {
    for (effect, failure_policy, decision) in [
        (Effect::Deny, FailurePolicy::Deny, Decision::Deny),
        (Effect::Deny, FailurePolicy::NoOpinion, Decision::NoOpinion),
        (Effect::Allow, FailurePolicy::Deny, Decision::NoOpinion),
    ] {
        let erring = || with(effect, failure_policy, Mode::Shadow, &[ERROR]);
        let set = policies(vec![erring()]);
        let answer = set.authorize(&asks(user("alice", &[]), "get pods ns p"), Time::UNIX_EPOCH);
        assert_eq!(answer.decision, Decision::NoOpinion);
        let [noted] = &answer.shadow[..] else {
            panic!("{:?}", answer.shadow)
        };
        assert_eq!(noted.decision, decision);
        assert!(
            noted.error.as_ref().unwrap().starts_with("condition `c`: "),
            "{:?}",
            noted.error
        );
        assert_eq!(decide(erring()).1, [PolicyResult::Error]);
    }
}

#[test]
fn a_condition_that_takes_longer_than_there_is_time_has_failed() {
    let long = "lists.range(1000).all(a, lists.range(60).all(b, a < 1000))";
    let decided = |effect, conditions: &[&str], time: usize| {
        let asked = std::cell::Cell::new(0);
        let expired = || {
            asked.set(asked.get() + 1);
            asked.get() > time
        };
        let set = policies(vec![with(effect, FailurePolicy::Deny, Mode::Enforce, conditions)]);
        let asks = asks(user("alice", &[]), "get pods ns p");
        let deadline = Deadline::new(&expired);
        let answer = set.authorize_observed(&asks, Time::UNIX_EPOCH, deadline, &mut ());
        (answer.decision, asked.get())
    };
    let false_in_the_end = format!("!({long}) || request.user == 'bob'");
    for time in [0, 3] {
        assert_eq!(
            decided(Effect::Deny, &[&false_in_the_end], time),
            (Decision::Deny, time + 1)
        );
        assert_eq!(
            decided(Effect::Allow, &[long], time),
            (Decision::NoOpinion, time + 1)
        );
    }
    // What is left ends at once, but is not waited for where nothing is left.
    assert_eq!(decided(Effect::Deny, &[long, long, long], 0), (Decision::Deny, 3));
    assert_eq!(
        decided(Effect::Deny, &[&false_in_the_end], usize::MAX).0,
        Decision::NoOpinion
    );
}

#[test]
fn never_deny_overrides_the_failure_policy() {
    let set = policies(vec![with(
        Effect::Deny,
        FailurePolicy::Deny,
        Mode::Enforce,
        &[ERROR],
    )]);
    let node = asks(user("system:node:n", &["system:nodes"]), "get pods ns p");
    assert_eq!(
        set.authorize(&node, Time::UNIX_EPOCH).decision,
        Decision::NoOpinion
    );
    let (_, trace) = set.explain(&node, Time::UNIX_EPOCH);
    assert_eq!(trace.events[0].finding, Finding::NeverDenied { rule: Some(0) });
}

#[test]
fn the_trace_tells_of_errors() {
    let set = policies(vec![with(
        Effect::Deny,
        FailurePolicy::NoOpinion,
        Mode::Enforce,
        &[ERROR],
    )]);
    let (_, trace) = set.explain(&asks(user("alice", &[]), "get pods ns p"), Time::UNIX_EPOCH);
    let Finding::ConditionError {
        rule: Some(0),
        condition,
        decision: Decision::NoOpinion,
        ..
    } = &trace.events[0].finding
    else {
        panic!("{trace:?}")
    };
    assert_eq!(condition, "c");
}

#[test]
fn a_pattern_of_word_characters_matches_no_cyrillic_name() {
    let deny = || {
        with(
            Effect::Deny,
            FailurePolicy::Deny,
            Mode::Enforce,
            &[r"!request.user.matches('^[\\w.]+@corp[.]example$')"],
        )
    };
    let decide = |name: &str| {
        let attributes = asks(user(name, &[]), "get pods ns p");
        policies(vec![deny()])
            .authorize(&attributes, Time::UNIX_EPOCH)
            .decision
    };
    assert_eq!(decide("a.lice_1@corp.example"), Decision::NoOpinion);
    // The first letter looks like an a, and is none.
    assert_eq!(decide("\u{430}lice@corp.example"), Decision::Deny);
    assert_eq!(decide("alice@corp.example\n"), Decision::Deny);
}
