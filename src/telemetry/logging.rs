//! Structured logs to standard error.
//!
//! No request waits for the reader of the log: if a container runtime hangs or a pipe is full, log
//! lines are lost but no responses. The number of lines about the objects of one cluster is
//! limited.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use prometheus::IntCounter;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::write_queue::{LineQueue, LineQueueSettings};
use portcullis_policy::explain::one_line;

/// The variable with the filter of events, in the syntax of `tracing_subscriber::EnvFilter`:
/// `info`, `portcullis::state=debug,warn`, …. By default, `info` of Portcullis and warnings of the
/// rest are logged.
pub const FILTER_VARIABLE: &str = "PORTCULLIS_LOG";

/// The messages of kube about its threads are not useful, and its errors are logged once, by the
/// code that called it.
const DEFAULT_FILTER: &str = "kube_runtime=off,kube_client=off,portcullis=info,warn";

/// The variable with the format of events: `text` (the default) or `json`.
pub const FORMAT_VARIABLE: &str = "PORTCULLIS_LOG_FORMAT";

/// Why logging cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// [`FILTER_VARIABLE`] is not a filter.
    #[error(
        "{FILTER_VARIABLE}=`{value}` is not a log filter, such as `info` or \
             `portcullis::state=debug,warn`"
    )]
    Filter {
        /// The value of the variable.
        value: String,
        /// The error of the parser.
        source: tracing_subscriber::filter::ParseError,
    },
    /// [`FORMAT_VARIABLE`] is neither `text` nor `json`.
    #[error("{FORMAT_VARIABLE}=`{0}`: must be `text` or `json`")]
    Format(String),
    /// The thread cannot be started.
    #[error("cannot start a thread to write logs: {0}")]
    Thread(#[from] io::Error),
}

/// The most bytes of lines in the queue: some thousand lines.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// How long the end of the process waits for queued lines.
const MAX_FLUSH_TIME: Duration = Duration::from_secs(1);

/// The log of the process. Dropping it writes the queued lines, if that is possible soon.
#[derive(Debug)]
pub struct Log(LineQueue);

/// Writes events into the queue.
#[derive(Debug, Clone)]
struct LogWriter {
    queue: LineQueue,
    /// Whether events are JSON, in which special characters are escaped already.
    is_json: bool,
}

/// Starts logging for the whole process, as the environment specifies. Panics are logged, too.
/// `dropped` counts lost lines. A second call has no effect.
///
/// # Errors
///
/// A variable has an invalid value, or the thread cannot be started.
pub fn start(dropped: IntCounter) -> Result<Log, LoggingError> {
    let filter = filter(env::var(FILTER_VARIABLE).ok().as_deref())?;
    let json = is_json(env::var(FORMAT_VARIABLE).ok().as_deref())?;
    let settings = LineQueueSettings {
        thread: "log",
        limit: MAX_PENDING_BYTES,
        dropped,
        // There is no other place for this message.
        report: |_, _| {},
    };
    let queue = LineQueue::start(Box::new(io::stderr()), || Ok(Box::new(io::stderr())), settings)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured(
            env::var("NO_COLOR").ok().as_deref(),
            io::stderr().is_terminal(),
        ))
        .with_writer(LogWriter {
            queue: queue.clone(),
            is_json: json,
        });
    // An error means that there is a subscriber already, such as that of a test.
    let started = if json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(Log(queue))
}

/// Logs a panic like the hook of the standard library, but without blocking.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let payload = panic.payload_as_str().unwrap_or("without a message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(
        thread = thread.name().unwrap_or_default(),
        place,
        "panicked: {payload}"
    );
}

/// Colours are for terminals, unless the user has disabled them (<https://no-color.org>).
fn is_coloured(no_color: Option<&str>, terminal: bool) -> bool {
    terminal && no_color.is_none_or(str::is_empty)
}

/// The targets of actix and h2 for malformed requests and frames, with which an unauthenticated
/// client could fill the log. They are logged only if the filter names them.
const UNAUTHENTICATED_TARGETS: [&str; 2] = ["actix_http", "h2"];

fn filter(value: Option<&str>) -> Result<EnvFilter, LoggingError> {
    let value = value.filter(|value| !value.is_empty()).unwrap_or(DEFAULT_FILTER);
    let is_named = |target: &str| {
        let mut targets = value.split([',', '=', '[']).map(str::trim);
        targets.any(|named| named == target || named.starts_with(&format!("{target}::")))
    };
    let ours = UNAUTHENTICATED_TARGETS.iter().filter(|target| !is_named(target));
    let mut with_ours: Vec<String> = ours.map(|target| format!("{target}=off")).collect();
    with_ours.push(value.to_owned());
    let with_ours = with_ours.join(",");
    EnvFilter::try_new(with_ours).map_err(|source| LoggingError::Filter {
        value: value.to_owned(),
        source,
    })
}

fn is_json(value: Option<&str>) -> Result<bool, LoggingError> {
    match value {
        None | Some("" | "text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => Err(LoggingError::Format(other.to_owned())),
    }
}

// === impl Log ===

impl Drop for Log {
    fn drop(&mut self) {
        // A pipe that is not read must not keep the process alive.
        let _is_written = self.0.flush(MAX_FLUSH_TIME);
    }
}

// === impl LogWriter ===

impl<'w> MakeWriter<'w> for LogWriter {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// The subscriber writes each event with one call.
impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if self.is_json {
            self.queue.push([event, &[]]);
        } else {
            let line = one_event(&String::from_utf8_lossy(event));
            self.queue.push([line.as_bytes(), b"\n"]);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns an event on one line, without control characters. The remaining escape characters are
/// those of the formatter's own colours, because it replaces those in messages.
fn one_event(event: &str) -> String {
    let event = event.strip_suffix('\n').unwrap_or(event);
    let parts: Vec<_> = event.split('\u{1b}').map(one_line).collect();
    parts.join("\u{1b}")
}

// The limit on lines about the objects of one cluster.

/// The most lines about one cluster in one [`LINE_WINDOW`]: users could cause any number by writing a
/// faulty object repeatedly.
const MAX_LINES: u32 = 100;
const LINE_WINDOW: Duration = Duration::from_secs(60);

/// The number of lines for each cluster, so that one cluster does not use up the lines of others.
#[derive(Default)]
struct LogRate {
    clusters: DashMap<Arc<str>, LogLines>,
}

struct LogLines {
    since: Instant,
    written: u32,
    unwritten: u64,
}

/// Whether a line about an object of `cluster` may be written now. The first line after a pause is
/// preceded by the number of suppressed ones.
pub(crate) fn allows_line(cluster: &str) -> bool {
    static RATE: LazyLock<LogRate> = LazyLock::new(LogRate::default);
    let Some(unwritten) = RATE.due(cluster, Instant::now()) else {
        return false;
    };
    if unwritten > 0 {
        tracing::warn!(
            cluster,
            unwritten,
            "lines about objects of the cluster were not written: the objects change too often"
        );
    }
    true
}

// === impl LogRate ===

impl LogRate {
    /// The number of lines that were suppressed before this one; `None` if this one is suppressed,
    /// too.
    fn due(&self, cluster: &str, now: Instant) -> Option<u64> {
        let new = || LogLines {
            since: now,
            written: 0,
            unwritten: 0,
        };
        let mut lines = self.clusters.entry(cluster.into()).or_insert_with(new);
        let mut unwritten = 0;
        if now.saturating_duration_since(lines.since) >= LINE_WINDOW {
            unwritten = lines.unwritten;
            *lines = new();
        }
        if lines.written == MAX_LINES {
            lines.unwritten = lines.unwritten.saturating_add(1);
            return None;
        }
        lines.written += 1;
        Some(unwritten)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn colour_is_for_terminals_of_people_who_like_it() {
        assert!(is_coloured(None, true) && is_coloured(Some(""), true));
        assert!(!is_coloured(Some("1"), true) && !is_coloured(None, false));
    }

    #[test]
    fn an_event_is_one_line_in_its_own_colours() {
        let event = "\u{1b}[32m INFO\u{1b}[0m a\n2026-01-01 INFO forged\r\u{202e}##[error]\n";
        let line = "\u{1b}[32m INFO\u{1b}[0m a\\n2026-01-01 INFO forged\\r\\u{202e}##\\u{5b}error]";
        assert_eq!(one_event(event), line);
    }

    #[test]
    fn the_environment_chooses_filter_and_format() {
        let directives = |value| {
            let filter = filter(value).unwrap().to_string();
            filter.split(',').map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let of = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
        let default = format!("actix_http=off,h2=off,{DEFAULT_FILTER}");
        assert_eq!(directives(None), of(&default));
        assert_eq!(
            directives(Some("portcullis::server::http2=debug")),
            of("actix_http=off,h2=off,portcullis::server::http2=debug")
        );
        assert_eq!(
            directives(Some("actix_http=debug")),
            of("actix_http=debug,h2=off")
        );
        let within = format!("info,{}=debug", ["h2", "proto"].join("::"));
        assert_eq!(directives(Some(&within)), of(&format!("actix_http=off,{within}")));
        assert!(filter(Some("a=b=c")).unwrap_err().to_string().contains("`a=b=c`"));
        assert!(!is_json(None).unwrap());
        assert!(is_json(Some("json")).unwrap());
        assert!(is_json(Some("xml")).is_err());
    }

    #[test]
    fn one_cluster_writes_a_bounded_number_of_lines_and_others_theirs() {
        let (rate, start) = (LogRate::default(), Instant::now());
        let written = (0..1_000).filter(|_| rate.due("east", start).is_some());
        assert_eq!(written.count(), 100);
        assert_eq!(rate.due("west", start), Some(0));
        assert_eq!(
            rate.due("east", start + LINE_WINDOW),
            Some(900),
            "and says what was left out"
        );
        assert_eq!(rate.due("east", start + LINE_WINDOW), Some(0));
    }
}
