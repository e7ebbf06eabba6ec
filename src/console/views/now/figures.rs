//! How many decisions, how fast: of the last hour.

use std::time::SystemTime;

use serde::Serialize;

use crate::config::Endpoint;
use crate::console::history::{EndpointInterval, Interval, MetricsHistory};
use crate::telemetry::Metrics;

/// Samples in a row of the table: five minutes.
const ROW: usize = 30;

/// What was decided in the last hour.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// How much of the hour is known, in minutes.
    pub(crate) minutes: u64,
    pub(crate) endpoints: Vec<EndpointFigures>,
    /// Decisions by cluster.
    pub(crate) decisions_by_cluster: Vec<ClusterFigures>,
    /// Every ten seconds, the oldest first: what the charts show.
    pub(crate) samples: Vec<SampleFigures>,
    /// The same in steps of five minutes, the newest first.
    #[serde(skip)]
    pub(crate) rows: Vec<RowFigures>,
}

/// Decisions at one endpoint.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointFigures {
    pub(crate) endpoint: &'static str,
    pub(crate) allow: u64,
    pub(crate) deny: u64,
    pub(crate) no_opinion: u64,
    /// In milliseconds; absent without decisions.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// Requests at this moment.
    pub(crate) in_flight: u64,
}

/// Decisions for one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterFigures {
    pub(crate) cluster: String,
    pub(crate) allow: u64,
    pub(crate) deny: u64,
    pub(crate) no_opinion: u64,
}

/// Decisions a second, and how long they took, in milliseconds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SampleFigures {
    /// The end of the time, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) allow: f64,
    pub(crate) deny: f64,
    pub(crate) no_opinion: f64,
    pub(crate) authorize_p50: Option<f64>,
    pub(crate) authorize_p99: Option<f64>,
    /// `None` where it is not known.
    pub(crate) in_flight: Option<u64>,
}

/// A sample as a row of the table.
#[derive(Debug)]
pub(crate) struct RowFigures {
    pub(crate) until: String,
    pub(crate) figures: SampleFigures,
}

// === impl Figures ===

impl Figures {
    /// Those of one cluster: how many decisions were made for it. Latencies and what is in flight
    /// are not known by cluster.
    pub(crate) fn of_cluster(history: &MetricsHistory, cluster: &str) -> Self {
        let whole = history.whole();
        let counts = whole.as_ref().and_then(|whole| whole.of_cluster(cluster));
        let minutes = whole.as_ref().map(|whole| whole.seconds / 60.0);
        let sample = |interval: &Interval| SampleFigures::of_cluster(interval, cluster);
        let row = |interval: &Interval| RowFigures {
            until: crate::certificates::rfc3339(interval.end),
            figures: sample(interval),
        };
        Self {
            minutes: round(minutes.unwrap_or_default()),
            endpoints: Vec::new(),
            decisions_by_cluster: counts
                .map(|[allow, deny, no_opinion]| ClusterFigures {
                    cluster: cluster.to_owned(),
                    allow,
                    deny,
                    no_opinion,
                })
                .into_iter()
                .collect(),
            samples: history.intervals().iter().map(sample).collect(),
            rows: history.each(ROW).iter().rev().map(row).collect(),
        }
    }

    pub(crate) fn new(history: &MetricsHistory, metrics: &Metrics) -> Self {
        let whole = history.whole();
        let now = metrics.sample();
        let of_endpoint = |endpoint: Endpoint| {
            let interval = whole
                .as_ref()
                .and_then(|whole| whole.endpoints.get(endpoint.index()));
            let in_flight = now.endpoints.get(endpoint.index()).map(|now| now.in_flight);
            EndpointFigures::new(endpoint, interval, in_flight.unwrap_or_default())
        };
        let clusters = whole.iter().flat_map(|whole| &whole.clusters);
        let minutes = whole.as_ref().map(|whole| whole.seconds / 60.0);
        Self {
            minutes: round(minutes.unwrap_or_default()),
            endpoints: Endpoint::ALL.map(of_endpoint).into(),
            decisions_by_cluster: clusters
                .map(|(cluster, [allow, deny, no_opinion])| ClusterFigures {
                    cluster: cluster.to_string(),
                    allow: *allow,
                    deny: *deny,
                    no_opinion: *no_opinion,
                })
                .collect(),
            samples: history.intervals().iter().map(Into::into).collect(),
            rows: history.each(ROW).iter().rev().map(Into::into).collect(),
        }
    }
}

// === impl EndpointFigures ===

impl EndpointFigures {
    fn new(endpoint: Endpoint, interval: Option<&EndpointInterval>, in_flight: u64) -> Self {
        let [allow, deny, no_opinion] = interval.map(|interval| interval.decisions).unwrap_or_default();
        Self {
            endpoint: endpoint.as_str(),
            allow,
            deny,
            no_opinion,
            p50: interval.and_then(|interval| milliseconds(interval, 0.5)),
            p99: interval.and_then(|interval| milliseconds(interval, 0.99)),
            in_flight,
        }
    }

    pub(crate) fn p50_text(&self) -> String {
        shown(self.p50)
    }

    pub(crate) fn p99_text(&self) -> String {
        shown(self.p99)
    }
}

// === impl SampleFigures ===

impl SampleFigures {
    pub(crate) fn p50_text(&self) -> String {
        shown(self.authorize_p50)
    }

    pub(crate) fn p99_text(&self) -> String {
        shown(self.authorize_p99)
    }

    pub(crate) fn in_flight_text(&self) -> String {
        self.in_flight
            .map_or_else(|| "-".to_owned(), |count| count.to_string())
    }

    fn of_cluster(interval: &Interval, cluster: &str) -> Self {
        let [allow, deny, no_opinion] = interval.rates_of_cluster(cluster);
        let since = interval.end.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            time: since.unwrap_or_default().as_secs(),
            allow,
            deny,
            no_opinion,
            authorize_p50: None,
            authorize_p99: None,
            in_flight: None,
        }
    }
}

impl From<&Interval> for SampleFigures {
    fn from(interval: &Interval) -> Self {
        let [allow, deny, no_opinion] = interval.rates();
        let authorize = interval.endpoints.get(Endpoint::Authorize.index());
        let since = interval.end.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            time: since.unwrap_or_default().as_secs(),
            allow,
            deny,
            no_opinion,
            authorize_p50: authorize.and_then(|of| milliseconds(of, 0.5)),
            authorize_p99: authorize.and_then(|of| milliseconds(of, 0.99)),
            in_flight: Some(interval.endpoints.iter().map(|of| of.in_flight).sum()),
        }
    }
}

impl From<&Interval> for RowFigures {
    fn from(interval: &Interval) -> Self {
        Self {
            until: crate::certificates::rfc3339(interval.end),
            figures: interval.into(),
        }
    }
}

fn milliseconds(interval: &EndpointInterval, share: f64) -> Option<f64> {
    interval.quantile(share).map(|seconds| seconds * 1e3)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "minutes of an hour"
)]
fn round(minutes: f64) -> u64 {
    minutes.round() as u64
}

/// A figure as it stands in a table; a dash where there is none.
fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"))
}
