//! Every certificate that a configuration names.

use std::path::Path;
use std::time::SystemTime;

use openssl::x509::X509;

use super::{Expiry, Use, system_time};
use crate::config::kubeconfig::{self, client};
use crate::config::{Config, Files};
use portcullis_policy::field::{FieldPath, Place};

/// When each certificate ends that `config` names, in its own files and in the
/// kubeconfigs that it names. What cannot be read is left out: whoever uses it
/// reports that.
#[must_use]
pub fn of_configuration(config: &Config, files: &dyn Files) -> Vec<Expiry> {
    let mut collector = Collector {
        files,
        found: Vec::new(),
    };
    collector.own(config);
    collector.callers(config);
    collector.upstreams(config);
    for entry in &config.authorization.webhooks {
        collector.context(&entry.kubeconfig, Use::Upstream);
    }
    for entry in &config.clusters {
        collector.context(&entry.kubeconfig, Use::Cluster);
    }
    collector.found
}

struct Collector<'c> {
    files: &'c dyn Files,
    found: Vec<Expiry>,
}

// === impl Collector ===

impl Collector<'_> {
    fn own(&mut self, config: &Config) {
        let tls = &config.server.tls;
        self.file(&tls.certificate, Use::Server, &["server", "tls", "certificate"]);
        if let Some(authorities) = &tls.client_ca {
            self.file(authorities, Use::ClientCa, &["server", "tls", "clientCA"]);
        }
        if let Some(tls) = config.console.as_ref().and_then(|console| console.tls.as_ref()) {
            self.file(&tls.certificate, Use::Server, &["console", "tls", "certificate"]);
        }
    }

    fn callers(&mut self, config: &Config) {
        for path in config.caller_kubeconfigs() {
            let (kubeconfig, _) = kubeconfig::read(self.files, path);
            for user in &kubeconfig.users {
                self.pem(
                    user.certificate.as_deref(),
                    path,
                    &user.name,
                    Use::Caller,
                    &user.place,
                );
            }
            self.authorities(&kubeconfig.clusters, path, Use::Caller);
        }
    }

    fn upstreams(&mut self, config: &Config) {
        let of_clusters = config
            .clusters
            .iter()
            .filter_map(|entry| entry.upstreams.as_ref());
        for access in [&config.upstreams.access].into_iter().chain(of_clusters) {
            if let Some(bundle) = &access.ca_bundle {
                self.file(bundle, Use::Upstream, &["upstreams", "caBundle"]);
            }
            if let Some(path) = &access.kubeconfig {
                let (hosts, _) = client::by_host(self.files, path);
                for user in &hosts.users {
                    self.user(user, path, Use::Upstream);
                }
            }
        }
    }

    /// The server and the user of a current context.
    fn context(&mut self, path: &Path, used_for: Use) {
        let (Some(context), _, _) = client::of_context(self.files, path) else {
            return;
        };
        if let Some(user) = &context.user {
            self.user(user, path, used_for);
        }
        self.authorities(std::slice::from_ref(&context.cluster), path, used_for);
    }

    fn user(&mut self, user: &client::ClientUser, path: &Path, used_for: Use) {
        let pem = user.certificate.as_ref().map(|pair| pair.certificate.as_slice());
        self.pem(pem, path, &user.name, used_for, &user.place);
    }

    /// The authorities of a kubeconfig's servers: one series, of the first that ends.
    fn authorities(&mut self, clusters: &[client::Cluster], path: &Path, used_for: Use) {
        let ends = |cluster: &client::Cluster| {
            let at = cluster.authorities.as_deref().and_then(first_end)?;
            Some((at, cluster.place.clone()))
        };
        let first = clusters.iter().filter_map(ends).min_by_key(|(at, _)| *at);
        if let Some((at, place)) = first {
            self.push(at, path, "", used_for, place);
        }
    }

    fn file(&mut self, file: &Path, used_for: Use, path: &[&str]) {
        let place = Place {
            file: Some(file.to_string_lossy().into()),
            path: path
                .iter()
                .fold(FieldPath::root(), |path, field| path.field(field)),
            ..Place::default()
        };
        let pem = self.files.read(file).ok();
        self.pem(pem.as_deref(), file, "", used_for, &place);
    }

    fn pem(&mut self, pem: Option<&[u8]>, file: &Path, name: &str, used_for: Use, place: &Place) {
        if let Some(at) = pem.and_then(first_end) {
            self.push(at, file, name, used_for, place.clone());
        }
    }

    fn push(&mut self, at: SystemTime, file: &Path, name: &str, used_for: Use, place: Place) {
        self.found.push(Expiry {
            file: file.to_owned(),
            name: name.to_owned(),
            used_for,
            at,
            place,
        });
    }
}

/// The earliest `notAfter` of the certificates in `pem`.
fn first_end(pem: &[u8]) -> Option<SystemTime> {
    let certificates = X509::stack_from_pem(pem).ok()?;
    certificates
        .iter()
        .filter_map(|certificate| system_time(certificate.not_after()).ok())
        .min()
}
