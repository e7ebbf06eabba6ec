//! Which cluster a view asks about.

use std::collections::BTreeSet;

use crate::config::DEFAULT_CLUSTER;
use crate::console::context::ViewContext;
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
}
