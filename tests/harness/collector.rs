//! A stand-in for an OpenTelemetry collector: takes OTLP over gRPC, without TLS.
//!
//! gRPC is HTTP/2: a POST whose body is a flag, a length and a message, and an answer whose
//! status is in the trailers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A collector that keeps what it is sent.
pub(crate) struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    held: watch::Sender<bool>,
    /// Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<ReceivedSpan>,
    records: Vec<ReceivedRecord>,
    /// The status of gRPC with which log records are answered.
    status: u8,
}

/// A log record, and who sent it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRecord {
    pub(crate) service: String,
    pub(crate) record: LogRecord,
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
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Received>> = Arc::default();
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

    /// From now on log records are answered with this status of gRPC, and not kept.
    pub(crate) fn refuse_records(&self, status: u8) {
        self.received().status = status;
    }

    /// The spans that were received so far.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        self.received().spans.clone()
    }

    /// The log records that were received so far.
    pub(crate) fn records(&self) -> Vec<ReceivedRecord> {
        self.received().records.clone()
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Received ===

impl Received {
    /// Keeps what a request brings; the status of gRPC.
    fn take(&mut self, path: &str, message: &[u8]) -> io::Result<u8> {
        match path {
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
                let request = ExportTraceServiceRequest::decode(message).map_err(io::Error::other)?;
                for resource in request.resource_spans {
                    let service = service(resource.resource);
                    let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                    self.spans.extend(spans.map(|span| ReceivedSpan {
                        service: service.clone(),
                        span,
                    }));
                }
                Ok(0)
            }
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => {
                let request = ExportLogsServiceRequest::decode(message).map_err(io::Error::other)?;
                for resource in request.resource_logs.into_iter().filter(|_| self.status == 0) {
                    let service = service(resource.resource);
                    let records = resource
                        .scope_logs
                        .into_iter()
                        .flat_map(|scope| scope.log_records);
                    self.records.extend(records.map(|record| ReceivedRecord {
                        service: service.clone(),
                        record,
                    }));
                }
                Ok(self.status)
            }
            other => panic!("{other}"),
        }
    }
}

fn service(resource: Option<Resource>) -> String {
    let name = resource.map(|resource| text(&resource.attributes, "service.name"));
    name.flatten().unwrap_or_default()
}

// === impl ReceivedRecord ===

impl ReceivedRecord {
    /// An attribute, as text.
    pub(crate) fn attribute(&self, key: &str) -> Option<String> {
        text(&self.record.attributes, key)
    }

    /// The text of the record.
    pub(crate) fn body(&self) -> &str {
        match self.record.body.as_ref().and_then(|body| body.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        }
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
    kept: Arc<Mutex<Received>>,
    mut is_held: watch::Receiver<bool>,
) -> io::Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>> {
    let path = request.uri().path().to_owned();
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    is_held
        .wait_for(|is_held| !is_held)
        .await
        .map_err(io::Error::other)?;
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let status = kept.take(&path, &body[5..])?;
    drop(kept);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    let frames = [
        Ok(Frame::data(Bytes::from_static(&[0; 5]))),
        Ok(Frame::trailers(trailers)),
    ];
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    Ok(response)
}
