//! Flags of kube-apiserver: what they name is among the examples.

use std::path::Path;

use serde_json::Value;

use crate::project::{self, ON_API_SERVER};

/// The flags of a kubeadm configuration as name and value, in either version's form.
fn flags(name: &str) -> Vec<(String, String)> {
    let path = project::path("kubeconfig-examples").join(name);
    let arguments = project::documents(&path)[0].root().to_json()["apiServer"]["extraArgs"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match arguments {
        Value::Array(list) => list
            .iter()
            .map(|one| (text(&one["name"]), text(&one["value"])))
            .collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn every_file_that_a_flag_names_is_there_and_in_the_readme() {
    let readme = project::text(&project::path("kubeconfig-examples/README.md"));
    for file in ["kubeadm.yaml", "kubeadm-legacy.yaml"] {
        let mut files = 0;
        for (flag, value) in flags(file) {
            let Ok(name) = Path::new(&value).strip_prefix(ON_API_SERVER) else {
                continue;
            };
            assert!(
                project::path("kubeconfig-examples").join(name).is_file(),
                "--{flag}={value}"
            );
            assert!(readme.contains(&format!("--{flag}")), "--{flag}");
            files += 1;
        }
        assert_eq!(files, 2, "{file}");
    }
}

#[test]
fn the_two_ways_to_configure_authorization_are_not_mixed() {
    let names = |file| flags(file).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let structured = names("kubeadm.yaml");
    assert!(structured.contains(&"authorization-config".to_owned()));
    assert!(
        !structured
            .iter()
            .any(|name| name.starts_with("authorization-webhook") || name == "authorization-mode")
    );
    let legacy = flags("kubeadm-legacy.yaml");
    assert!(legacy.contains(&("authorization-mode".to_owned(), "Webhook,Node,RBAC".to_owned())));
    assert!(!legacy.iter().any(|(name, _)| name == "authorization-config"));
}

#[test]
fn every_example_is_in_the_readme() {
    let readme = project::text(&project::path("kubeconfig-examples/README.md"));
    for ending in [".yaml", ".kubeconfig"] {
        for file in project::files(&project::path("kubeconfig-examples"), ending) {
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(readme.contains(&format!("`{name}`")), "{name}");
        }
    }
}
