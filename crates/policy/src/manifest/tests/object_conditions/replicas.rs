//! Allows with objectConditions while API servers keep answers, and while replicas of the gateway have read
//! different policies.

use super::*;
use crate::authorization::{NEW_GRANT_DELAY_SECONDS, REMOVED_GRANT_RETENTION_SECONDS};

#[test]
fn what_was_removed_narrowed_or_ended_is_judged_a_while_longer() {
    let set = |text: &str, before: Option<&PolicySet>, now| policies_of(text).with_history(before, at(now));
    let bad = |set: &PolicySet, now: i64| {
        let shown = Shown {
            now: at(now),
            ..shown(Operation::Create, "pods", "p", "bad")
        };
        !refusal(set, &shown).is_empty()
    };
    let allow = policy("a", "Allow", PODS, GOOD);
    let first = set(&allow, None, 0);
    let removed = set("", Some(&first), 1_000);
    let narrowed = set(&allow.replace("name: dev", "name: none"), Some(&first), 1_000);
    let unknown = policies_of(&allow.replace("name: a", "name: b")).with_history(Some(&first), at(1_000));
    for after in [&removed, &narrowed] {
        let again = set("", Some(after), 1_300);
        for (now, expected) in [
            (1_000, true),
            (1_000 + REMOVED_GRANT_RETENTION_SECONDS - 1, true),
            (1_000 + REMOVED_GRANT_RETENTION_SECONDS, false),
        ] {
            assert_eq!(bad(after, now), expected, "{now}");
            assert_eq!(bad(&again, now), expected, "{now}, after another change");
        }
    }
    assert!(
        bad(&unknown, 1_000 + REMOVED_GRANT_RETENTION_SECONDS),
        "its own rule is judged for ever"
    );
    // What it granted is judged as it was.
    let good = Shown {
        now: at(1_000),
        ..shown(Operation::Create, "pods", "p", "good")
    };
    assert_eq!(refusal(&removed, &good), "");
    let ended = policies_of(&policy(
        "a",
        "Allow",
        PODS,
        &format!("{GOOD}\n  notAfter: \"1970-01-01T00:01:00Z\""),
    ));
    for (now, expected) in [
        (59, true),
        (60, true),
        (60 + REMOVED_GRANT_RETENTION_SECONDS, false),
    ] {
        assert_eq!(bad(&ended, now), expected, "{now}");
    }
}

#[test]
fn soon_after_the_start_only_what_is_known_to_be_allowed_passes() {
    let reads = policy(
        "all",
        "Allow",
        r#"verbs: [create], apiGroups: [""], resources: [pods/exec, services]"#,
        "",
    );
    let set = policies_of(&reads).with_history(None, at(100));
    let later = policies_of(&reads).with_history(Some(&set), at(400));
    let refused = |set: &PolicySet, operation, resource: &str, now| {
        let shown = Shown {
            now: at(now),
            ..shown(operation, resource, "p", "bad")
        };
        refusal(set, &shown)
    };
    for set in [&set, &later] {
        let why = refused(
            set,
            Operation::Create,
            "pods",
            99 + REMOVED_GRANT_RETENTION_SECONDS,
        );
        assert!(
            why.contains("that was removed earlier may have granted it"),
            "{why}"
        );
        assert_eq!(
            refused(
                set,
                Operation::Create,
                "pods",
                100 + REMOVED_GRANT_RETENTION_SECONDS
            ),
            ""
        );
        assert_eq!(refused(set, Operation::Create, "services", 400), "");
        assert_eq!(refused(set, Operation::Connect, "pods/exec", 400), "");
        assert_ne!(refused(set, Operation::Connect, "pods/attach", 400), "");
        let elsewhere = Shown {
            now: at(400),
            ..shown(Operation::Create, "pods", "p", "bad")
        };
        let outcome = validate_with(set, &elsewhere, true);
        assert!(outcome.denial.is_none(), "other authorizers allow it");
        let outcome = validate_with(set, &elsewhere, false);
        assert!(!outcome.missing_grants.is_empty(), "they are asked");
        let master = Shown {
            user: user("root", &["system:masters"]),
            ..elsewhere
        };
        assert_eq!(refusal(set, &master), "");
    }
    // Where nothing is ever granted on condition, and offline, nothing of the kind can have been.
    let unwatched = PolicySet::clone(&policies_of(&reads))
        .with_reviewed_resources(None)
        .with_history(None, at(100));
    assert_eq!(refused(&unwatched, Operation::Create, "pods", 101), "");
    assert_eq!(refused(&policies_of(&reads), Operation::Create, "pods", 101), "");
}

#[test]
fn a_new_allow_grants_once_other_gateways_have_it() {
    let asked = review(user("ann", &["dev"]), "create pods");
    let allow = policy("a", "Allow", PODS, GOOD);
    let decides = |set: &PolicySet, now: i64| set.authorize(&asked, at(now)).decision;
    let first = policies_of(&allow).with_history(None, at(100));
    assert_eq!(decides(&first, 99 + NEW_GRANT_DELAY_SECONDS), Decision::NoOpinion);
    assert_eq!(decides(&first, 100 + NEW_GRANT_DELAY_SECONDS), Decision::Allow);
    // The same is not new, a wider one is.
    let same = policies_of(&allow).with_history(Some(&first), at(500));
    assert_eq!(decides(&same, 500), Decision::Allow);
    let wider = policies_of(&allow.replace("== 'good'", "!= ''")).with_history(Some(&same), at(500));
    assert_eq!(decides(&wider, 500), Decision::NoOpinion);
    assert_eq!(decides(&wider, 500 + NEW_GRANT_DELAY_SECONDS), Decision::Allow);
}

/// Whether a replica answers that Ann may create Pods.
fn grants(replica: &PolicySet, now: i64) -> bool {
    let asked = review(user("ann", &["dev"]), "create pods");
    replica.authorize(&asked, at(now)).decision == Decision::Allow
}

/// Whether a replica lets such a Pod of hers pass.
fn admits(replica: &PolicySet, is: &str, now: i64) -> bool {
    let shown = Shown {
        now: at(now),
        ..shown(Operation::Create, "pods", "p", is)
    };
    refusal(replica, &shown).is_empty()
}

#[test]
fn a_new_allow_grants_nothing_before_replicas_that_are_a_little_behind_judge_it() {
    let allow = policy("a", "Allow", PODS, GOOD);
    let before = policies_of("").with_history(None, at(0));
    let since = |read: i64| policies_of(&allow).with_history(Some(&before), at(read));
    let first = since(1_000);
    for lag in [0, 1, NEW_GRANT_DELAY_SECONDS] {
        for now in 1_000..1_000 + 3 * NEW_GRANT_DELAY_SECONDS {
            let behind = if now < 1_000 + lag {
                before.clone()
            } else {
                since(1_000 + lag)
            };
            if grants(&first, now) {
                assert!(!admits(&behind, "bad", now), "{lag} {now}");
                assert!(admits(&behind, "good", now), "{lag} {now}");
            }
            // What it does not know it does not grant.
            assert!(!grants(&behind, now) || now >= 1_000 + lag + NEW_GRANT_DELAY_SECONDS);
        }
    }
    // One that reads no policies for longer knows nothing to refuse: as the page says.
    let late = 1_000 + NEW_GRANT_DELAY_SECONDS;
    assert!(grants(&first, late) && admits(&before, "bad", late));
    // One that was just started knows what it does not know.
    let started = policies_of("").with_history(None, at(late));
    assert!(!admits(&started, "bad", late));
}

#[test]
fn what_a_replica_grants_that_has_not_read_a_removal_the_others_judge() {
    let allow = policy("a", "Allow", PODS, GOOD);
    let behind = policies_of(&allow).with_history(None, at(0));
    let narrower = allow.replace("verbs: [create, ", "verbs: [");
    for changed in ["", narrower.as_str()] {
        let ahead = policies_of(changed).with_history(Some(&behind), at(1_000));
        for now in [1_000, 1_300, 999 + REMOVED_GRANT_RETENTION_SECONDS] {
            assert!(grants(&behind, now) && !grants(&ahead, now));
            for replica in [&ahead, &behind] {
                assert!(!admits(replica, "bad", now), "{now}");
                assert!(admits(replica, "good", now), "{now}");
            }
        }
    }
}
