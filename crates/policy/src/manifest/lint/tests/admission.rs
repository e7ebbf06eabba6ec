//! Policies, bindings, parameters and exceptions of admission.

use super::*;
use crate::admission::matching::MissingNamespace;

#[test]
fn a_rule_whose_resource_no_request_has() {
    let rules = "[{verbs: [get], apiGroups: [''], resources: [pods, 'pods/*']}]";
    warns(
        &format!("{CLUSTER_ROLE}{rules}}}"),
        "rules[0].resources[1]",
        "`pods/NAME`",
    );
}

#[test]
fn a_parameter_that_no_policy_reads() {
    let parameter = "{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}}";
    let reader = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, \
                  metadata: {name: p}, spec: {paramKind: {apiVersion: example.com/v1, kind: Limit}, \
                  validations: [{expression: 'true'}], matchConstraints: {resourceRules: [{apiGroups: [''], \
                  apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}}\n---\n\
                  {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, \
                  metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}";
    silent(
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: limits.example.com}}",
    );
    warns(
        parameter,
        "kind",
        "no policy here uses `Limit` of `example.com/v1`",
    );
    silent(&format!("{parameter}\n---\n{reader}"));
}

#[test]
fn a_configuration_for_a_kind_without_schema() {
    let policy = |resource: &str, mutation: &str| {
        format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {{name: a}}, spec: \
             {{reinvocationPolicy: Never, matchConstraints: {{resourceRules: [{{operations: [UPDATE], apiGroups: ['', apps], \
             apiVersions: [v1], resources: [deployments, {resource}]}}]}}, mutations: [{{{mutation}}}]}}}}\n---\n{{apiVersion: \
             admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {{name: b}}, spec: \
             {{policyName: a}}}}"
        )
    };
    let apply = "patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}";
    warns(
        &policy("deployments/scale", apply),
        "spec.matchConstraints.resourceRules[0].resources[1]",
        "of kind `Scale`",
    );
    silent(&policy("deployments/status", apply));
    silent(&policy("pods/binding", apply));
    silent(&policy(
        "deployments/scale",
        "patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/spec\"}]'}",
    ));
}

#[test]
fn bindings_without_policies_and_policies_without_bindings_are_named() {
    let bound = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: 'object.spec.replicas < 5'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: replicas, validationActions: [Deny]}
";
    silent(bound);
    let (policy, binding) = bound.split_once("---").unwrap();
    warns(
        policy,
        "metadata.name",
        "there is no ValidatingAdmissionPolicyBinding for this policy",
    );
    warns(
        binding,
        "spec.policyName",
        "there is no manifest of the ValidatingAdmissionPolicy `replicas`",
    );
    let misspelt = warnings(&bound.replace("policyName: replicas", "policyName: replica"));
    assert!(
        misspelt
            .iter()
            .any(|one| one.contains("did you mean `replicas`?")),
        "{misspelt:?}"
    );
}

#[test]
fn expressions_are_checked_against_the_built_in_types_that_rules_name() {
    let policy = |resources: &str, expression: &str| {
        format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: replicas}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: {resources}}}]}}
  variables: [{{name: labels, expression: 'object.metadata.labels'}}]
  validations: [{{expression: \"{expression}\"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: b}}
spec: {{policyName: replicas, validationActions: [Deny]}}
"
        )
    };
    let at = "spec.validations[0].expression";
    warns(
        &policy("[deployments]", "object.spec.replcas < 5"),
        at,
        "for objects of apps/v1, Kind=Deployment: undefined field 'replcas': did you mean `replicas`?",
    );
    warns(
        &policy("[deployments]", "object.spec.replicas < '5'"),
        at,
        "no matching overload",
    );
    warns(
        &policy(
            "[deployments]",
            "object.spec.template.spec.containers.name == 'a'",
        ),
        at,
        "field selection",
    );
    for fine in [
        policy(
            "[deployments]",
            "object.spec.replicas < 5 && 'app' in variables.labels",
        ),
        policy("['*']", "object.spec.replcas < 5"),
        policy("[widgets]", "object.spec.replcas < 5").replace("apps", "example.com"),
        policy(
            "[deployments]",
            "object.spec.strategy.rollingUpdate.maxSurge == 1",
        ),
        policy(
            "[deployments]",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('r/'))",
        ),
        policy(
            "[deployments]",
            "oldObject == null || object.metadata.creationTimestamp == oldObject.metadata.creationTimestamp",
        ),
    ] {
        silent(&fine);
    }
}

#[test]
fn exceptions_that_excuse_nothing() {
    let exception = |policy: &str, end: &str, selector: &str| {
        format!(
            "{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e}}, spec: {{policies: [{policy}], \
             match: {{{selector}resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods], \
             resourceNames: [p]}}]}}, notAfter: {end}, reason: r}}}}\n---\n\
             {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: guard}}, spec: \
             {{matchConstraints: {{resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}]}}, validations: [{{expression: \"true\"}}]}}}}\n---\n\
             {{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {{name: guard}}, \
             spec: {{policyName: guard, validationActions: [Deny]}}}}\n"
        )
    };
    let later = "2027-01-01T00:00:00Z";
    silent(&exception("guard", later, ""));
    warns(
        &exception("guard", "2026-11-22T12:00:00Z", ""),
        "spec.notAfter",
        "expired at",
    );
    warns(
        &exception("other", later, ""),
        "spec.policies[0]",
        "the exception does not apply to it",
    );
    warns(
        &exception(
            "guard",
            later,
            "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}, ",
        ),
        "spec.match.namespaceSelector",
        "no Namespaces are known",
    );
}

#[test]
fn selectors_that_would_meet_unknown_namespaces_are_named_once() {
    let constraints = "resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], \
                       resources: [deployments]}]";
    let bound = |policy_selector: &str, binding_selector: &str| {
        format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: replicas}}
spec:
  matchConstraints: {{{constraints}, namespaceSelector: {policy_selector}}}
  validations: [{{expression: 'object.spec.replicas < 5'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: b}}
spec: {{policyName: replicas, validationActions: [Deny], matchResources: {{namespaceSelector: {binding_selector}}}}}
"
        )
    };
    let (prod, by_name) = (
        "{matchLabels: {tier: prod}}",
        "{matchLabels: {kubernetes.io/metadata.name: a}}",
    );
    let asks = "selects by labels of Namespaces, but no Namespaces are known, so every request";
    warns(&bound("{}", prod), "spec.matchResources.namespaceSelector", asks);
    warns(
        &bound(prod, by_name),
        "spec.matchConstraints.namespaceSelector",
        asks,
    );
    let both = warnings(&bound(prod, prod));
    assert_eq!(both.len(), 1, "{both:?}");
    assert!(both[0].contains("this (and 1 more) selects"), "{both:?}");
    silent(&bound("{}", by_name));
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: prod}}}";
    silent(&format!("{namespace}\n---\n{}", bound(prod, prod)));

    let options = Options {
        watched: ["east".to_owned()].into(),
        ..Options::default()
    };
    let (_, faults) = load(&[source(&bound(prod, prod), Some("east"))], &options);
    assert_eq!(faults.to_string(), "");
    let options = Options {
        missing_namespace: MissingNamespace::NameOnly,
        ..Options::default()
    };
    let (_, faults) = load(&[source(&bound(prod, prod), None)], &options);
    assert!(faults.to_string().contains("no namespace has them"), "{faults}");
}

/// A ValidatingAdmissionPolicy and its binding.
fn bound(name: &str, spec: &str, binding: &str, binding_spec: &str) -> String {
    let head = "apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy";
    format!(
        "{{{head}, metadata: {{name: {name}}}, spec: {{{spec}, validations: [{{expression: 'true'}}]}}}}\n---\n\
         {{{head}Binding, metadata: {{name: {binding}}}, spec: {{policyName: {name}, validationActions: [Deny]\
         {binding_spec}}}}}"
    )
}

fn rules(group: &str, resource: &str) -> String {
    format!(
        "matchConstraints: {{resourceRules: [{{apiGroups: [{group}], apiVersions: [v1], operations: [CREATE], \
         resources: [configmaps, {resource}]}}]}}"
    )
}

#[test]
fn a_policy_s_rules_that_name_what_no_policy_sees() {
    let named = |group: &str, resource: &str| bound("p", &rules(group, resource), "p", "");
    let path = "spec.matchConstraints.resourceRules[0].resources[1]";
    let groups = "'', authentication.k8s.io";
    warns(&named(groups, "tokenreviews"), path, "are never sent to policies");
    let groups = "'', admissionregistration.k8s.io";
    let policies = named(groups, "mutatingadmissionpolicies");
    warns(&policies, path, "are sent only to static policies and webhooks");
    let configurations = named(groups, "mutatingwebhookconfigurations");
    warns(&configurations, path, "only to webhooks of static configurations");
    // Wildcards mean more than what is excluded.
    silent(&named(groups, "'*'"));
    silent(&named("'*'", "validatingadmissionpolicies"));
    let name = "p.static.k8s.io";
    silent(&bound(
        name,
        &rules(groups, "mutatingadmissionpolicies"),
        name,
        "",
    ));
}

/// A bound policy on pods with a matchCondition or without, and with these fields.
fn on_pods(kind: &str, has_condition: bool, fields: &str, binding: &str) -> String {
    let condition = if has_condition {
        "matchConditions: [{name: c, expression: 'true'}], "
    } else {
        ""
    };
    let head = format!("apiVersion: admissionregistration.k8s.io/v1, kind: {kind}");
    let rules = rules("''", "pods");
    format!(
        "{{{head}, metadata: {{name: p}}, spec: {{{condition}{rules}, {fields}}}}}\n---\n\
         {{{head}Binding, metadata: {{name: p}}, spec: {{policyName: p{binding}}}}}"
    )
}

#[test]
fn copies_that_kubernetes_1_37_refuses_are_named() {
    let mutating = |has_condition: bool, value: &str| {
        let fields = format!(
            "reinvocationPolicy: Never, mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: \"[JSONPatch{{op: \
             'add', path: '/spec/x', value: {value}}}]\"}}}}]"
        );
        on_pods("MutatingAdmissionPolicy", has_condition, &fields, "")
    };
    let at = "spec.mutations[0].jsonPatch.expression";
    for composite in [
        "object.spec.containers",
        "object.spec.containers[0]",
        "object.metadata.labels",
    ] {
        warns(&mutating(true, composite), at, "cannot copy `object.");
        silent(&mutating(false, composite));
    }
    silent(&mutating(true, "object.metadata.name"));
    silent(&mutating(true, "object.metadata.labels['a']"));
    silent(&mutating(true, "object.spec.containers.map(c, c.name)"));
}

#[test]
fn comparisons_that_kubernetes_1_37_refuses_are_named() {
    let validating = |expression: &str| {
        let fields = format!("validations: [{{expression: \"{expression}\"}}]");
        on_pods(
            "ValidatingAdmissionPolicy",
            false,
            &fields,
            ", validationActions: [Deny]",
        )
    };
    let at = "spec.validations[0].expression";
    warns(
        &validating("object.metadata.labels == dyn('x')"),
        at,
        "compared with a value that it never equals",
    );
    silent(&validating("object.metadata.labels != dyn('x')"));
    silent(&validating("object.metadata.labels == {'a': 'b'}"));
    silent(&validating("object.metadata.name == 'x'"));
}

#[test]
fn a_static_policy_must_do_without_what_the_api_server_stores() {
    let rules = rules("''", "secrets");
    let name = "p.static.k8s.io";
    silent(&bound(name, &rules, name, ""));
    let with_kind = format!("paramKind: {{apiVersion: v1, kind: ConfigMap}}, {rules}");
    warns(
        &bound(name, &with_kind, name, ""),
        "spec.paramKind",
        "takes no parameters",
    );
    let reference = ", paramRef: {name: a, parameterNotFoundAction: Deny}";
    warns(
        &bound(name, &rules, name, reference),
        "spec.paramRef",
        "has no parameters",
    );
    silent(&bound("p", &with_kind, "p", reference));
}

#[test]
fn a_static_policy_and_its_binding_are_both_static() {
    let rules = rules("''", "secrets");
    warns(
        &bound("p.static.k8s.io", &rules, "p", ""),
        "spec.policyName",
        "`p.static.k8s.io` is static, but this binding is not",
    );
    warns(
        &bound("p", &rules, "p.static.k8s.io", ""),
        "spec.policyName",
        "may only bind static policies",
    );
}
