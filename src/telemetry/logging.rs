//! Structured logs to standard error.
//!
//! No request waits for the reader of the log: if a container runtime hangs or a pipe is
//! full, log lines are lost but no answers. Nor do the objects of one cluster fill it.

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

/// Which events are logged, as `tracing_subscriber::EnvFilter` reads it: `info`,
/// `portcullis::state=debug,warn`, …; absent, `info` of Portcullis and warnings of the rest.
pub const FILTER_VARIABLE: &str = "PORTCULLIS_LOG";

/// What the libraries tell of their threads interests nobody, and what kube
/// says of a failure is logged once, by the code that called it.
const DEFAULT_FILTER: &str = "kube_runtime=off,kube_client=off,portcullis=info,warn";

/// How events look: `text` (absent) or `json`.
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
        /// Its value.
        value: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// [`FORMAT_VARIABLE`] is neither `text` nor `json`.
    #[error("{FORMAT_VARIABLE}=`{0}`: must be `text` or `json`")]
    Format(String),
    /// The operating system refused a thread.
    #[error("cannot start a thread to write logs: {0}")]
    Thread(#[from] io::Error),
}

/// Bytes that may wait for the writer: some thousand lines.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// How long the end of the process waits for lines to be written.
const MAX_FLUSH_TIME: Duration = Duration::from_secs(1);

/// The log of the process. What waits is written when this is dropped, where that is
/// possible soon.
#[derive(Debug)]
pub struct Log(LineQueue);

/// Puts what is logged into the queue.
#[derive(Debug, Clone)]
struct LogWriter {
    queue: LineQueue,
    /// Lines are JSON, which has escapes of its own.
    is_json: bool,
}

/// Starts logging for the whole process, as the environment asks; panics are logged
/// too. `dropped` counts lost lines. A second call changes nothing.
///
/// # Errors
/// When the environment asks for something that is not there, or no thread can be started.
pub fn start(dropped: IntCounter) -> Result<Log, LoggingError> {
    let filter = filter(env::var(FILTER_VARIABLE).ok().as_deref())?;
    let json = is_json(env::var(FORMAT_VARIABLE).ok().as_deref())?;
    let settings = LineQueueSettings {
        thread: "log",
        limit: MAX_PENDING_BYTES,
        dropped,
        // There is nowhere else to say so.
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
    // An error means that a subscriber is there already, such as a test's.
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

/// As the standard library's own hook, but that it waits for nobody.
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

/// Colour is for people at a terminal who have not declined it (<https://no-color.org>).
fn is_coloured(no_color: Option<&str>, terminal: bool) -> bool {
    terminal && no_color.is_none_or(str::is_empty)
}

/// What actix and h2 write for malformed requests and frames: an unauthenticated client could
/// fill the log with it. Only a filter that names such a target gets it.
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
        // A pipe that nobody reads keeps no process alive.
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

/// Each event comes as one write.
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

/// An event on one line, with nothing in it that acts. Escape characters are those of its own
/// colours: of what is logged, the formatter has replaced them.
fn one_event(event: &str) -> String {
    let event = event.strip_suffix('\n').unwrap_or(event);
    let parts: Vec<_> = event.split('\u{1b}').map(one_line).collect();
    parts.join("\u{1b}")
}

// How many lines the objects of a cluster write.

/// The most lines of one cluster in one [`WINDOW`]: who may write an object that is faulty may
/// write it again and again.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

/// The lines of each cluster: one that writes very many takes nothing from the others.
#[derive(Default)]
struct LogRate {
    clusters: DashMap<Arc<str>, LogLines>,
}

struct LogLines {
    since: Instant,
    written: u32,
    unwritten: u64,
}

/// Whether to write a line about an object of `cluster` now. Says how many were not written, once
/// one is again.
pub(crate) fn allows_line(cluster: &str) -> bool {
    static RATE: LazyLock<LogRate> = LazyLock::new(LogRate::default);
    let Some(unwritten) = RATE.due(cluster, Instant::now()) else {
        return false;
    };
    if unwritten > 0 {
        tracing::warn!(
            cluster,
            unwritten,
            "lines about objects of the cluster were not written: its objects change too often"
        );
    }
    true
}

// === impl LogRate ===

impl LogRate {
    /// How many lines were not written before this one; `None`: nor is this one.
    fn due(&self, cluster: &str, now: Instant) -> Option<u64> {
        let new = || LogLines {
            since: now,
            written: 0,
            unwritten: 0,
        };
        let mut lines = self.clusters.entry(cluster.into()).or_insert_with(new);
        let mut unwritten = 0;
        if now.saturating_duration_since(lines.since) >= WINDOW {
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
            rate.due("east", start + WINDOW),
            Some(900),
            "and says what was left out"
        );
        assert_eq!(rate.due("east", start + WINDOW), Some(0));
    }
}
