//! Starts a server in its own process, on core 0.

use std::ffi::{OsStr, OsString};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::floor_program::FloorProgram;
use super::setup::{GatewayConfig, PORTCULLIS, Setup};

/// `USER_HZ`, the clock ticks per second in `/proc/PID/stat`: 100 on all common architectures.
const TICKS: f64 = 100.0;

pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn gateway(setup: &Setup, config: GatewayConfig) -> Self {
        let configuration = setup.configuration(config);
        let arguments = ["serve".as_ref(), "--config".as_ref(), configuration.as_os_str()];
        Self::start(PORTCULLIS.as_ref(), &arguments, setup.port(config))
    }

    pub(crate) fn floor(setup: &Setup, floor: &FloorProgram) -> Self {
        Self::start(&floor.program, &arguments(setup, floor), floor.port)
    }

    /// The gateway under valgrind, which writes what it counts to `dump`.
    pub(crate) fn counted_gateway(setup: &Setup, config: GatewayConfig, dump: &Path) -> Self {
        let configuration = setup.configuration(config);
        let arguments = ["serve".as_ref(), "--config".as_ref(), configuration.as_os_str()];
        Self::start_counted(PORTCULLIS.as_ref(), &arguments, setup.port(config), dump)
    }

    /// A floor under valgrind.
    pub(crate) fn counted_floor(setup: &Setup, floor: &FloorProgram, dump: &Path) -> Self {
        Self::start_counted(&floor.program, &arguments(setup, floor), floor.port, dump)
    }

    fn start_counted(program: &Path, arguments: &[&OsStr], port: u16, dump: &Path) -> Self {
        let mut out = OsString::from("--callgrind-out-file=");
        out.push(dump);
        let valgrind = ["--tool=callgrind", "--quiet", "--instr-atstart=no"];
        let mut all: Vec<&OsStr> = valgrind.iter().map(AsRef::as_ref).collect();
        all.extend([out.as_os_str(), program.as_os_str()]);
        all.extend(arguments);
        Self::start("valgrind".as_ref(), &all, port)
    }

    fn start(program: &Path, arguments: &[&OsStr], port: u16) -> Self {
        let process = Command::new("taskset")
            .args(["--cpu-list", "0"])
            .arg(program)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("taskset (util-linux) starts the server");
        let server = Self { process, port };
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("{} does not listen on port {port}", program.display());
    }

    /// The ID of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Processor time that the server has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let field = |index: usize| -> f64 {
            after_name
                .split_whitespace()
                .nth(index)
                .and_then(|text| text.parse().ok())
                .expect("a number")
        };
        // utime and stime are fields 14 and 15 of stat(5), 11 and 12 after the name.
        Duration::from_secs_f64((field(11) + field(12)) / TICKS)
    }

    pub(crate) fn resident_megabytes(&self) -> f64 {
        let status = self.proc("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        let kilobytes = line
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<f64>().ok());
        kilobytes.expect("a number") / 1024.0
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.process.id());
        std::fs::read_to_string(path).expect("the server runs")
    }
}

/// The arguments that make a program a floor.
fn arguments<'a>(setup: &'a Setup, floor: &'a FloorProgram) -> Vec<&'a OsStr> {
    let argument: Option<&OsStr> = floor.argument.map(AsRef::as_ref);
    argument.into_iter().chain([setup.folder().as_os_str()]).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
