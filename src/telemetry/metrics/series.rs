//! The labels of the series that a family has, and which names become labels.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use prometheus::IntCounterVec;
use prometheus::core::Collector;

/// The values that two labels have together in a family's series.
pub(crate) fn label_pairs(family: &IntCounterVec, first: &str, second: &str) -> HashSet<(String, String)> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let value_of = |metric: &prometheus::proto::Metric, name: &str| {
        metric
            .get_label()
            .iter()
            .find(|label| label.name() == name)
            .map(|label| label.value().to_owned())
    };
    series
        .filter_map(|metric| Some((value_of(metric, first)?, value_of(metric, second)?)))
        .collect()
}

/// The values that a label has in a family's series.
pub(crate) fn label_values(family: &impl Collector, name: &str) -> HashSet<String> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let labels = series.flat_map(|metric| metric.get_label());
    labels
        .filter(|label| label.name() == name)
        .map(|label| label.value().to_owned())
        .collect()
}

/// The most names of watched objects that have series of their own in a family. Who may create
/// objects in a watched cluster chooses their names, and Prometheus keeps each series.
const MAX_WATCHED_NAMES: usize = 1000;

/// What the others are counted as, together.
pub(crate) const OTHER: &str = "other";

/// The names that the configuration and its files have, which always have series of their own.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredNames(Mutex<HashSet<String>>);

impl ConfiguredNames {
    pub(crate) fn replace(&self, names: HashSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Which of `names` are labels: those that are configured and, of the others, the first
    /// [`MAX_WATCHED_NAMES`]. A webhook's is that of its configuration.
    pub(crate) fn labels<'n>(&self, names: impl Iterator<Item = &'n str>) -> SeriesLabels {
        let configured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_configured = |name: &&str| {
            let object = name.split('/').next().unwrap_or_default();
            configured.contains(object)
        };
        let (configured, watched): (Vec<&str>, Vec<&str>) = names.partition(is_configured);
        let watched: BTreeSet<&str> = watched.into_iter().collect();
        let watched = watched.into_iter().take(MAX_WATCHED_NAMES);
        SeriesLabels(configured.into_iter().chain(watched).map(str::to_owned).collect())
    }
}

/// The names that are labels.
#[derive(Debug, Default)]
pub(crate) struct SeriesLabels(HashSet<String>);

impl SeriesLabels {
    /// `name`, or what it is counted as.
    pub(crate) fn of<'n>(&self, name: &'n str) -> &'n str {
        if self.0.contains(name) { name } else { OTHER }
    }
}
