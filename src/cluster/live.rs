//! One reading of a cluster, for commands that ask once and end: its policies as they are now, and any
//! objects.
//!
//! ```text
//! kubeconfig, as kubectl finds it ─▶ client ─▶ discovery ─▶ lists, a page at a time ─▶ objects
//! ```
//!
//! Unlike the watches of [`Clusters`](super::Clusters), this takes credentials of `exec` and
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

/// A cluster that can be asked.
///
/// Its functions block until the API server has answered.
pub struct LiveCluster {
    runtime: Runtime,
    access: ApiAccess,
    server: ServerAddress,
    namespace: String,
    resources: Vec<ServedResource>,
    minor_version: Option<u32>,
}

/// How many objects come at once.
const PAGE_OBJECTS: usize = 500;

/// Who writes reports, to the API server.
const FIELD_MANAGER: &str = "portcullis";

impl LiveCluster {
    /// The cluster of `context`, or of the current one, in the file named, or where kubectl looks:
    /// `KUBECONFIG`, `~/.kube/config`, the service account of a pod. Asks what it serves.
    ///
    /// # Errors
    ///
    /// There is no such configuration, it cannot be used, or the API server does not answer.
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

    /// The minor version of the API server, such as 37; `None` where it does not say one.
    #[must_use]
    pub const fn minor_version(&self) -> Option<u32> {
        self.minor_version
    }

    /// What the API server compiles expressions for, where that version is known: else the
    /// oldest or the newest that is, and the newest where it does not say its version.
    #[must_use]
    pub fn cel_version(&self) -> Version {
        let [oldest, .., newest] = Version::EXACT;
        let minor = self.minor_version.map(Version::new);
        minor.map_or(newest, |version| version.clamp(oldest, newest))
    }

    /// The namespace of the context, or else `default`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where the API server is.
    #[must_use]
    pub const fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// The name and groups of the user of the kubeconfig, as the API server knows them
    /// (SelfSubjectReview, Kubernetes 1.28 and later).
    ///
    /// # Errors
    ///
    /// It does not say.
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
            why: "the answer names none".to_owned(),
        })?;
        Ok((user.username, user.groups))
    }

    /// A Secret; `None`: there is none.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn secret(&self, namespace: &str, name: &str) -> Result<Option<Value>, LiveError> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.runtime.block_on(self.access.object(&path))
    }

    /// What is served, each resource in every version, the preferred one first.
    #[must_use]
    pub fn resources(&self) -> &[ServedResource] {
        &self.resources
    }

    /// Passes on each page of the objects of `resource`, which say their apiVersion and kind.
    /// A list that changes while it is read may have an object of neither before nor after.
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

    /// Every object of a kind; none where it is not served.
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

    /// Writes `object`, which says what it is, as it is to be; who wrote it otherwise is
    /// overruled. The answer is the object as it is now.
    ///
    /// # Errors
    ///
    /// Its kind is not served, or the API server refuses it.
    pub fn apply(&self, object: &Value) -> Result<Value, LiveError> {
        let (served, path) = self.place_of(object)?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        let written = self.runtime.block_on(self.access.apply(&path, object));
        written.map_err(|error| error.writing(served))
    }

    /// The object that has the type and the name of `object`, as it is now; `None`: there is none.
    ///
    /// # Errors
    ///
    /// Its kind is not served, or it cannot be read.
    pub fn find(&self, object: &Value) -> Result<Option<Value>, LiveError> {
        let (_, path) = self.place_of(object)?;
        self.runtime.block_on(self.access.object(&path))
    }

    /// What an object is, and its path.
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

    /// Deletes the object; that there is none is no error.
    ///
    /// # Errors
    ///
    /// The API server refuses that.
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

/// Where AccessRequests are.
const ACCESS_REQUESTS: &str = "/apis/portcullis.dev/v1alpha1/accessrequests";

/// How often a change is tried where somebody else writes at the same time.
const MAX_ATTEMPTS: usize = 5;

impl LiveCluster {
    /// Creates an AccessRequest; as the API server has it then.
    ///
    /// # Errors
    ///
    /// The API server refuses it.
    pub fn create_access_request(&self, object: &Value) -> Result<Value, LiveError> {
        let created = self.runtime.block_on(self.access.review(ACCESS_REQUESTS, object));
        created.map_err(|error| error.doing("create an AccessRequest"))
    }

    /// Merges what `change` makes of the AccessRequest `name` into it, and of what it has become meanwhile
    /// where somebody else writes it at the same time; `verb` is for messages. As the API server has it then.
    ///
    /// # Errors
    ///
    /// There is none, or the API server refuses the change.
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
                    why: "there is none of this name".to_owned(),
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

/// The item of a list with its type, which lists leave out.
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
        // Who wrote which field is of no interest, and often half of the object.
        metadata.remove("managedFields");
    }
    Value::Object(object)
}

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
        let kinds = WatchedKind::fixed(true, true);
        let needed = kinds.into_iter().filter(|kind| purpose.needs(kind)).collect();
        self.policies_of(cluster, needed, |_, _| true)
    }

    /// Those of `kinds` that are wanted.
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
            .filter(|kind| kind.role != WatchPurpose::Definition)
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
                // Who may see policies need not see who asks for access.
                Err(error) if kind.role == WatchPurpose::AccessRequest => {
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

    /// What a gateway takes that watches this cluster as `entry` says: admission policies, webhook
    /// configurations and exceptions only where it selects and accepts them.
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

#[cfg(test)]
mod tests;
