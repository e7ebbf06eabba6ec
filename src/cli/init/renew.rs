//! `init --renew` and `init --renew-ca`: replace certificates in a set-up.
//!
//! ```text
//! --renew             ca/ca.* signs new certificates for server, authorization, admission
//! --renew-ca, first   ca/next.* is made; pki/ca.crt and the webhook configurations trust both
//! --renew-ca, second  ca/next.* signs all of them, and becomes ca/ca.*
//! ```
//!
//! Files are replaced atomically. Both CAs stay trusted after the second run, so that certificates
//! of the old CA are accepted until they expire.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pki::{Authority, Host, Usage, hosts_of};
use super::platform::{
    ADMISSION, ADMISSION_NAME, AUTHORITY, AUTHORIZATION, AUTHORIZATION_NAME, File, KeyFiles, SERVER,
    SERVER_NAME, TRUSTED, indented, replace,
};
use crate::cli::output::{self, CommandError};
use crate::config;
use crate::config::files::{CONFIGURATION_BYTES, read_text};

/// The next CA, between the two runs of `--renew-ca`.
const NEXT: KeyFiles = KeyFiles("ca/next.crt", "ca/next.key");

/// The time within which programs read `pki/ca.crt` again: API servers do so every five minutes (1.36
/// and later).
const REREAD_TIME: Duration = Duration::from_secs(600);

/// The webhook configurations, which contain the trusted CAs as base64.
const WEBHOOK_CONFIGURATION_FILES: [&str; 3] = [
    "webhooks.yaml",
    "static/mutating/portcullis.yaml",
    "static/validating/portcullis.yaml",
];

/// Files of `init --for` that contain certificates and keys, for API servers without access to the
/// folder.
const EMBEDDING_FILES: [&str; 3] = ["apiserver-secret.yaml", "talos.yaml", "gardener.yaml"];

/// How these files embed a text: in a Secret, in machine files of Talos, and in a kubeconfig.
const EMBEDDED_FORMS: [fn(&str) -> String; 3] = [
    |text| indented(text, 4),
    |text| indented(text, 6),
    |text| STANDARD.encode(text),
];

/// The files that were written, and the next steps for the user.
pub(crate) struct RenewalResult {
    pub(crate) files: Vec<&'static str>,
    pub(crate) next: String,
}

/// Issues new certificates from the same CA, for the former hosts and `hosts`.
///
/// # Errors
///
/// A file of the set-up is missing or cannot be written, or a key cannot be generated.
pub(crate) fn renew(
    directory: &Path,
    hosts: &[Host],
    now: SystemTime,
) -> Result<RenewalResult, CommandError> {
    let authority = authority(directory, AUTHORITY, now)?;
    let before = EmbeddedFiles::read(directory);
    let mut files = issue(directory, &authority, hosts)?;
    let embedding = before.rewrite(directory)?;
    let next = "next: copy pki/ to the same path on each API server's machine. API servers read it \
                again within five minutes, the gateway does so at once; the old certificates are \
                accepted until they expire.\n";
    let next = next.to_owned() + &apply_again(&embedding);
    files.extend(embedding);
    Ok(RenewalResult { files, next })
}

/// Runs the next step of `--renew-ca`.
///
/// # Errors
///
/// As for [`renew`]; also if not all programs can have read the files of the first run yet.
pub(crate) fn renew_authority(
    directory: &Path,
    hosts: &[Host],
    now: SystemTime,
) -> Result<RenewalResult, CommandError> {
    let before = EmbeddedFiles::read(directory);
    let mut renewed = match age(&directory.join(NEXT.0), now) {
        None => trust_both(directory, now),
        Some(age) if age < REREAD_TIME => Err(CommandError::Usage(format!(
            "the new CA was created {} seconds ago, and API servers that do not trust it yet would reject the \
            gateway: copy pki/ to each API server's machine, apply the webhook configurations again, and \
            wait until {} seconds have passed",
            age.as_secs(),
            REREAD_TIME.as_secs(),
        ))),
        Some(_) => switch_to_next(directory, hosts, now),
    }?;
    let embedding = before.rewrite(directory)?;
    renewed.next += &apply_again(&embedding);
    renewed.files.extend(embedding);
    Ok(renewed)
}

/// The former content of files that are embedded in files of `init --for`.
struct EmbeddedFiles(Vec<(&'static str, String)>);

// === impl EmbeddedFiles ===

impl EmbeddedFiles {
    /// Reads the files that may be embedded.
    fn read(directory: &Path) -> Self {
        let keys = [AUTHORIZATION, ADMISSION].into_iter();
        let paths = keys.flat_map(|KeyFiles(certificate, key)| [certificate, key]);
        let text = |path| read_text(&directory.join(path), CONFIGURATION_BYTES).ok();
        let there = paths
            .chain([TRUSTED])
            .filter_map(|path| Some((path, text(path)?)));
        Self(there.collect())
    }

    /// Replaces the former content by the present one in the files that embed it, and returns their
    /// paths.
    fn rewrite(&self, directory: &Path) -> Result<Vec<&'static str>, CommandError> {
        let Self(now) = Self::read(directory);
        let mut rewritten = Vec::new();
        for path in EMBEDDING_FILES {
            let Ok(before) = read_text(&directory.join(path), CONFIGURATION_BYTES) else {
                continue;
            };
            let mut text = before.clone();
            for (name, old) in &self.0 {
                let Some((_, new)) = now.iter().find(|(other, new)| other == name && new != old) else {
                    continue;
                };
                for form in EMBEDDED_FORMS {
                    text = text.replace(&form(old), &form(new));
                }
            }
            if text != before {
                let contents = text.into_bytes();
                let secret = true;
                replace(
                    directory,
                    &File {
                        path,
                        contents,
                        secret,
                    },
                )?;
                rewritten.push(path);
            }
        }
        Ok(rewritten)
    }
}

/// The next step for files of `init --for` that were rewritten.
fn apply_again(rewritten: &[&str]) -> String {
    if rewritten.is_empty() {
        return String::new();
    }
    let files = rewritten.join(" and ");
    format!(
        "\nAPI servers that do not have pki/ get the new certificates by {files}: apply it again, as its first \
         lines say.\n"
    )
}

fn trust_both(directory: &Path, now: SystemTime) -> Result<RenewalResult, CommandError> {
    let current = read(directory, AUTHORITY.0)?;
    let next = Authority::new(&format!("portcullis-ca-{}", seconds(now)), seconds(now))?.pair()?;
    let before = read(directory, TRUSTED)?;
    let both = [current, next.certificate.clone()].concat();
    let mut files = Vec::new();
    // The next certificate is written last, so that it only exists if all files do.
    files.extend(trust(directory, &before, both)?);
    for file in NEXT.files(next) {
        replace(directory, &file)?;
        files.push(file.path);
    }
    let next = "both CAs are now trusted.\n\nnext: copy pki/ to each API server's machine, apply the webhook \
        configurations again (kubectl apply -f webhooks.yaml; static manifests: copy static/, replacing each \
        file by mv), restart API servers before 1.36, and run this command again in ten minutes or later.\n";
    Ok(RenewalResult {
        files,
        next: next.to_owned(),
    })
}

fn switch_to_next(directory: &Path, hosts: &[Host], now: SystemTime) -> Result<RenewalResult, CommandError> {
    let authority = authority(directory, NEXT, now)?;
    let mut files = issue(directory, &authority, hosts)?;
    // The next certificate is removed last: as long as it exists, this step can be repeated.
    for (from, to) in [(NEXT.1, AUTHORITY.1), (NEXT.0, AUTHORITY.0)] {
        let contents = read(directory, from)?;
        replace(
            directory,
            &File {
                path: to,
                contents,
                secret: to == AUTHORITY.1,
            },
        )?;
        files.push(to);
    }
    for gone in [NEXT.1, NEXT.0] {
        let path = directory.join(gone);
        fs::remove_file(&path).map_err(|source| CommandError::file("remove", &path, source))?;
    }
    let next = "certificates are now signed by the new CA; the old CA stays trusted until the next \
        `--renew-ca`.\n\nnext: copy pki/ to the same path on each API server's machine.\n";
    Ok(RenewalResult {
        files,
        next: next.to_owned(),
    })
}

/// Replaces the trusted CAs `before` by `trusted`, in `pki/ca.crt` and in the webhook
/// configurations.
fn trust(directory: &Path, before: &[u8], trusted: Vec<u8>) -> Result<Vec<&'static str>, CommandError> {
    let (old, new) = (STANDARD.encode(before), STANDARD.encode(&trusted));
    let mut files = vec![TRUSTED];
    replace(directory, &File::open(TRUSTED, trusted))?;
    for path in WEBHOOK_CONFIGURATION_FILES {
        let Ok(text) = read_text(&directory.join(path), CONFIGURATION_BYTES) else {
            continue;
        };
        if text.contains(&old) {
            replace(directory, &File::open(path, text.replace(&old, &new)))?;
            files.push(path);
        } else {
            output::print_error(format_args!(
                "the caBundle in {path} differs from the old {TRUSTED}: replace it with the new \
                 content, as base64"
            ));
        }
    }
    Ok(files)
}

/// Issues a new certificate and key for each part of the set-up. The server's certificate is for
/// its former hosts and for `hosts`.
fn issue(directory: &Path, authority: &Authority, hosts: &[Host]) -> Result<Vec<&'static str>, CommandError> {
    let mut names = hosts_of(&read(directory, SERVER.0)?)?;
    names.extend(
        hosts
            .iter()
            .filter(|host| !names.contains(host))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let mut files = Vec::new();
    for (place, name, usage) in [
        (SERVER, SERVER_NAME, Usage::Server(&names)),
        (AUTHORIZATION, AUTHORIZATION_NAME, Usage::Client),
        (ADMISSION, ADMISSION_NAME, Usage::Client),
    ] {
        for file in place.files(authority.issue(name, &usage)?) {
            replace(directory, &file)?;
            files.push(file.path);
        }
    }
    Ok(files)
}

fn authority(directory: &Path, place: KeyFiles, now: SystemTime) -> Result<Authority, CommandError> {
    let (certificate, key) = (read(directory, place.0)?, read(directory, place.1)?);
    Ok(Authority::from_pem(&certificate, &key, seconds(now))?)
}

fn read(directory: &Path, path: &str) -> Result<Vec<u8>, CommandError> {
    let file = directory.join(path);
    config::files::read(&file, CONFIGURATION_BYTES).map_err(|source| {
        if source.kind() != std::io::ErrorKind::NotFound {
            return CommandError::file("read", &file, source);
        }
        CommandError::Usage(format!(
            "`{}` does not exist: restore the folders `ca` and `pki` of the set-up where `init` \
             created them. Without them it cannot be renewed: create a new one in another folder",
            file.display()
        ))
    })
}

/// The time since a file was written; `None` if it does not exist.
fn age(path: &Path, now: SystemTime) -> Option<Duration> {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    Some(now.duration_since(written).unwrap_or_default())
}

fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
