use super::*;

#[test]
fn the_time_is_announced_in_whole_seconds_rounded_up() {
    for (timeout, announced) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
        let found = whole_seconds(Duration::from_millis(timeout));
        assert_eq!(found, Duration::from_secs(announced), "{timeout}");
    }
}

#[test]
fn only_what_is_not_there_counts_for_the_breaker() {
    use Reachability::{Reachable, Unknown, Unreachable};
    let address = ([127, 0, 0, 1], 1).into();
    let connect = || CallError::Connect(Duration::from_secs(1));
    for (error, expected) in [
        (
            CallError::Resolve {
                host: "a".into(),
                reason: "b".into(),
            },
            Unreachable,
        ),
        (
            CallError::Dial {
                address,
                reason: "refused".into(),
            },
            Unreachable,
        ),
        (CallError::Tls("expired".into()), Unreachable),
        (connect(), Unreachable),
        (CallError::Status(503), Unreachable),
        (CallError::Status(302), Reachable),
        (CallError::Status(400), Reachable),
        (CallError::Status(429), Reachable),
        (CallError::Status(500), Reachable),
        (CallError::TooLarge(1), Reachable),
        (CallError::Encoding, Reachable),
        (CallError::ContentType, Reachable),
        (CallError::Reset, Unknown),
        (CallError::Exchange("unexpected end".into()), Unknown),
        (CallError::Timeout(Duration::from_secs(1)), Unknown),
        (CallError::Itself(address), Unknown),
        (CallError::Forbidden(address), Unknown),
        (CallError::OnThisHost(address), Unknown),
    ] {
        assert_eq!(reachability::<()>(&Err(error.clone()), true), expected, "{error}");
    }
    assert_eq!(reachability::<()>(&Err(connect()), false), Unknown);
    assert_eq!(reachability(&Ok(()), false), Reachable);
}

#[test]
fn connecting_despite_an_open_breaker_has_one_second_of_the_call() {
    let ten = Duration::from_secs(10);
    let limits = CallLimits {
        timeout: ten,
        own_timeout: ten,
        failure_policy: FailurePolicy::Ignore,
        reply_bytes: 1,
    };
    let (closed, open) = (limits.bounds(false), limits.bounds(true));
    assert_eq!((closed.connect, closed.timeout), (ten, ten));
    assert_eq!((open.connect, open.timeout), (Duration::from_secs(1), ten));
}

const JANE: Option<Requester<'_>> = Some(Requester {
    share: "default",
    user: "jane",
});

fn user(name: &str) -> Option<Requester<'_>> {
    JANE.map(|jane| Requester { user: name, ..jane })
}

#[test]
fn one_over_the_limit_is_turned_away_until_one_ends() {
    let calls = InFlight::new(2);
    let first = calls.enter(None).unwrap();
    let _second = calls.enter(user("joe")).unwrap();
    assert_eq!(calls.enter(JANE).unwrap_err(), InFlightLimitError::Webhook(2));
    let _third = calls.with_limit(3).enter(None).unwrap();
    assert!(calls.enter(None).is_err(), "they count together");
    drop(first);
    assert!(calls.enter(None).is_err(), "two are left of two");
    assert!(calls.with_limit(3).enter(None).is_ok());
}

#[test]
fn one_user_has_a_quarter_of_all_calls() {
    let calls = InFlight::new(8);
    let first = calls.enter(JANE).unwrap();
    let _second = calls.enter(JANE).unwrap();
    let refused = calls.enter(JANE).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "it already has 2 calls in flight for this user, the limit for one user: a quarter of \
        `upstreams.inFlight` (8) of the gateway's configuration"
    );
    let _other = calls.enter(user("joe")).unwrap();
    let east = JANE.map(|jane| Requester {
        share: "east",
        ..jane
    });
    let _elsewhere = calls.enter(east).unwrap();
    let _nobodys = [calls.enter(None).unwrap(), calls.enter(None).unwrap()];
    drop(first);
    assert!(calls.enter(JANE).is_ok(), "one of hers has ended");
}

#[test]
fn one_user_may_always_make_one_call() {
    let calls = InFlight::new(1);
    let only = calls.enter(JANE).unwrap();
    drop(only);
    assert!(calls.enter(JANE).is_ok());
}

#[test]
fn nothing_is_kept_of_users_without_calls() {
    let calls = InFlight::new(100);
    let names: Vec<String> = (0..50).map(|index| index.to_string()).collect();
    let permits: Vec<_> = names
        .iter()
        .map(|name| calls.enter(user(name)).unwrap())
        .collect();
    drop(permits);
    assert_eq!(calls.calls.all.load(Ordering::Relaxed), 0);
    assert!(calls.calls.by_requester.is_empty());
}
