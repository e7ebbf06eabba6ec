//! A queue of lines for a file or pipe that may be slow, full or stuck.

use std::io::{self, Write};
use std::time::Duration;

use prometheus::IntCounter;

use super::write_queue::{self, BatchWriter, WriteQueue};

/// Where lines go.
pub(crate) type LogSink = Box<dyn Write + Send>;

/// Memory kept for the next batch.
const SPARE_BYTES: usize = 256 << 10;

/// Takes lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct LineQueue(WriteQueue<Vec<u8>>);

/// What a queue of lines is like.
pub(crate) struct LineQueueSettings {
    /// The name of the writer's thread.
    pub(crate) thread: &'static str,
    /// Bytes that may wait for the writer.
    pub(crate) limit: usize,
    /// Counts lost lines.
    pub(crate) dropped: IntCounter,
    /// Says that the sink failed; of writing once until that succeeds again.
    pub(crate) report: fn(WriteFailure, &io::Error),
}

/// What a sink failed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// Being made anew: the one before stays.
    Reopen,
    /// Being written: the lines are lost.
    Write,
}

/// Writes lines to a sink.
struct LineWriter<R> {
    sink: LogSink,
    reopen: R,
    report: fn(WriteFailure, &io::Error),
    /// The last write failed.
    broken: bool,
}

// === impl LineQueue ===

impl LineQueue {
    /// Starts the writer to `sink`; `reopen` makes another one after [`LineQueue::reopen`],
    /// or fails, in which case the one before stays.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        sink: LogSink,
        reopen: impl Fn() -> io::Result<LogSink> + Send + 'static,
        settings: LineQueueSettings,
    ) -> io::Result<Self> {
        let writer = LineWriter {
            sink,
            reopen,
            report: settings.report,
            broken: false,
        };
        let settings = write_queue::QueueSettings {
            thread: settings.thread,
            limit: settings.limit,
            dropped: settings.dropped,
        };
        WriteQueue::start(writer, settings).map(Self)
    }

    /// Queues a line, which ends in a line break, or drops and counts it when the queue is full.
    pub(crate) fn push(&self, [start, end]: [&[u8]; 2]) {
        self.0.push(start.len() + end.len(), |pending| {
            pending.extend_from_slice(start);
            pending.extend_from_slice(end);
        });
    }

    /// Has the sink made anew before the next line.
    pub(crate) fn reopen(&self) {
        self.0.reopen();
    }

    /// Waits until every line so far is written, `limit` at most. Whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.0.flush(limit)
    }
}

// === impl LineWriter ===

impl<R: Fn() -> io::Result<LogSink> + Send + 'static> BatchWriter<Vec<u8>> for LineWriter<R> {
    fn write(&mut self, lines: &mut Vec<u8>, count: u64) -> u64 {
        let written = self.write_lines(lines);
        lines.clear();
        lines.shrink_to(SPARE_BYTES);
        let Err(error) = written else {
            self.broken = false;
            return 0;
        };
        if !self.broken {
            (self.report)(WriteFailure::Write, &error);
        }
        self.broken = true;
        count
    }

    fn reopen(&mut self) {
        match (self.reopen)() {
            Ok(fresh) => (self.sink, self.broken) = (fresh, false),
            Err(error) => (self.report)(WriteFailure::Reopen, &error),
        }
    }
}

impl<R> LineWriter<R> {
    /// Writes whole lines. After a failure the last one may be cut: a line break ends it.
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.broken {
            self.sink.write_all(b"\n")?;
        }
        self.sink.write_all(lines)?;
        self.sink.flush()
    }
}
