//! Whether admission policies would admit the Pods that escalations need.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::LoadedPolicies;
use super::admission::{OfflineReview, PHASES};
use super::escalations::EscalationAnswer;
use super::objects::{KnownKinds, ManifestRequest};
use super::recorded::RecordedAnswers;
use crate::authorization::proof::groups_of_account;
use crate::authorization::{Identity, ObjectName, WorkloadAdmission};
use crate::document::{Document, Node};
use crate::model::{Deadline, Time, User};

impl EscalationAnswer {
    /// Checks for each step that needs a workload whether the admission policies of `loaded` admit
    /// a minimal one.
    pub fn ask_admission(&mut self, loaded: &LoadedPolicies, review: PodReview<'_>) {
        let mut asked: BTreeMap<(Identity, Identity, &str), WorkloadAdmission> = BTreeMap::new();
        let set = loaded.admission.for_cluster(review.cluster);
        for path in self.0.paths.iter_mut().chain(&mut self.0.refuted) {
            let mut who = path.from.clone();
            for step in &mut path.steps {
                let before = std::mem::replace(&mut who, step.becomes.clone());
                let Some(workload) = &mut step.workload else {
                    continue;
                };
                let resource = workload.resource;
                if (review.deadline)()
                    || !(set.may_validate_creation(resource) || set.may_validate_creation("pods"))
                {
                    continue;
                }
                let key = (before, step.becomes.clone(), resource);
                let admission = match asked.get(&key) {
                    Some(known) => known.clone(),
                    None => review.of(loaded, &key.0.as_user(), &key.1, resource),
                };
                asked.insert(key, admission.clone());
                workload.admission = Some(admission);
            }
        }
    }
}

/// The context for reviews of Pods.
#[derive(Clone, Copy)]
pub struct PodReview<'a> {
    /// The cluster whose policies are evaluated.
    pub cluster: &'a str,
    /// The time as of which reviews are decided.
    pub now: Time,
    /// The clock for the durations of steps.
    pub clock: fn() -> Instant,
    /// Whether the deadline has passed; then no more reviews are made.
    pub deadline: &'a dyn Fn() -> bool,
}

/// Resource, kind and API version of workloads, and the controller that creates their Pods.
const WORKLOADS: [(&str, &str, &str, &str); 7] = [
    (
        "replicationcontrollers",
        "ReplicationController",
        "v1",
        "replication-controller",
    ),
    ("deployments", "Deployment", "apps/v1", "replicaset-controller"),
    ("daemonsets", "DaemonSet", "apps/v1", "daemon-set-controller"),
    ("statefulsets", "StatefulSet", "apps/v1", "statefulset-controller"),
    ("replicasets", "ReplicaSet", "apps/v1", "replicaset-controller"),
    ("jobs", "Job", "batch/v1", "job-controller"),
    ("cronjobs", "CronJob", "batch/v1", "job-controller"),
];

impl PodReview<'_> {
    /// Whether the policies admit a workload of `resource` by `user` whose Pod runs as `account`,
    /// and then the Pod of its controller.
    fn of(
        &self,
        loaded: &LoadedPolicies,
        user: &User<'static>,
        account: &Identity,
        resource: &str,
    ) -> WorkloadAdmission {
        let metadata =
            json!({"name": "escalation", "namespace": account.namespace, "labels": {"app": "escalation"}});
        let spec = pod_spec(&account.name, "Always");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let Some((_, kind, api_version, controller)) = WORKLOADS.iter().find(|(name, ..)| *name == resource)
        else {
            return self.answer(loaded, user, pod);
        };
        // Jobs do not allow other restart policies.
        let spec = match *kind {
            "Job" | "CronJob" => pod_spec(&account.name, "Never"),
            _ => spec,
        };
        let template = json!({"metadata": {"labels": {"app": "escalation"}}, "spec": spec});
        let spec = match *kind {
            "ReplicationController" => json!({"selector": {"app": "escalation"}, "template": template}),
            "Job" => json!({"template": template}),
            "CronJob" => json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}),
            _ => json!({"selector": {"matchLabels": {"app": "escalation"}}, "template": template}),
        };
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        let own = self.answer(loaded, user, object);
        if own.is_admitted != Some(true) {
            return own;
        }
        let controller = format!("system:serviceaccount:kube-system:{controller}");
        self.answer(loaded, &Identity::user_called(controller), pod)
    }

    fn answer(&self, loaded: &LoadedPolicies, user: &User<'_>, object: Value) -> WorkloadAdmission {
        let unknown = |message: String| WorkloadAdmission {
            is_admitted: None,
            refused_by: None,
            message,
        };
        let groups = user.groups.iter().map(ToString::to_string).collect();
        let request = ManifestRequest {
            user: Some((user.name.to_string(), groups)),
            ..ManifestRequest::default()
        };
        let object = Document::new(None, Node::from_json(object));
        let about = match request.review(&object, &[], &KnownKinds::default(), &mut Vec::new()) {
            Ok(about) => about,
            Err(fault) => return unknown(fault.to_string()),
        };
        let answers = RecordedAnswers::default();
        let asked = OfflineReview {
            loaded,
            cluster: self.cluster,
            phases: &PHASES,
            only: None,
            now: self.now,
            clock: self.clock,
            answers: &answers,
            requester_unknown: false,
            deadline: Some(Deadline::new(self.deadline)),
            recorder: None,
        };
        let decided = match asked
            .answer(about.review.as_bytes())
            .map(|answered| answered.decided)
        {
            Ok(Ok(decided)) => decided,
            Ok(Err(missing)) => return unknown(missing.to_string()),
            Err(error) => return unknown(error.to_string()),
        };
        let denial = decided.outcome.denial;
        WorkloadAdmission {
            is_admitted: Some(denial.is_none()),
            refused_by: denial
                .as_ref()
                .and(decided.outcome.cause)
                .map(|cause| ObjectName {
                    kind: cause.kind.as_str(),
                    namespace: cause.namespace.to_string(),
                    name: cause.name.to_string(),
                }),
            message: denial.map(|denial| denial.message).unwrap_or_default(),
        }
    }
}

/// A minimal Pod that complies with the Restricted Pod Security Standard.
fn pod_spec(account: &str, restart: &str) -> Value {
    json!({
        "serviceAccountName": account,
        "restartPolicy": restart,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "main",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}
        }]
    })
}

// === impl Identity ===

impl Identity {
    /// A user with this identity; for a group or a role, a member called `somebody`.
    fn as_user(&self) -> User<'static> {
        match self.kind {
            "User" => Self::user_called(self.name.clone()),
            "ServiceAccount" => {
                Self::user_called(format!("system:serviceaccount:{}:{}", self.namespace, self.name))
            }
            "Group" => {
                let mut user = Self::user_called("somebody".to_owned());
                user.groups.push(self.name.clone().into());
                user
            }
            _ => Self::user_called("somebody".to_owned()),
        }
    }

    fn user_called(name: String) -> User<'static> {
        let groups = match groups_of_account(&name) {
            Some(groups) => groups.to_vec(),
            None => vec!["system:authenticated".to_owned()],
        };
        User {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..User::default()
        }
    }
}
