use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use portcullis_policy::model::Decision;

/// Answers one after the other what it was given, the last again and again.
#[derive(Debug)]
struct Script {
    replies: Mutex<VecDeque<Result<&'static str, CallError>>>,
    asked: AtomicUsize,
}

impl Post for Script {
    fn post(
        &self,
        _: Bytes,
        _: Bounds,
        _: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, CallError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut script = self.replies.lock().unwrap();
        let next = match script.len() {
            1 => script.front().cloned(),
            _ => script.pop_front(),
        };
        let reply = |body: &'static str| Reply {
            body: body.into(),
            ..Reply::default()
        };
        Box::pin(std::future::ready(next.unwrap().map(reply)))
    }
}

const ALLOWS: Result<&str, CallError> = Ok(r#"{"status":{"allowed":true}}"#);

/// The result of asking for a request that waits for `time_limit`, and how often it was asked.
fn ask(replies: &[Result<&'static str, CallError>], deadline: Duration) -> (OpinionResult, usize) {
    ask_in(Some(Box::new(())), replies, deadline)
}

fn ask_in(
    place: Option<CallPlace>,
    replies: &[Result<&'static str, CallError>],
    deadline: Duration,
) -> (OpinionResult, usize) {
    let script = Arc::new(Script {
        replies: Mutex::new(replies.iter().cloned().collect()),
        asked: AtomicUsize::default(),
    });
    let callee = AuthorizerClient {
        post: Arc::<Script>::clone(&script),
        version: SubjectAccessReviewVersion::V1,
        timeout: Duration::from_secs(1),
        reply_bytes: 1000,
        backoff: Backoff {
            attempts: 5,
            pause: Duration::from_millis(1),
        },
        recorder: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let deadline = SharedDeadline::until(Instant::now() + deadline);
    let answer = runtime
        .unwrap()
        .block_on(callee.ask(place, Bytes::from_static(b"{}"), deadline, None));
    (answer, script.asked.load(Ordering::Relaxed))
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn calls_to_authorizers_have_places_of_their_own() {
    let (answer, asked) = ask_in(None, &[ALLOWS], LONG);
    assert_eq!(
        (answer, asked),
        (Err(AuthorizerCallError::NotAsked(TOO_MANY_CALLS.to_owned())), 0)
    );
    let place = Arc::new(());
    let (answer, asked) = ask_in(Some(Box::new(Arc::clone(&place))), &[ALLOWS], LONG);
    assert_eq!((answer.is_ok(), asked), (true, 1));
    assert_eq!(Arc::strong_count(&place), 1, "it is given back");
}

#[test]
fn one_of_two_authorizers_has_half_of_the_calls() {
    let calls = InFlight::new(usize::MAX);
    let users: Vec<String> = (0..2_000).map(|user| user.to_string()).collect();
    let call = |user| Requester {
        share: "default",
        user,
    };
    let in_flight: Vec<_> = users
        .iter()
        .map_while(|user| part_of_each(&calls, 2).enter(Some(call(user))).ok())
        .collect();
    let all = Descriptors::of_process().authorizer_calls();
    assert_eq!(in_flight.len(), all.div_ceil(2));
}

#[test]
fn what_passes_is_asked_again() {
    for error in [
        CallError::Reset,
        CallError::Status(429),
        CallError::Status(500),
        CallError::Status(501),
        CallError::Status(502),
        CallError::Status(504),
    ] {
        let (answer, asked) = ask(&[Err(error.clone()), ALLOWS], LONG);
        assert_eq!(answer.unwrap().decision, Decision::Allow, "{error}");
        assert_eq!(asked, 2);
        let (answer, asked) = ask(&[Err(error.clone())], LONG);
        assert_eq!(answer, Err(AuthorizerCallError::Failed(error.to_string())));
        assert_eq!(asked, 5, "{error}");
    }
}

#[test]
fn what_does_not_pass_is_asked_once() {
    for error in [
        CallError::Status(207),
        CallError::Status(302),
        CallError::Status(401),
        CallError::Status(404),
        CallError::Status(503),
        CallError::Timeout(LONG),
        CallError::Tls("bad certificate".into()),
        CallError::Exchange("end of file".into()),
        CallError::TooLarge(1),
    ] {
        let (answer, asked) = ask(&[Err(error.clone()), ALLOWS], LONG);
        assert_eq!(answer, Err(AuthorizerCallError::Failed(error.to_string())));
        assert_eq!(asked, 1);
    }
    let (answer, asked) = ask(&[Ok("garbage"), ALLOWS], LONG);
    assert!(answer.is_err());
    assert_eq!(asked, 1, "it was a reply");
}

#[test]
fn nothing_is_asked_again_for_nobody() {
    let (answer, asked) = ask(&[Err(CallError::Status(500)), ALLOWS], Duration::ZERO);
    assert!(answer.is_err());
    assert_eq!(asked, 1);
}

#[test]
fn large_replies_of_authorizers_are_counted_together_and_small_ones_always_have_room() {
    let taken: Vec<_> = std::iter::from_fn(|| LargeReplies.reserve(16 << 20)).collect();
    assert!((1..=4).contains(&taken.len()));
    assert!(LargeReplies.reserve(16 << 20).is_none());
    assert!(LargeReplies.reserve(MAX_SMALL_BYTES).is_some());
    drop(taken);
    assert!(LargeReplies.reserve(16 << 20).is_some());
}
