//! Reads a cluster once, for commands that do not watch it: its policies as they are now, and any
//! other objects.
//!
//! ```text
//! kubeconfig, as kubectl finds it ─▶ client ─▶ discovery ─▶ lists, a page at a time ─▶ objects
//! ```
//!
//! Unlike the watches of [`Clusters`](super::Clusters), this supports `exec` credentials and
//! proxies, as kubectl does.

mod access;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use super::kind::{WatchPurpose, WatchedKind};
use super::object::{ReceivedObject, name_of};
use crate::config::ClusterEntry;
use access::ApiAccess;
use portcullis_cel::Version;
use portcullis_policy::admission::ParamKind;
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::ValidatedObject;
use portcullis_policy::model::groups::ADMISSION;

pub use access::{ListedPlace, LiveError, ServedResource, ServerAddress};

/// A connection to the API server of a cluster.
///
/// Its functions block until the API server has responded.
pub struct LiveCluster {
    runtime: Runtime,
    access: ApiAccess,
    server: ServerAddress,
    namespace: String,
    resources: Vec<ServedResource>,
    minor_version: Option<u32>,
}

/// How many objects one page of a list has.
const PAGE_OBJECTS: usize = 500;

/// The field manager of server-side apply.
const FIELD_MANAGER: &str = "portcullis";

impl LiveCluster {
    /// Connects to the cluster of `context`, or of the current context, in the kubeconfig named, or
    /// where kubectl looks for one: `KUBECONFIG`, `~/.kube/config`, the service account of a pod.
    /// Discovers the resources that it serves.
    ///
    /// # Errors
    ///
    /// There is no such configuration, it cannot be used, or the API server does not respond.
    pub fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, LiveError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("cluster")
            .enable_all()
            .build()
            .map_err(|error| LiveError::Kubeconfig(error.to_string()))?;
        let (access, server, namespace, resources, minor_version) = runtime.block_on(async {
            let (access, server, namespace) = ApiAccess::new(kubeconfig, context).await?;
            let resources = access::resources(&access).await?;
            let minor_version = access::minor_version(&access).await;
            Ok::<_, LiveError>((access, server, namespace, resources, minor_version))
        })?;
        Ok(Self {
            runtime,
            access,
            server,
            namespace,
            resources,
            minor_version,
        })
    }

    /// The minor version of the API server, such as 37; `None` if the API server does not report
    /// it.
    #[must_use]
    pub const fn minor_version(&self) -> Option<u32> {
        self.minor_version
    }

    /// The version of CEL that the API server has. If that is older or newer than all that are
    /// known exactly, the oldest or the newest of these; the newest if the API server does not
    /// report its version.
    #[must_use]
    pub fn cel_version(&self) -> Version {
        let [oldest, .., newest] = Version::EXACT;
        let minor = self.minor_version.map(Version::new);
        minor.map_or(newest, |version| version.clamp(oldest, newest))
    }

    /// The namespace of the context, or `default`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The address of the API server, and how it is authenticated.
    #[must_use]
    pub const fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// The name and groups of the user of the kubeconfig, as the API server knows them
    /// (SelfSubjectReview, Kubernetes 1.28 and later).
    ///
    /// # Errors
    ///
    /// The API server does not respond, or names no user.
    pub fn user(&self) -> Result<(String, Vec<String>), LiveError> {
        #[derive(serde::Deserialize)]
        struct UserInfo {
            username: String,
            #[serde(default)]
            groups: Vec<String>,
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.runtime.block_on(self.access.review(path, &review));
        let mut answer = answer.map_err(|error| error.asking("its name of this user"))?;
        let user = answer.pointer_mut("/status/userInfo").map(Value::take);
        let user = user.and_then(|user| serde_json::from_value::<UserInfo>(user).ok());
        let user = user.ok_or_else(|| LiveError::Failed {
            what: "cannot ask the API server for its name of this user".to_owned(),
            why: "the response contains none".to_owned(),
        })?;
        Ok((user.username, user.groups))
    }

    /// A Secret; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn secret(&self, namespace: &str, name: &str) -> Result<Option<Value>, LiveError> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.runtime.block_on(self.access.object(&path))
    }

    /// The served resources, each in every version, with the preferred version first.
    #[must_use]
    pub fn resources(&self) -> &[ServedResource] {
        &self.resources
    }

    /// Passes each page of the objects of `resource` to `take`, with `apiVersion` and `kind`. If
    /// objects change while they are listed, the pages need not be a consistent snapshot.
    ///
    /// # Errors
    ///
    /// A page cannot be read, or `take` fails.
    pub fn list<E: From<LiveError>>(
        &self,
        resource: &ServedResource,
        place: ListedPlace<'_>,
        mut take: impl FnMut(Vec<Value>) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = resource.path(place);
        let mut from = String::new();
        loop {
            let page = self
                .runtime
                .block_on(self.access.page(&path, PAGE_OBJECTS, &from));
            let page = page.map_err(|error| error.listing(resource))?;
            let items = page.items.into_iter();
            take(items.map(|item| typed(item, resource)).collect())?;
            match page.metadata.next {
                Some(next) if !next.is_empty() => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Every object of a kind; none if the kind is not served.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    pub fn all(&self, kind: &ParamKind) -> Result<Vec<Value>, LiveError> {
        let served = self
            .resources
            .iter()
            .find(|served| served.is(&kind.api_version, &kind.kind));
        let mut objects = Vec::new();
        if let Some(served) = served {
            self.list(served, ListedPlace::Everywhere, |page| {
                objects.extend(page);
                Ok::<_, LiveError>(())
            })?;
        }
        Ok(objects)
    }

    /// Applies `object` (server-side apply), and takes over fields that other field managers own.
    /// Returns the object as it is then.
    ///
    /// # Errors
    ///
    /// Its kind is not served, or the API server rejects it.
    pub fn apply(&self, object: &Value) -> Result<Value, LiveError> {
        let (served, path) = self.place_of(object)?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        let written = self.runtime.block_on(self.access.apply(&path, object));
        written.map_err(|error| error.writing(served))
    }

    /// The object with the type and the name of `object`, as it is now; `None` if it does not
    /// exist.
    ///
    /// # Errors
    ///
    /// Its kind is not served, or it cannot be read.
    pub fn find(&self, object: &Value) -> Result<Option<Value>, LiveError> {
        let (_, path) = self.place_of(object)?;
        self.runtime.block_on(self.access.object(&path))
    }

    /// The resource of an object, and the path of the object.
    fn place_of(&self, object: &Value) -> Result<(&ServedResource, String), LiveError> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let served = self.resources.iter().find(|served| served.is(api_version, kind));
        let served = served.ok_or_else(|| LiveError::NotServed {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        })?;
        let place = match text("/metadata/namespace") {
            "" => ListedPlace::Everywhere,
            namespace => ListedPlace::Namespace(namespace),
        };
        Ok((
            served,
            format!("{}/{}", served.path(place), text("/metadata/name")),
        ))
    }

    /// Deletes the object. It is no error if it does not exist.
    ///
    /// # Errors
    ///
    /// The API server rejects it.
    pub fn delete(&self, served: &ServedResource, (namespace, name): (&str, &str)) -> Result<(), LiveError> {
        let place = match namespace {
            "" => ListedPlace::Everywhere,
            namespace => ListedPlace::Namespace(namespace),
        };
        let path = format!("{}/{name}", served.path(place));
        let deleted = self.runtime.block_on(self.access.delete(&path));
        deleted.map_err(|error| error.writing(served))
    }
}

/// The path of AccessRequests.
const ACCESS_REQUESTS: &str = "/apis/portcullis.dev/v1alpha1/accessrequests";

/// How often a change is attempted while others write the object at the same time.
const MAX_ATTEMPTS: usize = 5;

impl LiveCluster {
    /// Creates an AccessRequest, and returns it as the API server stored it.
    ///
    /// # Errors
    ///
    /// The API server rejects it.
    pub fn create_access_request(&self, object: &Value) -> Result<Value, LiveError> {
        let created = self.runtime.block_on(self.access.review(ACCESS_REQUESTS, object));
        created.map_err(|error| error.doing("create an AccessRequest"))
    }

    /// Merges the status that `change` returns into the AccessRequest `name`, and returns the
    /// result. If somebody else changes the object at the same time, reads it again and retries.
    /// `verb` is for messages.
    ///
    /// # Errors
    ///
    /// There is no such AccessRequest, or the API server rejects the change.
    pub fn change_access_request(
        &self,
        (verb, name): (&str, &str),
        change: impl Fn(&Value) -> Value,
    ) -> Result<Value, LiveError> {
        let path = format!("{ACCESS_REQUESTS}/{name}");
        let status = format!("{path}/status");
        let doing = format!("{verb} AccessRequest `{name}`");
        let mut attempt = 1;
        loop {
            let object = self.runtime.block_on(self.access.object(&path))?;
            let Some(object) = object else {
                return Err(LiveError::Failed {
                    what: format!("cannot {doing}"),
                    why: "there is none with this name".to_owned(),
                });
            };
            let version = object.pointer("/metadata/resourceVersion");
            let patch = json!({"status": change(&object), "metadata": {"resourceVersion": version}});
            let changed = self.access.merge(&status, &patch);
            match self.runtime.block_on(changed) {
                Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
                changed => return changed.map_err(|error| error.doing(&doing)),
            }
        }
    }
}

/// An item of a list with `apiVersion` and `kind`, which lists leave out.
fn typed(item: Value, resource: &ServedResource) -> Value {
    let Value::Object(fields) = item else { return item };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(resource.api_version()));
    object.insert("kind".to_owned(), json!(resource.kind));
    object.extend(
        fields
            .into_iter()
            .filter(|(name, _)| name != "apiVersion" && name != "kind"),
    );
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        // These are not needed, and often half of the object.
        metadata.remove("managedFields");
    }
    Value::Object(object)
}

/// The policies of a cluster, as they were read.
pub struct LivePolicies {
    /// The valid objects.
    pub objects: Vec<Arc<ValidatedObject>>,
    /// The faults of the others, which count as absent.
    pub faults: Faults,
    /// The resources that are not namespaced.
    pub cluster_scoped: ClusterScoped,
}

/// The purpose for which policies are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivePurpose {
    /// RBAC and AuthorizationPolicies.
    Authorization,
    /// Admission policies, webhook configurations and exceptions.
    Admission,
    /// Both, because expressions can check whether a user may do something.
    Both,
}

impl LiveCluster {
    /// The policies for `purpose`, and the Namespaces, as objects of the cluster `cluster`.
    ///
    /// # Errors
    ///
    /// A kind that is served cannot be listed.
    pub fn policies(&self, cluster: &str, purpose: LivePurpose) -> Result<LivePolicies, LiveError> {
        let kinds = WatchedKind::fixed(true, true);
        let needed = kinds.into_iter().filter(|kind| purpose.needs(kind)).collect();
        self.policies_of(cluster, needed, |_, _| true)
    }

    /// The objects of `kinds` that are wanted.
    fn policies_of(
        &self,
        cluster: &str,
        kinds: Vec<WatchedKind>,
        is_wanted: impl Fn(&WatchedKind, &Value) -> bool,
    ) -> Result<LivePolicies, LiveError> {
        let name: Arc<str> = cluster.into();
        let mut found = LivePolicies {
            objects: Vec::new(),
            faults: Faults::new(),
            cluster_scoped: ClusterScoped::default(),
        };
        for resource in self.resources().iter().filter(|resource| !resource.is_namespaced) {
            found.cluster_scoped.add(&resource.group, &resource.resource);
        }
        for kind in kinds
            .into_iter()
            .filter(|kind| kind.purpose != WatchPurpose::Definition)
        {
            let Some(resource) = self.served(&kind) else {
                continue;
            };
            let api_version = resource.api_version();
            let listed = self.list(resource, ListedPlace::Everywhere, |page| {
                for value in page.into_iter().filter(|value| is_wanted(&kind, value)) {
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
            });
            match listed {
                // A user who may list policies need not have the permission to list AccessRequests.
                Err(error) if kind.purpose == WatchPurpose::AccessRequest => {
                    let place = Place::of_file(Path::new(&format!("cluster {cluster}")));
                    found
                        .faults
                        .push(Fault::error(place, FaultKind::Forbidden, error.to_string()));
                }
                listed => listed?,
            }
        }
        Ok(found)
    }

    /// The policies that a gateway takes if it watches this cluster with the settings of `entry`:
    /// admission policies, webhook configurations and exceptions only if it selects and accepts
    /// them.
    ///
    /// # Errors
    ///
    /// A kind that is served cannot be listed.
    pub fn policies_as_watched(
        &self,
        cluster: &str,
        entry: Option<&ClusterEntry>,
    ) -> Result<LivePolicies, LiveError> {
        let selector = entry.and_then(|entry| entry.selector.as_ref());
        let accepts_exceptions = entry.is_some_and(|entry| entry.accept_exceptions);
        let kinds = WatchedKind::fixed(selector.is_some(), accepts_exceptions);
        self.policies_of(cluster, kinds, |kind, object| {
            let selector = selector.filter(|_| kind.group == ADMISSION);
            selector.is_none_or(|selector| {
                selector.labels.matches(|key| {
                    let label = object.pointer("/metadata/labels")?.get(key)?;
                    label.as_str()
                })
            })
        })
    }

    /// The resource of a kind, in the preferred supported version.
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
        let is_admission = kind.group == ADMISSION || kind.purpose == WatchPurpose::Exception;
        if kind.purpose == WatchPurpose::Definition {
            return false;
        }
        match self {
            Self::Authorization => !is_admission,
            Self::Admission => is_admission || kind.group.is_empty(),
            Self::Both => true,
        }
    }
}

#[cfg(test)]
mod tests;
