//! The users of a kubeconfig, as the credentials of callers: certificates, tokens and passwords.
//!
//! Reads what client-go reads (`tools/clientcmd/api/v1`): unknown fields are ignored,
//! relative paths start at the file's folder, `client-certificate-data` takes precedence
//! over `client-certificate`, and empty text counts as absent. The private keys of
//! callers are not read, so a copy of the file without them is enough. What a client
//! needs is in [`client`].
//!
//! Credentials from another program (`exec`, `auth-provider`) are faults: they are not
//! known in advance, and no program is started here.

pub mod client;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::files::Files;
use super::section::{ReadContext, Section};
use portcullis_policy::document;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// What a kubeconfig says of who calls.
#[derive(Debug, Default)]
pub struct Kubeconfig {
    /// Its users, in the order written.
    pub users: Vec<User>,
    /// The servers that its holder calls and that can be read.
    pub clusters: Vec<Cluster>,
    /// Every file that was read or should have been: the kubeconfig, certificates, tokens.
    pub files: Vec<PathBuf>,
}

/// A server.
#[derive(Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Where it stands.
    pub place: Place,
    /// `server`: a URL of the scheme https.
    pub server: String,
    /// `tls-server-name`.
    pub server_name: Option<String>,
    /// PEM: whom it must be signed by; `None`: by whom the system trusts.
    pub authorities: Option<Vec<u8>>,
}

/// Reads the kubeconfig at `path`, an absolute path, with the files that it names.
///
/// What is returned is complete only where there is no error among the faults.
#[must_use]
pub fn read(files: &dyn Files, path: &Path) -> (Kubeconfig, Faults) {
    let mut kubeconfig = Kubeconfig {
        files: vec![path.to_owned()],
        ..Kubeconfig::default()
    };
    let faults = open(files, path, |root| {
        config(files, root, &mut kubeconfig);
    });
    (kubeconfig, faults)
}

/// Has `act` read the one document of the file at `path`.
fn open(files: &dyn Files, path: &Path, act: impl FnOnce(&Section<'_>)) -> Faults {
    let mut faults = Faults::new();
    let fault = |kind, message: String| {
        let place = Place::of_file(path);
        Fault::error(place, kind, message)
    };
    let bytes = match files.read(path).map(Zeroizing::new) {
        Ok(bytes) => bytes,
        Err(error) => {
            faults.push(fault(FaultKind::Unreadable, error.to_string()));
            return faults;
        }
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        faults.push(fault(FaultKind::Unreadable, "not UTF-8".into()));
        return faults;
    };
    match document::parse(Some(&path.display().to_string()), text).as_deref() {
        Err(fault) => faults.push(fault.clone()),
        Ok([document]) => {
            let reading = ReadContext::new(document, path.parent().unwrap_or(path));
            let root = reading.foreign_root();
            type_meta(&root);
            act(&root);
            faults.append(reading.into_faults());
        }
        Ok(_) => faults.push(fault(
            FaultKind::Invalid,
            "must contain exactly one kubeconfig".into(),
        )),
    }
    faults
}

fn type_meta(root: &Section<'_>) {
    for (field, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
        if root.text_if_any(field).is_some_and(|text| text != expected) {
            root.fault(field, FaultKind::NotSupported, format!("must be `{expected}`"));
        }
    }
}

fn config(files: &dyn Files, root: &Section<'_>, kubeconfig: &mut Kubeconfig) {
    for (name, section) in named(root, "users", "user") {
        let user = user(files, name, &section, &mut kubeconfig.files, UNKNOWABLE);
        kubeconfig.users.push(user);
    }
    for item in root.items("clusters") {
        let section = item.foreign_section().foreign_section("cluster");
        kubeconfig
            .clusters
            .extend(called(files, &section, &mut kubeconfig.files));
    }
    if kubeconfig.users.is_empty() {
        root.fault(
            "users",
            FaultKind::Required,
            "there are no users, so nobody can call with this file",
        );
    }
}

/// A server that the holder calls. That its authority cannot be read here is no fault: it
/// is the holder's to read.
fn called(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Cluster> {
    let server = section.text_if_any("server")?.to_owned();
    let data = section.text_if_any("certificate-authority-data");
    let authorities = match data {
        Some(data) => STANDARD
            .decode(data.split_ascii_whitespace().collect::<String>())
            .ok(),
        None => section.path_if_any("certificate-authority").and_then(|path| {
            let content = files.read(&path).ok();
            read.push(path);
            content
        }),
    };
    Some(Cluster {
        place: section.here(),
        server,
        server_name: section.text_if_any("tls-server-name").map(str::to_owned),
        authorities,
    })
}

/// The items of `list`, each a name and what `field` holds. A name twice is a fault.
fn named<'r>(root: &Section<'r>, list: &str, field: &str) -> Vec<(&'r str, Section<'r>)> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for item in root.items(list) {
        let section = item.foreign_section();
        let name = section.text_if_any("name").unwrap_or_default();
        if !names.insert(name) {
            section.fault("name", FaultKind::Duplicate, format!("`{name}` is used twice"));
        }
        found.push((name, section.foreign_section(field)));
    }
    found
}

const UNKNOWABLE: &str = "its credential is not known in advance: use a certificate, token or password";

/// One user and the credentials that it can show.
#[derive(Debug)]
pub struct User {
    /// Its name within the file.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// PEM: the certificate, and then its intermediates.
    pub certificate: Option<Vec<u8>>,
    /// `token`. client-go sends it where it cannot read the `tokenFile`.
    pub token: Option<Secret>,
    /// What the `tokenFile` holds, without the white space around it.
    pub file_token: Option<Secret>,
    /// `username` and `password`.
    pub basic: Option<Basic>,
}

/// A name and its password.
#[derive(Debug, PartialEq, Eq)]
pub struct Basic {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// `refusal`: what is wrong with credentials that another program makes.
pub(crate) fn user(
    files: &dyn Files,
    name: &str,
    section: &Section<'_>,
    read: &mut Vec<PathBuf>,
    refusal: &str,
) -> User {
    for field in ["exec", "auth-provider"] {
        if section.value(field).is_some() {
            section.fault(field, FaultKind::Forbidden, refusal);
        }
    }
    let user = User {
        name: name.to_owned(),
        place: section.here(),
        certificate: certificate(files, section, read),
        token: section
            .text_if_any("token")
            .map(|token| Secret::new(token.trim())),
        file_token: file_token(files, section, read),
        basic: basic(section),
    };
    let tokens = section.value("token").is_some() || section.value("tokenFile").is_some();
    if tokens && user.basic.is_some() {
        let message = "a token and a password cannot be combined: client-go rejects both together";
        section.fault("username", FaultKind::Forbidden, message);
    }
    user
}

fn certificate(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Vec<u8>> {
    data_or_file(
        files,
        section,
        "client-certificate-data",
        "client-certificate",
        read,
    )
}

/// What is in `data`, in base64, or else in the file that `file` names.
pub(crate) fn data_or_file(
    files: &dyn Files,
    section: &Section<'_>,
    data: &str,
    file: &str,
    read: &mut Vec<PathBuf>,
) -> Option<Vec<u8>> {
    if let Some(text) = section.text_if_any(data) {
        let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
        let decoded = STANDARD.decode(text.as_bytes()).ok();
        if decoded.is_none() {
            section.fault(data, FaultKind::Invalid, "not base64");
        }
        return decoded;
    }
    let path = section.path_if_any(file)?;
    let content = files.read(&path);
    read.push(path.clone());
    content
        .map_err(|error| {
            let message = format!("`{}`: {error}", path.display());
            section.fault(file, FaultKind::Unreadable, message);
        })
        .ok()
}

/// What client-go sends from the file: the text without the white space around it.
fn file_token(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Secret> {
    const FILE: &str = "tokenFile";
    let path = section.path_if_any(FILE)?;
    let content = files.read(&path).map(Zeroizing::new);
    read.push(path.clone());
    let complaint = match content
        .as_ref()
        .map(|bytes| std::str::from_utf8(bytes).map(str::trim))
    {
        Ok(Ok("")) => "is empty".to_owned(),
        Ok(Ok(token)) => return Some(Secret::new(token)),
        Ok(Err(_)) => "is not UTF-8".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("`{}`: {complaint}", path.display());
    if section.text_if_any("token").is_some() {
        section.warn(FILE, FaultKind::Unreadable, message + "; `token` is used instead");
    } else {
        section.fault(FILE, FaultKind::Unreadable, message);
    }
    None
}

fn basic(section: &Section<'_>) -> Option<Basic> {
    let username = section.text_if_any("username");
    let password = section.text_if_any("password");
    if username.is_none() && password.is_none() {
        return None;
    }
    let username = username.unwrap_or_default();
    if username.contains(':') {
        section.fault(
            "username",
            FaultKind::Invalid,
            "must not contain `:`, which separates user name and password",
        );
    }
    let password = Secret::new(password.unwrap_or_default());
    Some(Basic {
        username: username.to_owned(),
        password,
    })
}

/// A token or password. It prints as `[redacted]`, compares in a time that
/// depends on the lengths alone, and is wiped from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

// === impl Secret ===

impl Secret {
    /// Keeps `secret`.
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself. The caller must not write it anywhere.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && openssl::memcmp::eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests;
