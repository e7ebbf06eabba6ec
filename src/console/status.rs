//! How the gateway is doing, in the few words that stand on every page.

use std::time::SystemTime;

use askama::Template;

use super::page::{GatewayStatus, Page, PageFrame, ViewError};
use super::{ViewContext, ViewRequest};
use crate::identity::certificates::rfc3339;
use crate::state::{Origin, ReloadFailure, SourceStatus};
use portcullis_policy::field::Faults;

/// The header alone, for pages that are open.
#[derive(Template)]
#[template(path = "status.html")]
struct StatusFragment {
    status: GatewayStatus,
}

/// `/status`: as JSON, or as the part of a page.
pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.only(&[])?;
    let status = GatewayStatus::new(context);
    let fragment = StatusFragment {
        status: status.clone(),
    };
    Page::of(request.representation, &status, &fragment)
}

// === impl ViewContext ===

impl ViewContext<'_> {
    /// The frame of a page with this title.
    pub(crate) fn frame(&self, title: impl Into<String>, request: &ViewRequest) -> PageFrame {
        PageFrame::new(title, &request.path, &self.snapshot.revision).with(GatewayStatus::new(self))
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

/// Whether objects of the cluster may be other ones than those that its API server has.
fn is_behind(cluster: &SourceStatus) -> bool {
    cluster.origin != Origin::Live || !cluster.doubts.is_empty() || !cluster.outdated.is_empty()
}

/// The watched clusters that are shown.
pub(crate) fn visible_clusters(context: &ViewContext<'_>) -> Vec<SourceStatus> {
    let mut clusters = context.state.source().status();
    clusters.retain(|status| context.visible.contains(&status.cluster));
    clusters
}

/// What is wrong with files and with objects of `clusters`. Errors of files that hold for all may
/// name another cluster's, so only those who see every cluster are shown them.
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

#[cfg(test)]
mod tests {
    use crate::console::VisibleClusters;
    use crate::console::tests::fixtures::TestConsole;

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
}
