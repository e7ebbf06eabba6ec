//! A client of one API server, and new connections to it; how many there may be. One that speaks HTTP/2
//! takes one, since all its watches share it; of any other each watch takes one, and who writes an entry
//! of `clusters` decides which it is.

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

/// A connection may be silent for this long. A watch over HTTP/1.1 ends before; over HTTP/2 pings
/// are answered.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(10);

/// After so long a silence a connection is asked whether it is there, and so long it may take
/// to answer; as `apimachinery/pkg/util/net/http.go` has them.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

/// How much of one answer, and of all over one connection, comes over HTTP/2 before it is taken.
const WINDOWS: (u32, u32) = (512 << 10, 1 << 20);

/// What commands offer to an API server.
const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The server is no address.
    #[error("`server`: {0}")]
    Server(String),
    /// What signs the server's certificate is none.
    #[error("`certificate-authority` contains no certificate in PEM, or an invalid one")]
    Authority,
    /// The certificate is none.
    #[error("`client-certificate` contains no certificate in PEM, or an invalid one")]
    Certificate,
    /// The key is none, or not the certificate's.
    #[error("`client-key`: {0}")]
    Key(&'static str),
    /// A token's file holds none.
    #[error(
        "`tokenFile`: `{0}` is empty, or has characters that no HTTP header may have: write the token alone"
    )]
    Token(String),
    /// A token's file cannot be read.
    #[error("`tokenFile`: cannot read `{0}`: {1}")]
    TokenFile(String, io::Error),
    /// Whatever else.
    #[error("{0}")]
    Client(#[from] Box<kube::Error>),
    /// What TLS is to be made with.
    #[error(transparent)]
    Tls(#[from] SettingsError),
    /// OpenSSL refused.
    #[error(transparent)]
    OpenSsl(#[from] ErrorStack),
}

impl From<kube::Error> for ClientError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// How to be a client, with everything in `context` checked.
///
/// Nothing of the environment counts, neither a proxy nor a debugging aid.
///
/// # Errors
///
/// What in `context` cannot be used.
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

/// A client of an API server that is watched, as `context` says. Needs a runtime around it.
///
/// Where the kubeconfig names an authority, no other is trusted, not those of the system either.
///
/// # Errors
///
/// What in `context` cannot be used, or a token's file that cannot be read.
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

/// A client as kubectl would have it, with what programs gave for credentials. Needs a runtime
/// around it.
///
/// As kube's own, but for three things: where the kubeconfig names an authority, no
/// other is trusted, not those of the system either; no answer is read without bound;
/// and HTTP/2 is offered.
///
/// # Errors
///
/// A token's file cannot be read.
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

/// A client whose connections `connector` makes.
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

/// What the token's file of `auth_info` gives, which is taken out of it: kube would send the line break at the
/// end of the file, with which no request can be made. As for client-go, a token that is written in
/// the kubeconfig counts only where the file cannot be read.
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

/// Has the server's certificate be that of `name`, whatever the URL says.
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
            // The issuer of tokens writes it again: see `token_file`.
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
    // What OpenSSL says of a key could quote it.
    let key =
        PKey::private_key_from_pem(key.reveal()).map_err(|_| ClientError::Key("not a private key in PEM"))?;
    let leaf = chain.first().and_then(|leaf| leaf.public_key().ok());
    if leaf.is_some_and(|leaf| leaf.public_eq(&key)) {
        Ok(())
    } else {
        Err(ClientError::Key("not the key of the certificate"))
    }
}

/// A secret that was read from text.
fn text(secret: &Secret) -> String {
    String::from_utf8_lossy(secret.reveal()).into_owned()
}

/// Connects over TLS, whatever the scheme of the URL.
#[derive(Clone)]
pub(crate) struct ApiServerConnector {
    tcp: HttpConnector,
    tls: Arc<TlsClient>,
    /// The name in the certificate, where it is not the host of the URL.
    server_name: Option<Arc<str>>,
    connections: ClusterConnections,
    /// Of all connections over HTTP/2: the API server ends one, and has the answers begun on it go on, as
    /// often as it wants. Over HTTP/1.1 each has its own, and one answer.
    allowance: Arc<ReadAllowance>,
}

/// The most connections of one cluster: one for each kind that can be watched, and a few.
const MAX_OF_CLUSTER: usize = 128;

/// The connections to all API servers that are watched.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The connections to one API server. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct ClusterConnections {
    open: Arc<AtomicUsize>,
    all: &'static AtomicUsize,
    max_of_all: usize,
}

/// A connection that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(ClusterConnections);

/// There are as many connections as may be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooManyConnections {
    /// Of the cluster.
    #[error("{MAX_OF_CLUSTER} connections to it are already open, the maximum for one cluster")]
    OfCluster,
    /// Of all clusters.
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

/// An address of IPv6 without its brackets.
fn host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner
        .filter(|inner| inner.parse::<IpAddr>().is_ok())
        .unwrap_or(host)
}

// === impl ClusterConnections ===

impl ClusterConnections {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            open: Arc::default(),
            all: &OPEN,
            max_of_all: Descriptors::of_process().watches,
        }
    }

    /// A place for one more. The first of a cluster may take any; each further one leaves half of
    /// them to clusters that have none.
    pub(crate) fn open(&self) -> Result<ConnectionPlace, TooManyConnections> {
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let max = if before == 0 {
            self.max_of_all
        } else {
            self.max_of_all / 2
        };
        let all = self.all.fetch_add(1, Ordering::AcqRel);
        // Given back at once where there is no room.
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
