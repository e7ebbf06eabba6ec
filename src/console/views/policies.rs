//! `/policies`: every policy and exception, and what has become of it.

mod detail;
mod list;

use askama::Template;
use serde::Serialize;

use super::parameters::{ClusterChoice, Paging};
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::{ViewContext, ViewRequest};
pub(crate) use detail::view as detail;
use list::{ListedKind, PolicyList, PolicyRow, RecentUse};

/// The fields of its form.
const FIELDS: [&str; 5] = ["filter", "kind", "unused", "cluster", "page"];

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage<'a> {
    frame: PageFrame,
    filter: &'a PolicyFilter,
    clusters: &'a ClusterChoice,
    rows: &'a [PolicyRow],
    paging: Paging,
    /// How many of all were never decided by.
    unused: usize,
}

/// The policies that the filter leaves, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoliciesReport<'a> {
    cluster: &'a str,
    policies: &'a [PolicyRow],
}

/// Which of them are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PolicyFilter {
    /// What the name contains, whatever the case of its letters.
    text: String,
    kind: Option<ListedKind>,
    /// Only those by which nothing was decided.
    is_unused: bool,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let query = &request.query;
    query.only(&FIELDS)?;
    let clusters = ClusterChoice::new(context, query)?;
    let filter = PolicyFilter {
        text: query.text("filter")?.to_owned(),
        kind: query.one("kind")?.map(ListedKind::parse).transpose()?,
        is_unused: query.one("unused")?.is_some(),
    };
    let recent = RecentUse::new(context, &clusters.chosen);
    let list = PolicyList::new(context, &clusters.chosen, &recent);
    let unused = list.0.iter().filter(|row| row.is_unused()).count();
    let rows: Vec<PolicyRow> = list.0.into_iter().filter(|row| filter.lets(row)).collect();
    let paging = Paging::new(rows.len(), "/policies", query)?;
    let page = PoliciesPage {
        frame: context.frame("Policies", request),
        filter: &filter,
        clusters: &clusters,
        rows: paging.rows(&rows),
        paging: paging.clone(),
        unused,
    };
    let report = PoliciesReport {
        cluster: &clusters.chosen,
        policies: &rows,
    };
    Page::of(request.representation, &report, &page)
}

// === impl PolicyFilter ===

impl PolicyFilter {
    fn lets(&self, row: &PolicyRow) -> bool {
        let contains = || row.name.to_lowercase().contains(&self.text.to_lowercase());
        self.kind.is_none_or(|kind| kind == row.kind)
            && (!self.is_unused || row.is_unused())
            && (self.text.is_empty() || contains())
    }

    /// The kinds to choose from, and whether each is chosen.
    fn kinds(&self) -> impl Iterator<Item = (&'static str, bool)> {
        ListedKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), self.kind == Some(kind)))
    }
}

#[cfg(test)]
mod tests;
