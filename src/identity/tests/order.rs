//! Which credential decides, and what several of them add up to.

use openssl::nid::Nid;

use super::super::*;
use super::fixtures::{World, basic, certificate_data, client, peer, seen};
use crate::config::Endpoint;
use crate::pki::{Authority, Leaf};

#[test]
fn the_first_credential_that_names_a_caller_decides() {
    let (ca, other_ca) = (Authority::new("ca"), Authority::new("other"));
    let (known, unknown, foreign) = (
        client(&ca, "known"),
        client(&ca, "unknown"),
        client(&other_ca, "known"),
    );
    let mut world = World::new(
        &ca,
        "- {kubeconfig: c, endpoints: [authorize]}\n\
         - {kubeconfig: t, endpoints: [validate]}\n\
         - {kubeconfig: b, endpoints: [mutate]}\n",
    );
    world.kubeconfig("c", &[("u", &certificate_data(&known))]);
    world.kubeconfig("t", &[("u", "token: t0")]);
    world.kubeconfig("b", &[("u", "username: 'n', password: p")]);
    let authenticator = world.build();
    let (known, unknown, foreign) = (peer(&known), peer(&unknown), peer(&foreign));
    let (pair, wrong) = (basic("n:p"), basic("n:q"));

    let by_certificate = "c:u default {authorize} certificate";
    let by_token = "t:u default {validate} bearer";
    let by_password = "b:u default {mutate} basic";
    let table = [
        (Some(&known), None, by_certificate),
        (Some(&known), Some("Bearer t0"), by_certificate),
        (Some(&known), Some(pair.as_str()), by_certificate),
        (Some(&known), Some("Bearer unknown"), by_certificate),
        (Some(&known), Some("Bearer"), by_certificate),
        (Some(&known), Some("Digest x"), by_certificate),
        (Some(&unknown), Some("Bearer t0"), by_token),
        (Some(&foreign), Some("Bearer t0"), by_token),
        (Some(&unknown), Some(pair.as_str()), by_password),
        (None, Some("Bearer t0"), by_token),
        (None, Some("bearer  t0 "), by_token),
        (None, Some(pair.as_str()), by_password),
        (None, None, "401 none unauthorized: no credential"),
        (
            None,
            Some("Bearer t"),
            "401 bearer unauthorized: unknown credential",
        ),
        (
            None,
            Some("Bearer n:p"),
            "401 bearer unauthorized: unknown credential",
        ),
        (
            None,
            Some(wrong.as_str()),
            "401 basic unauthorized: unknown credential",
        ),
        (
            None,
            Some("Bearer t0 t0"),
            "401 bearer unauthorized: malformed credential",
        ),
        (
            None,
            Some("Basic t0"),
            "401 basic unauthorized: malformed credential",
        ),
        (
            None,
            Some("Negotiate t0"),
            "401 none unauthorized: unsupported authorization scheme",
        ),
        (
            Some(&unknown),
            None,
            "401 certificate unauthorized: unknown credential",
        ),
        (
            Some(&foreign),
            None,
            "401 certificate unauthorized: certificate not trusted",
        ),
        (
            Some(&unknown),
            Some("Bearer x"),
            "401 bearer unauthorized: unknown credential",
        ),
    ];
    for (peer, authorization, expected) in table {
        assert_eq!(
            seen(&authenticator, peer, authorization),
            expected,
            "{authorization:?}"
        );
    }
}

#[test]
fn an_endpoint_that_is_not_the_callers_is_forbidden() {
    let ca = Authority::new("ca");
    let mut world = World::new(&ca, "- {kubeconfig: k, endpoints: [authorize]}\n");
    world.kubeconfig("k", &[("u", "token: t")]);
    let presented = Credentials {
        authorization: Some(b"Bearer t"),
        ..Credentials::default()
    };
    let caller = world
        .build()
        .authenticate(&presented, super::fixtures::at(0))
        .unwrap();
    assert_eq!(caller.check(Endpoint::Authorize), Ok(()));
    let refusal = caller.check(Endpoint::Mutate).unwrap_err();
    assert_eq!(
        (refusal.status(), refusal.method()),
        (403, AuthenticationMethod::Bearer)
    );
    assert_eq!(refusal.to_string(), "`k:u` may not use `mutate`");
}

#[test]
fn endpoints_left_out_are_all() {
    let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "token: t")]);
    let expected = "k:u default {authorize, validate, mutate} bearer";
    assert_eq!(seen(&world.build(), None, Some("Bearer t")), expected);
}

#[test]
fn each_user_of_a_kubeconfig_is_accepted() {
    let mut world = World::new(
        &Authority::new("ca"),
        "- {kubeconfig: dir/k, endpoints: [mutate], cluster: east}\n",
    );
    world.kubeconfig(
        "dir/k",
        &[
            ("a", "token: ta"),
            ("b", "token: tb, tokenFile: f"),
            ("c", "tokenFile: f"),
        ],
    );
    world.write("dir/f", "tf\n");
    let authenticator = world.build();
    assert_eq!(
        seen(&authenticator, None, Some("Bearer ta")),
        "k:a east {mutate} bearer"
    );
    assert_eq!(
        seen(&authenticator, None, Some("Bearer tb")),
        "k:b east {mutate} bearer"
    );
    assert_eq!(
        seen(&authenticator, None, Some("Bearer tf")),
        "k:b east {mutate} bearer"
    );
}

#[test]
fn a_credential_in_several_entries_has_the_union_of_their_endpoints() {
    let ca = Authority::new("ca");
    let certificate = client(&ca, "known");
    let mut world = World::new(
        &ca,
        "- {kubeconfig: a, endpoints: [authorize]}\n\
         - {kubeconfig: b, endpoints: [mutate]}\n\
         - {clientCertificate: {commonNames: [known]}, endpoints: [validate]}\n",
    );
    world.kubeconfig("a", &[("u", &certificate_data(&certificate)), ("t", "token: t")]);
    world.kubeconfig("b", &[("v", "token: t")]);
    let authenticator = world.build();
    assert_eq!(
        seen(&authenticator, None, Some("Bearer t")),
        "a:t default {authorize, mutate} bearer"
    );
    let by_certificate = "a:u default {authorize, validate} certificate";
    assert_eq!(
        seen(&authenticator, Some(&peer(&certificate)), None),
        by_certificate
    );
}

#[test]
fn one_credential_of_two_clusters_is_a_fault_where_the_files_show_it() {
    let ca = Authority::new("ca");
    let certificate = client(&ca, "known");
    let expected = "g.yaml:6: callers[1].cluster: Invalid value: `east`: \
                    the same credential is for the cluster `default` in callers[0]";
    for user in [
        "token: t",
        "username: 'n', password: p",
        &certificate_data(&certificate),
    ] {
        let mut world = World::new(&ca, "- {kubeconfig: a}\n- {kubeconfig: b, cluster: east}\n");
        world.kubeconfig("a", &[("u", user)]);
        world.kubeconfig("b", &[("v", user), ("w", user)]);
        let (_, faults) = world.try_build(None, super::fixtures::at(0));
        assert_eq!(faults, expected, "{user}");
    }
    for callers in [
        "- {kubeconfig: a}\n- {clientCertificate: {commonNames: [known]}, cluster: east}\n",
        "- {clientCertificate: {commonNames: [known]}}\n- {kubeconfig: a, cluster: east}\n",
    ] {
        let mut world = World::new(&ca, callers);
        world.kubeconfig("a", &[("u", &certificate_data(&certificate))]);
        assert_eq!(
            world.try_build(None, super::fixtures::at(0)).1,
            expected,
            "{callers}"
        );
    }
}

#[test]
fn one_credential_of_two_clusters_is_forbidden_where_only_the_request_shows_it() {
    let ca = Authority::new("ca");
    let world = World::new(
        &ca,
        "- {clientCertificate: {commonNames: [a]}}\n\
         - {clientCertificate: {organizations: [o]}, cluster: east}\n",
    );
    let authenticator = world.build();
    let subject = [(Nid::ORGANIZATIONNAME, "o"), (Nid::COMMONNAME, "a")];
    let both = ca
        .issue(&Leaf {
            subject: &subject,
            ..Leaf::default()
        })
        .certificate;
    let expected = "403 certificate `a` is configured for more than one cluster";
    assert_eq!(seen(&authenticator, Some(&peer(&both)), None), expected);
    assert_eq!(
        seen(&authenticator, Some(&peer(&both)), Some("Bearer x")),
        expected
    );
}

#[test]
fn fields_within_an_entry_must_all_be_met() {
    let ca = Authority::new("ca");
    let mut world = World::new(
        &ca,
        "- {kubeconfig: k, clientCertificate: {commonNames: [a]}, endpoints: [authorize]}\n\
         - {clientCertificate: {organizations: [o]}, endpoints: [validate]}\n",
    );
    world.kubeconfig("k", &[("u", "token: t")]);
    let authenticator = world.build();
    let a = peer(&client(&ca, "a"));
    let subject = [(Nid::ORGANIZATIONNAME, "o"), (Nid::COMMONNAME, "a")];
    let member = peer(
        &ca.issue(&Leaf {
            subject: &subject,
            ..Leaf::default()
        })
        .certificate,
    );
    let table = [
        (Some(&a), Some("Bearer t"), "a default {authorize} certificate"),
        (
            Some(&a),
            None,
            "401 certificate unauthorized: one of the caller's credentials is missing",
        ),
        (
            Some(&a),
            Some("Bearer x"),
            "401 bearer unauthorized: one of the caller's credentials is missing",
        ),
        (
            None,
            Some("Bearer t"),
            "401 bearer unauthorized: one of the caller's credentials is missing",
        ),
        (Some(&member), None, "a default {validate} certificate"),
        (
            Some(&member),
            Some("Bearer x"),
            "a default {validate} certificate",
        ),
        (
            Some(&member),
            Some("Bearer t"),
            "a default {authorize, validate} certificate",
        ),
    ];
    for (peer, authorization, expected) in table {
        assert_eq!(
            seen(&authenticator, peer, authorization),
            expected,
            "{authorization:?}"
        );
    }
}

#[test]
fn a_challenge_names_the_schemes_that_could_succeed() {
    let ca = Authority::new("ca");
    let table = [
        ("token: t", "Bearer realm=\"portcullis\""),
        ("username: nn", "Basic realm=\"portcullis\""),
        (
            &certificate_data(&client(&ca, "a")),
            "Bearer realm=\"portcullis\"",
        ),
    ];
    for (user, expected) in table {
        let mut world = World::new(&ca, "- {kubeconfig: k}\n");
        world.kubeconfig("k", &[("u", user)]);
        assert_eq!(world.build().challenge(), expected);
    }
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "token: t"), ("v", "username: nn")]);
    assert_eq!(
        world.build().challenge(),
        "Bearer realm=\"portcullis\", Basic realm=\"portcullis\""
    );
}

#[test]
fn a_refusal_tells_the_caller_nothing_that_helps_to_guess() {
    let world = World::new(
        &Authority::new("ca"),
        "- {clientCertificate: {commonNames: [a]}}\n",
    );
    let authenticator = world.build();
    for header in ["Bearer secret", "Basic c2VjcmV0", "secret x"] {
        let presented = Credentials {
            authorization: Some(header.as_bytes()),
            ..Credentials::default()
        };
        let refusal = authenticator
            .authenticate(&presented, super::fixtures::at(0))
            .unwrap_err();
        assert_eq!(refusal.message(), "Unauthorized");
        assert!(!format!("{refusal} {refusal:?} {presented:?}").contains("secret"));
    }
}
