//! AuthorizationInvariants in the reports of `check` and `diff`.

use super::access::TimeLimit;
use super::output::CommandError;
use super::policy_files::ObjectPlaces;
use crate::config::DEFAULT_CLUSTER;
use portcullis_policy::authorization::proof::{InvariantStatus, WorkLimit};
use portcullis_policy::authorization::{Enforcement, PolicySet};
use portcullis_policy::document::Document;
use portcullis_policy::engine::{Deadline, Time};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::invariants::{CheckedInvariant, checked_invariants};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath};

/// The kind, as manifests spell it.
const KIND: &str = "AuthorizationInvariant";

/// The most parts into which the requests fall that an invariant forbids.
const MAX_PARTS: usize = 100_000;

/// How the invariants of `set` stand, which decides the requests of `cluster`.
///
/// # Errors
///
/// There is no time left.
pub(crate) fn checked(
    set: &PolicySet,
    cluster: &str,
    now: Time,
    time: &TimeLimit,
) -> Result<Vec<CheckedInvariant>, CommandError> {
    let expired = || time.has_passed();
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline: Deadline::new(&expired),
    };
    checked_invariants(set, cluster, now, limit).map_err(|error| CommandError::Usage(error.to_string()))
}

/// What is wrong with the invariants of `loaded`, which `documents` say, and how many hold.
///
/// # Errors
///
/// There is no time left.
pub(crate) fn faults(
    loaded: &LoadedPolicies,
    documents: &[Document],
) -> Result<(usize, Faults), CommandError> {
    let (now, time) = (std::time::SystemTime::now().into(), TimeLimit::new());
    let mut found = Vec::new();
    let mut holding = 0;
    for (cluster, set) in loaded.sets() {
        for invariant in checked(set, cluster.unwrap_or(DEFAULT_CLUSTER), now, &time)? {
            let sentences = invariant.sentences();
            holding += usize::from(sentences.is_empty());
            for sentence in sentences {
                found.push((cluster, invariant.name.clone(), severity(&invariant), sentence));
            }
        }
    }
    let places = ObjectPlaces::new(documents);
    let mut faults = Faults::new();
    let of_all: Vec<(String, String)> = found
        .iter()
        .filter(|(cluster, ..)| cluster.is_none())
        .map(|(_, name, _, sentence)| (name.clone(), sentence.clone()))
        .collect();
    for (cluster, name, is_error, sentence) in found {
        let message = match cluster {
            Some(_) if of_all.contains(&(name.clone(), sentence.clone())) => continue,
            Some(cluster) => format!("{sentence} (in the cluster `{cluster}`)"),
            None => sentence,
        };
        let place = places.place([KIND, "", &name], FieldPath::root());
        faults.push(match is_error {
            true => Fault::error(place, FaultKind::Forbidden, message),
            false => Fault::warning(place, FaultKind::Suspicious, message),
        });
    }
    Ok((holding, faults))
}

/// Whether what is said of `invariant` is an error.
const fn severity(invariant: &CheckedInvariant) -> bool {
    matches!(
        (invariant.enforcement, &invariant.status),
        (Enforcement::Refuse, InvariantStatus::Broken(_))
    )
}
