//! Evaluates one object like `admit -f`, and the Pod that a workload would create from its
//! template. What depends on a real request is unknown.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::formats::{ScanFinding, ScanOutcome};
use super::tape::{MissedBy, NearestPolicy, PolicyOutcome, PolicyResultRecorder, PolicyResults};
use portcullis_policy::admission::Phase;
use portcullis_policy::admission::matching::{Constraints, UNKNOWN_NAMESPACE_REMEDY};
use portcullis_policy::document::{Document, Node};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{OfflineReview, OfflineReviewResult};
use portcullis_policy::explain::objects::{KnownKinds, ManifestRequest, ReviewOfManifest};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::field::Fault;
use portcullis_policy::model::{CauseKind, LabelSelector, Time};

/// The policies, and the parameters of evaluation.
pub(crate) struct ObjectScanner {
    pub(crate) loaded: LoadedPolicies,
    pub(crate) cluster: String,
    pub(crate) now: Time,
    pub(crate) kinds: KnownKinds,
    /// The request that is assumed for all objects.
    pub(crate) manifests: ManifestRequest,
    /// The phases for the objects themselves.
    pub(crate) phases: &'static [Phase],
}

/// The findings about one object, and notes.
#[derive(Default)]
pub(crate) struct ScannedObject {
    pub(crate) findings: Vec<ScanFinding>,
    pub(crate) notes: Vec<String>,
    /// Set if no policy applies to the object.
    pub(crate) unmatched: Option<UnmatchedObject>,
    /// The object's namespace, if its labels are unknown and a policy selects by them.
    pub(crate) unknown_namespace: Option<Arc<str>>,
}

/// An object to which no policy applies, nor to the Pod that it would create.
pub(crate) struct UnmatchedObject {
    pub(crate) object: ScanFinding,
    /// Why the policy that nearly applied does not.
    pub(crate) reason: String,
}

/// Both phases, for objects that would be created, and therefore mutated first.
pub(crate) const CREATED: &[Phase] = &[Phase::Mutate, Phase::Validate];

/// Only validation, for objects that exist: they stay as they are, whatever mutations have been
/// added since.
pub(crate) const STORED: &[Phase] = &[Phase::Validate];

/// The groups of objects that are not sent to an API server.
const LOCAL_GROUPS: [&str; 3] = [
    "kustomize.config.k8s.io",
    "config.kubernetes.io",
    "config.portcullis.dev",
];

impl ObjectScanner {
    /// Evaluates the policies for `object` and for the Pod that it would create.
    ///
    /// # Errors
    ///
    /// The document is not an object, or has invalid metadata.
    pub(crate) fn scan(&self, object: &Document) -> Result<ScannedObject, Fault> {
        let api_version = object.text("apiVersion").unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let mut judged = ScannedObject::default();
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
        let reported = ScanSubject::new(&about, api_version, uid.unwrap_or_default());
        let results = self.results(&about, self.phases);
        let (mut is_matched, mut nearest) = (results.is_matched, results.nearest);
        judged
            .findings
            .extend(reported.findings(object, results.validating, None));
        let json = object.root().to_json();
        let is_made_by_another = self.phases == STORED && is_made_by_workload(&json);
        let pod = pod_of(&json, &about.namespace).filter(|_| !is_made_by_another);
        if let Some((pod, template)) = pod {
            let pod = Document::new(object.file().cloned(), Node::from_json(pod));
            let about = self.manifests.review(&pod, &[], &self.kinds, &mut judged.notes)?;
            let results = self.results(&about, CREATED);
            is_matched |= results.is_matched;
            nearest = [nearest, results.nearest]
                .into_iter()
                .flatten()
                .max_by_key(|miss| miss.by);
            judged
                .findings
                .extend(reported.findings(object, results.validating, Some(template)));
        }
        let unknown = judged.findings.iter_mut().filter_map(without_remedy).count();
        judged.unknown_namespace = (unknown > 0).then(|| Arc::clone(&reported.0.namespace));
        if !is_matched && judged.findings.is_empty() {
            judged.unmatched = Some(UnmatchedObject {
                object: reported.0,
                reason: self.reason(nearest.as_ref()),
            });
        }
        Ok(judged)
    }

    /// Findings about the policies that do not apply to any object, because their rules are not
    /// about creation.
    pub(crate) fn policies_not_at_creation(&self) -> Vec<ScanFinding> {
        let set = self.loaded.admission.for_cluster(&self.cluster);
        let finding = |policy: &str| ScanFinding {
            file: "".into(),
            line: 0,
            column: 0,
            object_line: 0,
            kind: CauseKind::ValidatingAdmissionPolicy.as_str().into(),
            namespace: "".into(),
            name: policy.into(),
            policy: policy.into(),
            binding: "".into(),
            result: ScanOutcome::Skip,
            message: "its rules do not match CREATE".into(),
            exception: "".into(),
            api_version: "admissionregistration.k8s.io/v1".into(),
            uid: "".into(),
        };
        set.without_create_rules().map(finding).collect()
    }

    /// Why no policy applies to an object.
    fn reason(&self, nearest: Option<&NearestPolicy>) -> String {
        let Some(NearestPolicy {
            by,
            kind,
            policy,
            binding,
        }) = nearest
        else {
            return "no rule of any policy matches it".to_owned();
        };
        let set = self.loaded.admission.for_cluster(&self.cluster);
        let constraints = set.constraints(*kind, policy, binding.as_deref());
        let selector = |of: fn(&Constraints) -> &LabelSelector| {
            constraints.map(of).map(ToString::to_string).unwrap_or_default()
        };
        let why = match by {
            MissedBy::ExcludeRules => "its excludeResourceRules match it".to_owned(),
            MissedBy::NamespaceSelector => {
                let selector = selector(|constraints| &constraints.namespace_selector);
                format!("its namespace does not have `{selector}` (namespaceSelector)")
            }
            MissedBy::ObjectSelector => {
                let selector = selector(|constraints| &constraints.object_selector);
                format!("it does not have `{selector}` (objectSelector)")
            }
            MissedBy::Parameter => "there is no parameter, which the binding allows".to_owned(),
            MissedBy::Conditions => "its matchConditions are false".to_owned(),
        };
        let binding = binding.as_ref().map(|binding| format!(", binding `{binding}`"));
        format!(
            "nearest is policy `{policy}`{}: {why}",
            binding.unwrap_or_default()
        )
    }

    /// The outcome of each policy for the object; all outcomes to report are in `validating`.
    fn results(&self, about: &ReviewOfManifest, phases: &'static [Phase]) -> PolicyResults {
        let (tape, answers) = (PolicyResultRecorder::default(), RecordedAnswers::default());
        let asked = OfflineReview {
            loaded: &self.loaded,
            cluster: &self.cluster,
            phases,
            only: None,
            now: self.now,
            clock: std::time::Instant::now,
            answers: &answers,
            requester_unknown: self.manifests.user.is_none(),
            deadline: None,
            recorder: Some(&tape),
        };
        let answered = asked.answer(about.review.as_bytes());
        let mut found = tape.into_results();
        if !found.unknown_mutations.is_empty() {
            let unsettled = std::mem::take(&mut found.unknown_mutations);
            found.validating = unsettled.into_iter().map(with_mutation_note).collect();
            return found;
        }
        let judgements = &mut found.validating;
        let denial = match answered {
            Ok(answered) => denial(&answered),
            Err(error) => Some(refusal(error.to_string(), ScanOutcome::Error)),
        };
        let refuses = |one: &PolicyOutcome| one.result.rejects();
        let is_unknown = |one: &PolicyOutcome| one.result == ScanOutcome::Skip && one.exception.is_empty();
        // The rejection by something other than a validation: a mutation, or the gateway itself.
        judgements.extend(denial.filter(|denial| {
            let explains =
                |one: &PolicyOutcome| refuses(one) || (is_unknown(one) && one.policy == denial.policy);
            !judgements.iter().any(explains)
        }));
        found
    }
}

/// The rejection of the object, if it is rejected.
fn denial(answered: &OfflineReviewResult) -> Option<PolicyOutcome> {
    let decided = match &answered.decided {
        Ok(decided) => decided,
        Err(missing) => return Some(refusal(missing.to_string(), ScanOutcome::Error)),
    };
    let denial = decided.outcome.denial.as_ref()?;
    let cause = decided.outcome.cause.as_ref();
    Some(PolicyOutcome {
        policy: cause.map(|cause| cause.name.to_string()).unwrap_or_default(),
        ..refusal(denial.message.clone(), ScanOutcome::Fail)
    })
}

const fn refusal(message: String, result: ScanOutcome) -> PolicyOutcome {
    PolicyOutcome {
        policy: String::new(),
        binding: String::new(),
        result,
        message,
        exception: String::new(),
        field: None,
    }
}

fn with_mutation_note(mut judgement: PolicyOutcome) -> PolicyOutcome {
    judgement.message.push_str(
        ": the result of this MutatingAdmissionPolicy is not known, nor that of the policies which see the \
        changed object",
    );
    judgement
}

/// Removes the remedy for an unknown namespace from the message, because it is printed once for all
/// findings; `None` if the message does not have it.
fn without_remedy(finding: &mut ScanFinding) -> Option<()> {
    let shorter = finding
        .message
        .replace(&format!(": {UNKNOWN_NAMESPACE_REMEDY}"), "");
    (shorter.len() < finding.message.len()).then(|| finding.message = shorter.into())
}

/// The finding that identifies the object, from which others are derived.
struct ScanSubject(ScanFinding);

impl ScanSubject {
    fn new(about: &ReviewOfManifest, api_version: &str, uid: &str) -> Self {
        Self(ScanFinding {
            file: about.file.as_str().into(),
            line: about.line,
            column: 0,
            object_line: about.line,
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

    /// The findings about `object`, or about the Pod from its `template`.
    fn findings(
        &self,
        object: &Document,
        judgements: Vec<PolicyOutcome>,
        template: Option<&str>,
    ) -> Vec<ScanFinding> {
        let what = template.map_or("", |_| "the Pod that it creates: ");
        let place = |one: &PolicyOutcome| match (&one.field, self.0.object_line) {
            (Some(field), 1..) => object.field_position(&format!("{}{field}", template.unwrap_or_default())),
            (_, line) => (line, 0),
        };
        let finding = |one: PolicyOutcome| ScanFinding {
            line: place(&one).0,
            column: place(&one).1,
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

/// The group and kind of workloads, and the pointer to their Pod template.
const WORKLOADS: [(&str, &str, &str); 7] = [
    ("apps", "Deployment", "/spec/template"),
    ("apps", "StatefulSet", "/spec/template"),
    ("apps", "DaemonSet", "/spec/template"),
    ("apps", "ReplicaSet", "/spec/template"),
    ("", "ReplicationController", "/spec/template"),
    ("batch", "Job", "/spec/template"),
    ("batch", "CronJob", "/spec/jobTemplate/spec/template"),
];

/// The Pod that `owner`, in this namespace, would create, and the pointer to its template; `None`
/// if it is not a workload.
///
/// It is the Pod that the controller would request, with the labels and annotations of the template
/// and a reference to the owner, but without generated values such as hashes and indexes.
fn pod_of(owner: &Value, namespace: &str) -> Option<(Value, &'static str)> {
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_own = |(of_group, of_kind, _): &&(&str, &str, &str)| (*of_group, *of_kind) == (group, kind);
    let (.., pointer) = WORKLOADS.iter().find(is_own)?;
    let template = owner.pointer(pointer)?.as_object()?;
    let name = text("/metadata/name");
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.get("metadata").and_then(|metadata| metadata.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if kind == "StatefulSet" {
        metadata.insert("name".to_owned(), json!(format!("{name}-0")));
    } else {
        metadata.insert("generateName".to_owned(), json!(format!("{name}-")));
    }
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    let (of_version, of_kind) = controller(api_version, kind);
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": of_version, "kind": of_kind, "name": name, "uid": text("/metadata/uid"),
            "controller": true, "blockOwnerDeletion": true,
        }]),
    );
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    if let (Some(spec), Some(pod)) = (template.get("spec"), pod.as_object_mut()) {
        pod.insert("spec".to_owned(), spec.clone());
    }
    Some((pod, pointer))
}

/// The owner of the Pods: those of a Deployment belong to a ReplicaSet, and those of a CronJob to a
/// Job.
fn controller<'k>(api_version: &'k str, kind: &'k str) -> (&'k str, &'k str) {
    match kind {
        "Deployment" => (api_version, "ReplicaSet"),
        "CronJob" => (api_version, "Job"),
        kind => (api_version, kind),
    }
}

/// Whether a Deployment created this ReplicaSet, or a CronJob this Job: the owner is listed, too,
/// and evaluated with its Pod. Only for objects of a cluster: references in manifests prove
/// nothing, because the API server does not check that the owner exists.
fn is_made_by_workload(object: &Value) -> bool {
    let references = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let text = |object: &Value, field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
    let made_by = |reference: &Value| {
        let version = text(reference, "apiVersion")?;
        let owner = text(reference, "kind")?;
        let (_, kind) = controller(&version, &owner);
        let is_own = kind != owner && Some(kind) == text(object, "kind").as_deref();
        Some(is_own && reference.get("controller") == Some(&Value::Bool(true)))
    };
    let mut references = references.into_iter().flatten();
    references.any(|reference| made_by(reference).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(api_version: &str, kind: &str, spec: &Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec})
    }

    #[test]
    fn each_workload_makes_pods_of_its_template() {
        let template =
            json!({"metadata": {"labels": {"app": "web"}, "name": "ignored"}, "spec": {"containers": []}});
        for (api_version, kind, owner, named) in [
            ("apps/v1", "Deployment", "ReplicaSet", false),
            ("apps/v1", "StatefulSet", "StatefulSet", true),
            ("apps/v1", "DaemonSet", "DaemonSet", false),
            ("apps/v1", "ReplicaSet", "ReplicaSet", false),
            ("v1", "ReplicationController", "ReplicationController", false),
            ("batch/v1", "Job", "Job", false),
            ("batch/v1", "CronJob", "Job", false),
        ] {
            let spec = match kind {
                "CronJob" => json!({"jobTemplate": {"spec": {"template": template}}}),
                _ => json!({"template": template}),
            };
            let pod = pod_of(&workload(api_version, kind, &spec), "shop").unwrap().0;
            let metadata = &pod["metadata"];
            assert_eq!(
                (&pod["kind"], &metadata["namespace"]),
                (&json!("Pod"), &json!("shop"))
            );
            assert_eq!(metadata["labels"], json!({"app": "web"}), "{kind}");
            assert_eq!(metadata["ownerReferences"][0]["kind"], owner, "{kind}");
            let name = if named { json!("web-0") } else { Value::Null };
            assert_eq!(metadata["name"], name, "{kind}");
            assert_eq!(pod["spec"], json!({"containers": []}));
        }
    }

    #[test]
    fn what_makes_no_pods_has_none() {
        let spec = json!({"template": {"spec": {}}});
        assert_eq!(
            pod_of(&workload("example.com/v1", "Deployment", &spec), "shop"),
            None
        );
        assert_eq!(
            pod_of(&workload("apps/v1", "Deployment", &json!({})), "shop"),
            None
        );
    }

    #[test]
    fn what_a_listed_workload_made_is_not_taken_apart() {
        let made = |kind: &str, owner: &str, is_controller: bool| {
            let mut made = workload("apps/v1", kind, &json!({}));
            made["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": owner, "controller": is_controller}]);
            is_made_by_workload(&made)
        };
        assert!(made("ReplicaSet", "Deployment", true));
        assert!(made("Job", "CronJob", true));
        assert!(!made("ReplicaSet", "Deployment", false));
        assert!(!made("ReplicaSet", "ReplicaSet", true));
        assert!(!made("Deployment", "Database", true));
        assert!(!made("StatefulSet", "CronJob", true));
        assert!(!is_made_by_workload(&workload(
            "apps/v1",
            "ReplicaSet",
            &json!({})
        )));
    }
}
