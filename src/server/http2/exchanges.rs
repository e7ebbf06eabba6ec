//! The exchanges of one connection that have not ended.
//!
//! Nearly every request arrives with its body and is answered at once. Its exchange runs
//! where one before it ran, and costs no allocation; only one that has to wait is kept,
//! and is polled again when it is woken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream as _;
use futures_util::stream::FuturesUnordered;

/// The exchanges, and places for those to come.
pub(crate) struct Exchanges<E> {
    /// Not run yet.
    begun: Vec<ExchangePlace<E>>,
    waiting: FuturesUnordered<ExchangePlace<E>>,
    spare: Vec<ExchangePlace<E>>,
}

/// Where an exchange runs.
struct ExchangePlace<E>(Pin<Box<Option<E>>>);

/// How many places an idle connection keeps: some kilobytes each.
const SPARE: usize = 4;

// === impl Exchanges ===

impl<E: Future> Exchanges<E> {
    pub(crate) fn new() -> Self {
        Self {
            begun: Vec::new(),
            waiting: FuturesUnordered::new(),
            spare: Vec::new(),
        }
    }

    /// How many have not ended.
    pub(crate) fn len(&self) -> usize {
        self.begun.len() + self.waiting.len()
    }

    /// How many have not run yet.
    pub(crate) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Puts the exchange that `mk_exchange` makes where it runs.
    pub(crate) fn begin(&mut self, mk_exchange: impl FnOnce() -> E) {
        let mut place = self.spare.pop().unwrap_or_else(|| ExchangePlace(Box::pin(None)));
        place.0.set(Some(mk_exchange()));
        self.begun.push(place);
    }

    /// Runs those that have not run yet and those that can go on; tells `end` what came
    /// of each that has ended.
    pub(crate) fn run(&mut self, context: &mut Context<'_>, mut end: impl FnMut(E::Output)) {
        for mut place in self.begun.drain(..) {
            match Pin::new(&mut place).poll(context) {
                Poll::Ready(outcome) => {
                    end(outcome);
                    if self.spare.len() < SPARE {
                        place.0.set(None);
                        self.spare.push(place);
                    }
                }
                Poll::Pending => self.waiting.push(place),
            }
        }
        while !self.waiting.is_empty()
            && let Poll::Ready(Some(outcome)) = Pin::new(&mut self.waiting).poll_next(context)
        {
            end(outcome);
        }
    }
}

// === impl ExchangePlace ===

impl<E: Future> Future for ExchangePlace<E> {
    type Output = E::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<E::Output> {
        let exchange = self.get_mut().0.as_mut().as_pin_mut();
        exchange.map_or(Poll::Pending, |exchange| exchange.poll(context))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    #[test]
    fn an_exchange_ends_at_once_or_when_it_can() {
        let mut context = Context::from_waker(Waker::noop());
        let (mut exchanges, may_end) = (Exchanges::new(), Rc::new(Cell::new(true)));
        let mk_exchange = |number: u32| {
            let may_end = Rc::clone(&may_end);
            poll_fn(move |context: &mut Context<'_>| {
                context.waker().wake_by_ref();
                if may_end.get() {
                    Poll::Ready(number)
                } else {
                    Poll::Pending
                }
            })
        };
        let mut run = |exchanges: &mut Exchanges<_>| {
            let mut ended = Vec::new();
            exchanges.run(&mut context, |number| ended.push(number));
            ended.sort_unstable();
            ended
        };
        exchanges.begin(|| mk_exchange(1));
        exchanges.begin(|| mk_exchange(2));
        assert_eq!((exchanges.len(), exchanges.begun()), (2, 2));
        assert_eq!(run(&mut exchanges), [1, 2]);
        assert_eq!(exchanges.len(), 0);
        may_end.set(false);
        exchanges.begin(|| mk_exchange(3));
        exchanges.begin(|| mk_exchange(4));
        assert_eq!(run(&mut exchanges), [0_u32; 0]);
        assert_eq!((exchanges.len(), exchanges.begun()), (2, 0));
        may_end.set(true);
        exchanges.begin(|| mk_exchange(5));
        assert_eq!(run(&mut exchanges), [3, 4, 5]);
        assert_eq!(exchanges.len(), 0);
    }
}
