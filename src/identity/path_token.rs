//! Tokens in the path: `POST /t/TOKEN/validate`.
//!
//! A webhook configuration cannot contain a credential, and the API server reads one for webhooks
//! only from a file on its own disk. Where that file cannot be changed, the token in the URL keeps
//! out clients that merely reach the network. It does no more: the API server shows the URL of a
//! failed call to the user who made the request. Therefore the holder of a token may be any user of
//! the cluster, and may claim any user and object. Its requests are answered, and change nothing
//! else.
//!
//! Tokens are stored and compared like all secrets ([`rotation`](super::rotation)): by a keyed
//! digest, in constant time.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::caller::{
    self, AuthenticationMethod, CallerMatch, CompiledCaller, CredentialFault, CredentialFields,
    PATH_TOKEN_NAME, Proof, Refusal,
};
use super::certificate::ValidityWindow;
use super::rotation::Purpose;
use super::{Authenticator, Caller};
use crate::config::kubeconfig::Secret;
use crate::config::section::{ReadContext, Section};
use crate::config::{Disk, Endpoint, Files};
use portcullis_policy::document;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// The least length of a token: 52 random characters of 36 letters and digits have 268 bits.
const MIN_TOKEN_BYTES: usize = 52;

/// The greatest length: a segment of `service.path` in a webhook configuration must be a DNS
/// subdomain.
const MAX_TOKEN_BYTES: usize = 253;

/// The most tokens in one file.
const MAX_TOKENS: usize = 64;

// === impl Authenticator ===

impl Authenticator {
    /// The caller with this token in the path, and the period for which that is valid.
    pub(crate) fn by_path_token(
        &self,
        token: &[u8],
        now: SystemTime,
    ) -> (Result<Arc<Caller>, Refusal>, ValidityWindow) {
        let digest = self.digester.digest(Purpose::PathToken, token);
        let proofs = self.path_tokens.get(&digest).map_or(&[][..], Vec::as_slice);
        let outcome = match caller::match_caller(&self.entries, proofs, &[], now) {
            CallerMatch::Caller(outcome) => outcome.map(Arc::new),
            CallerMatch::Incomplete | CallerMatch::Nobody => Err(Refusal::Unauthenticated {
                method: AuthenticationMethod::PathToken,
                cause: CredentialFault::UnknownPathToken,
            }),
        };
        (outcome, ValidityWindow::of_proofs(proofs, now))
    }
}

impl Authenticator {
    /// Warns of webhook configurations in `webhooks.yaml` next to the configuration `file`, the
    /// name that `portcullis init` gives it, whose calls no caller could make. Returns no warnings
    /// if that file cannot be read, because it belongs to the API server.
    pub(crate) fn webhook_configuration_warnings(&self, file: &Path) -> Faults {
        let folder = file.parent().unwrap_or(Path::new(""));
        let path = folder.join("webhooks.yaml");
        let text = Disk
            .read(&path)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let documents = text.and_then(|text| document::parse(path.to_str(), &text).ok());
        let mut faults = Faults::new();
        for document in documents.iter().flatten() {
            let reading = ReadContext::new(document, folder);
            for webhook in reading.foreign_root().items("webhooks") {
                self.check_client_config(&webhook.foreign_section().foreign_section("clientConfig"));
            }
            faults.append(reading.into_faults());
        }
        faults
    }

    fn check_client_config(&self, client: &Section<'_>) {
        let (service, url) = (client.foreign_section("service"), client.text("url"));
        let host_and_path = url.and_then(|url| url.strip_prefix("https://")?.split_once('/'));
        let path = host_and_path.map(|(_, path)| path);
        let Some(path) = path.or_else(|| service.text("path")?.strip_prefix('/')) else {
            return;
        };
        let warn = |message| match url {
            Some(_) => client.warn("url", FaultKind::Suspicious, message),
            None => service.warn("path", FaultKind::Suspicious, message),
        };
        if let Some(token) = path.strip_prefix("t/").and_then(|path| path.split('/').next()) {
            let digest = self.digester.digest(Purpose::PathToken, token.as_bytes());
            if !self.path_tokens.contains_key(&digest) {
                let message = "no file of `callers[].pathToken` contains the token in this path: calls are \
                    answered with 401";
                warn(message);
            }
            return;
        }
        let endpoint = path.split('/').next().unwrap_or_default();
        let Some(endpoint) = Endpoint::ALL.into_iter().find(|known| known.as_str() == endpoint) else {
            return;
        };
        let proves = |entry: &&CompiledCaller| entry.endpoints.contains(endpoint) && !entry.has_path_token();
        let mut callers = self.entries.iter().filter(proves).peekable();
        if callers.peek().is_none() {
            warn(
                "no caller can use this path: all callers need a token in the path. Write `/t/TOKEN` before \
                it, or add an entry of `callers` with a kubeconfig and configure the API server with it \
                (`--admission-control-config-file`)",
            );
        } else if callers.all(CompiledCaller::has_webhook_token) {
            warn(
                "only a token bound to this webhook configuration is accepted here \
                (`callers[].webhookToken`), but Kubernetes 1.37 does not send one, so calls are answered \
                with 401. Write `/t/TOKEN` before the path, or configure the API server with a kubeconfig of \
                `callers` (`--admission-control-config-file`)",
            );
        }
    }
}

/// The proof that a token is one of the entry at `position`.
pub(crate) fn proof(position: usize) -> Proof {
    Proof {
        entry: position,
        field: CredentialFields::PATH_TOKEN,
        name: PATH_TOKEN_NAME.into(),
        method: AuthenticationMethod::PathToken,
        until: None,
        attestation: None,
    }
}

/// Reads the tokens in the file at `path`, one in each line. Empty lines are ignored.
pub(crate) fn read(files: &dyn Files, path: &Path) -> (Vec<Secret>, Faults) {
    let mut faults = Faults::new();
    let mut fault = |line: usize, kind, message: String| {
        let place = Place {
            line: u32::try_from(line).unwrap_or(0),
            ..Place::of_file(path)
        };
        faults.push(Fault::error(place, kind, message));
    };
    let content = match files.read(path) {
        Ok(content) => Secret::new(content),
        Err(error) => {
            fault(0, FaultKind::Unreadable, error.to_string());
            return (Vec::new(), faults);
        }
    };
    let lines = content.reveal().split(|byte| *byte == b'\n').enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.trim_ascii()));
    let mut tokens = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        if tokens.len() == MAX_TOKENS {
            let message =
                format!("more than {MAX_TOKENS} tokens: remove those that no webhook configuration uses");
            fault(number, FaultKind::Invalid, message);
            break;
        }
        if is_token(line) {
            tokens.push(Secret::new(line));
        } else {
            let message = format!(
                "not a token: {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} random characters of a-z and 0-9, such as \
                 `openssl rand -hex 32` makes"
            );
            fault(number, FaultKind::Invalid, message);
        }
    }
    if tokens.is_empty() && faults.is_empty() {
        let message = "contains no token: write the output of `openssl rand -hex 32` to it";
        let place = Place::of_file(path);
        faults.push(Fault::error(place, FaultKind::Required, message));
    }
    (tokens, faults)
}

/// Whether `text` can be a token: it could be a DNS subdomain, and is too long to be guessed.
pub(crate) fn is_token(text: &[u8]) -> bool {
    (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len())
        && text
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
