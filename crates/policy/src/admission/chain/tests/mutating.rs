use super::*;

#[test]
fn webhooks_run_by_configuration_name_and_then_in_the_order_of_the_list() {
    let of = |configuration: &str, name: &str| Webhook {
        configuration: configuration.into(),
        ..mk_webhook(name)
    };
    let set = mk_set(vec![
        of("z", "set order=z1"),
        of("a", "set order=a2"),
        of("Z", "set order=Z"),
        of("a", "set order=a1"),
    ]);
    let (outcome, asked) = mutate(&set);
    assert_eq!(
        asked,
        ["set order=Z", "set order=a2", "set order=a1", "set order=z1"]
    );
    assert_eq!(labels(&outcome), json!({"app": "a", "order": "z1"}));
    assert_eq!(
        outcome.patch,
        r#"[{"op":"add","path":"/metadata/labels/order","value":"z1"}]"#
    );
}

#[test]
fn those_of_if_needed_run_once_more_where_something_changed_after_them() {
    // What each does, `+` for IfNeeded; who is asked again.
    let table: &[(&[&str], &[&str])] = &[
        (&["+once a=1"], &[]),
        (&["+noop", "once b=1"], &["noop"]),
        (&["noop", "once b=1"], &[]),
        (&["+if b a=1", "+once b=1"], &["if b a=1", "once b=1"]),
        (&["+set f=1", "+set f=2"], &["set f=1", "set f=2"]),
        (&["+noop", "+once b=1", "+if app c=1"], &["noop", "once b=1"]),
        (&["+once a=1", "+noop"], &[]),
        (&["+noop", "+set app=a"], &[]),
    ];
    for (webhooks, again) in table {
        let of = |text: &&str| Webhook {
            reinvocation: match text.strip_prefix('+') {
                Some(_) => Reinvocation::IfNeeded,
                None => Reinvocation::Never,
            },
            ..mk_webhook(text.trim_start_matches('+'))
        };
        let (outcome, asked) = mutate(&mk_set(webhooks.iter().map(of).collect()));
        assert_eq!(asked[webhooks.len()..], **again, "{webhooks:?}");
        let rounds = outcome.webhooks.iter().filter(|result| result.round == 1);
        assert_eq!(rounds.count(), again.len(), "{webhooks:?}");
        assert!(outcome.denial.is_none());
    }
}

#[test]
fn a_webhook_that_failed_open_runs_once_more_too() {
    let set = mk_set(vec![
        Webhook {
            reinvocation: Reinvocation::IfNeeded,
            failure_policy: FailurePolicy::Ignore,
            ..mk_webhook("err")
        },
        mk_webhook("once b=1"),
    ]);
    let (outcome, asked) = mutate(&set);
    assert_eq!(asked, ["err", "once b=1", "err"]);
    let keys: Vec<&str> = outcome.audit_annotations.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0",
            "failed-open.mutation.webhook.admission.k8s.io/round_1_index_0",
            "mutation.webhook.admission.k8s.io/round_0_index_0",
            "mutation.webhook.admission.k8s.io/round_0_index_1",
            "mutation.webhook.admission.k8s.io/round_1_index_0",
            "paths.webhook.portcullis.dev/round_0_index_1",
        ]
    );
    assert_eq!(
        outcome.audit_annotations["paths.webhook.portcullis.dev/round_0_index_1"],
        r#"{"configuration":"c","webhook":"once b=1","paths":["/metadata/labels/b"]}"#
    );
}

#[test]
fn selectors_see_the_object_as_changed_so_far_and_no_webhook_first_runs_in_the_second_pass() {
    let needs_a = |name: &str| {
        let mut webhook = mk_webhook(name);
        let labels = [("a".to_owned(), "1".to_owned())].into();
        webhook.constraints.object_selector = LabelSelector::compile(&labels, &[]).unwrap();
        webhook.reinvocation = Reinvocation::IfNeeded;
        webhook
    };
    let set = mk_set(vec![
        needs_a("once early=1"),
        mk_webhook("once a=1"),
        needs_a("once late=1"),
    ]);
    let (outcome, asked) = mutate(&set);
    assert_eq!(asked, ["once a=1", "once late=1"]);
    assert_eq!(labels(&outcome), json!({"app": "a", "a": "1", "late": "1"}));
}

#[test]
fn the_first_refusal_ends_the_run_and_nothing_is_changed() {
    let table = [
        ("deny", FailurePolicy::Fail, "no", 403),
        ("deny", FailurePolicy::Ignore, "no", 403),
        (
            "err",
            FailurePolicy::Fail,
            "Internal error occurred: failed calling webhook \"err\": failed to call webhook: EOF",
            500,
        ),
        (
            "late",
            FailurePolicy::Ignore,
            "Timeout: request did not complete within requested timeout",
            504,
        ),
        (
            "late",
            FailurePolicy::Fail,
            "Timeout: request did not complete within requested timeout",
            504,
        ),
    ];
    for (what, failure_policy, expected, code) in table {
        let refusing = Webhook {
            failure_policy,
            ..mk_webhook(what)
        };
        let (outcome, asked) = mutate(&mk_set(vec![
            mk_webhook("set a=1"),
            refusing,
            mk_webhook("set b=1"),
        ]));
        assert_eq!(asked, ["set a=1", what]);
        assert_eq!((message(&outcome), outcome.patch.as_str()), (expected, ""));
        assert_eq!(outcome.denial.as_ref().unwrap().code, code);
        let cause = outcome.cause.unwrap();
        assert_eq!(cause.kind, CauseKind::MutatingWebhookConfiguration);
        assert_eq!((&*cause.name, cause.rule), ("c", Some(1)));
    }
}

#[test]
fn a_dry_run_is_for_webhooks_without_side_effects() {
    let object = pod();
    let request = Request {
        dry_run: true,
        ..mk_request(&object)
    };
    let unsaid = "Internal error occurred: failed calling webhook \"noop\": Webhook SideEffects is nil";
    let unsupported = "admission webhook \"noop\" does not support dry run";
    let table = [
        (Some(SideEffects::None), FailurePolicy::Fail, "", true),
        (Some(SideEffects::NoneOnDryRun), FailurePolicy::Fail, "", true),
        (Some(SideEffects::Some), FailurePolicy::Ignore, unsupported, false),
        (
            Some(SideEffects::Unknown),
            FailurePolicy::Fail,
            unsupported,
            false,
        ),
        (None, FailurePolicy::Fail, unsaid, false),
        (None, FailurePolicy::Ignore, "", false),
    ];
    for phase in Phase::ALL {
        for (side_effects, failure_policy, expected, is_asked) in table {
            let set = mk_set(vec![Webhook {
                side_effects,
                failure_policy,
                // Which version is only asked after.
                version: is_asked.then_some(ReviewVersion::V1),
                ..mk_webhook("noop")
            }]);
            let (outcome, asked) = run(phase, &set, &request);
            assert_eq!(message(&outcome), expected, "{phase:?} {side_effects:?}");
            assert_eq!(!asked.is_empty(), is_asked, "{phase:?} {side_effects:?}");
            let key = "mutation.webhook.admission.k8s.io/round_0_index_0";
            assert_eq!(
                outcome.audit_annotations.contains_key(key),
                phase == Phase::Mutate,
                "also one that is not asked is noted"
            );
        }
    }
}

#[test]
fn a_webhook_that_speaks_no_version_of_ours_cannot_be_asked() {
    for phase in Phase::ALL {
        let of = |failure_policy| Webhook {
            version: None,
            failure_policy,
            ..mk_webhook("noop")
        };
        let (outcome, asked) = run(phase, &mk_set(vec![of(FailurePolicy::Fail)]), &mk_request(&pod()));
        assert!(asked.is_empty());
        assert!(
            message(&outcome).contains("does not accept known AdmissionReview versions"),
            "{outcome:?}"
        );
        let (outcome, _) = run(
            phase,
            &mk_set(vec![of(FailurePolicy::Ignore)]),
            &mk_request(&pod()),
        );
        assert!(outcome.denial.is_none());
        let is_failed_open = |key: &String| key.starts_with("failed-open.");
        assert!(outcome.audit_annotations.keys().any(is_failed_open));
    }
}

#[test]
fn an_object_that_came_in_another_version_cannot_be_shown() {
    let object = pod();
    let mut request = mk_request(&object);
    request.request_kind.group = "autoscaling".into();
    request.request_kind.kind = "HorizontalPodAutoscaler".into();
    request.request_resource.group = "autoscaling".into();
    request.request_resource.version = "v2".into();
    request.request_resource.resource = "horizontalpodautoscalers".into();
    (request.kind, request.resource) = (request.request_kind.clone(), request.request_resource.clone());
    request.request_kind.version = "v2".into();
    request.kind.version = "v2".into();
    for phase in Phase::ALL {
        let of = |failure_policy| {
            let mut webhook = mk_webhook("noop");
            webhook.failure_policy = failure_policy;
            webhook.constraints.rules[0].api_versions = vec!["v1".into()];
            webhook
        };
        let (outcome, asked) = run(phase, &mk_set(vec![of(FailurePolicy::Fail)]), &request);
        assert!(asked.is_empty());
        assert!(
            message(&outcome).contains(
                "request autoscaling/v1, Kind=HorizontalPodAutoscaler in the rules of this gateway"
            ),
            "{outcome:?}"
        );
        let (outcome, asked) = run(phase, &mk_set(vec![of(FailurePolicy::Ignore)]), &request);
        assert!(asked.is_empty() && outcome.denial.is_none());
    }
}

/// The pod, as two managers wrote it, the last of them then.
fn managed_pod(second: u8) -> Document<'static> {
    let entry = |manager: &str, second: u8| json!({"manager": manager, "time": format!("2026-01-01T00:00:{second:02}Z")});
    let mut object: Value = serde_json::from_str(pod().text()).unwrap();
    object["metadata"]["managedFields"] = json!([entry("first", 1), entry("last", second)]);
    Document::parse(object.to_string()).unwrap()
}

#[test]
fn the_first_patch_is_a_change_where_the_object_was_written_just_now() {
    let (old, new) = (managed_pod(1), managed_pod(2));
    let relabelled = new.text().replace(r#""app":"a""#, r#""app":"b""#);
    let relabelled = Document::parse(relabelled).unwrap();
    let unlabelled = Document::parse(new.text().replace(r#""labels":{"app":"a"},"#, "")).unwrap();
    for (old, object, is_new) in [
        (None, &new, true),
        (None, &pod(), false),
        (Some(&old), &new, true),
        (Some(&new), &new, false),
        (Some(&new), &relabelled, true),
        (Some(&new), &unlabelled, false),
        (Some(&relabelled), &new, true),
    ] {
        let set = mk_set(vec![
            Webhook {
                reinvocation: Reinvocation::IfNeeded,
                ..mk_webhook("noop")
            },
            mk_webhook("if app app=a"),
            mk_webhook("if app app=a "),
        ]);
        let request = Request {
            old_object: old.map(|old| old.root()),
            operation: if old.is_some() {
                Operation::Update
            } else {
                Operation::Create
            },
            ..mk_request(object)
        };
        let access = PolicySet::default();
        let mut asked = Vec::new();
        let outcome = Chain::run(
            Phase::Mutate,
            &set,
            &request,
            RunOptions::new(&access, Time::UNIX_EPOCH),
            &mut |call| {
                asked.push(call.webhook.name.clone());
                match call.webhook.name.as_str() {
                    "noop" => answered(Ok(WebhookReply::default())),
                    _ => patching(r#"[{"op":"test","path":"/kind","value":"Pod"}]"#),
                }
            },
        );
        let mutated = |index: usize| {
            let key = format!("mutation.webhook.admission.k8s.io/round_0_index_{index}");
            outcome.audit_annotations[&key].ends_with(r#""mutated":true}"#)
        };
        assert_eq!((mutated(1), mutated(2)), (is_new, false), "{old:?} {object:?}");
        assert_eq!(asked.len(), if is_new { 4 } else { 3 }, "{asked:?}");
        assert_eq!(outcome.patch, "");
    }
}
