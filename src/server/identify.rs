//! Who sends a request, and whether they may.

use std::time::SystemTime;

use super::connection::Connection;
use super::gateway::Shared;
use crate::authentication::{Caller, Credentials, Refusal};
use crate::reload::Snapshot;
use crate::telemetry::metrics::Outcome;

/// The caller that shows `credentials`, if it `may_use` what it asks for. Either way it is
/// counted, and a refusal logged.
pub(crate) fn identify(
    shared: &Shared,
    snapshot: &Snapshot,
    connection: &Connection,
    credentials: &Credentials<'_>,
    time: SystemTime,
    may_use: impl FnOnce(&Caller) -> Result<(), Refusal>,
) -> Result<Caller, Refusal> {
    let known = snapshot.authenticator.authenticate(credentials, time);
    let (method, outcome) = match &known {
        Ok(caller) => (caller.method, Outcome::Success),
        Err(refusal) => (refusal.method(), Outcome::Failure),
    };
    shared.metrics.authentication(method, outcome);
    if let Ok(caller) = &known {
        connection.prove(&caller.cluster);
    }
    known
        .and_then(|caller| may_use(&caller).map(|()| caller))
        .inspect_err(|refusal| shared.refusals.log(refusal, connection.peer))
}
