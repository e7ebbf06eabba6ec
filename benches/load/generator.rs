//! The load generator: sends the same request to a server over many connections, from
//! core 1.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use super::server::Server;
use super::setup::Setup;

const CONNECTIONS: usize = 32;

pub(crate) struct Client {
    connector: SslConnector,
}

/// One turn of asking.
pub(crate) struct Measure {
    requests: usize,
    seconds: f64,
    cpu: Duration,
    /// Median latency in microseconds.
    pub(crate) p50: f64,
    /// The latency that one request in a hundred exceeds, in microseconds.
    pub(crate) p99: f64,
}

impl Client {
    pub(crate) fn new(setup: &Setup) -> Self {
        let (certificate, key) = setup.client();
        let ca = std::fs::read(setup.path("pki/ca.crt")).expect("the CA");
        let mut builder = SslConnector::builder(SslMethod::tls_client()).expect("a connector");
        builder
            .set_certificate(&X509::from_pem(&certificate).expect("a certificate"))
            .expect("it fits");
        builder
            .set_private_key(&PKey::private_key_from_pem(&key).expect("a key"))
            .expect("its key");
        builder
            .cert_store_mut()
            .add_cert(X509::from_pem(&ca).expect("a CA"))
            .expect("a store");
        builder.set_verify(SslVerifyMode::PEER);
        builder.set_read_ahead(true);
        Self {
            connector: builder.build(),
        }
    }

    /// Asks for as long as `turn`, each connection as fast as it is answered.
    pub(crate) fn measure(&self, server: &Server, path: &str, body: &str, turn: Duration) -> Measure {
        let request: Arc<str> = request(path, body).into();
        pin_to_core_1();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut streams = Vec::new();
            for _ in 0..CONNECTIONS {
                streams.push(self.connect(server.port).await);
            }
            let cpu = server.cpu();
            let begin = Instant::now();
            let tasks: Vec<_> = streams
                .into_iter()
                .map(|stream| tokio::spawn(ask(stream, Arc::clone(&request), begin + turn)))
                .collect();
            // A processor that sleeps is woken at the cost of whoever answers: the
            // faster the server, the less. So that this is not measured, this one stays awake.
            let awake = tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
            let mut latencies = Vec::new();
            for task in tasks {
                latencies.extend(task.await.expect("a connection that ends well"));
            }
            awake.abort();
            Measure::new(latencies, begin.elapsed(), server.cpu() - cpu)
        })
    }

    /// Asks over one connection, for as long as `turn`; a latency is that of all
    /// paths, one after the other.
    pub(crate) fn measure_one_by_one(
        &self,
        server: &Server,
        paths: &[String],
        body: &str,
        turn: Duration,
    ) -> Measure {
        let requests: Vec<String> = paths.iter().map(|path| request(path, body)).collect();
        pin_to_core_1();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut stream = self.connect(server.port).await;
            let cpu = server.cpu();
            let begin = Instant::now();
            let latencies = ask_all(&mut stream, &requests, begin + turn).await;
            Measure::new(latencies, begin.elapsed(), server.cpu() - cpu)
        })
    }

    async fn connect(&self, port: u16) -> SslStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        let ssl = self
            .connector
            .configure()
            .and_then(|ssl| ssl.into_ssl("127.0.0.1"))
            .expect("a session");
        let mut stream = SslStream::new(ssl, stream).expect("a stream");
        Pin::new(&mut stream).connect().await.expect("a handshake");
        stream
    }
}

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n\
         Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
         Accept-Encoding: gzip\r\n\r\n{body}",
        body.len()
    )
}

/// Asks over one connection until `end`; the latency of each answer in microseconds.
async fn ask(mut stream: SslStream<TcpStream>, request: Arc<str>, end: Instant) -> Vec<u32> {
    ask_all(&mut stream, &[request.as_ref()], end).await
}

async fn ask_all(stream: &mut SslStream<TcpStream>, requests: &[impl AsRef<str>], end: Instant) -> Vec<u32> {
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut buffer = vec![0; 16 << 10];
    while Instant::now() < end {
        let begin = Instant::now();
        for request in requests {
            stream
                .write_all(request.as_ref().as_bytes())
                .await
                .expect("the server reads");
            answer(stream, &mut buffer).await;
        }
        latencies.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    latencies
}

/// Reads one answer, which must be a granted 200.
async fn answer(stream: &mut SslStream<TcpStream>, buffer: &mut [u8]) {
    let mut length = 0;
    loop {
        let read = stream.read(&mut buffer[length..]).await.expect("an answer");
        assert!(read > 0, "the server hung up");
        length += read;
        let text = &buffer[..length];
        if is_whole(text) {
            assert!(
                text.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(text)
            );
            let allowed = br#""allowed":true"#;
            let is_allowed = text.windows(allowed.len()).any(|window| window == allowed);
            assert!(is_allowed, "not allowed");
            return;
        }
    }
}

/// Whether the head and all of the body that it announces are there.
fn is_whole(text: &[u8]) -> bool {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n");
    head.is_some_and(|head| text.len() >= head + 4 + content_length(&text[..head]))
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).expect("a head in ASCII");
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    value
        .and_then(|value| value.parse().ok())
        .expect("a content-length")
}

fn pin_to_core_1() {
    let pid = std::process::id().to_string();
    let pinned = std::process::Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", "1", &pid])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(
        pinned.is_ok_and(|status| status.success()),
        "two cores are needed, and taskset (util-linux)"
    );
}

// === impl Measure ===

impl Measure {
    fn new(mut latencies: Vec<u32>, elapsed: Duration, cpu: Duration) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            latencies.get(index).copied().map_or(f64::NAN, f64::from)
        };
        Self {
            requests: latencies.len(),
            seconds: elapsed.as_secs_f64(),
            cpu,
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The server's processor time for a request, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:8.0} requests/s, {:5.1} us of processor time, p50 {:5.0} us, p99 {:5.0} us",
            self.rate(),
            self.cpu_micros(),
            self.p50,
            self.p99
        )
    }
}
