//! Limits for an API server: how long its responses may be silent, how much memory they take
//! besides their bodies, and how often it may end a watch. The reader of a body bounds its size.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::{Sleep, sleep, timeout};
use tower_service::Service;

use crate::webhooks::client::{ClientAuthorization, ReadAllowance};

/// How long a response may be silent, before it begins and within it. Over HTTP/2, pings show that
/// the connection is alive, but not each response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How much longer a watch may be silent than the timeout that it requests.
pub(crate) const WATCH_TIMEOUT_SLACK: Duration = Duration::from_secs(15);

/// The timeouts that watches request, over HTTP/1.1 and HTTP/2. Over HTTP/1.1 a connection that
/// died silently is noticed only when its watch should have ended; over HTTP/2 pings detect this.
const WATCH_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(240));

/// The minimum time between the beginnings of two watches of a kind, for an API server that ends
/// watches at once.
const MIN_WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The assumed size of the head of a response, in bytes.
const HEAD_BYTES: usize = 4 << 10;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends requests with the token of a file, limits how often watches begin, and bounds responses.
#[derive(Debug, Clone)]
pub(crate) struct BoundedService<S> {
    inner: S,
    authorization: ClientAuthorization,
    idle_timeout: Duration,
    protocol: NegotiatedProtocol,
    watches: Arc<WatchPace>,
}

/// When the last watch of each path began, or will begin.
#[derive(Debug, Default)]
struct WatchPace(Mutex<HashMap<String, Instant>>);

/// Whether an API server speaks HTTP/2. Known after its first response.
#[derive(Debug, Clone, Default)]
pub(crate) struct NegotiatedProtocol(Arc<AtomicBool>);

/// The body of a response.
#[derive(Debug)]
pub(crate) struct BoundedBody<B> {
    body: B,
    silence: IdleTimeout,
    /// The read allowance of its connection, if that has one.
    allowance: Option<Arc<ReadAllowance>>,
}

/// Ends a response that stays silent.
#[derive(Debug)]
struct IdleTimeout {
    most: Duration,
    /// Started by the first poll that finds nothing.
    end: Option<Pin<Box<Sleep>>>,
}

/// Why the body of a response cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError<E> {
    /// No data arrives.
    #[error("the API server's response stalled: no data for {0:?}")]
    Silent(Duration),
    /// The connection failed.
    #[error(transparent)]
    Body(#[from] E),
}

// === impl BoundedService ===

impl<S> BoundedService<S> {
    pub(crate) fn new(inner: S, authorization: ClientAuthorization) -> Self {
        Self {
            inner,
            authorization,
            idle_timeout: IDLE_TIMEOUT,
            protocol: NegotiatedProtocol::default(),
            watches: Arc::default(),
        }
    }

    /// The protocol of the API server, which is known after its first response.
    pub(crate) fn protocol(&self) -> NegotiatedProtocol {
        self.protocol.clone()
    }
}

impl<S, T> Service<Request<T>> for BoundedService<S>
where
    S: Service<Request<T>, Response = Response<Incoming>> + Clone + Send + 'static,
    T: Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<Incoming>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<T>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let now = Instant::now();
        let pause = if is_watch {
            self.watches.next(request.uri().path(), now) - now
        } else {
            Duration::ZERO
        };
        // Calls the service that is ready, and keeps a clone for the next call.
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        let (most, protocol) = (self.idle_timeout, self.protocol.clone());
        let authorization = self.authorization.clone();
        Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            if let Some(header) = authorization.header().await {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            let answering = timeout(most, ready.call(request)).await;
            let silent = |_| BodyError::<hyper::Error>::Silent(most);
            let response = answering.map_err(silent)?.map_err(Into::into)?;
            protocol.note(response.version());
            if response.status() == StatusCode::UNAUTHORIZED {
                authorization.refused();
            }
            let most = if is_watch {
                protocol.watch_timeout() + WATCH_TIMEOUT_SLACK
            } else {
                most
            };
            let allowance = response.extensions().get::<Arc<ReadAllowance>>().cloned();
            if let Some(allowance) = &allowance {
                allowance.consumed(HEAD_BYTES);
            }
            Ok(response.map(|body| BoundedBody {
                body,
                silence: IdleTimeout { most, end: None },
                allowance,
            }))
        })
    }
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

// === impl NegotiatedProtocol ===

impl NegotiatedProtocol {
    fn note(&self, version: Version) {
        self.0.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// The timeout that watches request.
    pub(crate) fn watch_timeout(&self) -> Duration {
        let (of_http1, of_http2) = WATCH_TIMEOUTS;
        if self.0.load(Ordering::Relaxed) {
            of_http2
        } else {
            of_http1
        }
    }
}

// === impl WatchPace ===

impl WatchPace {
    /// When a watch of `path` may begin that is requested at `now`.
    fn next(&self, path: &str, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = last
            .get(path)
            .map_or(now, |last| now.max(*last + MIN_WATCH_INTERVAL));
        last.insert(path.to_owned(), next);
        next
    }
}

// === impl BoundedBody ===

impl<B: Body<Data = Bytes> + Unpin> Body for BoundedBody<B> {
    type Data = Bytes;
    type Error = BodyError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.silence.poll_end(context));
            return Poll::Ready(Some(Err(BodyError::Silent(self.silence.most))));
        };
        self.silence.end = None;
        if let (Some(allowance), Some(Ok(frame))) = (&self.allowance, &frame) {
            allowance.consumed(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Body)))
    }
}

// === impl IdleTimeout ===

impl IdleTimeout {
    /// Ready when the silence has lasted too long.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let most = self.most;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(most)));
        end.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn an_answer_that_does_not_go_on_ends() {
        /// A body with one frame, which then never ends.
        struct StuckBody(Option<Bytes>);

        impl Body for StuckBody {
            type Data = Bytes;
            type Error = std::convert::Infallible;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
                let frame = self.0.take().map(|data| Ok(Frame::data(data)));
                frame.map_or(Poll::Pending, |frame| Poll::Ready(Some(frame)))
            }
        }

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut body = BoundedBody {
                body: StuckBody(Some(Bytes::from_static(b"begun"))),
                silence: IdleTimeout {
                    most: Duration::from_millis(1),
                    end: None,
                },
                allowance: None,
            };
            let mut next =
                async || std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            assert!(next().await.unwrap().is_ok());
            assert!(matches!(next().await, Some(Err(BodyError::Silent(_)))));
        });
    }

    #[test]
    fn watches_of_one_path_begin_apart() {
        let (pace, start) = (WatchPace::default(), Instant::now());
        let next = |path, milliseconds| {
            let at = start + Duration::from_millis(milliseconds);
            (pace.next(path, at) - start).as_millis()
        };
        assert_eq!(
            (next("/roles", 0), next("/roles", 0), next("/roles", 300)),
            (0, 1_000, 2_000)
        );
        assert_eq!((next("/pods", 400), next("/roles", 9_000)), (400, 9_000));
    }

    #[test]
    fn a_watch_waits_until_it_may_begin_and_nothing_else_does() {
        /// Counts the requests, and responds to none.
        #[derive(Clone, Default)]
        struct Counting(Arc<AtomicUsize>);

        impl Service<Request<()>> for Counting {
            type Response = Response<Incoming>;
            type Error = BoxError;
            type Future = std::future::Pending<Result<Self::Response, BoxError>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: Request<()>) -> Self::Future {
                self.0.fetch_add(1, Ordering::Relaxed);
                std::future::pending()
            }
        }

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let mut bounded = BoundedService::new(Counting::default(), ClientAuthorization::None);
        // The next watch of this path begins in an hour.
        let an_hour = Duration::from_secs(3_600);
        bounded.watches.next("/roles", Instant::now() + an_hour);
        let mut asks = |uri: &str| {
            let before = bounded.inner.0.load(Ordering::Relaxed);
            let request = Request::builder().uri(uri).body(()).unwrap();
            let mut answer = bounded.call(request);
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(answer.as_mut().poll(&mut context).is_pending());
            bounded.inner.0.load(Ordering::Relaxed) - before
        };
        let uris = [
            "https://a/roles?watch=true",
            "https://a/roles?limit=1",
            "https://a/pods?watch=true",
        ];
        assert_eq!(uris.map(&mut asks), [0, 1, 1]);
    }

    #[test]
    fn watches_are_long_where_pings_tell_that_the_connection_is_there() {
        let protocol = NegotiatedProtocol::default();
        let mut watch = |version| {
            protocol.note(version);
            protocol.watch_timeout().as_secs()
        };
        assert_eq!(
            [Version::HTTP_11, Version::HTTP_2, Version::HTTP_11].map(&mut watch),
            [60, 240, 60]
        );
        // In any case, a silent HTTP/1.1 connection outlives its watch.
        assert!(WATCH_TIMEOUTS.0 + WATCH_TIMEOUT_SLACK <= IDLE_TIMEOUT);
    }

    #[test]
    fn a_watch_is_known_by_its_query() {
        for (uri, expected) in [
            ("https://a/api/v1/pods?watch=true&resourceVersion=5", true),
            ("https://a/api/v1/pods?limit=100", false),
            ("https://a/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("https://a/api/v1/watch", false),
        ] {
            assert_eq!(is_watch(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
