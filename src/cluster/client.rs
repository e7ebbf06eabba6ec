//! Clients of API servers, and limits on their connections.
//!
//! Over HTTP/2, all watches of an API server share one connection. Over HTTP/1.1, each watch needs
//! its own. The author of an entry in `clusters`, who may be a tenant, chooses the API server and
//! so its protocol. Therefore the connections are limited for each cluster and for all together.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, Write};
use hyper_openssl::client::legacy::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{ConnectConfiguration, SslVerifyMode};
use openssl::x509::X509;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509CheckFlags;
use tower_service::Service;

use super::bounded::{BoundedService, BoxError, NegotiatedProtocol};
use crate::config::kubeconfig::client::{ClientUser, Context, KeyPair};
use crate::config::limits::Descriptors;
use crate::config::{FileScope, Files, Secret};
use crate::webhooks::client::{
    ClientAuthorization, ClientIdentity, ReadAllowance, SettingsError, TlsClient, TlsConnection, trust_system,
};

/// How long a connection may be silent. This closes no working connection: a watch over HTTP/1.1
/// ends earlier, and over HTTP/2 the API server answers pings.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The timeout of connecting, including the TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an HTTP/2 connection may be silent before a PING is sent, and the timeout of the reply,
/// as in `apimachinery/pkg/util/net/http.go`.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

/// The flow control windows of HTTP/2 in bytes: how much of one response, and of all responses on a
/// connection, may arrive before it is read.
const WINDOWS: (u32, u32) = (512 << 10, 1 << 20);

/// The protocols that commands offer in the TLS handshake (ALPN).
const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// `server` is not a URL.
    #[error("`server`: {0}")]
    Server(String),
    /// The CA certificates are invalid, or there are none.
    #[error("`certificate-authority` contains no certificate in PEM, or an invalid one")]
    Authority,
    /// The client certificate is invalid, or there is none.
    #[error("`client-certificate` contains no certificate in PEM, or an invalid one")]
    Certificate,
    /// The client key is invalid, or is not the key of the certificate.
    #[error("`client-key`: {0}")]
    Key(&'static str),
    /// The token file contains no valid token.
    #[error(
        "`tokenFile`: `{0}` is empty, or has characters that no HTTP header may have: write the token alone"
    )]
    Token(String),
    /// The token file cannot be read.
    #[error("`tokenFile`: cannot read `{0}`: {1}")]
    TokenFile(String, io::Error),
    /// kube reports an error.
    #[error("{0}")]
    Client(#[from] Box<kube::Error>),
    /// The settings of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] SettingsError),
    /// OpenSSL reports an error.
    #[error(transparent)]
    OpenSsl(#[from] ErrorStack),
}

impl From<kube::Error> for ClientError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// Checks `context`, and returns kube's configuration for it. Environment variables have no effect,
/// neither those of proxies nor those for debugging.
///
/// # Errors
///
/// A part of `context` is invalid.
pub(crate) fn config(context: &Context) -> Result<Config, ClientError> {
    let cluster = &context.cluster;
    let server = cluster
        .server
        .parse()
        .map_err(|error| ClientError::Server(format!("{error}")))?;
    let mut config = Config::new(server);
    config.root_cert = cluster.authorities.as_deref().map(authority).transpose()?;
    config.tls_server_name.clone_from(&cluster.server_name);
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(IDLE_TIMEOUT);
    config.reset_reader_on_write = true;
    if let Some(user) = &context.user {
        config.auth_info = auth_info(user)?;
    }
    Ok(config)
}

/// Creates a client of the watched API server of `context`. Must be called in a runtime.
///
/// If the kubeconfig names a CA, the CAs of the system are not trusted.
///
/// # Errors
///
/// A part of `context` is invalid, or the token file cannot be read.
pub(crate) fn of_context(context: &Context) -> Result<(Client, NegotiatedProtocol), ClientError> {
    let config = config(context)?;
    let identity = context.user.as_ref().and_then(|user| user.certificate.as_ref());
    let identity = identity.map(|pair| ClientIdentity {
        certificate: pair.certificate.clone(),
        key: pair.key.clone(),
    });
    let tls = TlsClient::new(context.cluster.authorities.as_slice(), identity.as_ref(), true)?;
    let connector = ApiServerConnector::new(tls, context.cluster.server_name.as_deref());
    over(connector, &config)
}

/// Creates a client for commands, which connects as kubectl would, also with credentials from
/// `exec` plugins. Must be called in a runtime.
///
/// It differs from kube's own client in three ways: if the kubeconfig names a CA, the CAs of the
/// system are not trusted; the size of responses is bounded; and HTTP/2 is offered.
///
/// # Errors
///
/// The token file cannot be read, or a part of `config` is invalid.
pub(crate) fn client(config: &Config) -> Result<Client, ClientError> {
    let authorities = trusted(config)?;
    let mut tls = config.openssl_ssl_connector_builder()?;
    if authorities.is_empty() {
        trust_system(&mut tls)?;
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut https = HttpsConnector::with_connector(tcp, tls)?;
    let server_name = config.tls_server_name.clone();
    let is_unverified = config.accept_invalid_certs;
    https.set_callback(move |ssl, _| {
        ssl.set_alpn_protos(PROTOCOLS)?;
        if is_unverified {
            ssl.set_verify(SslVerifyMode::NONE);
        }
        if !authorities.is_empty() {
            ssl.set_verify_cert_store(store(&authorities)?)?;
        }
        match &server_name {
            Some(name) => expect(ssl, name),
            None => Ok(()),
        }
    });
    Ok(over(https, config)?.0)
}

/// Creates a client whose connections are opened by `connector`. Also returns the protocol of the
/// API server, which is known after its first response.
fn over<C>(connector: C, config: &Config) -> Result<(Client, NegotiatedProtocol), ClientError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_initial_stream_window_size(WINDOWS.0)
        .http2_initial_connection_window_size(WINDOWS.1)
        .build::<_, Body>(connector);
    let mut config = config.clone();
    let authorization = token_file(&mut config.auth_info)?;
    let bounded = BoundedService::new(http, authorization);
    let protocol = bounded.protocol();
    let builder = ClientBuilder::new(bounded, config.default_namespace.clone());
    let base = config.base_uri_layer();
    let client = match config.auth_layer()? {
        Some(auth) => builder.with_layer(&auth).with_layer(&base).build(),
        None => builder.with_layer(&base).build(),
    };
    Ok((client, protocol))
}

/// Takes the token file out of `auth_info`, and returns the authorization with its token. kube
/// would include the line break at the end of the file, which no header may contain. As in
/// client-go, a token in the kubeconfig itself is used only if the file cannot be read.
fn token_file(auth_info: &mut AuthInfo) -> Result<ClientAuthorization, ClientError> {
    let Some(path) = auth_info.token_file.take().map(PathBuf::from) else {
        return Ok(ClientAuthorization::None);
    };
    match Files::read(&FileScope::Anywhere, &path) {
        Ok(token) => {
            auth_info.token = None;
            let token = Secret::new(token.trim_ascii());
            let authorization = ClientAuthorization::token_file((&path, &FileScope::Anywhere), &token);
            authorization.map_err(|_| ClientError::Token(path.display().to_string()))
        }
        Err(_) if auth_info.token.is_some() => Ok(ClientAuthorization::None),
        Err(error) => Err(ClientError::TokenFile(path.display().to_string(), error)),
    }
}

fn trusted(config: &Config) -> Result<Vec<X509>, ClientError> {
    let certificates = config.root_cert.iter().flatten();
    certificates
        .map(|der| X509::from_der(der).map_err(|_| ClientError::Authority))
        .collect()
}

fn store(authorities: &[X509]) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for authority in authorities {
        store.add_cert(authority.clone())?;
    }
    Ok(store.build())
}

/// Requires that the server's certificate is for `name`, even if the URL has another host.
fn expect(ssl: &mut ConnectConfiguration, name: &str) -> Result<(), ErrorStack> {
    ssl.set_use_server_name_indication(false);
    ssl.set_verify_hostname(false);
    let address = name.parse().ok();
    if address.is_none() {
        ssl.set_hostname(name)?;
    }
    let param = ssl.param_mut();
    param.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
    match address {
        Some(address) => param.set_ip(address),
        None => param.set_host(name),
    }
}

fn authority(pem: &[u8]) -> Result<Vec<Vec<u8>>, ClientError> {
    let certificates = X509::stack_from_pem(pem).map_err(|_| ClientError::Authority)?;
    if certificates.is_empty() {
        return Err(ClientError::Authority);
    }
    let der = certificates.iter().map(|certificate| certificate.to_der());
    der.collect::<Result<_, _>>().map_err(|_| ClientError::Authority)
}

fn auth_info(user: &ClientUser) -> Result<AuthInfo, ClientError> {
    let mut auth_info = AuthInfo::default();
    if let Some(KeyPair { certificate, key }) = &user.certificate {
        fits(certificate, key)?;
    }
    if let Some(bearer) = &user.bearer {
        match &bearer.file {
            // The file is read by `token_file`, and again later, because tokens are renewed.
            Some(file) => auth_info.token_file = Some(file.display().to_string()),
            None => auth_info.token = Some(text(&bearer.token).into()),
        }
    }
    if let Some(basic) = &user.basic {
        auth_info.username = Some(basic.username.clone());
        auth_info.password = Some(text(&basic.password).into());
    }
    Ok(auth_info)
}

fn fits(certificate: &[u8], key: &Secret) -> Result<(), ClientError> {
    let chain = X509::stack_from_pem(certificate).map_err(|_| ClientError::Certificate)?;
    // OpenSSL's message is not used, because it could quote the key.
    let key =
        PKey::private_key_from_pem(key.reveal()).map_err(|_| ClientError::Key("not a private key in PEM"))?;
    let leaf = chain.first().and_then(|leaf| leaf.public_key().ok());
    if leaf.is_some_and(|leaf| leaf.public_eq(&key)) {
        Ok(())
    } else {
        Err(ClientError::Key("not the key of the certificate"))
    }
}

/// The secret as a string.
fn text(secret: &Secret) -> String {
    String::from_utf8_lossy(secret.reveal()).into_owned()
}

/// Opens connections with TLS, even if the scheme of the URL is not `https`.
#[derive(Clone)]
pub(crate) struct ApiServerConnector {
    tcp: HttpConnector,
    tls: Arc<TlsClient>,
    /// The name in the certificate, if it is not the host of the URL.
    server_name: Option<Arc<str>>,
    connections: ClusterConnections,
    /// The read allowance of all HTTP/2 connections together, because the API server can end a
    /// connection (GOAWAY) as often as it likes while the responses on it continue. An HTTP/1.1
    /// connection, which carries one response at a time, has its own allowance.
    allowance: Arc<ReadAllowance>,
}

/// The maximum number of connections to one cluster: one for each kind that can be watched, and a
/// few more.
const MAX_OF_CLUSTER: usize = 128;

/// The number of open connections to all watched API servers.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Counts the connections to one API server. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct ClusterConnections {
    open: Arc<AtomicUsize>,
    all: &'static AtomicUsize,
    max_of_all: usize,
}

/// The permit for one connection, which counts until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(ClusterConnections);

/// The maximum number of connections is reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooManyConnections {
    /// The maximum for one cluster.
    #[error("{MAX_OF_CLUSTER} connections to it are already open, the maximum for one cluster")]
    OfCluster,
    /// The maximum for all clusters; the field is the number of open connections.
    #[error(
        "{0} connections to API servers are open already: this one uses HTTP/1.1, so each watch needs a \
        connection; enable HTTP/2 on it, or raise the limit of open files"
    )]
    OfAll(usize),
}

// === impl ApiServerConnector ===

impl ApiServerConnector {
    pub(crate) fn new(tls: TlsClient, server_name: Option<&str>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            tcp,
            tls: Arc::new(tls),
            server_name: server_name.map(Arc::from),
            connections: ClusterConnections::new(),
            allowance: ReadAllowance::for_streams(),
        }
    }
}

impl Service<Uri> for ApiServerConnector {
    type Response = TlsConnection;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TlsConnection, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let name = self.server_name.clone().unwrap_or_else(|| host(&url).into());
        let tls = Arc::clone(&self.tls);
        let place = self.connections.open();
        let of_http2 = Arc::clone(&self.allowance);
        let dialling = self.tcp.call(url);
        Box::pin(async move {
            let place = place?;
            let stream = dialling.await?.into_inner();
            let connection = tls.connect(stream, &name).await?.holding(place);
            let allowance = match connection.is_http2() {
                true => of_http2,
                false => ReadAllowance::for_streams(),
            };
            Ok(connection.allowed(allowance))
        })
    }
}

/// The host of `url`; an IPv6 address is returned without brackets.
fn host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner
        .filter(|inner| inner.parse::<IpAddr>().is_ok())
        .unwrap_or(host)
}

// === impl ClusterConnections ===

impl ClusterConnections {
    pub(crate) fn new() -> Self {
        Self {
            open: Arc::default(),
            all: &OPEN,
            max_of_all: Descriptors::of_process().watches,
        }
    }

    /// Takes a permit for a connection. The first connection of a cluster may use all of the
    /// process's limit. Further ones may use only half of it, so that clusters without a connection
    /// can open one.
    pub(crate) fn open(&self) -> Result<ConnectionPlace, TooManyConnections> {
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let max = if before == 0 {
            self.max_of_all
        } else {
            self.max_of_all / 2
        };
        let all = self.all.fetch_add(1, Ordering::AcqRel);
        // Dropped, and so released, if a maximum is reached.
        let place = ConnectionPlace(self.clone());
        if before >= MAX_OF_CLUSTER {
            return Err(TooManyConnections::OfCluster);
        }
        if all >= max {
            return Err(TooManyConnections::OfAll(all));
        }
        Ok(place)
    }
}

// === impl ConnectionPlace ===

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
