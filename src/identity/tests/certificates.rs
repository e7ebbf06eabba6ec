//! Whose certificate it is, and whether it is trusted.

use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::X509;

use super::super::*;
use super::fixtures::{START, World, at, certificate_data, client, peer, seen, seen_at};
use crate::pki::{Authority, Leaf, Usage};

const UNTRUSTED: &str = "401 certificate unauthorized: certificate not trusted";
const UNKNOWN: &str = "401 certificate unauthorized: unknown credential";

fn pattern(ca: &Authority, pattern: &str) -> Authenticator {
    World::new(
        ca,
        &format!("- {{clientCertificate: {{{pattern}}}, endpoints: [authorize]}}\n"),
    )
    .build()
}

#[test]
fn fields_of_a_pattern_are_anded_and_their_values_ored() {
    let ca = Authority::new("ca");
    let authenticator = pattern(
        &ca,
        "commonNames: [a, b], organizations: [o, p], sans: ['*.cp.example.com', 10.0.0.1]",
    );
    let subject = |common_name, organization| {
        [
            (Nid::ORGANIZATIONNAME, organization),
            (Nid::COMMONNAME, common_name),
        ]
    };
    let dns: &[&str] = &["x.cp.example.com"];
    let known = "authorize";
    let table = [
        (subject("a", "o"), dns, None, known),
        (subject("b", "p"), dns, None, known),
        (subject("b", "p"), &[], Some("10.0.0.1"), known),
        (subject("b", "p"), &["other", "y.cp.example.com"], None, known),
        (subject("c", "o"), dns, None, UNKNOWN),
        (subject("A", "o"), dns, None, UNKNOWN),
        (subject("a", "q"), dns, None, UNKNOWN),
        (subject("a", "o"), &[], None, UNKNOWN),
        (subject("a", "o"), &["cp.example.com"], None, UNKNOWN),
        (subject("a", "o"), &["10.0.0.1"], None, UNKNOWN),
        (subject("a", "o"), &[], Some("10.0.0.2"), UNKNOWN),
    ];
    for (subject, dns, ip, expected) in table {
        let certificate = ca
            .issue(&Leaf {
                subject: &subject,
                dns,
                ips: ip.as_slice(),
                ..Leaf::default()
            })
            .certificate;
        let found = seen(&authenticator, Some(&peer(&certificate)), None);
        let expected = match expected {
            "authorize" => format!("{} default {{authorize}} certificate", subject[1].1),
            refusal => refusal.to_owned(),
        };
        assert_eq!(found, expected, "{subject:?} {dns:?} {ip:?}");
    }
}

#[test]
fn a_holder_without_common_name_is_called_by_an_alternative_name() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "sans: [a.example.com, 'spiffe://x/y', '::1', m@example.com]");
    let table = [
        (
            Leaf {
                dns: &["a.example.com"],
                ..Leaf::default()
            },
            "a.example.com",
        ),
        (
            Leaf {
                uri: Some("spiffe://x/y"),
                ..Leaf::default()
            },
            "spiffe://x/y",
        ),
        (
            Leaf {
                ips: &["::1"],
                ..Leaf::default()
            },
            "::1",
        ),
        (
            Leaf {
                email: Some("m@example.com"),
                ..Leaf::default()
            },
            "m@example.com",
        ),
    ];
    for (leaf, name) in table {
        let expected = format!("{name} default {{authorize}} certificate");
        assert_eq!(
            seen(&authenticator, Some(&peer(&ca.issue(&leaf).certificate)), None),
            expected
        );
    }
}

#[test]
fn of_several_common_names_the_last_counts_as_in_go() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "commonNames: [a]");
    let certificate = |names: [&str; 2]| {
        let subject = names.map(|name| (Nid::COMMONNAME, name));
        peer(
            &ca.issue(&Leaf {
                subject: &subject,
                ..Leaf::default()
            })
            .certificate,
        )
    };
    assert_eq!(
        seen(&authenticator, Some(&certificate(["a", "b"])), None),
        UNKNOWN
    );
    let last = seen(&authenticator, Some(&certificate(["b", "a"])), None);
    assert_eq!(last, "a default {authorize} certificate");
}

#[test]
fn a_name_does_not_end_at_a_nul_byte() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "commonNames: [a]");
    let certificate = client(&ca, "a\0b");
    assert_eq!(
        CertificateNames::of(&certificate).display().as_ref(),
        "a\0b",
        "else this tests nothing"
    );
    assert_eq!(seen(&authenticator, Some(&peer(&certificate)), None), UNKNOWN);
}

#[test]
fn a_certificate_must_be_meant_for_clients() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "commonNames: [a]");
    let subject = [(Nid::COMMONNAME, "a")];
    for (usage, is_trusted) in [
        (Some(Usage::Client), true),
        (None, true),
        (Some(Usage::Server), false),
    ] {
        let certificate = ca
            .issue(&Leaf {
                subject: &subject,
                usage,
                ..Leaf::default()
            })
            .certificate;
        let found = seen(&authenticator, Some(&peer(&certificate)), None);
        assert_eq!(found != UNTRUSTED, is_trusted, "{usage:?}: {found}");
    }
}

#[test]
fn a_chain_may_go_over_intermediates_and_end_at_any_authority() {
    let root = Authority::new("root");
    let intermediate = root.intermediate("intermediate");
    let leaf = client(&intermediate, "a");
    let known = "a default {authorize} certificate";

    let authenticator = pattern(&root, "commonNames: [a]");
    assert_eq!(seen(&authenticator, Some(&peer(&leaf)), None), UNTRUSTED);
    let with_chain = PeerCertificate::new(leaf.clone(), [intermediate.certificate.clone()]);
    assert_eq!(seen(&authenticator, Some(&with_chain), None), known);
    let padded: Vec<X509> = std::iter::repeat_n(root.certificate.clone(), 50).collect();
    assert_eq!(PeerCertificate::new(leaf.clone(), padded).intermediates.len(), 10);

    let authenticator = pattern(&intermediate, "commonNames: [a]");
    assert_eq!(
        seen(&authenticator, Some(&peer(&leaf)), None),
        known,
        "an anchor need be no root"
    );
    let elsewhere = pattern(&Authority::new("root"), "commonNames: [a]");
    assert_eq!(
        seen(&elsewhere, Some(&with_chain), None),
        UNTRUSTED,
        "a name alone is no authority"
    );
}

#[test]
fn a_certificate_counts_from_not_before_to_not_after_on_an_open_connection_too() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "commonNames: [a]");
    let subject = [(Nid::COMMONNAME, "a")];
    let connection = peer(
        &ca.issue(&Leaf {
            subject: &subject,
            from: START + 10,
            until: START + 20,
            ..Leaf::default()
        })
        .certificate,
    );
    let known = "a default {authorize} certificate";
    for (second, expected) in [
        (0, UNTRUSTED),
        (8, UNTRUSTED),
        (10, known),
        (11, known),
        (20, known),
        (
            21,
            "401 certificate unauthorized: certificate expired on 2027-01-15T08:00:20Z",
        ),
    ] {
        assert_eq!(
            seen_at(second, &authenticator, Some(&connection), None),
            expected,
            "{second}"
        );
    }
    assert_eq!(
        seen_at(15, &authenticator, Some(&connection), None),
        known,
        "whatever was seen before"
    );
}

#[test]
fn a_certificate_of_a_kubeconfig_matches_by_itself_and_not_by_its_names() {
    let ca = Authority::new("ca");
    let certificate = client(&ca, "a");
    let mut world = World::new(&ca, "- {kubeconfig: k, endpoints: [authorize]}\n");
    world.kubeconfig("k", &[("u", &certificate_data(&certificate))]);
    let authenticator = world.build();
    let known = "k:u default {authorize} certificate";
    assert_eq!(seen(&authenticator, Some(&peer(&certificate)), None), known);
    assert_eq!(
        seen(&authenticator, Some(&peer(&client(&ca, "a"))), None),
        UNKNOWN
    );
}

#[test]
fn a_certificate_of_a_kubeconfig_that_does_not_lead_to_the_client_ca_is_a_warning() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let foreign = client(&other, "a");
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", &certificate_data(&foreign))]);
    let (authenticator, faults) = world.try_build(None, at(0));
    let expected = "/k:3: users[0].user.client-certificate: warning: Invalid value: \
                    the certificate is not accepted: unable to get local issuer certificate";
    assert_eq!(faults, expected);
    assert_eq!(seen(&authenticator, Some(&peer(&foreign)), None), UNTRUSTED);
}

#[test]
fn the_answer_to_an_expired_certificate_says_since_when() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let subject = [(Nid::COMMONNAME, "a")];
    let leaf = Leaf {
        subject: &subject,
        until: START - 1,
        ..Leaf::default()
    };
    let expired = ca.issue(&leaf).certificate;
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", &certificate_data(&expired))]);
    let (authenticator, _) = world.try_build(None, at(0));
    assert_eq!(
        seen(&authenticator, Some(&peer(&expired)), None),
        "401 certificate unauthorized: certificate expired on 2027-01-15T07:59:59Z"
    );
    let connection = peer(&expired);
    let credentials = Credentials {
        peer: Some(&connection),
        ..Credentials::default()
    };
    let refusal = authenticator.authenticate(&credentials, at(0)).unwrap_err();
    assert_eq!(
        refusal.message(),
        "Unauthorized: certificate expired since 2027-01-15T07:59:59Z",
        "the caller is told, too: it holds the key"
    );
    let foreign = other.issue(&leaf).certificate;
    assert_eq!(
        seen(&authenticator, Some(&peer(&foreign)), None),
        UNTRUSTED,
        "of another authority it never was one"
    );
}

#[test]
fn who_has_a_certificate_of_the_client_ca_is_known_in_its_time_or_not() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let authenticator = pattern(&ca, "commonNames: [somebody-else]");
    let subject = [(Nid::COMMONNAME, "a")];
    let expired = Leaf {
        subject: &subject,
        until: START - 1,
        ..Leaf::default()
    };
    for (certificate, expected) in [
        (client(&ca, "a"), true),
        (ca.issue(&expired).certificate, true),
        (client(&other, "a"), false),
        (other.issue(&expired).certificate, false),
    ] {
        assert_eq!(
            authenticator.is_signed_by_client_ca(&peer(&certificate), at(0)),
            expected
        );
    }
}

#[test]
fn a_certificate_is_demanded_while_nobody_has_anything_else() {
    let ca = Authority::new("ca");
    assert!(pattern(&ca, "commonNames: [a]").demands_certificate(at(0)));
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "token: t")]);
    let by_token = world.build();
    assert!(!by_token.demands_certificate(at(0)));
    world.kubeconfig("k", &[("u", &certificate_data(&client(&ca, "a")))]);
    let (by_certificate, _) = world.try_build(Some(&by_token), at(1));
    assert!(
        !by_certificate.demands_certificate(at(599)),
        "the token is still accepted"
    );
    assert!(by_certificate.demands_certificate(at(602)));
}

#[test]
fn an_open_connection_is_judged_by_the_present_authority_and_callers() {
    let (ca, next) = (Authority::new("ca"), Authority::new("next"));
    let mut world = World::new(
        &ca,
        "- {clientCertificate: {commonNames: [a]}, endpoints: [authorize]}\n",
    );
    let first = world.build();
    let connection = peer(&client(&ca, "a"));
    let known = "a default {authorize} certificate";
    assert_eq!(seen(&first, Some(&connection), None), known);

    world.write("ca.crt", next.pem());
    let second = world.rebuild(Some(&first), 1);
    assert_eq!(seen_at(1, &second, Some(&connection), None), UNTRUSTED);
    assert_eq!(
        seen_at(1, &first, Some(&connection), None),
        known,
        "for a request that began before"
    );

    world.write("ca.crt", [ca.pem(), next.pem()].concat());
    let third = world.rebuild(Some(&second), 2);
    assert_eq!(seen_at(2, &third, Some(&connection), None), known);

    world.callers = world.callers.replace("[a]", "[b]");
    let fourth = world.rebuild(Some(&third), 3);
    assert_eq!(seen_at(3, &fourth, Some(&connection), None), UNKNOWN);
}

#[test]
fn without_a_client_ca_no_certificate_counts() {
    let ca = Authority::new("ca");
    let certificate = client(&ca, "a");
    assert!(ClientCa::default().verify(&certificate, &[], at(0)).is_err());
    assert!(
        ClientCa::from_pem(&ca.pem())
            .unwrap()
            .verify(&certificate, &[], at(0))
            .is_ok()
    );
}

#[test]
fn a_weak_certificate_is_not_trusted() {
    let ca = Authority::new("ca");
    let authenticator = pattern(&ca, "commonNames: [a]");
    let leaf = Leaf {
        subject: &[(Nid::COMMONNAME, "a")],
        ..Leaf::default()
    };
    for (bits, is_trusted) in [(1024, false), (2048, true)] {
        let key = PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
        let found = seen(&authenticator, Some(&peer(&ca.issue_for(&leaf, &key))), None);
        assert_eq!(found != UNTRUSTED, is_trusted, "{bits}: {found}");
    }
}
