//! In-flight limits of one webhook, for all users and for each.
//!
//! A user whose requests are slow for a webhook must not keep it from answering others:
//! one user may have at most a quarter of all calls.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

/// Which part of all calls may be one user's.
const USER_PARTS: usize = 4;

/// For whom a webhook is called: the user of the request, as the callers of one share say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requester<'a> {
    /// [`Caller::share`](crate::identity::Caller::share).
    pub share: &'a str,
    /// `userInfo.username` of the review.
    pub user: &'a str,
}

/// A limit of calls at once. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    limit: usize,
    calls: Arc<Calls>,
}

/// The calls in flight.
#[derive(Debug, Default)]
struct Calls {
    all: AtomicUsize,
    /// By the hash of the requester, however long its name is. The hasher has keys of its own in
    /// each process: nobody can choose whose calls count together with theirs.
    by_requester: DashMap<u64, usize>,
}

/// A call that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    calls: Arc<Calls>,
    requester: Option<u64>,
}

/// Which limit leaves no room for one call more, and how to raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    /// That of all calls.
    #[error(
        "it has {0} calls in flight already, as many as `upstreams.inFlight` of the gateway's configuration allows"
    )]
    Webhook(usize),
    /// That of one user's calls.
    #[error(
        "it has {share} calls for this user in flight already, as many as one user may have: \
        a quarter of `upstreams.inFlight` ({limit}) of the gateway's configuration"
    )]
    Requester {
        /// The user's calls at once.
        share: usize,
        /// All calls at once.
        limit: usize,
    },
}

// === impl InFlight ===

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::default(),
        }
    }

    /// The same calls under another limit.
    pub(crate) fn with_limit(&self, limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::clone(&self.calls),
        }
    }

    /// One call more, for `requester` if for anybody.
    ///
    /// # Errors
    ///
    /// There are enough.
    pub(crate) fn enter(&self, requester: Option<Requester<'_>>) -> Result<InFlightPermit, Full> {
        let calls = &self.calls;
        if calls.all.load(Ordering::Relaxed) >= self.limit {
            return Err(Full::Webhook(self.limit));
        }
        let requester = requester.map(|requester| calls.by_requester.hasher().hash_one(requester));
        if let Some(requester) = requester {
            self.count(calls.by_requester.entry(requester))?;
        } else {
            self.count_among_all()?;
        }
        Ok(InFlightPermit {
            calls: Arc::clone(calls),
            requester,
        })
    }

    /// Counts a call of a requester, whose entry is locked meanwhile.
    fn count(&self, held: Entry<'_, u64, usize>) -> Result<(), Full> {
        let share = (self.limit / USER_PARTS).max(1);
        match held {
            Entry::Occupied(held) if *held.get() >= share => Err(Full::Requester {
                share,
                limit: self.limit,
            }),
            Entry::Occupied(mut held) => {
                self.count_among_all()?;
                *held.get_mut() += 1;
                Ok(())
            }
            Entry::Vacant(none) => {
                self.count_among_all()?;
                none.insert(1);
                Ok(())
            }
        }
    }

    fn count_among_all(&self) -> Result<(), Full> {
        let one_more = |all: usize| (all < self.limit).then_some(all + 1);
        let counted = self
            .calls
            .all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.map(|_| ()).map_err(|_| Full::Webhook(self.limit))
    }
}

// === impl InFlightPermit ===

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.calls.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(requester) = self.requester
            && let Entry::Occupied(mut held) = self.calls.by_requester.entry(requester)
        {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(calls.enter(JANE).unwrap_err(), Full::Webhook(2));
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
            "it has 2 calls for this user in flight already, as many as one user may have: \
            a quarter of `upstreams.inFlight` (8) of the gateway's configuration"
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
}
