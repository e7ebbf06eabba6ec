//! `portcullis init`: the files of a set-up that fit together.
//!
//! ```text
//! hosts --> pki --> kubeconfigs --> portcullis.yaml          (what the gateway reads)
//!                        '--------> *-configuration.yaml     (what the API server reads)
//!                                   webhooks.yaml
//! ```

mod files;
mod host;
mod pki;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub(super) use files::CONFIGURATION;
use host::Host;

use super::output::{self, Format};
use super::{Error, Verdict};

/// Write keys, certificates and all configuration for a gateway and its API server.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The folder to write into. Files that exist are never overwritten.
    directory: PathBuf,
    /// A name or address under which the API server reaches the gateway; the
    /// first one stands in the URLs. Loopback names are always in the certificate.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<Host>,
    /// Leave a set-up that is already there as it is, and call that success.
    #[arg(long)]
    if_absent: bool,
}

/// What was written, for programs.
#[derive(Debug, Serialize)]
struct Written<'a> {
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
    pub(super) fn run(self, format: Format) -> Result<Verdict, Error> {
        let directory = absolute(&self.directory)?;
        if self.if_absent && directory.join(CONFIGURATION).exists() {
            let nothing = Written {
                directory: &directory,
                files: Vec::new(),
            };
            output::print(
                format,
                format_args!("{} is there already\n", directory.display()),
                &nothing,
            )?;
            return Ok(Verdict::Sound);
        }
        let files = write(&directory, &self.hosts)?;
        let text = format!(
            "wrote {} files to {}\n\nnext: read {}, then\n  portcullis serve --config {}\n",
            files.len(),
            directory.display(),
            directory.join("README.md").display(),
            directory.join(CONFIGURATION).display(),
        );
        output::print(
            format,
            text,
            &Written {
                directory: &directory,
                files,
            },
        )?;
        Ok(Verdict::Sound)
    }
}

/// Writes a set-up for `hosts`, or for this machine alone where there is none,
/// and returns the names of its files. The configuration comes last: where it
/// is, the rest is whole.
///
/// # Errors
///
/// A file of that name exists, cannot be written, or no key can be made.
pub(super) fn write(directory: &Path, hosts: &[Host]) -> Result<Vec<&'static str>, Error> {
    let files = files::compose(directory, hosts, now())?;
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

fn create(path: &Path, file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;

    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
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
