//! The program itself, as a process of its own.

use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::client::{Client, Connection};
use super::pki::Identity;

/// A running `portcullis serve`. Dropping it kills it.
pub(crate) struct Process {
    folder: TempDir,
    authority: Identity,
    caller: Identity,
    child: Child,
    pub(crate) server: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Process {
    pub(super) fn start(folder: TempDir, authority: Identity) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "-o", "json", "--config", "config.yaml"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
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
            caller: authority.client("kube-apiserver"),
            folder,
            authority,
            child,
        }
    }

    /// A connection of the API server.
    pub(crate) fn connect(&self) -> Connection {
        let client = Client {
            authority: &self.authority,
            certificate: Some(&self.caller),
        };
        client.connect(self.server)
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
