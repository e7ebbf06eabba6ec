//! What is answered to whom.

use serde_json::json;

use crate::harness::jwt::Issuer;
use crate::support::{Builder, Gateway, JANE_GETS, review, v1};

#[test]
fn each_decision_comes_in_the_version_asked() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let healthz =
        |who: &str| format!(r#"{{{who},"nonResourceAttributes":{{"path":"/openapi/v2","verb":"get"}}}}"#);
    for version in ["authorization.k8s.io/v1", "authorization.k8s.io/v1beta1"] {
        let groups = if version.ends_with("v1") {
            "groups"
        } else {
            "group"
        };
        for (who, status) in [
            (
                r#""user":"jane""#.to_owned(),
                json!({"allowed": true,
                "reason": r#"RBAC: allowed by ClusterRoleBinding "jane-reads" of ClusterRole "readers" to User "jane""#}),
            ),
            (r#""user":"joe""#.to_owned(), json!({"allowed": false})),
            (
                format!(r#""user":"jane","{groups}":["locked"]"#),
                json!({"allowed": false, "denied": true, "reason": r#"denied by AuthorizationPolicy "locked-out": this account is locked"#}),
            ),
        ] {
            let response = connection.authorize(review(version, &healthz(&who)));
            assert_eq!(response.status, 200);
            assert_eq!(response.header("content-type"), Some("application/json"));
            let reply = response.json();
            assert_eq!(
                (&reply["kind"], &reply["apiVersion"]),
                (&json!("SubjectAccessReview"), &json!(version))
            );
            let (reason, expected) = (&reply["status"]["reason"], &status["reason"]);
            assert_eq!(
                reason.as_str().unwrap_or_default(),
                expected.as_str().unwrap_or_default()
            );
            assert_eq!(reply["status"]["allowed"], status["allowed"], "{who}");
            assert_eq!(reply["status"].get("denied"), status.get("denied"), "{who}");
        }
    }
}

#[test]
fn what_is_not_a_review_gets_a_status_with_its_code() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let valid = v1(JANE_GETS);
    let json_type = "Content-Type: application/json";
    for (line, header, body, code, reason) in [
        ("POST /authorize", json_type, "{", 400, "BadRequest"),
        (
            "POST /authorize",
            json_type,
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            400,
            "BadRequest",
        ),
        (
            "POST /authorize?timeout=soon",
            json_type,
            &valid,
            400,
            "BadRequest",
        ),
        ("POST /nowhere", json_type, &valid, 404, "NotFound"),
        ("POST /authorize/", json_type, &valid, 404, "NotFound"),
        ("GET /authorize", json_type, "", 405, "MethodNotAllowed"),
        ("PUT /authorize", json_type, &valid, 405, "MethodNotAllowed"),
        (
            "POST /authorize",
            "Content-Type: application/yaml",
            &valid,
            415,
            "UnsupportedMediaType",
        ),
        (
            "POST /authorize",
            "X-Nothing: at all",
            &valid,
            415,
            "UnsupportedMediaType",
        ),
        (
            "POST /authorize",
            "Content-Type: application/json\r\nContent-Encoding: gzip",
            &valid,
            415,
            "UnsupportedMediaType",
        ),
    ] {
        let response = connection.request(&format!("{line} HTTP/1.1\r\n{header}"), body.as_bytes());
        let status = response.json();
        assert_eq!(
            (response.status, &status["reason"]),
            (code, &json!(reason)),
            "{line} {header} {body}"
        );
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(code))
        );
        assert_eq!(response.header("allow"), (code == 405).then_some("POST"));
    }
    assert_eq!(
        connection.authorize(&valid).status,
        200,
        "the connection is still good"
    );
}

#[test]
fn the_query_does_not_disturb() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    for query in ["", "?", "?timeout=30s", "?timeout=0s&x=y", "?timeout=1m"] {
        let head =
            format!("POST /authorize{query} HTTP/1.1\r\nContent-Type: application/json; charset=utf-8");
        assert_eq!(
            connection.request(&head, v1(JANE_GETS).as_bytes()).status,
            200,
            "{query}"
        );
    }
}

#[test]
fn who_calls_decides_between_401_403_and_an_answer() {
    let gateway = Gateway::usual();
    let mut stranger = gateway.stranger().connect(gateway.addresses.server);
    let mut ask = |authorization: &str| {
        let head = format!("POST /authorize HTTP/1.1\r\nContent-Type: application/json{authorization}");
        stranger.request(&head, v1(JANE_GETS).as_bytes())
    };
    for bad in [
        "",
        "\r\nAuthorization: Bearer wrong",
        "\r\nAuthorization: Basic dTpw",
        "\r\nAuthorization: Digest x",
    ] {
        let response = ask(bad);
        assert_eq!(response.status, 401, "{bad}");
        assert!(response.header("www-authenticate").is_some(), "{bad}");
        assert_eq!(response.json()["reason"], "Unauthorized");
        assert!(!String::from_utf8(response.body).unwrap().contains("wrong"));
    }
    assert_eq!(ask("\r\nAuthorization: Bearer right-token").status, 200);
    let response = ask("\r\nAuthorization: Bearer admission-token");
    assert_eq!(
        (response.status, response.header("www-authenticate")),
        (403, None)
    );
    assert_eq!(response.json()["reason"], "Forbidden");
    let two = "\r\nAuthorization: Bearer wrong\r\nAuthorization: Bearer right-token";
    assert_eq!(ask(two).status, 401, "two headers are none");

    let mut caller = gateway.connect();
    let head = "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer wrong";
    assert_eq!(
        caller.request(head, v1(JANE_GETS).as_bytes()).status,
        200,
        "beside an accepted certificate"
    );
}

#[test]
fn a_password_or_an_issuer_s_token_makes_a_caller() {
    let issuer = Issuer::new("https://issuer.example.com");
    let kubeconfig = "apiVersion: v1\nkind: Config\nusers:\n- {name: api, user: {username: api, password: 'open: sesame'}}\n";
    let gateway = Builder::new()
        .file("basic.kubeconfig", kubeconfig)
        .file("jwks.json", issuer.jwks())
        .callers(
            "\n- {kubeconfig: basic.kubeconfig, endpoints: [authorize]}\n\
             - {endpoints: [authorize], jwt: {issuer: 'https://issuer.example.com', audiences: [portcullis], jwks: jwks.json}}",
        )
        .start();
    let mut connection = gateway.stranger().connect(gateway.addresses.server);
    let mut status = |path: &str, credential: &str| {
        let head =
            format!("POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: {credential}");
        connection.request(&head, v1(JANE_GETS).as_bytes()).status
    };
    let token = |audience: &str| format!("Bearer {}", issuer.token(json!({"sub": "a", "aud": audience})));
    for (credential, wrong) in [
        (
            "Basic YXBpOm9wZW46IHNlc2FtZQ==".to_owned(),
            "Basic YXBpOnNlc2FtZQ==".to_owned(),
        ),
        (token("portcullis"), token("another")),
    ] {
        assert_eq!(status("/authorize", &credential), 200, "{credential}");
        assert_eq!(status("/validate", &credential), 403, "{credential}");
        assert_eq!(status("/authorize", &wrong), 401, "{wrong}");
    }
}
