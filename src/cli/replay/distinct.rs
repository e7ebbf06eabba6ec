//! What became of each distinct review, so that equal ones are decided once.
//!
//! API servers ask the same question over and over, and a recording has each of them. Two records are equal
//! if all that they say is, but for the time and the revision, and if no policy begins or ends between their
//! times. AdmissionReviews are never equal: each has a `uid` of its own.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::recorded::ReviewComparison;
use portcullis_policy::model::Time;

use crate::config::Endpoint;
use crate::recording::RecordLine;

/// What may be kept, of all threads together. What is beyond it is decided each time.
const MAX_BYTES: usize = 96 << 20;

/// What an entry takes, besides the texts of a change.
const ENTRY_BYTES: usize = 64;

/// Into how many parts the reviews are divided: threads seldom wait for each other.
const PARTS: usize = 64;

/// Two hashes by keys that nobody knows beforehand: a review cannot be made that has those of another.
type ReviewKey = [u64; 2];

/// What became of an equal review.
#[derive(Debug, Clone)]
enum KnownOutcome {
    Same,
    Other(Arc<ReviewComparison<()>>),
}

/// The reviews that were decided.
#[derive(Debug)]
pub(crate) struct DistinctReviews {
    hashers: [RandomState; 2],
    known: Vec<Mutex<HashMap<ReviewKey, KnownOutcome>>>,
    left: AtomicUsize,
    /// When another decision may begin, ascending; `None`: at any time.
    boundaries: Option<Vec<Time>>,
}

// === impl DistinctReviews ===

impl DistinctReviews {
    /// None yet, of those that all of `policies` decide.
    pub(crate) fn of(policies: [Option<&LoadedPolicies>; 2]) -> Self {
        let sets = policies.into_iter().flatten().flat_map(LoadedPolicies::sets);
        let boundaries: Option<Vec<Vec<Time>>> = sets.map(|(_, set)| set.time_boundaries()).collect();
        Self::with_boundaries(boundaries.map(|all| all.concat()), MAX_BYTES)
    }

    fn with_boundaries(mut boundaries: Option<Vec<Time>>, bytes: usize) -> Self {
        if let Some(boundaries) = &mut boundaries {
            boundaries.sort_unstable();
        }
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            known: (0..PARTS).map(|_| Mutex::default()).collect(),
            left: AtomicUsize::new(bytes),
            boundaries,
        }
    }

    /// What equal reviews share that are decided for `now`; `None` of a review that has no equal.
    pub(crate) fn key(&self, recorded: &RecordLine<'_>, now: Time) -> Option<ReviewKey> {
        if recorded.endpoint != Endpoint::Authorize {
            return None;
        }
        let key = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            recorded.hash_question(&mut hasher);
            match &self.boundaries {
                Some(boundaries) => boundaries
                    .partition_point(|begin| *begin <= now)
                    .hash(&mut hasher),
                None => now.hash(&mut hasher),
            }
            std::hash::Hasher::finish(&hasher)
        });
        Some(key)
    }

    /// What became of an equal review, if one was decided.
    pub(crate) fn known(&self, key: ReviewKey) -> Option<Arc<ReviewComparison<()>>> {
        let part = self.part(key)?;
        let known = part.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).map(|outcome| match outcome {
            KnownOutcome::Same => Arc::new(ReviewComparison::Same),
            KnownOutcome::Other(outcome) => Arc::clone(outcome),
        })
    }

    /// Keeps what became of a review, where there is room for it.
    pub(crate) fn keep(&self, key: ReviewKey, outcome: ReviewComparison<()>) {
        let texts = match &outcome {
            ReviewComparison::Same => 0,
            ReviewComparison::Changed(group, ()) => group.cause.len(),
            ReviewComparison::Lost(group, why, ()) => group.cause.len() + why.len(),
            ReviewComparison::Unknown(why) => why.len(),
        };
        let bytes = ENTRY_BYTES + size_of::<ReviewComparison<()>>() * usize::from(texts > 0) + texts;
        let room = |left: usize| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        let (Ok(_), Some(part)) = (taken, self.part(key)) else {
            return;
        };
        let outcome = match outcome {
            ReviewComparison::Same => KnownOutcome::Same,
            other => KnownOutcome::Other(Arc::new(other)),
        };
        part.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, outcome);
    }

    fn part(&self, [hash, _]: ReviewKey) -> Option<&Mutex<HashMap<ReviewKey, KnownOutcome>>> {
        let part = usize::try_from(hash % PARTS as u64).ok()?;
        self.known.get(part)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_cel::json::Document;

    use super::*;

    const LINE: &str = r#"{"time":"2026-11-22T12:00:00Z","endpoint":"authorize","cluster":"east","caller":"api","revision":"0123","decision":"allow","cause":{"kind":"RoleBinding","name":"b","rule":0},"review":{"spec":{"user":"jane","groups":["a","b"]}}}"#;

    fn key(distinct: &DistinctReviews, line: &str, now: &str) -> Option<ReviewKey> {
        let document = Document::parse(line).unwrap();
        let recorded = RecordLine::read(&document).unwrap();
        distinct.key(&recorded, Time::parse(now).unwrap())
    }

    #[test]
    fn reviews_are_equal_if_all_is_but_their_time_and_revision() {
        let distinct = DistinctReviews::with_boundaries(Some(Vec::new()), MAX_BYTES);
        let of = |line: &str| key(&distinct, line, "2026-11-22T12:00:00Z").unwrap();
        for (part, other) in [("12:00:00Z", "13:00:00Z"), ("0123", "4567")] {
            assert_eq!(of(LINE), of(&LINE.replacen(part, other, 1)), "{part}");
        }
        for (part, other) in [
            ("east", "west"),
            (r#""api""#, r#""api-2""#),
            (r#""allow""#, r#""deny""#),
            (r#""rule":0"#, r#""rule":1"#),
            (r#"["a","b"]"#, r#"["b","a"]"#),
            ("jane", "joe"),
            (r#"}}}"#, r#"}},"authorizers":[]}"#),
            (r#"}}}"#, r#"}},"later":1}"#),
        ] {
            assert_ne!(of(LINE), of(&LINE.replacen(part, other, 1)), "{part}");
        }
        let admission = LINE.replacen("authorize", "validate", 1);
        assert_eq!(key(&distinct, &admission, "2026-11-22T12:00:00Z"), None);
    }

    #[test]
    fn reviews_are_not_equal_where_a_policy_begins_or_ends_between_them() {
        let christmas = Time::parse("2026-12-24T00:00:00Z").unwrap();
        let distinct = DistinctReviews::with_boundaries(Some(vec![christmas]), MAX_BYTES);
        let at = |now: &str| key(&distinct, LINE, now).unwrap();
        assert_eq!(at("2026-11-22T12:00:00Z"), at("2026-12-23T23:59:59.999999Z"));
        assert_ne!(at("2026-12-23T23:59:59.999999Z"), at("2026-12-24T00:00:00Z"));
        assert_eq!(at("2026-12-24T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let unsteady = DistinctReviews::with_boundaries(None, MAX_BYTES);
        let at = |now: &str| key(&unsteady, LINE, now).unwrap();
        assert_eq!(at("2026-11-22T12:00:00Z"), at("2026-11-22T12:00:00Z"));
        assert_ne!(at("2026-11-22T12:00:00Z"), at("2026-11-22T12:00:00.000001Z"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let distinct = DistinctReviews::with_boundaries(None, 10 * ENTRY_BYTES);
        for number in 0..100 {
            distinct.keep([number, 0], ReviewComparison::Same);
        }
        let known = (0..100).filter(|number| distinct.known([*number, 0]).is_some());
        assert_eq!(known.count(), 10);
        let distinct = DistinctReviews::with_boundaries(None, 10 * ENTRY_BYTES);
        distinct.keep([0, 0], ReviewComparison::Unknown("long".repeat(1000)));
        assert!(distinct.known([0, 0]).is_none());
        distinct.keep([0, 0], ReviewComparison::Unknown("short".to_owned()));
        assert!(
            matches!(&*distinct.known([0, 0]).unwrap(), ReviewComparison::Unknown(why) if why == "short")
        );
    }
}
