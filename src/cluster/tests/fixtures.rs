//! An API server that answers as a test says, and what is logged meanwhile.

use std::future::{Ready, ready};
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower_service::Service;
use tracing::Dispatch;

use crate::cluster::requests::ApiServer;

/// What is answered.
pub(crate) type TestAnswer = (StatusCode, Value);

/// Answers each request with a response that it makes.
struct TestServer<A>(A);

/// Ends after some bytes, or never.
struct TestBody {
    bytes: Option<Bytes>,
    is_endless: bool,
}

impl<A: Fn(&Uri) -> Response<TestBody>> Service<Request<Body>> for TestServer<A> {
    type Response = Response<TestBody>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok((self.0)(request.uri())))
    }
}

impl hyper::body::Body for TestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.is_endless => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

/// One that gives `answer` to each request. To be called within a runtime.
pub(crate) fn api_server(answer: impl Fn(&Uri) -> TestAnswer + Send + 'static) -> ApiServer {
    server(move |uri| {
        let (status, body) = answer(uri);
        response(status, Some(body.to_string().into()), false)
    })
}

/// One whose answers begin with this status and never end.
pub(crate) fn endless_server(status: StatusCode) -> ApiServer {
    server(move |_| response(status, None, true))
}

fn server(answer: impl Fn(&Uri) -> Response<TestBody> + Send + 'static) -> ApiServer {
    ApiServer::new(Client::new(TestServer(answer), "default"))
}

fn response(status: StatusCode, bytes: Option<Bytes>, is_endless: bool) -> Response<TestBody> {
    let mut response = Response::new(TestBody { bytes, is_endless });
    *response.status_mut() = status;
    response
}

/// Runs `test` on one thread.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A second subscriber: as long as there is one alone, tracing asks that of any thread, which may
/// have none, whether an event is wanted.
static OTHER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()));

/// What `act` logs on this thread, an event a line.
pub(crate) fn logged(act: impl FnOnce()) -> Vec<String> {
    LazyLock::force(&OTHER);
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}
