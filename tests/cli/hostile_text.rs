//! What others wrote (names, messages, expressions, files' names, arguments) acts on nobody who
//! reads what a command says: not on a terminal, not on a CI service, and it begins no line.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

/// Moves a terminal's cursor, turns text around, begins lines, gives commands to CI services.
const HOSTILE: &str = "x\u{1b}[31m\u{9b}2J\u{8}\u{7f}\u{202e}\u{2066}\u{200f}\r::error::FORGED\n::error::FORGED\n  ::error::FORGED\nFORGED\u{85}FORGED\u{2028}FORGED ##[error]FORGED ##vso[task]y";

/// `value`, in JSON that is YAML too: without any character that YAML forbids.
fn written(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            ' '..='~' => text.push(c),
            c => write!(text, "\\u{:04x}", u32::from(c)).unwrap(),
        }
    }
    text + "\n"
}

fn stream(objects: &[Value]) -> String {
    objects
        .iter()
        .map(|object| format!("---\n{}", written(object)))
        .collect()
}

fn access() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let rule = json!({"verbs": ["get", HOSTILE], "apiGroups": ["", HOSTILE], "resources": ["secrets", HOSTILE], "resourceNames": [HOSTILE]});
    let user = json!({"apiGroup": rbac, "kind": "User", "name": HOSTILE});
    vec![
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": HOSTILE}, "rules": [rule]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": HOSTILE},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": HOSTILE}, "subjects": [user]}),
        json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "guard"},
            "spec": {"effect": "Deny", "subjects": [{"kind": "User", "name": HOSTILE}, {"kind": "User", "name": "jane"}],
                "resourceRules": [{"verbs": ["delete", HOSTILE], "apiGroups": ["apps"], "resources": ["deployments"], "names": ["web", HOSTILE]}],
                "conditions": [{"name": "c", "expression": format!("request.user != {}", written(&json!(HOSTILE)).trim())}],
                "reason": HOSTILE}}),
    ]
}

fn admission() -> Vec<Value> {
    let api = "admissionregistration.k8s.io/v1";
    let quoted = written(&json!(HOSTILE));
    vec![
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "owner"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
            "variables": [{"name": "v", "expression": quoted.trim()}],
            "validations": [
                {"expression": format!("object.metadata.?labels.owner.orValue('') == {}", quoted.trim()), "message": HOSTILE},
                {"expression": "false", "messageExpression": "variables.v + string(object.metadata.?labels.a.orValue(''))"},
            ],
            "auditAnnotations": [{"key": "k", "valueExpression": "variables.v"}]}}),
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "owner"},
            "spec": {"policyName": "owner", "validationActions": ["Deny", "Audit"]}}),
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "owner-warns"},
            "spec": {"policyName": "owner", "validationActions": ["Warn"]}}),
    ]
}

fn pods() -> Vec<Value> {
    let metadata = json!({"name": HOSTILE, "namespace": HOSTILE, "labels": {"a": HOSTILE, HOSTILE: "b"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}});
    let custom = json!({"apiVersion": "example.com/v1", "kind": HOSTILE, "metadata": metadata});
    vec![pod, custom]
}

/// Policies with faults, in as many places as there are.
fn faulty() -> Vec<Value> {
    vec![
        json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": HOSTILE, "metadata": {"name": HOSTILE}}),
        json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": HOSTILE},
            "spec": {"effect": HOSTILE, HOSTILE: HOSTILE, "subjects": [{"kind": HOSTILE, "name": HOSTILE}],
                "resourceRules": [{"verbs": [HOSTILE], "apiGroups": [HOSTILE], "resources": [HOSTILE]}],
                "conditions": [{"name": HOSTILE, "expression": HOSTILE}]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": HOSTILE},
            "spec": {"validations": [{"expression": HOSTILE, "reason": HOSTILE}], "failurePolicy": HOSTILE}}),
    ]
}

fn log() -> String {
    let line = |cause: Value| {
        json!({"time": HOSTILE, "revision": "a", "cluster": "default", "caller": "a", "endpoint": "authorize", "uid": "",
            "user": HOSTILE, "groups": [HOSTILE], "decision": "allow", "reason": HOSTILE, "shadow": [], "cause": cause,
            "attributes": {"verb": "get", "namespace": "shop", "resource": "pods", "name": HOSTILE}, "durationSeconds": 0})
    };
    let by_rbac = line(json!({"kind": "RoleBinding", "namespace": "shop", "name": HOSTILE, "rule": 0}));
    let by_policy = line(json!({"kind": "AuthorizationPolicy", "name": HOSTILE, "rule": 0}));
    format!("{by_rbac}\n{by_policy}\n{{\"{HOSTILE}\n")
}

fn recording() -> String {
    let line = json!({"time": "2026-11-22T12:00:00Z", "endpoint": "authorize", "cluster": "default", "caller": HOSTILE,
        "revision": "a", "decision": "allow", "reason": HOSTILE,
        "cause": {"kind": "RoleBinding", "namespace": HOSTILE, "name": HOSTILE, "rule": 0},
        "review": {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"user": HOSTILE,
            "resourceAttributes": {"verb": "delete", "group": "apps", "resource": "deployments", "namespace": HOSTILE, "name": HOSTILE}}}});
    format!("{{\"portcullisRecording\":1}}\n{line}\n")
}

fn suite(expected: &str) -> Value {
    let request = json!({"user": HOSTILE, "verb": "get", "resource": "secrets", "name": HOSTILE});
    json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "PolicyTest", "metadata": {"name": HOSTILE}, "manifests": ["policies"],
        "cases": [{"name": HOSTILE, "request": request, "expect": {"decision": expected, "reason": HOSTILE, "cause": HOSTILE}},
            {"name": HOSTILE, "review": {"object": pods()[0]}, "expect": {"allowed": true, "message": HOSTILE, "object": {HOSTILE: HOSTILE}}}]})
}

fn kyverno() -> Value {
    json!({"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "a", "labels": {HOSTILE: HOSTILE}, "annotations": {HOSTILE: HOSTILE}},
        "spec": {"validationActions": ["Deny"], "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
            "validations": [{"expression": "false", "message": HOSTILE}]}})
}

/// Each command, in so many ways.
fn commands() -> Vec<Vec<&'static str>> {
    let file = "FILE";
    vec![
        vec![
            "authorize",
            "--manifests",
            "policies",
            "--user",
            HOSTILE,
            "--group",
            HOSTILE,
            "--verb",
            HOSTILE,
            "--resource",
            HOSTILE,
            "-n",
            HOSTILE,
            "--name",
            HOSTILE,
        ],
        vec![
            "authorize",
            "--manifests",
            "policies",
            "--user",
            "jane",
            "--verb",
            "delete",
            "--resource",
            "deployments.apps",
            "--name",
            "web",
        ],
        vec![
            "authorize",
            "--manifests",
            "policies",
            "--verb",
            "get",
            "--resource",
            "pods",
            "-l",
            HOSTILE,
        ],
        vec!["authorize", "--manifests", file, "--at", HOSTILE],
        vec!["authorize", "--config", HOSTILE],
        vec!["authorize", HOSTILE],
        vec![HOSTILE],
        vec!["admit", "--manifests", "policies", "-f", "pods.yaml"],
        vec!["admit", "--manifests", "policies", "-f", file],
        vec!["admit", "--manifests", "policies", "--review", file],
        vec![
            "admit",
            "--manifests",
            "policies",
            "-f",
            "pods.yaml",
            "--policy",
            HOSTILE,
        ],
        vec!["scan", "--manifests", "policies", "-f", "pods.yaml"],
        vec!["scan", "--manifests", "policies", "-f", file],
        vec!["scan", "--manifests", "faulty", "-f", "pods.yaml"],
        vec!["check", "policies"],
        vec!["check", "faulty"],
        vec!["check", file],
        vec!["check", "--config", "config.yaml"],
        vec!["check", "--migrate", "faulty"],
        vec!["test", "suite.yaml"],
        vec!["test", "suite.yaml", "--coverage", "-v"],
        vec!["test", "suite.yaml", "--run", HOSTILE],
        vec!["test", file],
        vec!["who-can", "get", "secrets", "--manifests", "policies"],
        vec![
            "bundle",
            "build",
            "FILE",
            "--name",
            "policies",
            "--sequence",
            "1",
            "--into",
            "bundle",
        ],
        vec!["diff", "policies", "none"],
        vec!["diff", "none", "policies", "-o", "markdown"],
        vec!["diff", "FILE", "policies"],
        vec!["escalations", "--manifests", "policies"],
        vec!["escalations", "--from", "FILE", "--manifests", "policies"],
        vec![
            "who-can",
            HOSTILE,
            HOSTILE,
            "-n",
            HOSTILE,
            "--manifests",
            "policies",
        ],
        vec!["what-can", "--user", HOSTILE, "--manifests", "policies"],
        vec![
            "what-can",
            "--user",
            HOSTILE,
            "-o",
            "wide",
            "--manifests",
            "policies",
        ],
        vec!["suggest", "log", "--manifests", "policies"],
        vec!["suggest", "log", "--all", "--manifests", "policies"],
        vec!["suggest", file],
        vec![
            "request",
            "edit",
            "--for",
            "1h",
            "--reason",
            "r",
            "--kubeconfig",
            HOSTILE,
        ],
        vec!["request", "edit", "--for", HOSTILE, "--reason", "r"],
        vec!["approve", HOSTILE, "--kubeconfig", HOSTILE],
        vec!["deny", HOSTILE, "--kubeconfig", HOSTILE],
        vec!["withdraw", HOSTILE, "--kubeconfig", HOSTILE],
        vec!["register", "-f", HOSTILE, "--kubeconfig", HOSTILE],
        vec!["replay", "recording", "--manifests", "policies"],
        vec!["replay", file, "--manifests", "policies"],
        vec![
            "replay",
            "--manifests",
            "policies",
            "--allow-changes",
            "[",
            "recording",
        ],
        vec!["convert", "kyverno.yaml", "policies"],
        vec!["convert", "faulty"],
        vec!["pack", "log", "recording", "--into", "packed"],
        vec!["pack", file, "--into", "packed"],
        vec!["suggest", "packed\u{1b}[31m\n::error::FORGED"],
        vec!["serve", "--config", "config.yaml"],
        vec!["serve", "--config", HOSTILE],
        vec!["init", "set up\u{1b}[31m\n::error::FORGED"],
        vec!["init", "a", "--host", HOSTILE],
        vec!["completion", HOSTILE],
        vec!["man", "pages\u{1b}[31m\n::error::FORGED"],
    ]
}

fn set_up() -> (Portcullis, String) {
    let portcullis = Portcullis::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    portcullis.write("none/role.yaml", &stream(&[role]));
    portcullis.write("policies/access.yaml", &stream(&access()));
    portcullis.write("policies/admission.yaml", &stream(&admission()));
    portcullis.write("faulty/all.yaml", &stream(&faulty()));
    portcullis.write("pods.yaml", &stream(&pods()));
    portcullis.write("log", &log());
    portcullis.write("recording", &recording());
    portcullis.write("suite.yaml", &written(&suite("deny")));
    portcullis.write("kyverno.yaml", &written(&kyverno()));
    let key = written(
        &json!({HOSTILE: HOSTILE, "apiVersion": "config.portcullis.dev/v1alpha1", "kind": "GatewayConfiguration",
        "server": {"address": HOSTILE, "tls": {"certificate": HOSTILE, "privateKey": HOSTILE}}, "manifests": ["policies", HOSTILE]}),
    );
    portcullis.write("config.yaml", &key);
    // A name without `/`, with what a manifest's name ends with.
    let named = format!("{}.yaml", HOSTILE.replace('/', ""));
    portcullis.write(&named, &format!("{}: [", written(&json!(HOSTILE)).trim()));
    (portcullis, named)
}

/// What in `text` acts, if anything does.
fn acting(text: &str) -> Option<String> {
    let is_acting = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if let Some(c) = text.chars().find(|c| is_acting(*c)) {
        return Some(format!("{c:?}"));
    }
    let is_forged = |line: &&str| {
        let line = line.trim_start_matches(['#', ' ']);
        line.starts_with("::") || line.starts_with("FORGED")
    };
    let forged = text.lines().find(is_forged).map(str::to_owned);
    let commands = ["##[", "##vso["].into_iter();
    forged.or_else(|| commands.map(str::to_owned).find(|command| text.contains(command)))
}

#[test]
fn no_command_says_what_acts_on_its_reader() {
    let (portcullis, named) = set_up();
    let mut quoted = BTreeSet::new();
    for command in commands() {
        let arguments: Vec<&str> = command
            .iter()
            .map(|argument| if *argument == "FILE" { &named } else { *argument })
            .collect();
        let Run { stdout, stderr, .. } = portcullis.run_with(&arguments, "");
        for said in [&stdout, &stderr] {
            assert_eq!(acting(said), None, "{arguments:?}:\n{said}");
        }
        // The rest is worth nothing unless it quotes what is hostile.
        if format!("{stdout}{stderr}").contains("FORGED") {
            quoted.insert(command[0]);
        }
    }
    let help = portcullis.run("--help").stdout;
    let (commands, _) = help.split_once("Without a command").unwrap();
    let listed = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names: BTreeSet<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let unproven: Vec<&&str> = names
        .iter()
        .filter(|name| {
            name.starts_with(|c: char| c.is_ascii_lowercase()) && **name != "help" && !quoted.contains(**name)
        })
        .collect();
    assert!(unproven.is_empty(), "{unproven:?}");
}
