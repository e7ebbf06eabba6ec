//! What no view shows: objects, Secrets, credentials.

use serde_json::json;

use super::pages::VIEWS;
use super::{get, live, on_loopback, send};
use crate::support::{JANE_GETS, v1};

const HIDDEN: &str = "hidden-from-everyone";

/// A review of an object that holds what must not be shown, in every place where there is room.
fn review(kind: &str, resource: &str) -> String {
    let object = json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "seen", "namespace": "ns", "annotations": {"a": HIDDEN}, "labels": {"l": HIDDEN}},
        "data": {"k": HIDDEN},
        "stringData": {"k": HIDDEN},
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "name": "seen",
            "namespace": "ns",
            "operation": "UPDATE",
            "userInfo": {"username": "jane"},
            "object": object,
            "oldObject": object,
            "options": {"fieldManager": HIDDEN},
        },
    });
    review.to_string()
}

#[test]
fn neither_objects_nor_credentials_are_shown() {
    let gateway = on_loopback();
    let mut caller = gateway.connect();
    for body in [review("Secret", "secrets"), review("ConfigMap", "configmaps")] {
        for endpoint in ["validate", "mutate"] {
            let head = format!(
                "POST /{endpoint}?timeout=10s HTTP/1.1\r\nContent-Type: application/json\r\nX-Secret: {HIDDEN}"
            );
            assert_eq!(caller.request(&head, body.as_bytes()).status, 200);
        }
    }
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);

    let kept = live(&gateway, "");
    assert_eq!(kept.len(), 5, "{kept:#?}");
    let decisions = kept.iter().map(|one| format!("/live/{}", one["sequence"]));
    let mut shows_the_review = false;
    for path in VIEWS.map(str::to_owned).into_iter().chain(decisions) {
        for accept in ["text/html", "application/json"] {
            let answer = get(&gateway, &path, &format!("\r\nAccept: {accept}"));
            assert_eq!(answer.status, 200, "{path}");
            let text = answer.text();
            for secret in [HIDDEN, "right-token", "PRIVATE KEY"] {
                assert!(!text.contains(secret), "{path} ({accept}): {text}");
            }
            shows_the_review |= text.contains("seen");
        }
    }
    assert!(shows_the_review, "the reviews themselves are to be seen");
}

/// What is pasted is answered and forgotten.
#[test]
fn what_was_pasted_is_not_kept() {
    let gateway = on_loopback();
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: pasted, namespace: ns}}\ndata: {{k: {HIDDEN}}}\n"
    );
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("manifest", &manifest)
        .append_pair("operation", "CREATE")
        .finish();
    let head = format!(
        "POST /what-if HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}",
        form.len()
    );
    let answer = send(&gateway, &head, &form);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("pasted"), "{}", answer.text());
    assert_eq!(live(&gateway, "").len(), 0);
    for path in VIEWS {
        let page = get(&gateway, path, "");
        assert!(
            !page.text().contains(HIDDEN) && !page.text().contains("pasted"),
            "{path}"
        );
    }
    let log = std::fs::read_to_string(gateway.file("decisions.log")).unwrap_or_default();
    assert!(!log.contains("pasted"), "{log}");
}
