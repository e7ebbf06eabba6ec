//! Calls that are not made: too many, a breaker that is open, addresses that are not allowed.

use super::*;

#[test]
fn a_call_over_the_limit_fails_at_once() {
    let pair = ServedPair::new(|_| FakeAction::Hang);
    let upstreams = build(no_files().path(), "{inFlight: 1}", &[&pair.webhook], None);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let hanging = runtime.spawn({
        let (upstreams, webhook) = (upstreams.clone(), Arc::clone(&pair.webhook));
        async move {
            upstreams
                .call(("default", &webhook), "{}", PATIENCE, JANE, None, None)
                .await
        }
    });
    eventually("it hangs", || pair.server.received().len() == 1);
    let full = Err(webhook::InFlightLimitError::Webhook(1).to_string());
    assert_eq!(call(&upstreams, &pair.webhook), full);
    let more = build(
        no_files().path(),
        "{inFlight: 1}",
        &[&pair.webhook],
        Some(&upstreams),
    );
    assert_eq!(call(&more, &pair.webhook), full, "a reload does not forget it");
    hanging.abort();
    assert_eq!(pair.server.received().len(), 1);
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not yet: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_webhook_that_is_not_there_is_not_called_for_a_while() {
    let is_well = Arc::new(AtomicBool::new(false));
    let pair = ServedPair::new({
        let is_well = Arc::clone(&is_well);
        move |_| {
            FakeAction::Send(if is_well.load(Ordering::SeqCst) {
                ok(b"{}")
            } else {
                reply("503 Service Unavailable", "", b"")
            })
        }
    });
    let section = "{breaker: {failures: 2, openFor: 10m}}";
    let upstreams = build(no_files().path(), section, &[&pair.webhook], None);
    let unwell = Err("failed to call webhook: the webhook answered with status 503".to_owned());
    assert_eq!(call(&upstreams, &pair.webhook), unwell);
    assert_eq!(call(&upstreams, &pair.webhook), unwell);
    let assert_open = |upstreams: &Upstreams, what: &str| {
        let message = call(upstreams, &pair.webhook).unwrap_err();
        let opening = "failed to call webhook: its circuit breaker is open since ";
        assert!(message.starts_with(opening), "{what}: {message}");
        assert!(
            message.contains(" (the webhook answered with status 503): it is called again at "),
            "{message}"
        );
    };
    assert_open(&upstreams, "at once");
    let after = build(no_files().path(), section, &[&pair.webhook], Some(&upstreams));
    assert_open(&after, "a reload does not forget it");
    assert_eq!(pair.server.received().len(), 2);

    is_well.store(true, Ordering::SeqCst);
    let sooner = "{breaker: {failures: 2, openFor: 1ms}}";
    let other = build(no_files().path(), sooner, &[&pair.webhook], Some(&after));
    assert_eq!(
        call(&other, &pair.webhook).as_deref(),
        Ok("{}"),
        "other limits, another breaker"
    );
    is_well.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        call(&other, &pair.webhook).unwrap_err();
    }
    is_well.store(true, Ordering::SeqCst);
    eventually("it is tried again", || call(&other, &pair.webhook).is_ok());
}

#[test]
fn a_breaker_can_be_left_out() {
    let pair = ServedPair::sends(reply("503 Service Unavailable", "", b""));
    let upstreams = build(
        no_files().path(),
        "{breaker: {failures: 0}}",
        &[&pair.webhook],
        None,
    );
    for _ in 0..10 {
        call(&upstreams, &pair.webhook).unwrap_err();
    }
    assert_eq!(pair.server.received().len(), 10);
}

#[test]
fn the_gateway_does_not_call_itself() {
    let target = WebhookTarget::Url("https://127.0.0.1:18443/validate".to_owned());
    let webhook = webhook("hook", target, Vec::new());
    let upstreams = build(no_files().path(), "{}", &[&webhook], None);
    let itself = Err("failed to call webhook: `127.0.0.1:18443` is this gateway itself".to_owned());
    for _ in 0..10 {
        assert_eq!(call(&upstreams, &webhook), itself);
    }
}

#[test]
fn addresses_outside_the_list_are_not_called() {
    let pair = ServedPair::sends(ok(b"{}"));
    let upstreams = build(
        no_files().path(),
        "{allowedAddresses: [10.0.0.0/8]}",
        &[&pair.webhook],
        None,
    );
    let failure = call(&upstreams, &pair.webhook).unwrap_err();
    assert!(
        failure.ends_with("is not among the allowed addresses"),
        "{failure}"
    );
    assert!(pair.server.received().is_empty());
}
