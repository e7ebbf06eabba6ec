//! What commands read: the files that kubectl takes, regular files alone, and something at all.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::run::{Portcullis, Run};

const POLICIES: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: \"'owner' in object.metadata.?labels.orValue({})\", message: no owner}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner}
spec: {policyName: owner, validationActions: [Deny]}
";

fn pod(name: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: []}}\n")
}

/// A folder `app` as people have it: hidden files and folders, links.
fn folder_of_all_sorts() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("policies/owner.yaml", POLICIES);
    for (path, name) in [
        ("app/a.yaml", "a"),
        ("app/.b.yaml", "b"),
        ("app/.hidden/c.json", "c"),
        ("app/sub/.yaml", "d"),
        ("app/..2026_12_01/e.yml", "e"),
        ("elsewhere/f.yaml", "f"),
    ] {
        portcullis.write(path, &pod(name));
    }
    portcullis.write("app/note.txt", "no manifest");
    // What Kubernetes makes of a mounted ConfigMap, a folder elsewhere, and a way back.
    symlink("..2026_12_01", portcullis.path("app/..data")).unwrap();
    symlink("..data/e.yml", portcullis.path("app/e.yml")).unwrap();
    symlink("../elsewhere", portcullis.path("app/linked")).unwrap();
    symlink("../app", portcullis.path("app/again")).unwrap();
    portcullis
}

#[test]
fn a_folder_has_the_files_that_kubectl_takes() {
    let portcullis = folder_of_all_sorts();
    let run = portcullis.run("scan --manifests policies -f app");
    assert_eq!(run.code, 1, "{run:?}");
    for name in ["a", "b", "c", "d", "e", "f"] {
        let judged = run.stdout.matches(&format!("Pod/default/{name}: fail")).count();
        assert_eq!(judged, 1, "{name}: {run:?}");
    }
    let faulty = "apiVersion: portcullis.dev/v1alpha1\nkind: Nothing\n";
    for path in ["checked/.b.yaml", "checked/.hidden/c.yaml"] {
        let portcullis = Portcullis::new();
        portcullis.write("checked/a.yaml", POLICIES);
        portcullis.write(path, faulty);
        let run = portcullis.run("check checked");
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stdout.contains(path), "{run:?}");
        let run = portcullis.run("convert checked");
        assert!(run.stderr.contains("there are no policies"), "{run:?}");
    }
}

#[test]
fn a_folder_of_the_gateway_has_none_that_begin_with_a_dot() {
    let portcullis = folder_of_all_sorts();
    portcullis.write("policies/.hidden.yaml", "kind: [");
    let run = portcullis.run("scan --manifests policies -f app/a.yaml");
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
}

/// One that nobody writes to: what opens it to read waits.
fn fifo(portcullis: &Portcullis, path: &str) {
    let made = Command::new("mkfifo").arg(portcullis.path(path)).status();
    assert!(made.unwrap().success());
}

fn complained(run: &Run, code: i32, complaint: &str) {
    assert_eq!(run.code, code, "{run:?}");
    let said = format!("{}{}", run.stdout, run.stderr);
    assert!(said.contains(complaint), "`{complaint}`: {run:?}");
}

#[test]
fn only_regular_files_are_read() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/owner.yaml", POLICIES);
    portcullis.write("pod.yaml", &pod("a"));
    fifo(&portcullis, "fifo");
    for (file, what) in [("fifo", "a named pipe (FIFO)"), ("/dev/zero", "a device")] {
        for command in [
            "replay FILE --manifests policies",
            "replay recording --manifests FILE",
            "suggest FILE",
            "check FILE",
            "check --config FILE",
            "convert FILE",
            "test FILE",
            "authorize --manifests policies --review FILE",
            "authorize --user a --verb get --resource pods --manifests FILE",
            "admit --manifests policies --review FILE",
            "admit --manifests policies -f FILE",
            "admit --manifests policies -f pod.yaml --operation UPDATE --old FILE",
            "admit --manifests policies -f pod.yaml --answers FILE",
            "scan --manifests policies -f FILE",
            "who-can get pods --manifests FILE",
            "serve --config FILE",
        ] {
            let run = portcullis.run(&command.replace("FILE", file));
            complained(&run, 2, &format!("{what}; it must be a regular file"));
        }
    }
}

#[test]
fn a_decision_log_is_a_regular_file() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let configuration = std::fs::read_to_string(portcullis.path("gateway/portcullis.yaml")).unwrap();
    fifo(&portcullis, "gateway/decisions");
    for (path, what) in [("decisions", "a named pipe (FIFO)"), ("/dev/null", "a device")] {
        let with_log = configuration.replace("path: \"-\"", &format!("path: {path}"));
        portcullis.write("gateway/portcullis.yaml", &with_log);
        for command in ["check", "serve"] {
            let run = portcullis.run(&format!("{command} --config gateway/portcullis.yaml"));
            complained(&run, 1, &format!("is {what}; it must be a regular file"));
        }
    }
}

#[test]
fn a_line_of_a_recording_is_bounded() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/owner.yaml", POLICIES);
    portcullis.write("recording", "{\"portcullisRecording\":1}\n");
    // A line of 200 MB that takes no room on the disk.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(portcullis.path("recording"));
    file.unwrap().set_len(200 << 20).unwrap();
    let run = portcullis.run("replay recording --manifests policies");
    complained(
        &run,
        2,
        "cannot replay `recording`, line 2: the line is longer than 134217728 bytes",
    );
}

#[test]
fn what_reads_nothing_says_so() {
    let portcullis = Portcullis::new();
    portcullis.write("policies/owner.yaml", POLICIES);
    portcullis.write("comments/a.yaml", "# nothing\n---\n");
    portcullis.write("empty.log", "");
    portcullis.write(
        "suite_test.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [policies]\ncases: []\n",
    );
    std::fs::create_dir(portcullis.path("empty")).unwrap();
    for (command, complaint) in [
        (
            "check empty",
            "nothing was checked: there are no objects in `empty`",
        ),
        (
            "check suite_test.yaml",
            "there are no objects in `suite_test.yaml`",
        ),
        (
            "test empty",
            "there are no documents of kind PolicyTest in `empty`",
        ),
        (
            "diff empty comments",
            "nothing was compared: neither OLD nor NEW has a binding or an AuthorizationPolicy",
        ),
        (
            "check comments empty",
            "there are no objects in `comments`, `empty`",
        ),
        ("suggest empty.log", "there is no decision in `empty.log`"),
        (
            "suggest empty.log --cluster east",
            "there is no decision of the cluster `east` in `empty.log`",
        ),
    ] {
        let run = portcullis.run(command);
        complained(&run, 2, complaint);
        assert_eq!(run.stdout, "", "{run:?}");
    }
    // One of several is enough.
    assert_eq!(portcullis.run("check policies empty").code, 0);
}
