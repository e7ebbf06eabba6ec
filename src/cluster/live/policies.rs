//! The policies of a cluster, as they are now.

use std::sync::Arc;

use super::{ListedPlace, LiveCluster, LiveError, ServedResource};
use crate::cluster::kind::{WatchPurpose, WatchedKind};
use crate::cluster::object::{ReceivedObject, name_of};
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::engine::groups::ADMISSION;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::ValidatedObject;

/// What is read.
pub struct LivePolicies {
    /// The objects without fault.
    pub objects: Vec<Arc<ValidatedObject>>,
    /// What is wrong with the others, which count as absent.
    pub faults: Faults,
    /// The custom resources without namespace.
    pub cluster_scoped: ClusterScoped,
}

/// What policies are needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivePurpose {
    /// Who may do what: RBAC and AuthorizationPolicies.
    Authorization,
    /// Which objects are admitted: policies, webhooks and exceptions.
    Admission,
    /// Both: expressions may ask who may do what.
    Both,
}

impl LiveCluster {
    /// The policies for `purpose`, with Namespaces, as those of `cluster`.
    ///
    /// # Errors
    ///
    /// A kind that is served cannot be listed.
    pub fn policies(&self, cluster: &str, purpose: LivePurpose) -> Result<LivePolicies, LiveError> {
        let name: Arc<str> = cluster.into();
        let mut found = LivePolicies {
            objects: Vec::new(),
            faults: Faults::new(),
            cluster_scoped: ClusterScoped::default(),
        };
        for resource in self.resources().iter().filter(|resource| !resource.is_namespaced) {
            found.cluster_scoped.add(&resource.group, &resource.resource);
        }
        let kinds = WatchedKind::fixed(true, true).into_iter();
        for kind in kinds.filter(|kind| purpose.needs(kind)) {
            let Some(resource) = self.served(&kind) else {
                continue;
            };
            let api_version = resource.api_version();
            self.list(resource, ListedPlace::Everywhere, |page| {
                for value in page {
                    let (called, text) = (name_of(&value), value.to_string());
                    drop(value);
                    let received = ReceivedObject::new(&kind, &api_version, called.clone(), text.as_bytes());
                    let read = received.map(|object| object.read(&name, self.cel_version()));
                    match read {
                        Ok(Ok(read)) => found.objects.push(read.object),
                        Ok(Err(refused)) => found.faults.append(refused.faults),
                        Err(reason) => found.faults.append(reason.faults(&name, &kind, &called)),
                    }
                }
                Ok::<_, LiveError>(())
            })?;
        }
        Ok(found)
    }

    /// In the best version that is taken.
    fn served(&self, kind: &WatchedKind) -> Option<&ServedResource> {
        kind.versions.iter().find_map(|version| {
            let api_version = kind.api_version(version);
            let mut resources = self.resources().iter();
            resources.find(|resource| resource.is(&api_version, &kind.kind))
        })
    }
}

impl LivePurpose {
    fn needs(self, kind: &WatchedKind) -> bool {
        let is_admission = kind.group == ADMISSION || kind.role == WatchPurpose::Exception;
        if kind.role == WatchPurpose::Definition {
            return false;
        }
        match self {
            Self::Authorization => !is_admission,
            Self::Admission => is_admission || kind.group.is_empty(),
            Self::Both => true,
        }
    }
}
