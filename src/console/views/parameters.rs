//! Parameters that several views have: the cluster, and the page of a long list.

use std::collections::BTreeSet;

use crate::config::DEFAULT_CLUSTER;
use crate::console::ViewContext;
use crate::console::page::ViewError;
use crate::console::query::ViewQuery;

/// The clusters of which something can be asked, and the one that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterChoice {
    /// By name; never empty.
    pub(crate) names: Vec<String>,
    pub(crate) chosen: String,
}

impl ClusterChoice {
    /// That of `cluster` in `query`, or else the default one.
    ///
    /// # Errors
    ///
    /// There is no such cluster.
    pub(crate) fn new(context: &ViewContext<'_>, query: &ViewQuery) -> Result<Self, ViewError> {
        let asked = query.one("cluster")?;
        if let Some(only) = context.visible.only() {
            return Self::among([only.to_owned()].into(), asked);
        }
        let (snapshot, config) = (context.snapshot, &context.snapshot.config);
        let callers = config.callers.iter().map(|caller| caller.cluster.clone());
        let watched = config.clusters.iter().map(|entry| entry.name.clone());
        let with_policies = snapshot.policies.clusters.keys().cloned();
        let names = callers.chain(watched).chain(with_policies).collect();
        Self::among(names, asked)
    }

    fn among(mut names: BTreeSet<String>, asked: Option<&str>) -> Result<Self, ViewError> {
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

    /// Whether there is something to choose.
    pub(crate) fn is_any(&self) -> bool {
        self.names.len() > 1
    }
}

/// How many rows a page has.
const ROWS: usize = 200;

/// Which rows of a list are shown, and how to get to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paging {
    /// How many rows there are.
    pub(crate) total: usize,
    /// The number of the first row on the page, from 1.
    pub(crate) first: usize,
    /// That of the last.
    pub(crate) last: usize,
    /// The URL of the page before.
    pub(crate) previous: Option<String>,
    /// That of the page after.
    pub(crate) next: Option<String>,
}

impl Paging {
    /// The page of `total` rows that `page` of `query` names, at `path`.
    ///
    /// # Errors
    ///
    /// There is no such page.
    pub(crate) fn new(total: usize, path: &str, query: &ViewQuery) -> Result<Self, ViewError> {
        let pages = total.div_ceil(ROWS).max(1);
        let page = match query.one("page")? {
            None => 1,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|page| (1..=pages).contains(page))
                .ok_or_else(|| {
                    ViewError::Invalid(format!("`page` is `{text}`: there are the pages 1 to {pages}"))
                })?,
        };
        let url = |page: usize| {
            let others = query.pairs().filter(|(name, _)| *name != "page");
            let page = page.to_string();
            let query: ViewQuery = others.chain([("page", page.as_str())]).collect();
            format!("{path}?{}", query.encode())
        };
        Ok(Self {
            total,
            first: ((page - 1) * ROWS + 1).min(total),
            last: (page * ROWS).min(total),
            previous: (page > 1).then(|| url(page - 1)),
            next: (page < pages).then(|| url(page + 1)),
        })
    }

    /// The rows of the page.
    pub(crate) fn rows<'r, T>(&self, all: &'r [T]) -> &'r [T] {
        all.get(self.first.saturating_sub(1)..self.last)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let choice = ClusterChoice::among(names(known), asked);
            assert_eq!(
                choice.ok().map(|choice| choice.chosen).as_deref(),
                chosen,
                "{known:?} {asked:?}"
            );
        }
        let error = ClusterChoice::among(names(&["a", "b"]), Some("<b>")).unwrap_err();
        assert_eq!(error.to_string(), "there is no cluster `<b>`: there are `a`, `b`");
    }

    #[test]
    fn a_list_is_shown_a_page_at_a_time() {
        let all: Vec<usize> = (1..=450).collect();
        for (total, query, first, last, previous, next) in [
            (0, "", 0, 0, None, None),
            (200, "a=1", 1, 200, None, None),
            (450, "a=1&page=1&b=%26", 1, 200, None, Some("/p?a=1&b=%26&page=2")),
            (450, "page=2", 201, 400, Some("/p?page=1"), Some("/p?page=3")),
            (450, "page=3", 401, 450, Some("/p?page=2"), None),
        ] {
            let paging = Paging::new(total, "/p", &ViewQuery::parse(query)).unwrap();
            assert_eq!((paging.first, paging.last), (first, last), "{query}");
            assert_eq!(paging.previous.as_deref(), previous, "{query}");
            assert_eq!(paging.next.as_deref(), next, "{query}");
            let rows = paging.rows(&all);
            assert_eq!(rows.first().copied().unwrap_or_default(), first);
            assert_eq!(rows.len(), if first == 0 { 0 } else { last - first + 1 });
        }
        for query in [
            "page=0",
            "page=4",
            "page=-1",
            "page=x",
            "page=99999999999999999999",
            "page=1&page=2",
        ] {
            assert!(
                Paging::new(450, "/p", &ViewQuery::parse(query)).is_err(),
                "{query}"
            );
        }
    }
}
