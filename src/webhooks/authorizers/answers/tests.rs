use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join_all, ready};
use tokio::sync::Notify;

use super::*;
use portcullis_policy::model::{Attributes, Operator, ResourceAttributes, Selectors, Target, User};

const HOUR: Duration = Duration::from_secs(3600);

const LIFETIMES: Lifetimes = Lifetimes {
    authorized: Some(Duration::from_secs(300)),
    unauthorized: Some(Duration::from_secs(30)),
};

fn key(user: &str) -> CacheKey {
    let attributes = Attributes {
        user: User {
            name: user.into(),
            ..User::default()
        },
        target: Target::NonResource {
            path: "/x".into(),
            verb: "get".into(),
        },
    };
    CacheKey::new("default", &attributes).unwrap()
}

fn opinion(decision: Decision) -> Opinion {
    Opinion {
        decision,
        reason: "r".into(),
        error: None,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().unwrap().block_on(future)
}

async fn landed(found: CacheLookup) -> OpinionResult {
    match found {
        CacheLookup::Answer(opinion) => Ok(opinion),
        CacheLookup::Flight(flight) => flight.await,
    }
}

#[test]
fn an_answer_is_kept_as_long_as_its_sort_is() {
    let answers = AnswerCache::new(LIFETIMES);
    let now = Instant::now();
    for (decision, seconds) in [
        (Decision::Allow, 300),
        (Decision::Deny, 30),
        (Decision::NoOpinion, 30),
    ] {
        let key = key(decision.as_str());
        answers.put(key.clone(), opinion(decision), now);
        let at = |seconds| answers.get(&key, now + Duration::from_secs(seconds));
        assert_eq!(at(seconds - 1), Some(opinion(decision)));
        assert_eq!(at(seconds), None, "{decision}");
    }
}

#[test]
fn what_is_switched_off_is_not_kept() {
    let answers = AnswerCache::new(Lifetimes {
        authorized: None,
        ..LIFETIMES
    });
    let now = Instant::now();
    for (decision, is_kept) in [(Decision::Allow, false), (Decision::Deny, true)] {
        let key = key(decision.as_str());
        answers.put(key.clone(), opinion(decision), now);
        assert_eq!(answers.get(&key, now).is_some(), is_kept, "{decision}");
    }
}

#[test]
fn what_is_kept_is_bounded_in_bytes() {
    let answers = AnswerCache::new(LIFETIMES);
    let now = Instant::now();
    let long = "x".repeat(60_000);
    for number in 0..1_000 {
        let key = key(&format!("{long}{number}"));
        answers.put(key, opinion(Decision::Allow), now);
    }
    answers.kept.run_pending_tasks();
    assert!(answers.kept.weighted_size() <= MAX_CACHE_BYTES);
    assert!(answers.kept.entry_count() > 100, "and still keeps some");
}

#[test]
fn the_same_question_is_asked_once_for_all_who_wait() {
    let answers = AnswerCache::new(LIFETIMES);
    let asked = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(Notify::new());
    let times = (Instant::now(), Instant::now() + HOUR);
    let found: Vec<_> = (0..50)
        .map(|_| {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            answers.find(&key("u"), times, |_| {
                asked.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move {
                    go.notified().await;
                    Ok(opinion(Decision::Allow))
                })
            })
        })
        .collect();
    let other = answers.find(&key("v"), times, |_| Box::pin(ready(Ok(opinion(Decision::Deny)))));
    block_on(async {
        assert_eq!(
            landed(other).await,
            Ok(opinion(Decision::Deny)),
            "another question is its own"
        );
        go.notify_one();
        for answer in join_all(found.into_iter().map(landed)).await {
            assert_eq!(answer, Ok(opinion(Decision::Allow)));
        }
    });
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(answers.flights().by_key.is_empty());
    assert!(matches!(
        answers.find(&key("u"), times, |_| panic!("it is known")),
        CacheLookup::Answer(_)
    ));
}

#[test]
fn one_who_gives_up_takes_the_answer_from_nobody() {
    let answers = AnswerCache::new(LIFETIMES);
    let now = Instant::now();
    let reported = Arc::new(Mutex::new(None));
    let go = Arc::new(Notify::new());
    let (teller, gate) = (Arc::clone(&reported), Arc::clone(&go));
    let hasty = answers.find(
        &key("u"),
        (now, now + Duration::from_secs(1)),
        |shared_deadline| {
            *teller.lock().unwrap() = Some(shared_deadline);
            Box::pin(async move {
                gate.notified().await;
                Ok(opinion(Decision::Allow))
            })
        },
    );
    let patient = answers.find(&key("u"), (now, now + HOUR), |_| panic!("it is on its way"));
    let end = reported.lock().unwrap().as_ref().unwrap().end();
    assert_eq!(end, now + HOUR, "the most patient counts");
    drop(hasty);
    go.notify_one();
    assert_eq!(block_on(landed(patient)), Ok(opinion(Decision::Allow)));
}

#[test]
fn a_question_for_which_nobody_waits_is_forgotten() {
    let answers = AnswerCache::new(LIFETIMES);
    let now = Instant::now();
    let never = answers.find(&key("u"), (now, now + HOUR), |_| Box::pin(std::future::pending()));
    assert_eq!(answers.flights().by_key.len(), 1);
    drop(never);
    assert!(answers.flights().by_key.is_empty());
    let again = answers.find(&key("u"), (now, now + HOUR), |_| {
        Box::pin(ready(Ok(opinion(Decision::Deny))))
    });
    assert_eq!(block_on(landed(again)), Ok(opinion(Decision::Deny)));
}

#[test]
fn an_error_is_told_to_all_who_wait_and_not_kept() {
    let failed = || AuthorizerCallError::Failed("down".to_owned());
    let answers = AnswerCache::new(LIFETIMES);
    let times = (Instant::now(), Instant::now() + HOUR);
    let found = answers.find(&key("u"), times, |_| Box::pin(ready(Err(failed()))));
    let joined = answers.find(&key("u"), times, |_| panic!("it is on its way"));
    block_on(async {
        assert_eq!(landed(found).await, Err(failed()));
        assert_eq!(landed(joined).await, Err(failed()));
    });
    assert_eq!(answers.get(&key("u"), Instant::now()), None);
    assert!(answers.flights().by_key.is_empty());
}

fn listing(name: &str, values: &[&str], extra: &str) -> Attributes<'static> {
    Attributes {
        user: User {
            name: "u".into(),
            extra: vec![("k".into(), vec![extra.to_owned().into()])],
            ..User::default()
        },
        target: Target::Resource(Box::new(ResourceAttributes {
            name: name.to_owned().into(),
            selectors: Selectors {
                label: vec![Requirement {
                    key: "a".into(),
                    operator: Operator::In,
                    values: values.iter().map(|value| (*value).to_owned().into()).collect(),
                }],
                field: Vec::new(),
            },
            ..ResourceAttributes::default()
        })),
    }
}

#[test]
fn what_a_user_makes_large_is_not_kept() {
    let long = "x".repeat(MAX_CACHED_BYTES);
    assert!(CacheKey::new("c", &listing("n", &["v"], "e")).is_some());
    assert_eq!(CacheKey::new("c", &listing(&long, &["v"], "e")), None);
    assert_eq!(CacheKey::new("c", &listing("n", &[&long], "e")), None);
    assert_eq!(CacheKey::new("c", &listing("n", &["v"], &long)), None);
    let many = vec![""; MAX_CACHED_BYTES];
    assert_eq!(
        CacheKey::new("c", &listing("n", &many, "e")),
        None,
        "empty values count"
    );
}

#[test]
fn a_large_key_is_not_kept_either() {
    let mut many = listing("n", &["v"], "e");
    many.user.groups = vec!["group".into(); MAX_KEY_BYTES / 8];
    assert_eq!(CacheKey::new("c", &many), None);
    many.user.groups.truncate(1000);
    assert!(CacheKey::new("c", &many).is_some());
}

#[test]
fn clusters_and_questions_are_told_apart() {
    let key = |cluster: &str, name: &str| CacheKey::new(cluster, &listing(name, &["v"], "e"));
    assert_eq!(key("a", "n"), key("a", "n"));
    assert_ne!(key("a", "n"), key("b", "n"));
    assert_ne!(key("a", "n"), key("a", "m"));
}
