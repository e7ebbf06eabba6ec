//! `/`: what is in force now, and how it is doing.

use askama::Template;
use serde::Serialize;

use crate::certificates::rfc3339;
use crate::console::context::{ViewContext, ViewRequest};
use crate::console::frame::PageFrame;
use crate::console::page::{Page, ViewError};
use crate::field::Faults;
use crate::reload::{Change, ReloadFailure};

/// How many faults are listed; the log has all.
const MOST_FAULTS: usize = 200;

/// What is in force, and what is wrong with what is not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NowView {
    revision: String,
    /// When it came into force.
    since: String,
    /// The file.
    configuration: String,
    last_change: Option<ChangeView>,
    /// Why the files on disk are not in force.
    failure: Option<FailureView>,
    /// Of files and of objects of clusters.
    faults: Vec<String>,
}

/// What the last reload changed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeView {
    summary: String,
    vanished_denies: Vec<String>,
}

/// A reload that changed nothing.
#[derive(Debug, Serialize)]
struct FailureView {
    at: String,
    message: &'static str,
}

#[derive(Template)]
#[template(path = "now.html")]
struct NowPage<'a> {
    frame: PageFrame,
    view: &'a NowView,
}

pub(super) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.only(&[])?;
    let view = NowView::new(context);
    let frame = context.frame("Now", request);
    Page::of(request.representation, &view, &NowPage { frame, view: &view })
}

// === impl NowView ===

impl NowView {
    fn new(context: &ViewContext<'_>) -> Self {
        let failure = context.state.last_failure();
        let of_files = failure.iter().map(|failure| &*failure.faults);
        let clusters = context.state.source().status();
        let of_clusters = clusters.iter().flat_map(|status| &status.faults);
        let faults = of_files.chain(of_clusters).flat_map(Faults::iter);
        Self {
            revision: context.snapshot.revision.to_string(),
            since: rfc3339(context.console.since()),
            configuration: context.snapshot.config.file.display().to_string(),
            last_change: context.state.last_change().map(|change| (&change).into()),
            failure: failure.as_ref().map(Into::into),
            faults: faults.take(MOST_FAULTS).map(ToString::to_string).collect(),
        }
    }
}

impl From<&Change> for ChangeView {
    fn from(change: &Change) -> Self {
        Self {
            summary: change.describe(true),
            vanished_denies: change.vanished_denies.clone(),
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
                "The files on disk are not in force: they have the faults below."
            },
        }
    }
}
