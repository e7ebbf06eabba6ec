//! Where `portcullis check` says that an expression is wrong: at its line and column of the file.

use serde_json::Value;

use crate::run::Portcullis;

/// Each expression goes on over lines, in another notation, and names `usr` where it means `user`.
const NOTATIONS: &str = "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: notations}
spec:
  effect: Deny
  subjects: [{kind: Group, name: a}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
  conditions:
  - name: literal
    expression: |
      request.user != 'é' &&
        request.usr == 'a'
  - name: folded
    expression: >-

      request.user == 'a'

      || request.usr == 'b'
  - name: double
    expression: \"request.user == \\\"a\\\" ||
      request.usr == 'b'\"
  - name: single
    expression: 'request.user == ''a'' || request.usr == ''b'''
  - name: plain
    expression: request.user == 'a' ||
      request.usr == 'b'
";

const PLACES: [(u64, u64); 5] = [(12, 16), (18, 17), (21, 14), (23, 50), (26, 14)];

fn policies() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/notations.yaml", NOTATIONS);
    portcullis
}

#[test]
fn an_expression_over_several_lines_is_wrong_at_a_line_and_column_of_the_file() {
    let run = policies().run("check policies");
    assert_eq!(run.code, 1, "{run:?}");
    for (index, (line, column)) in PLACES.into_iter().enumerate() {
        // Where the file says it, the place points at what is meant.
        let written = NOTATIONS.lines().nth(line as usize - 1).unwrap();
        let from: String = written.chars().skip(column as usize - 1).collect();
        assert!(
            from.starts_with(".usr") || from.starts_with("usr"),
            "{line}:{column}: {from}"
        );
        let place = format!(
            "notations.yaml:{line}:{column}: AuthorizationPolicy/notations: \
             spec.conditions[{index}].expression: Invalid value: "
        );
        assert!(run.stdout.contains(&place), "`{place}`: {}", run.stdout);
    }
}

#[test]
fn json_and_sarif_name_the_line_and_column_too() {
    let run = policies().run("check -o json policies");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let of_json = |fault: &Value| (fault["line"].as_u64().unwrap(), fault["column"].as_u64().unwrap());
    let found: Vec<_> = report["faults"].as_array().unwrap().iter().map(of_json).collect();
    assert_eq!(found, PLACES);

    let run = policies().run("check -o sarif policies");
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    let of_sarif = |result: &Value| {
        let region = &result["locations"][0]["physicalLocation"]["region"];
        (
            region["startLine"].as_u64().unwrap(),
            region["startColumn"].as_u64().unwrap(),
        )
    };
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.iter().map(of_sarif).collect::<Vec<_>>(), PLACES);
}

#[test]
fn expressions_of_admission_and_of_the_configuration_have_their_places_too() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write(
        "gateway/policies/admission.yaml",
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  matchConditions:
  - name: a
    expression: |-
      has(object.spec) &&
      object.spec.replcas > 1
  validations:
  - expression: |
      true &&
      objct == null
",
    );
    let path = portcullis.path("gateway/portcullis.yaml");
    let configuration = std::fs::read_to_string(path).unwrap();
    let webhook = "
authorization:
  webhooks:
  - type: Webhook
    name: other
    webhook:
      timeout: 3s
      subjectAccessReviewVersion: v1
      matchConditionSubjectAccessReviewVersion: v1
      failurePolicy: NoOpinion
      connectionInfo: {type: KubeConfigFile, kubeConfigFile: kubeconfigs/authorization.kubeconfig}
      matchConditions:
      - expression: |
          request.user != 'a' &&
          request.usr != 'b'
";
    assert!(!configuration.contains("\nauthorization:"));
    portcullis.write("gateway/portcullis.yaml", &format!("{configuration}{webhook}"));
    let lines = configuration.lines().count() + webhook.lines().count();
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    let of_webhook = format!(
        "portcullis.yaml:{lines}:18: \
         authorization.webhooks[0].webhook.matchConditions[0].expression: Invalid value: "
    );
    for said in [
        "admission.yaml:14:7: ValidatingAdmissionPolicy/replicas: ",
        &of_webhook,
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }

    // Types are checked once all compiles.
    let path = portcullis.path("gateway/policies/admission.yaml");
    let mended = std::fs::read_to_string(path).unwrap().replace("objct", "object");
    portcullis.write("gateway/policies/admission.yaml", &mended);
    portcullis.write("gateway/portcullis.yaml", &configuration);
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    let said = "admission.yaml:10:18: ValidatingAdmissionPolicy/replicas: \
                spec.matchConditions[0].expression: warning: Suspicious: for objects of apps/v1, \
                Kind=Deployment: undefined field 'replcas': did you mean `replicas`?";
    assert!(run.stdout.contains(said), "`{said}`: {run:?}");
}
