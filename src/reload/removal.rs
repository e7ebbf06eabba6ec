//! `reload.maxRemoved`: a change that takes away more restrictions than that is not put in force. A
//! file that was cut, or written only in part, is a valid change otherwise.

use std::collections::BTreeMap;

use super::faults_by_cluster::FaultsByCluster;
use super::{Restriction, Snapshot};
use portcullis_policy::field::{Fault, FaultKind, FieldPath, Place};

/// The most names in a message.
const MAX_NAMES: usize = 10;

/// What is wrong with putting `after` in force in place of `before`, by the cluster whose files
/// take away more than the configuration allows.
pub(crate) fn faults(before: &Snapshot, after: &Snapshot) -> FaultsByCluster {
    let mut faults = FaultsByCluster::default();
    let Some(most) = after.config.reload.max_removed else {
        return faults;
    };
    let mut removed: BTreeMap<Option<String>, Vec<Restriction>> = BTreeMap::new();
    for restriction in after.vanished(before) {
        if let Some(owner) = before.owner(&restriction) {
            removed
                .entry(owner.map(str::to_owned))
                .or_default()
                .push(restriction);
        }
    }
    let place = Place::of_file(&after.config.file).at(FieldPath::root().field("reload").field("maxRemoved"));
    for (owner, restrictions) in removed.into_iter().filter(|(_, removed)| removed.len() > most) {
        let message = message(&restrictions, most);
        let fault = Fault::error(place.clone(), FaultKind::TooMany, message);
        faults.of(owner.as_deref()).push(fault);
    }
    faults
}

fn message(removed: &[Restriction], most: usize) -> String {
    let names: Vec<String> = removed.iter().take(MAX_NAMES).map(ToString::to_string).collect();
    let more = if removed.len() > MAX_NAMES { ", …" } else { "" };
    format!(
        "the files would take away {} Denies and validating policies ({}{more}), and one change may take away \
         {most}: put them back or, if they are to go, raise this number",
        removed.len(),
        names.join(", ")
    )
}

impl Snapshot {
    /// Whose file has the restriction: `Some(None)` for one that holds for every cluster, `None`
    /// where no file has it.
    fn owner(&self, restriction: &Restriction) -> Option<Option<&str>> {
        let is_it = |cluster: Option<&str>| cluster.is_none() || cluster == restriction.cluster.as_deref();
        let mut own = self.base.objects.others().filter(|object| {
            let identity = object.identity();
            let is_named = identity.kind() == restriction.kind && identity.name() == restriction.name;
            is_named && is_it(object.cluster())
        });
        own.next().map(|object| object.cluster())
    }
}
