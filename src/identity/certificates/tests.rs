//! Every certificate of a configuration has its series, its warning and its reminder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::nid::Nid;
use tempfile::TempDir;

use super::*;
use crate::config::{self, Config, Disk};
use crate::pki::{Identity, Leaf, addresses_and_names};

/// When the tests take place, in seconds since 1970.
const NOW: i64 = 1_800_000_000;
const DAY: u64 = 24 * 60 * 60;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.cast_unsigned())
}

fn in_days(days: u64) -> SystemTime {
    now() + Duration::from_secs(days * DAY)
}

/// A certificate that signs itself, ends so many days from now, and is for these names.
fn mk_certificate(days: i64, names: &[&str]) -> Vec<u8> {
    let (ips, dns) = addresses_and_names(names);
    let leaf = Leaf {
        subject: &[(Nid::COMMONNAME, "test")],
        dns: &dns,
        ips: &ips,
        from: NOW - 86_400 * 1000,
        until: NOW + 86_400 * days,
        ..Leaf::server()
    };
    Identity::self_signed(&leaf).pem()
}

const CONFIGURATION: &str = "\
apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {tls: {certificate: server.crt, privateKey: server.key, clientCA: ca.crt}}
callers:
- {kubeconfig: callers.kubeconfig, endpoints: [authorize]}
- {kubeconfig: callers.kubeconfig, endpoints: [validate]}
authorization:
  webhooks:
  - {type: Webhook, name: other, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: NoOpinion,
      connectionInfo: {type: KubeConfigFile, kubeConfigFile: other.kubeconfig}}}
upstreams: {kubeconfig: upstreams.kubeconfig, caBundle: upstreams.crt}
clusters: [{name: east, kubeconfig: east.kubeconfig}]
";

/// A kubeconfig of one user, whose certificate ends so many days from now, of an authority
/// that ends twice as late.
fn mk_kubeconfig(user: &str, days: i64) -> Vec<u8> {
    let embedded = |days| STANDARD.encode(mk_certificate(days, &[]));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: {user}}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://gateway.example.com', certificate-authority-data: {}}}}}]\n\
         users: [{{name: {user}, user: {{client-certificate-data: {}, client-key-data: a2V5}}}}]\n",
        embedded(2 * days),
        embedded(days)
    )
    .into_bytes()
}

/// A configuration with all that it names, on a disk.
struct CertificateWorld(TempDir);

impl CertificateWorld {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        let bundle = [mk_certificate(90, &[]), mk_certificate(80, &[])].concat();
        let upstreams = format!(
            "users: [{{name: hook.svc, user: {{client-certificate-data: {}, client-key-data: a2V5}}}}]",
            STANDARD.encode(mk_certificate(5, &[]))
        );
        world.write("portcullis.yaml", CONFIGURATION);
        world.write("server.crt", mk_certificate(1, &["gateway.example.com"]));
        world.write("ca.crt", bundle);
        world.write("callers.kubeconfig", mk_kubeconfig("api", 2));
        world.write("other.kubeconfig", mk_kubeconfig("us", 3));
        world.write("upstreams.kubeconfig", upstreams);
        world.write("upstreams.crt", mk_certificate(4, &[]));
        world.write("east.kubeconfig", mk_kubeconfig("watcher", 7));
        world
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    fn configuration(&self) -> Config {
        let (config, faults) = config::load(&self.0.path().join("portcullis.yaml"));
        config.unwrap_or_else(|| panic!("{faults}"))
    }

    fn misfits(&self) -> Vec<String> {
        let faults = host_warnings(&self.configuration(), &Disk);
        faults.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn every_certificate_that_a_configuration_names_is_found_once() {
    let world = CertificateWorld::new();
    let found = of_configuration(&world.configuration(), &Disk);
    let found: Vec<_> = found
        .iter()
        .map(|expiry| {
            let days = expiry.at.duration_since(now()).unwrap().as_secs() / DAY;
            let file = expiry.file.file_name().unwrap().to_str().unwrap();
            (file, expiry.name.as_str(), expiry.used_for.as_str(), days)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("server.crt", "", "server", 1),
            ("ca.crt", "", "clientCA", 80),
            ("callers.kubeconfig", "api", "caller", 2),
            ("callers.kubeconfig", "", "caller", 4),
            ("upstreams.crt", "", "upstream", 4),
            ("upstreams.kubeconfig", "hook.svc", "upstream", 5),
            ("other.kubeconfig", "us", "upstream", 3),
            ("other.kubeconfig", "", "upstream", 6),
            ("east.kubeconfig", "watcher", "cluster", 7),
            ("east.kubeconfig", "", "cluster", 14),
        ]
    );
}

fn mk_expiry(at: SystemTime) -> Expiry {
    Expiry {
        file: "server.crt".into(),
        name: String::new(),
        used_for: Use::Server,
        at,
        place: Place::default(),
    }
}

#[test]
fn a_warning_comes_thirty_days_before_a_certificate_expires_and_has_the_date() {
    let warning = |at| mk_expiry(at).warning(now()).map(|fault| fault.message);
    assert_eq!(warning(in_days(30) + Duration::from_secs(1)), None);
    let soon = warning(in_days(30)).unwrap();
    assert!(
        soon.starts_with("the certificate ends in 30 days, on 2027-02-14T08:00:00Z: renew it"),
        "{soon}"
    );
    let last = warning(in_days(1)).unwrap();
    assert!(last.starts_with("the certificate ends in 1 day, on "), "{last}");
    let hours = warning(now() + Duration::from_secs(7201)).unwrap();
    assert!(
        hours.starts_with("the certificate ends in 2 hours, on "),
        "{hours}"
    );
    let over = warning(now() - Duration::from_secs(1)).unwrap();
    assert!(
        over.starts_with("the certificate expired on 2027-01-15T07:59:59Z: renew it"),
        "{over}"
    );
}

#[test]
fn the_log_warns_once_at_thirty_seven_and_one_days_and_at_expiry() {
    let expiries = [mk_expiry(in_days(100))];
    let mut reminders = Reminders::default();
    let mut reminded = Vec::new();
    for hour in 0..=(101 * 24_u64) {
        let at = now() + Duration::from_secs(hour * 3600);
        if !reminders.due(&expiries, at).is_empty() {
            reminded.push(hour);
        }
    }
    assert_eq!(reminded, [70 * 24, 93 * 24, 99 * 24, 100 * 24 + 1]);
}

#[test]
fn a_renewed_certificate_gets_new_warnings() {
    let mut reminders = Reminders::default();
    assert_eq!(reminders.due(&[mk_expiry(in_days(5))], now()).len(), 1);
    assert_eq!(reminders.due(&[mk_expiry(in_days(5))], now()).len(), 0);
    assert_eq!(reminders.due(&[mk_expiry(in_days(365))], now()).len(), 0);
    assert_eq!(reminders.due(&[mk_expiry(in_days(365))], in_days(360)).len(), 1);
}

/// What is said of a server's certificate for these names beside a kubeconfig.
fn misfits_of(names: &[&str], kubeconfig: &str) -> Vec<String> {
    let world = CertificateWorld::new();
    world.write("server.crt", mk_certificate(90, names));
    world.write("callers.kubeconfig", kubeconfig);
    world.misfits()
}

#[test]
fn the_server_s_certificate_must_be_for_the_hosts_of_the_kubeconfigs() {
    let server = |server: &str| {
        format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]"
        )
    };
    let names = ["gateway.example.com", "*.gate.svc", "10.0.0.7", "::1"];
    for fits in [
        "https://gateway.example.com:8443/authorize",
        "https://gateway.example.com",
        "https://a.gate.svc:443/authorize?x",
        "https://10.0.0.7:8443/",
        "https://[::1]:8443/authorize",
    ] {
        assert_eq!(misfits_of(&names, &server(fits)), [""; 0], "{fits}");
    }
    for misfit in [
        "https://other.example.com:8443/authorize",
        "https://a.b.gate.svc",
        "https://10.0.0.8:8443",
    ] {
        let found = misfits_of(&names, &server(misfit));
        assert_eq!(found.len(), 1, "{misfit}: {found:?}");
        assert!(
            found[0].contains("is not valid for `")
                && found[0].contains("`gateway.example.com`, `*.gate.svc`, `10.0.0.7`, `::1`")
                && found[0].contains("clusters[0].cluster.server"),
            "{found:?}"
        );
    }
}

#[test]
fn in_a_kubeconfig_without_servers_the_users_are_hosts() {
    let found = misfits_of(
        &["gateway.example.com"],
        "users: [{name: 'gateway.example.com:8443', user: {token: t}}, {name: 'gate.portcullis.svc', user: {token: t}}, \
         {name: '*.example.com', user: {token: t}}, {name: '*', user: {token: t}}]",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("users[1].user") && found[0].contains("not valid for `gate.portcullis.svc`"),
        "{found:?}"
    );
}

#[test]
fn a_ca_that_did_not_sign_the_server_s_certificate_is_reported() {
    let of = |authority: &[u8]| {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://a', tls-server-name: gateway.example.com, \
             certificate-authority-data: {}}}}}]\nusers: [{{name: u, user: {{token: t}}}}]",
            STANDARD.encode(authority)
        )
    };
    let world = CertificateWorld::new();
    let own = mk_certificate(90, &["gateway.example.com"]);
    world.write("server.crt", &own);
    let found = |authority: &[u8]| {
        world.write("callers.kubeconfig", of(authority));
        world.misfits().concat()
    };
    assert_eq!(found(&own), "");
    let both = [mk_certificate(90, &[]), own.clone()].concat();
    assert_eq!(found(&both), "", "one of several will do");
    let stranger = found(&mk_certificate(90, &[]));
    assert!(
        stranger.contains("clusters[0].cluster.certificate-authority")
            && stranger.contains("would not trust the gateway"),
        "{stranger}"
    );
}
