//! The load generator: sends the same request to a server over many connections, from
//! core 1.

mod http1;
mod http2;

use std::cell::OnceCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_openssl::SslStream;

use super::options::{Length, Protocol};
use super::server::Server;
use super::setup::Setup;

pub(crate) struct Client {
    connector: SslConnector,
}

/// The result of one turn of sending requests.
pub(crate) struct Measure {
    requests: usize,
    seconds: f64,
    cpu: Duration,
    /// Median latency in microseconds.
    pub(crate) p50: f64,
    /// The latency that one request in a hundred exceeds, in microseconds.
    pub(crate) p99: f64,
    /// The latency that one request in a thousand exceeds, in microseconds.
    pub(crate) p999: f64,
}

/// The end of one turn, which all connections and streams share.
#[derive(Clone)]
pub(crate) enum Turn {
    Until(Instant),
    Left(Arc<AtomicUsize>),
    Due(Arc<Schedule>),
}

/// When each request is due.
pub(crate) struct Schedule {
    begin: Instant,
    end: Instant,
    /// Seconds between two requests.
    distance: f64,
    sent: AtomicUsize,
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

    /// Sends requests until the end of `turn`. Each connection or stream sends the next one as soon as the last is
    /// answered.
    pub(crate) fn measure(
        &self,
        server: &Server,
        path: &str,
        body: &str,
        protocol: Protocol,
        turn: Length,
    ) -> Measure {
        self.run(server, async |begin_of_turn| match protocol {
            Protocol::Http1 { connections } => {
                let request: Arc<str> = http1::request(path, body).into();
                let mut streams = Vec::new();
                for _ in 0..connections {
                    streams.push(self.connect(server.port, b"\x08http/1.1").await);
                }
                let turn = Turn::new(begin_of_turn(), turn);
                let ask = |stream| http1::ask(stream, Arc::clone(&request), turn.clone());
                streams.into_iter().map(ask).map(tokio::spawn).collect()
            }
            Protocol::Http2 { connections, streams } => {
                let request = Arc::new(http2::Request::new(path, body));
                let mut senders = Vec::new();
                for _ in 0..connections {
                    let stream = self.connect(server.port, b"\x02h2").await;
                    let sender = http2::open(stream).await;
                    senders.extend(std::iter::repeat_n(sender, streams));
                }
                let turn = Turn::new(begin_of_turn(), turn);
                let ask = |sender| http2::ask(sender, Arc::clone(&request), turn.clone());
                senders.into_iter().map(ask).map(tokio::spawn).collect()
            }
        })
    }

    /// Sends requests over one connection until the end of `turn`. A latency is the time of all paths, one after
    /// the other.
    pub(crate) fn measure_one_by_one(
        &self,
        server: &Server,
        paths: &[String],
        body: &str,
        turn: Length,
    ) -> Measure {
        let requests: Vec<String> = paths.iter().map(|path| http1::request(path, body)).collect();
        self.run(server, async |begin_of_turn| {
            let stream = self.connect(server.port, b"\x08http/1.1").await;
            let turn = Turn::new(begin_of_turn(), turn);
            vec![tokio::spawn(http1::ask_all(stream, requests, turn))]
        })
    }

    /// Measures the requests that the tasks of `start` send, after it has opened connections and read the clock.
    fn run<F>(&self, server: &Server, start: F) -> Measure
    where
        F: AsyncFnOnce(&dyn Fn() -> Instant) -> Vec<JoinHandle<Vec<u32>>>,
    {
        pin_to_core_1();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let began = OnceCell::new();
            let begin_of_turn = || began.get_or_init(|| (Instant::now(), server.cpu())).0;
            let tasks = start(&begin_of_turn).await;
            // Waking a sleeping processor costs the sender of an answer time, and the faster the server is, the
            // less often this one sleeps. It is kept awake, so that this is not measured.
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
            let (begin, cpu) = began.into_inner().expect("a beginning");
            Measure::new(latencies, begin.elapsed(), server.cpu() - cpu)
        })
    }

    async fn connect(&self, port: u16, protocol: &[u8]) -> SslStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        let mut ssl = self.connector.configure().expect("a session");
        ssl.set_alpn_protos(protocol).expect("a protocol");
        let ssl = ssl.into_ssl("127.0.0.1").expect("a session");
        let mut stream = SslStream::new(ssl, stream).expect("a stream");
        Pin::new(&mut stream).connect().await.expect("a handshake");
        stream
    }
}

fn assert_allowed(text: &[u8]) {
    let allowed = br#""allowed":true"#;
    let is_allowed = text.windows(allowed.len()).any(|window| window == allowed);
    assert!(is_allowed, "not allowed");
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

// === impl Turn ===

impl Turn {
    fn new(begin: Instant, length: Length) -> Self {
        match length {
            Length::Time(time) => Self::Until(begin + time),
            Length::Requests(requests) => Self::Left(Arc::new(AtomicUsize::new(requests))),
            Length::Rate(time, rate) => Self::Due(Arc::new(Schedule {
                begin,
                end: begin + time,
                distance: 1.0 / rate,
                sent: AtomicUsize::new(0),
            })),
        }
    }

    /// Waits until another request is to be sent, and returns the time from which its latency counts; `None` at
    /// the end of the turn. With a schedule that is the time at which it was due, so that the wait for late
    /// answers counts, too (coordinated omission).
    async fn next(&self) -> Option<Instant> {
        match self {
            Self::Until(end) => Some(Instant::now()).filter(|now| now < end),
            Self::Left(left) => left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
                .then(Instant::now),
            Self::Due(schedule) => schedule.next().await,
        }
    }
}

// === impl Schedule ===

impl Schedule {
    async fn next(&self) -> Option<Instant> {
        let place = self.sent.fetch_add(1, Ordering::Relaxed);
        let due = self.begin + Duration::from_secs_f64(self.distance * place as f64);
        if due >= self.end {
            return None;
        }
        // The runtime's timers are a thousand times too coarse.
        while Instant::now() < due {
            tokio::task::yield_now().await;
        }
        Some(due)
    }
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
            p999: at(0.999),
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
            "{:8.0} requests/s, {:5.1} us of processor time, p50 {:5.0} us, p99 {:5.0} us, p99.9 {:5.0} us",
            self.rate(),
            self.cpu_micros(),
            self.p50,
            self.p99,
            self.p999
        )
    }
}
