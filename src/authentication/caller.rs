//! Authenticated callers, and the reasons for rejecting a request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use crate::certificates::rfc3339;
use crate::config::{Endpoint, Endpoints};
pub use crate::telemetry::metrics::AuthenticationMethod;

/// A caller that was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its name for the log: `FILE:USER` of a kubeconfig, the common name (else
    /// the first alternative name) of a certificate, the `sub` of a token.
    pub name: Arc<str>,
    /// The cluster that it speaks for.
    pub cluster: Arc<str>,
    /// What it may use.
    pub endpoints: Endpoints,
    /// Whether the console shows it every cluster, and not its own alone.
    pub sees_all_clusters: bool,
    /// What it was recognised by.
    pub method: AuthenticationMethod,
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody is known by what was shown: 401.
    #[error("unauthorized: {cause}")]
    Unauthenticated {
        /// The last credential that was looked at.
        method: AuthenticationMethod,
        /// What was wrong with it; for the log, not for the caller.
        cause: CredentialFault,
    },
    /// The credential stands for callers of more than one cluster: 403.
    #[error("`{name}` speaks for more than one cluster")]
    ClusterConflict {
        /// The first caller that it stands for.
        name: Arc<str>,
        /// What it was recognised by.
        method: AuthenticationMethod,
    },
    /// The caller is known, and this is not for it: 403.
    #[error("`{name}` may not use `{}`", endpoint.as_str())]
    EndpointForbidden {
        /// The caller.
        name: Arc<str>,
        /// What it was recognised by.
        method: AuthenticationMethod,
        /// What it asked for.
        endpoint: Endpoint,
    },
    /// The caller is known, and may not see the console: 403.
    #[error("`{name}` may not use the console")]
    ConsoleForbidden {
        /// The caller.
        name: Arc<str>,
        /// What it was recognised by.
        method: AuthenticationMethod,
    },
}

/// What was wrong with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CredentialFault {
    /// There was none.
    #[error("no credential")]
    Absent,
    /// It cannot be read at all.
    #[error("malformed credential")]
    Malformed,
    /// It is of a kind that nothing here accepts.
    #[error("unsupported authorization scheme")]
    UnsupportedScheme,
    /// It could be read, and nobody is known by it.
    #[error("unknown credential")]
    Unknown,
    /// The certificate does not lead to the client CA, at this time and for this purpose.
    #[error("certificate not trusted")]
    Untrusted,
    /// The certificate leads to the client CA, and its time is over.
    #[error("certificate expired since {}", rfc3339(*.0))]
    Expired(SystemTime),
    /// The caller's other credential is missing.
    #[error("one of the caller's credentials is missing")]
    Incomplete,
    /// The token of an issuer is not one of a caller's.
    #[error("token not accepted: {0}")]
    Token(TokenFault),
}

/// What is wrong with the token of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenFault {
    /// It is too long, or not three parts of which the first two are JSON.
    #[error("malformed")]
    Malformed,
    /// Its header asks for what is not understood here (`crit`).
    #[error("critical header not understood")]
    Critical,
    /// No caller's `issuer` is its `iss`.
    #[error("unknown issuer")]
    Issuer,
    /// No key of the issuer fits its `kid` and `alg`, or several do.
    #[error("no key for its `kid` and `alg`")]
    Key,
    /// The signature is not that of the key.
    #[error("wrong signature")]
    Signature,
    /// It has no `exp`, or one that is past.
    #[error("expired")]
    Expired,
    /// Its `nbf` is yet to come.
    #[error("not yet valid")]
    NotYetValid,
    /// Its `aud` holds none of the audiences.
    #[error("other audience")]
    Audience,
    /// It lacks a claim that the caller's must have.
    #[error("other claims")]
    Claims,
}

// === impl Caller ===

impl Caller {
    /// Whether the caller may use `endpoint`.
    ///
    /// # Errors
    ///
    /// [`Refusal::EndpointForbidden`] if it may not.
    pub fn check(&self, endpoint: Endpoint) -> Result<(), Refusal> {
        if self.endpoints.contains(endpoint) {
            return Ok(());
        }
        Err(Refusal::EndpointForbidden {
            name: self.name.clone(),
            method: self.method,
            endpoint,
        })
    }

    /// Whether the caller may see the console.
    ///
    /// # Errors
    ///
    /// [`Refusal::ConsoleForbidden`] if it may not.
    pub fn check_console(&self) -> Result<(), Refusal> {
        if self.endpoints.contains_console() {
            return Ok(());
        }
        Err(Refusal::ConsoleForbidden {
            name: self.name.clone(),
            method: self.method,
        })
    }
}

// === impl Refusal ===

impl Refusal {
    /// The HTTP status that says so; 401 comes with
    /// [`challenge`](super::Authenticator::challenge) as `WWW-Authenticate`.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Unauthenticated { .. } => 401,
            Self::ClusterConflict { .. } | Self::EndpointForbidden { .. } | Self::ConsoleForbidden { .. } => {
                403
            }
        }
    }

    /// What was looked at: the label `method` of the failure.
    #[must_use]
    pub const fn method(&self) -> AuthenticationMethod {
        match self {
            Self::Unauthenticated { method, .. }
            | Self::ClusterConflict { method, .. }
            | Self::EndpointForbidden { method, .. }
            | Self::ConsoleForbidden { method, .. } => *method,
        }
    }

    /// What the caller gets: nothing that helps to guess. Whoever has the key
    /// of a certificate of the client CA may know that its time is over.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Unauthenticated {
                cause: cause @ CredentialFault::Expired(_),
                ..
            } => format!("Unauthorized: {cause}").into(),
            Self::Unauthenticated { .. } => "Unauthorized".into(),
            Self::ClusterConflict { .. } => "the caller speaks for more than one cluster".into(),
            Self::EndpointForbidden { .. } => "the caller may not use this endpoint".into(),
            Self::ConsoleForbidden { .. } => {
                "the caller may not use the console: its entry of `callers` needs `endpoints: [console]`"
                    .into()
            }
        }
    }
}
