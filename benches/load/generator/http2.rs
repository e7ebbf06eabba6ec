//! HTTP/2: many streams on a connection, as an API server has them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::StatusCode;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use super::Turn;

/// What is asked, over and over.
pub(super) struct Request {
    head: http::Request<()>,
    body: Bytes,
}

// === impl Request ===

impl Request {
    /// As an API server sends it.
    pub(super) fn new(path: &str, body: &str) -> Self {
        let head = http::Request::post(format!("https://127.0.0.1{path}"))
            .header("user-agent", "kube-apiserver-admission")
            .header("content-length", body.len())
            .header("accept", "application/json, */*")
            .header("content-type", "application/json")
            .header("accept-encoding", "gzip")
            .body(())
            .expect("a request");
        Self {
            head,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }
}

/// Begins HTTP/2 on a connection.
pub(super) async fn open(stream: SslStream<TcpStream>) -> SendRequest<Bytes> {
    let (sender, connection) = client::Builder::new()
        .initial_window_size(4 << 20)
        .initial_connection_window_size(1 << 30)
        .handshake(stream)
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// Asks over one stream after the other for a turn; the latency of each answer in
/// microseconds.
pub(super) async fn ask(mut sender: SendRequest<Bytes>, request: Arc<Request>, turn: Turn) -> Vec<u32> {
    let mut latencies = Vec::with_capacity(1 << 16);
    while let Some(begin) = turn.next().await {
        sender = sender.ready().await.expect("a stream");
        answer(&mut sender, &request).await;
        latencies.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    latencies
}

/// One answer, which must be a granted 200.
async fn answer(sender: &mut SendRequest<Bytes>, request: &Request) {
    let (response, mut stream) = sender
        .send_request(request.head.clone(), false)
        .expect("a stream");
    let mut rest = request.body.clone();
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let room = room.expect("an open stream").expect("room");
        let part = rest.split_to(room.min(rest.len()));
        stream.send_data(part, rest.is_empty()).expect("the server reads");
    }
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut text = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.expect("a body");
        let _released = body.flow_control().release_capacity(chunk.len());
        text.extend_from_slice(&chunk);
    }
    super::assert_allowed(&text);
}
