//! The cases whose instructions are counted: the steps of an authorization, admissions, and loading manifests.

#[path = "../../load/workload.rs"]
mod workload;

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSettings, Chain, Phase, RunOptions};
use portcullis_policy::api::{AdmissionReview, SubjectAccessReview, SubjectAccessReviewReply};
use portcullis_policy::authorization::{Authorization, PolicySet};
use portcullis_policy::manifest::{self, Manifests, Source};
use portcullis_policy::model::{Decision, Time};
use workload::Workload;

/// How many RoleBindings are loaded, one of which allows the request.
const BINDINGS: usize = 1000;

/// How many AuthorizationPolicies are loaded, none of which applies to the request.
const POLICIES: usize = 500;

/// The work of one case, the same each time.
type Case = Box<dyn FnMut()>;

/// Each case with its name.
pub(crate) fn all() -> Vec<(String, Case)> {
    let manifests = load(&(bindings() + &policies()));
    let policies = Arc::clone(&manifests.policies.shared);
    let mut cases: Vec<(String, Case)> = vec![
        ("decode a SubjectAccessReview".to_owned(), Box::new(decode)),
        ("decide it by RBAC".to_owned(), decide(Arc::clone(&policies))),
        ("encode the reply".to_owned(), encode(Arc::clone(&policies))),
        ("all three".to_owned(), whole(policies)),
    ];
    for workload in Workload::admission().into_iter().take(2) {
        cases.push((
            format!("{} with five policies", workload.name),
            admission(workload.body),
        ));
    }
    let text = bindings();
    cases.push((
        format!("load {BINDINGS} RoleBindings"),
        Box::new(move || {
            black_box(load(black_box(&text)));
        }),
    ));
    cases
}

fn access() -> &'static [u8] {
    Workload::access().body.leak().as_bytes()
}

fn decode() {
    thread_local! {
        static BODY: &'static [u8] = access();
    }
    let review = BODY.with(|body| {
        SubjectAccessReview::decode(black_box(body))
            .map(black_box)
            .is_ok()
    });
    assert!(review, "the review is valid");
}

fn decided<'p>(policies: &'p PolicySet, review: &SubjectAccessReview<'_>) -> Authorization<'p> {
    let authorization = policies.authorize(black_box(&review.attributes), Time::UNIX_EPOCH);
    assert_eq!(authorization.decision, Decision::Allow);
    authorization
}

fn decide(policies: Arc<PolicySet>) -> Case {
    let review = SubjectAccessReview::decode(access()).expect("a valid review");
    Box::new(move || {
        black_box(decided(&policies, &review));
    })
}

fn reply(review: &SubjectAccessReview<'_>, authorization: &Authorization<'_>, out: &mut String) {
    let reply = SubjectAccessReviewReply {
        version: review.version,
        decision: authorization.decision,
        reason: &authorization.reason,
        evaluation_error: "",
    };
    out.clear();
    black_box(&reply).encode(out);
}

fn encode(policies: Arc<PolicySet>) -> Case {
    let review = SubjectAccessReview::decode(access()).expect("a valid review");
    let policies: &PolicySet = Box::leak(Box::new(policies));
    let authorization = decided(policies, &review);
    let mut out = String::new();
    Box::new(move || reply(&review, &authorization, &mut out))
}

fn whole(policies: Arc<PolicySet>) -> Case {
    let (body, mut out) = (access(), String::new());
    Box::new(move || {
        let review = SubjectAccessReview::decode(black_box(body)).expect("a valid review");
        reply(&review, &decided(&policies, &review), &mut out);
    })
}

fn admission(body: String) -> Case {
    let manifests = load(workload::ADMISSION_POLICIES);
    let set = manifests.admission(&AdmissionSettings::default()).shared;
    let access = Arc::clone(&manifests.policies.shared);
    Box::new(move || {
        let document = Document::parse(black_box(&body)).expect("JSON");
        let review = AdmissionReview::decode(&document).expect("a valid review");
        let run = RunOptions::new(&*access, Time::UNIX_EPOCH);
        let outcome = Chain::run(Phase::Validate, &set, &review.request, run, &mut fail_every_call);
        assert!(outcome.denial.is_none() && outcome.evaluations.len() == 5);
        black_box(review.reply(&outcome));
    })
}

fn load(text: &str) -> Manifests {
    let source = Source {
        file: "bench.yaml".to_owned(),
        text: text.to_owned(),
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &manifest::Options::default());
    manifests.unwrap_or_else(|| panic!("{faults}"))
}

/// Bindings as a large cluster has them: a group for each team, a role for each namespace.
fn bindings() -> String {
    let mut text = String::from(
        "apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRole\n\
         metadata: {name: edit}\n\
         rules:\n\
         - {apiGroups: [''], resources: [pods, services, configmaps], verbs: [get, list, watch]}\n",
    );
    for index in 0..BINDINGS {
        let _infallible = write!(
            text,
            "---\n\
             apiVersion: rbac.authorization.k8s.io/v1\n\
             kind: RoleBinding\n\
             metadata: {{name: edit-{index}, namespace: team-{index}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-{index}}}]\n",
        );
    }
    text
}

/// Policies, half of which apply to all users.
fn policies() -> String {
    let mut text = String::new();
    for index in 0..POLICIES {
        let (effect, subject) = match index % 4 {
            0 => ("Deny", "*".to_owned()),
            1 => ("Deny", format!("agents-{index}")),
            2 => ("Allow", "*".to_owned()),
            _ => ("Allow", format!("readers-{index}")),
        };
        let _infallible = write!(
            text,
            "---\n\
             apiVersion: portcullis.dev/v1alpha1\n\
             kind: AuthorizationPolicy\n\
             metadata: {{name: policy-{index}}}\n\
             spec:\n\
             \x20 effect: {effect}\n\
             \x20 subjects: [{{kind: Group, name: '{subject}'}}]\n\
             \x20 resourceRules:\n\
             \x20 - {{verbs: [delete], apiGroups: ['example-{index}.com'], resources: [widgets]}}\n"
        );
    }
    text
}
