//! `/webhooks`: the webhooks behind the gateway, in the order of calls.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use serde::Serialize;

use super::clusters::ClusterChoice;
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::query::Paging;
use crate::console::{ViewContext, ViewRequest};
use crate::telemetry::metrics::WebhookCounts;
use portcullis_policy::admission::webhook::{Webhook, WebhookTarget};
use portcullis_policy::admission::{AdmissionSet, FailurePolicy, Phase};

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage<'a> {
    frame: PageFrame,
    clusters: &'a ClusterChoice,
    rows: &'a [WebhookRow],
    authorizers: &'a [String],
    paging: Paging,
    /// Whether metrics are shown.
    has_figures: bool,
}

/// The JSON response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhooksReport<'a> {
    cluster: &'a str,
    webhooks: &'a [WebhookRow],
    /// The names of `authorization.webhooks`, in the order of calls.
    authorizers: &'a [String],
}

/// A webhook with its metrics.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhookRow {
    phase: &'static str,
    /// Its position in the order of the phase, from 1.
    order: usize,
    configuration: String,
    name: String,
    /// The URL or service that is called.
    target: String,
    failure_policy: &'static str,
    timeout_seconds: u64,
    is_shadow: bool,
    /// Absent for users who may not see all clusters.
    #[serde(flatten)]
    figures: Option<WebhookFigures>,
}

/// The metrics of a webhook, for all clusters together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhookFigures {
    calls: u64,
    failures: u64,
    is_breaker_open: bool,
    /// The mean duration of calls; `None` if there were none.
    mean_seconds: Option<f64>,
    /// The median, interpolated within the bucket of the histogram as in Prometheus.
    median_seconds: Option<f64>,
    /// The 99th percentile.
    p99_seconds: Option<f64>,
    shadow_allows: u64,
    shadow_denies: u64,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&["cluster", "page"])?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let set = context.snapshot.admission.for_cluster(&clusters.chosen);
    let counts = context.metrics.webhook_counts();
    let rows = rows(set, context.visible.only().is_none().then_some(&counts));
    let authorizers = context.snapshot.config.authorization.webhooks.iter();
    let authorizers: Vec<String> = authorizers.map(|entry| entry.rules.name.clone()).collect();
    let paging = Paging::new(rows.len(), "/webhooks", &request.query)?;
    let page = WebhooksPage {
        frame: context.frame("Webhooks", request),
        clusters: &clusters,
        rows: paging.rows(&rows),
        authorizers: &authorizers,
        paging: paging.clone(),
        has_figures: context.visible.only().is_none(),
    };
    let report = WebhooksReport {
        cluster: &clusters.chosen,
        webhooks: &rows,
        authorizers: &authorizers,
    };
    Page::of(request.representation, &report, &page)
}

/// The webhooks of `set`, with their metrics in `counts`, if these may be shown.
fn rows(set: &AdmissionSet, counts: Option<&BTreeMap<String, WebhookCounts>>) -> Vec<WebhookRow> {
    let shadows: BTreeSet<*const Webhook> = set.shadow_webhooks().map(std::sync::Arc::as_ptr).collect();
    let mut rows = Vec::new();
    for phase in [Phase::Mutate, Phase::Validate] {
        for (place, webhook) in set.webhooks(phase).enumerate() {
            let counts = counts.map(|counts| counts.get(&webhook.id()).cloned().unwrap_or_default());
            let is_shadow = shadows.contains(&std::sync::Arc::as_ptr(webhook));
            rows.push(WebhookRow::new(
                webhook,
                (phase, place + 1),
                is_shadow,
                counts.as_ref(),
            ));
        }
    }
    rows
}

// === impl WebhookRow ===

impl WebhookRow {
    fn new(
        webhook: &Webhook,
        (phase, order): (Phase, usize),
        is_shadow: bool,
        counts: Option<&WebhookCounts>,
    ) -> Self {
        Self {
            phase: phase.as_str(),
            order,
            configuration: webhook.configuration.clone(),
            name: webhook.name.clone(),
            target: target(&webhook.client.target),
            failure_policy: match webhook.failure_policy {
                FailurePolicy::Fail => "Fail",
                FailurePolicy::Ignore => "Ignore",
            },
            timeout_seconds: webhook.timeout.as_secs(),
            is_shadow,
            figures: counts.map(WebhookFigures::from),
        }
    }
}

// === impl WebhookFigures ===

impl From<&WebhookCounts> for WebhookFigures {
    fn from(counts: &WebhookCounts) -> Self {
        let durations = &counts.durations;
        #[expect(clippy::cast_precision_loss, reason = "a mean need not be exact")]
        let mean = || durations.seconds / durations.count as f64;
        Self {
            calls: counts.successes + counts.failures,
            failures: counts.failures,
            is_breaker_open: counts.is_breaker_open,
            mean_seconds: (durations.count > 0).then(mean),
            median_seconds: durations.quantile(0.5),
            p99_seconds: durations.quantile(0.99),
            shadow_allows: counts.shadow_allows,
            shadow_denies: counts.shadow_denies,
        }
    }
}

impl WebhookFigures {
    fn mean(&self) -> String {
        format_millis(self.mean_seconds)
    }

    fn median(&self) -> String {
        format_millis(self.median_seconds)
    }

    fn p99(&self) -> String {
        format_millis(self.p99_seconds)
    }
}

/// A duration in milliseconds, with one decimal.
fn format_millis(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1}", seconds * 1000.0))
}

/// The URL or service of a webhook. URLs have no query, which could contain a secret: manifests
/// with one are invalid.
fn target(target: &WebhookTarget) -> String {
    match target {
        WebhookTarget::Url(url) => url.clone(),
        WebhookTarget::Service {
            namespace,
            name,
            port,
            path,
        } => format!("service {namespace}/{name}:{port}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::metrics::DurationCounts;
    use portcullis_policy::admission::AdmissionSettings;
    use portcullis_policy::manifest::{self, Options, Source};

    fn mk_set() -> Arc<AdmissionSet> {
        let configuration = |kind: &str, name: &str, webhooks: &[(&str, &str)]| {
            let webhooks: Vec<String> = webhooks
                .iter()
                .map(|(webhook, client)| {
                    format!(
                        "- {{name: {webhook}, clientConfig: {client}, sideEffects: None, admissionReviewVersions: [v1], \
                         failurePolicy: Ignore, timeoutSeconds: 3, rules: [{{operations: [CREATE], apiGroups: [''], \
                         apiVersions: [v1], resources: [pods]}}]}}\n"
                    )
                })
                .collect();
            let webhooks = webhooks.concat();
            format!(
                "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nwebhooks:\n{webhooks}"
            )
        };
        let service = "{service: {namespace: ns, name: s, path: /p}}";
        let text = configuration(
            "ValidatingWebhookConfiguration",
            "b",
            &[("w.example.com", service)],
        ) + &configuration(
            "MutatingWebhookConfiguration",
            "z",
            &[("two.example.com", "{url: 'https://h.example.com/m'}")],
        ) + &configuration(
            "MutatingWebhookConfiguration",
            "a",
            &[("one.example.com", service)],
        );
        let source = Source {
            file: "webhooks.yaml".into(),
            text,
            cluster: None,
        };
        let (manifests, faults) = manifest::load(&[source], &Options::default());
        let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
        let settings = AdmissionSettings {
            shadow_webhooks: ["one.example.com".to_owned()].into(),
            ..AdmissionSettings::default()
        };
        Arc::clone(manifests.admission(&settings).for_cluster("default"))
    }

    #[test]
    fn webhooks_are_listed_in_the_order_in_which_they_are_asked() {
        let counts = WebhookCounts {
            successes: 3,
            failures: 1,
            shadow_denies: 2,
            durations: DurationCounts {
                count: 4,
                seconds: 0.01,
                buckets: vec![(0.002, 3), (0.005, 4)],
            },
            ..WebhookCounts::default()
        };
        let counts = [("a/one.example.com".to_owned(), counts)].into();
        let rows = rows(&mk_set(), Some(&counts));
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.phase,
                    row.order,
                    row.name.as_str(),
                    row.target.as_str(),
                    row.is_shadow,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("mutate", 1, "one.example.com", "service ns/s:443/p", true),
                ("mutate", 2, "two.example.com", "https://h.example.com/m", false),
                ("validate", 1, "w.example.com", "service ns/s:443/p", false),
            ]
        );
        let first = &rows[0];
        let figures = first.figures.as_ref().unwrap();
        assert_eq!(
            (figures.calls, figures.failures, figures.shadow_denies),
            (4, 1, 2)
        );
        assert_eq!(
            (figures.mean(), figures.median(), figures.p99()),
            ("2.5".into(), "1.3".into(), "4.9".into())
        );
        assert_eq!((first.failure_policy, first.timeout_seconds), ("Ignore", 3));
        assert_eq!(rows[2].figures.as_ref().unwrap().p99(), "-");
        let without = super::rows(&mk_set(), None);
        assert!(without.iter().all(|row| row.figures.is_none()));
    }
}
