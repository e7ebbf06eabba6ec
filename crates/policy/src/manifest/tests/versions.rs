//! Expressions are compiled for the version of CEL that the options say.

use super::*;
use crate::field::Severity;

/// An expression in every place where one may stand, each with what 1.37 added.
const EVERYWHERE: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: v}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: ["*"]}]
  matchConditions: [{name: c, expression: "['web'].includes(object.metadata.name)"}]
  variables: [{name: names, expression: "[object.metadata.name.includes('a')]"}]
  validations:
  - expression: "variables.names.includes(true)"
    messageExpression: "string(['a'].includes('a'))"
  auditAnnotations: [{key: k, valueExpression: "string(['a'].includes('a'))"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: m}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "['a'].includes('a') ? [JSONPatch{op: 'remove', path: '/a'}] : []"}
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "['a'].includes('a') ? Object{} : Object{}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: w}
webhooks:
- name: a.example.com
  clientConfig: {url: "https://127.0.0.1/"}
  sideEffects: None
  admissionReviewVersions: [v1]
  matchConditions: [{name: c, expression: "['web'].includes(object.metadata.name)"}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: p}
spec:
  effect: Deny
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [pods]}]
  conditions: [{name: c, expression: "request.groups.includes('a')"}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: e}
spec:
  policies: [v]
  subjects: [{kind: User, name: jane}]
  match:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: ["*"], resourceNames: [web]}]
  matchConditions: [{name: c, expression: "['web'].includes(object.metadata.name)"}]
  notAfter: 2030-01-01T00:00:00Z
  reason: test
"#;

fn read_for(version: Version) -> Vec<String> {
    let options = Options {
        cel_version: version,
        ..Options::default()
    };
    let (set, faults) = read(&[source(EVERYWHERE)], &options);
    let errors: Vec<_> = faults
        .iter()
        .filter(|fault| fault.severity == Severity::Error || fault.message.contains("includes"))
        .map(|fault| format!("{}: {}", fault.place.object, fault.place.path))
        .collect();
    assert_eq!(set.is_some(), errors.is_empty(), "{faults}");
    errors
}

#[test]
fn every_expression_is_compiled_for_the_version_of_the_options() {
    assert_eq!(read_for(Version::new(37)), [""; 0]);
    assert_eq!(
        read_for(Version::new(36)),
        [
            "ValidatingAdmissionPolicy/v: spec.matchConditions[0].expression",
            "ValidatingAdmissionPolicy/v: spec.variables[0].expression",
            "ValidatingAdmissionPolicy/v: spec.validations[0].expression",
            "ValidatingAdmissionPolicy/v: spec.validations[0].messageExpression",
            "ValidatingAdmissionPolicy/v: spec.auditAnnotations[0].valueExpression",
            "MutatingAdmissionPolicy/m: spec.mutations[0].jsonPatch.expression",
            "MutatingAdmissionPolicy/m: spec.mutations[1].applyConfiguration.expression",
            "ValidatingWebhookConfiguration/w: webhooks[0].matchConditions[0].expression",
            "AuthorizationPolicy/p: spec.conditions[0].expression",
            "AdmissionException/e: spec.matchConditions[0].expression",
        ]
    );
}

#[test]
fn what_was_read_for_another_version_is_not_shared() {
    let objects = |version, earlier| SourceObjects::read(&source(EVERYWHERE), version, earlier);
    let before = objects(Version::new(37), None);
    let same = objects(Version::new(37), Some(&before));
    let shared = |other: &SourceObjects| {
        let both = before.objects().zip(other.objects());
        both.filter(|(one, other)| Arc::ptr_eq(&one.valid, &other.valid))
            .count()
    };
    assert_eq!(shared(&same), 5);
    let after = objects(Version::new(36), Some(&before));
    assert!(after.objects().next().is_none() && after.faults().has_errors());
}
