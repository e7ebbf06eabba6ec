//! How an API server serves a kind (aggregated discovery, `apidiscovery.k8s.io`), and evidence
//! whether a kind that is not served is absent.
//!
//! A 404 proves nothing, because a load balancer without a backend may respond with it, too. It is
//! believed if the same server lists its groups like an API server, and the kind is neither among
//! them nor defined by a CustomResourceDefinition.

use form_urlencoded::Serializer;
use serde::Deserialize;

use super::definition::{self, CustomDefinition};
use super::kind::WatchedKind;
use super::requests::{ApiError, ApiServer, JSON, SplitAnswer};
use super::split::{Envelope, Part, SplitObject};
use super::store::AbsenceEvidence;

/// The number of objects on a page of a list.
const PAGE: u32 = 500;

/// The maximum size of the list of resources of one group and version, in bytes.
const MAX_RESOURCES_BYTES: usize = 8 << 20;

/// A kind that can be listed and watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedKind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The path of its objects.
    path: String,
}

/// What follows after a page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterPage {
    /// Another page, with this continue token.
    Next(String),
    /// The end of the list, which has this resource version.
    End(String),
}

/// An event of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    /// An object was added or changed.
    Changed(SplitObject),
    /// An object was deleted.
    Deleted(SplitObject),
    /// There are no other changes up to this resource version.
    Bookmark(String),
    /// The API server ends the watch. The content is a `metav1.Status`.
    Ended(Vec<u8>),
}

/// A page of a list that is being read.
pub(crate) struct ListPage {
    answer: SplitAnswer,
    served: ServedKind,
}

/// A watch that has started.
pub(crate) struct EventStream {
    answer: SplitAnswer,
    served: ServedKind,
}

/// `APIResourceList`.
#[derive(Deserialize)]
struct ResourceList {
    kind: String,
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
struct ListedResource {
    name: String,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
}

/// A list without its items.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListEnvelope {
    api_version: String,
    kind: String,
    metadata: ListMeta,
    /// Must be present, as an empty list or `null`.
    #[serde(rename = "items")]
    _items: Option<[(); 0]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct EventEnvelope {
    #[serde(rename = "type")]
    event_type: String,
}

// === impl ServedKind ===

impl ServedKind {
    /// How `server` serves `kind`, in the preferred supported version; `None` if the server
    /// responds that it does not.
    pub(crate) async fn find(server: &ApiServer, kind: &WatchedKind) -> Result<Option<Self>, ApiError> {
        for version in &kind.versions {
            let api_version = kind.api_version(version);
            let path = root(&api_version);
            let list: ResourceList = match server.get(&path, JSON, MAX_RESOURCES_BYTES).await {
                Ok(list) => list,
                Err(error) if error.is(404) => continue,
                Err(error) => return Err(error),
            };
            if list.kind != "APIResourceList" {
                return Err(ApiError::unexpected(&path, "it is not an APIResourceList"));
            }
            let mut resources = list.resources.into_iter();
            if let Some(resource) = resources.find(|resource| resource.is(&kind.kind)) {
                return Ok(Some(Self {
                    path: format!("{path}/{}", resource.name),
                    kind: resource.kind,
                    api_version,
                }));
            }
        }
        Ok(None)
    }

    /// Requests a page of a list, which begins at the continue token `from`.
    pub(crate) async fn list(
        &self,
        server: &ApiServer,
        labels: Option<&str>,
        from: &str,
        max_object_bytes: usize,
    ) -> Result<ListPage, ApiError> {
        let limit = PAGE.to_string();
        let next = (!from.is_empty()).then_some(("continue", from));
        let path = self.path([("limit", &*limit)].into_iter().chain(next), labels);
        let answer = server.split(&path, Envelope::List, max_object_bytes).await?;
        let served = self.clone();
        Ok(ListPage { answer, served })
    }

    /// Starts a watch of the changes after `version`, with a timeout of `seconds`.
    pub(crate) async fn watch(
        &self,
        server: &ApiServer,
        labels: Option<&str>,
        version: &str,
        seconds: u64,
        max_object_bytes: usize,
    ) -> Result<EventStream, ApiError> {
        let seconds = seconds.to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &*seconds),
        ];
        let path = self.path(query, labels);
        let answer = server.split(&path, Envelope::Event, max_object_bytes).await?;
        let served = self.clone();
        Ok(EventStream { answer, served })
    }

    fn path<'q>(
        &self,
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
        labels: Option<&'q str>,
    ) -> String {
        let selector = labels.map(|labels| ("labelSelector", labels));
        let path = format!("{}?", self.path);
        let end = path.len();
        let mut written = Serializer::for_suffix(path, end);
        written.extend_pairs(query.into_iter().chain(selector));
        written.finish()
    }

    /// Returns the object if it is of this kind.
    fn checked(&self, object: SplitObject) -> Result<SplitObject, ApiError> {
        let head = &object.head;
        let is_other = |said: &str, meant: &str| !said.is_empty() && said != meant;
        if is_other(&head.kind, &self.kind) || is_other(&head.api_version, &self.api_version) {
            let other = format!("an object is of {} {}", head.api_version, head.kind);
            return Err(ApiError::unexpected(&self.path, other));
        }
        if head.name.is_empty() {
            return Err(ApiError::unexpected(&self.path, "an object has no name"));
        }
        Ok(object)
    }
}

/// The path of a group and version.
fn root(api_version: &str) -> String {
    match api_version.contains('/') {
        true => format!("/apis/{api_version}"),
        false => format!("/api/{api_version}"),
    }
}

// === impl ListedResource ===

impl ListedResource {
    fn is(&self, kind: &str) -> bool {
        let can = |verb| self.verbs.iter().any(|own| own == verb);
        self.kind == kind && !self.name.contains('/') && can("list") && can("watch")
    }
}

// === impl ListPage ===

impl ListPage {
    /// The next object, or what follows after the page.
    pub(crate) async fn next(&mut self) -> Result<Result<SplitObject, AfterPage>, ApiError> {
        match self.answer.next().await? {
            Some(Part::Object(object)) => Ok(Ok(self.served.checked(object)?)),
            Some(Part::End(envelope)) => Ok(Err(self.served.after(&envelope)?)),
            None => Err(ApiError::unexpected(&self.served.path, "it is empty")),
        }
    }
}

impl ServedKind {
    fn after(&self, envelope: &[u8]) -> Result<AfterPage, ApiError> {
        let unexpected = |error: &dyn std::fmt::Display| ApiError::unexpected(&self.path, error);
        let list: ListEnvelope = serde_json::from_slice(envelope).map_err(|error| unexpected(&error))?;
        if list.kind != format!("{}List", self.kind) || list.api_version != self.api_version {
            let other = format!("it is {} of {}", list.kind, list.api_version);
            return Err(unexpected(&other));
        }
        match (list.metadata.next, list.metadata.resource_version) {
            (next, _) if !next.is_empty() => Ok(AfterPage::Next(next)),
            (_, version) if version.is_empty() => Err(unexpected(&"the list has no resourceVersion")),
            (_, version) => Ok(AfterPage::End(version)),
        }
    }
}

// === impl EventStream ===

impl EventStream {
    /// The next event; `None` if the watch has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchEvent>, ApiError> {
        let mut object = None;
        loop {
            match self.answer.next().await? {
                Some(Part::Object(come)) => object = Some(come),
                Some(Part::End(envelope)) => return self.served.event(&envelope, object).map(Some),
                None => return Ok(None),
            }
        }
    }
}

impl ServedKind {
    fn event(&self, envelope: &[u8], object: Option<SplitObject>) -> Result<WatchEvent, ApiError> {
        let EventEnvelope { event_type: sort } =
            serde_json::from_slice(envelope).map_err(|error| ApiError::unexpected(&self.path, error))?;
        let object = object.ok_or_else(|| ApiError::unexpected(&self.path, "an event has no object"))?;
        let versioned = |object: SplitObject| {
            let object = self.checked(object)?;
            match object.head.resource_version.as_str() {
                "" => Err(ApiError::unexpected(
                    &self.path,
                    "an event has no resourceVersion",
                )),
                _ => Ok(object),
            }
        };
        match sort.as_str() {
            "ADDED" | "MODIFIED" => versioned(object).map(WatchEvent::Changed),
            "DELETED" => versioned(object).map(WatchEvent::Deleted),
            "BOOKMARK" => Ok(WatchEvent::Bookmark(object.head.resource_version)),
            "ERROR" => Ok(WatchEvent::Ended(object.text.unwrap_or_default())),
            _ => Err(ApiError::unexpected(
                &self.path,
                format!("an event is of type {sort}"),
            )),
        }
    }
}

/// A resource version as a number, with which it can be compared to others of the same kind.
/// Versions of objects that an API server stores are decimal numbers.
pub(crate) fn numeric_version(version: &str) -> Option<u64> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    version.parse().ok().filter(|_| is_number)
}

/// The accepted forms of the lists of groups, the preferred one first.
pub(crate) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// `APIGroupDiscoveryList`.
#[derive(Deserialize)]
pub(crate) struct DiscoveredGroups {
    kind: String,
    #[serde(default)]
    items: Vec<DiscoveredGroup>,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredGroup {
    #[serde(default)]
    pub(crate) metadata: GroupName,
    #[serde(default)]
    pub(crate) versions: Vec<DiscoveredVersion>,
}

#[derive(Default, Deserialize)]
pub(crate) struct GroupName {
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredVersion {
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) resources: Vec<DiscoveredResource>,
    /// `Current`, or `Stale` if the aggregated API server does not respond.
    #[serde(default)]
    pub(crate) freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiscoveredResource {
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) response_kind: Option<DiscoveredKind>,
    #[serde(default)]
    pub(crate) scope: String,
    #[serde(default)]
    pub(crate) verbs: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredKind {
    pub(crate) kind: String,
}

// === impl DiscoveredGroups ===

impl DiscoveredGroups {
    /// The groups, if the response for `path` is a list of groups; otherwise the reason why not.
    pub(crate) fn at(self, path: &str) -> Result<Vec<DiscoveredGroup>, String> {
        if self.kind == "APIGroupDiscoveryList" {
            return Ok(self.items);
        }
        Err(format!(
            "`{path}` is {} and not an APIGroupDiscoveryList, which API servers send since Kubernetes 1.26",
            self.kind
        ))
    }
}

// Whether a kind that is not served is absent.

/// The maximum size of a list of all groups, and of a definition, in bytes.
const MAX_GROUPS_BYTES: usize = 16 << 20;
const MAX_DEFINITION_BYTES: usize = 8 << 20;

/// Groups that every API server serves, besides the core group.
const ALWAYS_SERVED_GROUPS: [&str; 3] = ["apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io"];

/// The groups that an API server serves.
struct ServerGroups(Vec<DiscoveredGroup>);

/// Why the server that responds is not an API server; `None` if it is one.
pub(crate) async fn why_not_an_api_server(server: &ApiServer) -> Result<Option<String>, ApiError> {
    Ok(ServerGroups::of(server).await?.err())
}

/// Evidence whether `kind`, which is not served, is absent. `newest` is the newest resource version
/// of definitions that was seen.
pub(crate) async fn evidence_of_absence(
    server: &ApiServer,
    kind: &WatchedKind,
    newest: Option<u64>,
) -> Result<AbsenceEvidence, ApiError> {
    let contradicted = |why: &str| Ok(AbsenceEvidence::Contradicted(why.to_owned()));
    let groups = match ServerGroups::of(server).await? {
        Ok(groups) => groups,
        Err(why) => return contradicted(&why),
    };
    if groups.has(kind) {
        return contradicted("the API server lists it among what it serves");
    }
    match is_defined(server, kind, newest).await {
        Ok(Some(why)) => contradicted(&why),
        Ok(None) => Ok(AbsenceEvidence::Proven),
        Err(error) if error.is(403) => Ok(AbsenceEvidence::Undefined),
        Err(error) => Err(error),
    }
}

// === impl ServerGroups ===

impl ServerGroups {
    /// The groups of the server, or why it is not an API server.
    async fn of(server: &ApiServer) -> Result<Result<Self, String>, ApiError> {
        let mut all = Vec::new();
        for path in ["/api", "/apis"] {
            let listed: DiscoveredGroups = match server.get(path, ACCEPT, MAX_GROUPS_BYTES).await {
                Ok(listed) => listed,
                Err(error) if error.is_answer() => return Ok(Err(format!("`{path}`: {error}"))),
                Err(error) => return Err(error),
            };
            match listed.at(path) {
                Ok(items) => all.extend(items),
                Err(why) => return Ok(Err(why)),
            }
        }
        let groups = Self(all);
        let missing = [""]
            .iter()
            .chain(&ALWAYS_SERVED_GROUPS)
            .find(|name| groups.group(name).is_none());
        Ok(match missing {
            None => Ok(groups),
            Some(name) => Err(format!(
                "the server that answers does not list the group `{name}`, as every API server does"
            )),
        })
    }

    fn group(&self, name: &str) -> Option<&DiscoveredGroup> {
        self.0.iter().find(|group| group.metadata.name == name)
    }

    /// Whether the kind is served in a supported version or, for a custom resource, in any version.
    fn has(&self, kind: &WatchedKind) -> bool {
        let is_custom = kind.group.contains('.') && !kind.group.ends_with(".k8s.io");
        let is_taken = |version: &&DiscoveredVersion| is_custom || kind.versions.contains(&version.version);
        let versions = self
            .group(&kind.group)
            .into_iter()
            .flat_map(|group| &group.versions);
        versions.filter(is_taken).any(|version| version.has(&kind.kind))
    }
}

// === impl DiscoveredVersion ===

impl DiscoveredVersion {
    /// Whether this version contains the kind, or may contain it because its resources are stale.
    fn has(&self, kind: &str) -> bool {
        let kinds = self
            .resources
            .iter()
            .filter_map(|resource| resource.response_kind.as_ref());
        self.freshness == "Stale" || kinds.into_iter().any(|served| served.kind == kind)
    }
}

/// Why `kind` may be defined although it is not served; `None` if it is not.
async fn is_defined(
    server: &ApiServer,
    kind: &WatchedKind,
    newest: Option<u64>,
) -> Result<Option<String>, ApiError> {
    let definitions = WatchedKind::definitions();
    let Some(served) = ServedKind::find(server, &definitions).await? else {
        return Ok(Some("CustomResourceDefinitions are not served".to_owned()));
    };
    let mut from = String::new();
    loop {
        let mut page = served.list(server, None, &from, MAX_DEFINITION_BYTES).await?;
        let after = loop {
            match page.next().await? {
                Ok(object) if defines(object.text.as_deref(), kind) => {
                    return Ok(Some(format!("`{}` defines it", object.head.name)));
                }
                Ok(_) => {}
                Err(after) => break after,
            }
        };
        match after {
            AfterPage::Next(next) => from = next,
            AfterPage::End(version)
                if numeric_version(&version).is_some_and(|version| Some(version) < newest) =>
            {
                return Ok(Some(
                    "its CustomResourceDefinitions are older than those that are known".to_owned(),
                ));
            }
            AfterPage::End(_) => return Ok(None),
        }
    }
}

/// Whether `text` is the definition of `kind`, or may be because it cannot be read.
fn defines(text: Option<&[u8]>, kind: &WatchedKind) -> bool {
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    let definition = text.and_then(|text| definition::reduced(text).ok());
    let definition = definition.and_then(|value| CustomDefinition::of(&value));
    definition.is_none_or(|CustomDefinition { resource, .. }| {
        resource.group == kind.group && resource.kind == kind.kind
    })
}

#[cfg(test)]
mod tests;
