//! Reads a kubeconfig for calls that the gateway makes: server, CA and credentials.
//!
//! There are two kinds of files. For admission webhooks, users are named after hosts ([`by_host`]);
//! otherwise the current context selects the server and the user ([`of_context`]). Settings that
//! weaken a connection (`insecure-skip-tls-verify`, a proxy, `http`), start a program (`exec`) or
//! impersonate a user (`as`) are errors.
//!
//! Sources: `apiserver/pkg/util/webhook/authentication.go`,
//! `client-go/tools/clientcmd/client_config.go`.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Basic, Cluster, Files, Section, data_or_file, named, open, user};
use crate::config::Secret;
use portcullis_policy::field::{FaultKind, Faults, Place};

/// The users of a kubeconfig for webhooks, named after the hosts that receive their credentials.
#[derive(Debug, Default)]
pub struct ByHost {
    /// All users, in the order of the file.
    pub users: Vec<ClientUser>,
    /// The user of the current context, for hosts that no user's name matches.
    pub current: Option<String>,
    /// Every file that was read, or could not be read.
    pub files: Vec<PathBuf>,
}

/// The server of the current context, and the credentials for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Context {
    pub cluster: Cluster,
    /// The user; `None`: no credentials are sent.
    pub user: Option<ClientUser>,
}

/// A user, and the credentials that the gateway sends.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientUser {
    /// The name within the file.
    pub name: String,
    /// The place of the entry.
    pub place: Place,
    /// The client certificate and its key.
    pub certificate: Option<KeyPair>,
    /// The bearer token.
    pub bearer: Option<Bearer>,
    /// The user name and password.
    pub basic: Option<Basic>,
}

/// A client certificate and its key.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, followed by its intermediates, as PEM.
    pub certificate: Vec<u8>,
    /// The private key, as PEM.
    pub key: Secret,
}

/// A bearer token.
#[derive(Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The token at the time of reading.
    pub token: Secret,
    /// The file from which newer tokens are read.
    pub file: Option<PathBuf>,
}

const NO_PROGRAMS: &str = "programs for credentials are not supported: use a certificate, token or password";
const NO_IMPERSONATION: &str = "impersonation is not supported: remove it";

/// Reads the kubeconfig at `path`, an absolute path, whose users are named after hosts. Clusters
/// are ignored, as in the API server.
///
/// The result is only complete if there is no error.
#[must_use]
pub fn by_host(files: &dyn Files, path: &Path) -> (ByHost, Faults) {
    let mut read = ByHost {
        files: vec![path.to_owned()],
        ..ByHost::default()
    };
    let faults = open(files, path, |root| {
        for (name, section) in named(root, "users", "user") {
            let user = client_user(files, name, &section, &mut read.files);
            read.users.push(user);
        }
        read.current = context(root)
            .and_then(|context| context.non_empty_text("user"))
            .map(str::to_owned);
    });
    (read, faults)
}

/// Reads the server and user of the current context of the kubeconfig at `path`, an absolute path.
/// Also returns every file that was read, or could not be read. The context is `None` if there is
/// an error.
#[must_use]
pub fn of_context(files: &dyn Files, path: &Path) -> (Option<Context>, Vec<PathBuf>, Faults) {
    let mut read = vec![path.to_owned()];
    let mut found = None;
    let faults = open(files, path, |root| {
        found = current(files, root, &mut read);
    });
    (found.filter(|_| !faults.has_errors()), read, faults)
}

fn current(files: &dyn Files, root: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Context> {
    root.required_text("current-context", "it selects the server to call")?;
    let Some(context) = context(root) else {
        let message = "there is no context of this name";
        root.fault("current-context", FaultKind::NotFound, message);
        return None;
    };
    let of = |list, field, wanted: &str| {
        let entry = named(root, list, field)
            .into_iter()
            .find(|(name, _)| *name == wanted);
        if entry.is_none() {
            context.fault(field, FaultKind::NotFound, format!("there is no `{wanted}`"));
        }
        entry
    };
    let wanted = context.required_text("cluster", "the server to call")?;
    let cluster = of("clusters", "cluster", wanted).and_then(|(_, section)| cluster(files, &section, read));
    let user = context
        .non_empty_text("user")
        .and_then(|wanted| of("users", "user", wanted))
        .map(|(name, section)| client_user(files, name, &section, read));
    Some(Context {
        cluster: cluster?,
        user,
    })
}

/// The current context, if it is named and exists.
fn context<'r>(root: &Section<'r>) -> Option<Section<'r>> {
    let current = root.non_empty_text("current-context")?;
    named(root, "contexts", "context")
        .into_iter()
        .find(|(name, _)| *name == current)
        .map(|(_, context)| context)
}

fn cluster(files: &dyn Files, section: &Section<'_>, read: &mut Vec<PathBuf>) -> Option<Cluster> {
    if section.boolean("insecure-skip-tls-verify") == Some(true) {
        let message = "anybody could impersonate the server: set certificate-authority instead";
        section.fault("insecure-skip-tls-verify", FaultKind::Forbidden, message);
    }
    if section.non_empty_text("proxy-url").is_some() {
        section.fault(
            "proxy-url",
            FaultKind::NotSupported,
            "proxies are not supported: remove it",
        );
    }
    let server = section.required_text("server", "the URL to call");
    let is_https = |server: &str| server.len() > 8 && server.to_ascii_lowercase().starts_with("https://");
    if server.is_some_and(|server| !is_https(server)) {
        section.fault("server", FaultKind::Invalid, "must be an https URL");
    }
    Some(Cluster {
        place: section.here(),
        server: server?.to_owned(),
        server_name: section.non_empty_text("tls-server-name").map(str::to_owned),
        authorities: data_or_file(
            files,
            section,
            "certificate-authority-data",
            "certificate-authority",
            read,
        ),
    })
}

fn client_user(files: &dyn Files, name: &str, section: &Section<'_>, read: &mut Vec<PathBuf>) -> ClientUser {
    for field in ["as", "as-uid", "as-groups", "as-user-extra"] {
        if section.value(field).is_some() {
            section.fault(field, FaultKind::Forbidden, NO_IMPERSONATION);
        }
    }
    let user = user(files, name, section, read, NO_PROGRAMS);
    let file = section.non_empty_path("tokenFile");
    let token = user.file_token.or(user.token);
    ClientUser {
        name: user.name,
        place: user.place,
        certificate: key_pair(files, section, user.certificate, read),
        bearer: token.map(|token| Bearer { token, file }),
        // As client-go: without a user name, no header is sent.
        basic: user.basic.filter(|basic| !basic.username.is_empty()),
    }
}

fn key_pair(
    files: &dyn Files,
    section: &Section<'_>,
    certificate: Option<Vec<u8>>,
    read: &mut Vec<PathBuf>,
) -> Option<KeyPair> {
    const DATA: &str = "client-key-data";
    const FILE: &str = "client-key";
    let certificate = certificate?;
    if section.non_empty_text(DATA).is_none() && section.non_empty_text(FILE).is_none() {
        let message = "the private key of the client certificate";
        section.fault(FILE, FaultKind::Required, message);
    }
    let key = data_or_file(files, section, DATA, FILE, read).map(Zeroizing::new)?;
    Some(KeyPair {
        certificate,
        key: Secret::new(key.as_slice()),
    })
}

// === impl ByHost ===

impl ByHost {
    /// The user whose credentials are sent to `target`, a `host:port`; `None`: no credentials are
    /// sent.
    ///
    /// The first match of: the exact name; `*.` and the rest after some labels, the longest rest
    /// first; both again without the port if it is 443; `*`; the user of the current context.
    #[must_use]
    pub fn user_for(&self, target: &str) -> Option<&ClientUser> {
        let without_port = target.strip_suffix(":443").map(without_brackets);
        let named = |name: &str| self.users.iter().find(|user| user.name == name);
        self.fitting(target)
            .or_else(|| self.fitting(without_port?))
            .or_else(|| named("*"))
            .or_else(|| named(self.current.as_deref()?))
    }

    /// The user named `target`, or `*` and what follows from one of the dots of `target`.
    fn fitting(&self, target: &str) -> Option<&ClientUser> {
        let exact = self.users.iter().find(|user| user.name == target);
        exact.or_else(|| {
            let mut suffixes = target.match_indices('.').filter_map(|(dot, _)| target.get(dot..));
            suffixes.find_map(|suffix| {
                self.users
                    .iter()
                    .find(|user| user.name.strip_prefix('*') == Some(suffix))
            })
        })
    }
}

/// The host without the brackets of an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests;
