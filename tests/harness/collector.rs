//! A stand-in for an OpenTelemetry collector: takes OTLP over gRPC, without TLS.
//!
//! gRPC is HTTP/2: a POST whose body is a flag, a length and a message, and an answer whose
//! status is in the trailers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A collector that keeps what it is sent.
pub(crate) struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedSpan>>>,
    held: watch::Sender<bool>,
    /// Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

/// A span, and who sent it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedSpan {
    pub(crate) service: String,
    pub(crate) span: Span,
}

// === impl Collector ===

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let (held, is_held) = watch::channel(false);
        let kept = Arc::clone(&received);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, is_held) = (Arc::clone(&kept), is_held.clone());
                let service = service_fn(move |request| take(request, Arc::clone(&kept), is_held.clone()));
                tokio::spawn(async move {
                    let served = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away is no fault.
                    let _ended = served.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            address,
            received,
            held,
            _runtime: runtime,
        }
    }

    /// `tracing.endpoint` that leads here.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on nothing is answered.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// What was received so far.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        self.received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

// === impl ReceivedSpan ===

impl ReceivedSpan {
    /// An attribute, as text.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        text(&self.span.attributes, key)
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match &found.value {
        Some(AnyValue {
            value: Some(any_value::Value::StringValue(text)),
        }) => Some(text.clone()),
        Some(AnyValue {
            value: Some(any_value::Value::IntValue(number)),
        }) => Some(number.to_string()),
        _ => None,
    }
}

async fn take(
    request: Request<Incoming>,
    kept: Arc<Mutex<Vec<ReceivedSpan>>>,
    mut is_held: watch::Receiver<bool>,
) -> io::Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>> {
    assert_eq!(
        request.uri().path(),
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    );
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let message = ExportTraceServiceRequest::decode(&body[5..]).map_err(io::Error::other)?;
    is_held
        .wait_for(|is_held| !is_held)
        .await
        .map_err(io::Error::other)?;
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in message.resource_spans {
        let service = resource
            .resource
            .map(|resource| text(&resource.attributes, "service.name"));
        let service = service.flatten().unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            kept.push(ReceivedSpan {
                service: service.clone(),
                span,
            });
        }
    }
    drop(kept);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [
        Ok(Frame::data(Bytes::from_static(&[0; 5]))),
        Ok(Frame::trailers(trailers)),
    ];
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    Ok(response)
}
