//! The transport of WebDriver: the tests' own HTTP client, so that the driver of Chromium
//! brings no other HTTP and TLS stack along.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use thirtyfour::error::{WebDriverError, WebDriverResult};
use thirtyfour::session::http::{Body, HttpClient};

use crate::harness::client::Client;

/// Sends commands to a chromedriver, each on a connection of its own.
pub(crate) struct Transport(pub(crate) Client);

#[async_trait::async_trait]
impl HttpClient for Transport {
    /// Blocks: each browser has a thread and a runtime to itself.
    async fn send(&self, request: Request<Body<'_>>) -> WebDriverResult<Response<Bytes>> {
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let body = match request.body() {
            Body::Empty => None,
            Body::Json(value) => Some(value.to_string()),
        };
        let failed = |error: &dyn std::fmt::Display| WebDriverError::RequestFailed(error.to_string());
        let answer = self
            .0
            .send(
                request.method().as_str(),
                target,
                body.as_deref().map(str::as_bytes),
            )
            .map_err(|error| failed(&error))?;
        Response::builder()
            .status(answer.status)
            .body(Bytes::from(answer.body))
            .map_err(|error| failed(&error))
    }

    async fn new(&self) -> Arc<dyn HttpClient> {
        Arc::new(Self(self.0.clone()))
    }
}
