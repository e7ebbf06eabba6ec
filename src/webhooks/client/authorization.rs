//! The `Authorization` header of calls to webhooks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::reply::SettingsError;
use crate::config::{FileScope, Files, Secret};

/// How long a token is used before its file is read again; the same as the
/// leeway of client-go's tokens (`transport/token_source.go`).
const TOKEN_LEEWAY: Duration = Duration::from_secs(10);

/// The least time between two looks, however often a webhook refuses the token.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

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
    scope: FileScope,
    current: Mutex<CachedToken>,
}

#[derive(Debug)]
struct CachedToken {
    header: HeaderValue,
    /// When the file is to be read again.
    due: Instant,
    /// When it was read last, if ever.
    looked: Option<Instant>,
    /// Somebody looks.
    is_looking: bool,
}

// === impl ClientAuthorization ===

impl ClientAuthorization {
    /// `Bearer`, with `token`.
    ///
    /// # Errors
    ///
    /// A token that no header can hold.
    pub fn bearer(token: &Secret) -> Result<Self, SettingsError> {
        bearer(token.reveal()).map(Self::Fixed)
    }

    /// `Basic`, with a name and password.
    ///
    /// # Errors
    ///
    /// None in practice: every name and password can be encoded.
    pub fn basic(username: &str, password: &Secret) -> Result<Self, SettingsError> {
        let mut pair = Zeroizing::new(format!("{username}:").into_bytes());
        pair.extend_from_slice(password.reveal());
        let encoded = Zeroizing::new(STANDARD.encode(&*pair));
        header("Basic ", encoded.as_bytes()).map(Self::Fixed)
    }

    /// `Bearer`, with `token` for now and later what the file at `path` holds, which is in `scope`.
    ///
    /// # Errors
    ///
    /// A token that no header can hold.
    pub fn token_file((path, scope): (&Path, &FileScope), token: &Secret) -> Result<Self, SettingsError> {
        let current = CachedToken {
            header: bearer(token.reveal())?,
            due: Instant::now() + TOKEN_LEEWAY,
            looked: None,
            is_looking: false,
        };
        Ok(Self::File(Arc::new(TokenFile {
            path: path.to_owned(),
            scope: scope.clone(),
            current: Mutex::new(current),
        })))
    }

    /// The header to send now.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::File(file) => Some(file.header(Instant::now()).await),
        }
    }

    /// The webhook did not accept it: the next call looks at the file, if none did just now.
    pub(crate) fn refused(&self) {
        if let Self::File(file) = self {
            file.refused(Instant::now());
        }
    }
}

// === impl TokenFile ===

impl TokenFile {
    /// One caller in ten seconds reads the file; the others take what there is, and so
    /// do all while that takes: its file system holds one thread at most. A file that
    /// cannot be read leaves the token as it was.
    async fn header(self: &Arc<Self>, now: Instant) -> HeaderValue {
        let (header, is_due) = self.with(|current| {
            let is_due = current.due <= now && !current.is_looking;
            if is_due {
                current.due = now + TOKEN_LEEWAY;
                current.looked = Some(now);
                current.is_looking = true;
            }
            (current.header.clone(), is_due)
        });
        if !is_due {
            return header;
        }
        let file = Arc::clone(self);
        spawn_blocking(move || file.look()).await.unwrap_or(header)
    }

    /// Reads the file; the header to send from now on.
    fn look(&self) -> HeaderValue {
        let read = Files::read(&self.scope, &self.path).map(Zeroizing::new);
        let file = self.path.display();
        let fresh = match read.map(|bytes| bearer(bytes.trim_ascii())) {
            Ok(Ok(header)) => Some(header),
            Ok(Err(_)) => {
                tracing::warn!(%file, "token file is empty: using the previous token");
                None
            }
            Err(error) => {
                tracing::warn!(%file, %error, "cannot read token file: using the previous token");
                None
            }
        };
        self.with(|current| {
            current.is_looking = false;
            if let Some(fresh) = fresh {
                current.header = fresh;
            }
            current.header.clone()
        })
    }

    fn refused(&self, now: Instant) {
        self.with(|current| {
            let soon = current
                .looked
                .map_or(now, |looked| now.max(looked + MIN_READ_INTERVAL));
            current.due = current.due.min(soon);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut CachedToken) -> T) -> T {
        act(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn bearer(token: &[u8]) -> Result<HeaderValue, SettingsError> {
    if token.is_empty() {
        return Err(SettingsError::Header);
    }
    header("Bearer ", token)
}

/// Marked, so that it is never printed.
fn header(scheme: &str, credential: &[u8]) -> Result<HeaderValue, SettingsError> {
    let mut text = Zeroizing::new(scheme.as_bytes().to_vec());
    text.extend_from_slice(credential);
    let mut header = HeaderValue::from_bytes(&text).map_err(|_| SettingsError::Header)?;
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
        let file = ClientAuthorization::token_file(
            (Path::new("/absent"), &FileScope::Anywhere),
            &Secret::new("hunter2"),
        )
        .unwrap();
        let printed = format!("{bearer:?} {file:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_token_that_no_header_holds_is_refused() {
        for token in ["", "a\nb"] {
            assert_eq!(
                ClientAuthorization::bearer(&Secret::new(token)).unwrap_err(),
                SettingsError::Header
            );
        }
    }

    #[test]
    fn a_token_file_is_read_again_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "new\n").unwrap();
        let ClientAuthorization::File(file) =
            ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
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
        let authorization =
            ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap();
        assert_eq!(wait(authorization.header()).unwrap(), "Bearer old");
        authorization.refused();
        assert_eq!(wait(authorization.header()).unwrap(), "Bearer new");
    }

    #[test]
    fn a_webhook_that_refuses_every_token_has_its_file_read_once_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "new").unwrap();
        let ClientAuthorization::File(file) =
            ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
        else {
            panic!("a file was given");
        };
        let start = Instant::now();
        let refused_at = |milliseconds| {
            let now = start + Duration::from_millis(milliseconds);
            file.refused(now);
            wait(file.header(now))
        };
        assert_eq!(refused_at(0), "Bearer new");
        std::fs::write(&path, "newer").unwrap();
        assert_eq!(refused_at(10), "Bearer new");
        assert_eq!(refused_at(990), "Bearer new");
        assert_eq!(refused_at(1000), "Bearer newer");
    }

    #[test]
    fn a_file_that_is_being_read_is_not_read_again_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "new").unwrap();
        let ClientAuthorization::File(file) =
            ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
        else {
            panic!("a file was given");
        };
        let later = Instant::now() + 2 * TOKEN_LEEWAY;
        file.with(|current| current.is_looking = true);
        assert_eq!(wait(file.header(later)), "Bearer old");
        assert_eq!(file.look(), "Bearer new");
        std::fs::write(&path, "newer").unwrap();
        assert_eq!(wait(file.header(later)), "Bearer newer");
    }
}
