//! Connections to webhooks that nobody uses: so many in the process, so that neither their memory nor
//! their file descriptors grow with the number of webhooks, which a tenant chooses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle connection is kept: as Go's default transport does.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);

/// Idle connections to one webhook; client-go keeps 25.
const MAX_IDLE_OF_POOL: usize = 64;

/// Idle connections, of which that which was used last is the last.
pub(crate) struct IdleConnections<C>(Mutex<Vec<IdleConnection<C>>>);

struct IdleConnection<C> {
    /// The webhook that it leads to.
    pool: u64,
    /// The cluster whose webhook that is; `None`: everybody's.
    tenant: Option<Arc<str>>,
    connection: C,
    since: Instant,
}

// === impl IdleConnections ===

impl<C> IdleConnections<C> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// One of `pool` that `is_usable`; those that are not end.
    pub(crate) fn take(&self, pool: u64, is_usable: impl Fn(&C) -> bool) -> Option<C> {
        loop {
            let mut idle = self.idle();
            let place = idle.iter().rposition(|idle| idle.pool == pool)?;
            let found = idle.remove(place);
            drop(idle);
            if found.since.elapsed() < MAX_IDLE_TIME && is_usable(&found.connection) {
                return Some(found.connection);
            }
        }
    }

    /// Keeps one, where `most` are kept at all: of the tenant that has most of them, the one that
    /// was not used for longest ends. Whether it is the first.
    pub(crate) fn put(&self, pool: u64, tenant: Option<&Arc<str>>, connection: C, most: usize) -> bool {
        let mut idle = self.idle();
        if idle.iter().filter(|idle| idle.pool == pool).count() >= MAX_IDLE_OF_POOL {
            return false;
        }
        let is_first = idle.is_empty();
        idle.push(IdleConnection {
            pool,
            tenant: tenant.cloned(),
            connection,
            since: Instant::now(),
        });
        let ended = (idle.len() > most).then(|| {
            let place = least_used_of_the_largest(&idle);
            idle.remove(place)
        });
        drop((idle, ended));
        is_first
    }

    /// Ends all of `pool`.
    pub(crate) fn end(&self, pool: u64) {
        self.idle().retain(|idle| idle.pool != pool);
    }

    /// Ends what was idle for too long; whether anything is left.
    pub(crate) fn end_old(&self) -> bool {
        let mut idle = self.idle();
        idle.retain(|idle| idle.since.elapsed() < MAX_IDLE_TIME);
        !idle.is_empty()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of the connection that was not used for longest, of the tenant that has most.
fn least_used_of_the_largest<C>(idle: &[IdleConnection<C>]) -> usize {
    let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for one in idle {
        *counts.entry(one.tenant.as_deref()).or_default() += 1;
    }
    let largest = counts.into_iter().max_by_key(|(_, count)| *count);
    let largest = largest.map(|(tenant, _)| tenant);
    let place = idle.iter().position(|one| Some(one.tenant.as_deref()) == largest);
    place.unwrap_or_default()
}

/// How often those that were idle for too long are looked for.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_webhooks_leaves_the_others_their_connections() {
        let idle = IdleConnections::new();
        let [east, west] = ["east", "west"].map(|name| Some(Arc::<str>::from(name)));
        idle.put(0, west.as_ref(), 1_000, 10);
        for pool in 1..100 {
            idle.put(pool, east.as_ref(), pool, 10);
        }
        assert_eq!(idle.idle().len(), 10);
        assert_eq!(idle.take(0, |_| true), Some(1_000));
        assert_eq!(idle.take(90, |_| true), None, "the oldest of east ended");
        assert_eq!(idle.take(99, |_| true), Some(99));
    }

    #[test]
    fn of_one_webhook_so_many_are_kept_and_the_last_is_used_first() {
        let idle = IdleConnections::new();
        for connection in 0..100 {
            assert_eq!(idle.put(7, None, connection, 1_000), connection == 0);
        }
        let taken: Vec<_> = std::iter::from_fn(|| idle.take(7, |connection| connection % 2 == 0)).collect();
        assert_eq!(taken.len(), MAX_IDLE_OF_POOL / 2);
        assert_eq!(taken.first(), Some(&62));
        idle.put(7, None, 1, 10);
        idle.put(8, None, 2, 10);
        idle.end(7);
        assert_eq!((idle.take(7, |_| true), idle.take(8, |_| true)), (None, Some(2)));
        assert!(!idle.end_old());
    }
}
