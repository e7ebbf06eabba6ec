//! Faults, by whose files they are in.

use std::collections::BTreeMap;

use crate::config::HeldBack;
use portcullis_policy::field::Faults;

/// Faults, by the cluster in whose own files they are; under `None` those of everybody's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultsByCluster(BTreeMap<Option<String>, Faults>);

// === impl FaultsByCluster ===

impl FaultsByCluster {
    /// Those of this cluster.
    pub(crate) fn of(&mut self, cluster: Option<&str>) -> &mut Faults {
        self.0.entry(cluster.map(str::to_owned)).or_default()
    }

    /// All of them.
    pub(crate) fn together(self) -> Faults {
        let mut all = Faults::new();
        self.0.into_values().for_each(|faults| all.append(faults));
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(Faults::is_empty)
    }

    /// Moves the faults of clusters that have errors to `held`.
    pub(crate) fn hold(&mut self, held: &mut HeldBack) {
        let is_faulty =
            |cluster: &Option<String>, faults: &mut Faults| cluster.is_some() && faults.has_errors();
        for (cluster, faults) in self.0.extract_if(.., is_faulty) {
            held.entry(cluster.unwrap_or_default())
                .or_default()
                .append(faults);
        }
    }
}
