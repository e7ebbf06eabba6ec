//! The server that a kubeconfig's current context names, and how to show
//! oneself there.
//!
//! Read as client-go reads it: unknown fields are passed over, relative paths
//! start at the file's own folder, `…-data` wins over the path beside it, text
//! that is empty is absent. What would weaken the connection, or take another
//! program or a proxy to make it, is a fault.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::files::Files;
use super::secret::Secret;
use super::section::{Reading, Section};
use crate::document;
use crate::field::{Fault, FaultKind, Faults, Place};

/// Where to go, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// `https://…`, as written.
    pub server: String,
    /// The name that the server's certificate must have, where it is not that of the address.
    pub server_name: Option<String>,
    /// PEM: who signs the server's certificate; `None`: whom the system trusts.
    pub authority: Option<Vec<u8>>,
    /// PEM: the client's certificate with its intermediates, and its key.
    pub identity: Option<(Vec<u8>, Secret)>,
    /// The bearer token.
    pub token: Option<Token>,
    /// Name and password.
    pub basic: Option<(String, Secret)>,
}

/// Where a bearer token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Here.
    Inline(Secret),
    /// In a file, which whoever issues tokens writes anew.
    File(PathBuf),
}

/// What a kubeconfig says.
#[derive(Debug, Default)]
pub struct Found {
    /// Where to go; only without errors among the faults.
    pub connection: Option<Connection>,
    /// Every file that was read or should have been.
    pub files: Vec<PathBuf>,
    /// What is wrong.
    pub faults: Faults,
}

/// Reads the kubeconfig at `path`, an absolute path, with the files that it names.
#[must_use]
pub fn read(files: &dyn Files, path: &Path) -> Found {
    let mut found = Found {
        files: vec![path.to_owned()],
        ..Found::default()
    };
    let place = Place {
        file: Some(path.display().to_string().into()),
        ..Place::default()
    };
    let text = match files.read(path).map(Zeroizing::new) {
        Err(error) => Err(error.to_string()),
        Ok(bytes) => std::str::from_utf8(&bytes)
            .map(|text| Zeroizing::new(text.to_owned()))
            .map_err(|_| "not UTF-8".to_owned()),
    };
    match text {
        Err(message) => found
            .faults
            .push(Fault::error(place, FaultKind::Unreadable, message)),
        Ok(text) => match document::parse(place.file.as_deref(), &text).as_deref() {
            Err(fault) => found.faults.push(fault.clone()),
            Ok([document]) => {
                let reading = Reading::new(document, path.parent().unwrap_or(path));
                let mut reader = Reader {
                    disk: files,
                    files: &mut found.files,
                };
                found.connection = reader.context(&reading.foreign_root());
                found.faults.append(reading.into_faults());
            }
            Ok(_) => {
                let message = "must hold one kubeconfig";
                found
                    .faults
                    .push(Fault::error(place, FaultKind::Invalid, message));
            }
        },
    }
    found.connection = found.connection.filter(|_| !found.faults.has_errors());
    found
}

/// Reads files, and keeps account of them.
struct Reader<'f> {
    disk: &'f dyn Files,
    files: &'f mut Vec<PathBuf>,
}

// === impl Reader ===

impl Reader<'_> {
    fn context(&mut self, root: &Section<'_>) -> Option<Connection> {
        let name = root.required_text("current-context", "the context to use")?;
        let context = named(root, "contexts", name, "context", ("current-context", root))?;
        let cluster = context.required_text("cluster", "the cluster of the context")?;
        let cluster = named(root, "clusters", cluster, "cluster", ("cluster", &context));
        let user = match context.text_if_any("user") {
            Some(name) => named(root, "users", name, "user", ("user", &context))?,
            // Its fields are absent: nobody in particular.
            None => context.foreign_section("user"),
        };
        let cluster = cluster?;
        refuse(&cluster, &user);
        let server = cluster.required_text("server", "the address of the API server");
        if server.is_some_and(|server| !server.starts_with("https://")) {
            cluster.fault("server", FaultKind::Invalid, "must begin with `https://`");
        }
        let authority = self.data(&cluster, "certificate-authority-data", "certificate-authority");
        let certificate = self.data(&user, "client-certificate-data", "client-certificate");
        let key = self.data(&user, "client-key-data", "client-key");
        if certificate.is_some() != key.is_some() {
            let message = "a certificate and its key belong together: one of them is not there";
            user.fault("client-certificate", FaultKind::Required, message);
        }
        Some(Connection {
            server: server?.to_owned(),
            server_name: cluster.text_if_any("tls-server-name").map(str::to_owned),
            authority,
            identity: certificate.zip(key.map(Secret::new)),
            token: self.token(&user),
            basic: basic(&user),
        })
    }

    /// What stands in `data`, or in the file that `path` names.
    fn data(&mut self, section: &Section<'_>, data: &str, path: &str) -> Option<Vec<u8>> {
        if let Some(text) = section.text_if_any(data) {
            let text: String = text.split_ascii_whitespace().collect();
            let decoded = STANDARD.decode(text).ok();
            if decoded.is_none() {
                section.fault(data, FaultKind::Invalid, "not base64");
            }
            return decoded;
        }
        let file = section.path_if_any(path)?;
        let content = self.disk.read(&file);
        let told = |error| {
            let message = format!("`{}`: {error}", file.display());
            section.fault(path, FaultKind::Unreadable, message);
        };
        self.files.push(file.clone());
        content.map_err(told).ok()
    }

    /// As with client-go, the file comes before the text beside it. The file is
    /// no part of what a change of this connection is seen by: it is read
    /// again and again for as long as the connection is used.
    fn token(&mut self, user: &Section<'_>) -> Option<Token> {
        if let Some(file) = user.path_if_any("tokenFile") {
            if let Err(error) = self.disk.read(&file).map(Zeroizing::new) {
                let message = format!("`{}`: {error}", file.display());
                user.fault("tokenFile", FaultKind::Unreadable, message);
            }
            return Some(Token::File(file));
        }
        let token = user.text_if_any("token")?;
        Some(Token::Inline(Secret::new(token.trim())))
    }
}

/// The `field` of the item `name` in the list `list`, as `reference` calls for it.
fn named<'r>(
    root: &Section<'r>,
    list: &str,
    name: &str,
    field: &str,
    (place, reference): (&str, &Section<'_>),
) -> Option<Section<'r>> {
    let items = root.items(list);
    let mut sections = items.iter().map(super::section::Item::foreign_section);
    let found = sections.find(|section| section.text_if_any("name") == Some(name));
    if found.is_none() {
        let message = format!("`{name}` is not among `{list}`");
        reference.fault(place, FaultKind::NotFound, message);
    }
    found.map(|section| section.foreign_section(field))
}

/// What no gateway does.
fn refuse(cluster: &Section<'_>, user: &Section<'_>) {
    let skips = cluster.value("insecure-skip-tls-verify").map(|node| &node.value);
    if skips.is_some_and(|value| *value != document::Value::Bool(false)) {
        let message = "what decides must come from the API server itself: name its `certificate-authority`";
        cluster.fault("insecure-skip-tls-verify", FaultKind::Forbidden, message);
    }
    if cluster.text_if_any("proxy-url").is_some() {
        cluster.fault("proxy-url", FaultKind::NotSupported, "no proxy is used");
    }
    for field in ["exec", "auth-provider"] {
        if user.value(field).is_some() {
            let message =
                "no program is run for a credential: use a certificate, `token`, `tokenFile` or password";
            user.fault(field, FaultKind::Forbidden, message);
        }
    }
    for field in ["as", "as-uid", "as-groups", "as-user-extra"] {
        if user.value(field).is_some() {
            let message = "nobody else is acted as: use credentials of the gateway's own";
            user.fault(field, FaultKind::NotSupported, message);
        }
    }
}

fn basic(user: &Section<'_>) -> Option<(String, Secret)> {
    let name = user.text_if_any("username")?;
    if user.value("token").is_some() || user.value("tokenFile").is_some() {
        let message = "either a token or a name and password: client-go refuses both";
        user.fault("username", FaultKind::Forbidden, message);
    }
    let password = user.text_if_any("password").unwrap_or_default();
    Some((name.to_owned(), Secret::new(password)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn found(cluster: &str, user: &str) -> (Option<Connection>, String) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
             contexts: [{{name: other}}, {{name: here, context: {{cluster: c, user: u, namespace: n}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        let files: BTreeMap<PathBuf, Vec<u8>> = [
            ("/k/config", text.as_str()),
            ("/k/ca.crt", "CA"),
            ("/k/tls.crt", "CERT"),
            ("/k/tls.key", "KEY"),
            ("/k/token", "t"),
        ]
        .map(|(path, text)| (path.into(), text.into()))
        .into();
        let found = read(&files, Path::new("/k/config"));
        (found.connection, found.faults.to_string())
    }

    #[test]
    fn reads_the_current_context() {
        let (connection, faults) = found(
            "server: 'https://a:6443', certificate-authority: ca.crt, tls-server-name: kubernetes",
            "client-certificate: tls.crt, client-key-data: S0VZ",
        );
        assert_eq!(faults, "");
        let expected = Connection {
            server: "https://a:6443".into(),
            server_name: Some("kubernetes".into()),
            authority: Some(b"CA".into()),
            identity: Some((b"CERT".into(), Secret::new("KEY"))),
            token: None,
            basic: None,
        };
        assert_eq!(connection, Some(expected));
    }

    #[test]
    fn reads_tokens_and_passwords() {
        let of = |user| found("server: 'https://a'", user).0.unwrap();
        assert_eq!(
            of("token: t0, tokenFile: token").token,
            Some(Token::File("/k/token".into()))
        );
        assert_eq!(of("token: ' t0 '").token, Some(Token::Inline(Secret::new("t0"))));
        assert_eq!(
            of("username: n, password: p").basic,
            Some(("n".into(), Secret::new("p")))
        );
        assert_eq!(of("").token, None);
    }

    #[test]
    fn what_weakens_the_connection_is_a_fault() {
        let table = [
            (
                "server: 'http://a'",
                "",
                "clusters[0].cluster.server: Invalid value: must begin with `https://`",
            ),
            (
                "server: 'https://a', insecure-skip-tls-verify: true",
                "",
                "insecure-skip-tls-verify: Forbidden",
            ),
            (
                "server: 'https://a', proxy-url: 'http://p'",
                "",
                "proxy-url: Unsupported value: no proxy",
            ),
            (
                "server: 'https://a'",
                "exec: {command: x}",
                "users[0].user.exec: Forbidden: no program is run",
            ),
            (
                "server: 'https://a'",
                "token: t, as: root",
                "users[0].user.as: Unsupported value",
            ),
            (
                "server: 'https://a'",
                "tokenFile: gone",
                "users[0].user.tokenFile: Unreadable: `/k/gone`",
            ),
            (
                "server: 'https://a'",
                "client-certificate: tls.crt",
                "users[0].user.client-certificate: Required value",
            ),
            ("", "", "clusters[0].cluster.server: Required value"),
        ];
        for (cluster, user, expected) in table {
            let (connection, faults) = found(cluster, user);
            assert_eq!(connection, None);
            assert!(faults.contains(expected) && !faults.contains('\n'), "{faults}");
        }
        let (connection, faults) = found("server: 'https://a', insecure-skip-tls-verify: false", "");
        assert!(connection.is_some(), "{faults}");
    }

    #[test]
    fn names_that_lead_nowhere_are_faults() {
        let text = "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\n";
        let files: BTreeMap<PathBuf, Vec<u8>> = [("/k".into(), text.into())].into();
        let found = read(&files, Path::new("/k"));
        assert_eq!(
            found.faults.to_string(),
            "/k:2: contexts[0].context.cluster: Not found: `b` is not among `clusters`\n\
             /k:2: contexts[0].context.user: Not found: `c` is not among `users`"
        );
        let gone = read(&files, Path::new("/gone"));
        assert_eq!(gone.files, [PathBuf::from("/gone")]);
        assert!(gone.faults.has_errors());
    }
}
