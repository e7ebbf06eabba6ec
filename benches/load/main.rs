//! The whole service under load, beside a bare server as floor: `cargo bench --bench load`.
//!
//! Both servers use TLS with client certificates and the same settings, run on core 0,
//! and are measured alternately from core 1, in one run. The floor reads the body and
//! sends a fixed answer: it shows what actix-web and OpenSSL allow. For admission there
//! is a second floor that also decodes the review with serde, borrowed and with raw
//! objects. Over HTTP/2, authorization has a floor of hyper, too, without actix-web.
//! Compare the ratios, not the rates: machines differ and are noisy.
//!
//! Options, after `--`: `--http2 CxS` for C connections with S streams each, as in
//! `1x32` (default: 32 connections of HTTP/1.1), `--seconds N` for each turn (default
//! 5), `--rounds N` (default 3), `--instructions FOLDER` to count instructions instead
//! (with valgrind, whose dumps are written there for `callgrind_annotate`), `--bindings N`
//! (default 10000), `--policies N` (default 500), `--open-loop` to send half as many requests
//! a second as the first floor answers, each when it is due, and to measure latencies from
//! then on, `--decision-log` to measure a gateway with a decision log, too,
//! `--workload authorization`, `admission` (2, 10, 100 and 1000 KB), one of
//! them such as `"admission 10 KB"`, `all` (these; default), or `webhooks` (2 KB,
//! called through the gateway and directly).
//! Everything stays on loopback and ends by itself.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement that cannot be made ends at once"
)]

mod floor;
mod floor_hyper;
mod floor_program;
mod generator;
mod instructions;
mod options;
mod review;
mod server;
mod setup;
mod webhooks;
mod workload;

use std::path::Path;

use floor_program::FloorProgram;
use generator::{Client, Measure};
use options::Options;
use server::Server;
use setup::{GatewayConfig, Setup};
use workload::{Floor, Workload};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a gateway is left alone before it is asked how much memory it holds.
const IDLE: std::time::Duration = std::time::Duration::from_secs(4);

/// Makes this program a floor; the folder of the set-up follows.
const ACTIX: &str = "--serve-actix";
const HYPER: &str = "--serve-hyper";

/// The servers that are measured.
struct Servers {
    actix: Server,
    hyper: Server,
    gateway: Server,
    /// A gateway with a decision log, if that is measured.
    logging: Option<Server>,
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let floor: Option<fn(&Path)> = match arguments.peek().map(String::as_str) {
        Some(ACTIX) => Some(floor::run),
        Some(HYPER) => Some(floor_hyper::run),
        _ => None,
    };
    if let Some(run) = floor {
        return run(arguments.nth(1).expect("the folder of the set-up").as_ref());
    }
    let options = Options::parse(arguments);
    let setup = Setup::new(&options);
    if let Some(folder) = &options.instructions {
        for workload in options.workloads() {
            instructions::measure(&setup, &workload, &options, folder);
        }
        return;
    }
    let servers = Servers {
        actix: Server::floor(&setup, &FloorProgram::actix(options.protocol)),
        hyper: Server::floor(&setup, &FloorProgram::hyper()),
        gateway: Server::gateway(&setup, GatewayConfig::Plain),
        logging: options
            .decision_log
            .then(|| Server::gateway(&setup, GatewayConfig::Logging)),
    };
    std::thread::sleep(IDLE);
    println!(
        "{} role bindings, {} policies; idle gateway {:.1} MB resident",
        options.bindings,
        options.policies,
        servers.gateway.resident_megabytes()
    );
    let client = Client::new(&setup);
    if options.has_webhooks() {
        return webhooks::measure(&client, &servers.actix, &servers.gateway, &options);
    }
    for workload in options.workloads() {
        measure(&client, &workload, &servers, &options);
    }
}

fn measure(client: &Client, workload: &Workload, servers: &Servers, options: &Options) {
    println!("\n{}: {} bytes", workload.name, workload.body.len());
    let floors = workload.floors(options.protocol);
    let sides: Vec<_> = floors
        .into_iter()
        .map(|(floor, path)| match floor {
            Floor::Actix => ("floor", path, &servers.actix),
            Floor::Decoding => ("decoding floor", path, &servers.actix),
            Floor::Hyper => ("hyper floor", path, &servers.hyper),
        })
        .chain(
            servers
                .logging
                .iter()
                .map(|logging| ("logging gateway", workload.path, logging)),
        )
        .chain([("gateway", workload.path, &servers.gateway)])
        .collect();
    let ask = |(_, path, server): &(_, &str, &Server), turn| {
        client.measure(server, path, &workload.body, options.protocol, turn)
    };
    let turn = match sides.first() {
        Some(floor) if options.open_loop => {
            let rate = ask(floor, options.turn()).rate() / 2.0;
            println!("{rate:.0} requests a second, half of what the floor answers");
            options.turn_at(rate)
        }
        _ => options.turn(),
    };
    let mut measures: Vec<Vec<Measure>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        for (side, own) in sides.iter().zip(&mut measures) {
            let measure = ask(side, turn);
            println!("round {round}: {:16} {measure}", side.0);
            own.push(measure);
        }
    }
    let Some((ours, floors)) = measures.split_last() else {
        return;
    };
    for ((name, ..), floor) in sides.iter().zip(floors) {
        summarise(name, floor, ours);
    }
    println!(
        "gateway afterwards: {:.1} MB resident",
        servers.gateway.resident_megabytes()
    );
}

/// The figures to quote: medians of the rounds, gateway over floor.
fn summarise(name: &str, floors: &[Measure], gateways: &[Measure]) {
    let ratio = |of: fn(&Measure) -> f64| median(gateways, of) / median(floors, of);
    println!(
        "gateway / {name}: requests {:.2}, processor time of the server for a request {:.2}, p50 {:.2}, p99 {:.2}, p99.9 {:.2}",
        ratio(Measure::rate),
        ratio(Measure::cpu_micros),
        ratio(|m| m.p50),
        ratio(|m| m.p99),
        ratio(|m| m.p999)
    );
}

fn median(measures: &[Measure], of: fn(&Measure) -> f64) -> f64 {
    let mut values: Vec<f64> = measures.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
