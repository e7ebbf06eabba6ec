//! Where a webhook's name leads: found out once for all calls that wait, and
//! believed for a while.
//!
//! A question to name servers cannot be taken back, and holds a thread until they
//! answer. Were each call to ask anew when the one before has given up, a single
//! name whose servers are silent would soon hold all threads, and calls to other
//! webhooks would find none.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use super::Error;

/// How long what a name led to is believed.
const REMEMBERED: Duration = Duration::from_secs(5);

/// What is being found out, for everybody who waits for it.
pub(crate) type Resolving = Shared<BoxFuture<'static, Result<Vec<SocketAddr>, Error>>>;

/// The addresses of one name.
#[derive(Default)]
pub(crate) struct Resolution(Mutex<Option<(Instant, Resolving)>>);

// === impl Resolution ===

impl Resolution {
    /// What the name led to a moment ago, or what `resolve` is finding out or, if nobody is
    /// at it, begins to: it goes on when nobody waits for it any more. Failures are not kept.
    pub(crate) fn get<F>(&self, resolve: impl FnOnce() -> F) -> Resolving
    where
        F: Future<Output = Result<Vec<SocketAddr>, Error>> + Send + 'static,
    {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, resolving)) = &*last
            && match resolving.peek() {
                None => true,
                Some(Ok(_)) => begun.elapsed() < REMEMBERED,
                Some(Err(_)) => false,
            }
        {
            return resolving.clone();
        }
        let resolving = resolve().boxed().shared();
        drop(tokio::spawn(resolving.clone()));
        *last = Some((Instant::now(), resolving.clone()));
        resolving
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_name_whose_servers_are_silent_is_asked_for_once_however_many_calls_give_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (resolution, asked) = (Resolution::default(), Cell::new(0));
            let (answer, answered) = oneshot::channel();
            let mut answered = Some(answered);
            let mut get = || {
                resolution.get(|| {
                    asked.set(asked.get() + 1);
                    let answered = answered.take().unwrap();
                    async move { answered.await.unwrap() }
                })
            };
            for _ in 0..100 {
                let mut given_up = get();
                assert!(poll!(&mut given_up).is_pending());
            }
            let waiting = get();
            let address = SocketAddr::from(([192, 0, 2, 1], 443));
            answer.send(Ok(vec![address])).unwrap();
            assert_eq!(waiting.await, Ok(vec![address]));
            assert_eq!(get().await, Ok(vec![address]), "a moment ago");
            assert_eq!(asked.get(), 1);
        });
    }

    #[test]
    fn a_failure_is_not_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let resolution = Resolution::default();
            assert_eq!(
                resolution.get(|| async { Err(Error::Runtime) }).await,
                Err(Error::Runtime)
            );
            assert_eq!(resolution.get(|| async { Ok(Vec::new()) }).await, Ok(Vec::new()));
        });
    }
}
