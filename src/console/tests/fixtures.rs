//! A console of what some manifests say, without a socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::console::{
    ConsoleState, Page, Representation, ViewContext, ViewError, ViewQuery, ViewRequest, VisibleClusters,
    views,
};
use crate::state::tests::fixtures::{mk_snapshot, mk_snapshot_of, mk_snapshot_watching, now};
use crate::state::{NoManifestSource, ReloadState, Snapshot};
use crate::telemetry::Metrics;

/// A console, and what it shows.
pub(crate) struct TestConsole {
    _folder: TempDir,
    pub(crate) state: Arc<ReloadState>,
    pub(crate) metrics: Metrics,
    pub(crate) console: ConsoleState,
    pub(crate) visible: VisibleClusters,
}

impl TestConsole {
    /// Shows what `manifests` say.
    pub(crate) fn of(manifests: &str) -> Self {
        Self::with(manifests, "")
    }

    /// The same with `more` in the configuration.
    pub(crate) fn with(manifests: &str, more: &str) -> Self {
        Self::of_snapshot(mk_snapshot(manifests, more))
    }

    /// The same with manifests of some clusters.
    pub(crate) fn of_clusters(manifests: &str, clusters: &[(&str, &str)]) -> Self {
        Self::of_snapshot(mk_snapshot_of(manifests, clusters, ""))
    }

    /// Shows what `manifests` say, and what a watched cluster has.
    pub(crate) fn watching(manifests: &str, watched: &str) -> Self {
        Self::of_snapshot(mk_snapshot_watching(manifests, watched))
    }

    fn of_snapshot((folder, snapshot): (TempDir, Snapshot)) -> Self {
        let console = ConsoleState::new(10_000, &snapshot.revision, now());
        console.separate_restricted_clusters(&snapshot.config);
        console.follow_changes(&snapshot, now());
        Self {
            _folder: folder,
            state: ReloadState::new(snapshot, Arc::new(NoManifestSource)),
            metrics: Metrics::new().unwrap(),
            console,
            visible: VisibleClusters::All,
        }
    }

    /// The same for who sees these clusters.
    pub(crate) fn seeing(self, visible: VisibleClusters) -> Self {
        Self { visible, ..self }
    }

    /// What is at a URL, as HTML.
    pub(crate) fn html(&self, url: &str) -> Result<String, ViewError> {
        self.get(url, Representation::Html).map(|page| page.body)
    }

    /// The same as JSON.
    pub(crate) fn json(&self, url: &str) -> Result<serde_json::Value, ViewError> {
        let page = self.get(url, Representation::Json)?;
        Ok(serde_json::from_str(&page.body).unwrap())
    }

    pub(crate) fn get(&self, url: &str, representation: Representation) -> Result<Page, ViewError> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        self.render(&ViewRequest::new(path, query, representation))
    }

    /// What is answered to a form.
    pub(crate) fn post(
        &self,
        form: &[(&str, &str)],
        representation: Representation,
    ) -> Result<Page, ViewError> {
        let form: ViewQuery = form.iter().copied().collect();
        self.render(&ViewRequest {
            form: Some(form),
            ..ViewRequest::new("/what-if", "", representation)
        })
    }

    fn render(&self, request: &ViewRequest) -> Result<Page, ViewError> {
        let context = ViewContext {
            snapshot: &self.state.current(),
            state: &self.state,
            metrics: &self.metrics,
            console: &self.console,
            decisions: &self.console.decisions(&self.visible),
            visible: &self.visible,
            now: now(),
            deadline: Instant::now() + Duration::from_secs(600),
        };
        views::render(&context, request)
    }
}
