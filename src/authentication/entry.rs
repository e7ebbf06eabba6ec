//! Entries of `callers`, and which of their fields a request satisfies.
//!
//! ```text
//! certificate, token, password --tables--> Proof (entry, field) --name--> Caller
//! ```

use std::sync::Arc;
use std::time::SystemTime;

use super::caller::{AuthenticationMethod, Caller, Refusal};
use crate::config::{CallerEntry, Endpoints};

/// A set of fields of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fields(u8);

/// What an entry asks for and what it gives.
#[derive(Debug, Clone)]
pub(crate) struct KnownCaller {
    /// The request must satisfy every one of these.
    pub(crate) needs: Fields,
    pub(crate) endpoints: Endpoints,
    pub(crate) cluster: Arc<str>,
    /// Whether the console shows it every cluster.
    sees_all_clusters: bool,
}

/// A credential meets one field of one entry.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// The entry's position.
    pub(crate) entry: usize,
    pub(crate) field: Fields,
    /// The caller's name, as this field knows it.
    pub(crate) name: Arc<str>,
    pub(crate) method: AuthenticationMethod,
    /// The last moment at which it counts, if there is one.
    pub(crate) until: Option<SystemTime>,
}

/// Whom some proofs name.
#[derive(Debug)]
pub(crate) enum NamedField {
    /// One caller, or one that is refused for what it is.
    Caller(Result<Caller, Refusal>),
    /// An entry is met in part.
    Incomplete,
    /// Nobody.
    Nobody,
}

// === impl Fields ===

impl Fields {
    pub(crate) const KUBECONFIG: Self = Self(1);
    pub(crate) const CLIENT_CERTIFICATE: Self = Self(2);
    pub(crate) const JWT: Self = Self(4);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn is_one(self) -> bool {
        self.0.count_ones() == 1
    }
}

// === impl KnownCaller ===

impl KnownCaller {
    pub(crate) fn new(entry: &CallerEntry) -> Self {
        let fields = [
            (entry.kubeconfig.is_some(), Fields::KUBECONFIG),
            (entry.client_certificate.is_some(), Fields::CLIENT_CERTIFICATE),
            (entry.jwt.is_some(), Fields::JWT),
        ];
        let needs = fields.iter().filter(|(is_there, _)| *is_there);
        Self {
            needs: needs.fold(Fields::default(), |needs, (_, field)| needs.with(*field)),
            endpoints: entry.endpoints,
            cluster: entry.cluster.as_str().into(),
            sees_all_clusters: entry.sees_all_clusters,
        }
    }

    /// Whether one credential alone can meet it.
    pub(crate) const fn is_simple(&self) -> bool {
        self.needs.is_one()
    }
}

// === impl Proof ===

impl Proof {
    fn counts(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

/// Whom `proofs` name, where `others` may complete an entry that they meet in
/// part. Several entries give the union of their endpoints, for one cluster.
pub(crate) fn name(
    entries: &[KnownCaller],
    proofs: &[Proof],
    others: &[Proof],
    now: SystemTime,
) -> NamedField {
    let mut named: Option<Caller> = None;
    let mut incomplete = false;
    for proof in proofs.iter().filter(|proof| proof.counts(now)) {
        let Some(entry) = entries.get(proof.entry) else {
            continue;
        };
        if !entry.is_simple() && !is_met(entry, proof.entry, proofs.iter().chain(others), now) {
            incomplete = true;
            continue;
        }
        match &mut named {
            None => named = Some(caller(entry, proof)),
            Some(caller) if caller.cluster == entry.cluster => {
                caller.endpoints = caller.endpoints.union(entry.endpoints);
                caller.sees_all_clusters |= entry.sees_all_clusters;
            }
            Some(caller) => {
                let (name, method) = (caller.name.clone(), caller.method);
                return NamedField::Caller(Err(Refusal::ClusterConflict { name, method }));
            }
        }
    }
    match named {
        Some(caller) => NamedField::Caller(Ok(caller)),
        None if incomplete => NamedField::Incomplete,
        None => NamedField::Nobody,
    }
}

fn is_met<'p>(
    entry: &KnownCaller,
    position: usize,
    proofs: impl Iterator<Item = &'p Proof>,
    now: SystemTime,
) -> bool {
    let proven = proofs
        .filter(|proof| proof.entry == position && proof.counts(now))
        .fold(Fields::default(), |proven, proof| proven.with(proof.field));
    proven.holds(entry.needs)
}

fn caller(entry: &KnownCaller, proof: &Proof) -> Caller {
    Caller {
        name: proof.name.clone(),
        cluster: entry.cluster.clone(),
        endpoints: entry.endpoints,
        sees_all_clusters: entry.sees_all_clusters,
        method: proof.method,
    }
}
