//! No worker writes where another one does: what two workers write for a review is traced, instruction by
//! instruction (`tests/tracer`). A cache line that both have written would travel between two cores with every
//! review. Decisions are logged, as an administrator would have it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;
use tokio::runtime;

use crate::h2;
use crate::support::process::Process;
use crate::support::{Builder, JANE_GETS, v1};

/// Reviews after which everything that is made once has been made.
const WARM_UP_REVIEWS: usize = 60;

/// Reviews of each worker that are traced until one writes nothing in common. What happens once in many reviews, as
/// a reserve that is taken again, may fall into one of them, and hardly into all.
const MAX_TRACED_REVIEWS: usize = 4;

/// Each cache line that a thread wrote, with the instruction that did so first.
type WrittenLines = BTreeMap<u64, u64>;

/// The tracer knows the instructions of this architecture alone.
#[cfg(target_arch = "x86_64")]
#[test]
fn two_workers_write_no_cache_line_in_common() {
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("not tested: there is one processor, and so one worker");
        return;
    }
    let tracer = built_tracer();
    if !may_trace(&tracer) {
        eprintln!("not tested: this system does not let one process trace another");
        return;
    }
    over_http1(&tracer);
    over_http2(&tracer);
    with_tokens(&tracer);
}

/// Whether a process that is not a parent may trace another: not where `kernel.yama.ptrace_scope` is 1 or more,
/// or a container filters the call.
fn may_trace(tracer: &Path) -> bool {
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let number = other.id().to_string();
    let mut tracing = Command::new(tracer)
        .args([&number, &number])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The line that says that the thread is stopped, or the end.
    let mut line = String::new();
    BufReader::new(tracing.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    for process in [&mut tracing, &mut other] {
        // It may have ended by itself.
        let _ = process.kill();
        process.wait().unwrap();
    }
    !line.is_empty()
}

fn over_http1(tracer: &Path) {
    let process = Builder::new().spawn();
    let [mut first, mut second] = [process.connect(), process.connect()];
    let mut first = || first.authorize(v1(JANE_GETS)).json();
    let mut second = || second.authorize(v1(JANE_GETS)).json();
    assert_none_in_common(tracer, &process, [&mut first, &mut second]);
}

/// The callers have a token instead of a certificate.
fn with_tokens(tracer: &Path) {
    let process = Builder::new().spawn();
    let connect = || process.stranger().connect(process.server);
    let [mut first, mut second] = [connect(), connect()];
    let head =
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer right-token";
    let mut first = || first.request(head, v1(JANE_GETS).as_bytes()).json();
    let mut second = || second.request(head, v1(JANE_GETS).as_bytes()).json();
    assert_none_in_common(tracer, &process, [&mut first, &mut second]);
}

fn over_http2(tracer: &Path) {
    let process = Builder::new().spawn();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let open = || runtime.block_on(h2::Connection::open_as(&process.client(), process.server));
    let (first, second) = (open(), open());
    let ask = |connection: &h2::Connection| {
        let answer = runtime.block_on(connection.authorize(v1(JANE_GETS)));
        answer.unwrap().1
    };
    assert_none_in_common(tracer, &process, [&mut || ask(&first), &mut || ask(&second)]);
}

/// The answer to a review over a connection that is always the same.
type Ask<'a> = &'a mut dyn FnMut() -> Value;

fn assert_none_in_common(tracer: &Path, process: &Process, mut ask: [Ask<'_>; 2]) {
    let workers = ask.each_mut().map(|ask| worker_of(process, *ask));
    assert_ne!(workers[0], workers[1], "each has a connection");
    let mut written = |at: usize| {
        let written = written_for_a_review(tracer, process, workers[at], ask[at]);
        assert!(
            written.len() > 500,
            "a review writes more than {} lines",
            written.len()
        );
        written
    };
    let mut in_common = || -> Vec<_> {
        let (first, second) = (written(0), written(1));
        let in_both = |(line, by)| Some((line, [by, *second.get(&line)?]));
        first.into_iter().filter_map(in_both).collect()
    };
    let mut common = in_common();
    for _ in 1..MAX_TRACED_REVIEWS {
        if common.is_empty() {
            break;
        }
        common = in_common();
    }
    assert!(
        common.is_empty(),
        "{} cache lines are written by both workers:\n{}",
        common.len(),
        described(process, &common)
    );
}

/// The path of the tracer.
fn built_tracer() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tracer/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tracer");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(package)
        .arg("--target-dir")
        .arg(&target)
        .status();
    assert!(built.unwrap().success());
    target.join("debug/portcullis-tracer")
}

/// The thread that has the most to do while this connection asks.
fn worker_of(process: &Process, ask: Ask<'_>) -> i32 {
    let before = running_times(process);
    for _ in 0..WARM_UP_REVIEWS {
        ask();
    }
    let spent = running_times(process).into_iter().map(|(thread, time)| {
        let before = before.get(&thread).copied().unwrap_or_default();
        (time - before, thread)
    });
    spent.max().unwrap().1
}

/// Nanoseconds on a processor, by thread.
fn running_times(process: &Process) -> BTreeMap<i32, u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let time = |thread: fs::DirEntry| {
        let times = fs::read_to_string(thread.path().join("schedstat")).unwrap();
        let number = thread.file_name().into_string().unwrap();
        let time = times.split(' ').next().unwrap().parse().unwrap();
        (number.parse().unwrap(), time)
    };
    threads.map(|thread| time(thread.unwrap())).collect()
}

fn written_for_a_review(tracer: &Path, process: &Process, worker: i32, ask: Ask<'_>) -> WrittenLines {
    let mut tracer = Command::new(tracer)
        .args([process.id().to_string(), worker.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "", "the thread is stopped");
    assert_eq!(ask()["status"]["allowed"], true);
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let written = lines.map(|line| {
        let line = line.unwrap();
        let (line, instruction) = line.split_once(' ').unwrap();
        (number(line), number(instruction))
    });
    let written = written.collect();
    assert!(tracer.wait().unwrap().success());
    written
}

/// The lines with the functions that wrote them, as far as `nm` knows them.
fn described(process: &Process, lines: &[(u64, [u64; 2])]) -> String {
    let symbols = symbols(process);
    let name = |address: &u64| {
        let symbol = symbols.range(..=address).next_back();
        symbol.map_or_else(|| format!("{address:#x}"), |(_, name)| name.clone())
    };
    let written = lines.iter().map(|(line, by)| {
        let by: BTreeSet<_> = by.iter().map(name).collect();
        format!("{line:#x}: {}", Vec::from_iter(by).join(" and "))
    });
    written.collect::<Vec<_>>().join("\n")
}

fn symbols(process: &Process) -> BTreeMap<u64, String> {
    let program = env!("CARGO_BIN_EXE_portcullis");
    let mappings = fs::read_to_string(format!("/proc/{}/maps", process.id())).unwrap();
    let base = mappings.lines().find(|line| line.ends_with(program));
    let base = base.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
    let Ok(listed) = Command::new("nm").args(["-C", program]).output() else {
        return BTreeMap::new();
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let symbol = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()? + base?;
        Some((address, rest.split_once(' ')?.1.to_owned()))
    };
    listed.lines().filter_map(symbol).collect()
}
