//! Builds an [`Authenticator`] from the configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use openssl::x509::X509;

use super::caller::{AuthenticationMethod, CompiledCaller, CredentialFields, Proof};
use super::certificate::{CertificateNames, ClientCa};
use super::jwks::{self, IssuerKeys};
use super::jwt::{self, Issuer};
use super::path_token;
use super::rotation::{Credential, Digester, HeldCredentials, Purpose, Users};
use super::{Authenticator, ProofTable};
use crate::config::kubeconfig::{self, User};
use crate::config::{
    AdmissionEvidence, CallerEntry, ClusterEntry, Config, Disk, Files, Jwt, conflicting_cluster_message,
};
use crate::identity::certificates::system_time;
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// The generation of the next authenticator of this process.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Authenticator {
    /// Reads the files that `config.callers` names. `previous` is the authenticator until now:
    /// credentials that were replaced since are accepted until ten minutes after `now`.
    ///
    /// The authenticator may be used only if the faults contain no error; its
    /// [`files`](Self::files) are complete in any case.
    #[must_use]
    pub fn build(config: &Config, previous: Option<&Self>, now: SystemTime) -> (Self, Faults) {
        Self::build_from(&Disk, config, previous, now)
    }

    /// Like [`build`](Self::build), reading from `files`.
    #[must_use]
    pub fn build_from(
        files: &dyn Files,
        config: &Config,
        previous: Option<&Self>,
        now: SystemTime,
    ) -> (Self, Faults) {
        build(files, config, previous, now)
    }

    /// Sets the keys that API servers publish for their tokens, which `of_cluster` returns. They
    /// apply to entries with `webhookToken` that name no file.
    #[must_use]
    pub(crate) fn with_published_keys<'k>(self, of_cluster: impl Fn(&str) -> Option<&'k [u8]>) -> Self {
        let Self { entries, jwts, .. } = &self;
        let jwts = jwts.with_keys(|issuer| {
            let cluster = &entries.get(issuer.entry)?.cluster;
            let (keys, _) = IssuerKeys::parse(of_cluster(cluster)?, &issuer.rules.algorithms).ok()?;
            Some(keys)
        });
        Self {
            generation: next_generation(),
            jwts,
            ..self
        }
    }
}

/// The number of a new authenticator. Results that were cached for another number do not apply to it.
fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

/// Reads the files that `config.callers` names; `previous` is the authenticator until now.
fn build(
    files: &dyn Files,
    config: &Config,
    previous: Option<&Authenticator>,
    now: SystemTime,
) -> (Authenticator, Faults) {
    let mut faults = Faults::new();
    let digester = digester(previous, &mut faults);
    let mut builder = Builder {
        files,
        config,
        now,
        faults,
        built: empty(config, digester),
    };
    builder.client_ca();
    builder.kubeconfigs(previous.map(|previous| &previous.users));
    builder.issuers();
    builder.path_tokens();
    builder.built.challenge = challenge(&builder.built);
    (builder.built, builder.faults)
}

/// All digests of a process use the same key, so that replaced credentials are recognised.
fn digester(previous: Option<&Authenticator>, faults: &mut Faults) -> Digester {
    if let Some(previous) = previous {
        return previous.digester.clone();
    }
    Digester::new().unwrap_or_else(|error| {
        let message = format!("cannot get random numbers: {error}");
        faults.push(Fault::error(Place::default(), FaultKind::Unreadable, message));
        Digester::without_key()
    })
}

fn empty(config: &Config, digester: Digester) -> Authenticator {
    let entries: Vec<CompiledCaller> = config.callers.iter().map(CompiledCaller::new).collect();
    let shares = entries.iter().map(|entry| entry.share.clone()).collect();
    let patterns = config.callers.iter().enumerate();
    Authenticator {
        generation: next_generation(),
        has_multi_credential_entries: entries.iter().any(|entry| !entry.is_simple()),
        entries,
        certificate_patterns: patterns
            .filter_map(|(position, entry)| Some((position, entry.client_certificate.clone()?)))
            .collect(),
        digester,
        client_ca: ClientCa::default(),
        certificates: ProofTable::new(),
        tokens: ProofTable::new(),
        passwords: ProofTable::new(),
        path_tokens: ProofTable::new(),
        jwts: jwt::Tokens::new(Vec::new()),
        users: Users::new(),
        challenge: String::new(),
        files: BTreeSet::new(),
        shares,
    }
}

/// The challenge with the schemes that are accepted. It is never empty, because HTTP requires a
/// challenge with every 401.
fn challenge(built: &Authenticator) -> String {
    let bearer = !built.tokens.is_empty() || !built.jwts.is_empty();
    let basic = !built.passwords.is_empty();
    match (bearer, basic) {
        (true, true) => "Bearer realm=\"portcullis\", Basic realm=\"portcullis\"",
        (false, true) => "Basic realm=\"portcullis\"",
        (_, false) => "Bearer realm=\"portcullis\"",
    }
    .to_owned()
}

struct Builder<'b> {
    files: &'b dyn Files,
    config: &'b Config,
    now: SystemTime,
    faults: Faults,
    built: Authenticator,
}

// === impl Builder ===

impl Builder<'_> {
    fn client_ca(&mut self) {
        let Some(path) = &self.config.server.tls.client_ca else {
            return;
        };
        self.built.files.insert(path.clone());
        let authorities = self.files.read(path).map(|pem| ClientCa::from_pem(&pem));
        let (kind, message) = match authorities {
            Ok(Ok(authorities)) if !authorities.is_empty() => {
                self.built.client_ca = authorities;
                return;
            }
            // The same message as that of the listener, which reads the same file.
            Ok(_) => {
                let message = "contains no certificate in PEM, or an invalid one";
                (FaultKind::Invalid, message.to_owned())
            }
            Err(error) => (FaultKind::Unreadable, error.to_string()),
        };
        let place = Place::of_file(path).at(FieldPath::root().field("server").field("tls").field("clientCA"));
        self.faults.push(Fault::error(place, kind, message));
    }

    /// Reads every kubeconfig once, even if several entries name it.
    fn kubeconfigs(&mut self, previous: Option<&Users>) {
        let config = self.config;
        let paths: BTreeSet<&PathBuf> = config
            .callers
            .iter()
            .filter_map(|entry| entry.kubeconfig.as_ref())
            .collect();
        for path in paths {
            let (kubeconfig, faults) = kubeconfig::read(self.files, path);
            self.faults.append(faults);
            self.built.files.extend(kubeconfig.files);
            for user in &kubeconfig.users {
                self.user(path, user, previous);
            }
        }
    }

    fn user(&mut self, path: &Path, user: &User, previous: Option<&Users>) {
        let callers = self.config.callers.iter().enumerate();
        let positions: Vec<usize> = callers
            .filter(|(_, entry)| entry.kubeconfig.as_deref() == Some(path))
            .map(|(position, _)| position)
            .collect();
        let current = self.credentials(user, &positions);
        if current.is_empty() {
            let message = format!("user `{}` has no credential, so no caller can use it", user.name);
            self.faults
                .push(Fault::warning(user.place.clone(), FaultKind::Required, message));
        }
        let key = (path.to_owned(), user.name.clone());
        let before = previous.and_then(|users| users.get(&key));
        let held = HeldCredentials::rotate(current, before, self.now);
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name: Arc<str> = format!("{file}:{}", user.name).into();
        for position in positions {
            for (credential, until) in held.accepted() {
                self.accept(position, &name, credential, until);
            }
        }
        self.built.users.insert(key, held);
    }

    /// Adds `credential` as a proof of the kubeconfig of the entry at `position`.
    fn accept(
        &mut self,
        position: usize,
        name: &Arc<str>,
        credential: Credential,
        until: Option<SystemTime>,
    ) {
        let (table, digest, method) = match credential {
            Credential::Certificate(digest) => (
                &mut self.built.certificates,
                digest,
                AuthenticationMethod::Certificate,
            ),
            Credential::Token(digest) => (&mut self.built.tokens, digest, AuthenticationMethod::Bearer),
            Credential::Basic(digest) => (&mut self.built.passwords, digest, AuthenticationMethod::Basic),
        };
        let proofs = table.entry(digest).or_default();
        let others: Vec<usize> = proofs
            .iter()
            .filter(|proof| proof.until.is_none())
            .map(|proof| proof.entry)
            .collect();
        let name = name.clone();
        proofs.push(Proof {
            entry: position,
            field: CredentialFields::KUBECONFIG,
            name,
            method,
            until,
            attestation: None,
        });
        if until.is_none() {
            others
                .into_iter()
                .for_each(|other| self.clusters_agree(position, other));
        }
    }

    /// Reports an error if one credential satisfies two entries of different clusters.
    fn clusters_agree(&mut self, position: usize, other: usize) {
        let callers = &self.config.callers;
        let (Some(entry), Some(other)) = (callers.get(position), callers.get(other)) else {
            return;
        };
        let is_simple = |entry: &CallerEntry| CompiledCaller::new(entry).is_simple();
        if entry.cluster != other.cluster && is_simple(entry) && is_simple(other) {
            let place = entry.place.at(entry.place.path.field("cluster"));
            let message = conflicting_cluster_message(&entry.cluster, other);
            let fault = Fault::error(place, FaultKind::Invalid, message);
            if !self.faults.iter().any(|known| *known == fault) {
                self.faults.push(fault);
            }
        }
    }

    fn credentials(&mut self, user: &User, positions: &[usize]) -> Vec<Credential> {
        let mut credentials = Vec::new();
        if let Some(pem) = &user.certificate {
            credentials.extend(self.certificate(user, pem, positions));
        }
        for (field, token) in [("token", &user.token), ("tokenFile", &user.file_token)] {
            let Some(token) = token else { continue };
            if jwt::is_credential(token.reveal()) {
                let digest = self.built.digester.digest(Purpose::Token, token.reveal());
                credentials.push(Credential::Token(digest));
            } else {
                let message = "cannot be sent in a header: it is too long, or contains white space";
                self.user_fault(user, field, FaultKind::Invalid, message);
            }
        }
        if let Some(basic) = &user.basic {
            let pair = [basic.username.as_bytes(), b":", basic.password.reveal()].concat();
            let pair = zeroize::Zeroizing::new(pair);
            credentials.push(Credential::Basic(
                self.built.digester.digest(Purpose::Basic, &pair),
            ));
        }
        credentials
    }

    /// The certificate of `user`. If it is not valid yet or any more, this is a warning only: the
    /// API server may get its new certificate before the gateway gets its new CA.
    fn certificate(&mut self, user: &User, pem: &[u8], positions: &[usize]) -> Option<Credential> {
        const FIELD: &str = "client-certificate";
        let mut chain = match X509::stack_from_pem(pem) {
            Ok(chain) if !chain.is_empty() => chain.into_iter(),
            _ => {
                self.user_fault(user, FIELD, FaultKind::Invalid, "contains no certificate in PEM");
                return None;
            }
        };
        let leaf = chain.next()?;
        let trusted = if self.built.client_ca.is_empty() {
            Err("`server.tls.clientCA` is missing".to_owned())
        } else {
            self.built.client_ca.verify(&leaf, chain.as_slice(), self.now)
        };
        // Expired certificates are reported elsewhere, together with all others.
        let is_over = system_time(leaf.not_after()).is_ok_and(|end| end < self.now)
            && self
                .built
                .client_ca
                .verify_timeless(&leaf, chain.as_slice())
                .is_some();
        if let Err(why) = trusted
            && !is_over
        {
            let message = format!("the certificate is not accepted: {why}");
            let place = user.place.at(user.place.path.field(FIELD));
            self.faults
                .push(Fault::warning(place, FaultKind::Invalid, message));
        }
        let names = CertificateNames::of(&leaf);
        let patterns = self
            .built
            .certificate_patterns
            .iter()
            .filter(|(_, wanted)| names.matches(wanted));
        let patterns: Vec<usize> = patterns.map(|(position, _)| *position).collect();
        for position in positions {
            patterns
                .iter()
                .for_each(|other| self.clusters_agree(*position.max(other), *position.min(other)));
        }
        let der = leaf.to_der().ok()?;
        Some(Credential::Certificate(
            self.built.digester.digest(Purpose::Certificate, &der),
        ))
    }

    /// Reads the tokens of every entry with `pathToken`. A token that is removed from its file is
    /// rejected at once, because the file can hold the old and the new token.
    fn path_tokens(&mut self) {
        let config = self.config;
        for (position, entry) in config.callers.iter().enumerate() {
            let Some(path) = &entry.path_token else { continue };
            self.built.files.insert(path.clone());
            let (tokens, faults) = path_token::read(self.files, path);
            self.faults.append(faults);
            for token in tokens {
                let digest = self.built.digester.digest(Purpose::PathToken, token.reveal());
                let proofs = self.built.path_tokens.entry(digest).or_default();
                let others: Vec<usize> = proofs.iter().map(|proof| proof.entry).collect();
                proofs.push(path_token::proof(position));
                others
                    .into_iter()
                    .for_each(|other| self.clusters_agree(position, other));
            }
        }
    }

    /// Reads the keys of every entry with `jwt` or `webhookToken`. Keys that an API server
    /// publishes are added by [`Authenticator::with_published_keys`].
    fn issuers(&mut self) {
        jwks::install();
        let config = self.config;
        let mut issuers = Vec::new();
        for (position, entry) in config.callers.iter().enumerate() {
            let Some(rules) = entry.jwt.as_ref().or(entry.webhook_token.as_ref()) else {
                continue;
            };
            self.webhook_configurations_are_watched(entry);
            let keys = rules.jwks.as_ref().map(|path| self.keys(path, rules));
            issuers.push(Issuer {
                entry: position,
                requires_webhook_binding: entry.webhook_token.is_some(),
                rules: rules.clone(),
                keys: keys.unwrap_or_default(),
            });
        }
        self.built.jwts = jwt::Tokens::new(issuers);
    }

    /// Reports entries whose tokens cannot be accepted because the webhook configurations of their
    /// cluster are not watched.
    fn webhook_configurations_are_watched(&mut self, entry: &CallerEntry) {
        let is_watched = |cluster: &&ClusterEntry| {
            cluster.name == entry.cluster && cluster.admission == AdmissionEvidence::Watched
        };
        if entry.webhook_token.is_none() || self.config.clusters.iter().any(|one| is_watched(&one)) {
            return;
        }
        let place = entry.place.at(entry.place.path.field("webhookToken"));
        let message = format!(
            "no token can be accepted: it must be bound to a webhook configuration of cluster `{}`, and these are not \
             watched: add `{{name: {0}, kubeconfig: …, admission: Watched}}` to `clusters`",
            entry.cluster
        );
        // In a folder of clusters this is a warning, so that one file does not hold back those of
        // others.
        let fault = match self.config.cluster_folder {
            Some(_) => Fault::warning(place, FaultKind::Required, message),
            None => Fault::error(place, FaultKind::Required, message),
        };
        self.faults.push(fault);
    }

    /// The keys of one issuer in the file at `path`. Unusable keys are warnings, because an issuer
    /// may publish keys for other uses.
    fn keys(&mut self, path: &Path, rules: &Jwt) -> IssuerKeys {
        self.built.files.insert(path.to_owned());
        let file = path.display().to_string();
        let place = Place {
            file: Some(file.into()),
            ..Place::default()
        };
        let json = match self.files.read(path) {
            Ok(json) => json,
            Err(error) => {
                self.faults
                    .push(Fault::error(place, FaultKind::Unreadable, error.to_string()));
                return IssuerKeys::default();
            }
        };
        let (keys, passed_over) = match IssuerKeys::parse(&json, &rules.algorithms) {
            Ok(parsed) => parsed,
            Err(error) => {
                let number = |number: usize| u32::try_from(number).unwrap_or(0);
                let place = Place {
                    line: number(error.at.0),
                    column: number(error.at.1),
                    ..place
                };
                self.faults
                    .push(Fault::error(place, FaultKind::Unreadable, error.message));
                return IssuerKeys::default();
            }
        };
        let warning = |why| Fault::warning(place.clone(), FaultKind::NotSupported, why);
        self.faults.extend(passed_over.into_iter().map(warning));
        if keys.is_empty() {
            let message = "no key can check a token with one of the `algorithms`";
            self.faults
                .push(Fault::error(place, FaultKind::Required, message));
        }
        keys
    }

    fn user_fault(&mut self, user: &User, field: &str, kind: FaultKind, message: &str) {
        let place = user.place.at(user.place.path.field(field));
        self.faults.push(Fault::error(place, kind, message));
    }
}
