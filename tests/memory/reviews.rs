//! Admission reviews: what policies and webhooks make of objects.

use std::sync::Arc;
use std::time::Duration;

use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::{Call, WebhookCallResult, WebhookReply, fail_every_call};
use portcullis_policy::admission::{
    AdmissionSet, AdmissionSettings, Chain, ChangedObject, MAX_OBJECT, Outcome, Phase, RunOptions,
};
use portcullis_policy::api::{OwnedAdmissionReview, ReviewVersion, SubjectAccessReview, verify};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::model::Time;

use crate::inner::manifests;
use crate::{measure, worst};

/// The review of a new pod with this list of volumes.
fn review(volumes: &str) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u","kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"name":"p","namespace":"n","operation":"CREATE","userInfo":{{"username":"jane"}},"object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","labels":{{}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}],"volumes":{volumes}}}}}}}}}"#
    )
}

fn reviews() -> impl Iterator<Item = (&'static str, usize, OwnedAdmissionReview)> {
    let lists = worst().into_iter().filter(|(_, text)| text.starts_with('['));
    lists.map(|(name, list)| {
        let review = review(&list);
        let bytes = review.len();
        (
            name,
            bytes,
            OwnedAdmissionReview::read(review.into_bytes()).unwrap(),
        )
    })
}

fn mutations(fields: &[String]) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: m}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}
  reinvocationPolicy: IfNeeded
  mutations:
{}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: m}}
spec: {{policyName: m}}
",
        fields.concat()
    )
}

fn json_patch(expression: &str) -> String {
    format!("  - {{patchType: JSONPatch, jsonPatch: {{expression: \"{expression}\"}}}}\n")
}

fn configuration(expression: &str) -> String {
    format!("  - {{patchType: ApplyConfiguration, applyConfiguration: {{expression: \"{expression}\"}}}}\n")
}

fn webhook(name: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: {name}}}
webhooks:
- name: {name}.example.com
  clientConfig: {{url: 'https://localhost/'}}
  admissionReviewVersions: [v1]
  sideEffects: None
  reinvocationPolicy: IfNeeded
  rules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]
"
    )
}

fn mk_set(text: &str) -> Arc<AdmissionSet> {
    manifests(text).admission(&AdmissionSettings::default()).shared
}

fn mutated(
    set: &AdmissionSet,
    review: &OwnedAdmissionReview,
    ask: &mut dyn FnMut(&Call) -> WebhookCallResult,
) -> Outcome {
    let access = PolicySet::default();
    Chain::run(
        Phase::Mutate,
        set,
        &review.review().request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        ask,
    )
}

fn patching(patch: &str) -> WebhookCallResult {
    WebhookCallResult {
        result: Ok(WebhookReply {
            patch: Some(patch.as_bytes().into()),
            patch_type: "JSONPatch".into(),
            ..WebhookReply::default()
        }),
        took: Duration::ZERO,
    }
}

/// Besides the object received: what it was when the second pass began, what it is, and what it
/// becomes. Each is text and index.
const THREE_TIMES: f64 = 35.0;

#[test]
fn a_policy_that_appends_takes_what_the_changed_object_takes() {
    let _turn = crate::turn();
    let expression = "[JSONPatch{op: 'add', path: '/spec/volumes/-', value: {'name': 'more'}}]";
    let set = mk_set(&mutations(&[json_patch(expression), json_patch(expression)]));
    measure("policy that appends", THREE_TIMES, reviews(), |review| {
        let outcome = mutated(&set, review, &mut fail_every_call);
        assert!(outcome.denial.is_some() || outcome.patch.contains("more"));
    });
}

#[test]
fn a_configuration_that_adds_takes_what_the_changed_object_takes() {
    let _turn = crate::turn();
    let expression = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'side'}]}}";
    let set = mk_set(&mutations(&[
        configuration(expression),
        configuration(expression),
    ]));
    measure("configuration that adds", THREE_TIMES, reviews(), |review| {
        mutated(&set, review, &mut fail_every_call);
    });
    let named = {
        let containers: Vec<String> = (0..30_000)
            .map(|number| format!("{{\"name\":\"c{number}\"}}"))
            .collect();
        let review = review("[]").replace(
            r#"[{"name":"c","image":"i"}]"#,
            &format!("[{}]", containers.join(",")),
        );
        (
            "items by name",
            review.len(),
            OwnedAdmissionReview::read(review.into_bytes()).unwrap(),
        )
    };
    let expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c7', image: 'i'}, Object.spec.containers{name: 'side'}]}}";
    let set = mk_set(&mutations(&[
        configuration(expression),
        configuration(expression),
    ]));
    measure("configuration that adds", THREE_TIMES, [named], |review| {
        let outcome = mutated(&set, review, &mut fail_every_call);
        assert!(outcome.patch.contains("side"), "{:?}", outcome.denial);
    });
}

#[test]
fn webhooks_that_append_take_what_the_changed_object_takes() {
    let _turn = crate::turn();
    let set = mk_set(&[webhook("a"), webhook("b"), webhook("c")].concat());
    measure("webhooks that append", THREE_TIMES, reviews(), |review| {
        mutated(&set, review, &mut |_| {
            patching(r#"[{"op":"add","path":"/spec/volumes/-","value":{"name":"more"}}]"#)
        });
    });
}

#[test]
fn what_webhooks_are_asked_about_is_there_once() {
    let _turn = crate::turn();
    let object = worst().remove(0).1;
    let object = format!("{{\"v\":{object}}}");
    let bytes = object.len();
    let object = ChangedObject::new(Document::parse(object).unwrap());
    measure("call", 0.1, [("any", bytes, object)], |object| {
        drop(vec![Arc::clone(object); 100]);
    });
}

/// A few bytes of a policy make an object as large as one may become, and no larger.
#[test]
fn what_mutations_multiply_is_bounded_for_all_of_them() {
    let _turn = crate::turn();
    let doubling: Vec<String> = (0..20)
        .map(|number| json_patch(&format!("[JSONPatch{{op: 'copy', from: '/metadata/annotations/t', path: '/metadata/annotations/x{number}'}}]")))
        .collect();
    let set = mk_set(&mutations(&doubling));
    let text = review("[]").replace(
        r#""labels":{}"#,
        &format!(r#""labels":{{}},"annotations":{{"t":"{}"}}"#, "t".repeat(400_000)),
    );
    let bytes = text.len();
    let review = OwnedAdmissionReview::read(text.into_bytes()).unwrap();
    measure(
        "mutations that copy",
        60.0,
        [("copies", bytes, review)],
        |review| {
            let outcome = mutated(&set, review, &mut fail_every_call);
            assert!(outcome.patch.len() <= MAX_OBJECT);
            assert!(outcome.denial.is_some());
        },
    );
}

fn call() -> Call {
    let set = mk_set(&webhook("a"));
    let review = OwnedAdmissionReview::read(review("[]").into_bytes()).unwrap();
    let mut found = None;
    mutated(&set, &review, &mut |call| {
        found = Some(call.clone());
        fail_every_call(call)
    });
    found.unwrap()
}

#[test]
fn a_reply_takes_what_its_text_takes() {
    let _turn = crate::turn();
    let call = call();
    assert_eq!(call.version, ReviewVersion::V1);
    let count = 300_000;
    let repeated = |item: &str| vec![item; count].join(",");
    let keys: Vec<String> = (0..count).map(|number| format!("\"{number:x}\":\"\"")).collect();
    let replies = [
        ("warnings", format!(r#""warnings":[{}]"#, repeated("\"\""))),
        (
            "annotations",
            format!(r#""auditAnnotations":{{{}}}"#, keys.join(",")),
        ),
        (
            "causes",
            format!(r#""status":{{"details":{{"causes":[{}]}}}}"#, repeated("{}")),
        ),
        (
            "patch",
            format!(r#""patchType":"JSONPatch","patch":"{}""#, "W10K".repeat(count)),
        ),
        (
            "patch of numbers",
            format!(r#""patchType":"JSONPatch","patch":[{}]"#, repeated("0")),
        ),
        ("what is not read", format!(r#""more":[{}]"#, repeated("0"))),
    ];
    let replies = replies.into_iter().map(|(name, field)| {
        let allowed = name != "causes";
        let reply = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{{"uid":"u","allowed":{allowed},{field}}}}}"#
        );
        (name, reply.len(), reply.into_bytes())
    });
    measure("reply", 13.0, replies, |reply| {
        verify(&call, "u", Phase::Mutate, reply).unwrap();
    });
}

#[test]
fn a_patch_of_many_operations_takes_what_its_text_takes() {
    let _turn = crate::turn();
    let set = mk_set(&webhook("a"));
    let one = OwnedAdmissionReview::read(review("[]").into_bytes()).unwrap();
    let patches = [
        ("appends", r#"{"op":"add","path":"/spec/volumes/-","value":0}"#),
        ("tests", r#"{"op":"test","path":"/kind","value":"Pod"}"#),
        ("copies", r#"{"op":"copy","from":"/kind","path":"/kind"}"#),
    ];
    let patches = patches.map(|(name, operation)| {
        let patch = format!("[{}]", vec![operation; 100_000].join(","));
        (name, patch.len(), patch)
    });
    measure("patch of many operations", 12.0, patches, |patch| {
        mutated(&set, &one, &mut |_| patching(patch));
    });
}

/// A map of labels becomes a list of requirements in no time.
#[test]
fn a_review_of_access_takes_what_its_text_takes() {
    let _turn = crate::turn();
    let count = 100_000;
    let requirement = r#"{"key":"a","operator":"In","values":["b"]}"#;
    let requirements = vec![requirement; count].join(",");
    let fields = [
        (
            "groups",
            format!(
                r#""nonResourceAttributes":{{"verb":"get","path":"/"}},"groups":[{}]"#,
                vec!["\"a\""; count].join(",")
            ),
        ),
        (
            "extra",
            format!(
                r#""nonResourceAttributes":{{"verb":"get","path":"/"}},"extra":{{{}}}"#,
                (0..count)
                    .map(|key| format!("\"{key:x}\":[]"))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
        ),
        (
            "labels",
            format!(
                r#""resourceAttributes":{{"verb":"list","resource":"pods","labelSelector":{{"requirements":[{requirements}]}}}}"#
            ),
        ),
        (
            "fields",
            format!(
                r#""resourceAttributes":{{"verb":"list","resource":"pods","fieldSelector":{{"requirements":[{requirements}]}}}}"#
            ),
        ),
    ];
    let reviews = fields.map(|(name, field)| {
        let review = format!(r#"{{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{{"user":"u",{field}}}}}"#);
        (name, review.len(), review.into_bytes())
    });
    measure("SubjectAccessReview", 14.0, reviews, |review| {
        SubjectAccessReview::decode(review).unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn what_is_kept_of_a_review_is_its_text_and_index() {
    let _turn = crate::turn();
    let bodies = worst()
        .into_iter()
        .filter(|(_, text)| text.starts_with('['))
        .map(|(name, list)| {
            let body = review(&list).into_bytes();
            (name, body.len(), body)
        });
    measure("review", 11.5, bodies, |body| {
        let review = OwnedAdmissionReview::read(body.clone()).unwrap();
        assert!(review.memory() <= Document::most_bytes(body));
    });
}
