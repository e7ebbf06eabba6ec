//! The caller's deadline, between one policy and the next.

use std::cell::Cell;

use portcullis_policy::admission::{Phase, RunOptions};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::model::{Deadline, PolicyResult, Time};

use super::mutation::mk_mutation;
use super::{mk_policy, mk_review, mk_set, outcome};

/// The clock is not read before each of many policies, but soon enough: those that are
/// left out have no result, and the request is refused.
#[test]
fn of_many_policies_those_after_the_deadline_are_not_asked() {
    let policy = mk_policy("  validations: [{expression: 'object.data.size() >= 0'}]", "Deny");
    let policies = (0..200).map(|number| {
        let named = policy.replace("name: p", &format!("name: p-{number:03}"));
        let named = named.replace("policyName: p", &format!("policyName: p-{number:03}"));
        named.replace("name: b", &format!("name: b-{number:03}"))
    });
    let set = mk_set(&policies.collect::<Vec<_>>().join("---\n"));
    let review = mk_review(&serde_json::json!({"data": {}}));
    let access = PolicySet::default();
    let judged_within = |looks: usize| {
        let left = Cell::new(looks);
        let expired = || {
            let is_over = left.get() == 0;
            left.set(left.get().saturating_sub(1));
            is_over
        };
        let run = RunOptions {
            deadline: Deadline::new(&expired),
            ..RunOptions::new(&access, Time::UNIX_EPOCH)
        };
        outcome(Phase::Validate, &set, &review, run)
    };
    let all = judged_within(usize::MAX);
    assert!(all.denial.is_none());
    assert_eq!(all.evaluations.len(), 200);
    assert!(
        all.evaluations
            .iter()
            .all(|one| one.result == PolicyResult::Match)
    );
    for looks in [0, 1, 5] {
        let late = judged_within(looks);
        assert!(late.denial.is_some(), "{looks} looks");
        assert!(late.evaluations.len() <= 8 * looks, "{looks} looks");
    }
}

#[test]
fn an_expression_is_given_up_at_the_deadline() {
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let costly = ["a", "b", "c", "d", "e"]
        .iter()
        .fold("true".to_owned(), |inner, variable| {
            format!("{list}.all({variable}, {inner})")
        });
    let validated = |spec: String| (Phase::Validate, mk_policy(&spec, "Deny"));
    let patch = format!("{costly} ? [JSONPatch{{op: 'add', path: '/data', value: {{}}}}] : []");
    let review = mk_review(&serde_json::json!({"metadata": {"name": "n"}}));
    let access = PolicySet::default();
    for (phase, manifests) in [
        validated(format!("  validations: [{{expression: '{costly}'}}]")),
        validated(format!(
            "  matchConditions: [{{name: c, expression: '{costly}'}}]\n  validations: [{{expression: 'true'}}]"
        )),
        (Phase::Mutate, mk_mutation("m", "Never", &patch)),
    ] {
        let set = mk_set(&manifests);
        let is_denied_after = |looks: usize| {
            let left = Cell::new(looks);
            let expired = || {
                let is_over = left.get() == 0;
                left.set(left.get().saturating_sub(1));
                is_over
            };
            let run = RunOptions {
                deadline: Deadline::new(&expired),
                ..RunOptions::new(&access, Time::UNIX_EPOCH)
            };
            outcome(phase, &set, &review, run).denial.is_some()
        };
        assert!(!is_denied_after(usize::MAX), "{manifests}");
        assert!(is_denied_after(20), "{manifests}");
    }
}
