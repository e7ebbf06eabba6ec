//! `tracing`: which requests are traced, and where their spans are sent.

use std::sync::Arc;

use super::section::Section;
use portcullis_policy::field::FaultKind;

/// Where spans are sent, and of how many requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The collector: `http://host:port`, for OTLP over gRPC.
    pub endpoint: Arc<str>,
    /// The share of requests that are traced if the caller says nothing of it, from 0 to 1.
    pub sample_ratio: f64,
}

const fn default_sample_ratio() -> f64 {
    0.01
}

pub(crate) fn tracing(root: &Section<'_>) -> Option<Tracing> {
    let section = root.optional("tracing", &["endpoint", "sampleRatio"])?;
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
        assert_eq!(config("").tracing, None);
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
        ] {
            let found = faults(&format!("tracing: {section}\n"));
            assert!(found.contains(expected), "{section}: {found}");
        }
    }
}
