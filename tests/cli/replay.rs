//! `portcullis replay`, of recordings written by hand. `tests/it/recording` has those of a gateway.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const FILE: &str = "recordings/recording-20261122T120000.000000Z.jsonl";

const HEADER: &str = "{\"portcullisRecording\":1,\"program\":\"portcullis 0.1.0\"}\n";

/// The policies behind what `docs/recording.md` shows.
const POLICIES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: developer}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: developer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: frozen}
spec:
  effect: Deny
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [update], apiGroups: [apps], resources: [deployments], namespaces: [shop]}]
  notAfter: 2026-12-24T00:00:00Z
  reason: no changes before Christmas
"#;

const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {address: '127.0.0.1:8443', tls: {certificate: a.crt, privateKey: a.key}}
manifests: [policies]
";

fn line(second: u32, verb: &str, user: &str) -> String {
    let line = json!({"time": format!("2026-11-22T12:00:{second:02}Z"), "endpoint": "authorize", "cluster": "default",
        "caller": "api", "revision": "0123456789ab", "decision": "allow",
        "reason": "RBAC: allowed by RoleBinding \"developers/shop\" of ClusterRole \"developer\" to User \"jane\"",
        "cause": {"kind": "RoleBinding", "namespace": "shop", "name": "developers", "rule": 0},
        "review": {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"user": user,
            "resourceAttributes": {"verb": verb, "group": "apps", "resource": "deployments", "namespace": "shop", "name": "web"}}}});
    format!("{line}\n")
}

fn set_up(recording: &str) -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/all.yaml", POLICIES);
    portcullis.write("new.yaml", CONFIGURATION);
    portcullis.write(FILE, recording);
    portcullis
}

fn recording() -> String {
    format!("{HEADER}{}{}", line(0, "get", "jane"), line(1, "update", "jane"))
}

fn said(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn changes_are_shown_as_documented() {
    let run = set_up(&recording()).run("replay --config new.yaml recordings");
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    let shown = include_str!("../../docs/recording.md");
    assert!(shown.contains(&run.stdout), "{}", run.stdout);
}

#[test]
fn the_time_is_that_of_the_recording_unless_another_is_named() {
    let portcullis = set_up(&recording());
    let changes = |arguments: &str| {
        let run = portcullis.run(&format!(
            "replay -o json --config new.yaml {arguments} recordings"
        ));
        said(&run)["changes"].as_array().unwrap().len()
    };
    assert_eq!(changes(""), 1);
    assert_eq!(changes("--at 2026-12-24T00:00:00Z"), 0);
}

#[test]
fn a_last_line_that_is_cut_off_is_left_out_and_told() {
    let whole = recording();
    let cut = &whole[..whole.len() - 20];
    let run = set_up(cut).run("replay -o json --config new.yaml recordings");
    assert_eq!(
        said(&run),
        json!({"decided": 1, "unknown": 0, "changes": [], "cut": [FILE]})
    );
    assert_eq!(run.code, 0);
    assert!(
        run.stderr
            .contains(&format!("the last line of `{FILE}` is cut off")),
        "{run:?}"
    );
    // One that only lacks its line break is whole.
    let run = set_up(whole.trim_end()).run("replay -o json --config new.yaml recordings");
    assert_eq!(said(&run)["decided"], 2);
}

#[test]
fn a_replay_that_decides_nothing_is_2_and_says_so() {
    // A process that was killed at once has left an empty file.
    for recording in ["", HEADER] {
        let run = set_up(recording).run("replay -o json --config new.yaml recordings");
        assert_eq!(
            (said(&run)["decided"].clone(), run.code),
            (json!(0), 2),
            "{run:?}"
        );
        let complaint = "no reviews in `recordings` were decided";
        assert!(run.stderr.contains(complaint), "{run:?}");
    }
}

#[test]
fn recordings_may_be_put_one_behind_the_other() {
    let whole = recording();
    let run = set_up(&format!("{whole}{whole}")).run("replay -o json --config new.yaml recordings");
    assert_eq!(
        (run.code, said(&run)["decided"].clone()),
        (1, json!(4)),
        "{run:?}"
    );
    assert_eq!(said(&run)["changes"][0]["count"], 2);
    // The first of them ends within a line.
    let cut = &whole[..whole.len() - 20];
    let run = set_up(&format!("{cut}{whole}")).run("replay -o json --config new.yaml recordings");
    assert_eq!(said(&run)["decided"], 3, "{run:?}");
    assert_eq!(said(&run)["cut"], json!([FILE]));
    let newer = whole.replacen("ng\":1", "ng\":2", 1);
    let run = set_up(&format!("{whole}{newer}")).run("replay --config new.yaml recordings");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("line 4: format 2 of recordings"), "{run:?}");
}

#[test]
fn a_denial_of_which_nobody_knows_whether_it_still_is_one_is_a_failure() {
    // What is decided of it depends on labels that are redacted.
    let policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
        metadata: {name: owner}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], \
        apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n  \
        validations: [{expression: \"object.data == {}\"}]\n---\n\
        apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
        metadata: {name: owner}\nspec: {policyName: owner, validationActions: [Deny]}\n";
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "operation": "CREATE", "name": "c", "namespace": "shop",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "userInfo": {"username": "jane"},
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": "<redacted>"}}});
    let line = |decision: &str| {
        json!({"time": "2026-11-22T12:00:00Z", "endpoint": "validate", "cluster": "default", "caller": "api",
            "revision": "0123456789ab", "decision": decision, "reason": "no", "review": review,
            "cause": {"kind": "ValidatingAdmissionPolicy", "name": "owner"}, "redacted": ["/review/request/object/data"]})
    };
    let replay = |decision: &str, flags: &str| {
        let portcullis = set_up(&format!("{HEADER}{}{}\n", recording_of_one(), line(decision)));
        portcullis.write("policies/owner.yaml", policy);
        portcullis.run(&format!("replay -o json --config new.yaml recordings {flags}"))
    };
    let allowed = replay("allow", "");
    assert_eq!(
        (allowed.code, said(&allowed)["unknown"].clone()),
        (0, json!(1)),
        "{allowed:?}"
    );
    let denied = replay("deny", "");
    assert_eq!(
        (denied.code, said(&denied)["unknown"].clone()),
        (1, json!(1)),
        "{denied:?}"
    );
    let change = &said(&denied)["changes"][0];
    assert_eq!(
        (&change["from"], &change["to"], &change["cause"]),
        (
            &json!("deny"),
            &json!("unknown"),
            &json!("ValidatingAdmissionPolicy/owner")
        )
    );
    assert_eq!(replay("deny", "--allow-changes deny->unknown").code, 0);
    let words = {
        let portcullis = set_up(&format!("{HEADER}{}{}\n", recording_of_one(), line("deny")));
        portcullis.write("policies/owner.yaml", policy);
        portcullis.run("replay --config new.yaml recordings").stdout
    };
    let heading = "deny -> unknown, no longer by ValidatingAdmissionPolicy/owner: 1\n";
    assert!(words.starts_with(heading), "{words}");
    assert!(words.ends_with("1 as before, 0 changed, 1 unknown\n"), "{words}");
}

/// A review that is decided as before.
fn recording_of_one() -> String {
    line(0, "get", "jane")
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    for (recording, complaint) in [
        (
            recording().replacen("ng\":1", "ng\":2", 1),
            "line 1: format 2 of recordings is newer than this program",
        ),
        (line(0, "get", "jane"), "line 1: this is not a recording"),
        (
            format!("{HEADER}{{\n{}", line(0, "get", "jane")),
            "line 2: invalid JSON",
        ),
        (
            recording().replacen("\"decision\"", "\"decided\"", 1),
            "line 2: `decision` is missing",
        ),
        (
            recording().replacen("\"spec\"", "\"spock\"", 1),
            "line 2: `review` is missing or has a value",
        ),
    ] {
        let run = set_up(&recording).run("replay --config new.yaml recordings");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(complaint), "`{complaint}`: {run:?}");
    }
    let portcullis = set_up(&recording());
    std::fs::create_dir(portcullis.path("none")).unwrap();
    for (arguments, complaint) in [
        ("--config new.yaml none", "there is no recording in `none`"),
        ("--config new.yaml missing.jsonl", "cannot read `missing.jsonl`"),
        ("--config missing.yaml recordings", "cannot read `missing.yaml`"),
        (
            "--config new.yaml --allow-changes ( recordings",
            "`--allow-changes (` is not a regular expression",
        ),
        ("--config new.yaml", "<RECORDING>"),
    ] {
        let run = portcullis.run(&format!("replay {arguments}"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(complaint), "`{complaint}`: {run:?}");
    }
}

#[test]
fn a_recording_comes_by_standard_input_too() {
    let portcullis = set_up("");
    let arguments = ["replay", "-o", "json", "--manifests", "policies", "--", "-"];
    let run = portcullis.run_with(&arguments, &recording());
    assert_eq!(said(&run)["decided"], 2, "{run:?}");
    assert_eq!(said(&run)["changes"][0]["example"]["file"], "-");
}

#[test]
fn check_says_what_serve_would_refuse_to_record_to() {
    let portcullis = set_up("");
    let check = |recording: &str| {
        portcullis.write("new.yaml", &format!("{CONFIGURATION}recording: {recording}\n"));
        portcullis.run("check --config new.yaml").stdout
    };
    std::fs::create_dir(portcullis.path("open")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
    std::fs::set_permissions(portcullis.path("open"), mode).unwrap();
    std::os::unix::fs::symlink(portcullis.path("policies"), portcullis.path("link")).unwrap();
    portcullis.write("file", "");
    for (recording, fault) in [
        (
            "{folder: policies}",
            "new.yaml:5: recording.folder: Invalid value: these files must not be in a folder of manifests",
        ),
        (
            "{folder: policies/below}",
            "new.yaml:5: recording.folder: Invalid value: these files must not be in a",
        ),
        (
            "{folder: .}",
            "new.yaml:5: recording.folder: Invalid value: these files must not be in a",
        ),
        (
            "{folder: link/below}",
            "recording.folder: Invalid value: these files must not be in a",
        ),
        (
            "{folder: open}",
            "recording.folder: Invalid value: others may use",
        ),
        ("{folder: file}", "recording.folder: Invalid value: `"),
        ("{maxBytes: 1Gi}", "new.yaml:5: recording.folder: Required value"),
        (
            "{folder: r, maxBytes: 1k}",
            "new.yaml:5: recording.maxBytes: Invalid value: `1k`: must be a whole number of bytes from `1Mi`",
        ),
        (
            "{folder: r, maxAge: 1s}",
            "new.yaml:5: recording.maxAge: Invalid value: must be at least `1m`",
        ),
        (
            "{folder: r, redact: [a, 'configmaps:data']}",
            "new.yaml:5: recording.redact[1]: Invalid value: `configmaps:data`",
        ),
        ("{folder: r, redacts: []}", "new.yaml:5: recording.redacts: "),
    ] {
        let said = check(recording);
        assert!(said.contains(fault), "`{fault}`: {said}");
    }
    // Nor does what was decided wait for a collector where others may read or write it.
    portcullis.write(
        "new.yaml",
        &format!("{CONFIGURATION}tracing: {{endpoint: 'http://a:1', logs: true, spool: {{folder: open}}}}\n"),
    );
    let said = portcullis.run("check --config new.yaml").stdout;
    let fault = "new.yaml: tracing.spool.folder: Invalid value: others may use";
    assert!(said.contains(fault), "{said}");
    let said = check("{folder: r, maxBytes: 2097152, maxAge: 1m, redact: ['configmaps:.data']}");
    assert!(!said.contains("recording"), "{said}");
}

#[test]
fn what_callers_with_a_path_token_claim_is_decided_only_if_it_is_asked_for() {
    let claimed = line(2, "update", "jane").replace(r#""caller":"api""#, r#""caller":"pathToken""#);
    let portcullis = set_up(&format!("{HEADER}{}{claimed}", line(0, "get", "jane")));
    let run = portcullis.run("replay -o json --config new.yaml recordings");
    assert_eq!((run.code, &said(&run)["decided"]), (0, &json!(1)), "{run:?}");
    assert!(
        run.stderr
            .contains("1 review of callers with a path token were skipped"),
        "{run:?}"
    );
    let run = portcullis.run("replay -o json --config new.yaml recordings --with-path-token");
    assert_eq!((run.code, &said(&run)["decided"]), (1, &json!(2)), "{run:?}");
}

/// A row of usage about what [`line`] asks.
fn row(verb: &str, decision: &str, count: u64) -> String {
    format!(
        "{{\"cluster\":\"default\",\"user\":\"jane\",\"groupsDigest\":\"729c9acd4757964d2ea5deb7b9d0c206\",\
         \"endpoint\":\"authorize\",\"attributes\":{{\"verb\":\"{verb}\",\"namespace\":\"shop\",\"group\":\"apps\",\
         \"resource\":\"deployments\",\"name\":\"web\"}},\"decision\":\"{decision}\",\"count\":{count},\
         \"first\":\"2026-11-{count:02}T08:00:00Z\",\"last\":\"2026-11-{count:02}T09:00:00Z\"}}\n"
    )
}

#[test]
fn usage_weighs_what_changes() {
    let twice = recording() + &line(2, "update", "jane");
    let portcullis = set_up(&twice);
    let usage = "{\"portcullisUsage\":1}\n";
    let files = [
        ("east", [row("update", "allow", 20), row("get", "allow", 3)]),
        ("west", [row("update", "noOpinion", 2), row("delete", "allow", 4)]),
    ];
    for (name, rows) in files {
        let path = format!("usage/usage-20261121T08Z-{name}.jsonl");
        portcullis.write(&path, &(usage.to_owned() + &rows.concat()));
    }
    let run = portcullis.run("replay --config new.yaml recordings --weigh usage");
    let expected = "allow -> deny by AuthorizationPolicy/frozen: 2\n  \
                    asked 22 times from 2026-11-02T08:00:00Z to 2026-11-20T09:00:00Z (1 different question)\n";
    assert!(run.stdout.starts_with(expected), "{run:?}");
    let run = portcullis.run("replay --config new.yaml recordings --weigh usage -o json");
    assert_eq!(
        said(&run)["changes"][0]["asked"],
        json!({"count": 22, "questions": 1, "first": "2026-11-02T08:00:00Z", "last": "2026-11-20T09:00:00Z"})
    );

    portcullis.write(
        "other/usage-20261121T08Z-a.jsonl",
        &(usage.to_owned() + &row("get", "allow", 3)),
    );
    let run = portcullis.run("replay --config new.yaml recordings --weigh other");
    assert!(
        run.stdout
            .contains("\n  never requested in the files of usage (1 different question)\n"),
        "{run:?}"
    );
    portcullis.write(
        "other/usage-20261121T08Z-a.jsonl",
        &(usage.to_owned() + "no row\n"),
    );
    let run = portcullis.run("replay --config new.yaml recordings --weigh other");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("usage-20261121T08Z-a.jsonl:2: not a row of usage"),
        "{run:?}"
    );
    let run = portcullis.run("replay --config new.yaml recordings");
    assert!(!run.stdout.contains("asked"), "{run:?}");
}

#[test]
fn a_packed_recording_is_replayed_like_its_lines() {
    let portcullis = set_up(&recording());
    let packed = portcullis.run("pack recordings --into packed");
    assert_eq!(packed.code, 0, "{packed:?}");
    assert!(packed.stdout.contains("2 reviews in 1 file"), "{packed:?}");
    let replayed = |what: &str| {
        let run = portcullis.run(&format!("replay --config new.yaml {what} -o json"));
        let mut report: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        // Where it was read.
        for name in ["file", "line"] {
            report["changes"][0]["example"][name].take();
        }
        (run.code, report)
    };
    let of_lines = replayed("recordings");
    assert_eq!(of_lines.0, 1);
    assert_eq!(replayed("packed"), of_lines);
    // Each file is in one part.
    assert_eq!(replayed("packed recordings --shard 1/2"), of_lines);
    assert_eq!(replayed("packed recordings --shard 2/2"), of_lines);
    let run = portcullis.run("replay --config new.yaml packed --shard 0/2");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("such as 1/4"), "{run:?}");
    let run = portcullis.run("suggest packed");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("`portcullis replay` reads it"), "{run:?}");
}

/// Reviews that are asked over and over, by several files, before and after the Deny ends; with `marked`, each
/// with a member of its own, so that none is equal to another.
fn repeated(portcullis: &Portcullis, folder: &str, marked: bool) {
    for file in 0..7 {
        let mut text = HEADER.to_owned();
        for number in 0..60 {
            let user = ["jane", "joe", "jill"][number % 3];
            let mut review = line(
                u32::try_from(number).unwrap(),
                ["get", "update"][number / 3 % 2],
                user,
            );
            if number % 20 > 10 {
                review = review.replacen("2026-11-22", "2026-12-25", 1);
            }
            if number % 7 == file {
                review = review.replacen("\"allow\"", "\"noOpinion\"", 1);
            }
            if marked {
                review = review.replacen('{', &format!("{{\"mark\":\"{file}-{number}\","), 1);
            }
            text += &review;
        }
        portcullis.write(
            &format!("{folder}/recording-2026112{file}T120000.000000Z.jsonl"),
            &text,
        );
    }
}

#[test]
fn equal_reviews_are_decided_once_and_the_report_is_that_of_deciding_each() {
    let portcullis = set_up(&recording());
    repeated(&portcullis, "equal", false);
    repeated(&portcullis, "marked", true);
    portcullis.write(
        "usage/usage-20261121T08Z-east.jsonl",
        &format!("{{\"portcullisUsage\":1}}\n{}", row("update", "allow", 20)),
    );
    let replayed = |arguments: &str, folder: &str| {
        let run = portcullis.run(&format!("replay --config new.yaml {folder} {arguments}"));
        assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
        run.stdout.replace(folder, "folder")
    };
    for arguments in [
        "",
        "-o json",
        "-o json --at 2026-12-25T00:00:00Z",
        "-o json --weigh usage",
        "-o junit",
    ] {
        let each = replayed(&format!("{arguments} --jobs 1"), "marked");
        for jobs in [1, 3] {
            let once = replayed(&format!("{arguments} --jobs {jobs}"), "equal");
            assert_eq!(once, each, "{arguments}, {jobs} jobs");
        }
    }
    let report: Value = serde_json::from_str(&replayed("-o json", "equal")).unwrap();
    assert_eq!(report["decided"], 420);
    // The Deny of November, and what nobody allows.
    let changes = report["changes"].as_array().unwrap();
    assert!(changes.len() > 2, "{report}");
    assert_eq!(report["changes"][0]["example"]["line"], 3, "{report}");
    let run = portcullis.run("replay --config new.yaml equal --jobs 17");
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn of_several_files_that_cannot_be_read_the_first_is_named() {
    let portcullis = set_up(&recording());
    repeated(&portcullis, "equal", false);
    for file in [3, 5] {
        let path = format!("equal/recording-2026112{file}T120000.000000Z.jsonl");
        portcullis.write(&path, &format!("{HEADER}no line\n"));
    }
    for jobs in [1, 2, 7] {
        let run = portcullis.run(&format!("replay --config new.yaml equal --jobs {jobs}"));
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(
            run.stderr
                .contains("recording-20261123T120000.000000Z.jsonl`, line 2"),
            "{run:?}"
        );
    }
}
