//! Faults of manifests, each with its place.

mod changes;
mod exceptions;
mod namespaces;
mod object_conditions;
mod policies;
mod rbac;
mod versions;

use std::sync::Arc;

use super::*;
use crate::admission::matching::MissingNamespace;
use crate::authorization::ClusterPolicySets;
use crate::field::{FaultKind, Faults};
use crate::model::{Attributes, Decision, ResourceAttributes, Target, Time, User, Validity};
use portcullis_cel::Version;

fn source(text: &str) -> Source {
    Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    }
}

/// The objects of `sources`, whatever in them is worth a warning.
fn objects(sources: &[Source], faults: &mut Faults) -> Vec<Arc<ValidatedObject>> {
    let read = |source| SourceObjects::read(source, Version::NEWEST, None);
    let sources: Vec<SourceObjects> = sources.iter().map(read).collect();
    for source in &sources {
        faults.extend(source.faults().iter().cloned());
    }
    object_set::refuse_duplicates(sources.iter().flat_map(SourceObjects::objects), faults);
    let objects = sources.iter().flat_map(SourceObjects::objects);
    objects.map(|object| Arc::clone(&object.valid)).collect()
}

fn faults(text: &str) -> String {
    let mut faults = Faults::new();
    objects(&[source(text)], &mut faults);
    faults.to_string()
}

#[test]
fn no_more_faults_are_kept_of_a_source_than_anybody_reads() {
    for text in [
        "---\n{}\n".repeat(5_000),
        format!("[{}]", "{},".repeat(5_000)),
        format!("kind: List\napiVersion: v1\nitems: [{}]", "{},".repeat(5_000)),
    ] {
        let read = SourceObjects::read(&source(&text), Version::NEWEST, None);
        assert!(
            read.faults().has_errors() && read.faults().len() <= 1_001,
            "{}",
            read.faults().len()
        );
    }
}

/// The faults without what stands before the path in each.
fn paths(text: &str) -> Vec<String> {
    let mut faults = Faults::new();
    objects(&[source(text)], &mut faults);
    faults
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.kind.as_str()))
        .collect()
}

#[test]
fn an_object_as_kubectl_shows_it_is_sound() {
    let text = r#"
apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  aggregationRule:
    clusterRoleSelectors:
    - matchLabels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}
  metadata:
    annotations:
      rbac.authorization.kubernetes.io/autoupdate: "true"
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1"}
    creationTimestamp: "2026-11-21T10:00:00Z"
    finalizers: [example.com/keep]
    generation: 2
    labels: {kubernetes.io/bootstrapping: rbac-defaults}
    managedFields:
    - apiVersion: rbac.authorization.k8s.io/v1
      fieldsType: FieldsV1
      fieldsV1: {f:metadata: {f:labels: {.: {}}}}
      manager: kube-apiserver
      operation: Update
      time: "2026-11-21T10:00:00Z"
    name: view
    ownerReferences:
    - {apiVersion: v1, kind: ConfigMap, name: a, uid: "1", controller: true, blockOwnerDeletion: true}
    resourceVersion: "66"
    selfLink: /apis/rbac.authorization.k8s.io/v1/clusterroles/view
    uid: 6d9e1d05-5bc0-4a4e-8a8e-0d7f1b5d8f9e
  rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [get]
- apiVersion: v1
  kind: Namespace
  metadata: {name: team-a, labels: {team: a}, creationTimestamp: null}
  spec: {finalizers: [kubernetes]}
  status: {phase: Active}
"#;
    assert_eq!(faults(text), "");
}

#[test]
fn unknown_kinds_versions_and_fields_are_faults() {
    let text = r#"
{apiVersion: portcullis.dev/v1alpha1, kind: AuthorisationPolicy, metadata: {name: a}}
---
{apiVersion: portcullis.dev/v1, kind: AuthorizationPolicy, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: ClusterRole, metadata: {name: a}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: Webhook, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verb: [get]}]}
---
{kind: ClusterRole, metadata: {name: a}}
"#;
    let mut all = Faults::new();
    objects(&[source(text)], &mut all);
    let reported: Vec<String> = all
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.message))
        .collect();
    assert_eq!(
        reported,
        [
            "kind: `AuthorisationPolicy`: the kinds of `portcullis.dev` are `AuthorizationPolicy`, \
             `AuthorizationInvariant`, `AdmissionException`, `AccessRequest`, `PolicyTest`",
            "apiVersion: `portcullis.dev/v1`: use `portcullis.dev/v1alpha1`",
            "apiVersion: `rbac.authorization.k8s.io/v1alpha1`: use `rbac.authorization.k8s.io/v1` or \
             `rbac.authorization.k8s.io/v1beta1`",
            "kind: `Webhook`: the kinds of `admissionregistration.k8s.io` are `ValidatingAdmissionPolicy`, \
             `ValidatingAdmissionPolicyBinding`, `MutatingAdmissionPolicy`, `MutatingAdmissionPolicyBinding`, \
             `ValidatingWebhookConfiguration`, `MutatingWebhookConfiguration`, \
             `ExternalAdmissionHookConfiguration`, `InitializerConfiguration`",
            "rules[0].verb: unknown field `verb`: did you mean `verbs`?",
            "apiVersion: the field `apiVersion` is missing: a manifest needs it",
        ]
    );
}

#[test]
fn a_fault_names_file_line_object_and_field() {
    let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: a\n  namespace: b\n\
                rules:\n- apiGroups: ['']\n  resources: [pods]\n";
    assert_eq!(
        faults(text),
        "f.yaml:7: Role/b/a: rules[0].verbs: Required value: a rule needs at least one verb"
    );
}

#[test]
fn the_same_object_twice_for_one_cluster_is_a_fault_that_names_both_places() {
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}\n";
    let older = "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: a}}\n";
    let file = |file: &str, text: &str, cluster: Option<&str>| Source {
        file: file.into(),
        text: text.into(),
        cluster: cluster.map(Into::into),
    };
    let mut faults = Faults::new();
    objects(
        &[
            file("east.yaml", role, Some("east")),
            file("west.yaml", older, Some("west")),
            file("both.yaml", &format!("\n{role}"), None),
            file("west-2.yaml", role, Some("west")),
        ],
        &mut faults,
    );
    assert_eq!(
        faults.to_string(),
        "both.yaml:2: ClusterRole/a: metadata.name: Duplicate value: the same object is also at east.yaml:1 \
        for the cluster `east`, and this one applies to every cluster\nwest-2.yaml:1: ClusterRole/a: \
        metadata.name: Duplicate value: the same object is also at west.yaml:1"
    );
}

#[test]
fn what_is_no_object_is_ignored_with_a_warning() {
    let mut all = Faults::new();
    let sources = [source(
        "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [a]}",
    )];
    assert_eq!(objects(&sources, &mut all).len(), 0);
    assert!(!all.has_errors() && all.len() == 1, "{all}");
}

#[test]
fn a_cluster_is_decided_by_what_is_its_own_and_what_is_for_all() {
    use crate::model::{Attributes, Decision, ResourceAttributes, Target, User};
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, \
                rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}";
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, \
                   roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: jane}]}";
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: a}}}";
    let of = |text: &str, cluster: &str| Source {
        cluster: Some(cluster.into()),
        ..source(text)
    };
    let sources = [source(role), of(binding, "east"), of(namespace, "west")];
    let (manifests, faults) = load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let decides = |cluster: &str| {
        let target = Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            resource: "pods".into(),
            name: "a".into(),
            ..ResourceAttributes::default()
        }));
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        manifests
            .policies
            .for_cluster(cluster)
            .authorize(&Attributes { user, target }, Time::UNIX_EPOCH)
            .decision
    };
    assert_eq!(decides("east"), Decision::Allow);
    assert_eq!([decides("west"), decides("default")], [Decision::NoOpinion; 2]);
    let west = &manifests.clusters["west"];
    assert_eq!(west.admission.namespaces.len(), 1);
}
