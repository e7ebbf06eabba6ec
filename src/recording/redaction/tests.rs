use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use portcullis_policy::api::OwnedAdmissionReview;

const SECRET: &str = "hunter2-is-the-password";

fn encoded() -> String {
    STANDARD.encode(SECRET)
}

fn review(resource: &str, group: &str, kind: &str, object: &Value, old_object: &Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "operation": "UPDATE", "name": "n", "namespace": "default",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "userInfo": {"username": "jane"}, "object": object, "oldObject": old_object,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}}})
}

fn rules(written: &[&str]) -> Vec<Redact> {
    let list: Vec<String> = written.iter().map(|rule| json!(rule).to_string()).collect();
    let text = format!(
        "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
         server: {{address: '127.0.0.1:0', tls: {{certificate: a, privateKey: b}}}}\n\
         recording: {{folder: r, redact: [{}]}}\n",
        list.join(", ")
    );
    let path = std::path::Path::new("/p/config.yaml");
    let (config, faults) = crate::config::parse(path, &text, std::path::Path::new("/p"));
    let config = config.unwrap_or_else(|| panic!("{faults}"));
    config.recording.unwrap().redact
}

/// What is written of a review, and what was removed from it.
fn redacted(review: &Value, written: &[&str]) -> (Value, Redaction) {
    let read = OwnedAdmissionReview::read(review.to_string().into_bytes()).unwrap();
    let (text, redaction) = Redaction::of_review(read.review(), &rules(written)).unwrap();
    assert!(!text.contains('\n'));
    // It is a review still.
    OwnedAdmissionReview::read(text.clone().into_bytes()).unwrap();
    (serde_json::from_str(&text).unwrap(), redaction)
}

fn assert_hidden(review: &Value) {
    let (text, redaction) = redacted(review, &[]);
    let text = text.to_string();
    assert!(
        !text.contains(SECRET) && !text.contains(&encoded()),
        "{text}\nof {review}"
    );
    assert!(redaction.is_any());
}

fn secret() -> Value {
    json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {
            "mine": "kept",
            LAST_APPLIED: format!("{{\"data\":{{\"p\":\"{}\"}}}}", encoded())}},
        "type": "Opaque", "data": {"p": encoded()}, "stringData": {"q": SECRET}})
}

#[test]
fn nothing_of_a_secret_is_written_and_the_rest_is() {
    let written = review("secrets", "", "Secret", &secret(), &secret());
    assert_hidden(&written);
    let (text, redaction) = redacted(&written, &[]);
    let object = &text["request"]["object"];
    assert_eq!(
        *object,
        json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque", "data": MARKER, "stringData": MARKER,
            "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"mine": "kept", LAST_APPLIED: MARKER}}})
    );
    assert_eq!(
        redaction.places(),
        [
            "/review/request/object/data",
            "/review/request/object/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
            "/review/request/object/stringData",
            "/review/request/oldObject/data",
            "/review/request/oldObject/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
            "/review/request/oldObject/stringData",
        ]
    );
}

#[test]
fn a_secret_is_one_wherever_it_stands_and_whatever_it_says_it_is() {
    let mut nameless = secret();
    nameless.as_object_mut().unwrap().remove("kind");
    let item = nameless.clone();
    let mut escaped = review(
        "widgets",
        "example.com",
        "Widget",
        &json!({"kind": "Widget", "spec": {"s": secret()}}),
        &Value::Null,
    )
    .to_string()
    .replace("\"Secret\"", "\"S\\u0065cret\"");
    escaped.push('\n');
    let escaped: Value = serde_json::from_str(&escaped).unwrap();
    for (resource, group, kind, object) in [
        // By its resource, by its kind.
        ("secrets", "", "Secret", nameless.clone()),
        ("secrets", "", "", nameless),
        ("strange", "", "Secret", secret()),
        // In a list, with or without a kind of its own.
        (
            "lists",
            "",
            "List",
            json!({"kind": "List", "items": [1, secret()]}),
        ),
        (
            "lists",
            "",
            "SecretList",
            json!({"kind": "SecretList", "items": [item]}),
        ),
        // In a custom resource, which `kubectl apply` has copied too.
        (
            "widgets",
            "example.com",
            "Widget",
            json!({"kind": "Widget", "spec": {"templates": [[{"of": secret()}]]},
                "metadata": {"annotations": {LAST_APPLIED: secret().to_string()}}}),
        ),
    ] {
        assert_hidden(&review(resource, group, kind, &object, &Value::Null));
        assert_hidden(&review(resource, group, kind, &Value::Null, &object));
    }
    assert_hidden(&escaped);
    // As raw text, since a parsed value knows no escapes.
    let raw = escaped.to_string().replace("\"Secret\"", "\"S\\u0065cret\"");
    let read = OwnedAdmissionReview::read(raw.into_bytes()).unwrap();
    let (text, _) = Redaction::of_review(read.review(), &[]).unwrap();
    assert!(!text.contains(SECRET) && !text.contains(&encoded()), "{text}");
}

#[test]
fn a_secret_that_lies_very_deep_is_removed_and_what_is_around_it_is_not() {
    let mut object = secret();
    for _ in 0..120 {
        object = json!({"a": object});
    }
    let written = review("widgets", "example.com", "Widget", &object, &Value::Null);
    assert_hidden(&written);
    let (_, redaction) = redacted(&written, &[]);
    assert_eq!(
        redaction.places()[0],
        format!("/review/request/object{}/data", "/a".repeat(120))
    );
}

#[test]
fn what_a_later_key_replaces_is_not_written() {
    let text = review("secrets", "", "Secret", &json!("OBJECT"), &Value::Null)
        .to_string()
        .replace(
            "\"OBJECT\"",
            &format!(r#"{{"kind":"Secret","data":{{"p":"{SECRET}"}},"x":{{"kind":"Secret","data":"{SECRET}"}},"x":1,"data":{{}}}}"#),
        );
    let read = OwnedAdmissionReview::read(text.into_bytes()).unwrap();
    let (text, redaction) = Redaction::of_review(read.review(), &[]).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(redaction.places(), ["/review/request/object/data"]);
}

/// What takes a path for each place takes more than the review, so that it is not recorded.
#[test]
fn places_that_take_more_than_the_review_are_too_many() {
    let object = |depth: usize, places: usize| {
        let secrets = vec![json!({"kind": "Secret", "data": 1}); places];
        (0..depth).fold(json!(secrets), |object, _| json!({"a": object}))
    };
    let of = |object: &Value| {
        let written = review(
            "widgets",
            "example.com",
            "Widget",
            &json!({"o": object}),
            &Value::Null,
        );
        let read = OwnedAdmissionReview::read(written.to_string().into_bytes()).unwrap();
        Redaction::of_review(read.review(), &[]).map(|(_, redaction)| redaction.places().len())
    };
    assert_eq!(of(&object(5, 1_000)), Ok(1_000));
    assert_eq!(of(&object(90, 300)), Ok(300));
    assert_eq!(of(&object(90, 5_000)), Err(TooManyPlaces));
}

#[test]
fn tokens_are_not_written() {
    let token_review = json!({"kind": "TokenReview", "spec": {"token": SECRET, "audiences": ["a"]}});
    let token_request =
        json!({"kind": "TokenRequest", "spec": {"audiences": ["a"]}, "status": {"token": SECRET}});
    let reviews = "authentication.k8s.io";
    assert_hidden(&review(
        "tokenreviews",
        reviews,
        "TokenReview",
        &token_review,
        &Value::Null,
    ));
    assert_hidden(&review("strange", "", "", &token_review, &Value::Null));
    assert_hidden(&review("strange", "", "", &token_request, &Value::Null));
    let mut request = review(
        "serviceaccounts",
        "",
        "TokenRequest",
        &token_request,
        &Value::Null,
    );
    request["request"]["subResource"] = json!("token");
    request["request"]["object"]
        .as_object_mut()
        .unwrap()
        .remove("kind");
    assert_hidden(&request);
    let (text, _) = redacted(&request, &[]);
    assert_eq!(text["request"]["object"]["spec"], json!({"audiences": ["a"]}));
}

#[test]
fn paths_lead_through_lists_and_every_value() {
    let object = json!({"metadata": {"annotations": {LAST_APPLIED: "copy", "x": "y"}, "managedFields": [1]},
        "spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}, {"name": "b", "env": "text"}],
                 "map": {"p": {"token": "t", "id": 1}, "q": {"id": 2}}}});
    let written = review("widgets", "example.com", "Widget", &object, &Value::Null);
    let rules = [
        "widgets.example.com:.spec.containers[*].env.value",
        "widgets.example.com:.spec.map[*]['token']",
        // Of others.
        "widgets:.spec",
        "gadgets.example.com:.spec",
        "widgets.example.com/status:.spec",
    ];
    let (text, redaction) = redacted(&written, &rules);
    assert_eq!(
        text["request"]["object"],
        json!({"metadata": {"annotations": {LAST_APPLIED: MARKER, "x": "y"}, "managedFields": MARKER},
            "spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": MARKER}]}, {"name": "b", "env": MARKER}],
                     "map": {"p": {"token": MARKER, "id": 1}, "q": {"id": 2}}}})
    );
    assert_eq!(redaction.places().len(), 5);
}

#[test]
fn without_a_path_neither_object_nor_options_are_written() {
    let written = review("pods", "", "Pod", &json!({"a": SECRET}), &json!({"b": SECRET}));
    let (text, redaction) = redacted(&written, &["pods"]);
    let request = &text["request"];
    assert_eq!(request["object"], json!({}));
    assert_eq!(request["oldObject"], json!({}));
    assert_eq!(request["options"], json!({}));
    assert_eq!(request["userInfo"], json!({"username": "jane"}));
    assert_eq!(redaction.places().len(), 3);
}

#[test]
fn a_review_without_secrets_stays_as_it_was() {
    let text = r#"{ "kind":"AdmissionReview", "apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",
        "resource":{"version":"v1","resource":"pods"}, "object":{ "n": 12345678901234567890.10, "t":"\u00e9" }}}"#;
    let read = OwnedAdmissionReview::read(text.as_bytes().to_vec()).unwrap();
    let (written, redaction) = Redaction::of_review(read.review(), &rules(&["configmaps"])).unwrap();
    assert_eq!(written, text.replace('\n', " "));
    assert!(!redaction.is_any());
}

/// A patch as it is written about a Secret.
fn patch_of_secret(patch: &Value) -> (String, Redaction) {
    let (_, mut redaction) = redacted(&review("secrets", "", "Secret", &secret(), &Value::Null), &[]);
    let before = redaction.places().len();
    let written = redacted_patch(patch.to_string().as_bytes(), &mut redaction, "/patch").unwrap();
    assert!(
        !written.contains(SECRET) && !written.contains(&encoded()),
        "{written}"
    );
    redaction.places.drain(..before);
    (written, redaction)
}

#[test]
fn patches_put_nothing_secret_anywhere() {
    let other = "another-secret-value";
    for (patch, places) in [
        (json!([{"op": "add", "path": "/data/p", "value": encoded()}]), 1),
        (
            json!([{"op": "replace", "path": "/data", "value": {"p": other}}]),
            1,
        ),
        (
            json!([{"op": "test", "path": "/stringData/q", "value": SECRET}]),
            1,
        ),
        (json!([{"op": "replace", "path": "", "value": secret()}]), 3),
        (
            json!([{"op": "replace", "path": "", "value": {"data": {"p": other}}}]),
            1,
        ),
        (
            json!([{"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: other, "b": "c"}}]),
            1,
        ),
        (
            json!([{"op": "add", "path": "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration", "value": other}]),
            1,
        ),
        // Copies elsewhere, decoded or within other text.
        (
            json!([{"op": "add", "path": "/metadata/labels/copy", "value": SECRET}]),
            1,
        ),
        (
            json!([{"op": "add", "path": "/metadata/labels", "value": {"a": ["so it is: ", format!("<{}>", encoded())]}}]),
            1,
        ),
        (
            json!([{"op": "add", "path": format!("/metadata/labels/{SECRET}"), "value": "v"}]),
            1,
        ),
        // A path that is none.
        (json!([{"op": "add", "path": "data", "value": other}]), 1),
        (
            json!([{"op": "add", "path": "/metadata/labels/a", "value": "harmless"}, {"op": "remove", "path": "/data"}]),
            0,
        ),
    ] {
        let (written, redaction) = patch_of_secret(&patch);
        assert!(!written.contains(other), "{written}");
        assert_eq!(redaction.places().len(), places, "{written}");
        let is_below = |place: &String| place.starts_with("/patch/");
        assert!(
            redaction.places().iter().all(is_below),
            "{:?}",
            redaction.places()
        );
    }
}

#[test]
fn a_patch_that_is_no_json_is_written_only_where_there_is_nothing_to_hide() {
    let (_, mut of_secret) = redacted(&review("secrets", "", "Secret", &secret(), &Value::Null), &[]);
    assert_eq!(
        redacted_patch(b"[oops", &mut of_secret, "/patch").unwrap(),
        format!("\"{MARKER}\"")
    );
    assert_eq!(of_secret.places().last().unwrap(), "/patch");
    let (_, mut of_pod) = redacted(&review("pods", "", "Pod", &json!({}), &Value::Null), &[]);
    assert_eq!(
        redacted_patch(b"[oops\n", &mut of_pod, "/patch").unwrap(),
        "\"[oops\\n\""
    );
}

#[test]
fn a_key_that_a_message_escapes_is_removed_with_it() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n";
    let password = "quo\"te\\dPASSWORD123";
    for (name, value) in [("key", key), ("password", password)] {
        for object in [
            json!({"kind": "Secret", "stringData": {name: value}}),
            json!({"kind": "Secret", "data": {name: STANDARD.encode(value)}}),
        ] {
            let (_, redaction) = redacted(&review("secrets", "", "Secret", &object, &Value::Null), &[]);
            let quoted = format!("bad: {}", json!({name: value}));
            assert_eq!(redaction.scrubbed(&quoted), MARKER);
            assert_eq!(
                redaction.scrubbed(&json!({"message": quoted}).to_string()),
                MARKER
            );
        }
    }
}

#[test]
fn words_that_quote_what_was_removed_are_removed_too() {
    let (_, redaction) = redacted(&review("secrets", "", "Secret", &secret(), &Value::Null), &[]);
    for text in [
        SECRET.to_owned(),
        format!("the password {SECRET} is weak"),
        encoded(),
        "bad: {\"q\": \"hunter2-is…".to_owned(),
    ] {
        assert_eq!(redaction.scrubbed(&text), MARKER);
    }
    assert_eq!(redaction.scrubbed("the password is weak"), "the password is weak");
}

#[test]
fn texts_are_hidden_where_secrets_are_too_many_to_compare_with() {
    let texts = |object: &Value, text: &str| {
        let review = review("secrets", "", "Secret", object, &Value::Null).to_string();
        let read = OwnedAdmissionReview::read(review.into_bytes()).unwrap();
        let secrets = QuotedSecrets::new(&read.review().request, &[], "");
        secrets.redacted(text).to_owned()
    };
    assert_eq!(texts(&secret(), "no such name"), "no such name");
    assert_eq!(texts(&secret(), &format!("it is {SECRET}")), MARKER);
    let mut many = secret();
    let values: serde_json::Map<_, _> = (0..10_001).map(|n| (format!("k{n}"), json!("YQ=="))).collect();
    many["data"] = Value::Object(values);
    assert_eq!(texts(&many, "no such name"), MARKER);
}

#[test]
fn what_a_patch_makes_secret_is_not_quoted_either() {
    let review = review("secrets", "", "Secret", &secret(), &Value::Null).to_string();
    let read = OwnedAdmissionReview::read(review.into_bytes()).unwrap();
    let patch = json!([{"op": "add", "path": "/stringData", "value": {"q": "another-password"}}]).to_string();
    let redacted = |patch: &str| {
        let secrets = QuotedSecrets::new(&read.review().request, &[], patch);
        secrets.redacted("it is another-password").to_owned()
    };
    assert_eq!(redacted(""), "it is another-password");
    assert_eq!(redacted(&patch), MARKER);
}
