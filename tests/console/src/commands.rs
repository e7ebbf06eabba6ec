//! What a view answers to programs is what the command of the same name says.

use serde_json::{Value, json};

use crate::every_page::ask_for_everything;
use crate::pages::encode;
use crate::servers::{self, NAMESPACE};

/// Takes out what differs from run to run: how long an expression took.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.to_ascii_lowercase().contains("seconds"));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[test]
fn who_can_is_the_answer_of_the_command() {
    let Some(servers) = servers::shared() else { return };
    for (verb, resource, name) in [
        ("get", "secrets", None),
        ("list", "pods", None),
        ("get", "configmaps", Some("settings")),
        ("delete", "deployments.apps/scale", None),
    ] {
        let mut query = format!("/who-can?verb={verb}&resource={resource}&namespace={NAMESPACE}");
        let mut arguments = vec!["who-can", verb, resource, "--namespace", NAMESPACE];
        if let Some(name) = name {
            query.push_str(&format!("&name={name}"));
            arguments.extend(["--name", name]);
        }
        let shown = servers.json(&query);
        assert_eq!(shown, servers.command(&arguments), "{query}");
        assert!(!shown["subjects"].as_array().unwrap().is_empty(), "{query}");
    }
    let shown = servers.json("/who-can?verb=get&resource=/version");
    assert_eq!(shown, servers.command(&["who-can", "get", "/version"]));
}

#[test]
fn what_can_is_the_answer_of_the_command() {
    let Some(servers) = servers::shared() else { return };
    for (user, group) in [
        ("alice", "developers"),
        ("carol", "contractors"),
        ("portcullis", "system:authenticated"),
    ] {
        let query = format!("/what-can?user={user}&groups={group}&namespace={NAMESPACE}");
        let arguments = [
            "what-can",
            "--user",
            user,
            "--group",
            group,
            "--namespace",
            NAMESPACE,
        ];
        assert_eq!(servers.json(&query), servers.command(&arguments), "{query}");
    }
}

#[test]
fn what_if_is_the_answer_of_authorize() {
    let Some(servers) = servers::shared() else { return };
    ask_for_everything(&servers);
    for (user, group, verb, resource) in [
        ("carol", "contractors", "get", "secrets"),
        ("alice", "developers", "list", "pods"),
        ("dora", "developers", "list", "pods"),
        ("alice", "developers", "delete", "deployments.apps/scale"),
        ("portcullis", "system:masters", "get", "nodes"),
    ] {
        let query = format!(
            "/what-if?user={user}&group={group}&verb={verb}&resource={resource}&namespace={NAMESPACE}"
        );
        let arguments = [
            "authorize",
            "--user",
            user,
            "--group",
            group,
            "--verb",
            verb,
            "--resource",
            resource,
            "--namespace",
            NAMESPACE,
        ];
        assert_eq!(servers.json(&query), servers.command(&arguments), "{query}");
    }
}

#[test]
fn what_if_with_a_manifest_is_the_answer_of_admit() {
    let Some(servers) = servers::shared() else { return };
    for name in ["is-refused", "is-taken"] {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "web"}},
        });
        let file = servers.cluster.folder().join(format!("{name}.json"));
        std::fs::write(&file, service.to_string()).unwrap();
        let form = format!(
            "manifest={}&operation=CREATE&user=dora&group=developers",
            encode(&service.to_string())
        );
        let mut shown = servers.post("/what-if", &form);
        let file = file.to_str().unwrap();
        let mut said = servers.command(&["admit", "-f", file, "--user", "dora", "--group", "developers"]);
        without_times(&mut shown);
        without_times(&mut said);
        assert_eq!(shown, said, "{name}");
    }
}
