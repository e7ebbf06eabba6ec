//! A kind as an API server serves it by aggregated discovery (`apidiscovery.k8s.io`).

use form_urlencoded::Serializer;
use serde::Deserialize;

use super::kind::WatchedKind;
use super::requests::{ApiError, ApiServer, JSON, SplitAnswer};
use super::split::{Envelope, Part, SplitObject};

/// How many objects of a list come at once. The API server reads as many at a time.
const PAGE: u32 = 500;

/// The most bytes of the resources of one group and version.
const MAX_RESOURCES_BYTES: usize = 8 << 20;

/// A kind that can be listed and watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedKind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Where its objects are.
    path: String,
}

/// What comes after one page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterPage {
    /// Another page.
    Next(String),
    /// Nothing: the list was of this version.
    End(String),
}

/// An event of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    /// An object came or changed.
    Changed(SplitObject),
    /// An object went.
    Deleted(SplitObject),
    /// Nothing happened until this version.
    Bookmark(String),
    /// The API server ends the watch: the text is a `metav1.Status`.
    Ended(Vec<u8>),
}

/// One page of a list, while it is read.
pub(crate) struct ListPage {
    answer: SplitAnswer,
    served: ServedKind,
}

/// A watch that has begun.
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

/// What stands around the items of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListEnvelope {
    api_version: String,
    kind: String,
    metadata: ListMeta,
    /// There must be some, or `null`.
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
    sort: String,
}

// === impl ServedKind ===

impl ServedKind {
    /// How `server` serves `kind`, in the best version that is taken; `None` where it says that
    /// it does not.
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
                return Err(ApiError::unexpected(&path, "it is no APIResourceList"));
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

    /// The page of a list that begins `from` where the one before it said.
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

    /// A watch of what comes after `version`, which ends by itself after so many seconds.
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

    /// An object, where it is one of these.
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

/// Where the resources of a group and version are.
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
    /// The next object, or what comes after the page.
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
    /// The next event; `None` where the watch has ended.
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
        let EventEnvelope { sort } =
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

/// A version as it can be compared with others of its kind: a decimal number, as that of anything
/// that an API server stores.
pub(crate) fn comparable(version: &str) -> Option<u64> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    version.parse().ok().filter(|_| is_number)
}

/// The forms in which the lists of groups may come, best first.
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
    /// `Current`, or `Stale` where the server behind it does not answer.
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
    /// The groups at `path`, or why it does not say what is in them.
    pub(crate) fn at(self, path: &str) -> Result<Vec<DiscoveredGroup>, String> {
        if self.kind == "APIGroupDiscoveryList" {
            return Ok(self.items);
        }
        Err(format!(
            "`{path}` is {} and no APIGroupDiscoveryList, as since Kubernetes 1.26",
            self.kind
        ))
    }
}
