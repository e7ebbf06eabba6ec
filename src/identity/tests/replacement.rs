//! Credentials that are replaced while requests come in.

use super::fixtures::{World, basic, certificate_data, client, peer, seen_at};
use crate::pki::Authority;

const GRACE: i64 = 600;

#[test]
fn a_replaced_certificate_stays_good_for_ten_minutes_on_an_open_connection_too() {
    let ca = Authority::new("ca");
    let (old, new) = (client(&ca, "a"), client(&ca, "a"));
    let mut world = World::new(&ca, "- {kubeconfig: k, endpoints: [authorize]}\n");
    world.kubeconfig("k", &[("u", &certificate_data(&old))]);
    let first = world.build();
    let connection = peer(&old);
    let known = "k:u default {authorize} certificate";
    assert_eq!(seen_at(0, &first, Some(&connection), None), known);

    world.kubeconfig("k", &[("u", &certificate_data(&new))]);
    let second = world.rebuild(Some(&first), 100);
    assert_eq!(seen_at(100, &second, Some(&peer(&new)), None), known);
    for (second_of, expected) in [
        (100, true),
        (100 + GRACE, true),
        (101 + GRACE, false),
        (300, true),
    ] {
        let found = seen_at(second_of, &second, Some(&connection), None);
        assert_eq!(found == known, expected, "{second_of}: {found}");
    }
    let third = world.rebuild(Some(&second), 200);
    assert_eq!(seen_at(100 + GRACE, &third, Some(&connection), None), known);
    let refused = "401 certificate unauthorized: unknown credential";
    assert_eq!(
        seen_at(101 + GRACE, &third, Some(&connection), None),
        refused,
        "another reload adds no time"
    );
}

#[test]
fn a_replaced_token_or_password_stays_good_for_ten_minutes() {
    let (old_pair, new_pair) = (basic("n:old"), basic("n:new"));
    let table = [
        ("token: old", "token: new", "Bearer old", "Bearer new"),
        (
            "username: 'n', password: old",
            "username: 'n', password: new",
            &old_pair,
            &new_pair,
        ),
    ];
    for (before, after, old, new) in table {
        let mut world = World::new(
            &Authority::new("ca"),
            "- {kubeconfig: k, endpoints: [authorize]}\n",
        );
        world.kubeconfig("k", &[("u", before)]);
        let first = world.build();
        world.kubeconfig("k", &[("u", after)]);
        let second = world.rebuild(Some(&first), 0);
        let is_known = |second_of, header| {
            seen_at(second_of, &second, None, Some(header)).starts_with("k:u default {authorize}")
        };
        assert!(is_known(0, old) && is_known(GRACE, old) && !is_known(GRACE + 1, old));
        assert!(is_known(0, new) && is_known(GRACE + 1, new));
    }
}

#[test]
fn what_a_token_file_held_before_stays_good_for_ten_minutes() {
    let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "tokenFile: t")]);
    world.write("t", "one\n");
    let first = world.build();
    world.write("t", "two\n");
    let second = world.rebuild(Some(&first), 0);
    assert!(seen_at(GRACE, &second, None, Some("Bearer one")).starts_with("k:u"));
    assert!(seen_at(GRACE + 1, &second, None, Some("Bearer one")).starts_with("401"));
    assert!(seen_at(GRACE + 1, &second, None, Some("Bearer two")).starts_with("k:u"));
}

#[test]
fn a_credential_whose_user_is_gone_is_gone_with_it() {
    let ca = Authority::new("ca");
    let certificate = client(&ca, "a");
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", &certificate_data(&certificate)), ("v", "token: t")]);
    let first = world.build();
    let connection = peer(&certificate);
    assert!(seen_at(0, &first, Some(&connection), None).starts_with("k:u"));

    world.kubeconfig("k", &[("w", "token: s")]);
    let second = world.rebuild(Some(&first), 1);
    assert!(seen_at(1, &second, Some(&connection), None).starts_with("401"));
    assert!(seen_at(1, &second, None, Some("Bearer t")).starts_with("401"));
}

#[test]
fn a_credential_that_was_replaced_is_gone_when_its_user_goes() {
    let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "token: one"), ("v", "token: v")]);
    let first = world.build();
    world.kubeconfig("k", &[("u", "token: two"), ("v", "token: v")]);
    let second = world.rebuild(Some(&first), 1);
    assert!(seen_at(1, &second, None, Some("Bearer one")).starts_with("k:u"));
    world.kubeconfig("k", &[("v", "token: v")]);
    let third = world.rebuild(Some(&second), 2);
    assert!(seen_at(2, &third, None, Some("Bearer one")).starts_with("401"));
    assert!(seen_at(2, &third, None, Some("Bearer two")).starts_with("401"));
}

#[test]
fn a_caller_that_is_gone_takes_its_credentials_with_it() {
    let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n- {kubeconfig: l}\n");
    world.kubeconfig("k", &[("u", "token: t")]);
    world.kubeconfig("l", &[("u", "token: s")]);
    let first = world.build();
    assert!(seen_at(0, &first, None, Some("Bearer t")).starts_with("k:u"));
    world.callers = "- {kubeconfig: l}\n".into();
    let second = world.rebuild(Some(&first), 1);
    assert!(seen_at(1, &second, None, Some("Bearer t")).starts_with("401"));
    assert!(seen_at(1, &second, None, Some("Bearer s")).starts_with("l:u"));
}

#[test]
fn a_replaced_credential_speaks_for_the_present_cluster_and_endpoints() {
    let mut world = World::new(
        &Authority::new("ca"),
        "- {kubeconfig: k, endpoints: [authorize]}\n",
    );
    world.kubeconfig("k", &[("u", "token: one")]);
    let first = world.build();
    world.kubeconfig("k", &[("u", "token: two")]);
    world.callers = "- {kubeconfig: k, endpoints: [mutate], cluster: east}\n".into();
    let second = world.rebuild(Some(&first), 1);
    assert_eq!(
        seen_at(1, &second, None, Some("Bearer one")),
        "k:u east {mutate} bearer"
    );
}
