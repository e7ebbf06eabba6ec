//! From files to a snapshot, with every fault on the way.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Snapshot, files};
use crate::authentication::Authenticator;
use crate::config::{self, Config, ManifestPath};
use crate::engine::admission::matching::MissingNamespace;
use crate::engine::admission::{AdmissionSettings, FailurePolicy};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest;
use crate::tls::TlsContext;

/// Builds a snapshot from the configuration at `path`, aside from any in force.
///
/// Credentials that `previous` accepted and a newer one replaced stay accepted
/// for a while (see [`Authenticator`]). There is a snapshot only where no fault
/// is an error; warnings come beside it. Blocks: it reads files and compiles
/// policies.
#[must_use]
pub fn load(path: &Path, previous: Option<&Snapshot>, now: SystemTime) -> (Option<Snapshot>, Faults) {
    let (config, mut faults) = config::load(path);
    let Some(config) = config else {
        return (None, faults);
    };
    faults.extend(config.require_callers().err());
    let snapshot = assemble(path, config, previous, now, &mut faults);
    (snapshot.filter(|_| !faults.has_errors()), faults)
}

/// Every fault of the configuration at `path` and of all that it names, and of
/// `more` manifests together with its own. Blocks, as [`load`] does.
#[must_use]
pub fn check(path: &Path, more: &[ManifestPath], now: SystemTime) -> Faults {
    let (config, mut faults) = config::load(path);
    if let Some(mut config) = config {
        config.manifests.extend_from_slice(more);
        assemble(path, config, None, now, &mut faults);
    }
    faults
}

/// Each part is built even where another has failed: one run tells all.
fn assemble(
    path: &Path,
    config: Config,
    previous: Option<&Snapshot>,
    now: SystemTime,
    faults: &mut Faults,
) -> Option<Snapshot> {
    let (sources, unreadable) = files::read_manifests(&config.manifests);
    faults.append(unreadable);
    let options = manifest::Options {
        never_deny: config.authorization.never_deny.clone(),
    };
    let (manifests, found) = manifest::load(&sources, &options);
    faults.append(found);
    let earlier = previous.map(|previous| &previous.authenticator);
    let (authenticator, found) = Authenticator::build(&config, earlier, now);
    faults.append(found);
    let tls = TlsContext::build(&config.server.tls)
        .map_err(|found| faults.append(found))
        .ok();
    faults.extend(tls.iter().flat_map(|tls| tls.warnings().iter().cloned()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let place = Place {
                file: Some(path.display().to_string().into()),
                ..Place::default()
            };
            faults.push(Fault::error(place, FaultKind::Unreadable, error.to_string()));
            return None;
        }
    };
    let revision = Arc::from(files::revision(&text, &sources));
    let manifests = manifests?;
    let admission = manifests.admission(&admission_settings(&config));
    Some(Snapshot {
        revision,
        config,
        policies: manifests.policies,
        admission,
        authenticator,
        tls: tls?,
    })
}

/// What `admission` of the configuration says, in the engine's terms.
#[must_use]
pub fn admission_settings(config: &Config) -> AdmissionSettings {
    AdmissionSettings {
        missing_namespace: match config.admission.missing_namespace {
            config::MissingNamespace::Fail => MissingNamespace::Fail,
            config::MissingNamespace::NameOnly => MissingNamespace::NameOnly,
        },
        failure_policy: match config.admission.failure_policy {
            config::FailurePolicy::Fail => FailurePolicy::Fail,
            config::FailurePolicy::Ignore => FailurePolicy::Ignore,
        },
        ..AdmissionSettings::default()
    }
}
