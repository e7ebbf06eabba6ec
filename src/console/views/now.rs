//! `/`: what is in force, the metrics of the last hour, and what expires soon.

use std::time::{Duration, SystemTime};

use askama::Template;
use serde::Serialize;

use crate::config::Endpoint;
use crate::console::history::{EndpointInterval, Interval, MetricsHistory};
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::views::clusters::{visible_clusters, visible_faults};
use crate::console::{ViewContext, ViewRequest};
use crate::identity::certificates::{NOTICE, rfc3339};
use crate::state::{Change, Origin, ReloadFailure, SourceStatus};
use crate::telemetry::Metrics;
use portcullis_policy::field::Faults;
use portcullis_policy::model::{CauseKind, Decision, Time};

/// The maximum number of errors, and of expiring objects, on the page. The log and the metrics have
/// all.
const MAX_ITEMS: usize = 200;

/// How long before the end of a policy or exception it is shown.
const POLICY_NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The revision in force, its status, and the errors of what is not in force.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NowView {
    revision: String,
    /// The time since which it has been in force. Like the next fields, only for users who may see
    /// all clusters.
    since: Option<String>,
    /// The path of the configuration.
    configuration: Option<String>,
    last_change: Option<ChangeView>,
    /// Why the files on disk are not in force.
    failure: Option<FailureView>,
    /// The errors of files and of watched objects.
    faults: Vec<String>,
    clusters: Vec<ClusterView>,
    ending: Vec<ExpiryView>,
    #[serde(flatten)]
    figures: Figures,
}

/// The changes of the last reload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeView {
    summary: String,
    /// Denies, validating policies and webhooks that are no longer in force.
    removed_restrictions: Vec<String>,
}

/// A failed reload.
#[derive(Debug, Serialize)]
struct FailureView {
    at: String,
    message: &'static str,
}

/// A watched cluster.
#[derive(Debug, Serialize)]
struct ClusterView {
    cluster: String,
    /// A description of where its objects are from.
    origin: &'static str,
    objects: usize,
    faulty: usize,
}

/// Something that expires soon, or has expired.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExpiryView {
    at: String,
    kind: String,
    name: String,
    is_over: bool,
}

#[derive(Template)]
#[template(path = "now.html")]
struct NowPage<'a> {
    frame: PageFrame,
    view: &'a NowView,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&[])?;
    let view = NowView::new(context);
    let frame = context.frame("Now", request);
    Page::of(request.representation, &view, &NowPage { frame, view: &view })
}

// === impl NowView ===

impl NowView {
    fn new(context: &ViewContext<'_>) -> Self {
        let failure = context.state.last_failure();
        let clusters = visible_clusters(context);
        let whole = context.visible.only().is_none();
        Self {
            revision: context.snapshot.revision.to_string(),
            since: whole.then(|| rfc3339(context.console.since())),
            configuration: whole.then(|| context.snapshot.config.file.display().to_string()),
            last_change: last_change(context),
            failure: failure.as_ref().map(Into::into),
            faults: visible_faults(context, failure.as_ref(), &clusters)
                .flat_map(Faults::iter)
                .take(MAX_ITEMS)
                .map(ToString::to_string)
                .collect(),
            clusters: clusters.iter().map(Into::into).collect(),
            ending: expiring_soon(context),
            figures: match context.visible.only() {
                None => Figures::new(&context.console.history, context.metrics),
                Some(cluster) => Figures::of_cluster(&context.console.history, cluster),
            },
        }
    }
}

/// The changes of the last reload. A user who may only see one cluster only sees the restrictions
/// that are no longer in force there, because other changed objects may belong to other clusters.
fn last_change(context: &ViewContext<'_>) -> Option<ChangeView> {
    let mut change = context.state.last_change()?;
    let Some(only) = context.visible.only() else {
        return Some(ChangeView::new(change.describe(true), &change));
    };
    change.vanished.retain(|restriction| {
        restriction
            .cluster
            .as_deref()
            .is_none_or(|cluster| cluster == only)
    });
    (!change.vanished.is_empty()).then(|| ChangeView::new(String::new(), &change))
}

/// Certificates, policies and exceptions that expire soon, the earliest first.
fn expiring_soon(context: &ViewContext<'_>) -> Vec<ExpiryView> {
    let snapshot = context.snapshot;
    let mut ends: Vec<ExpiryView> = Vec::new();
    let mut add = |kind: &str, name: String, at: SystemTime, notice: Duration| {
        if at <= context.now + notice {
            ends.push(ExpiryView {
                at: rfc3339(at),
                kind: kind.to_owned(),
                name,
                is_over: at <= context.now,
            });
        }
    };
    // The certificates are the gateway's, or those of other clusters.
    for expiry in snapshot
        .expiries
        .iter()
        .filter(|_| context.visible.only().is_none())
    {
        let name = format!("{} {}", expiry.file.display(), expiry.name);
        add("Certificate", name.trim_end().to_owned(), expiry.at, NOTICE);
    }
    let policies = &snapshot.policies;
    let of_clusters = policies
        .clusters
        .iter()
        .filter(|(cluster, _)| context.visible.contains(cluster));
    let sets = [&policies.shared]
        .into_iter()
        .chain(of_clusters.map(|(_, set)| set));
    for (name, end) in sets.flat_map(|set| set.ends()) {
        let kind = CauseKind::AuthorizationPolicy.as_str();
        add(kind, name.to_owned(), time(end), POLICY_NOTICE);
    }
    let admission = &snapshot.admission;
    let of_clusters = admission
        .clusters
        .iter()
        .filter(|(cluster, _)| context.visible.contains(cluster));
    let sets = [&admission.shared]
        .into_iter()
        .chain(of_clusters.map(|(_, set)| set));
    for (name, end) in sets.flat_map(|set| set.exception_ends()) {
        let kind = CauseKind::AdmissionException.as_str();
        add(kind, name.to_owned(), time(end), POLICY_NOTICE);
    }
    ends.sort();
    // A policy or exception for several clusters is shown once.
    ends.dedup();
    ends.truncate(MAX_ITEMS);
    ends
}

/// The end as a system time; ends before 1970 are moved to 1970.
fn time(end: Time) -> SystemTime {
    let since = Duration::try_from_secs_f64(end.as_seconds()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + since
}

// === impl ChangeView ===

impl ChangeView {
    fn new(summary: String, change: &Change) -> Self {
        Self {
            summary,
            removed_restrictions: change.vanished.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&ReloadFailure> for FailureView {
    fn from(failure: &ReloadFailure) -> Self {
        Self {
            at: rfc3339(failure.at),
            message: if failure.is_hanging {
                "The files on disk are not in force: a reload has not finished; the log names the \
                 file that it is reading."
            } else {
                "The files on disk are not in force: they have the errors below."
            },
        }
    }
}

impl From<&SourceStatus> for ClusterView {
    fn from(status: &SourceStatus) -> Self {
        Self {
            cluster: status.cluster.to_string(),
            origin: match status.origin {
                Origin::None => "not synced yet: only the files are in force",
                Origin::Saved => "not synced yet: saved objects are in force",
                Origin::Live => "synced",
            },
            objects: status.objects,
            faulty: status.faulty,
        }
    }
}

/// The number of samples in a table row: five minutes.
const SAMPLES_PER_ROW: usize = 30;

/// The metrics of the last hour.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// The part of the hour for which there are samples, in minutes.
    pub(crate) minutes: u64,
    pub(crate) endpoints: Vec<EndpointFigures>,
    /// Decisions by cluster.
    pub(crate) decisions_by_cluster: Vec<ClusterFigures>,
    /// The samples of every ten seconds for the charts, oldest first.
    pub(crate) samples: Vec<SampleFigures>,
    /// The rows of the table, of five minutes each, newest first.
    #[serde(skip)]
    pub(crate) rows: Vec<RowFigures>,
}

/// The decisions of an endpoint.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointFigures {
    pub(crate) endpoint: &'static str,
    pub(crate) allow: u64,
    pub(crate) deny: u64,
    pub(crate) no_opinion: u64,
    /// In milliseconds; absent if there were no decisions.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// The number of requests in flight now.
    pub(crate) in_flight: u64,
}

/// The decisions for a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterFigures {
    pub(crate) cluster: String,
    pub(crate) allow: u64,
    pub(crate) deny: u64,
    pub(crate) no_opinion: u64,
}

/// The rates of decisions per second, and their durations in milliseconds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SampleFigures {
    /// The end of the interval, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) allow: f64,
    pub(crate) deny: f64,
    pub(crate) no_opinion: f64,
    pub(crate) authorize_p50: Option<f64>,
    pub(crate) authorize_p99: Option<f64>,
    /// `None` if it is unknown.
    pub(crate) in_flight: Option<u64>,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct RowFigures {
    pub(crate) from: String,
    pub(crate) until: String,
    pub(crate) figures: SampleFigures,
}

// === impl Figures ===

impl Figures {
    /// The metrics of one cluster: numbers of decisions only, because durations and requests in
    /// flight are not counted by cluster.
    pub(crate) fn of_cluster(history: &MetricsHistory, cluster: &str) -> Self {
        let whole = history.whole_interval();
        let counts = whole.as_ref().and_then(|whole| whole.of_cluster(cluster));
        let minutes = whole.as_ref().map(|whole| whole.seconds / 60.0);
        let sample = |interval: &Interval| SampleFigures::of_cluster(interval, cluster);
        let row = |interval: &Interval| RowFigures::new(interval, sample(interval));
        Self {
            minutes: whole_minutes(minutes.unwrap_or_default()),
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
            rows: history
                .intervals_of(SAMPLES_PER_ROW)
                .iter()
                .rev()
                .map(row)
                .collect(),
        }
    }

    pub(crate) fn new(history: &MetricsHistory, metrics: &Metrics) -> Self {
        let whole = history.whole_interval();
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
            minutes: whole_minutes(minutes.unwrap_or_default()),
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
            rows: history
                .intervals_of(SAMPLES_PER_ROW)
                .iter()
                .rev()
                .map(Into::into)
                .collect(),
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
        table_cell(self.p50)
    }

    pub(crate) fn p99_text(&self) -> String {
        table_cell(self.p99)
    }
}

// === impl SampleFigures ===

impl SampleFigures {
    pub(crate) fn p50_text(&self) -> String {
        table_cell(self.authorize_p50)
    }

    pub(crate) fn p99_text(&self) -> String {
        table_cell(self.authorize_p99)
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

// === impl RowFigures ===

impl RowFigures {
    fn new(interval: &Interval, figures: SampleFigures) -> Self {
        let length = Duration::try_from_secs_f64(interval.seconds).unwrap_or_default();
        Self {
            from: rfc3339(interval.end - length),
            until: rfc3339(interval.end),
            figures,
        }
    }

    /// The rates of decisions per second, in the order of the columns.
    pub(crate) const fn outcomes(&self) -> [(Decision, f64); 3] {
        [
            (Decision::Allow, self.figures.allow),
            (Decision::Deny, self.figures.deny),
            (Decision::NoOpinion, self.figures.no_opinion),
        ]
    }
}

impl From<&Interval> for RowFigures {
    fn from(interval: &Interval) -> Self {
        Self::new(interval, interval.into())
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
fn whole_minutes(minutes: f64) -> u64 {
    minutes.round() as u64
}

/// A value for the table; a dash if there is none.
fn table_cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"))
}
