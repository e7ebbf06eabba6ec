//! Which requests are traced, and what becomes of spans that nobody takes.

use super::*;

const PARENT: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn traces() -> (Traces, IntCounter) {
    let dropped = IntCounter::new("dropped", "spans").unwrap();
    (Traces::new(dropped.clone()), dropped)
}

fn begin(traces: &Traces, ratio: f64, parent: Option<&[u8]>) -> ReviewTrace {
    let tracing = Tracing {
        logs: false,
        spool: None,
        // Nobody listens there.
        endpoint: "http://127.0.0.1:1".into(),
        sample_ratio: ratio,
    };
    traces.begin(&TraceBegin {
        tracing: &tracing,
        parent,
        name: "POST /authorize",
        arrived: Instant::now(),
        time: SystemTime::now(),
    })
}

#[test]
fn the_caller_decides_and_without_its_word_the_ratio() {
    let (traces, _) = traces();
    for (ratio, parent, expected) in [
        (0.0, Some(PARENT), true),
        (1.0, Some(UNSAMPLED), false),
        (0.0, None, false),
        (1.0, None, true),
        // What is no header says nothing.
        (1.0, Some(&b"00-0-0-00"[..]), true),
        (0.0, Some(&b"00-0-0-01"[..]), false),
    ] {
        let trace = begin(&traces, ratio, parent);
        assert_eq!(trace.is_live(), expected, "{ratio} {parent:?}");
        trace.finish(200);
    }
}

#[test]
fn whoever_is_called_learns_whether_the_request_is_traced_and_by_which_span() {
    let (traces, _) = traces();
    let told = |ratio, parent| {
        let trace = begin(&traces, ratio, parent);
        let span = trace.call(|| "webhook a/b".to_owned());
        trace.traceparent(&span)
    };
    let continued = told(0.0, Some(PARENT)).unwrap();
    let caller = TraceParent::parse(PARENT).unwrap();
    assert!(continued.is_sampled && continued.trace == caller.trace);
    assert_ne!(continued.span, caller.span);
    assert_eq!(told(1.0, Some(UNSAMPLED)), TraceParent::parse(UNSAMPLED));
    assert!(told(1.0, None).is_some_and(|parent| parent.is_sampled));
    assert_eq!(told(0.0, None), None);
}

#[test]
fn the_ratio_is_a_share_of_all_requests() {
    let chosen = (0..100_000).filter(|_| is_chosen(random_id(), 0.1)).count();
    assert!((8_000..12_000).contains(&chosen), "{chosen}");
    assert!(!is_chosen(u64::MIN, 0.0) && !is_chosen(u64::MAX, 0.0));
    assert!(is_chosen(u64::MIN, 1.0) && is_chosen(u64::MAX, 1.0));
}

#[test]
fn a_request_that_is_not_traced_builds_no_text() {
    let trace = ReviewTrace::default();
    let _span = trace.call(|| panic!("nobody reads it"));
    trace.record("key", || panic!("nobody reads it"));
    trace.finish(200);
}

#[test]
fn spans_of_a_request_are_bounded_and_the_rest_is_counted() {
    let (traces, _) = traces();
    let trace = begin(&traces, 1.0, None);
    for _ in 0..MAX_SPANS + 3 {
        drop(trace.span("evaluate"));
    }
    let spans = trace.live.as_ref().unwrap().spans();
    assert_eq!((spans.finished.len(), spans.left_out), (MAX_SPANS, 3));
}

#[test]
fn what_nobody_takes_is_dropped_and_counted() {
    let (traces, dropped) = traces();
    let trace = begin(&traces, 1.0, None);
    drop(trace.span("decide"));
    trace.finish(200);
    // A second end changes nothing.
    trace.finish(500);
    drop(trace);
    assert!(traces.flush(Duration::from_secs(60)));
    assert_eq!(dropped.get(), 2);
}
