//! What the fuzz targets drive that is no part of the crate's interface.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use actix_http::Request;
use actix_http::body::BoxBody;
use actix_service::boxed::{self, BoxService};
use actix_service::{IntoServiceFactory as _, ServiceFactory as _, map_config};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::web::{self, Bytes};
use actix_web::{App, Error, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, HEAD};
use super::connections::Connections;
use super::http2;
use crate::config::ConnectionLimits;

const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 10,
    per_address: 10,
    unauthenticated: Duration::MAX,
};

/// The length of the answer that a window of HTTP/2 does not hold.
const LARGE: usize = 300_000;

/// The driver of HTTP/2 connections, before routes that send each body back and
/// answer `/large` with more than a window.
pub struct Http2(BoxService<Request, ServiceResponse<BoxBody>, Error>);

// === impl Http2 ===

impl Http2 {
    /// The driver and its routes.
    ///
    /// # Panics
    /// Where actix cannot make the routes.
    #[expect(clippy::expect_used, reason = "of fuzz targets alone")]
    pub async fn new() -> Self {
        let app = App::new()
            .route(
                "/large",
                web::route().to(|| async { HttpResponse::Ok().body(vec![0; LARGE]) }),
            )
            .default_service(web::to(|body: Bytes| async { HttpResponse::Ok().body(body) }))
            .into_factory();
        let app = map_config(app, |()| AppConfig::default()).new_service(()).await;
        Self(boxed::service(app.map_err(drop).expect("the routes")))
    }

    /// Serves the connection `io` of a stranger, or of a `proven` caller, to its end.
    ///
    /// # Panics
    /// On a fault of the driver.
    #[expect(clippy::expect_used, reason = "of fuzz targets alone")]
    pub async fn serve(&self, io: impl AsyncRead + AsyncWrite + Unpin, proven: bool) {
        let address = IpAddr::from([127, 0, 0, 1]);
        let tracked = Connections::new(None)
            .add(address, LIMITS)
            .expect("the first of them");
        tracked.handshake_done(proven);
        let connection = Connection::new(tracked, SocketAddr::new(address, 1), None, HEAD);
        http2::serve(io, connection, &self.0, http2::Timeouts::default()).await;
    }
}
