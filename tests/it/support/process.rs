//! The program itself, as a process of its own.

use std::fs::{self, File};
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::client::{Client, Connection};
use crate::harness::pki::{Authority, Identity};

/// A running `portcullis serve`. Dropping it kills it.
pub(crate) struct Process {
    folder: TempDir,
    authority: Authority,
    caller: Identity,
    child: Child,
    pub(crate) server: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// What differs in how the program is started.
#[derive(Default)]
pub(super) struct Surroundings<'s> {
    /// The most open files.
    pub(super) descriptors: Option<usize>,
    /// Whether no file takes a byte, as on a disk that is full.
    pub(super) is_disk_full: bool,
    /// So much more in its environment.
    pub(super) environment: &'s [(&'s str, &'s str)],
    /// Whether its log goes into a pipe that nobody reads.
    pub(super) is_log_unread: bool,
}

impl Process {
    pub(super) fn start(folder: TempDir, authority: Authority, surroundings: &Surroundings<'_>) -> Self {
        let log = File::create(folder.path().join("stderr.log")).unwrap();
        let log = if surroundings.is_log_unread {
            Stdio::piped()
        } else {
            Stdio::from(log)
        };
        let limits = match surroundings.descriptors {
            Some(most) => format!("ulimit -n {most} && "),
            None => String::new(),
        };
        let disk = if surroundings.is_disk_full {
            // Without the signal, writing fails.
            "trap '' XFSZ && ulimit -f 0 && "
        } else {
            ""
        };
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "{limits}{disk}exec \"$0\" serve -o json --config config.yaml"
            ))
            .arg(env!("CARGO_BIN_EXE_portcullis"))
            .envs(surroundings.environment.iter().copied())
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let said: Value = serde_json::Deserializer::from_reader(output)
            .into_iter()
            .next()
            .unwrap()
            .unwrap();
        let address = |name: &str| said[name].as_str().unwrap().parse().unwrap();
        Self {
            server: address("server"),
            admin: address("admin"),
            caller: authority.client("kube-apiserver", &[]),
            folder,
            authority,
            child,
        }
    }

    /// A client without certificate.
    pub(crate) fn stranger(&self) -> Client<'_> {
        Client {
            authority: &self.authority,
            certificate: None,
        }
    }

    /// Who signs the certificates of its callers.
    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The most memory that it was ever given, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// The memory that it has, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        let kib: u64 = value.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        kib >> 10
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("stderr.log")).unwrap()
    }

    /// A connection of the API server.
    pub(crate) fn connect(&self) -> Connection {
        self.client().connect(self.server)
    }

    /// The API server.
    pub(crate) const fn client(&self) -> Client<'_> {
        Client {
            authority: &self.authority,
            certificate: Some(&self.caller),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
