use std::collections::BTreeSet;

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::x509::X509Builder;
use openssl::x509::extension::{BasicConstraints, KeyUsage};

use super::*;

const START: u64 = 1_790_000_000;
const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn hosts() -> Vec<Host> {
    vec!["portcullis.portcullis.svc".parse().unwrap()]
}

fn rules(hosts: &[Host], seconds: u64) -> RotationRules<'_> {
    RotationRules {
        hosts,
        now: at(seconds),
        propagation: Duration::from_secs(600),
        renew_before: None,
    }
}

fn empty() -> Value {
    json!({"metadata": {"name": "portcullis-webhook", "namespace": "portcullis", "resourceVersion": "7"}})
}

fn made(hosts: &[Host]) -> WebhookCredentials {
    WebhookCredentials::read(&empty())
        .repaired(&rules(hosts, START))
        .unwrap()
        .unwrap()
}

/// As the next run finds it.
fn stored(credentials: &WebhookCredentials) -> WebhookCredentials {
    WebhookCredentials::read(&credentials.object(&empty()))
}

/// Whether an API server that trusts `authorities` takes the certificate.
fn is_trusted(server: &[u8], authorities: &[u8], now: u64) -> bool {
    let mut param = X509VerifyParam::new().unwrap();
    param.set_time(i64::try_from(now).unwrap());
    param.set_host("portcullis.portcullis.svc").unwrap();
    let mut store = X509StoreBuilder::new().unwrap();
    for authority in X509::stack_from_pem(authorities).unwrap() {
        store.add_cert(authority).unwrap();
    }
    store.set_param(&param).unwrap();
    let certificate = X509::from_pem(server).unwrap();
    let mut context = X509StoreContext::new().unwrap();
    let none = Stack::new().unwrap();
    context
        .init(&store.build(), &certificate, &none, |context| {
            context.verify_cert()
        })
        .unwrap()
}

fn server(credentials: &WebhookCredentials) -> &[u8] {
    &credentials.certificates.as_ref().unwrap().server.certificate
}

#[test]
fn an_empty_secret_is_filled_and_then_left_alone() {
    let hosts = hosts();
    let made = made(&hosts);
    assert!(is_trusted(server(&made), made.authorities().unwrap(), START));
    let object = made.object(&empty());
    assert_eq!(object["metadata"]["resourceVersion"], "7");
    let keys: BTreeSet<&String> = object["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys.into_iter().collect::<Vec<_>>(),
        ["ca.crt", "path-token", "server.crt", "server.key"]
    );
    let found = stored(&made);
    for later in [0, DAY, 242 * DAY] {
        let rules = rules(&hosts, START + later);
        assert!(found.repaired(&rules).unwrap().is_none());
        assert!(found.advanced(&rules).unwrap().is_none());
    }
}

/// Pods and API servers each read the Secret and the webhook configurations in their own time: whatever
/// pair of neighbouring phases two of them have, one can call the other.
#[test]
fn in_a_rotation_each_phase_can_call_and_serve_its_neighbours() {
    let hosts = hosts();
    let first = made(&hosts);
    let mut phases = vec![stored(&first)];
    let mut now = START + 244 * DAY;
    for expected in [
        RotationPhase::Prepared,
        RotationPhase::Switched,
        RotationPhase::Settled,
    ] {
        let next = phases
            .last()
            .unwrap()
            .advanced(&rules(&hosts, now))
            .unwrap()
            .unwrap();
        assert_eq!(next.phase(), expected);
        let next = stored(&next);
        assert!(next.repaired(&rules(&hosts, now)).unwrap().is_none());
        if expected != RotationPhase::Settled {
            // Not before everybody can have read it.
            assert!(next.advanced(&rules(&hosts, now + 599)).unwrap().is_none());
        }
        phases.push(next);
        now += 600;
    }
    for pair in phases.windows(2) {
        for (caller, gateway) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            assert!(
                gateway
                    .tokens
                    .iter()
                    .any(|token| Some(token.as_str()) == caller.token())
            );
            assert!(is_trusted(server(gateway), caller.authorities().unwrap(), now));
        }
    }
    let last = phases.last().unwrap();
    assert!(last.advanced(&rules(&hosts, now)).unwrap().is_none());
    assert!(!first.tokens.contains(&last.tokens[0]) && last.tokens.len() == 1);
    assert!(!is_trusted(server(&first), last.authorities().unwrap(), START));
    assert_eq!(
        X509::stack_from_pem(last.authorities().unwrap()).unwrap().len(),
        1
    );
}

#[test]
fn a_rotation_can_be_asked_for_once() {
    let hosts = hosts();
    let found = stored(&made(&hosts));
    let asked = |now, before: u64| RotationRules {
        renew_before: Some(at(before).into()),
        ..rules(&hosts, now)
    };
    assert!(found.advanced(&asked(START + DAY, START)).unwrap().is_none());
    let mut state = found
        .advanced(&asked(START + DAY, START + HOUR))
        .unwrap()
        .unwrap();
    for step in 1..=2 {
        state = state
            .advanced(&asked(START + DAY + step * HOUR, START + HOUR))
            .unwrap()
            .unwrap();
    }
    assert_eq!(state.phase(), RotationPhase::Settled);
    assert!(
        state
            .advanced(&asked(START + 2 * DAY, START + HOUR))
            .unwrap()
            .is_none()
    );
}

#[test]
fn what_nobody_could_use_is_replaced_at_once() {
    let hosts = hosts();
    let whole = made(&hosts).object(&empty());
    let other = made(&hosts).object(&empty());
    let elsewhere = vec!["gate.elsewhere.svc".parse().unwrap()];
    let damaged: [(&str, Value, &[Host], u64); 6] = [
        (
            "server.crt",
            json!(STANDARD.encode("no certificate")),
            &hosts,
            START,
        ),
        ("server.key", other["data"]["server.key"].clone(), &hosts, START),
        ("ca.crt", other["data"]["ca.crt"].clone(), &hosts, START),
        ("server.key", Value::Null, &hosts, START),
        ("other", json!("AAAA"), &elsewhere, START),
        ("other", json!("AAAA"), &hosts, START + 366 * DAY),
    ];
    for (key, value, hosts, now) in damaged {
        let mut secret = whole.clone();
        secret["data"][key] = value;
        let found = WebhookCredentials::read(&secret);
        let repaired = found
            .repaired(&rules(hosts, now))
            .unwrap()
            .unwrap_or_else(|| panic!("{key}"));
        assert!(
            repaired
                .certificates
                .as_ref()
                .unwrap()
                .fault(&rules(hosts, now))
                .is_none(),
            "{key}"
        );
        assert_eq!(repaired.tokens, found.tokens, "{key}");
    }
}

#[test]
fn what_somebody_has_added_does_not_stay() {
    let hosts = hosts();
    let mut secret = made(&hosts).object(&empty());
    let data = |secret: &Value, key: &str| STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
    let own = [data(&secret, "path-token"), data(&secret, "ca.crt")];
    let other = made(&hosts).object(&empty());
    for key in ["path-token", "ca.crt"] {
        let both = [data(&secret, key), data(&other, key)].concat();
        secret["data"][key] = json!(STANDARD.encode(both));
    }
    let found = WebhookCredentials::read(&secret);
    assert_eq!(found.tokens.len(), 2);
    let repaired = found.repaired(&rules(&hosts, START)).unwrap().unwrap();
    let object = repaired.object(&secret);
    assert_eq!([data(&object, "path-token"), data(&object, "ca.crt")], own);
    assert!(
        stored(&repaired)
            .repaired(&rules(&hosts, START))
            .unwrap()
            .is_none()
    );
    // Nor does a time that is never over.
    secret["metadata"]["annotations"][CHANGED] = json!("2999-01-01T00:00:00Z");
    let found = WebhookCredentials::read(&secret);
    assert!(found.advanced(&rules(&hosts, START)).unwrap().is_some());
}

#[test]
fn a_token_that_could_be_guessed_is_replaced() {
    let hosts = hosts();
    for token in ["", "secret\n", "00\n", &"G".repeat(64), &"../".repeat(22)] {
        let mut secret = made(&hosts).object(&empty());
        secret["data"]["path-token"] = json!(STANDARD.encode(token));
        let repaired = WebhookCredentials::read(&secret)
            .repaired(&rules(&hosts, START))
            .unwrap();
        assert_eq!(repaired.unwrap().token().unwrap().len(), 64, "{token}");
    }
}

#[test]
fn where_another_program_makes_the_certificate_the_token_alone_is_rotated() {
    let found = stored(&made(&[]));
    assert!(found.authorities().is_none());
    let token = found.token().unwrap().to_owned();
    let mut state = found;
    for step in 0..3 {
        state = stored(
            &state
                .advanced(&rules(&[], START + (244 + step) * DAY))
                .unwrap()
                .unwrap(),
        );
    }
    assert_eq!((state.phase(), state.tokens.len()), (RotationPhase::Settled, 1));
    assert_ne!(state.token(), Some(token.as_str()));
    // And it can be made here again.
    assert!(
        state
            .repaired(&rules(&hosts(), START + 247 * DAY))
            .unwrap()
            .unwrap()
            .authorities()
            .is_some()
    );
}

/// An authority whose extensions and end are those of `change`, and what it signed.
fn signed_by(hosts: &[Host], change: impl FnOnce(&mut X509Builder)) -> WebhookCredentials {
    let now = i64::try_from(START).unwrap();
    let authority = Authority::new("a", now).unwrap();
    let server = authority.issue(SERVER_NAME, &Usage::Server(hosts)).unwrap();
    let pair = authority.pair().unwrap();
    let (known, key) = (
        X509::from_pem(&pair.certificate).unwrap(),
        PKey::private_key_from_pem(&pair.key).unwrap(),
    );
    let mut other = X509Builder::new().unwrap();
    other.set_version(2).unwrap();
    other.set_serial_number(known.serial_number()).unwrap();
    other.set_subject_name(known.subject_name()).unwrap();
    other.set_issuer_name(known.subject_name()).unwrap();
    other.set_not_before(known.not_before()).unwrap();
    other.set_not_after(known.not_after()).unwrap();
    other.set_pubkey(&key).unwrap();
    change(&mut other);
    other.sign(&key, MessageDigest::sha256()).unwrap();
    WebhookCredentials {
        certificates: Some(ServingCertificates {
            trusted: other.build().to_pem().unwrap(),
            server,
            next: None,
        }),
        ..made(hosts)
    }
}

fn extend(builder: &mut X509Builder, is_authority: bool, usage: &KeyUsage) {
    let mut constraints = BasicConstraints::new();
    if is_authority {
        constraints.ca();
    }
    builder
        .append_extension(constraints.critical().build().unwrap())
        .unwrap();
    builder.append_extension(usage.build().unwrap()).unwrap();
}

#[test]
fn an_authority_that_api_servers_do_not_take_is_replaced_and_named() {
    type Change = fn(&mut X509Builder);
    let hosts = hosts();
    let changes: [(Change, Option<&str>); 4] = [
        (|it| extend(it, true, KeyUsage::new().key_cert_sign()), None),
        (
            |it| extend(it, false, KeyUsage::new().key_cert_sign()),
            Some("`ca.crt`"),
        ),
        (
            |it| extend(it, true, KeyUsage::new().digital_signature()),
            Some("`ca.crt`"),
        ),
        (
            |it| {
                extend(it, true, KeyUsage::new().key_cert_sign());
                let end = Asn1Time::from_unix((START - DAY).try_into().unwrap()).unwrap();
                it.set_not_after(&end).unwrap();
            },
            Some("expired"),
        ),
    ];
    for (change, fault) in changes {
        let credentials = signed_by(&hosts, change);
        let faults = credentials.faults(&rules(&hosts, START)).concat();
        let repaired = credentials.repaired(&rules(&hosts, START)).unwrap();
        match fault {
            None => assert!(faults.is_empty() && repaired.is_none(), "{faults}"),
            Some(fault) => {
                assert!(faults.contains(fault), "{faults}");
                let repaired = repaired.unwrap();
                assert!(is_trusted(
                    server(&repaired),
                    repaired.authorities().unwrap(),
                    START
                ));
            }
        }
    }
}

#[test]
fn a_certificate_that_is_to_come_into_use_must_be_one_that_api_servers_take() {
    let hosts = hosts();
    let due = rules(&hosts, START + 244 * DAY);
    let mut prepared = stored(&made(&hosts)).advanced(&due).unwrap().unwrap();
    assert!(prepared.faults(&due).is_empty());
    let other = Authority::new("other", i64::try_from(START).unwrap()).unwrap();
    let next = other.issue(SERVER_NAME, &Usage::Server(&hosts)).unwrap();
    prepared.certificates.as_mut().unwrap().next = Some(next);
    let faults = prepared.faults(&due).concat();
    assert!(faults.contains("`next.crt`"), "{faults}");
    let repaired = prepared.repaired(&due).unwrap().unwrap();
    assert_eq!(repaired.phase(), RotationPhase::Settled);
    assert_eq!(server(&repaired), server(&prepared), "what is in use stays");
}
