//! The snapshot: everything on which decisions depend, as it was at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::files::{FaultsByCluster, ManifestFiles, Revision};
use super::index::{EarlierIndex, IndexInputs};
use super::inventory::{self, Change, ChangedSettings, FileContents, MAX_NAMES, Restriction};
use super::last_good::PendingSave;
use super::watched::{
    KnownWebhookConfigurations, UnknownClusters, UnsyncedCluster, WatchedObjects, WatchedText,
};
use crate::config::{Config, HeldBack};
use crate::identity::certificates::Expiry;
use crate::identity::tls::TlsContext;
use crate::identity::{Authenticator, Caller, CredentialFault, Credentials, Refusal, TokenFault};
use crate::webhooks::Upstreams;
use crate::webhooks::authorizers::Authorizers;
use portcullis_policy::admission::AdmissionPolicies;
use portcullis_policy::authorization::ClusterPolicySets;
use portcullis_policy::document::Document;
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};
use portcullis_policy::manifest::{ObjectIdentity, ObjectSet, ValidatedObject};
use portcullis_policy::model::groups;

/// Everything on which decisions depend, as it was at one moment.
pub struct Snapshot {
    /// A digest of the configuration and manifests, including those of clusters: the same content
    /// has the same revision on every replica. Twelve hexadecimal digits.
    pub revision: Arc<str>,
    pub config: Arc<Config>,
    /// The policies of authorization, by cluster.
    pub policies: ClusterPolicySets,
    /// The policies of admission, by cluster.
    pub admission: AdmissionPolicies,
    /// Authenticates callers.
    pub authenticator: Arc<Authenticator>,
    /// The admission webhooks to call.
    pub upstreams: Upstreams,
    /// Other authorizers, which are called if `policies` have no opinion.
    pub authorizers: Authorizers,
    /// The TLS settings of new connections.
    pub tls: TlsContext,
    /// The TLS settings of new connections to the console, if it has TLS.
    pub console_tls: Option<TlsContext>,
    /// When the certificates that the configuration names expire.
    pub expiries: Arc<[Expiry]>,
    /// The clusters whose current files are held back, with the faults of these files.
    pub held_back: Arc<HeldBack>,
    /// The clusters whose requests are not decided until files are repaired, which may be held back
    /// or not.
    pub(crate) unknown: Arc<UnknownClusters>,
    /// The faults of single objects that are held back, in files for all clusters.
    pub held_objects: Arc<Faults>,
    /// The contents of the files of certificates and credentials.
    pub(crate) file_contents: Arc<FileContents>,
    pub(crate) index_inputs: IndexInputs,
    pub(crate) manifests: Arc<LoadedManifests>,
    /// The set to save as the last good one once this is in force.
    pub(crate) unsaved: Option<PendingSave>,
}

/// The manifests of the files, as last read. They are reused when only watched objects change.
pub(crate) struct LoadedManifests {
    pub(crate) revision: Revision,
    pub(crate) files: ManifestFiles,
    pub(crate) objects: ObjectSet,
}

impl Snapshot {
    /// Authenticates the caller with these `credentials`. A token that names the requests for which
    /// it is valid is rejected for others.
    ///
    /// # Errors
    ///
    /// The caller is unknown, or the credentials are not valid for this request.
    pub fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Arc<Caller>, Refusal> {
        let caller = self.authenticator.authenticate(credentials, now)?;
        let Some(token) = &caller.attestation else {
            return Ok(caller);
        };
        let of_cluster = |one: &&Arc<WatchedObjects>| *one.cluster == *caller.cluster;
        let watched = self.index_inputs.watched.iter().find(of_cluster);
        let fault = if !token.is_for(credentials.path) {
            TokenFault::OtherUrl
        } else if !watched.is_some_and(|watched| watched.has_configuration(token)) {
            TokenFault::Configuration
        } else {
            return Ok(caller);
        };
        Err(Refusal::Unauthenticated {
            method: caller.method,
            cause: CredentialFault::Token(fault),
        })
    }

    /// Whether everything in the files is in force.
    pub(crate) fn is_as_written(&self) -> bool {
        self.held_back.is_empty() && self.held_objects.is_empty()
    }

    /// Saves the set as the last good one, once, if this is configured.
    pub(crate) fn save(&mut self) {
        if let Some(unsaved) = self.unsaved.take() {
            unsaved.save();
        }
    }

    /// The changes that putting this snapshot in force in place of `before` makes.
    pub(crate) fn since(&self, before: &Self) -> Change {
        Change {
            settings: ChangedSettings::between(
                (&before.config.text, &before.file_contents),
                (&self.config.text, &self.file_contents),
            ),
            vanished: self.removed_restrictions(before),
            ..Change::of(&self.manifests.objects.since(&before.manifests.objects))
        }
    }

    /// The names of the policies, exceptions and webhook configurations in files.
    pub fn policies_of_files(&self) -> impl Iterator<Item = &str> {
        let identities = self
            .manifests
            .objects
            .non_bindings()
            .map(|object| object.identity());
        let policies = identities.filter(|identity| {
            let kind = identity.kind();
            kind.ends_with("Policy")
                || kind.ends_with("Configuration")
                || matches!(kind, "AdmissionException" | "AuthorizationInvariant")
        });
        policies.map(ObjectIdentity::name)
    }

    /// The objects of Portcullis' own kinds in files for `cluster` or for all clusters.
    #[must_use]
    pub fn own_kinds_of_files(&self, cluster: &str) -> BTreeSet<ObjectIdentity> {
        let own = self.manifests.objects.non_bindings().filter(|object| {
            let is_own = object.identity().group() == groups::PORTCULLIS;
            is_own && object.cluster().is_none_or(|of| of == cluster)
        });
        own.map(|object| object.identity().clone()).collect()
    }

    /// The clusters whose requests are answered with 503 because their files have faults, and no
    /// earlier files can replace them.
    #[must_use]
    pub fn unknown_clusters(&self) -> &BTreeSet<String> {
        &self.unknown.faulty
    }

    /// What is known about the webhook configurations of each cluster with `admission: Watched`.
    pub fn registrations(&self) -> impl Iterator<Item = (&str, &KnownWebhookConfigurations)> {
        let all = self.index_inputs.registrations.iter();
        all.map(|(cluster, known)| (cluster.as_str(), known))
    }

    /// The state of `cluster`, if something about it is not known.
    #[must_use]
    pub fn unsynced(&self, cluster: &str) -> Option<&UnsyncedCluster> {
        self.index_inputs.unsynced.get(cluster)
    }

    /// Every object of files and clusters. Of an object that is in both, the one in the files is in
    /// force.
    pub fn objects_in_force(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        let watched = self
            .index_inputs
            .watched
            .iter()
            .flat_map(|watched| watched.objects());
        self.manifests.objects.objects().chain(watched)
    }

    /// The watched objects of `cluster`, each with its content.
    pub fn watched_texts<'s>(
        &'s self,
        cluster: &'s str,
    ) -> impl Iterator<Item = (&'s Arc<ValidatedObject>, &'s Arc<dyn WatchedText>)> {
        let watched = self.index_inputs.watched.iter();
        watched
            .filter(move |watched| watched.cluster == cluster)
            .flat_map(|watched| &watched.parts)
            .flat_map(|part| part.objects.iter().zip(&part.texts))
    }

    /// The policies, bindings, exceptions and webhook configurations in files, as written. They
    /// never contain secrets, as other objects might.
    pub fn documents_of_policies(&self) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        self.manifests.objects.documents_of_policies()
    }

    /// Each cluster that has its own files, with the number of faults for which earlier files are
    /// in force.
    pub fn file_faults(&self) -> BTreeMap<&str, usize> {
        let of_manifests = self
            .config
            .manifests
            .iter()
            .filter_map(|entry| entry.cluster.as_deref());
        let of_clusters = self
            .config
            .clusters
            .iter()
            .filter(|entry| entry.is_written_by_tenant());
        let named = of_manifests.chain(of_clusters.map(|entry| entry.name.as_str()));
        let mut faults: BTreeMap<&str, usize> = named.map(|cluster| (cluster, 0)).collect();
        faults.extend(
            self.held_back
                .iter()
                .map(|(cluster, held)| (cluster.as_str(), held.len())),
        );
        faults
    }

    /// The role or binding with this kind, namespace and name in files, as written.
    pub fn documents_of_rbac(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        self.manifests.objects.documents_of_rbac(kind, namespace, name)
    }

    /// The restrictions that are in `before` but not in this snapshot.
    pub(crate) fn removed_restrictions(&self, before: &Self) -> Vec<Restriction> {
        inventory::removed_restrictions(
            (&before.policies, &before.admission),
            (&self.policies, &self.admission),
        )
    }
}

/// The faults of replacing `before` by `after`, by cluster: its files remove more restrictions than
/// `reload.maxRemoved` allows.
pub(crate) fn removal_faults(before: &Snapshot, after: &Snapshot) -> FaultsByCluster {
    let mut faults = FaultsByCluster::default();
    let Some(most) = after.config.reload.max_removed else {
        return faults;
    };
    let mut removed: BTreeMap<Option<String>, Vec<Restriction>> = BTreeMap::new();
    for restriction in after.removed_restrictions(before) {
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
        "the files would remove {} Denies, validating policies and webhooks ({}{more}), but one change may \
        remove at most {most}: restore them or, to remove them on purpose, raise this number",
        removed.len(),
        names.join(", ")
    )
}

impl Snapshot {
    /// The cluster whose file contains the restriction: `Some(None)` if the file is for all
    /// clusters, `None` if no file contains it.
    fn owner(&self, restriction: &Restriction) -> Option<Option<&str>> {
        let is_it = |cluster: Option<&str>| cluster.is_none() || cluster == restriction.cluster.as_deref();
        let mut own = self.manifests.objects.non_bindings().filter(|object| {
            let identity = object.identity();
            let is_named = identity.kind() == restriction.kind && identity.name() == restriction.name;
            is_named && is_it(object.cluster())
        });
        own.next().map(|object| object.cluster())
    }
}

impl<'o> From<&'o Snapshot> for EarlierIndex<'o> {
    fn from(snapshot: &'o Snapshot) -> Self {
        Self {
            policies: &snapshot.policies,
            admission: &snapshot.admission,
            index_inputs: &snapshot.index_inputs,
            file_objects: &snapshot.manifests.objects,
        }
    }
}
