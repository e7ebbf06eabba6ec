//! Reads the users of a kubeconfig, whose credentials callers present: certificates, tokens and
//! passwords.
//!
//! The rules are those of client-go (`tools/clientcmd/api/v1`): unknown fields are ignored,
//! relative paths are resolved against the file's folder, `client-certificate-data` takes
//! precedence over `client-certificate`, and empty strings count as absent. The private keys of
//! callers are not read, so a copy of the file without them suffices. [`client`] reads what a
//! client needs.
//!
//! Credentials from another program (`exec`, `auth-provider`) are errors: they are not known in
//! advance, and no program is started here.

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

/// The content of a kubeconfig that callers use.
#[derive(Debug, Default)]
pub struct Kubeconfig {
    /// The users, in the order of the file.
    pub users: Vec<User>,
    /// The servers that a caller with this kubeconfig calls, without those that cannot be read.
    pub clusters: Vec<Cluster>,
    /// Every file that was read, or could not be read: the kubeconfig, certificates, tokens.
    pub files: Vec<PathBuf>,
}

/// A server that is called.
#[derive(Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The place of the entry.
    pub place: Place,
    /// `server`, a URL. For [`client`], the scheme is https.
    pub server: String,
    /// `tls-server-name`.
    pub server_name: Option<String>,
    /// The certificate authorities that are trusted, as PEM; `None`: those that the system trusts.
    pub authorities: Option<Vec<u8>>,
}

/// Reads the kubeconfig at `path`, an absolute path, and the files that it names.
///
/// The result is only complete if there is no error.
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

/// Parses the file at `path`, and passes its only document to `act`.
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
        if root.non_empty_text(field).is_some_and(|text| text != expected) {
            root.fault(field, FaultKind::NotSupported, format!("must be `{expected}`"));
        }
    }
}

fn config(files: &dyn Files, root: &Section<'_>, kubeconfig: &mut Kubeconfig) {
    for (name, section) in named(root, "users", "user") {
        let user = user(
            files,
            name,
            &section,
            &mut kubeconfig.files,
            PROGRAM_CREDENTIAL_FAULT,
        );
        kubeconfig.users.push(user);
    }
    for item in root.items("clusters") {
        let section = item.foreign_section().foreign_section("cluster");
        kubeconfig
            .clusters
            .extend(called_server(files, &section, &mut kubeconfig.files));
    }
    if kubeconfig.users.is_empty() {
        root.fault(
            "users",
            FaultKind::Required,
            "there are no users, so nobody can call with this file",
        );
    }
}

/// A server that callers call. It is not an error if the certificate authority cannot be read here,
/// because only the callers need it.
fn called_server(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Cluster> {
    let server = section.non_empty_text("server")?.to_owned();
    let data = section.non_empty_text("certificate-authority-data");
    let authorities = match data {
        Some(data) => STANDARD
            .decode(data.split_ascii_whitespace().collect::<String>())
            .ok(),
        None => section.non_empty_path("certificate-authority").and_then(|path| {
            let content = files.read(&path).ok();
            read.push(path);
            content
        }),
    };
    Some(Cluster {
        place: section.here(),
        server,
        server_name: section.non_empty_text("tls-server-name").map(str::to_owned),
        authorities,
    })
}

/// The items of `list`: the name, and the mapping in `field`. Duplicate names are errors.
fn named<'r>(root: &Section<'r>, list: &str, field: &str) -> Vec<(&'r str, Section<'r>)> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for item in root.items(list) {
        let section = item.foreign_section();
        let name = section.non_empty_text("name").unwrap_or_default();
        if !names.insert(name) {
            section.fault("name", FaultKind::Duplicate, format!("`{name}` is used twice"));
        }
        found.push((name, section.foreign_section(field)));
    }
    found
}

const PROGRAM_CREDENTIAL_FAULT: &str =
    "its credential is not known in advance: use a certificate, token or password";

/// A user and its credentials.
#[derive(Debug)]
pub struct User {
    /// The name within the file.
    pub name: String,
    /// The place of the entry.
    pub place: Place,
    /// The certificate, followed by its intermediates, as PEM.
    pub certificate: Option<Vec<u8>>,
    /// `token`. client-go sends it if it cannot read the `tokenFile`.
    pub token: Option<Secret>,
    /// The content of the `tokenFile` without surrounding white space.
    pub file_token: Option<Secret>,
    /// `username` and `password`.
    pub basic: Option<Basic>,
}

/// The user name and password of HTTP basic authentication.
#[derive(Debug, PartialEq, Eq)]
pub struct Basic {
    pub username: String,
    pub password: Secret,
}

/// Reads a user. `refusal` is the error message for credentials that another program makes.
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
            .non_empty_text("token")
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

/// The content of the field `data`, in base64, or otherwise of the file that the field `file`
/// names.
pub(crate) fn data_or_file(
    files: &dyn Files,
    section: &Section<'_>,
    data: &str,
    file: &str,
    read: &mut Vec<PathBuf>,
) -> Option<Vec<u8>> {
    if let Some(text) = section.non_empty_text(data) {
        let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
        let decoded = STANDARD.decode(text.as_bytes()).ok();
        if decoded.is_none() {
            section.fault(data, FaultKind::Invalid, "not base64");
        }
        return decoded;
    }
    let path = section.non_empty_path(file)?;
    let content = files.read(&path);
    read.push(path.clone());
    content
        .map_err(|error| {
            let message = format!("`{}`: {error}", path.display());
            section.fault(file, FaultKind::Unreadable, message);
        })
        .ok()
}

/// The token that client-go sends: the content of the file without surrounding white space.
fn file_token(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Secret> {
    const FILE: &str = "tokenFile";
    let path = section.non_empty_path(FILE)?;
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
    if section.non_empty_text("token").is_some() {
        section.warn(FILE, FaultKind::Unreadable, message + "; `token` is used instead");
    } else {
        section.fault(FILE, FaultKind::Unreadable, message);
    }
    None
}

fn basic(section: &Section<'_>) -> Option<Basic> {
    let username = section.non_empty_text("username");
    let password = section.non_empty_text("password");
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

/// A token or password. It is printed as `[redacted]`, compared in a time that depends on the
/// lengths alone, and wiped from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

// === impl Secret ===

impl Secret {
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself, which must not be written anywhere.
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
