//! Objects that an API server accepts and most parsers reject: text that is not UTF-8,
//! and values that are nested thousands of levels deep. Both are evaluated, not rejected.

use super::servers::{self, assert_denied};

pub(super) const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: revisions}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [controllerrevisions]}
  validations:
  - {expression: "object.data.mark != 'forbidden\ufffd\ufffd'", message: this mark is taken}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: revisions}
spec: {policyName: revisions, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: revisions}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [controllerrevisions]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'copy', from: '/data/mark', path: '/data/copy'}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: revisions}
spec: {policyName: revisions}
"#;

const REVISIONS: &str = "/apis/apps/v1/namespaces/kittens/controllerrevisions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/kittens/widgets";

fn revision(name: &str, mark: &[u8]) -> Vec<u8> {
    let before = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"{name}"}},"revision":1,"data":{{"mark":""#
    );
    [before.as_bytes(), mark, br#""}}"#].concat()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

pub(crate) fn bytes_that_are_no_text_are_judged_and_patched_as_they_are() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let created = admin
        .send("POST", REVISIONS, Some(&revision("bytes", b"x\xff\xfey")))
        .unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
    let stored = admin.get(&format!("{REVISIONS}/bytes")).unwrap();
    assert!(
        contains(&stored.body, b"\"copy\":\"x\xff\xfey\""),
        "{}",
        stored.text()
    );
    let denied = admin
        .send("POST", REVISIONS, Some(&revision("taken", b"forbidden\xff\xfe")))
        .unwrap();
    assert_denied(&denied, 422, "this mark is taken");
}

/// A widget of this size, the rest of which nests so deep.
fn widget(name: &str, size: u32, levels: usize) -> Vec<u8> {
    let pairs = levels / 2;
    let (open, close) = (r#"{"a":["#.repeat(pairs), "]}".repeat(pairs));
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}"}},"spec":{{"size":{size},"rest":{open}1{close}}}}}"#
    )
    .into_bytes()
}

pub(crate) fn a_custom_resource_of_thousands_of_levels_is_judged() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    for levels in [1_000, 9_000, 9_990] {
        let name = format!("deep-{levels}");
        let denied = admin
            .send("POST", WIDGETS, Some(&widget(&name, 11, levels)))
            .unwrap();
        assert_denied(&denied, 422, "this widget is too large");
        let created = admin
            .send("POST", WIDGETS, Some(&widget(&name, 1, levels)))
            .unwrap();
        assert_eq!(created.status, 201, "{levels} levels: {}", created.text());
        // Mutated too: the policy of widgets adds what is not there.
        assert!(contains(&created.body, br#""inUse":false"#), "{levels} levels");
    }
}
