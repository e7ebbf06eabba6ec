//! The floor of hyper and OpenSSL alone, over HTTP/2: a fixed answer to a body that is only received.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use openssl::ssl::{Ssl, SslContext};
use tokio::net::{TcpListener, TcpStream};
use tokio_openssl::SslStream;

use super::floor;

pub(crate) const PORT: u16 = 18_444;

/// Serves with the certificates in the set-up's `folder`.
pub(crate) fn run(folder: &Path) {
    let tls = floor::acceptor(folder).build().into_context();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", PORT))
            .await
            .expect("the port is free");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(serve(stream, tls.clone()));
        }
    });
}

async fn serve(stream: TcpStream, tls: SslContext) {
    stream.set_nodelay(true).expect("a socket option");
    let ssl = Ssl::new(&tls).expect("a session");
    let mut stream = SslStream::new(ssl, stream).expect("a stream");
    if Pin::new(&mut stream).accept().await.is_err() {
        return; // A look whether the port is open.
    }
    let _ended = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(1000)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    std::hint::black_box(&body);
    let mut response = Response::new(Full::new(Bytes::from_static(floor::ANSWER.as_bytes())));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
