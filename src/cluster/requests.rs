//! Requests to an API server, and their answers, whose size is bounded by who reads them.

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

/// The most bytes of an answer that says why there is no other.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The most bytes of what is quoted of such an answer.
const MAX_MESSAGE_BYTES: usize = 512;

/// How long an answer may take that is collected as a whole, however steadily it comes: one of the
/// largest takes seconds.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);

/// Asks one API server.
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: Client,
    /// [`MAX_ANSWER_TIME`].
    max_answer_time: Duration,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiRequest<'r> {
    pub(crate) method: &'r Method,
    /// With its query.
    pub(crate) path: &'r str,
    /// `Accept`, or where there is a body `Content-Type`.
    pub(crate) content: (&'static str, &'r str),
    pub(crate) body: &'r [u8],
}

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The API server, or what is before it, says no.
    #[error("{}", .0.message)]
    Refused(Box<ErrorResponse>),
    /// The answer is larger than it may be.
    #[error("the response of the API server has more than {0} bytes")]
    TooLarge(usize),
    /// The answer is another one than was asked for.
    #[error("the response is not valid for an API server: {0}")]
    Unexpected(String),
    /// The answer cannot be split into objects.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// It did not come to its end in time.
    #[error("{0} did not end within {1} s")]
    TooLong(&'static str, u64),
    /// There is none, or not all of it.
    #[error("{}", in_words(&**.0))]
    Unreachable(#[source] Box<kube::Error>),
}

/// An answer of another code than 2xx.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    pub(crate) code: u16,
    pub(crate) message: String,
    /// Where a list goes on whose place has expired.
    pub(crate) next: Option<String>,
}

/// `metav1.Status`.
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

/// An answer that is split while it is read.
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

    /// What is at `path`, as JSON of at most so many bytes.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: &str,
        max_bytes: usize,
    ) -> Result<T, ApiError> {
        let answer = self.ask(&ApiRequest::get(path, accept), max_bytes).await?;
        serde_json::from_slice(&answer).map_err(|error| ApiError::unexpected(path, &error))
    }

    /// What the API server answers, in at most so many bytes.
    pub(crate) async fn ask(&self, request: &ApiRequest<'_>, max_bytes: usize) -> Result<Bytes, ApiError> {
        let collected = async { collect(self.begin(request).await?, max_bytes).await };
        self.in_time(collected).await
    }

    /// The list or the watch at `path`, with objects of at most so many bytes.
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

/// What is asked for.
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

/// What comes next of a body; `None` at its end.
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

    /// Whether there was an answer, whatever it says.
    pub(crate) const fn is_answer(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }

    /// Whether the answer has this code.
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

    /// What the object of an event of the type `ERROR` says.
    pub(crate) fn of_event(text: &[u8]) -> Option<Self> {
        let written: ApiStatus = serde_json::from_slice(text).ok()?;
        Some(Self {
            code: written.code,
            message: cut(written.message, MAX_MESSAGE_BYTES),
            next: None,
        })
    }

    /// Whether a watch cannot go on from where it is: the API server has that version no more, or
    /// not yet, or the kind is not served any more.
    pub(crate) fn ends_watch(&self) -> bool {
        matches!(self.code, 404 | 410) || self.message.contains("Too large resource version")
    }
}

// === impl SplitAnswer ===

impl SplitAnswer {
    /// The next part; `None` where the answer has ended between two documents.
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

// What a failed request to an API server says.

/// An error of a request.
type RequestFailure<'e> = &'e (dyn std::error::Error + Send + Sync + 'static);

/// What a failure says: the innermost cause, since those around it quote it, or print it for
/// debugging.
pub(crate) fn in_words(error: RequestFailure<'_>) -> String {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    words(innermost)
}

/// What a cause says, without lines of OpenSSL's sources and numbers of the system.
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
                // What is split has the deadline of who reads it.
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
