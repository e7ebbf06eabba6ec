//! `/status`, the status on every page; `/clusters`, the clusters and the objects that are watched
//! there; and the choice of a cluster in other views.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use askama::Template;
use serde::Serialize;

use crate::config::{Config, DEFAULT_CLUSTER};
use crate::console::page::{GatewayStatus, Page, PageFrame, ViewError};
use crate::console::query::{Paging, ViewQuery};
use crate::console::{ViewContext, ViewRequest};
use crate::identity::certificates::rfc3339;
use crate::state::{Origin, ReloadFailure, SourceStatus};
use portcullis_policy::field::Faults;

/// The maximum number of errors of a cluster on the page.
const MAX_FAULTS: usize = 50;

#[derive(Template)]
#[template(path = "clusters.html")]
struct ClustersPage<'a> {
    frame: PageFrame,
    rows: &'a [ClusterRow],
    paging: Paging,
}

/// The JSON response.
#[derive(Serialize)]
struct ClustersReport<'a> {
    clusters: &'a [ClusterRow],
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRow {
    name: String,
    /// The number of entries in `callers` for the cluster.
    callers: usize,
    /// `None` if the cluster is not watched.
    watched: Option<WatchedCluster>,
}

/// The watched objects of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchedCluster {
    /// `live`, `saved` or `none`.
    origin: &'static str,
    objects: usize,
    faulty: usize,
    /// The number of failed lists and watches since the start.
    failures: u64,
    /// What is absent or not up to date, and then errors of some faulty objects.
    faults: Vec<String>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&["page"])?;
    let mut rows = rows(&context.snapshot.config, &context.state.source().status());
    rows.retain(|row| context.visible.contains(&row.name));
    let paging = Paging::new(rows.len(), "/clusters", &request.query)?;
    let page = ClustersPage {
        frame: context.frame("Clusters", request),
        rows: paging.rows(&rows),
        paging: paging.clone(),
    };
    Page::of(request.representation, &ClustersReport { clusters: &rows }, &page)
}

/// The clusters to choose from, and the chosen one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterChoice {
    /// The names, sorted; never empty.
    pub(crate) names: Vec<String>,
    pub(crate) chosen: String,
}

impl ClusterChoice {
    /// The cluster named in `query`, or the default one.
    ///
    /// # Errors
    ///
    /// The cluster does not exist.
    pub(crate) fn new(context: &ViewContext<'_>, query: &ViewQuery) -> Result<Self, ViewError> {
        let asked = query.single("cluster")?;
        if let Some(only) = context.visible.only() {
            return Self::choose([only.to_owned()].into(), asked);
        }
        let (snapshot, config) = (context.snapshot, &context.snapshot.config);
        let callers = config.callers.iter().map(|caller| caller.cluster.clone());
        let watched = config.clusters.iter().map(|entry| entry.name.clone());
        let with_policies = snapshot.policies.clusters.keys().cloned();
        let names = callers.chain(watched).chain(with_policies).collect();
        Self::choose(names, asked)
    }

    fn choose(mut names: BTreeSet<String>, asked: Option<&str>) -> Result<Self, ViewError> {
        if names.is_empty() {
            names.insert(DEFAULT_CLUSTER.to_owned());
        }
        let chosen = match asked {
            Some(asked) if names.contains(asked) => asked.to_owned(),
            Some(asked) => {
                let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let known = known.join(", ");
                let message = format!("there is no cluster `{asked}`: there are {known}");
                return Err(ViewError::Invalid(message));
            }
            None if names.contains(DEFAULT_CLUSTER) => DEFAULT_CLUSTER.to_owned(),
            None => names.first().cloned().unwrap_or_default(),
        };
        Ok(Self {
            names: names.into_iter().collect(),
            chosen,
        })
    }

    /// Whether there are several clusters to choose from.
    pub(crate) fn has_alternatives(&self) -> bool {
        self.names.len() > 1
    }
}

/// The status as HTML, for pages that update it.
#[derive(Template)]
#[template(path = "status.html")]
struct StatusFragment {
    status: GatewayStatus,
}

/// `/status`, as JSON or as a fragment of HTML.
pub(crate) fn status(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&[])?;
    let status = GatewayStatus::new(context);
    let fragment = StatusFragment {
        status: status.clone(),
    };
    Page::of(request.representation, &status, &fragment)
}

fn rows(config: &Config, statuses: &[SourceStatus]) -> Vec<ClusterRow> {
    let mut callers: BTreeMap<&str, usize> = BTreeMap::new();
    for caller in &config.callers {
        *callers.entry(caller.cluster.as_str()).or_default() += 1;
    }
    let watched: BTreeMap<&str, &SourceStatus> = statuses
        .iter()
        .map(|status| (status.cluster.as_str(), status))
        .collect();
    let names: BTreeSet<&str> = callers.keys().chain(watched.keys()).copied().collect();
    let row = |name: &str| ClusterRow {
        name: name.to_owned(),
        callers: callers.get(name).copied().unwrap_or_default(),
        watched: watched.get(name).map(|status| (*status).into()),
    };
    names.into_iter().map(row).collect()
}

// === impl ViewContext ===

impl ViewContext<'_> {
    /// The frame of a page with this title, and with the status.
    pub(crate) fn frame(&self, title: impl Into<String>, request: &ViewRequest) -> PageFrame {
        PageFrame::new(title, &request.path, &self.snapshot.revision).with_status(GatewayStatus::new(self))
    }
}

// === impl GatewayStatus ===

impl GatewayStatus {
    pub(crate) fn new(context: &ViewContext<'_>) -> Self {
        let failure = context.state.last_failure();
        let clusters = visible_clusters(context);
        let sees_all = context.visible.only().is_none();
        let at = |time: SystemTime| sees_all.then(|| rfc3339(time));
        Self {
            revision: context.snapshot.revision.to_string(),
            since: at(context.console.since()),
            failed_at: failure.as_ref().and_then(|failure| at(failure.at)),
            errors: visible_faults(context, failure.as_ref(), &clusters)
                .map(Faults::len)
                .sum(),
            clusters: clusters.len(),
            clusters_behind: clusters.iter().filter(|cluster| is_behind(cluster)).count(),
        }
    }
}

/// Whether the objects in force may differ from those in the cluster.
fn is_behind(cluster: &SourceStatus) -> bool {
    cluster.origin != Origin::Live || !cluster.doubts.is_empty() || !cluster.outdated.is_empty()
}

/// The watched clusters that the user may see.
pub(crate) fn visible_clusters(context: &ViewContext<'_>) -> Vec<SourceStatus> {
    let mut clusters = context.state.source().status();
    clusters.retain(|status| context.visible.contains(&status.cluster));
    clusters
}

/// The errors of files, and of objects in `clusters`. Errors of files for all clusters may refer to
/// other clusters, so only users who may see all clusters see them.
pub(crate) fn visible_faults<'f>(
    context: &ViewContext<'f>,
    failure: Option<&'f ReloadFailure>,
    clusters: &'f [SourceStatus],
) -> impl Iterator<Item = &'f Faults> {
    let visible = context.visible;
    let of_all = failure.filter(|_| visible.only().is_none());
    let of_all = of_all.into_iter().map(|failure| &*failure.faults);
    let refused = Some(&*context.snapshot.held_objects).filter(|_| visible.only().is_none());
    let held_back = context.snapshot.held_back.iter();
    let held_back = held_back.filter(move |(cluster, _)| visible.contains(cluster));
    let of_clusters = clusters.iter().flat_map(|status| &status.faults);
    of_all
        .chain(refused)
        .chain(held_back.map(|(_, faults)| faults))
        .chain(of_clusters)
}

// === impl WatchedCluster ===

impl From<&SourceStatus> for WatchedCluster {
    fn from(status: &SourceStatus) -> Self {
        let faults = status.faults.iter().flat_map(|faults| faults.iter());
        let doubts = status.doubts.iter();
        let doubts = doubts.map(|doubt| {
            format!(
                "objects are missing without evidence of their deletion, the \
            known ones are in force: {doubt}"
            )
        });
        let outdated = status
            .outdated
            .iter()
            .map(|outdated| format!("not up to date: {outdated}"));
        let told = doubts.chain(outdated).chain(faults.map(ToString::to_string));
        Self {
            origin: match status.origin {
                Origin::Live => "live",
                Origin::Saved => "saved",
                Origin::None => "none",
            },
            objects: status.objects,
            faulty: status.faulty,
            failures: status.failures,
            faults: told.take(MAX_FAULTS).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::console::VisibleClusters;
    use crate::console::tests::fixtures::TestConsole;
    use crate::state::LeftOutCounts;
    use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
    use std::path::Path;

    #[test]
    fn clusters_of_callers_and_those_that_are_watched_are_listed() {
        let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
            server: {address: '127.0.0.1:0', tls: {certificate: a, privateKey: b}}\n\
            callers:\n- {kubeconfig: one, cluster: west, endpoints: [authorize]}\n\
            - {kubeconfig: two, cluster: west, endpoints: [validate]}\n- {kubeconfig: three, endpoints: [authorize]}\n";
        let (config, faults) = config::parse(Path::new("c.yaml"), text, Path::new("/etc"));
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let mut faults = Faults::new();
        let place = Place::of_file(Path::new("east"));
        faults.push(Fault::error(place, FaultKind::Invalid, "not so"));
        let status = SourceStatus {
            cluster: "east".into(),
            origin: Origin::Saved,
            objects: 3,
            faulty: 1,
            faults: vec![faults],
            failures: 9,
            doubts: vec!["Role: it is not served".to_owned()],
            outdated: Vec::new(),
            left_out: LeftOutCounts::default(),
        };
        let rows = rows(&config, &[status]);
        let shown: Vec<(&str, usize, bool)> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.callers, row.watched.is_some()))
            .collect();
        assert_eq!(
            shown,
            [("default", 1, false), ("east", 0, true), ("west", 2, false)]
        );
        let east = rows[1].watched.as_ref().unwrap();
        assert_eq!(
            (east.origin, east.objects, east.faulty, east.failures),
            ("saved", 3, 1, 9)
        );
        assert_eq!(
            east.faults,
            [
                "objects are missing without evidence of their deletion, the known ones are in force: Role: \
                it is not served",
                "east: Invalid value: not so"
            ]
        );
    }

    #[test]
    fn every_page_says_how_the_gateway_is_doing() {
        let console = TestConsole::of("");
        for url in [
            "/",
            "/live",
            "/who-can",
            "/what-can",
            "/what-if",
            "/policies",
            "/webhooks",
            "/clusters",
        ] {
            let page = console.html(url).unwrap();
            assert!(
                page.contains("Healthy") && page.contains("0 errors"),
                "{url}: {page}"
            );
            assert!(page.contains("put in force"), "{url}: {page}");
        }
        let part = console.html("/status").unwrap();
        assert!(part.starts_with("<p class=\"status\" id=\"status\""), "{part}");
        let status = console.json("/status").unwrap();
        assert_eq!((&status["errors"], &status["clusters"]), (&0.into(), &0.into()));
    }

    #[test]
    fn who_sees_one_cluster_is_told_of_that_one() {
        let manifests = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
        let console = TestConsole::of_clusters("", &[("east", manifests), ("west", manifests)]);
        let console = console.seeing(VisibleClusters::One("east".into()));
        let status = console.json("/status").unwrap();
        assert!(status["since"].is_null(), "{status}");
        assert!(console.html("/").unwrap().contains("Healthy"));
    }

    #[test]
    fn the_default_cluster_is_asked_about_unless_another_is_named() {
        let names =
            |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        for (known, asked, chosen) in [
            (&[][..], None, Some("default")),
            (&["default", "east"], None, Some("default")),
            (&["west", "east"], None, Some("east")),
            (&["west", "east"], Some("west"), Some("west")),
            (&["default"], Some("west"), None),
        ] {
            let choice = ClusterChoice::choose(names(known), asked);
            assert_eq!(
                choice.ok().map(|choice| choice.chosen).as_deref(),
                chosen,
                "{known:?} {asked:?}"
            );
        }
        let error = ClusterChoice::choose(names(&["a", "b"]), Some("<b>")).unwrap_err();
        assert_eq!(error.to_string(), "there is no cluster `<b>`: there are `a`, `b`");
    }
}
