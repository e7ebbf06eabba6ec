//! Entries of `callers`, authenticated callers, and the reasons for rejecting a request.
//!
//! ```text
//! certificate, token, password --tables--> Proof (entry, field) --name--> Caller
//! ```

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use super::webhook_token::Attestation;
use crate::config::{CallerEntry, Endpoint, Endpoints};
use crate::identity::certificates::rfc3339;
use portcullis_policy::model::cut;

pub use crate::telemetry::metrics::AuthenticationMethod;

/// A caller that was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its name for the log: `FILE:USER` of a kubeconfig, the common name (else
    /// the first alternative name) of a certificate, the `sub` of a token, `pathToken` of one in the path.
    pub name: Arc<str>,
    /// The cluster that it speaks for.
    pub cluster: Arc<str>,
    /// With whom it shares places, bytes, threads and connections: the callers of its cluster, those with
    /// a token in the path apart from the others.
    pub share: Arc<str>,
    /// What it may use.
    pub endpoints: Endpoints,
    /// Whether the console shows it every cluster, and not its own alone.
    pub sees_all_clusters: bool,
    /// What it was recognised by.
    pub method: AuthenticationMethod,
    /// The calls that its token is for, where that says so.
    pub attestation: Option<Arc<Attestation>>,
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody is known by what was shown: 401.
    #[error("unauthorized: {cause}")]
    Unauthenticated {
        /// The last credential that was checked.
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
    /// The caller's token is for the objects of other API groups: 403.
    #[error("`{name}` may not ask about API group `{group}`")]
    GroupForbidden {
        /// The caller.
        name: Arc<str>,
        /// What it was recognised by.
        method: AuthenticationMethod,
        /// That of the object under review; empty for the core group.
        group: String,
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
    #[error("certificate expired on {}", rfc3339(*.0))]
    Expired(SystemTime),
    /// The caller's other credential is missing.
    #[error("one of the caller's credentials is missing")]
    Incomplete,
    /// The token in the path is none of a caller's.
    #[error("unknown token in the path")]
    UnknownPathToken,
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
    /// Its `exp` is past.
    #[error("expired")]
    Expired,
    /// It has no `exp`, or one that is no time: it would be valid for ever.
    #[error("no valid `exp` claim")]
    NoExpiry,
    /// Its `nbf` is yet to come.
    #[error("not yet valid")]
    NotYetValid,
    /// Its `aud` holds none of the audiences.
    #[error("its `aud` has none of the configured audiences")]
    Audience,
    /// It lacks a claim that the caller's must have.
    #[error("a required claim is missing or different")]
    Claims,
    /// It is not a token for the calls of one webhook configuration.
    #[error("no token bound to a webhook configuration, with the API groups that it may ask about")]
    Unbound,
    /// It is for another URL than that of the request.
    #[error("made for another URL or another kind of webhook configuration")]
    OtherUrl,
    /// Its webhook configuration is none that is watched of the cluster.
    #[error(
        "bound to a webhook configuration that the cluster does not have, or that does not call this URL"
    )]
    Configuration,
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

    /// Whether the caller may ask about objects of each of these API groups.
    ///
    /// # Errors
    ///
    /// [`Refusal::GroupForbidden`] if its token is for those of others.
    pub fn check_groups<'g>(&self, groups: impl IntoIterator<Item = &'g str>) -> Result<(), Refusal> {
        let Some(attestation) = &self.attestation else {
            return Ok(());
        };
        match groups.into_iter().find(|group| !attestation.covers(group)) {
            None => Ok(()),
            Some(group) => Err(Refusal::GroupForbidden {
                name: Arc::clone(&self.name),
                method: self.method,
                group: cut(group.to_owned(), MAX_GROUP_BYTES),
            }),
        }
    }

    /// Whether anybody can be this caller who learned a token that users of the cluster can learn: what it
    /// asks about may never have happened.
    #[must_use]
    pub const fn has_only_path_token(&self) -> bool {
        matches!(self.method, AuthenticationMethod::PathToken)
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
            Self::ClusterConflict { .. }
            | Self::EndpointForbidden { .. }
            | Self::GroupForbidden { .. }
            | Self::ConsoleForbidden { .. } => 403,
        }
    }

    /// What was checked: the label `method` of the failure.
    #[must_use]
    pub const fn method(&self) -> AuthenticationMethod {
        match self {
            Self::Unauthenticated { method, .. }
            | Self::ClusterConflict { method, .. }
            | Self::EndpointForbidden { method, .. }
            | Self::GroupForbidden { method, .. }
            | Self::ConsoleForbidden { method, .. } => *method,
        }
    }

    /// What mends it, for the log of the gateway's administrator.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unauthenticated { cause, .. } => cause.remedy(),
            Self::ClusterConflict { .. } => {
                "the credential meets entries of `callers` with different `cluster`: give each cluster one of its own"
            }
            Self::EndpointForbidden { .. } => "add the endpoint to `endpoints` of its entry of `callers`",
            Self::GroupForbidden { .. } => {
                "the API server must request its token for the group of the object, or for `*`: the attestation \
                 `admissionReviewAPIGroups` of the TokenRequest"
            }
            Self::ConsoleForbidden { .. } => "add `console` to `endpoints` of its entry of `callers`",
        }
    }

    /// What the caller gets: nothing that helps to guess. A client that has the key
    /// of a certificate of the client CA may know that its time is over.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Unauthenticated {
                cause: CredentialFault::Expired(end),
                ..
            } => format!("Unauthorized: certificate expired since {}", rfc3339(*end)).into(),
            Self::Unauthenticated { .. } => "Unauthorized".into(),
            Self::ClusterConflict { .. } => "the caller speaks for more than one cluster".into(),
            Self::EndpointForbidden { .. } => "the caller may not use this endpoint".into(),
            Self::GroupForbidden { group, .. } if group.is_empty() => {
                "the caller's token does not attest the core API group".into()
            }
            Self::GroupForbidden { group, .. } => {
                format!("the caller's token does not attest the API group `{group}` of the object").into()
            }
            Self::ConsoleForbidden { .. } => {
                "the caller may not use the console: its entry of `callers` needs `endpoints: [console]`"
                    .into()
            }
        }
    }
}

// === impl CredentialFault ===

impl CredentialFault {
    /// What mends it, for the log of the gateway's administrator.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Absent => {
                "give the API server the kubeconfig of an entry of `callers`: its flag or configuration names none, \
                 or one without credentials for this server"
            }
            Self::Malformed | Self::UnsupportedScheme => {
                "send a client certificate, `Authorization: Bearer TOKEN` or `Basic`, as a kubeconfig does"
            }
            Self::Unknown => {
                "no entry of `callers` knows this credential: give the API server the kubeconfig of one, or add an \
                 entry (`clientCertificate: {commonNames: […]}` for a certificate of `server.tls.clientCA`)"
            }
            Self::Untrusted => {
                "give the API server a certificate that `server.tls.clientCA` signed for client authentication, or \
                 add its issuer to that file"
            }
            Self::Expired(_) => {
                "renew the certificate, with `portcullis init DIR --renew` where `init` made it"
            }
            Self::Incomplete => {
                "an entry of `callers` that has several fields needs all of them: send each credential, or make an \
                 entry of each field"
            }
            Self::UnknownPathToken => {
                "the webhook configuration has a token that no file of `callers[].pathToken` holds: write the new one \
                 into the file before the webhook configuration, and remove the old one after"
            }
            Self::Token(fault) => fault.remedy(),
        }
    }
}

// === impl TokenFault ===

impl TokenFault {
    const fn remedy(self) -> &'static str {
        match self {
            Self::Issuer => "`issuer` of an entry of `callers` must be the token's issuer, to the letter",
            Self::Key | Self::Signature => {
                "the file `jwks` of the entry of `callers` must hold the key that signed the token: fetch the issuer's \
                 keys again, and see `algorithms`; without `jwks` the keys of the cluster's API server count, which \
                 must let the gateway read /openid/v1/jwks"
            }
            Self::Expired => "the API server sends an old token: renew it, and compare the clocks",
            Self::NoExpiry => {
                "have the issuer make tokens that expire: one without `exp` would be valid for ever"
            }
            Self::NotYetValid => "compare the clocks of issuer and gateway, or raise `leeway`",
            Self::Audience => "have the token made for one of the entry's `audiences`",
            Self::Unbound => {
                "an entry with `webhookToken` takes tokens of API servers alone: of a TokenRequest with one audience, \
                 the webhook configuration as `boundObjectRef`, and `attestations: {admissionReviewAPIGroups: […]}`"
            }
            Self::OtherUrl => {
                "the API server must call the URL that the token was made for: `url` of the webhook, or \
                 `https://NAME.NAMESPACE.svc:PORT/PATH` of its `service`"
            }
            Self::Configuration => {
                "the entry of `clusters` of this cluster must watch the webhook configurations (`admission: Watched`, \
                 config/cluster/admission.yaml), and the one of the token must be there, call this URL, and not have \
                 been deleted and created again since the token was made"
            }
            Self::Claims => "the token must have each of `jwt.claims`",
            Self::Malformed | Self::Critical => "send a JSON Web Token that the issuer signed (RFC 7519)",
        }
    }
}

/// The most bytes of an API group that are quoted.
const MAX_GROUP_BYTES: usize = 253;

/// The name of a caller with a token in the path.
pub const PATH_TOKEN_NAME: &str = AuthenticationMethod::PathToken.as_str();

/// A set of fields of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fields(u8);

/// An entry of `callers`: the credentials that it needs, and what its caller may do.
#[derive(Debug, Clone)]
pub(crate) struct CompiledCaller {
    /// The request must satisfy every one of these.
    pub(crate) needs: Fields,
    pub(crate) endpoints: Endpoints,
    pub(crate) cluster: Arc<str>,
    pub(crate) share: Arc<str>,
    /// Whether the console shows it every cluster.
    sees_all_clusters: bool,
}

/// A credential meets one field of one entry.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// The entry's position.
    pub(crate) entry: usize,
    pub(crate) field: Fields,
    /// The caller's name, as this field knows it.
    pub(crate) name: Arc<str>,
    pub(crate) method: AuthenticationMethod,
    /// The last moment at which it counts, if there is one.
    pub(crate) until: Option<SystemTime>,
    /// The calls that it is for, where it says so.
    pub(crate) attestation: Option<Arc<Attestation>>,
}

/// The caller that proofs match, if any.
#[derive(Debug)]
pub(crate) enum CallerMatch {
    /// One caller, or one that is refused for what it is.
    Caller(Result<Caller, Refusal>),
    /// They match some of the fields of an entry, not all.
    Incomplete,
    /// They match no entry.
    Nobody,
}

// === impl Fields ===

impl Fields {
    pub(crate) const KUBECONFIG: Self = Self(1);
    pub(crate) const CLIENT_CERTIFICATE: Self = Self(2);
    pub(crate) const JWT: Self = Self(4);
    pub(crate) const PATH_TOKEN: Self = Self(8);
    pub(crate) const WEBHOOK_TOKEN: Self = Self(16);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn is_one(self) -> bool {
        self.0.count_ones() == 1
    }
}

// === impl CompiledCaller ===

impl CompiledCaller {
    pub(crate) fn new(entry: &CallerEntry) -> Self {
        let fields = [
            (entry.kubeconfig.is_some(), Fields::KUBECONFIG),
            (entry.client_certificate.is_some(), Fields::CLIENT_CERTIFICATE),
            (entry.jwt.is_some(), Fields::JWT),
            (entry.path_token.is_some(), Fields::PATH_TOKEN),
            (entry.webhook_token.is_some(), Fields::WEBHOOK_TOKEN),
        ];
        let needs = fields.iter().filter(|(is_there, _)| *is_there);
        Self {
            needs: needs.fold(Fields::default(), |needs, (_, field)| needs.with(*field)),
            endpoints: entry.endpoints,
            cluster: entry.cluster.as_str().into(),
            share: match &entry.path_token {
                Some(_) => format!("{} ({PATH_TOKEN_NAME})", entry.cluster).into(),
                None => entry.cluster.as_str().into(),
            },
            sees_all_clusters: entry.sees_all_clusters,
        }
    }

    /// Whether a token in the path is what it asks for.
    pub(crate) const fn has_path_token(&self) -> bool {
        self.needs.holds(Fields::PATH_TOKEN)
    }

    /// Whether a token bound to a webhook configuration is what it asks for.
    pub(crate) const fn has_webhook_token(&self) -> bool {
        self.needs.holds(Fields::WEBHOOK_TOKEN)
    }

    /// Whether one credential alone can meet it.
    pub(crate) const fn is_simple(&self) -> bool {
        self.needs.is_one()
    }
}

// === impl Proof ===

impl Proof {
    fn counts(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

/// Whom `proofs` name, where `others` may complete an entry that they meet in
/// part. Several entries give the union of their endpoints, for one cluster.
pub(crate) fn name(
    entries: &[CompiledCaller],
    proofs: &[Proof],
    others: &[Proof],
    now: SystemTime,
) -> CallerMatch {
    let mut named: Option<Caller> = None;
    let mut incomplete = false;
    for proof in proofs.iter().filter(|proof| proof.counts(now)) {
        let Some(entry) = entries.get(proof.entry) else {
            continue;
        };
        if !entry.is_simple() && !is_met(entry, proof.entry, proofs.iter().chain(others), now) {
            incomplete = true;
            continue;
        }
        match &mut named {
            None => named = Some(caller(entry, proof)),
            Some(caller) if caller.cluster == entry.cluster => {
                caller.endpoints = caller.endpoints.union(entry.endpoints);
                caller.sees_all_clusters |= entry.sees_all_clusters;
                // What limits it does so whatever else the same token meets.
                if caller.attestation.is_none() {
                    caller.attestation.clone_from(&proof.attestation);
                }
            }
            Some(caller) => {
                let (name, method) = (caller.name.clone(), caller.method);
                return CallerMatch::Caller(Err(Refusal::ClusterConflict { name, method }));
            }
        }
    }
    match named {
        Some(caller) => CallerMatch::Caller(Ok(caller)),
        None if incomplete => CallerMatch::Incomplete,
        None => CallerMatch::Nobody,
    }
}

fn is_met<'p>(
    entry: &CompiledCaller,
    position: usize,
    proofs: impl Iterator<Item = &'p Proof>,
    now: SystemTime,
) -> bool {
    let proven = proofs
        .filter(|proof| proof.entry == position && proof.counts(now))
        .fold(Fields::default(), |proven, proof| proven.with(proof.field));
    proven.holds(entry.needs)
}

fn caller(entry: &CompiledCaller, proof: &Proof) -> Caller {
    Caller {
        name: proof.name.clone(),
        cluster: entry.cluster.clone(),
        share: entry.share.clone(),
        endpoints: entry.endpoints,
        sees_all_clusters: entry.sees_all_clusters,
        method: proof.method,
        attestation: proof.attestation.clone(),
    }
}
