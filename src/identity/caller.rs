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

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its name in the log: `FILE:USER` of a kubeconfig, the common name (or else the first
    /// alternative name) of a certificate, the `sub` of a token, `pathToken` for a path token.
    pub name: Arc<str>,
    /// The cluster for which it makes requests.
    pub cluster: Arc<str>,
    /// The share in which its requests, bytes, threads and connections count: that of the callers
    /// of its cluster, or that of those with a path token.
    pub share: Arc<str>,
    /// The endpoints that it may use.
    pub endpoints: Endpoints,
    /// Whether the console shows it every cluster, instead of only its own.
    pub sees_all_clusters: bool,
    /// The method by which it was authenticated.
    pub method: AuthenticationMethod,
    /// The calls that its token is valid for, if the token says so.
    pub attestation: Option<Arc<Attestation>>,
}

/// Why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The credentials identify no caller: 401.
    #[error("unauthorized: {cause}")]
    Unauthenticated {
        /// The method of the last credential that was checked.
        method: AuthenticationMethod,
        /// What is wrong with that credential; for the log, not for the client.
        cause: CredentialFault,
    },
    /// The credential identifies callers of more than one cluster: 403.
    #[error("`{name}` is configured for more than one cluster")]
    ClusterConflict {
        /// The name of the first of these callers.
        name: Arc<str>,
        /// The method by which it was authenticated.
        method: AuthenticationMethod,
    },
    /// The caller may not use the endpoint: 403.
    #[error("`{name}` may not use `{}`", endpoint.as_str())]
    EndpointForbidden {
        /// The caller.
        name: Arc<str>,
        /// The method by which it was authenticated.
        method: AuthenticationMethod,
        /// The requested endpoint.
        endpoint: Endpoint,
    },
    /// The caller's token is not valid for the API group of the object: 403.
    #[error("`{name}` may not send reviews of API group `{group}`")]
    GroupForbidden {
        /// The caller.
        name: Arc<str>,
        /// The method by which it was authenticated.
        method: AuthenticationMethod,
        /// The API group of the reviewed object; empty for the core group.
        group: String,
    },
    /// The caller may not see the console: 403.
    #[error("`{name}` may not use the console")]
    ConsoleForbidden {
        /// The caller.
        name: Arc<str>,
        /// The method by which it was authenticated.
        method: AuthenticationMethod,
    },
}

/// What is wrong with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CredentialFault {
    /// There is no credential.
    #[error("no credential")]
    Absent,
    /// It cannot be parsed.
    #[error("malformed credential")]
    Malformed,
    /// Its scheme is not supported.
    #[error("unsupported authorization scheme")]
    UnsupportedScheme,
    /// It identifies no caller.
    #[error("unknown credential")]
    Unknown,
    /// The certificate does not chain to the client CA, or is not valid now or for this purpose.
    #[error("certificate not trusted")]
    Untrusted,
    /// The certificate chains to the client CA, and has expired.
    #[error("certificate expired on {}", rfc3339(*.0))]
    Expired(SystemTime),
    /// Another credential that the entry of `callers` requires is missing.
    #[error("one of the caller's credentials is missing")]
    Incomplete,
    /// The token in the path belongs to no caller.
    #[error("unknown token in the path")]
    UnknownPathToken,
    /// The JWT belongs to no caller.
    #[error("token not accepted: {0}")]
    Token(TokenFault),
}

/// What is wrong with a JWT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenFault {
    /// It is too long, or not three parts of which the first two are JSON.
    #[error("malformed")]
    Malformed,
    /// Its header has `crit`, whose extensions are not supported.
    #[error("critical header not understood")]
    Critical,
    /// Its `iss` is the `issuer` of no caller.
    #[error("unknown issuer")]
    Issuer,
    /// No key of the issuer matches its `kid` and `alg`, or several do.
    #[error("no key for its `kid` and `alg`")]
    Key,
    /// The signature does not verify with the key.
    #[error("wrong signature")]
    Signature,
    /// Its `exp` is past.
    #[error("expired")]
    Expired,
    /// It has no `exp`, or an invalid one: it would be valid forever.
    #[error("no valid `exp` claim")]
    NoExpiry,
    /// Its `nbf` is in the future.
    #[error("not yet valid")]
    NotYetValid,
    /// Its `aud` contains none of the configured audiences.
    #[error("its `aud` contains none of the configured audiences")]
    Audience,
    /// It lacks a claim that the entry requires.
    #[error("a required claim is missing or different")]
    Claims,
    /// It is not bound to a webhook configuration.
    #[error("not bound to a webhook configuration, or without the API groups of which it may send reviews")]
    Unbound,
    /// It is for another URL than that of the request.
    #[error("made for another URL or another kind of webhook configuration")]
    OtherUrl,
    /// Its webhook configuration is not among those of the cluster that are watched.
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

    /// Whether the caller may request reviews of objects of each of these API groups.
    ///
    /// # Errors
    ///
    /// [`Refusal::GroupForbidden`] if its token is not valid for one of them.
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

    /// Whether the caller proved only a token that users of the cluster can learn. Its requests may
    /// be made up by any of them.
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
    /// The HTTP status. A 401 has [`challenge`](super::Authenticator::challenge) as
    /// `WWW-Authenticate`.
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

    /// The method that was checked: the label `method` of the metric.
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

    /// The remedy, for the log of the gateway's administrator.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unauthenticated { cause, .. } => cause.remedy(),
            Self::ClusterConflict { .. } => {
                "the credential matches entries of `callers` with different `cluster`: use a separate \
                credential for each cluster"
            }
            Self::EndpointForbidden { .. } => "add the endpoint to `endpoints` of its entry of `callers`",
            Self::GroupForbidden { .. } => {
                "the API server must request its token for the group of the object, or for `*`: the attestation \
                 `admissionReviewAPIGroups` of the TokenRequest"
            }
            Self::ConsoleForbidden { .. } => "add `console` to `endpoints` of its entry of `callers`",
        }
    }

    /// The message for the client, which reveals nothing that helps to guess. A client with the key
    /// of a certificate of the client CA may learn that it has expired.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Unauthenticated {
                cause: CredentialFault::Expired(end),
                ..
            } => format!("Unauthorized: certificate expired since {}", rfc3339(*end)).into(),
            Self::Unauthenticated { .. } => "Unauthorized".into(),
            Self::ClusterConflict { .. } => "the caller is configured for more than one cluster".into(),
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
    /// The remedy, for the log of the gateway's administrator.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Absent => {
                "configure the API server with the kubeconfig of an entry of `callers`: it uses none, or one \
                without credentials for this server"
            }
            Self::Malformed | Self::UnsupportedScheme => {
                "send a client certificate, `Authorization: Bearer TOKEN` or `Basic`, as a kubeconfig does"
            }
            Self::Unknown => {
                "no entry of `callers` accepts this credential: configure the API server with the kubeconfig \
                of an entry, or add an entry (`clientCertificate: {commonNames: […]}` for a certificate of \
                `server.tls.clientCA`)"
            }
            Self::Untrusted => {
                "give the API server a certificate that `server.tls.clientCA` signed for client authentication, or \
                 add its issuer to that file"
            }
            Self::Expired(_) => {
                "renew the certificate; if `init` created it, with `portcullis init DIR --renew`"
            }
            Self::Incomplete => {
                "an entry of `callers` with several fields requires all of these credentials: send each of \
                them, or use a separate entry for each field"
            }
            Self::UnknownPathToken => {
                "no file of `callers[].pathToken` contains the token of the webhook configuration: add a new \
                token to the file before you write it to the webhook configuration, and remove the old one \
                afterwards"
            }
            Self::Token(fault) => fault.remedy(),
        }
    }
}

// === impl TokenFault ===

impl TokenFault {
    const fn remedy(self) -> &'static str {
        match self {
            Self::Issuer => "`issuer` of an entry of `callers` must be exactly the token's issuer",
            Self::Key | Self::Signature => {
                "the file `jwks` of the entry of `callers` must contain the key that signed the token: fetch \
                the issuer's keys again, and check `algorithms`; without `jwks` the keys of the cluster's \
                API server are used, which must let the gateway read /openid/v1/jwks"
            }
            Self::Expired => "the API server sends an expired token: renew it, and compare the clocks",
            Self::NoExpiry => {
                "configure the issuer to create tokens with `exp`: a token without it would never expire"
            }
            Self::NotYetValid => "compare the clocks of issuer and gateway, or raise `leeway`",
            Self::Audience => "request the token for one of the entry's `audiences`",
            Self::Unbound => {
                "an entry with `webhookToken` only accepts tokens of API servers, from a TokenRequest with \
                one audience, the webhook configuration as `boundObjectRef`, and `attestations: \
                {admissionReviewAPIGroups: […]}`"
            }
            Self::OtherUrl => {
                "the API server must call the URL that the token was issued for: `url` of the webhook, or \
                `https://NAME.NAMESPACE.svc:PORT/PATH` of its `service`"
            }
            Self::Configuration => {
                "the entry of `clusters` of this cluster must watch the webhook configurations (`admission: \
                Watched`, config/cluster/admission.yaml), and the one that the token is bound to must exist, \
                call this URL, and not have been deleted and created again since the token was issued"
            }
            Self::Claims => "the token must have all claims of `jwt.claims`",
            Self::Malformed | Self::Critical => "send a JSON Web Token that the issuer signed (RFC 7519)",
        }
    }
}

/// The most bytes of an API group in a message.
const MAX_GROUP_BYTES: usize = 253;

/// The name of a caller with a path token.
pub const PATH_TOKEN_NAME: &str = AuthenticationMethod::PathToken.as_str();

/// A set of the fields of an entry of `callers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CredentialFields(u8);

/// An entry of `callers`: the credentials that it requires, and what its caller may do.
#[derive(Debug, Clone)]
pub(crate) struct CompiledCaller {
    /// The fields that the credentials of a request must satisfy, all of them.
    pub(crate) required_fields: CredentialFields,
    pub(crate) endpoints: Endpoints,
    pub(crate) cluster: Arc<str>,
    pub(crate) share: Arc<str>,
    /// Whether the console shows every cluster to its caller.
    sees_all_clusters: bool,
}

/// Proof that a credential satisfies one field of one entry.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// The position of the entry.
    pub(crate) entry: usize,
    pub(crate) field: CredentialFields,
    /// The caller's name according to this field.
    pub(crate) name: Arc<str>,
    pub(crate) method: AuthenticationMethod,
    /// The time until which it counts; `None` if that is unlimited.
    pub(crate) until: Option<SystemTime>,
    /// The calls that the credential is valid for, if it says so.
    pub(crate) attestation: Option<Arc<Attestation>>,
}

/// The result of matching proofs with entries.
#[derive(Debug)]
pub(crate) enum CallerMatch {
    /// One caller, or the reason why it is refused.
    Caller(Result<Caller, Refusal>),
    /// The proofs satisfy some of the fields of an entry, but not all.
    Incomplete,
    /// The proofs satisfy no entry.
    Nobody,
}

// === impl CredentialFields ===

impl CredentialFields {
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
            (entry.kubeconfig.is_some(), CredentialFields::KUBECONFIG),
            (
                entry.client_certificate.is_some(),
                CredentialFields::CLIENT_CERTIFICATE,
            ),
            (entry.jwt.is_some(), CredentialFields::JWT),
            (entry.path_token.is_some(), CredentialFields::PATH_TOKEN),
            (entry.webhook_token.is_some(), CredentialFields::WEBHOOK_TOKEN),
        ];
        let needs = fields.iter().filter(|(is_there, _)| *is_there);
        Self {
            required_fields: needs.fold(CredentialFields::default(), |needs, (_, field)| {
                needs.with(*field)
            }),
            endpoints: entry.endpoints,
            cluster: entry.cluster.as_str().into(),
            share: match &entry.path_token {
                Some(_) => format!("{} ({PATH_TOKEN_NAME})", entry.cluster).into(),
                None => entry.cluster.as_str().into(),
            },
            sees_all_clusters: entry.sees_all_clusters,
        }
    }

    /// Whether it requires a path token.
    pub(crate) const fn has_path_token(&self) -> bool {
        self.required_fields.holds(CredentialFields::PATH_TOKEN)
    }

    /// Whether it requires a token bound to a webhook configuration.
    pub(crate) const fn has_webhook_token(&self) -> bool {
        self.required_fields.holds(CredentialFields::WEBHOOK_TOKEN)
    }

    /// Whether a single credential satisfies it.
    pub(crate) const fn is_simple(&self) -> bool {
        self.required_fields.is_one()
    }
}

// === impl Proof ===

impl Proof {
    pub(crate) fn counts(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

/// Returns the caller that `proofs` identify. `others` may complete an entry that they satisfy in
/// part. If several entries of one cluster are satisfied, the caller has the union of their
/// endpoints.
pub(crate) fn match_caller(
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
                // An attestation restricts the caller even if the same token also satisfies an
                // entry without one.
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
        .fold(CredentialFields::default(), |proven, proof| {
            proven.with(proof.field)
        });
    proven.holds(entry.required_fields)
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
