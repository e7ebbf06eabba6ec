//! The labels of the series that a family has.

use std::collections::HashSet;

use prometheus::IntCounterVec;
use prometheus::core::Collector;

/// The values that two labels have together in a family's series.
pub(super) fn label_pairs(family: &IntCounterVec, first: &str, second: &str) -> HashSet<(String, String)> {
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
pub(super) fn label_values(family: &impl Collector, name: &str) -> HashSet<String> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let labels = series.flat_map(|metric| metric.get_label());
    labels
        .filter(|label| label.name() == name)
        .map(|label| label.value().to_owned())
        .collect()
}
