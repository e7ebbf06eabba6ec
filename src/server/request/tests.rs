use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::server::accept;
use crate::server::limits::{Capacity, Limiter};
use crate::telemetry::per_worker::{WorkerGauge, WorkerRef};
#[test]
fn a_path_stands_for_an_endpoint_and_the_name_of_a_policy() {
    let admit = |phase, name: &str| Some(ReviewRoute::Admit(phase, Some(name.to_owned())));
    for (path, expected) in [
        ("/authorize", Some(ReviewRoute::Authorize)),
        ("/%61uthorize", Some(ReviewRoute::Authorize)),
        ("/authorize/", None),
        ("/authorize/x", None),
        ("/Authorize", None),
        ("authorize", None),
        ("//authorize", None),
        ("/", None),
        ("", None),
        ("*", None),
        ("/validate", Some(ReviewRoute::Admit(Phase::Validate, None))),
        ("/validate/", None),
        ("/validate/limits", admit(Phase::Validate, "limits")),
        ("/validate/limits/", None),
        ("/validate/limits/x", None),
        ("/validate/a%62c", admit(Phase::Validate, "abc")),
        ("/validate/a%2Fb", admit(Phase::Validate, "a%2Fb")),
        ("/mutate", Some(ReviewRoute::Admit(Phase::Mutate, None))),
        (
            "/mutate/labels.example.com",
            admit(Phase::Mutate, "labels.example.com"),
        ),
        ("/validates", None),
    ] {
        let found = ReviewPath::of(path);
        let expected = expected.map(|route| ReviewPath { route, token: None });
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_token_stands_before_the_route() {
    let admit = |phase| ReviewRoute::Admit(phase, None);
    for (path, expected) in [
        ("/t/abc/validate", Some(("abc", admit(Phase::Validate)))),
        ("/t/abc/mutate", Some(("abc", admit(Phase::Mutate)))),
        ("/t/%61bc/validate", Some(("abc", admit(Phase::Validate)))),
        ("/t/ABC/validate", Some(("ABC", admit(Phase::Validate)))),
        ("/t/abc/authorize", Some(("abc", ReviewRoute::Authorize))),
        (
            "/t/abc/validate/limits",
            Some((
                "abc",
                ReviewRoute::Admit(Phase::Validate, Some("limits".to_owned())),
            )),
        ),
        ("/t/abc", None),
        ("/t/abc/", None),
        ("/t//validate", None),
        ("//t/abc/validate", None),
        ("/t/abc//validate", None),
        ("/t%2Fabc/validate", None),
        ("/t/abc%2Fvalidate", None),
        ("/T/abc/validate", None),
        ("/t/abc/t/abc/validate", None),
        ("/t/../validate", Some(("..", admit(Phase::Validate)))),
    ] {
        let expected = expected.map(|(token, route)| ReviewPath {
            route,
            token: Some(Secret::new(token)),
        });
        assert_eq!(ReviewPath::of(path), expected, "{path}");
    }
    let written = format!("{:?}", ReviewPath::of("/t/abc/validate"));
    assert!(!written.contains("abc"), "{written}");
}

#[test]
fn a_field_that_must_be_alone_has_no_value_beside_another() {
    let mut field = SingleField::default();
    assert_eq!(field.value(), None);
    field.add(b"one");
    assert_eq!(field.value(), Some(&b"one"[..]));
    field.add(b"one");
    assert_eq!((field, field.value()), (SingleField::Several, None));
}

#[test]
fn a_body_has_five_seconds_and_one_for_each_mebibyte_that_is_there() {
    for (received, seconds) in [(0, 5), (1, 5), ((1 << 20) - 1, 5), (1 << 20, 6), (32 << 20, 37)] {
        assert_eq!(allowance(received), Duration::from_secs(seconds), "{received}");
    }
}

/// Reads a body of which a piece comes after each pause, by a clock that moves with
/// them; what became of it, and after how long.
fn trickle(pieces: Vec<(u64, usize)>, deadline: Duration) -> (Result<usize, Rejection>, Duration) {
    let (start, time) = (Instant::now(), Rc::new(Cell::new(Duration::ZERO)));
    let clock = Rc::clone(&time);
    let (mut pieces, mut is_due) = (pieces.into_iter().peekable(), false);
    let mut payload = futures_util::stream::poll_fn(move |context| {
        if let Some((_, length)) = pieces.next_if(|_| is_due) {
            is_due = false;
            return Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from(vec![b' '; length]))));
        }
        let Some((pause, _)) = pieces.peek() else {
            return Poll::Ready(None);
        };
        is_due = true;
        clock.set(clock.get() + Duration::from_millis(*pause));
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let capacity = Capacity {
        requests: 1,
        bytes: usize::MAX,
        memory: 0,
        calls: 0,
    };
    let gauge = WorkerGauge::default();
    let mut permit = WorkerRef::<Limiter>::new(Arc::default())
        .enter(capacity, None, 0, &gauge)
        .unwrap();
    let read = read_body_until(
        || start + time.get(),
        &mut payload,
        &mut permit,
        usize::MAX,
        start,
        start + deadline,
    );
    let read = actix_web::rt::System::new().block_on(read);
    (read.map(|body| body.bytes.len()), time.get())
}

#[test]
fn a_body_that_trickles_is_ended_however_long_its_caller_would_wait() {
    let (never, mebibyte) = (Duration::from_secs(3600), 1 << 20);
    let after = |pieces: Vec<(u64, usize)>| {
        let (read, elapsed) = trickle(pieces, never);
        (read.is_err(), elapsed.as_millis())
    };
    // A byte each second, for ever: there are five.
    assert_eq!(after(vec![(1000, 1); 100]), (true, 5000));
    // A MiB that comes in time is another second's worth, and no more.
    let slow_after: Vec<_> = [(4000, mebibyte)].into_iter().chain([(500, 1); 100]).collect();
    assert_eq!(after(slow_after), (true, 6000));
    // One that comes at the slowest pace that is allowed arrives.
    let steady: Vec<_> = [(4900, mebibyte)]
        .into_iter()
        .chain([(1000, mebibyte); 7])
        .collect();
    assert_eq!(trickle(steady, never).0.unwrap(), 8 * mebibyte);
    // The caller's own deadline is earlier.
    let (read, elapsed) = trickle(vec![(1000, 1); 100], Duration::from_secs(2));
    assert!(matches!(read, Err(Rejection::BodyDeadlineExceeded)));
    assert_eq!(elapsed, Duration::from_secs(2));
}

#[test]
fn json_is_told_by_the_headers() {
    let connection = accept::unauthenticated_connection();
    let check = |content_type: &str, encoding: &str| {
        let fields = [("content-type", content_type), ("content-encoding", encoding)];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let fields = fields.map(|(name, value)| (name, value.as_bytes()));
        check_content_type(&RequestHead::new(&connection, "POST", ("/", ""), fields)).is_ok()
    };
    for content_type in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json ;charset=\"UTF-8\"",
        "application/json;profile=x",
    ] {
        assert!(check(content_type, ""), "{content_type}");
    }
    for content_type in [
        "",
        "text/plain",
        "application/jsonx",
        "application/json;charset=utf-16",
        "application/yaml",
    ] {
        assert!(!check(content_type, ""), "{content_type}");
    }
    assert!(check("application/json", "identity"));
    assert!(!check("application/json", "gzip"));
}
