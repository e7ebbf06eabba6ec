//! The writer thread of the decision log.

use std::io;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::{LogSink, Queue, WriteFailure};

/// How long the writer lets lines gather, so that workers wake it seldom.
const GATHER: Duration = Duration::from_millis(2);

/// Memory kept for the next batch.
const SPARE_BYTES: usize = 256 << 10;

/// What the writer takes at once.
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
    reopen: bool,
}

/// Writes until the queue is closed and everything is written.
pub(super) fn run(
    queue: &Queue,
    mut sink: LogSink,
    reopen: &dyn Fn() -> io::Result<LogSink>,
    report: fn(WriteFailure, &io::Error),
) {
    let mut spare = Vec::new();
    let mut broken = false;
    while let Some(mut batch) = next(queue, std::mem::take(&mut spare)) {
        if batch.reopen {
            match reopen() {
                Ok(fresh) => (sink, broken) = (fresh, false),
                Err(error) => report(WriteFailure::Reopen, &error),
            }
        }
        match write(&mut sink, &batch.bytes, broken) {
            Ok(()) => broken = false,
            Err(error) => {
                queue.dropped.inc_by(batch.lines);
                if !broken {
                    report(WriteFailure::Write, &error);
                }
                broken = true;
            }
        }
        batch.bytes.clear();
        batch.bytes.shrink_to(SPARE_BYTES);
        spare = batch.bytes;
        done(queue);
    }
}

/// Waits for lines; `None` when there will be no more.
fn next(queue: &Queue, spare: Vec<u8>) -> Option<Batch> {
    let mut state = queue.state();
    while state.pending.is_empty() {
        if state.closed {
            return None;
        }
        state = queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if !state.closed {
        // Others append meanwhile; because of `writing` they need not wake anybody.
        state.writing = true;
        drop(state);
        thread::sleep(GATHER);
        state = queue.state();
    }
    state.writing = true;
    Some(Batch {
        bytes: std::mem::replace(&mut state.pending, spare),
        lines: std::mem::take(&mut state.lines),
        reopen: std::mem::take(&mut state.reopen),
    })
}

/// Writes whole lines. After a failure the last one may be cut: a line break ends it.
fn write(sink: &mut LogSink, bytes: &[u8], after_failure: bool) -> io::Result<()> {
    if after_failure {
        sink.write_all(b"\n")?;
    }
    sink.write_all(bytes)?;
    sink.flush()
}

fn done(queue: &Queue) {
    queue.state().writing = false;
    queue.written.notify_all();
}
