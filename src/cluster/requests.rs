//! Requests to an API server. The caller bounds the size of each response, or of each object in it.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use openssl::error::ErrorStack;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::split::{Envelope, Part, SplitError, Splitter};
use crate::webhooks::client::ClientHandshakeError;
use portcullis_policy::model::cut;

/// The maximum size of the body of an error response, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The maximum length of a message that quotes a response, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

/// The timeout of a response that is read as a whole, and of the head of one that is split, even if
/// data keeps arriving. The largest responses take seconds.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);

/// Sends requests to one API server.
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: Client,
    /// [`MAX_ANSWER_TIME`]; shorter in tests.
    max_answer_time: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiRequest<'r> {
    pub(crate) method: &'r Method,
    /// The path with the query.
    pub(crate) path: &'r str,
    /// Name and value of a header: `Accept` or, for a request with a body, `Content-Type`.
    pub(crate) content: (&'static str, &'r str),
    pub(crate) body: &'r [u8],
}

/// Why a request has no usable response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The API server, or a proxy in front of it, responds with a status other than 2xx, or ends a
    /// watch with an `ERROR` event.
    #[error("{}", .0.message)]
    Refused(Box<ErrorResponse>),
    /// The response is larger than the caller allows.
    #[error("the response of the API server has more than {0} bytes")]
    TooLarge(usize),
    /// The response is not what the request is for, such as HTML instead of a list.
    #[error("the response is not valid for an API server: {0}")]
    Unexpected(String),
    /// The response cannot be split into objects.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The response, described by the first field, did not end within so many seconds.
    #[error("{0} did not end within {1} s")]
    TooLong(&'static str, u64),
    /// There is no response, or it broke off.
    #[error("{}", in_words(&**.0))]
    Unreachable(#[source] Box<kube::Error>),
}

/// A response with a status other than 2xx, or the `Status` of an `ERROR` event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    pub(crate) code: u16,
    pub(crate) message: String,
    /// A new continue token, if that of the request has expired (410): it continues the list at
    /// another resource version.
    pub(crate) next: Option<String>,
}

/// The fields of `metav1.Status` that are used.
#[derive(Default, Deserialize)]
struct ApiStatus {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    metadata: WrittenListMeta,
}

#[derive(Default, Deserialize)]
struct WrittenListMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// A response that is split into objects while it is read.
pub(crate) struct SplitAnswer {
    body: Body,
    splitter: Splitter,
    unread: Bytes,
}

// === impl ApiServer ===

impl ApiServer {
    pub(crate) const fn new(client: Client) -> Self {
        Self {
            client,
            max_answer_time: MAX_ANSWER_TIME,
        }
    }

    /// Gets the JSON value at `path`, of at most `max_bytes`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: &str,
        max_bytes: usize,
    ) -> Result<T, ApiError> {
        let answer = self.ask(&ApiRequest::get(path, accept), max_bytes).await?;
        serde_json::from_slice(&answer).map_err(|error| ApiError::unexpected(path, &error))
    }

    /// Sends `request`, and returns the whole body of the response, of at most `max_bytes`.
    pub(crate) async fn ask(&self, request: &ApiRequest<'_>, max_bytes: usize) -> Result<Bytes, ApiError> {
        let collected = async { collect(self.begin(request).await?, max_bytes).await };
        self.in_time(collected).await
    }

    /// Requests the list or watch at `path`. Of an object with more than `max_object_bytes`, only
    /// the head is read.
    pub(crate) async fn split(
        &self,
        path: &str,
        envelope: Envelope,
        max_object_bytes: usize,
    ) -> Result<SplitAnswer, ApiError> {
        let body = self.in_time(self.begin(&ApiRequest::get(path, JSON))).await?;
        Ok(SplitAnswer {
            body,
            splitter: Splitter::new(envelope, max_object_bytes),
            unread: Bytes::new(),
        })
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let answered = timeout(self.max_answer_time, answer).await;
        answered.map_err(|_| ApiError::TooLong("the answer", self.max_answer_time.as_secs()))?
    }

    async fn begin(&self, request: &ApiRequest<'_>) -> Result<Body, ApiError> {
        let (header, value) = request.content;
        let built = Request::builder()
            .method(request.method)
            .uri(request.path)
            .header(header, value)
            .body(Body::from(request.body.to_vec()));
        let built = built.map_err(kube::Error::HttpError)?;
        let answer = self.client.send(built).await?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        Err(ApiError::Refused(Box::new(ErrorResponse::read(answer).await?)))
    }
}

/// The value of `Accept` for JSON.
pub(crate) const JSON: &str = "application/json";

// === impl ApiRequest ===

impl<'r> ApiRequest<'r> {
    pub(crate) const fn get(path: &'r str, accept: &'r str) -> Self {
        Self {
            method: &Method::GET,
            path,
            content: ("Accept", accept),
            body: &[],
        }
    }
}

async fn collect(mut body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    let mut collected = Vec::new();
    while let Some(data) = next_data(&mut body).await? {
        if collected.len() + data.len() > max_bytes {
            return Err(ApiError::TooLarge(max_bytes));
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.into())
}

/// The next data of a body, without trailers; `None` at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, kube::Error> {
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

// === impl ApiError ===

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        Self::Unreachable(Box::new(error))
    }
}

impl ApiError {
    pub(crate) fn unexpected(what: &str, why: impl Display) -> Self {
        Self::Unexpected(cut(format!("{what}: {why}"), MAX_MESSAGE_BYTES))
    }

    /// Whether the API server could be reached: it responded, or its response took too long.
    pub(crate) const fn is_answer(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }

    /// Whether the response has the status `code`.
    pub(crate) fn is(&self, code: u16) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }
}

// === impl ErrorResponse ===

impl ErrorResponse {
    async fn read(answer: Response<Body>) -> Result<Self, ApiError> {
        let status = answer.status();
        let text = match collect(answer.into_body(), MAX_REFUSAL_BYTES).await {
            Err(ApiError::TooLarge(_)) => Bytes::new(),
            text => text?,
        };
        Ok(Self::of(status, &text))
    }

    fn of(status: http::StatusCode, text: &[u8]) -> Self {
        let written: ApiStatus = serde_json::from_slice(text).unwrap_or_default();
        let message = match written.message.as_str() {
            "" => format!("the response is {status}, without a reason"),
            _ => written.message,
        };
        Self {
            code: status.as_u16(),
            message: cut(message, MAX_MESSAGE_BYTES),
            next: written.metadata.next.filter(|next| !next.is_empty()),
        }
    }

    /// Reads the `Status` in a watch event of type `ERROR`; `None` if `text` is not one.
    pub(crate) fn of_event(text: &[u8]) -> Option<Self> {
        let written: ApiStatus = serde_json::from_slice(text).ok()?;
        Some(Self {
            code: written.code,
            message: cut(written.message, MAX_MESSAGE_BYTES),
            next: None,
        })
    }

    /// Whether a watch cannot resume at its resource version, because the API server does not have
    /// that version any more, or not yet, or no longer serves the kind.
    pub(crate) fn ends_watch(&self) -> bool {
        matches!(self.code, 404 | 410) || self.message.contains("Too large resource version")
    }
}

// === impl SplitAnswer ===

impl SplitAnswer {
    /// The next part; `None` if the response has ended, and not within a document.
    pub(crate) async fn next(&mut self) -> Result<Option<Part>, ApiError> {
        loop {
            let mut unread = &*self.unread;
            let part = self.splitter.next(&mut unread)?;
            let taken = self.unread.len() - unread.len();
            self.unread = self.unread.slice(taken..);
            if part.is_some() {
                return Ok(part);
            }
            match next_data(&mut self.body).await? {
                Some(data) => self.unread = data,
                None if self.splitter.is_within() => {
                    return Err(ApiError::unexpected("an answer", "it ends too early"));
                }
                None => return Ok(None),
            }
        }
    }
}

// Messages of failed requests.

type RequestFailure<'e> = &'e (dyn std::error::Error + Send + Sync + 'static);

/// The message of the innermost cause of `error`. The outer errors only repeat it, some of them in
/// debug format.
pub(crate) fn in_words(error: RequestFailure<'_>) -> String {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    words(innermost)
}

/// The message of `cause`, without line numbers of OpenSSL's sources and error numbers of the
/// operating system.
fn words(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    match cause.downcast_ref() {
        Some(ClientHandshakeError::Untrusted(reason)) => return distrust(reason),
        Some(ClientHandshakeError::Failed(reason)) => return format!("tls: {}", without_number(reason)),
        None => {}
    }
    let Some(stack) = cause.downcast_ref::<ErrorStack>() else {
        return without_number(&text).to_owned();
    };
    let reason = stack.errors().first().and_then(|error| error.reason());
    reason.map_or(text, of_openssl)
}

fn without_number(text: &str) -> &str {
    text.rsplit_once(" (os error ").map_or(text, |(words, _)| words)
}

fn of_openssl(reason: &str) -> String {
    match reason {
        "certificate verify failed" => distrust("it cannot be verified"),
        reason => format!("tls: {reason}"),
    }
}

fn distrust(reason: &str) -> String {
    format!(
        "tls: the certificate of the API server is not signed by the kubeconfig's \
         `certificate-authority`, is not for the host of `server`, or has expired: {reason}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use serde_json::json;

    use crate::cluster::tests::fixtures::{api_server, block_on, endless_server};

    #[test]
    fn what_refuses_a_request_is_told_in_a_few_words() {
        let status = json!({"kind": "Status", "message": "roles is forbidden", "code": 403}).to_string();
        let refusal = ErrorResponse::of(StatusCode::FORBIDDEN, status.as_bytes());
        assert_eq!((refusal.code, &*refusal.message), (403, "roles is forbidden"));
        let page = ErrorResponse::of(StatusCode::NOT_FOUND, b"404 page not found\n");
        assert_eq!(page.message, "the response is 404 Not Found, without a reason");
        let long = json!({"message": "x".repeat(50_000)}).to_string();
        assert!(
            ErrorResponse::of(StatusCode::NOT_FOUND, long.as_bytes())
                .message
                .len()
                <= MAX_MESSAGE_BYTES
        );
    }

    #[test]
    fn an_answer_is_bounded_in_bytes() {
        block_on(async {
            let server = api_server(|_| (StatusCode::OK, json!("x".repeat(98))));
            let request = ApiRequest::get("/version", JSON);
            assert_eq!(server.ask(&request, 100).await.unwrap().len(), 100);
            let asked = server.ask(&request, 99).await;
            assert!(matches!(asked, Err(ApiError::TooLarge(99))));
        });
    }

    #[test]
    fn an_answer_that_never_ends_is_given_up() {
        for status in [StatusCode::OK, StatusCode::FORBIDDEN] {
            block_on(async {
                let max_answer_time = Duration::from_millis(20);
                let server = ApiServer {
                    max_answer_time,
                    ..endless_server(status)
                };
                let asked = server.ask(&ApiRequest::get("/version", JSON), 100).await;
                assert!(
                    matches!(asked, Err(ApiError::TooLong("the answer", _))),
                    "{status}"
                );
                let begun = server.split("/api/v1/pods", Envelope::List, 100).await;
                // Only the head of a response that is split has this timeout.
                assert_eq!(begun.is_ok(), status == StatusCode::OK);
            });
        }
    }

    #[test]
    fn where_a_list_goes_on_is_taken_from_what_refuses_it() {
        let status = json!({"code": 410, "metadata": {"continue": "c"}}).to_string();
        let refusal = ErrorResponse::of(StatusCode::GONE, status.as_bytes());
        assert_eq!(refusal.next.as_deref(), Some("c"));
    }

    #[test]
    fn what_the_system_and_openssl_say_is_told_without_numbers_and_lines() {
        let refused = std::io::Error::from_raw_os_error(111);
        let message = in_words(&kube::Error::Service(refused.into()));
        assert_eq!(message, "Connection refused");
        let stack = openssl::x509::X509::from_pem(b"none").unwrap_err();
        let message = in_words(&kube::Error::Service(stack.into()));
        assert_eq!(message, "tls: no start line");
        let distrust = of_openssl("certificate verify failed");
        assert!(distrust.contains("`certificate-authority`"), "{distrust}");
    }
}
