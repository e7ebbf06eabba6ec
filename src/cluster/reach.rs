//! The state that the watches of one API server share: the connection, of which only one attempt is
//! made at a time while it fails; the rate limit, so that an API server whose lists or events never
//! end leaves the processors to the others; and whose turn it is to compile expressions. Also the
//! gateway's own user name, according to its credentials.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::nid::Nid;
use openssl::x509::X509;
use serde::Deserialize;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::block_in_place;

use super::bounded::NegotiatedProtocol;
use super::reporter::Reporter;
use super::requests::{ApiRequest, ApiServer, JSON};
use crate::config::kubeconfig::client::{ClientUser, Context};

/// The minimum and the maximum wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// After this time without a failure, the next one counts as the first.
const BACKOFF_RESET_TIME: Duration = Duration::from_secs(60);

/// The request that checks whether the API server can be reached.
const VERSION: ApiRequest<'_> = ApiRequest::get("/version", JSON);
const MAX_VERSION_BYTES: usize = 64 << 10;

/// The connection to an API server, which its watches share.
///
/// When one of them finds that the API server cannot be reached, all of them wait, and one of them
/// tries again for all, each time after a longer wait. The first request is also made alone, so
/// that the others can reuse its connection.
pub(crate) struct ApiServerConnection {
    server: ApiServer,
    protocol: NegotiatedProtocol,
    pace: ByteRateLimiter,
    reporter: Reporter,
    /// Locked by the watch that makes the attempt.
    attempt: Mutex<()>,
    compile_turn: CompileTurn,
    /// The number of consecutive failed attempts.
    failures: AtomicU32,
}

/// How often something failed recently.
#[derive(Debug, Default)]
pub(crate) struct RecentFailures {
    count: u32,
    last: Option<Instant>,
}

// === impl ApiServerConnection ===

impl ApiServerConnection {
    pub(crate) fn new(server: ApiServer, protocol: NegotiatedProtocol, reporter: Reporter) -> Self {
        Self {
            server,
            protocol,
            pace: ByteRateLimiter::new(Instant::now()),
            reporter,
            attempt: Mutex::default(),
            compile_turn: CompileTurn::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(crate) const fn server(&self) -> &ApiServer {
        &self.server
    }

    /// The lock for compiling expressions of the cluster.
    pub(crate) const fn compile_turn(&self) -> &CompileTurn {
        &self.compile_turn
    }

    /// The timeout that watches request.
    pub(crate) fn watch(&self) -> Duration {
        self.protocol.watch_timeout()
    }

    /// Waits after an object of this many bytes if the rate limit is exceeded.
    pub(crate) async fn pace(&self, bytes: usize) {
        let delay = self.pace.delay(bytes, Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Notes that the API server could not be reached.
    pub(crate) fn lost(&self) {
        self.failures.fetch_max(1, Ordering::Relaxed);
    }

    /// Waits until no other watch is connecting, and the API server responds. No other attempt
    /// begins while the returned guard is held.
    pub(crate) async fn wait_until_reachable(&self) -> MutexGuard<'_, ()> {
        let turn = self.attempt.lock().await;
        loop {
            let failures = self.failures.load(Ordering::Relaxed);
            let Some(before) = failures.checked_sub(1) else {
                return turn;
            };
            tokio::time::sleep(wait(before)).await;
            match self.server.ask(&VERSION, MAX_VERSION_BYTES).await {
                // Any response shows that the API server can be reached.
                Err(error) if !error.is_answer() => {
                    self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
                    self.reporter.unreachable(&error.to_string(), Instant::now());
                }
                _ => self.failures.store(0, Ordering::Relaxed),
            }
        }
    }
}

// === impl RecentFailures ===

impl RecentFailures {
    /// Counts a failure at `now`. Returns how long to wait.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        if self
            .last
            .is_none_or(|last| now.duration_since(last) >= BACKOFF_RESET_TIME)
        {
            self.count = 0;
        }
        self.last = Some(now);
        let wait = wait(self.count);
        self.count = self.count.saturating_add(1);
        wait
    }
}

/// How long to wait after this many earlier failures: longer each time.
fn wait(failures: u32) -> Duration {
    let (shortest, longest) = BACKOFF;
    shortest.saturating_mul(1 << failures.min(10)).min(longest)
}

#[derive(Deserialize)]
struct TokenClaims {
    sub: String,
}

/// The user name in the credentials of `context`: the common name of the certificate, the subject
/// of the token, or the user name of the password. `None` if only the API server knows it, for
/// example for an opaque token.
pub(crate) fn user_of_context(context: &Context) -> Option<String> {
    let user = context.user.as_ref()?;
    // In the order in which an API server tries them.
    of_certificate(user).or_else(|| of_password_or_token(user))
}

fn of_certificate(user: &ClientUser) -> Option<String> {
    let certificate = X509::from_pem(&user.certificate.as_ref()?.certificate).ok()?;
    let mut names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    names.next()?.data().to_string().ok()
}

fn of_password_or_token(user: &ClientUser) -> Option<String> {
    let Some(bearer) = &user.bearer else {
        return Some(user.basic.as_ref()?.username.clone());
    };
    let payload = bearer.token.reveal().split(|byte| *byte == b'.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let TokenClaims { sub } = serde_json::from_slice(&payload).ok()?;
    Some(sub)
}

/// The maximum burst, in bytes: 100,000 bindings.
const BURST_BYTES: f64 = 512.0 * 1_048_576.0;

/// The rate after a burst.
const BYTES_PER_SECOND: f64 = 16.0 * 1_048_576.0;

/// The cost of an object in addition to its bytes.
const OBJECT_OVERHEAD_BYTES: f64 = 4_096.0;

/// Limits the bytes per second that are read from a cluster, with a burst (a token bucket).
#[derive(Debug)]
pub(crate) struct ByteRateLimiter(std::sync::Mutex<PaceState>);

#[derive(Debug)]
struct PaceState {
    left: f64,
    /// When `left` was computed.
    at: Instant,
}

impl ByteRateLimiter {
    pub(crate) const fn new(now: Instant) -> Self {
        Self(std::sync::Mutex::new(PaceState {
            left: BURST_BYTES,
            at: now,
        }))
    }

    /// How long to wait after an object of this many bytes that arrived at `now`.
    #[expect(clippy::cast_precision_loss, reason = "no object has 2^52 bytes")]
    pub(crate) fn delay(&self, bytes: usize, now: Instant) -> Duration {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        state.left =
            (state.left + passed * BYTES_PER_SECOND).min(BURST_BYTES) - OBJECT_OVERHEAD_BYTES - bytes as f64;
        state.at = now;
        Duration::from_secs_f64((-state.left / BYTES_PER_SECOND).max(0.0))
    }
}

/// Runs the compilation of one cluster's expressions, one kind after another, on a thread that no
/// other cluster needs, so that clusters do not delay each other.
#[derive(Debug, Default)]
pub(crate) struct CompileTurn(Mutex<()>);

impl CompileTurn {
    /// Runs `compile`, which blocks, when it is its turn.
    pub(crate) async fn run<T>(&self, compile: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().await;
        block_in_place(compile)
    }
}

#[cfg(test)]
impl CompileTurn {
    /// Takes the turn, as a compilation does.
    pub(crate) async fn begin(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

#[cfg(test)]
mod tests {
    mod compile_turn;

    use std::path::Path;

    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::x509::X509NameBuilder;

    use super::*;
    use crate::config::Disk;
    use crate::config::kubeconfig::client::of_context as read;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let waits: Vec<u128> = (0..8).map(|failures| wait(failures).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(wait(u32::MAX).as_millis(), 10_000);
    }

    #[test]
    fn waits_are_short_again_after_a_calm_time() {
        let mut failures = RecentFailures::default();
        let start = Instant::now();
        let mut wait_at = |seconds| failures.wait(start + Duration::from_secs(seconds)).as_millis();
        assert_eq!([0, 1, 50].map(&mut wait_at), [250, 500, 1000]);
        assert_eq!([110, 169, 170].map(&mut wait_at), [250, 500, 1000]);
    }

    /// The user name of a kubeconfig whose user has this field.
    fn own_user(user: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://localhost'}}}}]
users: [{{name: u, user: {{{user}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"
        );
        std::fs::write(&path, text).unwrap();
        user_of_context(&context(&path))
    }

    fn context(path: &Path) -> Context {
        let (context, _, faults) = read(&Disk, path);
        context.unwrap_or_else(|| panic!("{faults}"))
    }

    /// A certificate and key, as PEM in base64.
    fn identity(name: &str) -> [String; 2] {
        let key = PKey::ec_gen("P-256").unwrap();
        let mut subject = X509NameBuilder::new().unwrap();
        subject.append_entry_by_text("O", "system:masters").unwrap();
        subject.append_entry_by_text("CN", name).unwrap();
        let mut certificate = X509::builder().unwrap();
        certificate.set_subject_name(&subject.build()).unwrap();
        certificate.set_pubkey(&key).unwrap();
        let [begin, end] = [0, 1].map(|days| Asn1Time::days_from_now(days).unwrap());
        certificate.set_not_before(&begin).unwrap();
        certificate.set_not_after(&end).unwrap();
        certificate.sign(&key, MessageDigest::sha256()).unwrap();
        let pem = [
            certificate.build().to_pem().unwrap(),
            key.private_key_to_pem_pkcs8().unwrap(),
        ];
        pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem))
    }

    #[test]
    fn the_credentials_name_the_user() {
        let payload =
            URL_SAFE_NO_PAD.encode(r#"{"sub":"system:serviceaccount:portcullis:gateway","aud":["a"]}"#);
        let [certificate, key] = identity("gateway");
        for (user, expected) in [
            (
                format!("client-certificate-data: {certificate}, client-key-data: {key}"),
                Some("gateway"),
            ),
            (
                format!("token: e30.{payload}.c2ln"),
                Some("system:serviceaccount:portcullis:gateway"),
            ),
            ("username: joe, password: secret".to_owned(), Some("joe")),
            ("token: opaque".to_owned(), None),
            ("token: a.b.c".to_owned(), None),
        ] {
            assert_eq!(own_user(&user).as_deref(), expected, "{user}");
        }
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn what_comes_beyond_the_burst_is_delayed() {
        let start = Instant::now();
        let pace = ByteRateLimiter::new(start);
        let mut at = start;
        let mut taken = |mib: usize| {
            for _ in 0..mib {
                at += pace.delay(MIB - 4_096, at);
            }
            at.duration_since(start).as_secs_f64().round()
        };
        assert_eq!([512, 160, 320].map(&mut taken), [0.0, 10.0, 30.0]);
    }

    #[test]
    fn small_objects_are_delayed_by_their_number_and_a_pause_makes_up_for_it() {
        let start = Instant::now();
        let pace = ByteRateLimiter::new(start);
        let delays = (0..140_000).map(|_| pace.delay(0, start));
        assert!(delays.last().is_some_and(|last| last > Duration::from_secs(2)));
        assert_eq!(pace.delay(0, start + Duration::from_secs(60)), Duration::ZERO);
    }
}
