//! Bodies that nobody should send: each has its answer, and the gateway stays.

use crate::support::{Gateway, JANE_GETS, v1};

/// A review of the path `text`, as it stands between quotes.
fn path(text: &[u8]) -> Vec<u8> {
    let (before, after) = (
        r#"{"user":"joe","nonResourceAttributes":{"verb":"get","path":""#,
        r#""}}"#,
    );
    let whole = v1(&format!("{before}@{after}"));
    let (before, after) = whole.split_once('@').unwrap();
    [before.as_bytes(), text, after.as_bytes()].concat()
}

/// A review of a list of pods with this selector.
fn selector(kind: &str, selector: &str) -> String {
    v1(&format!(
        r#"{{"user":"joe","resourceAttributes":{{"verb":"list","resource":"pods","{kind}":{selector}}}}}"#
    ))
}

#[test]
fn a_user_cannot_make_a_review_fail() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let labels: Vec<_> = (0..50_000)
        .map(|n| format!(r#"{{"key":"k{n}","operator":"In","values":["v"]}}"#))
        .collect();
    let many = format!(r#"{{"requirements":[{}]}}"#, labels.join(","));
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("not UTF-8", path(b"/\xff\xfe\xc3")),
        ("lone surrogates", path(br"/\ud800/\udfff")),
        ("NUL", path(br"/\u0000")),
        ("1 MiB of path", path(&b"/\xc3\xa9".repeat(350_000))),
        (
            "more than 1 MiB of label selectors",
            selector("labelSelector", &many).into(),
        ),
        (
            "an empty field key",
            selector(
                "fieldSelector",
                r#"{"requirements":[{"key":"","operator":"In","values":["x"]}]}"#,
            )
            .into(),
        ),
        (
            "an unknown operator",
            selector(
                "labelSelector",
                r#"{"requirements":[{"key":"a","operator":"Gt","values":["1"]}]}"#,
            )
            .into(),
        ),
        (
            "values that must not be",
            selector(
                "labelSelector",
                r#"{"requirements":[{"key":"a","operator":"Exists","values":["1"]}]}"#,
            )
            .into(),
        ),
        (
            "an invalid label",
            selector(
                "labelSelector",
                r#"{"requirements":[{"key":"-","operator":"In","values":["/"]}]}"#,
            )
            .into(),
        ),
        ("an empty selector", selector("fieldSelector", "{}").into()),
        (
            "both forms",
            selector(
                "labelSelector",
                r#"{"rawSelector":"a=b","requirements":[{"key":"a","operator":"Exists"}]}"#,
            )
            .into(),
        ),
    ];
    for (what, body) in bodies {
        let response = connection.authorize(&body);
        assert_eq!(response.status, 200, "{what}");
        assert_eq!(response.json()["status"]["allowed"], false, "{what}");
    }
}

/// Requirements of two bytes each, `=,`, of which a URL may have 1 MiB.
#[test]
fn a_review_of_the_longest_selector_is_answered() {
    let gateway = Gateway::usual();
    let requirements = vec![r#"{"key":"","operator":"In","values":[""]}"#; (1 << 20) / 2].join(",");
    let review = selector(
        "fieldSelector",
        &format!(r#"{{"requirements":[{requirements}]}}"#),
    );
    assert!(review.len() > 20 << 20);
    let head = "POST /authorize?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let response = gateway.connect().request(head, review.as_bytes());
    assert_eq!(response.status, 200);
    assert_eq!(response.json()["status"]["allowed"], false);
}

#[test]
fn hostile_bodies_get_an_answer_in_bounded_time() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let deep = |length: usize| format!("{}{}", "[".repeat(length), "]".repeat(length));
    let spec = |spec: &str| v1(spec).into_bytes();
    let extra: Vec<_> = (0..100_000).map(|n| format!(r#""k{n}":["v"]"#)).collect();
    let same: Vec<_> = (0..100_000).map(|n| format!(r#""k":["{n}"]"#)).collect();
    let bodies: Vec<(&str, u16, Vec<u8>)> = vec![
        ("nothing", 400, vec![]),
        ("one byte", 400, b"{".to_vec()),
        ("NULs", 400, vec![0; 1000]),
        ("a bare list", 400, b"[]".to_vec()),
        ("null", 400, b"null".to_vec()),
        ("two documents", 400, [spec(JANE_GETS), spec(JANE_GETS)].concat()),
        ("deep nesting in place of the spec", 400, spec(&deep(1_000_000))),
        (
            "deep nesting in place of a name",
            400,
            spec(&format!(
                r#"{{"user":{},"nonResourceAttributes":{{}}}}"#,
                deep(1_000_000)
            )),
        ),
        (
            "deep nesting in an unknown field",
            400,
            spec(&format!(
                r#"{{"user":"u","x":{},"nonResourceAttributes":{{}}}}"#,
                deep(1_000_000)
            )),
        ),
        ("nesting that never ends", 400, "[".repeat(5_000_000).into_bytes()),
        (
            "a number beyond all",
            200,
            spec(r#"{"user":"u","x":1e999999,"nonResourceAttributes":{}}"#),
        ),
        (
            "100,000 extra keys",
            200,
            spec(&format!(
                r#"{{"user":"u","extra":{{{}}},"nonResourceAttributes":{{}}}}"#,
                extra.join(",")
            )),
        ),
        (
            "one extra key 100,000 times",
            200,
            spec(&format!(
                r#"{{"user":"u","extra":{{{}}},"nonResourceAttributes":{{}}}}"#,
                same.join(",")
            )),
        ),
        (
            "500,000 groups",
            200,
            spec(&format!(
                r#"{{"user":"u","groups":["g"{}],"nonResourceAttributes":{{}}}}"#,
                r#","g""#.repeat(500_000)
            )),
        ),
        (
            "2,000,000 groups",
            400,
            spec(&format!(
                r#"{{"user":"u","groups":["g"{}],"nonResourceAttributes":{{}}}}"#,
                r#","g""#.repeat(2_000_000)
            )),
        ),
        (
            "neither user nor groups",
            400,
            spec(r#"{"nonResourceAttributes":{}}"#),
        ),
        (
            "two targets",
            400,
            spec(r#"{"user":"u","nonResourceAttributes":{},"resourceAttributes":{}}"#),
        ),
        ("no target", 400, spec(r#"{"user":"u"}"#)),
        (
            "a duplicate key",
            200,
            spec(r#"{"user":"u","user":"v","nonResourceAttributes":{}}"#),
        ),
    ];
    for (what, status, body) in bodies {
        let response = connection.authorize(&body);
        assert_eq!(
            response.status,
            status,
            "{what}: {}",
            response.body.escape_ascii()
        );
        assert!(response.body.len() < 3000, "{what}");
    }
}

#[test]
fn what_is_not_http_ends_its_connection_alone() {
    let gateway = Gateway::usual();
    let mut valid = gateway.connect();
    for bytes in [
        &b"\x00\x01\x02\x03\r\n\r\n"[..],
        b"POST /authorize HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /authorize HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /authorize HTTP/9.9\r\n\r\n",
    ] {
        let mut connection = gateway.connect();
        connection.send(bytes);
        assert_eq!(
            connection.receive().unwrap().status,
            400,
            "{}",
            bytes.escape_ascii()
        );
        assert!(connection.is_closed());
    }
    assert_eq!(valid.authorize(v1(JANE_GETS)).status, 200);
}
