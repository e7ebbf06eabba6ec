//! A client of OCI registries, with the parts of the distribution specification that bundles need.
//!
//! ```text
//! registry.example.com ◀── Authorization: what its 401 asks for, a token or the credentials themselves
//!        │ 401: realm ────▶ token server ◀── Authorization: the credentials, over TLS only
//!        └ 307: Location ─▶ storage        no Authorization, nor in later requests of the exchange
//! ```
//!
//! A registry chooses the addresses that are dialled when it redirects or names a token server.
//! Therefore loopback and link-local addresses, where clouds provide credentials of machines, are
//! dialled only if the reference itself is such an address. Each reply is bounded, and the caller
//! sets a deadline for the whole operation.
//!
//! It follows `distribution-spec/spec.md` and `distribution/docs/content/spec/auth/token.md`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use ipnet::IpNet;
use serde::Deserialize;

use super::credentials::{challenge, parameters, read_credentials};
use super::manifest::{BundleError, Descriptor, INDEX_TYPE, ImageIndex, ImageManifest, MANIFEST_TYPE};
use super::manifest::{MAX_DOCUMENT_BYTES, digest};
use super::signature::{BundleSignature, SIGSTORE_TYPE, SIMPLE_SIGNING_TYPE};
use crate::config::{BundleReference, files, is_digest};
use crate::webhooks::client::{Addresses, CallError, Connector, Settings, TlsClient, Url};

/// The most redirects of one request that are followed.
const MAX_REDIRECTS: usize = 3;

/// The most signatures of each form that are verified, starting with the newest.
const MAX_SIGNATURES: usize = 16;

/// The most bytes of a signature with its payload.
const MAX_SIGNATURE_BYTES: u64 = 256 << 10;

/// The most bytes of a reply's head that are buffered.
const MAX_BUFFER_BYTES: usize = 64 << 10;

const USER_AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// The permissions that are requested for the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryAccess {
    /// Reading.
    Pull,
    /// Reading and writing.
    Push,
}

/// One repository of a registry.
pub struct Registry {
    reference: BundleReference,
    access: RegistryAccess,
    authorities: Vec<Vec<u8>>,
    addresses: Arc<Addresses>,
    /// The `Basic` credentials for the registry and its token server.
    credentials: Option<HeaderValue>,
    /// The `Authorization` header that the registry requested.
    authorization: Option<HeaderValue>,
}

/// A request, without its destination.
struct RegistryRequest<'r> {
    method: Method,
    headers: &'r [(HeaderName, &'r str)],
    body: Bytes,
    max_reply_bytes: usize,
}

struct RegistryReply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegistryEndpoint {
    authority: String,
    path: String,
}

#[derive(Deserialize)]
struct TokenReply {
    token: Option<String>,
    access_token: Option<String>,
}

// === impl Registry ===

impl Registry {
    /// The repository of `reference`. Its certificate must be signed by a CA in `ca_bundle`, or
    /// without one by a CA that the system trusts. `credentials` is a `config.json` of docker,
    /// which may contain credentials for it.
    ///
    /// # Errors
    ///
    /// The files cannot be used.
    pub fn new(
        reference: &BundleReference,
        access: RegistryAccess,
        ca_bundle: Option<&Path>,
        credentials: Option<&Path>,
    ) -> Result<Self, BundleError> {
        let mut authorities = Vec::new();
        if let Some(path) = ca_bundle {
            let refused = |reason: String| BundleError::of_file(path, reason);
            let pem =
                files::read(path, files::CONFIGURATION_BYTES).map_err(|error| refused(error.to_string()))?;
            authorities.push(pem);
            TlsClient::new(&authorities, None, false).map_err(|error| refused(error.to_string()))?;
        }
        Ok(Self {
            addresses: Arc::new(addresses(&reference.registry)),
            credentials: credentials
                .map(|path| read_credentials(path, reference))
                .transpose()?
                .flatten(),
            reference: reference.clone(),
            access,
            authorities,
            authorization: None,
        })
    }

    /// Returns the manifest or index with this tag or digest; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The request failed, or the content has another digest.
    pub async fn manifest(&mut self, version: &str) -> Result<Option<Bytes>, BundleError> {
        let path = format!("manifests/{version}");
        let text = self.get(&path, MAX_DOCUMENT_BYTES).await?;
        match text {
            Some(text) if is_digest(version) && digest(&text) != version => Err(digest_mismatch(version)),
            text => Ok(text),
        }
    }

    /// The content of a blob.
    pub(crate) async fn blob(&mut self, blob: &Descriptor) -> Result<Bytes, BundleError> {
        // The digest becomes a part of a path.
        if !is_digest(&blob.digest) {
            return Err(BundleError::Manifest(
                "a digest is not a SHA-256 digest".to_owned(),
            ));
        }
        let size = usize::try_from(blob.size).unwrap_or(usize::MAX);
        let content = self.get(&format!("blobs/{}", blob.digest), size).await?;
        let content = content.ok_or_else(|| self.error(format_args!("has no blob `{}`", blob.digest)))?;
        if content.len() != size || digest(&content) != blob.digest {
            return Err(digest_mismatch(&blob.digest));
        }
        Ok(content)
    }

    /// The signatures that claim to be for the manifest with this digest. They are not verified.
    pub(crate) async fn signatures(&mut self, digest: &str) -> Result<Vec<BundleSignature>, BundleError> {
        let mut found = Vec::new();
        let tag = digest.replace(':', "-");
        if let Some(text) = self.manifest(&format!("{tag}.sig")).await? {
            for layer in newest(ImageManifest::parse(&text)?.layers, |layer| {
                layer.media_type == SIMPLE_SIGNING_TYPE
            }) {
                let payload = self.blob(&layer).await?;
                found.extend(BundleSignature::of_layer(&layer, &payload));
            }
        }
        let mut referrers = self
            .get(&format!("referrers/{digest}"), MAX_DOCUMENT_BYTES)
            .await?;
        if referrers.is_none() {
            // For registries without the referrers API, clients maintain such an index under this
            // tag.
            referrers = self.manifest(&tag).await?;
        }
        let index = referrers.and_then(|text| serde_json::from_slice::<ImageIndex>(&text).ok());
        let is_sigstore = |referrer: &Descriptor| {
            let kind = referrer.artifact_type.as_deref();
            kind.is_some_and(|kind| kind.starts_with(SIGSTORE_TYPE)) && is_digest(&referrer.digest)
        };
        for referrer in newest(
            index.map(|index| index.manifests).unwrap_or_default(),
            is_sigstore,
        ) {
            let Some(text) = self.manifest(&referrer.digest).await? else {
                continue;
            };
            let layers = ImageManifest::parse(&text)?.layers;
            if let Some(layer) = layers.first().filter(|layer| layer.size <= MAX_SIGNATURE_BYTES) {
                let bundle = self.blob(layer).await?;
                found.extend(BundleSignature::of_sigstore_bundle(&bundle));
            }
        }
        Ok(found)
    }

    /// Stores a blob, unless it exists already.
    pub(crate) async fn push_blob(&mut self, content: &[u8]) -> Result<(), BundleError> {
        let digest = digest(content);
        let blob = self.endpoint(&format!("blobs/{digest}"));
        let head = RegistryRequest::new(Method::HEAD);
        if self.exchange(blob, &head).await?.status.is_success() {
            return Ok(());
        }
        let uploads = self.endpoint("blobs/uploads/");
        let reply = self
            .exchange(uploads.clone(), &RegistryRequest::new(Method::POST))
            .await?;
        let reply = self.check_status(reply)?;
        let mut upload = self.location(&uploads, &reply)?;
        let sign = if upload.path.contains('?') { '&' } else { '?' };
        upload.path.push_str(&format!("{sign}digest={digest}"));
        let put = RegistryRequest {
            headers: &[(header::CONTENT_TYPE, "application/octet-stream")],
            body: Bytes::copy_from_slice(content),
            ..RegistryRequest::new(Method::PUT)
        };
        let reply = self.exchange(upload, &put).await?;
        self.check_status(reply).map(drop)
    }

    /// Stores a manifest under a tag.
    pub(crate) async fn push_manifest(&mut self, tag: &str, text: &[u8]) -> Result<(), BundleError> {
        let manifest = self.endpoint(&format!("manifests/{tag}"));
        let put = RegistryRequest {
            headers: &[(header::CONTENT_TYPE, MANIFEST_TYPE)],
            body: Bytes::copy_from_slice(text),
            ..RegistryRequest::new(Method::PUT)
        };
        let reply = self.exchange(manifest, &put).await?;
        self.check_status(reply).map(drop)
    }

    /// Returns the content at `path` of the repository; `None` if there is none.
    async fn get(&mut self, path: &str, max_reply_bytes: usize) -> Result<Option<Bytes>, BundleError> {
        let accepted = format!("{MANIFEST_TYPE}, {INDEX_TYPE}, application/octet-stream");
        let request = RegistryRequest {
            headers: &[(header::ACCEPT, &accepted)],
            max_reply_bytes,
            ..RegistryRequest::new(Method::GET)
        };
        let reply = self.exchange(self.endpoint(path), &request).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => self.check_status(reply).map(|reply| Some(reply.body)),
        }
    }

    /// Sends `request` with the authorization that the registry asks for, and follows its
    /// redirects.
    async fn exchange(
        &mut self,
        mut endpoint: RegistryEndpoint,
        request: &RegistryRequest<'_>,
    ) -> Result<RegistryReply, BundleError> {
        let (mut is_elsewhere, mut was_asked, mut redirects) = (false, false, 0);
        loop {
            is_elsewhere |= !self.is_own(&endpoint);
            let authorization = self.authorization.as_ref().filter(|_| !is_elsewhere);
            let reply = self.send(&endpoint, request, authorization).await?;
            let is_redirect = reply.status.is_redirection() && reply.headers.contains_key(header::LOCATION);
            if reply.status == StatusCode::UNAUTHORIZED && !is_elsewhere && !was_asked {
                was_asked = true;
                self.authorize(&reply.headers).await?;
            } else if is_redirect && request.method == Method::GET {
                redirects += 1;
                if redirects > MAX_REDIRECTS {
                    return Err(self.error(format_args!("redirects more than {MAX_REDIRECTS} times")));
                }
                endpoint = self.location(&endpoint, &reply)?;
            } else {
                return Ok(reply);
            }
        }
    }

    /// Obtains the authorization that a 401 asks for.
    async fn authorize(&mut self, headers: &HeaderMap) -> Result<(), BundleError> {
        let asked = headers.get_all(header::WWW_AUTHENTICATE).into_iter();
        let asked: Vec<&str> = asked.filter_map(|value| value.to_str().ok()).collect();
        if let Some(bearer) = asked.iter().find_map(|asked| challenge(asked, "bearer")) {
            let parameters = parameters(bearer);
            let realm = parameters.get("realm").map(String::as_str).unwrap_or_default();
            let mut endpoint = RegistryEndpoint::parse(realm)
                .ok_or_else(|| self.error("names a token server whose URL does not begin with `https`"))?;
            let actions = match self.access {
                RegistryAccess::Pull => "pull",
                RegistryAccess::Push => "pull,push",
            };
            let mut query = form_urlencoded::Serializer::new(String::new());
            if let Some(service) = parameters.get("service") {
                query.append_pair("service", service);
            }
            query.append_pair(
                "scope",
                &format!("repository:{}:{actions}", self.reference.repository),
            );
            let sign = if endpoint.path.contains('?') { '&' } else { '?' };
            endpoint.path.push_str(&format!("{sign}{}", query.finish()));
            self.authorization = Some(self.token(&endpoint).await?);
            return Ok(());
        }
        let is_basic = asked.iter().any(|asked| challenge(asked, "basic").is_some());
        let Some(credentials) = self.credentials.clone().filter(|_| is_basic) else {
            return Err(self.error(
                "requires credentials: set `credentials` to a file that contains some for \
                it",
            ));
        };
        self.authorization = Some(credentials);
        Ok(())
    }

    async fn token(&self, endpoint: &RegistryEndpoint) -> Result<HeaderValue, BundleError> {
        let request = RegistryRequest::new(Method::GET);
        let reply = self.send(endpoint, &request, self.credentials.as_ref()).await?;
        let reply = self.check_status(reply)?;
        let token: Option<TokenReply> = serde_json::from_slice(&reply.body).ok();
        let token = token.and_then(|reply| reply.token.or(reply.access_token));
        let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut header =
            header.ok_or_else(|| self.error("has a token server whose response contains no token"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Sends `request` to `endpoint` on a new connection.
    async fn send(
        &self,
        endpoint: &RegistryEndpoint,
        request: &RegistryRequest<'_>,
        authorization: Option<&HeaderValue>,
    ) -> Result<RegistryReply, BundleError> {
        let failed = |error: &dyn ToString| {
            let RegistryEndpoint { authority, .. } = endpoint;
            BundleError::Registry(format!("`{authority}`: {}", error.to_string()))
        };
        let max_reply_bytes = request.max_reply_bytes;
        let settings = self.settings(endpoint).map_err(|error| failed(&error))?;
        let connector = Connector::new(&settings).map_err(|error| failed(&error))?;
        let _allowed = connector.allow(max_reply_bytes);
        let connection = connector.connect().await.map_err(|error| match error {
            CallError::OnThisHost(address) => failed(&format!(
                "`{address}` is loopback or link-local, which only the reference itself may name"
            )),
            CallError::Resolve { reason, .. } => failed(&format!("it has no address: {reason}")),
            error => failed(&error),
        })?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_BUFFER_BYTES);
        let (mut sender, driver) = builder
            .handshake(connection)
            .await
            .map_err(|error| failed(&error))?;
        // It ends when the sender is dropped.
        drop(tokio::spawn(driver));
        let request = request
            .to(endpoint, authorization)
            .map_err(|error| failed(&error))?;
        let reply = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let (head, mut incoming) = reply.into_parts();
        let mut body = Vec::new();
        while head.status.is_success()
            && let Some(frame) = incoming.frame().await
        {
            let data = frame
                .map_err(|error| failed(&error))?
                .into_data()
                .unwrap_or_default();
            if body.len() + data.len() > max_reply_bytes {
                return Err(failed(&format!(
                    "its reply has more than {max_reply_bytes} bytes"
                )));
            }
            body.extend_from_slice(&data);
        }
        Ok(RegistryReply {
            status: head.status,
            headers: head.headers,
            body: body.into(),
        })
    }

    fn settings(
        &self,
        endpoint: &RegistryEndpoint,
    ) -> Result<Settings, crate::webhooks::client::SettingsError> {
        Ok(Settings {
            url: Url::parse(&format!("https://{}/", endpoint.authority))?,
            server_name: None,
            authorities: self.authorities.clone(),
            identity: None,
            addresses: Arc::clone(&self.addresses),
            is_http2: false,
            tenant: None,
            user_agent: USER_AGENT.to_owned(),
            via: String::new(),
        })
    }

    fn endpoint(&self, path: &str) -> RegistryEndpoint {
        RegistryEndpoint {
            authority: with_port(&self.reference.registry),
            path: format!("/v2/{}/{path}", self.reference.repository),
        }
    }

    fn is_own(&self, endpoint: &RegistryEndpoint) -> bool {
        endpoint.authority == with_port(&self.reference.registry)
    }

    /// The destination to which `reply` of `endpoint` redirects.
    fn location(
        &self,
        endpoint: &RegistryEndpoint,
        reply: &RegistryReply,
    ) -> Result<RegistryEndpoint, BundleError> {
        let location = reply.headers.get(header::LOCATION);
        let location = location.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let found = match location.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => Some(RegistryEndpoint {
                path: location.to_owned(),
                ..endpoint.clone()
            }),
            _ => RegistryEndpoint::parse(location),
        };
        found.ok_or_else(|| self.error("redirects to an address that does not begin with `https`"))
    }

    fn check_status(&self, reply: RegistryReply) -> Result<RegistryReply, BundleError> {
        match reply.status {
            status if status.is_success() => Ok(reply),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.error(format_args!(
                "refuses access to `{}` (status {}): check the credentials",
                self.reference.repository,
                reply.status.as_u16()
            ))),
            status => Err(self.error(format_args!("answered with status {}", status.as_u16()))),
        }
    }

    fn error(&self, what: impl std::fmt::Display) -> BundleError {
        BundleError::Registry(format!("the registry `{}` {what}", self.reference.registry))
    }
}

/// Of the descriptors that are `wanted` and small enough, the last ones, starting with the newest.
fn newest(all: Vec<Descriptor>, wanted: impl Fn(&Descriptor) -> bool) -> impl Iterator<Item = Descriptor> {
    let fits = move |one: &Descriptor| one.size <= MAX_SIGNATURE_BYTES && wanted(one);
    all.into_iter().rev().filter(fits).take(MAX_SIGNATURES)
}

fn digest_mismatch(digest: &str) -> BundleError {
    BundleError::Registry(format!(
        "the content that the registry sent for `{digest}` has another digest"
    ))
}

/// Adds the default port unless there is a port.
fn with_port(registry: &str) -> String {
    let has_port = registry
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let port = if has_port { "" } else { ":443" };
    format!("{registry}{port}")
}

/// The addresses that may be dialled for a registry: its own address if the reference is one, only
/// loopback addresses for `localhost`, and otherwise neither loopback nor link-local addresses.
fn addresses(registry: &str) -> Addresses {
    let named = with_port(registry);
    let fixed = named.parse().ok().map(|address| (named.clone(), address));
    let loopback = || {
        let networks = [
            (IpAddr::from(Ipv4Addr::LOCALHOST), 8),
            (Ipv6Addr::LOCALHOST.into(), 128),
        ];
        networks
            .map(|(ip, length)| IpNet::new_assert(ip, length).trunc())
            .to_vec()
    };
    Addresses {
        fixed: fixed.into_iter().collect(),
        allowed: named.starts_with("localhost:").then(loopback),
        is_guarded: true,
        ..Addresses::default()
    }
}

// === impl RegistryRequest ===

impl RegistryRequest<'_> {
    fn new(method: Method) -> Self {
        Self {
            method,
            headers: &[],
            body: Bytes::new(),
            max_reply_bytes: MAX_DOCUMENT_BYTES,
        }
    }

    fn to(
        &self,
        endpoint: &RegistryEndpoint,
        authorization: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&endpoint.path)
            .header(header::HOST, &endpoint.authority)
            .header(header::USER_AGENT, USER_AGENT);
        for (name, value) in self.headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Full::new(self.body.clone()))
    }
}

// === impl RegistryEndpoint ===

impl RegistryEndpoint {
    /// Parses an `https` URL without a user.
    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        (!authority.as_str().contains('@')).then(|| Self {
            authority: with_port(&authority.as_str().to_ascii_lowercase()),
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_followed_and_ports_are_compared() {
        let endpoint = RegistryEndpoint::parse("https://Storage.example.com/a?b=c").unwrap();
        assert_eq!(
            (endpoint.authority.as_str(), endpoint.path.as_str()),
            ("storage.example.com:443", "/a?b=c")
        );
        for url in ["http://a/", "https://u:p@a/", "ftp://a", "a/b", "", "https:///a"] {
            assert_eq!(RegistryEndpoint::parse(url), None, "{url}");
        }
        assert_eq!(with_port("[::1]"), "[::1]:443");
        assert_eq!(with_port("[::1]:5000"), "[::1]:5000");
    }

    #[test]
    fn what_a_registry_names_is_dialled_on_this_machine_only_if_it_is_there_itself() {
        let dialled = |registry: &str, (host, port): (&str, u16)| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(addresses(registry).resolve(host, port)).is_ok()
        };
        for (registry, endpoint, expected) in [
            ("registry.example.com", ("192.0.2.1", 443), true),
            ("registry.example.com", ("127.0.0.1", 443), false),
            ("registry.example.com", ("169.254.169.254", 80), false),
            ("registry.example.com", ("::1", 443), false),
            ("192.0.2.1:5000", ("127.0.0.1", 5000), false),
            ("127.0.0.1:5000", ("127.0.0.1", 5000), true),
            ("127.0.0.1:5000", ("127.0.0.1", 5001), false),
            ("169.254.1.1:5000", ("169.254.1.1", 5000), true),
            ("[::1]:5000", ("::1", 5000), true),
            ("localhost:5000", ("127.0.0.1", 5001), true),
            ("localhost:5000", ("169.254.169.254", 443), false),
        ] {
            assert_eq!(dialled(registry, endpoint), expected, "{registry} {endpoint:?}");
        }
    }
}
