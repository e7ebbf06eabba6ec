//! The command line options.

use std::path::PathBuf;
use std::time::Duration;

use super::workload::{Floor, Workload};

pub(crate) struct Options {
    seconds: u64,
    /// Where the instructions of the servers are written, if they are to be counted.
    pub(crate) instructions: Option<PathBuf>,
    pub(crate) rounds: usize,
    pub(crate) bindings: usize,
    pub(crate) policies: usize,
    workload: String,
    pub(crate) protocol: Protocol,
    /// Whether requests are sent at a rate, however fast they are answered.
    pub(crate) open_loop: bool,
    /// Whether a gateway with a decision log is measured, too.
    pub(crate) decision_log: bool,
}

/// How long a server is asked.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    /// So long.
    Time(Duration),
    /// Until so many requests are answered.
    Requests(usize),
    /// So long, with so many requests a second that are sent when they are due.
    Rate(Duration, f64),
}

/// How a server is asked.
#[derive(Clone, Copy)]
pub(crate) enum Protocol {
    /// Over so many connections, one request after the other on each.
    Http1 { connections: usize },
    /// Over so many connections, with so many streams on each.
    Http2 { connections: usize, streams: usize },
}

impl Options {
    /// Reads the command line; `cargo bench` adds a `--bench` of its own.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            seconds: 5,
            instructions: None,
            rounds: 3,
            bindings: 10_000,
            policies: 500,
            workload: "all".to_owned(),
            protocol: Protocol::Http1 { connections: 32 },
            open_loop: false,
            decision_log: false,
        };
        while let Some(argument) = arguments.next() {
            if argument == "--workload" {
                options.workload = arguments.next().unwrap_or_default();
                continue;
            }
            if argument == "--instructions" {
                options.instructions = arguments.next().map(PathBuf::from);
                continue;
            }
            if argument == "--http2" {
                options.protocol = Protocol::http2(&arguments.next().unwrap_or_default());
                continue;
            }
            let mut number = || -> usize {
                let value = arguments.next().unwrap_or_default();
                value
                    .parse()
                    .unwrap_or_else(|_| panic!("{argument} takes a number, not `{value}`"))
            };
            match argument.as_str() {
                "--bench" => {}
                "--open-loop" => options.open_loop = true,
                "--decision-log" => options.decision_log = true,
                "--seconds" => options.seconds = number() as u64,
                "--rounds" => options.rounds = number(),
                "--bindings" => options.bindings = number(),
                "--policies" => options.policies = number(),
                other => panic!("unknown option `{other}`: see the head of benches/load/main.rs"),
            }
        }
        options
    }

    /// What is asked.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let wanted = |workload: &Workload| {
            self.workload == "all" || workload.name == self.workload || workload.sort() == self.workload
        };
        let workloads: Vec<_> = Workload::all().into_iter().filter(wanted).collect();
        assert!(
            !workloads.is_empty(),
            "unknown workload `{}`: see the head of benches/load/main.rs",
            self.workload
        );
        workloads
    }

    /// Whether the workload is that of webhooks behind the gateway.
    pub(crate) fn has_webhooks(&self) -> bool {
        self.workload == "webhooks"
    }

    /// How long each server is asked in each round.
    pub(crate) fn turn(&self) -> Length {
        Length::Time(self.time())
    }

    /// The same, with `rate` requests a second.
    pub(crate) fn turn_at(&self, rate: f64) -> Length {
        Length::Rate(self.time(), rate)
    }

    const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

// === impl Protocol ===

impl Protocol {
    /// Of `8x8`: eight connections with eight streams each.
    fn http2(text: &str) -> Self {
        let numbers = text
            .split_once('x')
            .and_then(|(connections, streams)| Some((connections.parse().ok()?, streams.parse().ok()?)));
        let (connections, streams) = numbers
            .unwrap_or_else(|| panic!("--http2 takes connections and streams as in 8x8, not `{text}`"));
        Self::Http2 { connections, streams }
    }
}

// === impl Workload ===

impl Workload {
    /// The floors that speak `protocol`, each with its path.
    pub(crate) fn floors(&self, protocol: Protocol) -> Vec<(Floor, &'static str)> {
        let speaks = |floor: &Floor| match floor {
            Floor::Actix | Floor::Decoding => true,
            Floor::Hyper => matches!(protocol, Protocol::Http2 { .. }),
        };
        let floors = self.floors.iter().copied();
        floors.filter(|(floor, _)| speaks(floor)).collect()
    }
}
