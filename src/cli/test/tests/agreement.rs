//! Tests that the code behind `serve`, and `admit` and `test`, agree on every
//! AdmissionException at every time, with each other and with a naive reference.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::cli::test::admission::{AdmissionCase, AdmissionExpectation};
use crate::cli::test::run;
use crate::cli::test::suite::{Case, CaseQuestion};
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{Chain, Phase, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::OfflineReview;
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::manifest::{Options, Source, load};
use portcullis_policy::model::Time;

const POLICIES: [&str; 2] = ["a", "b"];
const SUBJECTS: [&str; 4] = [
    "",
    "{kind: Group, name: dba}",
    "{kind: User, name: \"jane*\"}",
    "{kind: Group, name: nobody}",
];
/// What `namespaceSelector` may be, and which of the namespaces it selects.
const NAMESPACES: [(&str, &[&str]); 4] = [
    ("{matchLabels: {tier: legacy}}", &["old"]),
    (
        "{matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}",
        &["old"],
    ),
    ("{matchLabels: {kubernetes.io/metadata.name: live}}", &["live"]),
    ("{matchLabels: {kubernetes.io/metadata.name: new}}", &[]),
];
const CONDITIONS: [(&str, bool); 4] = [
    ("true", true),
    ("request.name == 'p'", true),
    ("request.name == 'q'", false),
    ("object.spec.missing == 1", false),
];

#[derive(Debug, Clone)]
struct AgreementException {
    policies: Vec<&'static str>,
    subject: usize,
    namespaces: Option<usize>,
    /// Whether `objectSelector` asks for `app: db`.
    labelled: bool,
    operations: Vec<&'static str>,
    condition: Option<usize>,
    not_after: u8,
}

#[derive(Debug, Clone)]
struct AskingReview {
    operation: &'static str,
    namespace: &'static str,
    /// Of the object that is to be, and of the one that is.
    labelled: (bool, bool),
    now: u8,
}

fn exception() -> BoxedStrategy<AgreementException> {
    (
        subsequence(POLICIES.to_vec(), 1..=2),
        0..SUBJECTS.len(),
        prop::option::weighted(0.7, 0..NAMESPACES.len()),
        prop::bool::weighted(0.3),
        subsequence(vec!["CREATE", "UPDATE", "DELETE"], 1..=3),
        prop::option::weighted(0.4, 0..CONDITIONS.len()),
        0..4_u8,
    )
        .prop_map(
            |(policies, subject, namespaces, labelled, operations, condition, not_after)| {
                AgreementException {
                    policies,
                    subject,
                    namespaces,
                    labelled,
                    operations,
                    condition,
                    not_after,
                }
            },
        )
        .boxed()
}

fn question() -> BoxedStrategy<AskingReview> {
    (
        select(vec!["CREATE", "UPDATE", "DELETE"]),
        select(vec!["old", "live", "new"]),
        any::<(bool, bool)>(),
        0..4_u8,
    )
        .prop_map(|(operation, namespace, labelled, now)| AskingReview {
            operation,
            namespace,
            labelled,
            now,
        })
        .boxed()
}

fn second(second: u8) -> String {
    format!("2026-12-01T08:00:0{second}Z")
}

impl AgreementException {
    fn manifest(&self, index: usize) -> String {
        let namespaces = self.namespaces.map_or_else(String::new, |at| {
            format!("namespaceSelector: {}, ", NAMESPACES[at].0)
        });
        let names = if self.namespaces.is_none() {
            ", resourceNames: [p]"
        } else {
            ""
        };
        let labels = if self.labelled {
            "objectSelector: {matchLabels: {app: db}}, "
        } else {
            ""
        };
        let condition = self.condition.map_or_else(String::new, |at| {
            format!(
                "matchConditions: [{{name: c, expression: \"{}\"}}], ",
                CONDITIONS[at].0
            )
        });
        format!(
            "---\n{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e{index}}}, spec: \
             {{policies: [{}], subjects: [{}], match: {{{namespaces}{labels}resourceRules: [{{apiGroups: [\"\"], \
             apiVersions: [v1], operations: [{}], resources: [pods]{names}}}]}}, {condition}notAfter: {}, reason: r}}}}\n",
            self.policies.join(", "),
            SUBJECTS[self.subject],
            self.operations.join(", "),
            second(self.not_after),
        )
    }

    /// Whether it excuses a denial of `policy`, read field by field.
    fn excuses(&self, policy: &str, asked: &AskingReview) -> bool {
        let (new, old) = asked.labelled;
        let judged = if asked.operation == "DELETE" { old } else { new };
        self.policies.contains(&policy)
            && asked.now < self.not_after
            && self.subject != 3
            && self
                .namespaces
                .is_none_or(|at| NAMESPACES[at].1.contains(&asked.namespace))
            && (!self.labelled || judged)
            && self.operations.contains(&asked.operation)
            && self.condition.is_none_or(|at| CONDITIONS[at].1)
    }
}

impl AskingReview {
    fn review(&self) -> String {
        let object = |labelled: bool| {
            let labels = if labelled { json!({"app": "db"}) } else { json!({}) };
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": self.namespace, "labels": labels}, "spec": {}})
        };
        let (new, old) = self.labelled;
        let (has_new, has_old) = (self.operation != "DELETE", self.operation != "CREATE");
        let object_of = |has: bool, labelled| if has { object(labelled) } else { Value::Null };
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": self.operation, "name": "p", "namespace": self.namespace,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "jane", "groups": ["dba"]},
            "object": object_of(has_new, new), "oldObject": object_of(has_old, old),
        }})
        .to_string()
    }
}

fn loaded(exceptions: &[AgreementException]) -> LoadedPolicies {
    let mut text = String::new();
    for policy in POLICIES {
        text.push_str(&format!(
            "---\n{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: {policy}}}, \
             spec: {{matchConstraints: {{resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [\"*\"], \
             resources: [pods]}}]}}, validations: [{{expression: \"false\"}}]}}}}\n---\n\
             {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, \
             metadata: {{name: {policy}}}, spec: {{policyName: {policy}, validationActions: [Deny]}}}}\n"
        ));
    }
    for (name, tier) in [("old", "legacy"), ("live", "prod")] {
        text.push_str(&format!(
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{tier: {tier}}}}}}}\n"
        ));
    }
    for (index, exception) in exceptions.iter().enumerate() {
        text.push_str(&exception.manifest(index));
    }
    let source = Source {
        file: "f.yaml".into(),
        text,
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    LoadedPolicies::of_manifests(manifests)
}

/// What is excused, as in the audit annotation.
fn annotation(excused: &[(String, &str)]) -> String {
    let entry =
        |(name, policy): &(String, &str)| format!(r#"{{"name":"{name}","policy":"{policy}","reason":"r"}}"#);
    format!("[{}]", excused.iter().map(entry).collect::<Vec<_>>().join(","))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serve_admit_and_test_agree_on_every_exception_at_every_time(
        exceptions in prop::collection::vec(exception(), 0..4),
        asked in prop::collection::vec(question(), 6),
    ) {
        let loaded = loaded(&exceptions);
        for asked in &asked {
            let excused: Vec<(String, &str)> = POLICIES.iter().filter_map(|policy| {
                let by = exceptions.iter().position(|exception| exception.excuses(policy, asked))?;
                Some((format!("e{by}"), *policy))
            }).collect();
            let allowed = excused.len() == POLICIES.len();
            let (review, now) = (asked.review(), Time::parse(&second(asked.now)).unwrap());

            // As `serve` does, without a recorder.
            let body = Document::parse(review.clone()).unwrap();
            let decoded = AdmissionReview::decode(&body).unwrap();
            let (set, access) = (loaded.admission.for_cluster("c"), loaded.policies.for_cluster("c"));
            let run_of = RunOptions::new(&**access, now);
            let served = Chain::run(Phase::Validate, set, &decoded.request, run_of, &mut fail_every_call);
            prop_assert_eq!(served.denial.is_none(), allowed, "{:?} {:?}", asked, exceptions);
            let reported: Vec<(String, &str)> = served.exceptions.iter()
                .map(|one| (one.exception.name.clone(), one.policy.as_str())).collect();
            prop_assert_eq!(&reported, &excused);
            let written = served.audit_annotations.get("exceptions.portcullis.dev");
            prop_assert_eq!(written.cloned(), (!excused.is_empty()).then(|| annotation(&excused)));

            let answers = RecordedAnswers::default();
            let of_admit = OfflineReview {
                loaded: &loaded,
                cluster: "c",
                phases: &[Phase::Validate],
                only: None,
                now,
                clock: std::time::Instant::now,
                answers: &answers,
                requester_unknown: false,
                deadline: None,
                recorder: None,
            };
            let answered = of_admit.answer(review.as_bytes()).unwrap();
            let decided = answered.decided.unwrap();
            prop_assert_eq!(&decided.outcome.denial, &served.denial);
            prop_assert_eq!(&decided.outcome.audit_annotations, &served.audit_annotations);

            let case = Case {
                name: "n".into(),
                line: 1,
                cluster: "c".into(),
                at: Some(now),
                question: CaseQuestion::Admission(AdmissionCase {
                    review: review.into(),
                    phases: &[Phase::Validate],
                    policy: None,
                    answers: RecordedAnswers::default(),
                    expect: AdmissionExpectation {
                        allowed,
                        message: None,
                        reason: None,
                        code: None,
                        cause: None,
                        rule: None,
                        warnings: None,
                        webhooks: None,
                        audit_annotations: served.audit_annotations.clone(),
                        object: None,
                    },
                }),
            };
            prop_assert!(run::decide(&loaded, "f", &case, now).passed());
        }
    }
}
