//! What the versions of policies and bindings make of the same text.

use crate::admission::matching::MatchPolicy;
use crate::admission::{AdmissionObjects, FailurePolicy, NotFound};
use crate::manifest::{Options, Source, load};

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

fn read(text: &str) -> Result<AdmissionObjects, String> {
    let source = Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    };
    match load(&[source], &Options::default()) {
        (Some(manifests), _) => Ok(manifests.shared.admission),
        (None, faults) => Err(faults.to_string()),
    }
}

/// A policy and its binding, of the family `Validating` or `Mutating`.
fn pair(version: &str, family: &str, says: &str, param_ref: &str) -> String {
    let actions = if family == "Validating" {
        "validationActions: [Deny]"
    } else {
        ""
    };
    format!(
        "apiVersion: admissionregistration.k8s.io/{version}
kind: {family}AdmissionPolicy
metadata: {{name: p}}
spec:
  paramKind: {{apiVersion: v1, kind: ConfigMap}}
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}}
  {says}
---
apiVersion: admissionregistration.k8s.io/{version}
kind: {family}AdmissionPolicyBinding
metadata: {{name: b}}
spec:
  policyName: p
  paramRef: {param_ref}
  {actions}
"
    )
}

const VALIDATES: &str = "validations: [{expression: 'true'}]";
const MUTATES: &str = "reinvocationPolicy: Never
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/x\", value: \"y\"}]'}}";
const REFERENCE: &str = "{name: c, namespace: ns, parameterNotFoundAction: Allow}";

#[test]
fn policies_and_bindings_of_every_version_are_read_with_their_defaults() {
    for version in VERSIONS {
        let objects = read(&pair(version, "Validating", VALIDATES, REFERENCE)).unwrap();
        let policy = &objects.validating[0].applicability;
        assert_eq!(policy.failure_policy, FailurePolicy::Fail, "{version}");
        assert_eq!(
            policy.constraints.match_policy,
            MatchPolicy::Equivalent,
            "{version}"
        );
        let reference = objects.validating_bindings[0].param_ref.as_ref();
        assert_eq!(reference.unwrap().not_found, NotFound::Allow, "{version}");

        let objects = read(&pair(version, "Mutating", MUTATES, REFERENCE)).unwrap();
        let policy = &objects.mutating[0].applicability;
        assert_eq!(policy.failure_policy, FailurePolicy::Fail, "{version}");
        assert_eq!(
            policy.constraints.match_policy,
            MatchPolicy::Equivalent,
            "{version}"
        );
        assert_eq!(objects.mutating_bindings.len(), 1, "{version}");
    }
}

#[test]
fn v1alpha1_alone_has_a_default_for_parameters_not_found() {
    for (family, says) in [("Validating", VALIDATES), ("Mutating", MUTATES)] {
        let reference = "{name: c, namespace: ns}";
        let objects = read(&pair("v1alpha1", family, says, reference)).unwrap();
        let bindings = objects
            .validating_bindings
            .iter()
            .chain(&objects.mutating_bindings);
        for binding in bindings {
            assert_eq!(binding.param_ref.as_ref().unwrap().not_found, NotFound::Deny);
        }
        for version in ["v1", "v1beta1"] {
            let faults = read(&pair(version, family, says, reference)).unwrap_err();
            assert!(
                faults.contains("spec.paramRef.parameterNotFoundAction"),
                "{faults}"
            );
        }
    }
}

#[test]
fn an_unknown_version_is_told_which_there_are() {
    let faults = read(&pair("v2", "Validating", VALIDATES, REFERENCE)).unwrap_err();
    assert!(
        faults.contains("`admissionregistration.k8s.io/v1beta1`"),
        "{faults}"
    );
}
