use super::*;

#[test]
fn validating_webhooks_are_asked_at_once_and_the_first_denial_in_their_order_is_told() {
    let object = pod();
    let request = mk_request(&object);
    let access = PolicySet::default();
    let set = mk_set(vec![mk_webhook("a"), mk_webhook("b"), mk_webhook("c")]);
    let mut chain = Chain::new(Phase::Validate);
    let Progress::Calls(calls) = chain.advance(
        &set,
        &request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        Vec::new(),
    ) else {
        panic!("nobody is asked");
    };
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.object.is_none()));

    let mut allowing = WebhookReply {
        warnings: vec!["careful".into()],
        ..WebhookReply::default()
    };
    allowing.audit_annotations.insert("key".into(), "value".into());
    allowing.audit_annotations.insert("not*so".into(), "value".into());
    allowing
        .audit_annotations
        .insert("two/parts".into(), "value".into());
    let answers = vec![answered(Ok(allowing)), denied("b says no"), denied("c says no")];
    let Progress::Done(outcome) = chain.advance(
        &set,
        &request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        answers,
    ) else {
        panic!("it does not end");
    };
    assert_eq!(message(&outcome), "b says no");
    assert_eq!(outcome.cause.as_ref().unwrap().rule, Some(1));
    assert_eq!(outcome.warnings.iter().collect::<Vec<_>>(), ["careful"]);
    let annotations: Vec<_> = outcome.audit_annotations.into_iter().collect();
    assert_eq!(annotations, [("a/key".to_owned(), "value".to_owned())]);
    let verdicts: Vec<_> = outcome.webhooks.iter().map(|result| &result.verdict).collect();
    assert_eq!(
        verdicts,
        [
            &Verdict::Allowed,
            &Verdict::Denied("b says no".into()),
            &Verdict::Denied("c says no".into())
        ]
    );

    let Progress::Done(outcome) = chain.advance(
        &set,
        &request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        Vec::new(),
    ) else {
        panic!("it goes on");
    };
    assert!(outcome.denial.is_some(), "a run that has ended decides nothing");
}

#[test]
fn an_answer_that_is_missing_is_a_call_that_failed() {
    let object = pod();
    let request = mk_request(&object);
    let access = PolicySet::default();
    for phase in Phase::ALL {
        let set = mk_set(vec![mk_webhook("a")]);
        let mut chain = Chain::new(phase);
        chain.advance(
            &set,
            &request,
            RunOptions::new(&access, Time::UNIX_EPOCH),
            Vec::new(),
        );
        let Progress::Done(outcome) = chain.advance(
            &set,
            &request,
            RunOptions::new(&access, Time::UNIX_EPOCH),
            Vec::new(),
        ) else {
            panic!("it does not end");
        };
        assert!(message(&outcome).contains("no response"), "{outcome:?}");
    }
}

#[test]
fn a_failed_validating_webhook_is_counted_among_those_that_matched() {
    let mut elsewhere = mk_webhook("noop");
    elsewhere.constraints.rules[0].resources = vec!["nodes".into()];
    let failing = |failure_policy| Webhook {
        failure_policy,
        ..mk_webhook("err")
    };
    let set = mk_set(vec![
        elsewhere,
        mk_webhook("noop"),
        failing(FailurePolicy::Ignore),
    ]);
    let (outcome, asked) = validate(&set);
    assert_eq!(asked, ["noop", "err"]);
    assert!(outcome.denial.is_none());
    let annotations: Vec<_> = outcome.audit_annotations.into_iter().collect();
    let key = "failed-open.validating.webhook.admission.k8s.io/round_0_index_1";
    assert_eq!(annotations, [(key.to_owned(), "err".to_owned())]);

    let (outcome, _) = validate(&mk_set(vec![failing(FailurePolicy::Fail), mk_webhook("deny")]));
    assert!(message(&outcome).starts_with("Internal error occurred: failed calling webhook \"err\""));
    let (outcome, _) = validate(&mk_set(vec![mk_webhook("late")]));
    assert_eq!(outcome.denial.unwrap().code, 504);
}

#[test]
fn who_matches_is_settled_before_anybody_is_asked() {
    for phase in Phase::ALL {
        let mut unsettled = mk_webhook("noop");
        let labels = [("team".to_owned(), "a".to_owned())].into();
        unsettled.constraints.namespace_selector = LabelSelector::compile(&labels, &[]).unwrap();
        unsettled.failure_policy = FailurePolicy::Ignore;
        let set = mk_set(vec![mk_webhook("noop"), unsettled]);
        let (outcome, asked) = run(phase, &set, &mk_request(&pod()));
        assert_eq!(asked.len(), usize::from(phase == Phase::Mutate));
        let reported = message(&outcome);
        assert!(
            reported.starts_with("namespaces \"ns\" not found: "),
            "{reported}"
        );
        assert_eq!(outcome.denial.unwrap().code, 404);
    }
}

#[test]
fn annotations_of_many_webhooks_come_to_no_more_than_one_reply_should_hold() {
    let names = ["a", "b", "c", "d"];
    let set = mk_set(names.iter().map(|name| mk_webhook(name)).collect());
    let value = "x".repeat(reply::ALL_BYTES / 3);
    let reply = WebhookReply {
        audit_annotations: [("large".to_owned(), value), ("small".to_owned(), "y".to_owned())].into(),
        ..WebhookReply::default()
    };
    let object = pod();
    let request = mk_request(&object);
    let policies = PolicySet::default();
    let outcome = Chain::run(
        Phase::Validate,
        &set,
        &request,
        RunOptions::new(&policies, Time::UNIX_EPOCH),
        &mut |_| answered(Ok(reply.clone())),
    );
    assert!(outcome.denial.is_none());
    let keys: Vec<&str> = outcome.audit_annotations.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["a/large", "a/small", "b/large", "b/small", "c/small", "d/small"]
    );
}
