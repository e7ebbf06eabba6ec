//! Where `kube-apiserver`, `etcd`, `kubectl` and the rest of a control plane are.

use std::env;
use std::path::{Path, PathBuf};

use crate::trials;

/// The programs that the tests start.
pub(crate) struct Binaries {
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) kubectl: PathBuf,
}

/// What makes a cluster of an API server.
pub(crate) struct Controllers {
    pub(crate) kube_controller_manager: PathBuf,
    pub(crate) kube_scheduler: PathBuf,
}

/// The programs, from `KUBEBUILDER_ASSETS` or else `target/apiserver`.
///
/// Without them, the test counts as ignored, and is to return.
///
/// # Panics
/// Without them, when `PORTCULLIS_REQUIRE_APISERVER` is `1`.
pub(crate) fn find() -> Option<Binaries> {
    find_in(&folder(), "PORTCULLIS_REQUIRE_APISERVER")
}

/// Those of the oldest version that is tested, from `target/apiserver-1.36`.
///
/// # Panics
/// Without them, when `PORTCULLIS_REQUIRE_OLDER_APISERVER` is `1`.
pub(crate) fn older() -> Option<Binaries> {
    find_in(
        &target().join("apiserver-1.36"),
        "PORTCULLIS_REQUIRE_OLDER_APISERVER",
    )
}

fn find_in(folder: &Path, required: &str) -> Option<Binaries> {
    let program = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let found = || {
        Some(Binaries {
            kube_apiserver: program("kube-apiserver")?,
            etcd: program("etcd")?,
            kubectl: program("kubectl")?,
        })
    };
    found().or_else(|| {
        not_run(folder, "kube-apiserver, etcd and kubectl", required);
        None
    })
}

/// The programs, where kube-apiserver is of this version or a later one; else the test counts
/// as ignored.
///
/// # Panics
/// Without the programs, when `PORTCULLIS_REQUIRE_APISERVER` is `1`.
pub(crate) fn since(major: u32, minor: u32) -> Option<Binaries> {
    let found = find()?;
    let version = version(&found);
    if version >= (major, minor) {
        return Some(found);
    }
    let (major_found, minor_found) = version;
    let missing = format!("kube-apiserver {major}.{minor} or later, and this is {major_found}.{minor_found}");
    trials::ignore(&missing, None);
    None
}

/// The major and minor version of its kube-apiserver.
fn version(binaries: &Binaries) -> (u32, u32) {
    let output = std::process::Command::new(&binaries.kube_apiserver)
        .arg("--version")
        .output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let version = said
        .trim()
        .strip_prefix("Kubernetes v")
        .unwrap_or_else(|| panic!("{said}"));
    let mut numbers = version.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Likewise the programs that make a cluster of an API server.
///
/// # Panics
/// Without them, when `PORTCULLIS_REQUIRE_APISERVER` is `1`.
pub(crate) fn controllers() -> Option<Controllers> {
    let folder = folder();
    let program = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let found = || {
        Some(Controllers {
            kube_controller_manager: program("kube-controller-manager")?,
            kube_scheduler: program("kube-scheduler")?,
        })
    };
    found().or_else(|| {
        let programs = "kube-controller-manager and kube-scheduler";
        not_run(&folder, programs, "PORTCULLIS_REQUIRE_APISERVER");
        None
    })
}

fn folder() -> PathBuf {
    match env::var_os("KUBEBUILDER_ASSETS") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => target().join("apiserver"),
    }
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// The program that answers for the Go code of a server, such as v1.37.1 (`tests/oracle`).
///
/// # Panics
/// Without it, when `PORTCULLIS_REQUIRE_APISERVER` is `1`.
pub(crate) fn oracle(server: &str) -> Option<PathBuf> {
    let (minor, _) = server.trim_start_matches('v').rsplit_once('.').unwrap();
    let program = target().join("oracle").join(minor).join("oracle");
    if program.is_file() {
        return Some(program);
    }
    let remedy = format!("{}; make it with tests/oracle/build", program.display());
    trials::ignore(&remedy, Some("PORTCULLIS_REQUIRE_APISERVER"));
    None
}

fn not_run(folder: &Path, programs: &str, required: &str) {
    let folder = folder.display();
    let remedy =
        format!("{programs} in {folder}; make them with tests/apiserver/build or set KUBEBUILDER_ASSETS");
    trials::ignore(&remedy, Some(required));
}
