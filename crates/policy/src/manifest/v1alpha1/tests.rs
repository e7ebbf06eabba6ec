//! The definitions that are shipped have every field that is read.

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::Value;

use super::*;
use crate::struct_fields::struct_fields as fields;

/// The properties of a schema below `spec` of a shipped definition.
fn properties(definition: &str, pointer: &str) -> Vec<String> {
    let document = &crate::document::parse(None, definition).unwrap()[0];
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let value: Value = document.root().to_json();
    let schema = value.pointer(&format!("{spec}{pointer}/properties"));
    let names = schema.and_then(Value::as_object).unwrap().keys();
    let mut names: Vec<String> = names.cloned().collect();
    names.sort_unstable();
    names
}

#[test]
fn the_shipped_definitions_have_every_field_that_is_read() {
    let policies = include_str!("../../../../../config/crd/authorizationpolicies.yaml");
    let exceptions = include_str!("../../../../../config/crd/admissionexceptions.yaml");
    let requests = include_str!("../../../../../config/crd/accessrequests.yaml");
    let rules = "/properties/resourceRules/items";
    let matched = "/properties/match";
    for (definition, pointer, read) in [
        (policies, String::new(), fields::<Spec>()),
        (policies, "/properties/subjects/items".into(), fields::<Subject>()),
        (
            policies,
            "/properties/excludeSubjects/items".into(),
            fields::<Subject>(),
        ),
        (policies, rules.into(), fields::<ResourceRule>()),
        (
            policies,
            format!("{rules}/properties/namespaceSelector"),
            fields::<LabelSelector>(),
        ),
        (
            policies,
            format!("{rules}/properties/selectors"),
            fields::<Selectors>(),
        ),
        (
            policies,
            format!("{rules}/properties/unlessSelectors"),
            fields::<Selectors>(),
        ),
        (
            policies,
            format!("{rules}/properties/selectors/properties/label/items"),
            fields::<Requirement>(),
        ),
        (
            policies,
            "/properties/nonResourceRules/items".into(),
            fields::<NonResourceRule>(),
        ),
        (
            policies,
            "/properties/conditions/items".into(),
            fields::<Condition>(),
        ),
        (requests, String::new(), fields::<AccessRequestSpec>()),
        (
            requests,
            "/properties/requester".into(),
            fields::<RequesterFields>(),
        ),
        (exceptions, String::new(), fields::<ExceptionSpec>()),
        (
            exceptions,
            "/properties/subjects/items".into(),
            fields::<Subject>(),
        ),
        (exceptions, matched.into(), fields::<MatchResources>()),
        (
            exceptions,
            format!("{matched}/properties/objectSelector"),
            fields::<LabelSelector>(),
        ),
        (
            exceptions,
            format!("{matched}/properties/namespaceSelector/properties/matchExpressions/items"),
            fields::<LabelSelectorRequirement>(),
        ),
        (
            exceptions,
            format!("{matched}/properties/excludeResourceRules/items"),
            fields::<NamedRuleWithOperations>(),
        ),
        (
            exceptions,
            "/properties/matchConditions/items".into(),
            fields::<MatchCondition>(),
        ),
    ] {
        assert!(!read.is_empty());
        assert_eq!(properties(definition, &pointer), read, "{pointer}");
    }
}
