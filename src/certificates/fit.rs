//! Checks whether callers that use the kubeconfigs would trust the server certificate.

use std::net::IpAddr;

use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509StoreContext};

use crate::config::kubeconfig::{self, Kubeconfig};
use crate::config::{Config, Files};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// A warning for each host by which a kubeconfig of callers reaches the gateway and
/// that the server's certificate is not for, and for each authority by which it would
/// not be trusted. When certificates end is not checked here.
#[must_use]
pub fn misfits(config: &Config, files: &dyn Files) -> Faults {
    let mut faults = Faults::new();
    let chain = files
        .read(&config.server.tls.certificate)
        .ok()
        .and_then(|pem| X509::stack_from_pem(&pem).ok());
    let Some((certificate, intermediates)) = chain.as_deref().and_then(<[X509]>::split_first) else {
        return faults;
    };
    let served = ServedCertificate {
        certificate,
        intermediates,
    };
    for path in config.caller_kubeconfigs() {
        let (kubeconfig, _) = kubeconfig::read(files, path);
        faults.extend(served.misfits(&kubeconfig));
    }
    faults
}

/// What the gateway shows.
struct ServedCertificate<'s> {
    certificate: &'s X509,
    intermediates: &'s [X509],
}

// === impl ServedCertificate ===

impl ServedCertificate<'_> {
    fn misfits(&self, kubeconfig: &Kubeconfig) -> Vec<Fault> {
        let mut faults = Vec::new();
        for called in &kubeconfig.clusters {
            let host = called
                .server_name
                .clone()
                .or_else(|| host_of_url(&called.server).map(str::to_owned));
            let field = if called.server_name.is_some() {
                "tls-server-name"
            } else {
                "server"
            };
            let place = |field| called.place.at(called.place.path.field(field));
            faults.extend(host.and_then(|host| self.misfit(&host, place(field))));
            let authorities = called.authorities.as_deref().unwrap_or_default();
            if !authorities.is_empty() && !self.is_signed_by(authorities) {
                let message = "the server's certificate is not signed by this CA: the caller would \
                     not trust the gateway";
                faults.push(Fault::warning(
                    place("certificate-authority"),
                    FaultKind::Invalid,
                    message,
                ));
            }
        }
        if kubeconfig.clusters.is_empty() {
            // An API server's for admission: users are called as the hosts they are shown to.
            let of_user = |user: &kubeconfig::User| {
                let host = host_of_user(&user.name)?;
                self.misfit(host, user.place.clone())
            };
            faults.extend(kubeconfig.users.iter().filter_map(of_user));
        }
        faults
    }

    fn misfit(&self, host: &str, place: Place) -> Option<Fault> {
        if self.is_for(host) {
            return None;
        }
        let message = format!(
            "the server's certificate is not valid for `{host}`, only for {}: the caller would not \
             trust the gateway",
            self.names()
        );
        Some(Fault::warning(place, FaultKind::Invalid, message))
    }

    /// As Go judges: by alternative names alone, a `*` for one whole label.
    fn is_for(&self, host: &str) -> bool {
        self.verifies(std::slice::from_ref(self.certificate), |rules| {
            rules.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS | X509CheckFlags::NEVER_CHECK_SUBJECT);
            match host.parse::<IpAddr>() {
                Ok(address) => rules.set_ip(address),
                Err(_) => rules.set_host(host),
            }
        })
    }

    fn is_signed_by(&self, authorities: &[u8]) -> bool {
        X509::stack_from_pem(authorities).is_ok_and(|authorities| {
            self.verifies(&authorities, |rules| rules.set_purpose(X509PurposeId::SSL_SERVER))
        })
    }

    fn verifies(
        &self,
        authorities: &[X509],
        rule: impl FnOnce(&mut X509VerifyParam) -> Result<(), openssl::error::ErrorStack>,
    ) -> bool {
        self.try_verify(authorities, rule).unwrap_or(false)
    }

    fn try_verify(
        &self,
        authorities: &[X509],
        rule: impl FnOnce(&mut X509VerifyParam) -> Result<(), openssl::error::ErrorStack>,
    ) -> Result<bool, openssl::error::ErrorStack> {
        let mut rules = X509VerifyParam::new()?;
        rules.set_flags(X509VerifyFlags::PARTIAL_CHAIN | X509VerifyFlags::NO_CHECK_TIME)?;
        rule(&mut rules)?;
        let mut store = X509StoreBuilder::new()?;
        store.set_param(&rules)?;
        for authority in authorities {
            store.add_cert(authority.clone())?;
        }
        let mut untrusted = Stack::new()?;
        for certificate in self.intermediates {
            untrusted.push(certificate.clone())?;
        }
        X509StoreContext::new()?.init(&store.build(), self.certificate, &untrusted, |context| {
            context.verify_cert()
        })
    }

    fn names(&self) -> String {
        let names = self.certificate.subject_alt_names();
        let names: Vec<String> = names
            .iter()
            .flatten()
            .filter_map(|name| {
                let address = name.ipaddress().and_then(address);
                name.dnsname().map(str::to_owned).or(address)
            })
            .map(|name| format!("`{name}`"))
            .collect();
        if names.is_empty() {
            return "no name".to_owned();
        }
        names.join(", ")
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

/// The host of `https://host:port/path`, an address without its brackets.
fn host_of_url(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map(|(_, rest)| rest)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    host(authority)
}

/// The host of a user's name, as an API server looks it up; `None` where it is a pattern.
fn host_of_user(name: &str) -> Option<&str> {
    host(name).filter(|host| !host.contains('*'))
}

fn host(authority: &str) -> Option<&str> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    Some(host).filter(|host| !host.is_empty())
}
