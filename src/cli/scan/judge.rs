//! Judges one object as `admit -f` does, but for what nobody knows of it.

use std::sync::Arc;

use super::finding::{ScanFinding, ScanOutcome};
use super::tape::{PolicyJudgement, ScanTape};
use super::template::pod_of;
use portcullis_policy::document::{Document, Node};
use portcullis_policy::engine::admission::Phase;
use portcullis_policy::engine::{CauseKind, Time};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{Answered, OfflineReview};
use portcullis_policy::explain::kinds::CustomKinds;
use portcullis_policy::explain::manifests::{ManifestRequest, ReviewOfManifest};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::field::Fault;

/// How objects are judged.
pub(crate) struct ObjectJudge {
    pub(crate) loaded: LoadedPolicies,
    pub(crate) cluster: String,
    pub(crate) now: Time,
    pub(crate) kinds: CustomKinds,
    /// What is said of all objects alike.
    pub(crate) manifests: ManifestRequest,
    /// The phases for objects as they are given.
    pub(crate) phases: &'static [Phase],
}

/// The findings about one object, and what is to be known of it.
#[derive(Default)]
pub(crate) struct JudgedObject {
    pub(crate) findings: Vec<ScanFinding>,
    pub(crate) notes: Vec<String>,
}

/// Both phases: what workloads make is created, and so changed first.
pub(crate) const CREATED: &[Phase] = &[Phase::Mutate, Phase::Validate];

/// What exists is judged as it is: it would be as it is even if a mutation came since.
pub(crate) const STORED: &[Phase] = &[Phase::Validate];

/// Objects of these groups are never sent to an API server.
const LOCAL_GROUPS: [&str; 3] = [
    "kustomize.config.k8s.io",
    "config.kubernetes.io",
    "config.portcullis.dev",
];

impl ObjectJudge {
    /// What the policies make of `object`, and of the Pods that it would make.
    ///
    /// # Errors
    ///
    /// It is no object, or its metadata cannot be.
    pub(crate) fn judge(&self, object: &Document) -> Result<JudgedObject, Fault> {
        let api_version = object.text("apiVersion").unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let mut judged = JudgedObject::default();
        if LOCAL_GROUPS.contains(&group) {
            return Ok(judged);
        }
        let about = self
            .manifests
            .review(object, &[], &self.kinds, &mut judged.notes)?;
        let uid = object
            .root()
            .get("metadata")
            .and_then(|metadata| metadata.get("uid")?.as_str());
        let reported = Reported::new(&about, api_version, uid.unwrap_or_default());
        let judgements = self.judgements(&about, self.phases);
        judged.findings.extend(reported.findings(judgements, ""));
        if let Some(pod) = pod_of(&object.root().to_json(), &about.namespace) {
            let pod = Document::new(object.file().cloned(), Node::from_json(pod));
            let about = self.manifests.review(&pod, &[], &self.kinds, &mut judged.notes)?;
            let judgements = self.judgements(&about, CREATED);
            judged
                .findings
                .extend(reported.findings(judgements, "the Pod that it makes: "));
        }
        Ok(judged)
    }

    /// The policies that are asked about no object, since none is changed or deleted.
    pub(crate) fn not_asked(&self) -> Vec<ScanFinding> {
        let set = self.loaded.admission.for_cluster(&self.cluster);
        let finding = |policy: &str| ScanFinding {
            file: "".into(),
            line: 0,
            kind: CauseKind::ValidatingAdmissionPolicy.as_str().into(),
            namespace: "".into(),
            name: policy.into(),
            policy: policy.into(),
            binding: "".into(),
            result: ScanOutcome::Skip,
            message: "its rules are not about the creation of objects".into(),
            exception: "".into(),
            api_version: "admissionregistration.k8s.io/v1".into(),
            uid: "".into(),
        };
        set.never_at_creation().map(finding).collect()
    }

    fn judgements(&self, about: &ReviewOfManifest, phases: &'static [Phase]) -> Vec<PolicyJudgement> {
        let (tape, answers) = (ScanTape::default(), RecordedAnswers::default());
        let asked = OfflineReview {
            loaded: &self.loaded,
            cluster: &self.cluster,
            phases,
            only: None,
            now: self.now,
            clock: std::time::Instant::now,
            answers: &answers,
            nobody_asks: true,
            deadline: None,
            recorder: Some(&tape),
        };
        let answered = asked.answer(about.review.as_bytes());
        let found = tape.into_judgements();
        if !found.unsettled.is_empty() {
            return found.unsettled.into_iter().map(without_mutation).collect();
        }
        let mut judgements = found.validating;
        let denial = match answered {
            Ok(answered) => denial(&answered),
            Err(error) => Some(refusal(error.to_string(), ScanOutcome::Error)),
        };
        let refuses = |one: &PolicyJudgement| one.result.refuses();
        let is_unknown = |one: &PolicyJudgement| one.result == ScanOutcome::Skip && one.exception.is_empty();
        // What refuses the object and is no validation: a mutation, the gateway itself.
        judgements.extend(denial.filter(|denial| {
            let explains =
                |one: &PolicyJudgement| refuses(one) || (is_unknown(one) && one.policy == denial.policy);
            !judgements.iter().any(explains)
        }));
        judgements
    }
}

/// Why the object is refused.
fn denial(answered: &Answered) -> Option<PolicyJudgement> {
    let decided = match &answered.decided {
        Ok(decided) => decided,
        Err(missing) => return Some(refusal(missing.to_string(), ScanOutcome::Error)),
    };
    let denial = decided.outcome.denial.as_ref()?;
    let cause = decided.outcome.cause.as_ref();
    Some(PolicyJudgement {
        policy: cause.map(|cause| cause.name.to_string()).unwrap_or_default(),
        ..refusal(denial.message.clone(), ScanOutcome::Fail)
    })
}

const fn refusal(message: String, result: ScanOutcome) -> PolicyJudgement {
    PolicyJudgement {
        policy: String::new(),
        binding: String::new(),
        result,
        message,
        exception: String::new(),
    }
}

fn without_mutation(mut judgement: PolicyJudgement) -> PolicyJudgement {
    judgement.message.push_str(
        ": what this MutatingAdmissionPolicy makes of the object, and the other policies of that, cannot be said",
    );
    judgement
}

/// The object as results name it.
struct Reported(ScanFinding);

impl Reported {
    fn new(about: &ReviewOfManifest, api_version: &str, uid: &str) -> Self {
        Self(ScanFinding {
            file: about.file.as_str().into(),
            line: about.line,
            kind: about.kind.as_str().into(),
            namespace: about.namespace.as_str().into(),
            name: about.name.as_str().into(),
            policy: "".into(),
            binding: "".into(),
            result: ScanOutcome::Pass,
            message: "".into(),
            exception: "".into(),
            api_version: api_version.into(),
            uid: uid.into(),
        })
    }

    fn findings(&self, judgements: Vec<PolicyJudgement>, what: &str) -> Vec<ScanFinding> {
        let finding = |one: PolicyJudgement| ScanFinding {
            policy: one.policy.into(),
            binding: one.binding.into(),
            result: one.result,
            message: match one.message.as_str() {
                "" if what.is_empty() => Arc::clone(&self.0.message),
                message => format!("{what}{message}").trim_end_matches(": ").into(),
            },
            exception: one.exception.into(),
            ..self.0.clone()
        };
        judgements.into_iter().map(finding).collect()
    }
}
