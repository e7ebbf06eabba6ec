use super::*;

#[test]
fn endpoints_are_a_set() {
    let some: Endpoints = [Endpoint::Authorize, Endpoint::Mutate].into_iter().collect();
    assert_eq!(format!("{some:?}"), r#"{"authorize", "mutate"}"#);
    assert!(!some.contains(Endpoint::Validate));
    assert_eq!(
        some.union([Endpoint::Validate].into_iter().collect()),
        Endpoints::REVIEWS
    );
    assert_eq!(Endpoints::NONE.union(some), some);
}

#[test]
fn the_console_is_no_endpoint_of_reviews() {
    assert!(!Endpoints::REVIEWS.contains_console());
    assert!(Endpoints::CONSOLE.contains_console());
    let none = Endpoint::ALL
        .iter()
        .filter(|one| Endpoints::CONSOLE.contains(**one));
    assert_eq!(none.count(), 0);
    assert_eq!(format!("{:?}", Endpoints::CONSOLE), r#"{"console"}"#);
}

fn pattern(text: &str) -> SanPattern {
    SanPattern::parse(text).unwrap()
}

#[test]
fn a_wildcard_stands_for_exactly_one_label() {
    let table = [
        ("*.cp.example.com", "a.cp.example.com", true),
        ("*.cp.example.com", "A.CP.Example.COM", true),
        ("*.CP.example.com", "a.cp.example.com", true),
        ("*.cp.example.com", "*.cp.example.com", true),
        ("*.cp.example.com", "cp.example.com", false),
        ("*.cp.example.com", ".cp.example.com", false),
        ("*.cp.example.com", "a.b.cp.example.com", false),
        ("*.cp.example.com", "a.cp.example.com.evil", false),
        ("*.cp.example.com", "a.xcp.example.com", false),
        ("*.cp.example.com", "evilcp.example.com", false),
        ("*.cp.example.com", "a.cp.example.com.", false),
        ("*.cp.example.com", "a.cp.example.com\0", false),
        ("*.cp.example.com", "", false),
        ("a.cp.example.com", "a.cp.example.com", true),
        ("a.cp.example.com", "A.cp.example.com", true),
        ("a.cp.example.com", "*.cp.example.com", false),
        ("a.cp.example.com", "b.cp.example.com", false),
        ("localhost", "localhost", true),
    ];
    for (text, name, expected) in table {
        assert_eq!(pattern(text).matches_dns(name), expected, "{text} {name}");
    }
}

#[test]
fn each_form_means_its_own_kind_alone() {
    let ip = pattern("10.0.0.1");
    assert!(ip.matches_ip(&[10, 0, 0, 1]));
    assert!(!ip.matches_ip(&[10, 0, 0, 2]) && !ip.matches_ip(&[10, 0, 0]) && !ip.matches_dns("10.0.0.1"));
    assert!(pattern("::1").matches_ip(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));

    let uri = pattern("spiffe://example.com/apiserver");
    assert!(uri.matches_uri("spiffe://example.com/apiserver"));
    assert!(!uri.matches_uri("spiffe://example.com/apiserver/x") && !uri.matches_dns("example.com"));

    let email = pattern("api@example.com");
    assert!(email.matches_email("api@example.com"));
    assert!(!email.matches_email("API@example.com") && !email.matches_dns("example.com"));
}

#[test]
fn refuses_what_would_mean_more_or_less_than_it_seems() {
    for text in [
        "*",
        "*.",
        "a.*.com",
        "*a.example.com",
        "**.example.com",
        "a b",
        "",
        ".",
        "a..b",
        "a.",
    ] {
        assert!(SanPattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn prints_as_it_is_written() {
    for text in [
        "a.example.com",
        "*.example.com",
        "10.0.0.1",
        "::1",
        "spiffe://x/y",
        "a@b.c",
    ] {
        assert_eq!(pattern(text).to_string(), text);
    }
}
