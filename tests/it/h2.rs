//! HTTP/2, as the API server's authorization client speaks it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use openssl::ssl::SslContextBuilder;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinHandle;
use tokio_openssl::SslStream;

use crate::support::{Builder, Client, Gateway, JANE_GETS, get, v1};

/// A connection that speaks HTTP/2.
pub(crate) struct Connection {
    send: SendRequest<bytes::Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

impl Connection {
    pub(crate) async fn open(gateway: &Gateway) -> Self {
        Self::open_as(&gateway.client(), gateway.addresses.server).await
    }

    /// A connection of this client.
    pub(crate) async fn open_as(client: &Client<'_>, address: SocketAddr) -> Self {
        Self::open_with(&h2::client::Builder::new(), client, address).await
    }

    /// The same with settings of its own.
    async fn open_with(settings: &h2::client::Builder, client: &Client<'_>, address: SocketAddr) -> Self {
        let offer = |client: &mut SslContextBuilder| client.set_alpn_protos(b"\x02h2").unwrap();
        let connector = client.connector(offer);
        let ssl = connector.configure().unwrap().into_ssl("localhost").unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut stream = SslStream::new(ssl, tcp).unwrap();
        Pin::new(&mut stream).connect().await.unwrap();
        assert_eq!(stream.ssl().selected_alpn_protocol(), Some(&b"h2"[..]));
        let (send, connection) = settings.handshake(stream).await.unwrap();
        Self {
            send,
            driver: tokio::spawn(connection),
        }
    }

    /// POSTs a question about access; the status and the body.
    pub(crate) async fn authorize(&self, body: String) -> Result<(u16, Value), h2::Error> {
        self.post("/authorize?timeout=3s", body).await
    }

    /// POSTs a review; the status and the body.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<(u16, Value), h2::Error> {
        let (response, mut stream) = self.begin(path).await?;
        stream.send_data(body.into(), true)?;
        Self::end(response).await
    }

    /// Begins a POST whose body is still to come.
    pub(crate) async fn begin(
        &self,
        path: &str,
    ) -> Result<(ResponseFuture, SendStream<bytes::Bytes>), h2::Error> {
        self.begin_as(path, None).await
    }

    /// The same as the caller with this token.
    pub(crate) async fn begin_as(
        &self,
        path: &str,
        token: Option<&str>,
    ) -> Result<(ResponseFuture, SendStream<bytes::Bytes>), h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let mut request =
            Request::post(format!("https://localhost{path}")).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        send.send_request(request.body(()).unwrap(), false)
    }

    /// The answer's status and body.
    pub(crate) async fn end(response: ResponseFuture) -> Result<(u16, Value), h2::Error> {
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

#[test]
fn answers_that_a_client_makes_no_room_for_count_until_it_gives_them_up() {
    let gateway = Builder::new()
        .limits("{bodyBytes: 2000, inFlightBytes: 4000}")
        .start();
    block_on(async {
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(0);
        let deaf = Connection::open_with(&settings, &gateway.client(), gateway.addresses.server).await;
        let (mut unread, mut refused) = (Vec::new(), 0);
        for _ in 0..800 {
            let (response, mut stream) = deaf.begin("/authorize?timeout=3s").await.unwrap();
            stream.send_data(v1(JANE_GETS).into(), true).unwrap();
            let head = response.await.unwrap();
            refused += usize::from(head.status() == 429);
            unread.push(head);
        }
        // Some 8 KiB each, of 4 MiB.
        assert!((200..500).contains(&refused), "{refused} of {}", unread.len());
        let reading = Connection::open(&gateway).await;
        assert_eq!(reading.authorize(v1(JANE_GETS)).await.unwrap().0, 429);
        drop(unread);
        let mut status = 429;
        for _ in 0..1_000 {
            status = reading.authorize(v1(JANE_GETS)).await.unwrap().0;
            if status == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(status, 200);
    });
}

#[test]
fn while_draining_open_streams_are_answered_and_new_ones_sent_elsewhere() {
    let mut gateway = Gateway::usual();
    block_on(async {
        let (idle, busy) = (Connection::open(&gateway).await, Connection::open(&gateway).await);
        assert_eq!(idle.authorize(v1(JANE_GETS)).await.unwrap().0, 200);
        let (response, mut stream) = busy.begin("/authorize?timeout=30s").await.unwrap();
        let metric = r#"portcullis_in_flight_requests{endpoint="authorize"}"#;
        until("it is in flight", || gateway.metric(metric) == 1.0).await;
        gateway.stop();
        until("readiness fails", || {
            get(gateway.addresses.admin, "/readyz").0 == 503
        })
        .await;
        let refused = loop {
            match idle.authorize(v1(JANE_GETS)).await {
                Ok((status, _)) => assert_eq!(status, 200, "until GOAWAY is there"),
                Err(error) => break error,
            }
        };
        assert_eq!(
            (refused.is_go_away(), refused.reason()),
            (true, Some(h2::Reason::NO_ERROR))
        );
        stream.send_data(v1(JANE_GETS).into(), true).unwrap();
        assert_eq!(Connection::end(response).await.unwrap().0, 200);
        drop((busy.send, idle.send));
        // Both are closed: politely, unless this machine is too busy for that within a second.
        let _politely = idle.driver.await.unwrap();
        let _politely = busy.driver.await.unwrap();
    });
    gateway.join();
}

/// Waits for something that must happen, and lets connections work meanwhile.
pub(crate) async fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !happens() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
