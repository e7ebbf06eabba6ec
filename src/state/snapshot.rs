//! What is in force: everything that a request is decided by, as it was at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::files::{FaultsByCluster, ManifestFiles, Revision};
use super::index::{EarlierIndex, IndexInputs};
use super::inventory::{self, Change, ChangedSettings, FileContents, MAX_NAMES, Restriction};
use super::last_good::PendingSave;
use super::watched::{ClusterRegistrations, UnknownClusters, UnsyncedCluster, WatchedObjects, WatchedText};
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

/// Everything that a request is judged by, as it was at one moment.
pub struct Snapshot {
    /// Names the content of configuration and manifests, those of clusters too: equal text, equal
    /// revision, on every replica. Twelve hexadecimal digits.
    pub revision: Arc<str>,
    /// The configuration.
    pub config: Arc<Config>,
    /// What decides authorization, by cluster.
    pub policies: ClusterPolicySets,
    /// What decides admission, by cluster.
    pub admission: AdmissionPolicies,
    /// Who may call.
    pub authenticator: Arc<Authenticator>,
    /// Whom admission asks.
    pub upstreams: Upstreams,
    /// Other authorizers, asked where `policies` have no opinion.
    pub authorizers: Authorizers,
    /// What new connections are accepted with.
    pub tls: TlsContext,
    /// The same of the console, where it has TLS.
    pub console_tls: Option<TlsContext>,
    /// When the certificates end that the configuration names.
    pub expiries: Arc<[Expiry]>,
    /// The clusters whose own files are not in force as they are, with what is wrong with them.
    pub held_back: Arc<HeldBack>,
    /// Those of them, and others, whose requests are not decided until files are mended.
    pub(crate) unknown: Arc<UnknownClusters>,
    /// What is wrong with single objects that are held back, of the files that hold for every cluster.
    pub held_objects: Arc<Faults>,
    /// What the files of certificates and credentials held.
    pub(crate) file_contents: Arc<FileContents>,
    pub(crate) index_inputs: IndexInputs,
    pub(crate) manifests: Arc<LoadedManifests>,
    /// To be saved once it is in force.
    pub(crate) unsaved: Option<PendingSave>,
}

/// The manifests of the files, as last read: kept for when only watched objects change.
pub(crate) struct LoadedManifests {
    pub(crate) revision: Revision,
    pub(crate) files: ManifestFiles,
    pub(crate) objects: ObjectSet,
}

impl Snapshot {
    /// Who shows `credentials`. A token that says which calls it is for is for no other.
    ///
    /// # Errors
    ///
    /// Nobody is known by them, or not for this request.
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

    /// Whether all that the files say is in force.
    pub(crate) fn is_as_written(&self) -> bool {
        self.held_back.is_empty() && self.held_objects.is_empty()
    }

    /// Saves the set as the last good one, once, where the configuration wants that.
    pub(crate) fn save(&mut self) {
        if let Some(unsaved) = self.unsaved.take() {
            unsaved.save();
        }
    }

    /// What putting this in force in place of `before` changes.
    pub(crate) fn since(&self, before: &Self) -> Change {
        Change {
            settings: ChangedSettings::between(
                (&before.config.text, &before.file_contents),
                (&self.config.text, &self.file_contents),
            ),
            vanished: self.vanished(before),
            ..Change::of(&self.manifests.objects.since(&before.manifests.objects))
        }
    }

    /// The names of the policies, exceptions and webhook configurations in files.
    pub fn policies_of_files(&self) -> impl Iterator<Item = &str> {
        let identities = self.manifests.objects.others().map(|object| object.identity());
        let policies = identities.filter(|identity| {
            let kind = identity.kind();
            kind.ends_with("Policy")
                || kind.ends_with("Configuration")
                || matches!(kind, "AdmissionException" | "AuthorizationInvariant")
        });
        policies.map(ObjectIdentity::name)
    }

    /// The objects of Portcullis' own kinds in files that hold for `cluster`.
    #[must_use]
    pub fn own_kinds_of_files(&self, cluster: &str) -> BTreeSet<ObjectIdentity> {
        let own = self.manifests.objects.others().filter(|object| {
            let is_own = object.identity().group() == groups::PORTCULLIS;
            is_own && object.cluster().is_none_or(|of| of == cluster)
        });
        own.map(|object| object.identity().clone()).collect()
    }

    /// The clusters whose requests are answered with 503 because files of their own have faults, and
    /// nothing stands in for these.
    #[must_use]
    pub fn unknown_clusters(&self) -> &BTreeSet<String> {
        &self.unknown.faulty
    }

    /// What is known of the registrations of each cluster with `admission: Watched`.
    pub fn registrations(&self) -> impl Iterator<Item = (&str, &ClusterRegistrations)> {
        let all = self.index_inputs.registrations.iter();
        all.map(|(cluster, known)| (cluster.as_str(), known))
    }

    /// `cluster`, where something of it is not known.
    #[must_use]
    pub fn unsynced(&self, cluster: &str) -> Option<&UnsyncedCluster> {
        self.index_inputs.unsynced.get(cluster)
    }

    /// Every object of files and clusters; one that is in both is in force as the files have it.
    pub fn objects_in_force(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        let watched = self
            .index_inputs
            .watched
            .iter()
            .flat_map(|watched| watched.objects());
        self.manifests.objects.objects().chain(watched)
    }

    /// The objects that are watched in `cluster`, each with what it says.
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

    /// The policies, bindings, exceptions and configurations of webhooks in files, as written. None
    /// of them holds a secret; other objects, which may, are left out.
    pub fn documents_of_policies(&self) -> impl Iterator<Item = (&Arc<ValidatedObject>, &Document)> {
        self.manifests.objects.documents_of_policies()
    }

    /// Each cluster that has files of its own, with how many faults these have for which its last
    /// good ones are in force.
    pub fn file_faults(&self) -> BTreeMap<&str, usize> {
        let of_manifests = self
            .config
            .manifests
            .iter()
            .filter_map(|entry| entry.cluster.as_deref());
        let of_clusters = self.config.clusters.iter().filter(|entry| entry.is_tenants());
        let named = of_manifests.chain(of_clusters.map(|entry| entry.name.as_str()));
        let mut faults: BTreeMap<&str, usize> = named.map(|cluster| (cluster, 0)).collect();
        faults.extend(
            self.held_back
                .iter()
                .map(|(cluster, held)| (cluster.as_str(), held.len())),
        );
        faults
    }

    /// The role or binding of RBAC of this kind, namespace and name in files, as it is written.
    pub fn documents_of_rbac(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        self.manifests.objects.documents_of_rbac(kind, namespace, name)
    }

    /// What refused requests in `before` and does so no more.
    pub(crate) fn vanished(&self, before: &Self) -> Vec<Restriction> {
        inventory::vanished(
            (&before.policies, &before.admission),
            (&self.policies, &self.admission),
        )
    }
}

/// What is wrong with putting `after` in force in place of `before`, by the cluster whose files
/// take away more than the configuration allows.
pub(crate) fn removal_faults(before: &Snapshot, after: &Snapshot) -> FaultsByCluster {
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
        "the files would take away {} Denies, validating policies and webhooks ({}{more}), and one change may take away \
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
        let mut own = self.manifests.objects.others().filter(|object| {
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
            own: &snapshot.manifests.objects,
        }
    }
}
