//! Webhooks for the gateway to call, in the test's own process.
//!
//! ```text
//! gateway ──TLS──▶ server ─▶ route by path ─▶ Called ─▶ behaviour ─▶ Answer
//!                                               │                      └─ a review, or a fault
//!                                               └─▶ calls(): what came, for the test to look at
//! ```

mod answer;
mod server;

#[allow(unused_imports, reason = "each test program uses its own part of the harness")]
pub(crate) use answer::{Answer, Review};

use super::pki::{Authority, Identity};
use super::ports;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What a webhook does with a call.
type Behaviour = Arc<dyn Fn(&Called) -> Answer + Send + Sync>;

/// Webhooks on one address, each at a path of its own.
pub(crate) struct Webhooks {
    address: SocketAddr,
    authority: Vec<u8>,
    calls: Arc<Mutex<Vec<Called>>>,
    /// Whether answers are held back.
    held: watch::Sender<bool>,
    /// Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

/// Webhooks to be started.
pub(crate) struct Builder {
    identity: Identity,
    authority: Vec<u8>,
    client_authority: Option<Vec<u8>>,
    http2: bool,
    routes: Vec<(String, Behaviour)>,
    /// At any other path.
    otherwise: Option<Behaviour>,
}

/// One call of a webhook.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    /// The path, without query.
    pub(crate) path: String,
    /// What stands after the `?`.
    pub(crate) query: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The review.
    pub(crate) body: Value,
    /// Which of the server's connections it came on, from 0.
    pub(crate) connection: usize,
    /// What the connection is like.
    pub(crate) tls: Tls,
}

/// What a handshake came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    /// The server name asked for.
    pub(crate) server_name: Option<String>,
    /// The protocol agreed on by ALPN.
    pub(crate) protocol: Option<String>,
    /// The common name of the caller's certificate.
    pub(crate) client: Option<String>,
}

impl Webhooks {
    /// A server that the authority vouches for under these names, beside
    /// `localhost` and `127.0.0.1`.
    pub(crate) fn of(authority: &Authority, names: &[&str]) -> Builder {
        Self::with(authority, authority.server_named(names))
    }

    /// A server that shows this certificate, whatever the authority says of it.
    pub(crate) fn with(authority: &Authority, identity: Identity) -> Builder {
        Builder {
            identity,
            authority: authority.pem(),
            client_authority: None,
            http2: false,
            routes: Vec::new(),
            otherwise: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the webhook at this path, on `127.0.0.1`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// `clientConfig` that leads to the webhook at this path, on `127.0.0.1`.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": self.url(path), "caBundle": self.ca_bundle()})
    }

    /// `caBundle` of the authority that signed for the server.
    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.authority)
    }

    /// Holds answers back from now on.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets them go.
    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// The authority that signed for the server, as PEM.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// Every call so far, in the order in which their bodies were read.
    pub(crate) fn calls(&self) -> Vec<Called> {
        lock(&self.calls).clone()
    }

    /// The calls of the webhook at this path.
    pub(crate) fn calls_at(&self, path: &str) -> Vec<Called> {
        let mut calls = self.calls();
        calls.retain(|call| call.path == path);
        calls
    }

    /// Takes the calls that are wanted out of those so far.
    pub(crate) fn take(&self, is_wanted: impl Fn(&Called) -> bool) -> Vec<Called> {
        lock(&self.calls).extract_if(.., |call| is_wanted(call)).collect()
    }
}

impl Builder {
    /// A webhook at every path that has none of its own.
    pub(crate) fn otherwise(self, behaviour: impl Fn(&Called) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            otherwise: Some(Arc::new(behaviour)),
            ..self
        }
    }

    /// A webhook at this path. Paths without one answer 404.
    pub(crate) fn on(
        mut self,
        path: &str,
        behaviour: impl Fn(&Called) -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.routes.push((path.to_owned(), Arc::new(behaviour)));
        self
    }

    /// A webhook that answers every call alike.
    pub(crate) fn always(self, path: &str, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.on(path, move |_| answer.clone())
    }

    /// Asks callers for a certificate, and takes those of this authority, or none.
    pub(crate) fn client_authority(self, authority: &Authority) -> Self {
        Self {
            client_authority: Some(authority.pem()),
            ..self
        }
    }

    /// Prefers HTTP/2 where the caller offers it.
    pub(crate) fn http2(self) -> Self {
        Self { http2: true, ..self }
    }

    /// Serves on a free port.
    pub(crate) fn start(self) -> Webhooks {
        self.start_at(ports::free())
    }

    /// Serves on this address.
    pub(crate) fn start_at(self, address: SocketAddr) -> Webhooks {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let authority = self.authority.clone();
        let held = watch::Sender::new(false);
        let runtime = server::start(self, address, Arc::clone(&calls), held.subscribe());
        Webhooks {
            address,
            authority,
            calls,
            held,
            _runtime: runtime,
        }
    }
}

impl Called {
    /// The request of the review; its spec in v1alpha1.
    pub(crate) fn request(&self) -> &Value {
        match &self.body["request"] {
            Value::Null => &self.body["spec"],
            request => request,
        }
    }

    /// The object that it is about.
    pub(crate) fn object(&self) -> &Value {
        &self.request()["object"]
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
