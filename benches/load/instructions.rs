//! Counts the instructions that each server takes for a review, by callgrind of valgrind. Time is not measured,
//! and the kernel not counted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::floor_program::FloorProgram;
use super::generator::Client;
use super::options::{Length, Options, Protocol};
use super::server::Server;
use super::setup::{GatewayConfig, Setup};
use super::workload::{Floor, Workload};

/// The number of requests before, and while, instructions are counted.
const BEFORE: usize = 2000;
const COUNTED: usize = 4000;

/// Counts for each floor of `workload` and for the gateway, one after the other.
pub(crate) fn measure(setup: &Setup, workload: &Workload, options: &Options, folder: &Path) {
    println!("\n{}: {} bytes", workload.name, workload.body.len());
    let folder = std::path::absolute(folder).expect("a folder");
    fs::create_dir_all(&folder).expect("a folder");
    let protocol = match options.protocol {
        // Under valgrind, 32 handshakes would take longer than a connection may be idle.
        Protocol::Http1 { .. } => Protocol::Http1 { connections: 4 },
        http2 @ Protocol::Http2 { .. } => http2,
    };
    let count = |name: &str, path, server: &dyn Fn(&Path) -> Server| {
        let dump = folder.join(name.replace(' ', "-"));
        let _ended = fs::remove_file(dump.with_extension("1"));
        let server = server(&dump);
        let ask = |requests| {
            let turn = Length::Requests(requests);
            Client::new(setup).measure(&server, path, &workload.body, protocol, turn);
        };
        ask(BEFORE);
        control(&server, "--instr=on");
        ask(COUNTED);
        control(&server, "--dump");
        let dump = dump.with_extension("1");
        let counted = fs::read_to_string(&dump).expect("a dump");
        let each = total(&counted) / COUNTED as u64;
        let allocations = allocations(&counted) as f64 / COUNTED as f64;
        let dump = dump.display();
        println!("{name:16} {each:8} instructions and {allocations:5.1} allocations a review; {dump}");
        each
    };
    let floors: Vec<_> = workload.floors(options.protocol);
    let floors = floors.into_iter().map(|(floor, path)| match floor {
        Floor::Actix => ("floor", path, FloorProgram::actix(options.protocol)),
        Floor::Decoding => ("decoding floor", path, FloorProgram::actix(options.protocol)),
        Floor::Hyper => ("hyper floor", path, FloorProgram::hyper()),
    });
    let floors: Vec<_> = floors
        .map(|(name, path, floor)| {
            let server = |dump: &Path| Server::counted_floor(setup, &floor, dump);
            (name, count(name, path, &server))
        })
        .collect();
    let gateway = |name, config| {
        count(name, workload.path, &|dump| {
            Server::counted_gateway(setup, config, dump)
        })
    };
    let plain = gateway("gateway", GatewayConfig::Plain);
    for (name, floor) in floors {
        println!("{name} / gateway: {:.2}", floor as f64 / plain as f64);
    }
    if options.decision_log {
        let logging = gateway("logging gateway", GatewayConfig::Logging);
        println!("logging gateway / gateway: {:.2}", logging as f64 / plain as f64);
    }
}

fn control(server: &Server, what: &str) {
    let status = Command::new("callgrind_control")
        .args([what, &server.id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "callgrind_control is a part of valgrind"
    );
}

fn total(dump: &str) -> u64 {
    let total = dump.lines().find_map(|line| line.strip_prefix("totals:"));
    total
        .and_then(|total| total.trim().parse().ok())
        .expect("a total")
}

/// The number of allocations by the program's allocator or the C library's.
fn allocations(dump: &str) -> u64 {
    const NAMES: [&str; 6] = [
        "mi_malloc_aligned",
        "mi_zalloc_aligned",
        "mi_realloc_aligned",
        "malloc",
        "calloc",
        "realloc",
    ];
    // Callgrind writes a name only at the first occurrence of its number.
    let mut numbers: Vec<&str> = Vec::new();
    let (mut is_called, mut calls) = (false, 0);
    for line in dump.lines() {
        let called = line.strip_prefix("cfn=");
        if let Some(function) = called.or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if NAMES.contains(&name) {
                numbers.push(number);
            }
            is_called = called.is_some() && numbers.contains(&number);
        } else if let Some(call) = line.strip_prefix("calls=").filter(|_| is_called) {
            let times = call.split(' ').next().and_then(|times| times.parse::<u64>().ok());
            calls += times.unwrap_or_default();
        }
    }
    calls
}
