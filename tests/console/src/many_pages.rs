//! Fifty open pages beside reviews: no review is lost, every page shows the newest decision,
//! and what the pages cost is printed.
//!
//! Half of the pages are Live, which is sent what is new; half are Now, which asks for its figures
//! every ten seconds. With a release build in `PORTCULLIS_PROGRAM` the figures are those of users.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::chromium;
use crate::harness::client::Client;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::{eventually, ports, reviews};

/// Of each of the two kinds.
const PAGES: usize = 25;

/// Reviews that are sent while the pages are open, and as many before.
const REVIEWS: u32 = 1000;

/// From one review to the next.
const PACE: Duration = Duration::from_millis(10);

/// How often Now asks, as `src/console/assets/charts.js` has it.
const NOW: Duration = Duration::from_secs(10);

/// A page that the gateway takes for open.
struct OpenPage {
    thread: JoinHandle<()>,
    /// The last decision that it heard of, for Live; answers, for Now.
    heard: Arc<AtomicU64>,
}

/// What the gateway used, and how long reviews took.
struct Round {
    /// Processor seconds a second.
    processor: f64,
    /// MiB that are resident at its end.
    memory: f64,
    /// Of each review, the shortest first.
    latencies: Vec<Duration>,
}

impl OpenPage {
    /// Live: reads its stream until `stop`.
    fn live(console: SocketAddr, stop: &Arc<AtomicBool>) -> Self {
        let mut stream = TcpStream::connect(console).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        write!(stream, "GET /live/events HTTP/1.1\r\nHost: {console}\r\n\r\n").unwrap();
        Self::start(stop, move |heard| {
            let (mut buffer, mut text) = (vec![0; 64 << 10], Vec::new());
            match stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => text.extend_from_slice(&buffer[..length]),
                Err(_) => {}
            }
            let ids = String::from_utf8_lossy(&text);
            let ids = ids.lines().filter_map(|line| line.strip_prefix("id: "));
            if let Some(id) = ids.filter_map(|id| id.parse().ok()).next_back() {
                heard.store(id, Ordering::Relaxed);
            }
            true
        })
    }

    /// Now: asks for its figures until `stop`; the pages one after another.
    fn now(number: usize, console: SocketAddr, stop: &Arc<AtomicBool>) -> Self {
        let client = Client::http(console).with_header("Accept", "application/json");
        let mut due = Instant::now() + NOW * u32::try_from(number).unwrap() / u32::try_from(PAGES).unwrap();
        Self::start(stop, move |heard| {
            sleep(Duration::from_millis(50));
            if Instant::now() >= due {
                due += NOW;
                assert_eq!(client.get("/").unwrap().status, 200);
                heard.fetch_add(1, Ordering::Relaxed);
            }
            true
        })
    }

    fn start(stop: &Arc<AtomicBool>, mut step: impl FnMut(&AtomicU64) -> bool + Send + 'static) -> Self {
        let heard = Arc::new(AtomicU64::new(0));
        let (told, stop) = (Arc::clone(&heard), Arc::clone(stop));
        let thread = thread::spawn(move || while !stop.load(Ordering::Relaxed) && step(&told) {});
        Self { thread, heard }
    }
}

impl Round {
    /// Sends every review at its time, whether or not earlier ones took long.
    fn run(gateway: &Running, connection: &mut impl Connection) -> Self {
        let before = gateway.processor_seconds();
        let (start, mut latencies) = (Instant::now(), Vec::new());
        for number in 0..REVIEWS {
            let due = start + PACE * number;
            sleep(due.saturating_duration_since(Instant::now()));
            let review = reviews::authorization(&json!({
                "user": format!("user-{}", number % 50),
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shop"},
            }));
            assert_eq!(connection.ask(&review.to_string()).unwrap(), 200);
            latencies.push(due.elapsed());
        }
        let took = start.elapsed().as_secs_f64();
        latencies.sort();
        Self {
            processor: (gateway.processor_seconds() - before) / took,
            memory: gateway.resident_mebibytes(),
            latencies,
        }
    }

    /// The time that so many of a hundred reviews took at most.
    fn quantile(&self, of_hundred: usize) -> Duration {
        self.latencies[self.latencies.len() * of_hundred / 100]
    }
}

/// The process of a gateway, by its entry in `/proc`.
struct Running(PathBuf);

impl Running {
    /// The one that serves with the configuration of this folder.
    fn find(folder: &Path) -> Self {
        let config = folder.join("portcullis.yaml");
        let config = config.to_str().unwrap().as_bytes();
        let is_it = |process: &Path| {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.next().is_some_and(|word| word.ends_with(b"portcullis")) && words.any(|word| word == config)
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let mut processes = processes.map(|entry| entry.unwrap().path());
        Self(processes.find(|process| is_it(process)).unwrap())
    }

    /// What it has used, to a hundredth; the metric has whole seconds.
    fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(self.0.join("stat")).unwrap();
        // After the name, which may hold anything: fields 3 and so on, of which 14 and 15 are times.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
        (ticks(14) + ticks(15)) / 100.0
    }

    fn resident_mebibytes(&self) -> f64 {
        let status = std::fs::read_to_string(self.0.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
        kibibytes.parse::<f64>().unwrap() / 1024.0
    }
}

/// A connection that is kept open, as an API server's is.
trait Connection {
    /// Sends a review; the status of the answer.
    fn ask(&mut self, review: &str) -> io::Result<u16>;
}

impl<S: io::Read + io::Write> Connection for BufReader<S> {
    fn ask(&mut self, review: &str) -> io::Result<u16> {
        let head = "POST /authorize HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{review}", review.len());
        self.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length) = (0, 0);
        for number in 0.. {
            let mut line = String::new();
            self.read_line(&mut line)?;
            let line = line.trim_end();
            if number == 0 {
                status = line
                    .split(' ')
                    .nth(1)
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0);
            } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.parse().unwrap_or(0);
            } else if line.is_empty() {
                break;
            }
        }
        self.read_exact(&mut vec![0; length])?;
        Ok(status)
    }
}

#[test]
fn fifty_open_pages_lose_no_review_and_come_to_the_newest_decision() {
    if std::env::var_os("PORTCULLIS_PROGRAM").is_none() {
        return chromium::not_run("no built program in PORTCULLIS_PROGRAM; run `just console`");
    }
    let folder = Folder::new("many-pages");
    let (keys, console) = (Keys::new(), ports::free());
    let gateway = Gateway::start(&Setup {
        folder: folder.path(),
        address: ports::free(),
        keys: &keys,
        callers: Vec::new(),
        manifests: &[],
        more: json!({"console": {"address": console.to_string()}}),
    });
    let mut connection = BufReader::new(gateway.client().connect().unwrap());
    let process = Running::find(folder.path());
    Round::run(&process, &mut connection);
    let without = Round::run(&process, &mut connection);

    let stop = Arc::new(AtomicBool::new(false));
    let live: Vec<_> = (0..PAGES).map(|_| OpenPage::live(console, &stop)).collect();
    let now: Vec<_> = (0..PAGES)
        .map(|number| OpenPage::now(number, console, &stop))
        .collect();
    let with = Round::run(&process, &mut connection);
    let decisions = u64::from(3 * REVIEWS);
    let all_heard = || {
        live.iter()
            .all(|page| page.heard.load(Ordering::Relaxed) == decisions)
    };
    let heard: Vec<_> = live.iter().map(|page| Arc::clone(&page.heard)).collect();
    assert!(eventually(all_heard), "of {decisions}: {heard:?}");
    stop.store(true, Ordering::Relaxed);
    for page in live.into_iter().chain(now) {
        page.thread.join().unwrap();
    }
    eprintln!(
        "{} open pages beside {:.0} reviews a second: {:.4} of a core ({:.4} with them, {:.4} without), \
         {:.1} MiB; reviews p50 {:?} (without {:?}), p99 {:?} ({:?}), longest {:?} ({:?})",
        2 * PAGES,
        1.0 / PACE.as_secs_f64(),
        with.processor - without.processor,
        with.processor,
        without.processor,
        with.memory - without.memory,
        with.quantile(50),
        without.quantile(50),
        with.quantile(99),
        without.quantile(99),
        with.latencies.last().unwrap(),
        without.latencies.last().unwrap(),
    );
}
