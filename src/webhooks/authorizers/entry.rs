//! One webhook authorizer: its match conditions, client and cache, and the calls to it, which are
//! retried with backoff until the deadline of all requests that wait for the answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::answers::{AnswerCache, AuthorizerCallError, CacheKey, Lifetimes, OpinionResult, SharedDeadline};
use crate::config::kubeconfig::client::{self, Context};
use crate::config::limits::Descriptors;
use crate::config::{AuthorizerEntry, Config, FileScope, Files, Secret};
use crate::telemetry::metrics::{Outcome, UpstreamRecorder};
use crate::telemetry::traces::TraceParent;
use crate::webhooks::client::{
    Addresses, Bounds, CallError, Client, ClientIdentity, Reply, Settings, SettingsError, Url,
};
use crate::webhooks::{InFlight, InFlightPermit, Requester, credentials_of};
use portcullis_policy::admission::{ObjectMemory, TakenMemory};
use portcullis_policy::authorization::SubjectAccessReviewVersion;
use portcullis_policy::authorization::authorizer::{Authorizer, Opinion, Relevance};
use portcullis_policy::field::{Fault, FaultKind, Faults};
use portcullis_policy::model::{Attributes, Deadline};

const USER_AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// The memory for large replies of all authorizers. Small replies, which usually have a few hundred
/// bytes, are bounded by the number of waiting requests.
const MAX_LARGE_BYTES: usize = 64 << 20;

/// The most bytes of a reply that is not large.
const MAX_SMALL_BYTES: usize = 64 << 10;

/// The bytes of [`MAX_LARGE_BYTES`] in use.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The account for large replies.
struct LargeReplies;

/// The bytes of one large reply, which count until this is dropped.
struct LargeBytes(usize);

/// An entry of `authorization.webhooks`.
#[derive(Debug)]
pub(crate) struct WebhookAuthorizer {
    rules: Authorizer,
    callee: AuthorizerClient,
    lifetimes: Lifetimes,
    connection: ConnectionSettings,
    answers: Arc<AnswerCache>,
    /// The requests that wait for its answers.
    waiting: InFlight,
    /// The calls to it in flight.
    calls: InFlight,
}

/// Identifies entries that call the same server as the same user.
#[derive(Debug, PartialEq)]
struct ConnectionSettings {
    settings: Settings,
    bearer: Option<Secret>,
    token_file: Option<PathBuf>,
    basic: Option<(String, Secret)>,
}

// === impl WebhookAuthorizer ===

impl WebhookAuthorizer {
    /// Reads the kubeconfig of `wanted`. Also returns the files that were read, or would be read if
    /// they existed.
    pub(crate) fn build(
        wanted: &AuthorizerEntry,
        config: &Config,
        files: &dyn Files,
        faults: &mut Faults,
    ) -> (Option<Self>, Vec<PathBuf>) {
        let (context, read, found) = client::of_context(files, &wanted.kubeconfig);
        faults.append(found);
        let entry = context.and_then(|context| {
            Self::of_context(wanted, config, &context)
                .map_err(|error| {
                    let place = context.cluster.place.clone();
                    faults.push(Fault::error(place, FaultKind::Invalid, error.to_string()));
                })
                .ok()
        });
        (entry, read)
    }

    fn of_context(
        wanted: &AuthorizerEntry,
        config: &Config,
        context: &Context,
    ) -> Result<Self, SettingsError> {
        let credentials = context
            .user
            .as_ref()
            .map(|user| credentials_of(user, &FileScope::Anywhere))
            .transpose()?
            .unwrap_or_default();
        let connection = ConnectionSettings::new(config, context, credentials.identity)?;
        let lifetimes = Lifetimes {
            authorized: wanted.authorized_ttl,
            unauthorized: wanted.unauthorized_ttl,
        };
        Ok(Self {
            rules: wanted.rules.clone(),
            callee: AuthorizerClient {
                post: Arc::new(Client::new(
                    connection.settings.clone(),
                    credentials.authorization,
                )?),
                version: wanted.version,
                timeout: wanted.timeout,
                reply_bytes: config.upstreams.reply_bytes,
                backoff: Backoff::UPSTREAM,
                recorder: Arc::default(),
            },
            lifetimes,
            connection,
            answers: AnswerCache::new(lifetimes),
            // Requests for a hanging authorizer leave half of the limit to requests that do not
            // need it.
            waiting: InFlight::new(config.limits.in_flight.div_ceil(2)),
            calls: InFlight::new(Descriptors::of_process().authorizer_calls()),
        })
    }

    /// Whether `other` is configured alike, so that its cached answers are valid for this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.callee.version == other.callee.version
            && self.callee.timeout == other.callee.timeout
            && self.callee.reply_bytes == other.callee.reply_bytes
            && self.lifetimes == other.lifetimes
            && self.connection == other.connection
    }

    pub(crate) fn name(&self) -> &str {
        &self.rules.name
    }

    pub(crate) fn record_to(&self, recorder: UpstreamRecorder) {
        // If it is set already, it is for the same series.
        let _ = self.callee.recorder.set(recorder);
    }

    pub(crate) const fn callee(&self) -> &AuthorizerClient {
        &self.callee
    }

    pub(crate) const fn answers(&self) -> &Arc<AnswerCache> {
        &self.answers
    }

    pub(crate) fn relevance(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> Relevance {
        self.rules.relevance(attributes, deadline)
    }

    /// The opinion if no call is necessary; `None` if the authorizer does not apply.
    pub(crate) fn opinion_without_call(&self, relevance: &Relevance) -> Option<Opinion> {
        match relevance {
            Relevance::Failed(error) => Some(self.failed(error)),
            Relevance::Called | Relevance::Skipped(_) => None,
        }
    }

    pub(crate) fn failed(&self, error: &str) -> Opinion {
        self.rules.failed(error)
    }

    /// Whether answers are cached, and concurrent requests with the same question share one call.
    pub(crate) const fn has_cache(&self) -> bool {
        self.lifetimes.authorized.is_some() || self.lifetimes.unauthorized.is_some()
    }

    pub(crate) fn cached(&self, key: Option<&CacheKey>, now: Instant) -> Option<Opinion> {
        self.answers.get(key?, now)
    }

    /// A permit to wait for an answer; `None` if too many requests, or too many of this user, are
    /// waiting.
    pub(crate) fn wait(&self, requester: Requester<'_>) -> Option<InFlightPermit> {
        self.waiting.enter(Some(requester)).ok()
    }

    /// A permit for a call; `None` if too many calls, or too many of this user, are in flight. Each
    /// of the `authorizers` has an equal part of the limit.
    pub(crate) fn call(&self, requester: Requester<'_>, authorizers: usize) -> Option<InFlightPermit> {
        part_of_each(&self.calls, authorizers).enter(Some(requester)).ok()
    }
}

/// The limit of `calls` to one of the `authorizers`.
fn part_of_each(calls: &InFlight, authorizers: usize) -> InFlight {
    let all = Descriptors::of_process().authorizer_calls();
    calls.with_limit(all.div_ceil(authorizers.max(1)))
}

// === impl ConnectionSettings ===

impl ConnectionSettings {
    fn new(
        config: &Config,
        context: &Context,
        identity: Option<ClientIdentity>,
    ) -> Result<Self, SettingsError> {
        let user = context.user.as_ref();
        let bearer = user.and_then(|user| user.bearer.as_ref());
        let basic = user.and_then(|user| user.basic.as_ref());
        Ok(Self {
            settings: Settings {
                url: Url::parse(&context.cluster.server)?,
                server_name: context.cluster.server_name.clone(),
                authorities: context.cluster.authorities.iter().cloned().collect(),
                identity,
                addresses: Arc::new(Addresses::of(config)),
                is_http2: config.upstreams.is_http2,
                tenant: None,
                user_agent: USER_AGENT.to_owned(),
                via: config.pseudonym(),
            },
            bearer: bearer.map(|bearer| bearer.token.clone()),
            token_file: bearer.and_then(|bearer| bearer.file.clone()),
            basic: basic.map(|basic| (basic.username.clone(), basic.password.clone())),
        })
    }
}

/// Sends a POST with a body, as a part of the trace of `parent`.
pub(crate) trait Post: std::fmt::Debug + Send + Sync {
    fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, CallError>>;
}

/// How often and with which pauses a call is retried (`apiserver/pkg/util/webhook/webhook.go`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) attempts: u32,
    pub(crate) pause: Duration,
}

/// The permit for a call, which counts until it is dropped.
pub type CallPlace = Box<dyn Send>;

const TOO_MANY_CALLS: &str =
    "the limit of calls in flight to it, or that of this user or cluster, is reached";

/// How an authorizer is called.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizerClient {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) version: SubjectAccessReviewVersion,
    /// The timeout of one attempt, which is also sent to the authorizer.
    pub(crate) timeout: Duration,
    /// The most bytes of a reply.
    pub(crate) reply_bytes: usize,
    pub(crate) backoff: Backoff,
    /// The metrics of its calls, once they are set.
    pub(crate) recorder: Arc<OnceLock<UpstreamRecorder>>,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) const UPSTREAM: Self = Self {
        attempts: 5,
        pause: Duration::from_millis(500),
    };
}

// === impl AuthorizerClient ===

impl AuthorizerClient {
    /// Calls the authorizer with `body` until there is a reply, a permanent error, or no request is
    /// left that the next attempt could serve in time. The call is a part of the trace of `parent`,
    /// which is that of the first request. Without a `place` it is not made.
    pub(crate) async fn ask(
        self,
        place: Option<CallPlace>,
        body: Bytes,
        deadline: Arc<SharedDeadline>,
        parent: Option<TraceParent>,
    ) -> OpinionResult {
        let Some(_until_answered) = place else {
            return Err(AuthorizerCallError::NotAsked(TOO_MANY_CALLS.to_owned()));
        };
        let mut pause = self.backoff.pause;
        let mut attempt = 1;
        loop {
            let begun = Instant::now();
            let reply = self.post.post(body.clone(), self.bounds(), parent).await;
            self.record(reply.is_ok(), begun.elapsed());
            let error = match reply {
                Ok(reply) => return self.verified(&body, reply),
                Err(error) => error,
            };
            let is_in_time = Instant::now()
                .checked_add(pause)
                .is_some_and(|next| next < deadline.end());
            if !is_transient(&error) || attempt >= self.backoff.attempts || !is_in_time {
                return Err(AuthorizerCallError::Failed(error.to_string()));
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(3) / 2;
            attempt += 1;
        }
    }

    /// The opinion in `reply`, after verifying that it answers `question`. If it does not, the
    /// connection is closed, because a later request on it could receive the reply to this one.
    fn verified(&self, question: &[u8], reply: Reply) -> OpinionResult {
        let verified = self.version.verify_reply_to(question, &reply.body);
        let verified = verified.map_err(|error| AuthorizerCallError::Failed(error.to_string()))?;
        reply.connection.release(verified.names_question);
        Ok(verified.opinion)
    }

    fn record(&self, replied: bool, took: Duration) {
        let outcome = if replied {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        if let Some(recorder) = self.recorder.get() {
            recorder.record(outcome, took);
        }
    }

    const fn bounds(&self) -> Bounds {
        Bounds {
            timeout: self.timeout,
            connect: self.timeout,
            announced: self.timeout,
            reply_bytes: self.reply_bytes,
        }
    }
}

/// Whether `DefaultShouldRetry` retries after the error; `Retry-After` is ignored here.
const fn is_transient(error: &CallError) -> bool {
    match error {
        CallError::Reset | CallError::ContentType => true,
        CallError::Status(status) => *status == 429 || *status >= 500 && *status != 503,
        _ => false,
    }
}

// === impl LargeReplies ===

impl ObjectMemory for LargeReplies {
    fn reserve(&self, bytes: usize) -> Option<TakenMemory> {
        if bytes <= MAX_SMALL_BYTES {
            return Some(TakenMemory(Box::new(())));
        }
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= MAX_LARGE_BYTES);
        let taken = LARGE_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| TakenMemory(Box::new(LargeBytes(bytes))))
    }
}

impl Drop for LargeBytes {
    fn drop(&mut self) {
        LARGE_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

// === impl Client ===
impl Post for Client {
    fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, CallError>> {
        let client = self.clone();
        Box::pin(async move {
            client
                .post(body, bounds, parent, Some(Arc::new(LargeReplies)))
                .await
        })
    }
}

#[cfg(test)]
mod tests;
