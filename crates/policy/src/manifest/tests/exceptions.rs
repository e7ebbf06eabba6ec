//! AdmissionExceptions.

use super::*;

/// The faults of an AdmissionException whose spec has these fields.
fn exception(spec: &str) -> Vec<String> {
    paths(&format!(
        "{{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {{name: e}}, spec: {{{spec}}}}}"
    ))
}

#[test]
fn an_exception_says_what_it_is_for_until_when_and_why() {
    assert_eq!(
        exception(""),
        [
            "spec.policies: Required value",
            "spec.match: Required value",
            "spec.notAfter: Required value",
            "spec.reason: Required value",
        ]
    );
    let rest = "notAfter: 2027-01-31T00:00:00Z, reason: r";
    let rule = |more: &str| {
        format!(
            "resourceRules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]{more}}}]"
        )
    };
    let matching = |matches: &str| {
        exception(&format!(
            "policies: [a, b/c.example.com], match: {{{matches}}}, {rest}"
        ))
    };
    for valid in [
        format!(
            "namespaceSelector: {{matchLabels: {{tier: legacy}}}}, {}",
            rule("")
        ),
        rule(", resourceNames: [p]"),
        format!(
            "objectSelector: {{matchLabels: {{a: b}}}}, {}",
            rule(", resourceNames: [p]")
        ),
    ] {
        assert_eq!(matching(&valid), Vec::<String>::new(), "{valid}");
    }
    for (matches, faults) in [
        ("", vec!["spec.match: Required value"]),
        (
            "namespaceSelector: {matchLabels: {tier: legacy}}",
            vec!["spec.match.resourceRules: Required value"],
        ),
        (
            &rule(""),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!("namespaceSelector: {{}}, {}", rule("")),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!(
                "namespaceSelector: {{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: Exists}}]}}, {}",
                rule("")
            ),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
        (
            &format!("objectSelector: {{matchLabels: {{a: b}}}}, {}", rule("")),
            vec!["spec.match.resourceRules[0].resourceNames: Required value"],
        ),
    ] {
        assert_eq!(matching(matches), faults, "{matches}");
    }
    let whole = format!("match: {{{}}}, {rest}", rule(", resourceNames: [p]"));
    for (policies, fault) in [
        ("[\"a*\"]", "spec.policies[0]: Invalid value"),
        ("[\"*\"]", "spec.policies[0]: Invalid value"),
        ("[a, a]", "spec.policies[1]: Duplicate value"),
        ("[\"\"]", "spec.policies[0]: Required value"),
        ("[a/b/c]", "spec.policies[0]: Invalid value"),
    ] {
        assert_eq!(
            exception(&format!("policies: {policies}, {whole}")),
            [fault],
            "{policies}"
        );
    }
    let conditions = "matchConditions: [{name: c, expression: \"object.\"}]";
    assert_eq!(
        exception(&format!("policies: [a], {conditions}, {whole}")),
        ["spec.matchConditions[0].expression: Invalid value"]
    );
    let long = whole.replace("reason: r", &format!("reason: {}", "r".repeat(1025)));
    assert_eq!(
        exception(&format!("policies: [a], {long}")),
        ["spec.reason: Too long"]
    );
    let begins = format!("policies: [a], notBefore: 2026-01-01T00:00:00Z, {whole}");
    assert_eq!(
        exception(&begins),
        ["spec.notBefore: Unsupported value"],
        "it has no beginning"
    );
}
