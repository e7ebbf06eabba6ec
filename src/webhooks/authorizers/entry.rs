//! One webhook authorizer: its match conditions, client and cache, and a call to it, with retries and
//! backoff until the deadline of all requests that wait for it.

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

/// The memory for large replies of all authorizers. Those of a few hundred bytes, as they are, are
/// bounded by how many may wait.
const MAX_LARGE_BYTES: usize = 64 << 20;

/// The most bytes of a reply that is not large.
const MAX_SMALL_BYTES: usize = 64 << 10;

/// What large replies have of [`MAX_LARGE_BYTES`].
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Counts large replies.
struct LargeReplies;

/// Bytes of one, until it is dropped.
struct LargeBytes(usize);

/// An entry of `authorization.webhooks`.
#[derive(Debug)]
pub(crate) struct WebhookAuthorizer {
    rules: Authorizer,
    callee: Callee,
    lifetimes: Lifetimes,
    connection: ConnectionSettings,
    answers: Arc<AnswerCache>,
    /// The requests that wait for it.
    waiting: InFlight,
    /// The calls to it.
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
    /// Reads the kubeconfig of `wanted`; the files that were read, or should have been.
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
            callee: Callee {
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
            // An authorizer that hangs leaves room for requests that do not need it.
            waiting: InFlight::new(config.limits.in_flight.div_ceil(2)),
            calls: InFlight::new(Descriptors::of_process().authorizer_calls()),
        })
    }

    /// Whether what `other` was answered is what this one would be.
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
        // Set already: the series are the same.
        let _ = self.callee.recorder.set(recorder);
    }

    pub(crate) const fn callee(&self) -> &Callee {
        &self.callee
    }

    pub(crate) const fn answers(&self) -> &Arc<AnswerCache> {
        &self.answers
    }

    pub(crate) fn relevance(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> Relevance {
        self.rules.relevance(attributes, deadline)
    }

    /// Its result without a call; `None` where it does not apply.
    pub(crate) fn opinion_without_call(&self, relevance: &Relevance) -> Option<Opinion> {
        match relevance {
            Relevance::Failed(error) => Some(self.failed(error)),
            Relevance::Asked | Relevance::Skipped(_) => None,
        }
    }

    pub(crate) fn failed(&self, error: &str) -> Opinion {
        self.rules.failed(error)
    }

    /// Whether answers are kept, and one given to all who ask for it at once.
    pub(crate) const fn keeps(&self) -> bool {
        self.lifetimes.authorized.is_some() || self.lifetimes.unauthorized.is_some()
    }

    pub(crate) fn cached(&self, key: Option<&CacheKey>, now: Instant) -> Option<Opinion> {
        self.answers.get(key?, now)
    }

    /// A place to wait in, unless too many wait already, or too many of this user.
    pub(crate) fn wait(&self, requester: Requester<'_>) -> Option<InFlightPermit> {
        self.waiting.enter(Some(requester)).ok()
    }

    /// A place for a call, unless there are too many calls already, or too many for this user: of
    /// so many `authorizers`, each has its part.
    pub(crate) fn call(&self, requester: Requester<'_>, authorizers: usize) -> Option<InFlightPermit> {
        part_of_each(&self.calls, authorizers).enter(Some(requester)).ok()
    }
}

/// `calls` to one of so many `authorizers`, with its part of all that there may be.
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

/// Posts a body, as a part of the trace of `parent`.
pub(crate) trait Post: std::fmt::Debug + Send + Sync {
    fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, CallError>>;
}

/// How often, and after which pauses, a question is put again
/// (`apiserver/pkg/util/webhook/webhook.go`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) attempts: u32,
    pub(crate) pause: Duration,
}

/// The place that a call takes among those that there may be, until it is dropped.
pub type CallPlace = Box<dyn Send>;

const TOO_MANY_CALLS: &str =
    "the limit of calls in flight to it, or that of this user or cluster, is reached";

/// Whom to ask, and how.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) version: SubjectAccessReviewVersion,
    /// The time of one attempt, which is also sent to the authorizer.
    pub(crate) timeout: Duration,
    /// The largest reply.
    pub(crate) reply_bytes: usize,
    pub(crate) backoff: Backoff,
    /// Where requests are counted, once that is known.
    pub(crate) recorder: Arc<OnceLock<UpstreamRecorder>>,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) const UPSTREAM: Self = Self {
        attempts: 5,
        pause: Duration::from_millis(500),
    };
}

// === impl Callee ===

impl Callee {
    /// Asks about `body` until there is an answer, an error that will not go away, or nobody
    /// whom the next attempt could still serve.
    /// It is a part of the trace of `parent`: of the first request. Without a `place` nobody is asked.
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

    /// What `reply` says, if it is one to `question`. If not, its connection ends: another question
    /// could be answered by what belongs to this one.
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

/// What `DefaultShouldRetry` retries, except for `Retry-After`, which is ignored here.
const fn is_transient(error: &CallError) -> bool {
    match error {
        CallError::Reset | CallError::ContentType => true,
        CallError::Status(status) => *status == 429 || *status >= 500 && *status != 503,
        _ => false,
    }
}

// === impl LargeReplies ===

impl ObjectMemory for LargeReplies {
    fn take(&self, bytes: usize) -> Option<TakenMemory> {
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
