//! `decisionLog`: where decisions are logged; `tracing`: which requests are traced, and the
//! collector to which spans and log records are sent.

use std::path::PathBuf;
use std::sync::Arc;

use super::manifests::ManifestPath;
use super::recording::{FileFormat, FolderBounds, decision_files, file_format, own_folder};
use super::section::Section;
use portcullis_policy::field::FaultKind;

/// The decision log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionLog {
    /// Where it is written.
    pub path: LogPath,
    /// What is logged for requests without opinion.
    pub trace: LogTrace,
}

/// What the decision log contains besides the decisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogTrace {
    /// Nothing else.
    #[default]
    None,
    /// For requests without opinion, the rules that nearly matched.
    NearMisses,
}

/// Where the decision log is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPath {
    /// `-`: standard output.
    Stdout,
    /// A file, as an absolute path, to which one JSON object per line is appended.
    File(PathBuf),
    /// `format: parquet`: files in folders by cluster, date and hour.
    Parquet(FolderBounds),
}

/// The fields that are only allowed with `format: parquet`.
const OF_PARQUET: [&str; 3] = ["folder", "maxBytes", "maxAge"];

pub(crate) fn decision_log(root: &Section<'_>, manifests: &[ManifestPath]) -> Option<DecisionLog> {
    let fields = ["path", "trace", "format", "folder", "maxBytes", "maxAge"];
    let section = root.optional("decisionLog", &fields)?;
    let traces = [("none", LogTrace::None), ("nearMisses", LogTrace::NearMisses)];
    let trace = section.choice("trace", &traces).unwrap_or_default();
    let path = match file_format(&section) {
        FileFormat::Json => log_path(&section),
        FileFormat::Parquet => log_folder(&section, manifests),
    };
    path.map(|path| DecisionLog { path, trace })
}

fn log_path(section: &Section<'_>) -> Option<LogPath> {
    for field in OF_PARQUET {
        if section.value(field).is_some() {
            let message = "allowed only with `format: parquet`: JSON lines are written to `path`, which the \
                gateway does not rotate";
            section.fault(field, FaultKind::Invalid, message);
        }
    }
    let text = section.required_text("path", "a file, or `-` for standard output")?;
    match text {
        "-" => Some(LogPath::Stdout),
        _ => section.path("path").map(LogPath::File),
    }
}

fn log_folder(section: &Section<'_>, manifests: &[ManifestPath]) -> Option<LogPath> {
    if section.value("path").is_some() {
        let message = "with `format: parquet`, decisions are written to `folder`: remove `path`";
        section.fault("path", FaultKind::Invalid, message);
    }
    decision_files(section, manifests).map(LogPath::Parquet)
}

// === impl DecisionLog ===

impl DecisionLog {
    /// The folder of Parquet files, with that format.
    #[must_use]
    pub const fn folder(&self) -> Option<&FolderBounds> {
        match &self.path {
            LogPath::Parquet(bounds) => Some(bounds),
            LogPath::Stdout | LogPath::File(_) => None,
        }
    }
}

/// Which requests are traced, and the collector.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The collector, which receives OTLP over gRPC: `http://host:port`.
    pub endpoint: Arc<str>,
    /// The fraction of requests that are traced if the caller does not decide that, from 0 to 1.
    pub sample_ratio: f64,
    /// Whether decisions are also sent as log records.
    pub logs: bool,
    /// Where log records wait for the collector; `None`: in memory.
    pub spool: Option<SpoolBounds>,
}

/// A folder in which log records wait for the collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolBounds {
    /// The folder, as an absolute path.
    pub folder: PathBuf,
    /// The maximum size of its files, in bytes.
    pub max_bytes: u64,
}

const DEFAULT_SPOOL_BYTES: u64 = 256 << 20;

/// A few times the size of the largest file.
const MIN_SPOOL_BYTES: u64 = 32 << 20;

const fn default_sample_ratio() -> f64 {
    0.01
}

pub(crate) fn tracing(root: &Section<'_>, manifests: &[ManifestPath]) -> Option<Tracing> {
    let section = root.optional("tracing", &["endpoint", "sampleRatio", "logs", "spool"])?;
    let logs = section.boolean("logs").unwrap_or(false);
    let spool = spool(&section, manifests);
    if spool.is_some() && !logs {
        let message = "only log records are kept there: add `logs: true`, or remove `spool`";
        section.fault("spool", FaultKind::Invalid, message);
    }
    let endpoint = section.required_text("endpoint", "the collector, such as `http://127.0.0.1:4317`");
    let ratio = section.ratio("sampleRatio");
    let endpoint = endpoint?;
    if !is_plain_origin(endpoint) {
        let message = format!(
            "`{endpoint}`: must be `http://` with a host and port and nothing more, such as \
             `http://127.0.0.1:4317`; to encrypt, run a collector on this machine"
        );
        section.fault("endpoint", FaultKind::Invalid, message);
        return None;
    }
    Some(Tracing {
        endpoint: endpoint.into(),
        sample_ratio: ratio.unwrap_or_else(default_sample_ratio),
        logs,
        spool,
    })
}

fn spool(tracing: &Section<'_>, manifests: &[ManifestPath]) -> Option<SpoolBounds> {
    let section = tracing.optional("spool", &["folder", "maxBytes"])?;
    let max_bytes = section.bytes("maxBytes", MIN_SPOOL_BYTES);
    Some(SpoolBounds {
        folder: own_folder(&section, manifests)?,
        max_bytes: max_bytes.unwrap_or(DEFAULT_SPOOL_BYTES),
    })
}

fn is_plain_origin(endpoint: &str) -> bool {
    let Some(authority) = endpoint.strip_prefix("http://") else {
        return false;
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let host_port = authority.rsplit_once(':');
    host_port.is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_host = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_');
        is_port && !host.is_empty() && (is_bracketed || host.chars().all(is_host))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, faults};
    use super::LogTrace;

    #[test]
    fn reads_every_field() {
        let read = |section: &str| config(&format!("tracing: {section}")).tracing.unwrap();
        let tracing = read(r#"{endpoint: "http://127.0.0.1:4317", sampleRatio: 0.5}"#);
        assert_eq!(
            (&*tracing.endpoint, tracing.sample_ratio),
            ("http://127.0.0.1:4317", 0.5)
        );
        assert_eq!(read(r#"{endpoint: "http://[::1]:4317/"}"#).sample_ratio, 0.01);
        assert_eq!(
            read(r#"{endpoint: "http://otel.infra:4317", sampleRatio: 1}"#).sample_ratio,
            1.0
        );
        assert_eq!((tracing.logs, tracing.spool), (false, None));
        let logs = read(r#"{endpoint: "http://a:1", logs: true, spool: {folder: s, maxBytes: 1Gi}}"#);
        assert!(logs.logs);
        let spool = logs.spool.unwrap();
        assert!(spool.folder.is_absolute() && spool.folder.ends_with("s"));
        assert_eq!(spool.max_bytes, 1 << 30);
        assert_eq!(config("").tracing, None);
    }

    #[test]
    fn a_decision_log_is_a_file_of_lines_or_a_folder_of_columns() {
        let read = |section: &str| config(&format!("decisionLog: {section}")).decision_log.unwrap();
        assert_eq!(read("{path: '-', format: json}").folder(), None);
        let log =
            read("{format: parquet, folder: decisions, maxBytes: 10Gi, maxAge: 30d, trace: nearMisses}");
        let folder = log.folder().unwrap();
        assert!(folder.folder.is_absolute() && folder.folder.ends_with("decisions"));
        assert_eq!(
            (folder.max_bytes, folder.max_age.as_secs()),
            (10 << 30, 30 * 24 * 3600)
        );
        assert_eq!(log.trace, LogTrace::NearMisses);
        for (section, expected) in [
            ("{format: parquet}", "decisionLog.folder: Required value"),
            (
                "{format: parquet, path: '-', folder: d}",
                "decisionLog.path: Invalid value: with `format: parquet`",
            ),
            (
                "{path: '-', folder: d}",
                "decisionLog.folder: Invalid value: allowed only with `format: parquet`",
            ),
            (
                "{path: '-', format: json, maxAge: 1d}",
                "decisionLog.maxAge: Invalid value: allowed only with",
            ),
            (
                "{path: '-', maxBytes: 1Gi}",
                "decisionLog.maxBytes: Invalid value: allowed only with",
            ),
            (
                "{format: orc, path: '-'}",
                "decisionLog.format: Unsupported value",
            ),
            (
                "{format: parquet, folder: d, maxAge: 1m}",
                "must be at least `1h`",
            ),
            (
                "{format: parquet, folder: d, maxBytes: 1Mi}",
                "must be a whole number of bytes from `64Mi`",
            ),
        ] {
            let found = faults(&format!("decisionLog: {section}\n"));
            assert!(found.contains(expected), "{section}: {found}");
        }
    }

    #[test]
    fn reports_what_cannot_be() {
        for (section, expected) in [
            ("{}", "tracing.endpoint: Required value"),
            ("{endpoint: 1}", "tracing.endpoint: Invalid type"),
            ("{endpoint: 'https://a:4317'}", "run a collector on this machine"),
            ("{endpoint: 'http://a'}", "must be `http://` with a host and port"),
            (
                "{endpoint: 'http://a:0'}",
                "must be `http://` with a host and port",
            ),
            (
                "{endpoint: 'http://a:4317/v1/traces'}",
                "must be `http://` with a host and port",
            ),
            (
                "{endpoint: 'http://u@a:4317'}",
                "must be `http://` with a host and port",
            ),
            (
                "{endpoint: 'http://a:1', sampleRatio: 2}",
                "must be a number from 0 to 1",
            ),
            (
                "{endpoint: 'http://a:1', sampleRatio: -0.1}",
                "must be a number from 0 to 1",
            ),
            (
                "{endpoint: 'http://a:1', sampleRatio: all}",
                "must be a number from 0 to 1",
            ),
            (
                "{endpoint: 'http://a:1', ratio: 1}",
                "tracing.ratio: Unsupported value",
            ),
            (
                "{endpoint: 'http://a:1', spool: {folder: s}}",
                "add `logs: true`, or remove `spool`",
            ),
            (
                "{endpoint: 'http://a:1', logs: true, spool: {maxBytes: 1Mi}}",
                "tracing.spool.folder: Required value",
            ),
            (
                "{endpoint: 'http://a:1', logs: true, spool: {folder: s, maxBytes: 1Mi}}",
                "must be a whole number of bytes from `32Mi`",
            ),
        ] {
            let found = faults(&format!("tracing: {section}\n"));
            assert!(found.contains(expected), "{section}: {found}");
        }
    }
}
