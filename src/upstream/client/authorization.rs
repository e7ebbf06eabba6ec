//! The `Authorization` header of calls to webhooks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::InvalidSettings;
use crate::config::{Disk, Files as _, Secret};

/// How long a token is used before its file is looked at again; the same as the
/// leeway of client-go's tokens (`transport/token_source.go`).
const FRESH: Duration = Duration::from_secs(10);

/// The `Authorization` header of each request.
#[derive(Debug, Clone, Default)]
pub enum ClientAuthorization {
    /// There is none.
    #[default]
    None,
    /// Always the same.
    Fixed(HeaderValue),
    /// A bearer token out of a file that is read again as time goes by.
    File(Arc<TokenFile>),
}

/// A file that holds a bearer token, which another program replaces.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    header: HeaderValue,
    /// When the file is to be looked at again.
    due: Instant,
}

// === impl Authorization ===

impl ClientAuthorization {
    /// `Bearer`, with `token`.
    ///
    /// # Errors
    ///
    /// A token that no header can hold.
    pub fn bearer(token: &Secret) -> Result<Self, InvalidSettings> {
        bearer(token.reveal()).map(Self::Fixed)
    }

    /// `Basic`, with a name and password.
    ///
    /// # Errors
    ///
    /// None in practice: every name and password can be encoded.
    pub fn basic(username: &str, password: &Secret) -> Result<Self, InvalidSettings> {
        let mut pair = Zeroizing::new(format!("{username}:").into_bytes());
        pair.extend_from_slice(password.reveal());
        let encoded = Zeroizing::new(STANDARD.encode(&*pair));
        header("Basic ", encoded.as_bytes()).map(Self::Fixed)
    }

    /// `Bearer`, with `token` for now and later what the file at `path` holds.
    ///
    /// # Errors
    ///
    /// A token that no header can hold.
    pub fn token_file(path: &Path, token: &Secret) -> Result<Self, InvalidSettings> {
        let current = Current {
            header: bearer(token.reveal())?,
            due: Instant::now() + FRESH,
        };
        Ok(Self::File(Arc::new(TokenFile {
            path: path.to_owned(),
            current: Mutex::new(current),
        })))
    }

    /// The header to send now.
    pub(super) async fn header(&self) -> Option<HeaderValue> {
        match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::File(file) => Some(file.header(Instant::now()).await),
        }
    }

    /// The webhook did not accept it: the next call looks at the file.
    pub(super) fn refused(&self) {
        if let Self::File(file) = self {
            file.with(|current| current.due = Instant::now());
        }
    }
}

// === impl TokenFile ===

impl TokenFile {
    /// One caller in ten seconds reads the file; the others take what there is.
    /// A file that cannot be read leaves the token as it was.
    async fn header(&self, now: Instant) -> HeaderValue {
        let (header, is_due) = self.with(|current| {
            let is_due = current.due <= now;
            if is_due {
                current.due = now + FRESH;
            }
            (current.header.clone(), is_due)
        });
        if !is_due {
            return header;
        }
        let read = read(self.path.clone()).await.map(Zeroizing::new);
        match read.map(|bytes| bearer(bytes.trim_ascii())) {
            Ok(Ok(header)) => self.with(|current| {
                current.header = header.clone();
                header
            }),
            Ok(Err(_)) => {
                tracing::warn!(file = %self.path.display(), "token file is empty: using the previous token");
                header
            }
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "cannot read token file: using the previous token");
                header
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Current) -> T) -> T {
        act(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn read(path: PathBuf) -> io::Result<Vec<u8>> {
    let read = spawn_blocking(move || Disk.read(&path));
    read.await.unwrap_or_else(|error| Err(error.into()))
}

fn bearer(token: &[u8]) -> Result<HeaderValue, InvalidSettings> {
    if token.is_empty() {
        return Err(InvalidSettings::Header);
    }
    header("Bearer ", token)
}

/// Marked, so that it is never printed.
fn header(scheme: &str, credential: &[u8]) -> Result<HeaderValue, InvalidSettings> {
    let mut text = Zeroizing::new(scheme.as_bytes().to_vec());
    text.extend_from_slice(credential);
    let mut header = HeaderValue::from_bytes(&text).map_err(|_| InvalidSettings::Header)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_name_and_password_are_encoded_together() {
        let basic = ClientAuthorization::basic("Aladdin", &Secret::new("open sesame")).unwrap();
        assert_eq!(
            wait(basic.header()).unwrap(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
    }

    #[test]
    fn no_credential_is_printed() {
        let bearer = ClientAuthorization::bearer(&Secret::new("hunter2")).unwrap();
        let file = ClientAuthorization::token_file(Path::new("/absent"), &Secret::new("hunter2")).unwrap();
        let printed = format!("{bearer:?} {file:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_token_that_no_header_holds_is_refused() {
        for token in ["", "a\nb"] {
            assert_eq!(
                ClientAuthorization::bearer(&Secret::new(token)).unwrap_err(),
                InvalidSettings::Header
            );
        }
    }

    #[test]
    fn a_token_file_is_read_again_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "new\n").unwrap();
        let ClientAuthorization::File(file) =
            ClientAuthorization::token_file(&path, &Secret::new("old")).unwrap()
        else {
            panic!("a file was given");
        };
        let now = Instant::now();
        let at = |seconds| wait(file.header(now + Duration::from_secs(seconds)));
        assert_eq!(at(5), "Bearer old");
        assert_eq!(at(11), "Bearer new");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(at(22), "Bearer new", "what cannot be read changes nothing");
    }

    #[test]
    fn a_refused_token_is_looked_at_by_the_next_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "new").unwrap();
        let authorization = ClientAuthorization::token_file(&path, &Secret::new("old")).unwrap();
        assert_eq!(wait(authorization.header()).unwrap(), "Bearer old");
        authorization.refused();
        assert_eq!(wait(authorization.header()).unwrap(), "Bearer new");
    }
}
