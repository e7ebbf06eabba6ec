//! The programs that the gateway is compared with.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::Protocol;
use super::{ACTIX, HYPER, floor, floor_hyper};

/// A program that serves as a floor: it does the least that a server must do for the same requests.
pub(crate) struct FloorProgram {
    pub(crate) program: PathBuf,
    /// The argument that makes the program a floor; the folder of the set-up follows it.
    pub(crate) argument: Option<&'static str>,
    pub(crate) port: u16,
}

impl FloorProgram {
    /// actix-web, over `protocol`.
    pub(crate) fn actix(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 { .. } => Self::own(ACTIX, floor::PORT),
            Protocol::Http2 { .. } => Self {
                program: build_actix_http2(),
                argument: None,
                port: floor::PORT,
            },
        }
    }

    /// hyper alone.
    pub(crate) fn hyper() -> Self {
        Self::own(HYPER, floor_hyper::PORT)
    }

    /// This program itself, started with `argument`.
    fn own(argument: &'static str, port: u16) -> Self {
        Self {
            program: std::env::current_exe().expect("this program"),
            argument: Some(argument),
            port,
        }
    }
}

/// Builds the floor of actix-web over HTTP/2, a package with a lock file of its own.
fn build_actix_http2() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/actix-http2/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("actix-http2");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--release", "--manifest-path"])
        .arg(package)
        .arg("--target-dir")
        .arg(&target)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "the floor of actix-web over HTTP/2 cannot be built"
    );
    target.join("release/portcullis-actix-http2")
}
