//! AccessRequests in files, by the commands that decide offline.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const POLICIES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-secrets}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vault}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: read-secrets}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: vault}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  liftable: true
  subjects: [{kind: User, name: ann}]
  resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [secrets]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: secrets-for-vault}
spec:
  only: [{kind: Group, name: vault}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
  enforcement: Refuse
"#;

/// Ann has asked, and Bob has approved for an hour.
fn request(lifts: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AccessRequest\nmetadata: {{name: inc-1}}\n\
         spec: {{role: read-secrets, namespaces: [prod], duration: 1h, reason: INC-1, lifts: [{lifts}], \
         requester: {{username: ann}}}}\n\
         status: {{approvals: [{{username: bob, time: '2026-12-01T08:00:00Z'}}]}}\n"
    )
}

const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {address: '127.0.0.1:8443', tls: {certificate: a.crt, privateKey: a.key}}
manifests: [policies]
";

/// Policies, and AccessRequests apart: one that lifts the Deny, and one that does not.
fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/all.yaml", POLICIES);
    portcullis.write("lifting/requests.yaml", &request("no-contractors"));
    portcullis.write("plain/requests.yaml", &request(""));
    portcullis.write("both/all.yaml", POLICIES);
    portcullis.write("both/requests.yaml", &request("no-contractors"));
    portcullis.write("gateway.yaml", CONFIGURATION);
    portcullis
}

fn said(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

/// A suite of one question at two times.
fn suite(of: &str, requests: &str, during: &str, cause: &str) -> String {
    let case = |at: &str, decision: &str, cause: &str| {
        format!(
            "- {{name: '{at}', at: '2026-12-01T{at}Z', request: {{user: ann, verb: get, resource: secrets, namespace: prod, \
             name: s}}, expect: {{decision: {decision}, cause: {cause}}}}}\n"
        )
    };
    let own = "AuthorizationPolicy/no-contractors";
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {{name: s}}\n{of}\naccessRequests: [{requests}]\ncases:\n\
         {}{}{}",
        case("07:00:00", "deny", own),
        case("08:30:00", during, cause),
        case("09:00:00", "deny", own),
    )
}

#[test]
fn a_suite_decides_by_the_access_requests_that_it_names() {
    let portcullis = set_up();
    let manifests = "manifests: [policies]";
    let lifted = ("allow", "AccessRequest/inc-1");
    let denied = ("deny", "AuthorizationPolicy/no-contractors");
    for (requests, (decision, cause)) in [("lifting", lifted), ("plain", denied)] {
        portcullis.write("s.yaml", &suite(manifests, requests, decision, cause));
        let run = portcullis.run("test s.yaml");
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "3 passed, 0 failed\n"),
            "{run:?}"
        );
    }
    // Among the manifests they count, too.
    let both = suite("manifests: [both]", "", "allow", "AccessRequest/inc-1");
    portcullis.write("s.yaml", &both);
    assert_eq!(portcullis.run("test s.yaml").code, 0);
}

#[test]
fn a_configuration_says_whether_they_grant_and_how() {
    let portcullis = set_up();
    let gateway = |accesses: &str, admission: &str| {
        let of_cluster =
            format!("clusters: [{{name: default, kubeconfig: absent, cacheFile: absent{admission}}}]\n");
        portcullis.write(
            "gateway.yaml",
            &format!("{CONFIGURATION}{of_cluster}authorization: {{{accesses}}}\n"),
        );
        portcullis.run("test s.yaml")
    };
    portcullis.write(
        "s.yaml",
        &suite("config: gateway.yaml", "lifting", "allow", "AccessRequest/inc-1"),
    );
    let one = "accessRequests: {}";
    for admission in [", admission: Watched", ", admission: Declared"] {
        assert_eq!(gateway(one, admission).code, 0, "{admission}");
    }
    // Half an hour is over by then, and nobody else has approved it.
    for settings in [
        "accessRequests: {maxDuration: 30m}",
        "accessRequests: {approvals: 2}",
    ] {
        assert_eq!(gateway(settings, ", admission: Declared").code, 1, "{settings}");
    }
    for (settings, admission) in [(one, ""), ("", ", admission: Declared")] {
        let run = gateway(settings, admission);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("the AccessRequests grant nothing"), "{run:?}");
    }
}

#[test]
fn a_suite_and_check_of_invariants_say_until_when_one_breaks_them() {
    let portcullis = set_up();
    let case = |at: &str, expect: &str| {
        format!(
            "- {{name: '{at}', at: '2026-12-01T{at}Z', invariant: secrets-for-vault, expect: {{invariant: {expect}}}}}\n"
        )
    };
    let suite = |requests: &str, during: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [policies]\naccessRequests: [{requests}]\n\
             cases:\n{}{}",
            case("08:30:00", during),
            case("09:00:00", "holds"),
        )
    };
    for (requests, during) in [("lifting", "broken"), ("plain", "holds")] {
        portcullis.write("s.yaml", &suite(requests, during));
        let run = portcullis.run("test s.yaml");
        assert_eq!(run.code, 0, "{requests}: {run:?}");
    }
    portcullis.write("s.yaml", &suite("lifting", "holds"));
    let run = portcullis.run("test s.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    for said in ["AccessRequest/inc-1", "until 2026-12-01T09:00:00Z"] {
        assert!(run.stdout.contains(said), "{said}: {run:?}");
    }
}

#[test]
fn diff_says_what_one_grants_that_is_in_force_on_one_side_alone() {
    let portcullis = set_up();
    let diff = |arguments: &str| portcullis.run(&format!("diff policies both {arguments}"));
    let run = diff("--at 2026-12-01T08:30:00Z --no-new-access");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "AccessRequest/inc-1",
        "User ann",
        "until 2026-12-01T09:00:00Z",
        "prod",
    ] {
        assert!(run.stdout.contains(said), "{said}: {}", run.stdout);
    }
    let report = said(&diff("--at 2026-12-01T08:30:00Z -o json"));
    let gain = &report["gains"][0];
    assert_eq!(gain["before"]["decision"], "deny", "{report}");
    assert_eq!(gain["after"]["cause"]["kind"], "AccessRequest", "{report}");
    assert_eq!(report["invariants"][0]["after"], "broken", "{report}");
    // Nothing is left of it at its end.
    let ended = diff("--at 2026-12-01T09:00:00Z --no-new-access -o json");
    assert_eq!(
        (ended.code, &said(&ended)["same"]),
        (0, &json!(true)),
        "{ended:?}"
    );
}

#[test]
fn replay_decides_by_those_that_it_has_and_believes_the_recording_of_others() {
    let portcullis = set_up();
    let cause = json!({"kind": "AccessRequest", "name": "inc-1", "rule": 0});
    let line = json!({"time": "2026-12-01T08:30:00Z", "endpoint": "authorize", "cluster": "default", "caller": "api",
        "revision": "0123456789ab", "decision": "allow", "reason": "allowed by AccessRequest \"inc-1\"", "cause": cause,
        "review": {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"user": "ann",
            "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "prod", "name": "s"}}}});
    let header = "{\"portcullisRecording\":1,\"program\":\"portcullis 0.1.0\"}";
    portcullis.write(
        "recordings/recording-20261201T080000.000000Z.jsonl",
        &format!("{header}\n{line}\n"),
    );
    let replay = |manifests: &str| {
        let run = portcullis.run(&format!("replay --manifests {manifests} -o json -- recordings"));
        (run.code, said(&run))
    };
    let (code, report) = replay("both");
    assert_eq!((code, &report["changes"]), (0, &json!([])), "{report}");
    // Without it, it is not known whether the Deny would be lifted.
    let (_, report) = replay("policies");
    let all = report.to_string();
    assert!(
        all.contains("AccessRequest/inc-1 allowed it and may lift"),
        "{all}"
    );
    // Without a Deny, what nothing else decides is allowed by it as before.
    portcullis.write("plain/requests.yaml", POLICIES.split("\n---").next().unwrap());
    let (code, report) = replay("plain");
    assert_eq!((code, &report["changes"]), (0, &json!([])), "{report}");
    // A Deny that nobody may lift is a change.
    portcullis.write(
        "hard/all.yaml",
        &POLICIES.replace("liftable: true", "liftable: false"),
    );
    let (code, report) = replay("hard");
    assert_eq!(code, 1, "{report}");
    assert!(
        report.to_string().contains("AuthorizationPolicy/no-contractors"),
        "{report}"
    );
}
