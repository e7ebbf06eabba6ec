//! Each warning of webhooks, and what is so near to it that it must not warn.

use super::super::tests::{silent, warnings_of, warns};

/// Some Namespaces are given, but not of those concerned.
const OTHER_NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: other}}";

/// Rules, selectors and whatever else of a webhook; the rest is valid.
fn webhook(said: &str) -> String {
    let client = if said.contains("clientConfig") {
        ""
    } else {
        "clientConfig: {url: 'https://hook.example.com'}, "
    };
    let effects = if said.contains("sideEffects") {
        ""
    } else {
        "sideEffects: None, "
    };
    format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {{name: c}}, \
         webhooks: [{{name: a.example.com, {client}{effects}admissionReviewVersions: [v1], {said}}}]}}"
    )
}

fn rule(group: &str, version: &str, resource: &str) -> String {
    format!(
        "rules: [{{operations: ['*'], apiGroups: ['{group}'], apiVersions: ['{version}'], resources: \
         ['{resource}']}}]"
    )
}

fn without(namespaces: &str) -> String {
    format!(
        "namespaceSelector: {{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: NotIn, values: \
         [{namespaces}]}}]}}"
    )
}

#[test]
fn a_wildcard_over_the_control_plane() {
    let all = rule("*", "*", "*");
    let leases = "matchConditions: [{name: a, expression: \"request.resource.resource != 'leases'\"}]";
    warns(
        &webhook(&format!("{all}, {leases}")),
        "webhooks[0].rules[0]",
        "nothing can be written in `kube-system`",
    );
    silent(&webhook(&format!("{all}, {leases}, failurePolicy: Ignore")));
    silent(&webhook(&format!("{all}, {leases}, {}", without("kube-system"))));
    let team = "namespaceSelector: {matchLabels: {team: a}}";
    let of_team = webhook(&format!("{all}, {team}"));
    silent(&format!("{of_team}\n---\n{OTHER_NAMESPACE}"));
    silent(&webhook(&rule("", "v1", "pods")));
    silent(&webhook(&format!(
        "{all}, matchConditions: [{{name: a, expression: \"!(request.namespace in ['kube-system']) && \
         request.resource.resource != 'leases'\"}}]"
    )));
}

#[test]
fn a_namespace_is_selected_by_the_labels_of_its_manifest() {
    let webhook = webhook(&format!(
        "{}, namespaceSelector: {{matchLabels: {{team: a}}}}",
        rule("coordination.k8s.io", "v1", "leases")
    ));
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {team: a}}}";
    silent(&format!("{webhook}\n---\n{OTHER_NAMESPACE}"));
    warns(
        &format!("{webhook}\n---\n{namespace}"),
        "webhooks[0].rules[0]",
        "no lease in `kube-system`",
    );
}

#[test]
fn leases_under_a_webhook_that_can_fail() {
    let leases = rule("coordination.k8s.io", "v1", "*");
    let but_kube_system = without("kube-system");
    warns(
        &webhook(&format!("{leases}, {but_kube_system}")),
        "webhooks[0].rules[0]",
        "no lease in `kube-node-lease`",
    );
    silent(&webhook(&format!(
        "{leases}, {}",
        without("kube-system, kube-node-lease")
    )));
    silent(&webhook(&rule(
        "coordination.k8s.io",
        "v1",
        "leasecandidates/status",
    )));
}

#[test]
fn a_webhook_in_front_of_its_own_pods() {
    let client = "clientConfig: {service: {namespace: hooks, name: a}}";
    let pods = rule("", "v1", "pods");
    warns(
        &webhook(&format!("{client}, {pods}")),
        "webhooks[0].rules[0]",
        "exclude `hooks`",
    );
    silent(&webhook(&format!("{client}, {pods}, {}", without("hooks"))));
    silent(&webhook(&format!("{client}, {pods}, failurePolicy: Ignore")));
    let labelled = "objectSelector: {matchLabels: {guarded: 'true'}}";
    silent(&webhook(&format!("{client}, {pods}, {labelled}")));
}

#[test]
fn a_url_of_this_machine() {
    for host in ["localhost:8443", "127.0.0.2", "[::1]:1"] {
        warns(
            &webhook(&format!("clientConfig: {{url: 'https://{host}/x'}}")),
            "webhooks[0].clientConfig.url",
            "a different machine for every gateway",
        );
    }
    silent(&webhook("clientConfig: {url: 'https://localhost.example.com'}"));
}

#[test]
fn dry_runs_that_are_refused() {
    let old = |said: &str| {
        webhook(said).replace(
            "admissionregistration.k8s.io/v1,",
            "admissionregistration.k8s.io/v1beta1,",
        )
    };
    warns(
        &old("sideEffects: Some"),
        "webhooks[0].sideEffects",
        "dry-run requests that this webhook matches are refused",
    );
    warns(
        &old("sideEffects: null"),
        "webhooks[0].sideEffects",
        "`NoneOnDryRun` if it respects",
    );
    silent(&old("sideEffects: NoneOnDryRun"));
}

#[test]
fn a_hook_of_the_past_knows_of_no_dry_run() {
    let hook = "{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: ExternalAdmissionHookConfiguration, \
                metadata: {name: c}, externalAdmissionHooks: [{name: a.example.com, clientConfig: {service: \
                {namespace: ns, name: s}}}]}";
    warns(hook, "externalAdmissionHooks[0].sideEffects", "`dryRun`");
}

#[test]
fn more_time_than_the_gateway_has() {
    warns(
        &webhook("timeoutSeconds: 11"),
        "webhooks[0].timeoutSeconds",
        "use 10 or less",
    );
    silent(&webhook("timeoutSeconds: 10"));
}

#[test]
fn rules_for_one_of_several_versions() {
    let scalers = |version: &str| rule("autoscaling", version, "horizontalpodautoscalers");
    let at = "webhooks[0].rules[0].apiVersions";
    warns(&webhook(&scalers("v1")), at, "may arrive as `autoscaling/v2`");
    silent(&webhook(&format!("{}, matchPolicy: Exact", scalers("v1"))));
    silent(&webhook(&scalers("*")));
    silent(&webhook(&rule("apps", "v1", "deployments")));
    silent(&webhook(&rule("example.com", "v1", "widgets")));
    warns(
        &webhook(&rule("autoscaling", "v1", "*")),
        at,
        "may arrive as `autoscaling/v2`",
    );
    warns(
        &webhook(&rule("events.k8s.io", "v1", "*")),
        at,
        "may arrive as `v1`",
    );
    silent(&webhook(&rule("apps", "v1", "*")));
    let both = scalers("v1").replace("'v1'", "v1, v2");
    silent(&webhook(&both));
}

#[test]
fn a_bundle_without_certificate() {
    use base64::Engine as _;
    let client = |pem: &str| {
        let bundle = base64::engine::general_purpose::STANDARD.encode(pem);
        webhook(&format!(
            "clientConfig: {{url: 'https://h', caBundle: '{bundle}'}}"
        ))
    };
    let at = "webhooks[0].clientConfig.caBundle";
    for unusable in [
        "---",
        "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
    ] {
        warns(&client(unusable), at, "no certificate");
    }
    silent(&client(
        "# an authority\n-----BEGIN CERTIFICATE-----\nMA\nA=\n-----END CERTIFICATE-----\n",
    ));
}

#[test]
fn a_namespace_of_another_cluster_says_nothing() {
    let text = webhook(&format!(
        "{}, namespaceSelector: {{matchLabels: {{team: a}}}}",
        rule("coordination.k8s.io", "v1", "leases")
    ));
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {team: a}}}";
    let source = |text: &str, cluster| super::super::tests::source(text, Some(cluster));
    assert_eq!(
        warnings_of(&[
            source(&text, "east"),
            source(OTHER_NAMESPACE, "east"),
            source(namespace, "west")
        ]),
        Vec::<String>::new()
    );
}

#[test]
fn rules_that_name_what_no_webhook_sees() {
    let path = "webhooks[0].rules[0].resources[0]";
    let review = webhook(&rule("authorization.k8s.io", "v1", "subjectaccessreviews"));
    warns(&review, path, "are never sent to webhooks");
    for resource in [
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
    ] {
        let configuration = webhook(&rule("admissionregistration.k8s.io", "v1", resource));
        warns(
            &configuration,
            path,
            "are sent only to static policies and webhooks",
        );
        silent(&configuration.replace("{name: c}", "{name: c.static.k8s.io}"));
    }
    silent(&webhook(&rule("authorization.k8s.io", "v1", "*")));
    silent(&webhook(&rule("example.com", "v1", "subjectaccessreviews")));
}

#[test]
fn a_static_webhook_with_a_service() {
    let by_service = webhook("clientConfig: {service: {namespace: tools, name: hook}}");
    silent(&by_service);
    warns(
        &by_service.replace("{name: c}", "{name: c.static.k8s.io}"),
        "webhooks[0].clientConfig.service",
        "is called by `url`",
    );
}
