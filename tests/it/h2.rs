//! HTTP/2, as the API server's authorization client speaks it.

use std::pin::Pin;

use h2::client::SendRequest;
use http::Request;
use openssl::ssl::SslContextBuilder;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinHandle;
use tokio_openssl::SslStream;

use crate::support::{Gateway, JANE_GETS, v1};

/// A connection that speaks HTTP/2.
struct Connection {
    send: SendRequest<bytes::Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

impl Connection {
    async fn open(gateway: &Gateway) -> Self {
        let offer = |client: &mut SslContextBuilder| client.set_alpn_protos(b"\x02h2").unwrap();
        let connector = gateway.client().connector(offer);
        let ssl = connector.configure().unwrap().into_ssl("localhost").unwrap();
        let tcp = TcpStream::connect(gateway.addresses.server).await.unwrap();
        let mut stream = SslStream::new(ssl, tcp).unwrap();
        Pin::new(&mut stream).connect().await.unwrap();
        assert_eq!(stream.ssl().selected_alpn_protocol(), Some(&b"h2"[..]));
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        Self {
            send,
            driver: tokio::spawn(connection),
        }
    }

    /// POSTs a review; the status and the body.
    async fn authorize(&self, body: String) -> Result<(u16, Value), h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let request = Request::post("https://localhost/authorize?timeout=3s")
            .header("content-type", "application/json")
            .body(())
            .unwrap();
        let (response, mut stream) = send.send_request(request, false)?;
        stream.send_data(body.into(), true)?;
        let response = response.await?;
        assert!(response.headers().get("connection").is_none());
        let (status, mut body, mut bytes) = (response.status(), response.into_body(), Vec::new());
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            bytes.extend_from_slice(&chunk);
        }
        Ok((status.as_u16(), serde_json::from_slice(&bytes).unwrap()))
    }
}

#[test]
fn many_streams_of_one_connection_are_answered() {
    let gateway = Gateway::usual();
    block_on(async {
        let connection = Connection::open(&gateway).await;
        let answers = (0..200).map(|_| connection.authorize(v1(JANE_GETS)));
        for answer in futures_util::future::join_all(answers).await {
            let (status, review) = answer.unwrap();
            assert_eq!((status, &review["status"]["allowed"]), (200, &Value::Bool(true)));
        }
        let (status, body) = connection.authorize("{".to_owned()).await.unwrap();
        assert_eq!((status, &body["kind"]), (400, &Value::from("Status")));
    });
}

#[test]
fn a_body_larger_than_a_window_arrives() {
    let gateway = Gateway::usual();
    let path = "x".repeat(3 << 20);
    let body = v1(&format!(
        r#"{{"user":"joe","nonResourceAttributes":{{"verb":"get","path":"/{path}"}}}}"#
    ));
    block_on(async {
        let connection = Connection::open(&gateway).await;
        let (status, review) = connection.authorize(body).await.unwrap();
        assert_eq!((status, &review["status"]["allowed"]), (200, &Value::Bool(false)));
    });
}
