//! New connections to one API server that is watched.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

use crate::cluster::bounded::BoxError;
use crate::upstream::client::{TlsClient, TlsConnection};

/// Connects over TLS, whatever the scheme of the URL.
#[derive(Clone)]
pub(crate) struct ApiServerConnector {
    tcp: HttpConnector,
    tls: Arc<TlsClient>,
    /// The name in the certificate, where it is not the host of the URL.
    server_name: Option<Arc<str>>,
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
        }
    }
}

impl Service<Uri> for ApiServerConnector {
    type Response = TlsConnection;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TlsConnection, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let name = self.server_name.clone().unwrap_or_else(|| host(&url).into());
        let tls = Arc::clone(&self.tls);
        let dialling = self.tcp.call(url);
        Box::pin(async move {
            let stream = dialling.await?.into_inner();
            Ok(tls.connect(stream, &name).await?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_a_certificate_must_have_is_the_host() {
        for (url, expected) in [
            ("https://api.example.com:6443/c/1", "api.example.com"),
            ("https://[2001:db8::1]:6443", "2001:db8::1"),
            ("https://10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(host(&Uri::from_static(url)), expected);
        }
    }
}
