use std::collections::BTreeSet;

use super::*;
use portcullis_cel::{CompileBudget, Version};

#[test]
fn nobody_is_shown_what_configures_admission_or_is_not_stored() {
    let object = pod();
    for phase in Phase::ALL {
        for request in [&configuration(&object), &review(&object)] {
            let (outcome, asked) = run(phase, &mk_set(vec![mk_webhook("deny")]), request);
            assert!(asked.is_empty() && outcome.denial.is_none());
        }
    }
}

fn configuration<'o>(object: &'o Document<'static>) -> Request<'o> {
    let mut request = mk_request(object);
    request.request_kind.group = "admissionregistration.k8s.io".into();
    request.request_kind.kind = "MutatingWebhookConfiguration".into();
    request.kind = request.request_kind.clone();
    request
}

fn review<'o>(object: &'o Document<'static>) -> Request<'o> {
    let mut request = mk_request(object);
    request.request_resource.group = "authorization.k8s.io".into();
    request.request_resource.resource = "subjectaccessreviews".into();
    request
}

#[test]
fn webhooks_of_static_configurations_go_first_and_see_what_configures_admission() {
    let of = |configuration: &str, name: &str| Webhook {
        configuration: configuration.into(),
        ..mk_webhook(name)
    };
    let object = pod();
    for phase in Phase::ALL {
        let asked = |request: &Request<'_>| {
            let set = mk_set(vec![of("a", "noop"), of("b.static.k8s.io", "set s=1")]);
            run(phase, &set, request).1
        };
        assert_eq!(asked(&mk_request(&object)), ["set s=1", "noop"]);
        assert_eq!(asked(&configuration(&object)), ["set s=1"]);
        assert!(asked(&review(&object)).is_empty());
    }
}

#[test]
fn a_run_may_be_limited_to_one_configuration() {
    let of = |configuration: &str, name: &str| Webhook {
        configuration: configuration.into(),
        ..mk_webhook(name)
    };
    let set = mk_set(vec![
        of("a", "once a=1"),
        of("b", "once b=1"),
        of("b", "once c=1"),
    ]);
    assert!(
        set.has_policy_or_configuration(Phase::Mutate, "b")
            && !set.has_policy_or_configuration(Phase::Validate, "c")
    );
    let access = PolicySet::default();
    let (object, mut asked) = (pod(), Vec::new());
    let limited = RunOptions {
        only: Some("b"),
        ..RunOptions::new(&access, Time::UNIX_EPOCH)
    };
    let outcome = Chain::run(Phase::Mutate, &set, &mk_request(&object), limited, &mut |call| {
        asked.push(call.webhook.name.clone());
        behave(&call.webhook.name, call, &object)
    });
    assert_eq!(labels(&outcome), json!({"app": "a", "b": "1", "c": "1"}));
    assert_eq!(asked, ["once b=1", "once c=1"]);
}

#[test]
fn a_webhook_in_shadow_decides_nothing() {
    let object = pod();
    let request = mk_request(&object);
    for names in [["set s=1", "deny"], ["c/set s=1", "c/deny"]] {
        let settings = AdmissionSettings {
            shadow_webhooks: names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>(),
            ..AdmissionSettings::default()
        };
        let webhooks = || vec![mk_webhook("set a=1"), mk_webhook("set s=1"), mk_webhook("deny")];
        let set = mk_set_with(webhooks(), &settings);
        let (outcome, asked) = mutate(&set);
        assert_eq!(asked, ["set a=1"]);
        assert_eq!(labels(&outcome), json!({"app": "a", "a": "1"}));
        assert!(outcome.denial.is_none());
        let compared: Vec<Comparison> = outcome
            .shadows
            .iter()
            .map(|call| shadow_result(call, &request, behave(&call.webhook.name, call, &object), None))
            .collect();
        assert_eq!(
            compared[0].changed,
            ["/metadata/labels/s"],
            "as at its place in the chain"
        );
        assert!(compared[0].allows());
        assert_eq!(compared[1].verdict, Verdict::Denied("no".into()));
        assert!(!compared[1].allows());

        let (outcome, asked) = validate(&set);
        assert_eq!((asked.len(), outcome.shadows.len()), (1, 2));
        assert!(outcome.denial.is_none());
    }
}

#[test]
fn a_shadow_whose_namespace_is_not_known_refuses_nothing() {
    let settings = AdmissionSettings {
        shadow_webhooks: ["noop".to_owned()].into(),
        ..AdmissionSettings::default()
    };
    let mut unsettled = mk_webhook("noop");
    let labels = [("team".to_owned(), "a".to_owned())].into();
    unsettled.constraints.namespace_selector = LabelSelector::compile(&labels, &[]).unwrap();
    let set = mk_set_with(vec![unsettled], &settings);
    assert!(mutate(&set).0.denial.is_none() && validate(&set).0.denial.is_none());
}

#[test]
fn past_the_deadline_nobody_is_asked() {
    let access = PolicySet::default();
    let object = pod();
    for phase in Phase::ALL {
        let late = RunOptions {
            deadline: Deadline::new(&|| true),
            ..RunOptions::new(&access, Time::UNIX_EPOCH)
        };
        let set = mk_set(vec![mk_webhook("noop")]);
        let Progress::Done(outcome) = Chain::new(phase).advance(&set, &mk_request(&object), late, Vec::new())
        else {
            panic!("somebody is asked");
        };
        assert_eq!(outcome.denial.unwrap().code, 504);
    }
}

#[test]
fn of_a_thousand_webhooks_only_those_for_the_resource_are_looked_at() {
    let of = |number: usize| {
        let mut webhook = mk_webhook("noop");
        webhook.constraints.rules[0].resources = match number {
            0..5 => vec!["pods".into()],
            _ => vec![format!("kind{number}s")],
        };
        webhook
    };
    let set = mk_set((0..1000).map(of).collect());
    let object = pod();
    let looked_at = set.mutating_webhooks.candidates(&mk_request(&object), None);
    let looked_at: Vec<usize> = looked_at.into_iter().map(|(place, _)| place).collect();
    assert_eq!(looked_at, [0, 1, 2, 3, 4]);
    assert_eq!(mutate(&set).1.len(), 5);
}

/// Whenever the time runs out, also between two looks at the clock.
#[test]
fn a_condition_without_time_lets_nothing_pass() {
    let access = PolicySet::default();
    let object = pod();
    let condition = || CompiledMatchCondition {
        name: "c".into(),
        expression: ExpressionEnvironment::new(Version::NEWEST, false)
            .condition("[1, 2].all(n, n > 0)", &CompileBudget::new())
            .unwrap(),
    };
    for (phase, failure_policy) in [
        (Phase::Validate, FailurePolicy::Ignore),
        (Phase::Validate, FailurePolicy::Fail),
        (Phase::Mutate, FailurePolicy::Ignore),
        (Phase::Mutate, FailurePolicy::Fail),
    ] {
        let set = mk_set(vec![Webhook {
            failure_policy,
            match_conditions: vec![condition()],
            ..mk_webhook("noop")
        }]);
        let mut is_asked = false;
        for looks in 0..100_usize {
            let left = std::cell::Cell::new(looks);
            let expired = || {
                let is_over = left.get() == 0;
                left.set(left.get().saturating_sub(1));
                is_over
            };
            let limited = RunOptions {
                deadline: Deadline::new(&expired),
                ..RunOptions::new(&access, Time::UNIX_EPOCH)
            };
            let request = mk_request(&object);
            match Chain::new(phase).advance(&set, &request, limited, Vec::new()) {
                Progress::Calls(_) => is_asked = true,
                Progress::Done(outcome) => {
                    let code = outcome.denial.map(|denial| denial.code);
                    assert_eq!(code, Some(504), "{phase:?} after {looks} looks");
                }
            }
        }
        assert!(is_asked);
    }
}
