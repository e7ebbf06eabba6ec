//! The webhook configurations of watched clusters: which of their webhooks call this gateway.
//!
//! One does if its path is `/validate` or `/mutate`, or `/t/TOKEN/validate` with a token of a caller of that
//! cluster, and the API server would take any server with this gateway's certificate for the host that it calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::watched::{WatchedObjects, WatchedRegistration, WatchedRegistrations};
use crate::config::{AdmissionKnowledge, ClusterEntry, Config, Endpoint};
use crate::identity::certificates::{ServedCertificate, host_of_url};
use crate::identity::tls::TlsContext;
use crate::identity::{Authenticator, Caller};
use portcullis_policy::admission::matching::{CustomResources, Equivalents};
use portcullis_policy::admission::webhook::{Webhook, WebhookTarget};
use portcullis_policy::admission::{Phase, Registration, Registrations};
use portcullis_policy::authorization::ReviewKnowledge;

/// The most webhooks that do not count and are named in the log.
const MAX_NAMED: usize = 10;

/// By what an API server recognises the gateway, and the gateway an API server.
#[derive(Clone, Copy)]
pub(crate) struct GatewayIdentity<'i> {
    pub(crate) tls: &'i TlsContext,
    pub(crate) authenticator: &'i Authenticator,
    pub(crate) now: SystemTime,
}

/// What is known of the webhook configurations of a cluster that is watched.
#[derive(Debug, Clone)]
pub enum ClusterRegistrations {
    /// Which of them call this gateway.
    Known(Arc<Registrations>),
    /// It is not known which there are, for this reason.
    Unproven(Arc<str>),
}

/// That of each cluster that is watched for it.
pub(crate) type RegistrationsByCluster = BTreeMap<String, ClusterRegistrations>;

/// What a webhook calls, if that is one of the gateway's endpoints.
struct CalledEndpoint<'w> {
    host: String,
    token: Option<&'w str>,
    phase: Phase,
}

/// What is known of the registrations of the clusters of `config` with `admission: Watched`; where that is
/// the same as in `earlier`, it is that.
pub(crate) fn known(
    config: &Config,
    watched: &[Arc<WatchedObjects>],
    identity: GatewayIdentity<'_>,
    earlier: Option<&RegistrationsByCluster>,
) -> RegistrationsByCluster {
    let entries = config.clusters.iter();
    let entries = entries.filter(|entry| entry.admission == AdmissionKnowledge::Watched);
    let of_entry = |entry: &ClusterEntry| {
        let of_cluster = watched.iter().find(|one| one.cluster == entry.name);
        let earlier = earlier.and_then(|earlier| earlier.get(&entry.name));
        let of_cluster = of_cluster.map(AsRef::as_ref);
        let known = ClusterRegistrations::of((&entry.name, of_cluster), config, identity, earlier);
        (entry.name.clone(), known)
    };
    entries.map(of_entry).collect()
}

fn registrations_of(
    (all, custom): (&[WatchedRegistration], &CustomResources),
    cluster: &str,
    config: &Config,
    identity: GatewayIdentity<'_>,
) -> Registrations {
    let mut found = Vec::new();
    for WatchedRegistration {
        configuration, since, ..
    } in all
    {
        let kind = configuration.identity().kind();
        for webhook in configuration.webhooks() {
            let Some(called) = CalledEndpoint::of(webhook).filter(|called| called.is_of(kind)) else {
                continue;
            };
            let misses = identity.misses(&called, cluster, &webhook.client.ca_bundle);
            found.push(Registration::new(
                called.phase,
                Arc::clone(webhook),
                *since,
                misses,
            ));
        }
    }
    let equivalents = Equivalents::kubernetes().with(custom.clone());
    Registrations::new(found, equivalents, config.admission.cel_version)
}

/// Says which webhooks count, so that who wrote an Allow that grants nothing finds out why.
fn log(cluster: &str, found: &Registrations) {
    let name = |webhook: &Webhook| format!("{}/{}", webhook.configuration, webhook.name);
    let counted: Vec<String> = found.fit().map(name).collect();
    let unfit = found.unfit().take(MAX_NAMED);
    let others: Vec<String> = unfit
        .map(|(webhook, why)| format!("{}: {why}", name(webhook)))
        .collect();
    let (counted, others) = (counted.join(", "), others.join("; "));
    tracing::info!(
        cluster,
        counted,
        others,
        "the webhook configurations of the cluster that call this gateway"
    );
}

// === impl ClusterRegistrations ===

impl ClusterRegistrations {
    fn of(
        (cluster, watched): (&str, Option<&WatchedObjects>),
        config: &Config,
        identity: GatewayIdentity<'_>,
        earlier: Option<&Self>,
    ) -> Self {
        let listed = watched.and_then(|watched| Some((watched, watched.registrations.as_deref()?)));
        let all = match listed {
            None => return Self::Unproven("they have not been listed yet".into()),
            Some((_, WatchedRegistrations::Unproven(why))) => return Self::Unproven(Arc::clone(why)),
            Some((watched, WatchedRegistrations::Known(all))) => (all.as_slice(), &watched.custom_resources),
        };
        let found = registrations_of(all, cluster, config, identity);
        match earlier {
            Some(Self::Known(earlier)) if earlier.is_same(&found) => Self::Known(Arc::clone(earlier)),
            _ => {
                log(cluster, &found);
                Self::Known(Arc::new(found))
            }
        }
    }
}

impl From<&ClusterRegistrations> for ReviewKnowledge {
    fn from(known: &ClusterRegistrations) -> Self {
        match known {
            ClusterRegistrations::Known(registrations) => {
                Self::Watched(Arc::<Registrations>::clone(registrations))
            }
            ClusterRegistrations::Unproven(why) => Self::Unproven(Arc::clone(why)),
        }
    }
}

// === keys of tokens ===

/// `authenticator` with the keys that the API servers of `watched` clusters publish for their tokens, where they
/// are not those that were `known` of them.
pub(crate) fn with_published_keys(
    authenticator: &Arc<Authenticator>,
    watched: &[Arc<WatchedObjects>],
    known: &[Arc<WatchedObjects>],
) -> Arc<Authenticator> {
    let published = |watched: &[Arc<WatchedObjects>]| -> BTreeMap<String, Arc<[u8]>> {
        let keys = watched.iter();
        keys.filter_map(|one| Some((one.cluster.clone(), Arc::clone(one.token_keys.as_ref()?))))
            .collect()
    };
    let now = published(watched);
    if now == published(known) {
        return Arc::clone(authenticator);
    }
    let of_cluster = |cluster: &str| now.get(cluster).map(AsRef::as_ref);
    Arc::new(Authenticator::clone(authenticator).with_published_keys(of_cluster))
}

// === impl CalledEndpoint ===

impl<'w> CalledEndpoint<'w> {
    /// That of `webhook`, if the path has no name after the endpoint.
    fn of(webhook: &'w Webhook) -> Option<Self> {
        let (host, path) = match &webhook.client.target {
            WebhookTarget::Url(url) => {
                let (_, rest) = url.split_once("://")?;
                let (_, path) = rest.split_once('/')?;
                (host_of_url(url)?.to_owned(), path)
            }
            WebhookTarget::Service {
                namespace,
                name,
                path,
                ..
            } => (format!("{name}.{namespace}.svc"), path.strip_prefix('/')?),
        };
        let (token, endpoint) = match path.strip_prefix("t/").and_then(|rest| rest.split_once('/')) {
            Some((token, endpoint)) => (Some(token), endpoint),
            None => (None, path),
        };
        let phase = match endpoint {
            "validate" => Phase::Validate,
            "mutate" => Phase::Mutate,
            _ => return None,
        };
        Some(Self { host, token, phase })
    }

    /// Whether a configuration of `kind` calls for its answer.
    fn is_of(&self, kind: &str) -> bool {
        match self.phase {
            Phase::Validate => kind == "ValidatingWebhookConfiguration",
            Phase::Mutate => kind == "MutatingWebhookConfiguration",
        }
    }

    const fn endpoint(&self) -> Endpoint {
        match self.phase {
            Phase::Validate => Endpoint::Validate,
            Phase::Mutate => Endpoint::Mutate,
        }
    }
}

// === impl GatewayIdentity ===

impl GatewayIdentity<'_> {
    /// Why a call by the API server of `cluster` does not reach this gateway, or is not answered by it.
    fn misses(&self, called: &CalledEndpoint<'_>, cluster: &str, authorities: &[u8]) -> Option<String> {
        let Some(served) = ServedCertificate::new(self.tls.chain()) else {
            return Some("the gateway has no certificate".to_owned());
        };
        let host = &called.host;
        if !served.is_for(host) {
            let names = served.names();
            return Some(format!(
                "it calls `{host}`, and the gateway's certificate is for {names}"
            ));
        }
        if authorities.is_empty() || !served.is_signed_by(authorities) {
            return Some("its caBundle does not verify the gateway's certificate".to_owned());
        }
        let token = called.token?;
        let caller = self.authenticator.by_path_token(token.as_bytes(), self.now);
        let may_call =
            |caller: &Caller| *caller.cluster == *cluster && caller.endpoints.contains(called.endpoint());
        (!caller.is_ok_and(|caller| may_call(&caller))).then(|| {
            format!("no entry of `callers` accepts the token in its path for cluster `{cluster}` and this endpoint")
        })
    }
}
