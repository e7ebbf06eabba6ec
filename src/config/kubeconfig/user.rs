//! One user of a kubeconfig: the certificate, token or password that it shows.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::config::files::Files;
use crate::config::secret::Secret;
use crate::config::section::Section;
use portcullis_policy::field::{FaultKind, Place};

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
