//! `/clusters`: the clusters that the gateway answers, and the objects that it watches there.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use serde::Serialize;

use super::parameters::Paging;
use crate::config::Config;
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::{ViewContext, ViewRequest};
use crate::state::{Origin, SourceStatus};

/// The most faults of one cluster that are shown.
const MAX_FAULTS: usize = 50;

#[derive(Template)]
#[template(path = "clusters.html")]
struct ClustersPage<'a> {
    frame: PageFrame,
    rows: &'a [ClusterRow],
    paging: Paging,
}

/// Every cluster, for programs.
#[derive(Serialize)]
struct ClustersReport<'a> {
    clusters: &'a [ClusterRow],
}

/// A cluster, and how it stands with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRow {
    name: String,
    /// How many entries of `callers` speak for it.
    callers: usize,
    /// `None` where its objects are not watched.
    watched: Option<WatchedCluster>,
}

/// What is watched of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchedCluster {
    /// `live`, `saved` or `none`.
    origin: &'static str,
    objects: usize,
    faulty: usize,
    /// Lists and watches that failed since the start.
    failures: u64,
    /// Of some of the faulty objects, after what is absent or not up to date.
    faults: Vec<String>,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.only(&["page"])?;
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

// === impl WatchedCluster ===

impl From<&SourceStatus> for WatchedCluster {
    fn from(status: &SourceStatus) -> Self {
        let faults = status.faults.iter().flat_map(|faults| faults.iter());
        let doubts = status.doubts.iter();
        let doubts = doubts.map(|doubt| format!("absence not believed, what was known is in force: {doubt}"));
        let outdated = status
            .outdated
            .iter()
            .map(|outdated| format!("not up to date: {outdated}"));
        let told = doubts.chain(outdated).chain(faults.map(ToString::to_string));
        Self {
            origin: match status.origin {
                Origin::Live => "live",
                Origin::Saved => "saved",
                Origin::Nowhere => "none",
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
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::state::LeftOutCounts;
    use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

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
                "absence not believed, what was known is in force: Role: it is not served",
                "east: Invalid value: not so"
            ]
        );
    }
}
