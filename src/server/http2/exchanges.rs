//! The exchanges of one connection that have not ended.
//!
//! Nearly every request arrives with its body and is answered at once. Its exchange runs
//! where the one before it ran, and costs no allocation; only one that has to wait is
//! kept, and is polled again when it is woken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream as _;
use futures_util::stream::FuturesUnordered;

/// Exchanges that wait, and a place for the next one.
pub(super) struct Exchanges<E> {
    waiting: FuturesUnordered<ExchangePlace<E>>,
    spare: Option<ExchangePlace<E>>,
}

/// Where an exchange runs.
struct ExchangePlace<E>(Pin<Box<Option<E>>>);

// === impl Exchanges ===

impl<E: Future> Exchanges<E> {
    pub(super) fn new() -> Self {
        Self {
            waiting: FuturesUnordered::new(),
            spare: None,
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Begins `exchange`; what came of it, if it has ended at once.
    pub(super) fn begin(&mut self, exchange: E, context: &mut Context<'_>) -> Option<E::Output> {
        let mut place = self.spare.take().unwrap_or_else(|| ExchangePlace(Box::pin(None)));
        place.0.set(Some(exchange));
        if let Poll::Ready(outcome) = Pin::new(&mut place).poll(context) {
            place.0.set(None);
            self.spare = Some(place);
            return Some(outcome);
        }
        self.waiting.push(place);
        None
    }

    /// Runs those that can go on; tells `end` what came of each that has ended.
    pub(super) fn poll_ended(&mut self, context: &mut Context<'_>, mut end: impl FnMut(E::Output)) {
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
        assert_eq!(exchanges.begin(mk_exchange(1), &mut context), Some(1));
        assert_eq!(exchanges.begin(mk_exchange(2), &mut context), Some(2));
        may_end.set(false);
        assert_eq!(exchanges.begin(mk_exchange(3), &mut context), None);
        assert_eq!(exchanges.begin(mk_exchange(4), &mut context), None);
        let mut ended = Vec::new();
        exchanges.poll_ended(&mut context, |number| ended.push(number));
        assert_eq!((exchanges.len(), ended.len()), (2, 0));
        may_end.set(true);
        assert_eq!(exchanges.begin(mk_exchange(5), &mut context), Some(5));
        exchanges.poll_ended(&mut context, |number| ended.push(number));
        ended.sort_unstable();
        assert_eq!((exchanges.len(), ended), (0, vec![3, 4]));
    }
}
