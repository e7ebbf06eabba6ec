//! `portcullis init`: the files of a set-up that fit together.
//!
//! ```text
//! hosts --> pki --> kubeconfigs --> portcullis.yaml          (what the gateway reads)
//!                        '--------> *-configuration.yaml     (what the API server reads)
//!                                   webhooks.yaml, static/
//!                                   kustomization.yaml, …    (what a cluster runs)
//! ```
//!
//! Certificates and keys are files that everything names by path, so that
//! [`renew`] can put newer ones there while all of it runs.

mod files;
mod fill;
mod host;
mod pki;
mod policies;
mod renew;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

pub(super) use files::{CONFIGURATION, SetUp};
use host::{Host, Namespace};

use super::output::{self, Format};
use super::{CommandResult, Error};

/// Write keys, certificates and all configuration for a gateway and its API server.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The folder to write into. Files that exist are never overwritten.
    directory: PathBuf,
    /// A name or address under which the API server reaches the gateway; the
    /// first one stands in the URLs. Loopback names are always in the certificate.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<Host>,
    /// Write what `kubectl apply -k` installs, too: a gateway on each machine of the
    /// control plane, on the host's network, in this namespace, about which it is never asked.
    #[arg(long, value_name = "NAMESPACE")]
    in_cluster: Option<Namespace>,
    /// Never ask about the service accounts of this namespace either: no Deny reaches them.
    #[arg(long = "exempt-namespace", value_name = "NAMESPACE")]
    exempt: Vec<Namespace>,
    /// Write example policies with their suites, in Shadow where they deny.
    #[arg(long)]
    examples: bool,
    /// Write the registrations as static manifests of kube-apiserver 1.37 and later, in
    /// place of those that `kubectl apply` registers.
    #[arg(long = "static")]
    is_static: bool,
    /// Make new certificates by the authority of the set-up that is there, for the hosts of
    /// the ones before and `--host`. Those before stay accepted until they end.
    #[arg(long, conflicts_with_all = ["in_cluster", "exempt", "examples", "is_static", "if_absent", "renew_ca"])]
    renew: bool,
    /// Renew the authority, too, in two runs: after the first, both are trusted everywhere;
    /// the second makes certificates by the new one.
    #[arg(long, conflicts_with_all = ["in_cluster", "exempt", "examples", "is_static", "if_absent"])]
    renew_ca: bool,
    /// Leave a set-up that is already there as it is, and call that success.
    #[arg(long)]
    if_absent: bool,
}

/// What was written, for programs.
#[derive(Debug, Serialize)]
struct WrittenFiles<'a> {
    directory: &'a Path,
    files: Vec<&'a str>,
}

/// One file of a set-up.
struct File {
    /// Relative to the folder of the set-up.
    path: &'static str,
    contents: Vec<u8>,
    /// Only its owner may read it.
    secret: bool,
}

// === impl Init ===

impl Init {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let directory = absolute(&self.directory)?;
        if self.renew || self.renew_ca {
            return self.renew(&directory, format);
        }
        if self.if_absent && directory.join(CONFIGURATION).exists() {
            let nothing = WrittenFiles {
                directory: &directory,
                files: Vec::new(),
            };
            output::print(
                format,
                format_args!("{} is there already\n", directory.display()),
                &nothing,
            )?;
            return Ok(CommandResult::Sound);
        }
        let set_up = SetUp {
            hosts: &self.hosts,
            in_cluster: self.in_cluster.as_ref(),
            exempt: &self.exempt,
            examples: self.examples,
            is_static: self.is_static,
        };
        let files = write(&directory, &set_up)?;
        let text = format!(
            "wrote {} files to {}\n\nnext: read {}, then\n  {} serve --config {}\n",
            files.len(),
            directory.display(),
            directory.join("README.md").display(),
            output::program(),
            output::argument(&directory.join(CONFIGURATION)),
        );
        output::print(
            format,
            text,
            &WrittenFiles {
                directory: &directory,
                files,
            },
        )?;
        Ok(CommandResult::Sound)
    }

    fn renew(&self, directory: &Path, format: Format) -> Result<CommandResult, Error> {
        let now = SystemTime::now();
        let renewed = if self.renew {
            renew::renew(directory, &self.hosts, now)?
        } else {
            renew::renew_authority(directory, &self.hosts, now)?
        };
        let text = format!(
            "wrote {} files in {}\n\n{}",
            renewed.files.len(),
            directory.display(),
            renewed.next
        );
        let written = WrittenFiles {
            directory,
            files: renewed.files,
        };
        output::print(format, text, &written)?;
        Ok(CommandResult::Sound)
    }
}

/// Writes `set_up` and returns the names of its files. The configuration comes last:
/// where it is, the rest is whole.
///
/// # Errors
///
/// A file of that name exists, cannot be written, or no key can be made.
pub(super) fn write(directory: &Path, set_up: &SetUp<'_>) -> Result<Vec<&'static str>, Error> {
    let files = files::compose(directory, set_up, now())?;
    refuse_to_overwrite(directory, &files)?;
    for file in &files {
        let path = directory.join(file.path);
        create(&path, file).map_err(|source| Error::file("write", &path, source))?;
    }
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// `path` without `.` and symbolic links as far as it exists: other programs,
/// started elsewhere, are to find it.
///
/// # Errors
///
/// The working directory is not known.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|source| Error::file("find", path, source)),
    }
}

fn refuse_to_overwrite(directory: &Path, files: &[File]) -> Result<(), Error> {
    let there: Vec<&str> = files
        .iter()
        .map(|file| file.path)
        .filter(|path| directory.join(path).symlink_metadata().is_ok())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "`{}` already has {}: name another folder, or move these away first",
        directory.display(),
        there.join(", "),
    )))
}

// === impl File ===

impl File {
    /// A file that everybody may read.
    fn open(path: &'static str, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            path,
            contents: contents.into(),
            secret: false,
        }
    }

    /// A file for its owner alone.
    fn secret(path: &'static str, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            secret: true,
            ..Self::open(path, contents)
        }
    }
}

fn create(path: &Path, file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

    if let Some(folder) = path.parent() {
        let mode = if file.path == files::AUTHORITY.1 {
            0o700
        } else {
            0o777
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(folder)?;
    }
    let mode = if file.secret { 0o600 } else { 0o644 };
    let mut handle = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    handle.write_all(&file.contents)
}

/// Seconds since 1970.
fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
