//! What is remembered of tokens, and for how long.

use serde_json::json;

use super::issuer::*;
use crate::identity::jwt::Tokens;
use crate::identity::tests::fixtures::{START, at, seen_at};
use crate::identity::*;

#[test]
fn what_is_remembered_of_a_token_does_not_outlive_it() {
    let authenticator = world().build();
    let short = with_claims(json!({"exp": START + 2, "nbf": START - 2}));
    let header = format!("Bearer {short}");
    let table = [
        (0, KNOWN),
        (1, KNOWN),
        (32, KNOWN),
        (33, "expired"),
        (33, "expired"),
        (32, KNOWN),
        (-32, KNOWN),
        (-33, "not yet valid"),
        (-32, KNOWN),
    ];
    for (second, expected) in table {
        let found = seen_at(second, &authenticator, None, Some(&header));
        assert!(
            found == expected || found == refused(expected),
            "{second}: {found}"
        );
    }
}

#[test]
fn a_connection_that_shows_a_token_again_has_the_same_caller() {
    let authenticator = world().build();
    let header = format!("Bearer {}", with_claims(json!({})));
    let recent = RecentToken::default();
    let caller = |authenticator: &Authenticator, second| {
        let credentials = Credentials {
            authorization: Some(header.as_bytes()),
            recent: Some(&recent),
            ..Credentials::default()
        };
        authenticator.authenticate(&credentials, at(second)).unwrap()
    };
    let first = caller(&authenticator, 0);
    assert!(Arc::ptr_eq(&first, &caller(&authenticator, 10)));
    assert!(
        !Arc::ptr_eq(&first, &caller(&authenticator, 11)),
        "the token is checked again"
    );
    let again = caller(&authenticator, 11);
    let published = authenticator.with_published_keys(|_| None);
    assert!(
        !Arc::ptr_eq(&again, &caller(&published, 11)),
        "keys may have gone"
    );
}

#[test]
fn made_up_tokens_do_not_push_out_good_ones() {
    let authenticator = world().build();
    let good = with_claims(json!({}));
    let digest = |token: &str| authenticator.digester.digest(Purpose::Token, token.as_bytes());
    let first = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(0))
        .unwrap();
    for number in 0..5_000 {
        let made_up = format!("a.{number}.c");
        authenticator
            .jwts
            .check(made_up.as_bytes(), digest(&made_up), at(0));
    }
    let again = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(5))
        .unwrap();
    assert!(Arc::ptr_eq(&first, &again), "remembered");
    let later = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(11))
        .unwrap();
    assert!(!Arc::ptr_eq(&first, &later), "checked again after ten seconds");
    assert!(authenticator.jwts.cached_results() <= 1024 + 1);
    assert!(
        Tokens::new(Vec::new())
            .check(good.as_bytes(), digest(&good), at(0))
            .is_none()
    );
}
