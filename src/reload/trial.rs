//! What would decide if some manifests were in force beside those that are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use super::Snapshot;
use super::index::SnapshotIndex;
use super::load::options;
use crate::config::Config;
use portcullis_policy::authorization::Policies;
use portcullis_policy::engine::Deadline;
use portcullis_policy::engine::admission::AdmissionPolicies;
use portcullis_policy::field::{Fault, Faults};
use portcullis_policy::manifest::{self, Compilation, ObjectIdentity, ObjectSet, Source, SourceObjects};

/// What would decide with some manifests beside those in force.
pub struct Trial {
    /// What decides authorization, by cluster.
    pub policies: Policies,
    /// What decides admission, by cluster.
    pub admission: AdmissionPolicies,
    /// The objects on trial, in order.
    pub objects: Vec<ObjectIdentity>,
    /// Those of them that stand in the place of an object that is in force.
    pub replaced: Vec<ObjectIdentity>,
}

impl Snapshot {
    /// What would decide if the objects of `source` were among those of the files, each in the
    /// place of one in force that is the same object, and what `check` says about them: nothing of
    /// what it says about others. Nothing is put in force. Where `source` holds for one cluster
    /// alone, nothing of another's files or objects has a part in it.
    ///
    /// Takes as long as a reload in which these objects changed; for one cluster, as long as to
    /// index that cluster. What is not compiled by the deadline is at fault.
    #[must_use]
    pub fn trial(&self, source: &Source, now: SystemTime, deadline: Deadline<'_>) -> (Option<Trial>, Faults) {
        let only = source.cluster.as_deref();
        let options = options_for(&self.config, only, now);
        let compilation = Compilation {
            version: options.cel_version,
            deadline,
        };
        let trial = Arc::new(SourceObjects::read(source, compilation, None));
        let objects: Vec<ObjectIdentity> = trial.valid().map(|object| object.identity().clone()).collect();
        let on_trial: HashSet<&ObjectIdentity> = objects.iter().collect();
        let own = &self.base.objects;
        let mut sources = own.without(&on_trial);
        sources.retain(|source| is_seen(source.cluster(), only));
        sources.push(trial);
        let (set, found) = ObjectSet::new(sources, &options, Some(own));
        let faults = of_source(source, &found);
        let Some(set) = set else {
            // What is wrong elsewhere is so because of them.
            let faults = if faults.has_errors() { faults } else { found };
            return (None, faults);
        };
        let mut watched = self.basis.watched.clone();
        watched.retain(|watched| is_seen(Some(&watched.cluster), only));
        let earlier = only.is_none().then(|| self.into());
        let indexed = SnapshotIndex::new(&self.config, &set, watched, earlier);
        let trial = Trial {
            policies: indexed.policies,
            admission: indexed.admission,
            replaced: self.replaced(&on_trial, only),
            objects,
        };
        (Some(trial), faults)
    }

    /// Those `on_trial` that stand in the place of an object that is in force.
    fn replaced(&self, on_trial: &HashSet<&ObjectIdentity>, only: Option<&str>) -> Vec<ObjectIdentity> {
        let in_force = self
            .objects_in_force()
            .filter(|object| is_seen(object.cluster(), only));
        let mut replaced: Vec<ObjectIdentity> = in_force
            .filter(|object| on_trial.contains(object.identity()))
            .map(|object| object.identity().clone())
            .collect();
        replaced.sort();
        replaced.dedup();
        replaced
    }
}

/// Whether what holds for `cluster` alone, or for all, has a part in a trial for `only` one.
fn is_seen(cluster: Option<&str>, only: Option<&str>) -> bool {
    only.is_none() || cluster.is_none() || cluster == only
}

fn options_for(config: &Config, only: Option<&str>, now: SystemTime) -> manifest::Options {
    let mut options = options(config, Some(now));
    options.clusters.retain(|cluster| is_seen(Some(cluster), only));
    options.watched.retain(|cluster| is_seen(Some(cluster), only));
    options
}

/// Those of `faults` that are in `source`.
fn of_source(source: &Source, faults: &Faults) -> Faults {
    let is_own = |fault: &&Fault| fault.place.file.as_deref() == Some(source.file.as_str());
    let mut own = Faults::new();
    own.extend(faults.iter().filter(is_own).cloned());
    own
}

#[cfg(test)]
mod tests;
