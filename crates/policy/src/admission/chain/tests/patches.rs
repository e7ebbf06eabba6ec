use proptest::prelude::*;

use super::*;

#[test]
fn what_is_wrong_with_a_patch_decides_whether_the_failure_policy_is_asked() {
    let of_call = |patch: &str, patch_type: &str| (patch.to_owned(), patch_type.to_owned());
    let table = [
        (of_call("[{", "JSONPatch"), true),
        (of_call("{}", "JSONPatch"), true),
        (of_call("[1]", "JSONPatch"), true),
        (
            of_call(r#"[{"op":"add","path":"/a","value":1}]"#, "MergePatch"),
            true,
        ),
        (of_call("[]", "MergePatch"), true),
        (of_call("null", "JSONPatch"), true),
        (of_call("[null]", "JSONPatch"), false),
        (of_call(r#"[{"op":"frob","path":"/a"}]"#, "JSONPatch"), false),
        (of_call(r#"[{"op":1,"path":"/a"}]"#, "JSONPatch"), false),
        (of_call(r#"[{"op":"add","value":1}]"#, "JSONPatch"), false),
        (of_call(r#"[{"op":"remove","path":"/none"}]"#, "JSONPatch"), false),
        (
            of_call(r#"[{"op":"test","path":"/kind","value":"x"}]"#, "JSONPatch"),
            false,
        ),
        (
            of_call(r#"[{"op":"replace","path":"","value":[]}]"#, "JSONPatch"),
            false,
        ),
        (
            of_call(
                r#"[{"op":"replace","path":"/kind","value":"Service"}]"#,
                "JSONPatch",
            ),
            false,
        ),
        (
            of_call(
                r#"[{"op":"add","path":"/metadata/labels","value":"x"}]"#,
                "JSONPatch",
            ),
            false,
        ),
    ];
    for ((patch, patch_type), passes) in table {
        let reply = WebhookReply {
            patch: Some(patch.as_bytes().into()),
            patch_type,
            ..WebhookReply::default()
        };
        let set = mk_set(vec![Webhook {
            failure_policy: FailurePolicy::Ignore,
            ..mk_webhook("w")
        }]);
        let access = PolicySet::default();
        let object = pod();
        let outcome = Chain::run(
            Phase::Mutate,
            &set,
            &mk_request(&object),
            RunOptions::new(&access, Time::UNIX_EPOCH),
            &mut |_| answered(Ok(reply.clone())),
        );
        assert_eq!(outcome.denial.is_none(), passes, "{patch}: {:?}", outcome.denial);
        assert_eq!(outcome.patch, "");
        if let Some(denial) = outcome.denial {
            assert_eq!((denial.reason.as_ref(), denial.code), ("InternalError", 500));
        }
    }
}

#[test]
fn nothing_can_be_changed_where_there_is_no_object() {
    let object = pod();
    let request = Request {
        object: None,
        operation: Operation::Delete,
        ..mk_request(&object)
    };
    let (outcome, _) = run(Phase::Mutate, &mk_set(vec![mk_webhook("set a=1")]), &request);
    assert_eq!(
        message(&outcome),
        "Internal error occurred: admission webhook \"set a=1\" attempted to modify the object, which is \
         not supported for this operation"
    );
    let access = PolicySet::default();
    let set = mk_set(vec![mk_webhook("w")]);
    let outcome = Chain::run(
        Phase::Mutate,
        &set,
        &request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        &mut |_| patching("[]"),
    );
    assert!(outcome.denial.is_none());
}

/// A patch of labels and annotations, which may remove and replace as well.
fn patches() -> impl Strategy<Value = String> {
    let operation = (0..4_u8, "[a-c]", "[x-z]{1,2}").prop_map(|(which, key, value)| match which {
        0 => format!(r#"{{"op":"add","path":"/metadata/labels/{key}","value":"{value}"}}"#),
        1 => format!(r#"{{"op":"replace","path":"/metadata/labels/{key}","value":"{value}"}}"#),
        2 => format!(r#"{{"op":"add","path":"/metadata/annotations","value":{{"{key}":"{value}"}}}}"#),
        _ => {
            r#"{"op":"remove","path":"/metadata/labels"}, {"op":"add","path":"/metadata/labels","value":{"d":"z"}}"#
                .to_owned()
        }
    });
    prop::collection::vec(operation, 0..4).prop_map(|operations| format!("[{}]", operations.join(",")))
}

proptest! {
    #[test]
    fn the_one_patch_of_the_reply_does_what_all_patches_did(of in prop::collection::vec(patches(), 1..6)) {
        let (object, access) = (pod(), PolicySet::default());
        let names: Vec<String> = (0..of.len()).map(|place| format!("w{place}")).collect();
        let set = mk_set(names.iter().map(|name| mk_webhook(name)).collect());
        let mut next = 0;
        let outcome = Chain::run(Phase::Mutate, &set, &mk_request(&object), RunOptions::new(&access, Time::UNIX_EPOCH), &mut |_| {
            next += 1;
            patching(&of[next - 1])
        });
        prop_assert!(outcome.denial.is_none(), "{:?}", outcome.denial);

        let mut one_by_one = object.clone();
        for text in &of {
            let read = Document::parse(text.clone()).unwrap();
            let after = json::patch::apply(one_by_one.root(), json::patch::read(read.root()).unwrap()).unwrap();
            let after = after.to_text();
            one_by_one = Document::parse(after).unwrap();
        }
        let patch = if outcome.patch.is_empty() { "[]".to_owned() } else { outcome.patch };
        let read = Document::parse(patch).unwrap();
        let at_once = json::patch::apply(object.root(), json::patch::read(read.root()).unwrap()).unwrap();
        let at_once = Document::parse(at_once.to_text()).unwrap();
        prop_assert!(one_by_one.root().same(at_once.root()), "{one_by_one:?} {at_once:?}");
    }
}
