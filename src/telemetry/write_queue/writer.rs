//! The writer thread of a queue.

use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::{BatchWriter, Queue};

/// How long the writer lets items gather, so that workers wake it seldom.
const GATHER: Duration = Duration::from_millis(2);

/// What the writer takes at once.
struct Batch<B> {
    pending: B,
    items: u64,
    reopen: bool,
}

/// Writes until the queue is closed and everything is written.
pub(crate) fn run<B: Default>(queue: &Queue<B>, mut writer: impl BatchWriter<B>) {
    let mut spare = B::default();
    while let Some(mut batch) = next(queue, &mut writer, std::mem::take(&mut spare)) {
        if batch.reopen {
            writer.reopen();
        }
        let lost = writer.write(&mut batch.pending, batch.items);
        queue.dropped.inc_by(lost);
        spare = batch.pending;
        done(queue);
    }
}

/// Waits for items; `None` when there will be no more.
fn next<B>(queue: &Queue<B>, writer: &mut impl BatchWriter<B>, spare: B) -> Option<Batch<B>> {
    let mut limit = writer.rest();
    let mut state = queue.state();
    while state.items == 0 {
        if state.closed {
            return None;
        }
        let Some(rest) = limit else {
            state = queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let (woken, waited) = queue
            .wake
            .wait_timeout(state, rest)
            .unwrap_or_else(PoisonError::into_inner);
        state = woken;
        if waited.timed_out() && state.items == 0 && !state.closed {
            drop(state);
            limit = writer.rest();
            state = queue.state();
        }
    }
    if !state.closed {
        // Others add meanwhile; because of `writing` they need not wake anybody.
        state.writing = true;
        drop(state);
        thread::sleep(GATHER);
        state = queue.state();
    }
    state.writing = true;
    state.bytes = 0;
    Some(Batch {
        pending: std::mem::replace(&mut state.pending, spare),
        items: std::mem::take(&mut state.items),
        reopen: std::mem::take(&mut state.reopen),
    })
}

fn done<B>(queue: &Queue<B>) {
    queue.state().writing = false;
    queue.written.notify_all();
}
