//! Requests to one API server, and discovery of what it serves (aggregated discovery,
//! `apidiscovery.k8s.io`).

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::client;
use crate::cluster::requests::{ApiError, ApiRequest, ApiServer, ErrorResponse, in_words};
use crate::cluster::served::{ACCEPT, DiscoveredGroup, DiscoveredGroups};
use crate::config::files;

/// How long a connection may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The maximum size of a response in bytes. A page of the largest objects that an API server stores
/// would have some 750 MiB, and is an error.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The maximum number of attempts if the API server is overloaded.
const ATTEMPTS: u32 = 5;

/// Why a request to a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The kubeconfig, or the context in it, cannot be used.
    #[error("cannot connect to the cluster: {0}")]
    Kubeconfig(String),
    /// The user lacks a permission.
    #[error("{message}: allow this user to {verbs} `{resource}`")]
    Forbidden {
        /// The message of the API server, which names the user.
        message: String,
        /// The verbs that are needed.
        verbs: &'static str,
        /// The resource, with its group.
        resource: String,
    },
    /// No version of the kind is served.
    #[error("the API server does not serve {kind} of `{api_version}`: install its CustomResourceDefinition")]
    NotServed {
        /// The kind.
        kind: String,
        /// `apiVersion`.
        api_version: String,
    },
    /// Any other error.
    #[error("{what}: {why}")]
    Failed {
        /// What was attempted.
        what: String,
        /// Why it failed.
        why: String,
    },
}

/// A client of an API server.
pub(crate) struct ApiAccess {
    server: ApiServer,
}

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct ObjectPage {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) metadata: PageMetadata,
    #[serde(deserialize_with = "null_as_none")]
    pub(crate) items: Vec<Value>,
}

#[derive(Default, Deserialize)]
pub(crate) struct PageMetadata {
    /// The continue token of the next page.
    #[serde(default, rename = "continue")]
    pub(crate) next: Option<String>,
}

/// Why a request failed.
pub(crate) struct ApiFailure(ApiError);

// === impl ApiAccess ===

impl ApiAccess {
    /// Creates a client. Also returns the address of the API server, and the namespace of the
    /// context.
    pub(crate) async fn new(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<(Self, ServerAddress, String), LiveError> {
        let unusable =
            |error: &(dyn std::error::Error + Send + Sync + 'static)| LiveError::Kubeconfig(in_words(error));
        let mut config = config(kubeconfig, context).await?;
        config.connect_timeout = Some(Duration::from_secs(10));
        config.read_timeout = Some(IDLE_TIMEOUT);
        config.reset_reader_on_write = true;
        let namespace = config.default_namespace.clone();
        let address = ServerAddress::of(&config);
        let client = match config.proxy_url {
            None => client::client(&config).map_err(|error| unusable(&error))?,
            Some(_) => ClientBuilder::try_from(config)
                .map_err(|error| unusable(&error))?
                .build(),
        };
        let server = ApiServer::new(client);
        Ok((Self { server }, address, namespace))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<T, ApiFailure> {
        self.request(Method::GET, path, ("Accept", accept), Vec::new())
            .await
    }

    /// A page of at most `limit` objects. If the continue token `from` has expired, continues with
    /// the list as it is now.
    pub(crate) async fn page(&self, path: &str, limit: usize, from: &str) -> Result<ObjectPage, ApiFailure> {
        let mut from = from.to_owned();
        loop {
            let separator = if from.is_empty() { "" } else { "&continue=" };
            let target = format!("{path}?limit={limit}{separator}{}", percent_encoded(&from));
            match self.get::<ObjectPage>(&target, "application/json").await {
                Err(ApiFailure(ApiError::Refused(refusal))) if refusal.code == 410 => {
                    let next = refusal.next.clone().filter(|next| *next != from);
                    from = next.ok_or(ApiFailure(ApiError::Refused(refusal)))?;
                }
                Ok(page) if !page.kind.ends_with("List") => {
                    let other = format!("it is {}, not a list", page.kind);
                    return Err(ApiFailure(ApiError::unexpected(path, other)));
                }
                answer => return answer,
            }
        }
    }

    /// An object; `None` if it does not exist.
    pub(crate) async fn object(&self, path: &str) -> Result<Option<Value>, LiveError> {
        match self.get::<Value>(path, "application/json").await {
            Ok(object) => Ok(Some(object)),
            Err(ApiFailure(error)) if error.is(404) => Ok(None),
            Err(error) => Err(error.asking(&format!("`{path}`"))),
        }
    }

    /// Posts an object, and returns the response, for example for a review of
    /// `authentication.k8s.io`.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Result<Value, ApiFailure> {
        let content = ("Content-Type", "application/json");
        let body = review.to_string().into_bytes();
        self.request(Method::POST, path, content, body).await
    }

    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<Value, ApiFailure> {
        let content = ("Content-Type", "application/apply-patch+yaml");
        let body = object.to_string().into_bytes();
        self.request(Method::PATCH, path, content, body).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, ApiFailure> {
        let content = ("Content-Type", "application/merge-patch+json");
        let body = patch.to_string().into_bytes();
        self.request(Method::PATCH, path, content, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ApiFailure> {
        let accept = ("Accept", "application/json");
        match self
            .request::<Value>(Method::DELETE, path, accept, Vec::new())
            .await
        {
            Err(ApiFailure(error)) if error.is(404) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        (header, value): (&'static str, &str),
        body: Vec<u8>,
    ) -> Result<T, ApiFailure> {
        let mut attempt = 1;
        loop {
            let request = ApiRequest {
                method: &method,
                path,
                content: (header, value),
                body: &body,
            };
            match self.server.ask(&request, MAX_ANSWER_BYTES).await {
                Err(ApiError::Refused(refusal)) if is_busy(&refusal) && attempt < ATTEMPTS => {
                    tokio::time::sleep(Duration::from_secs(1) * attempt).await;
                    attempt += 1;
                }
                answer => {
                    let read = answer.and_then(|answer| {
                        let read = serde_json::from_slice(&answer);
                        read.map_err(|error| ApiError::unexpected(path, error))
                    });
                    return read.map_err(ApiFailure);
                }
            }
        }
    }
}

/// The address of an API server, and how it is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// For example `https://10.0.0.1:6443/`.
    pub url: String,
    /// The trusted CA certificates, as PEM; `None` for those of the system.
    pub authorities: Option<String>,
    /// The server name in its certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    /// Whether its certificate is verified.
    pub is_verified: bool,
}

// === impl ServerAddress ===

impl ServerAddress {
    fn of(config: &Config) -> Self {
        let authorities = config.root_cert.as_ref();
        Self {
            url: config.cluster_url.to_string(),
            authorities: authorities.map(|authorities| authorities.iter().map(|der| pem(der)).collect()),
            server_name: config.tls_server_name.clone(),
            is_verified: !config.accept_invalid_certs,
        }
    }
}

/// A certificate as PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// Finds the configuration like kubectl.
async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, LiveError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = kubeconfig {
        std::fs::File::open(path).map_err(|error| {
            LiveError::Kubeconfig(format!("`{}`: {}", path.display(), files::describe(&error)))
        })?;
    }
    let of_file = match kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(read) => Config::from_custom_kubeconfig(read, &options).await,
            Err(error) => Err(error),
        },
        None => Config::from_kubeconfig(&options).await,
    };
    match of_file {
        Ok(config) => Ok(config),
        Err(error) => {
            let in_cluster = (kubeconfig.is_none() && context.is_none()).then(Config::incluster);
            in_cluster.and_then(Result::ok).ok_or_else(|| {
                LiveError::Kubeconfig(format!(
                    "{error} (name a kubeconfig with `--kubeconfig FILE`, and one of its contexts with `--context`)"
                ))
            })
        }
    }
}

/// Whether the response has one of the codes 429, 503 and 504, which are temporary.
const fn is_busy(refusal: &ErrorResponse) -> bool {
    matches!(refusal.code, 429 | 503 | 504)
}

/// Encodes the string for a query.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Go encodes an empty list as `null`.
fn null_as_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

// === impl ApiFailure ===

impl ApiFailure {
    pub(crate) fn asking(self, what: &str) -> LiveError {
        LiveError::Failed {
            what: format!("cannot ask the API server for {what}"),
            why: self.0.to_string(),
        }
    }

    /// The error that `what` cannot be done.
    pub(crate) fn doing(self, what: &str) -> LiveError {
        LiveError::Failed {
            what: format!("cannot {what}"),
            why: self.0.to_string(),
        }
    }

    /// Whether the object was changed at the same time.
    pub(crate) fn is_conflict(&self) -> bool {
        self.0.is(409)
    }

    pub(crate) fn listing(self, resource: &ServedResource) -> LiveError {
        self.of(resource, "list", "get and list")
    }

    pub(crate) fn writing(self, resource: &ServedResource) -> LiveError {
        self.of(resource, "write", "get, list, create, patch and delete")
    }

    fn of(self, resource: &ServedResource, verb: &str, verbs: &'static str) -> LiveError {
        let name = resource.name();
        match self.0 {
            ApiError::Refused(refusal) if refusal.code == 403 => LiveError::Forbidden {
                message: refusal.message,
                verbs,
                resource: name,
            },
            error => LiveError::Failed {
                what: format!("cannot {verb} `{name}`"),
                why: error.to_string(),
            },
        }
    }
}

/// The namespaces from which objects are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedPlace<'n> {
    /// The whole cluster.
    Everywhere,
    /// One namespace.
    Namespace(&'n str),
}

/// A resource in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// The resource, in the plural.
    pub resource: String,
    /// Whether its objects are namespaced.
    pub is_namespaced: bool,
    /// The supported verbs.
    pub verbs: Vec<String>,
}

/// The version of an API server (`version.Info`).
#[derive(Deserialize)]
struct ServerVersion {
    /// For example `37`; some distributions write `37+`.
    minor: String,
}

/// The minor version of the API server; `None` if it does not report one, or not to this user.
pub(crate) async fn minor_version(access: &ApiAccess) -> Option<u32> {
    let version: ServerVersion = access.get("/version", "application/json").await.ok()?;
    let digits = version
        .minor
        .trim_end_matches(|character: char| !character.is_ascii_digit());
    digits.parse().ok()
}

/// All served resources. The versions of a group are in its order of preference.
pub(crate) async fn resources(access: &ApiAccess) -> Result<Vec<ServedResource>, LiveError> {
    let mut all = Vec::new();
    for path in ["/api", "/apis"] {
        let list: DiscoveredGroups = access
            .get(path, ACCEPT)
            .await
            .map_err(|error| error.asking("what it serves"))?;
        let groups = list.at(path).map_err(|why| LiveError::Failed {
            what: "cannot ask the API server for the resources that it serves".to_owned(),
            why,
        })?;
        all.extend(groups.into_iter().flat_map(DiscoveredGroup::resources));
    }
    Ok(all)
}

impl DiscoveredGroup {
    fn resources(self) -> impl Iterator<Item = ServedResource> {
        let group = self.metadata.name;
        self.versions.into_iter().flat_map(move |version| {
            let group = group.clone();
            let resources = version.resources.into_iter();
            resources.filter_map(move |resource| {
                Some(ServedResource {
                    group: group.clone(),
                    version: version.version.clone(),
                    kind: resource.response_kind?.kind,
                    resource: resource.resource,
                    is_namespaced: resource.scope == "Namespaced",
                    verbs: resource.verbs,
                })
            })
        })
    }
}

// === impl KindResource ===

impl ServedResource {
    /// For example `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// For example `pods` or `deployments.apps`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Whether all of these verbs are supported.
    #[must_use]
    pub fn has_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }

    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        self.kind == kind && self.api_version() == api_version && self.has_verbs(&["list"])
    }

    /// The path of its objects. For a cluster-scoped resource, `place` does not matter.
    pub(crate) fn path(&self, place: ListedPlace<'_>) -> String {
        let version = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match place {
            ListedPlace::Namespace(namespace) if self.is_namespaced => {
                format!("{version}/namespaces/{namespace}/{}", self.resource)
            }
            _ => format!("{version}/{}", self.resource),
        }
    }
}
