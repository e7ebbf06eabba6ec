//! Policies: `config/policies`, `config/examples`, and that for discovery.

use std::process::Command;

use crate::project::{self, SetUp};

#[test]
fn every_example_is_sound_alone_and_together() {
    let all = project::files(&project::path("config/policies"), ".yaml");
    for file in &all {
        project::sound_manifests(std::slice::from_ref(file));
    }
    project::sound_manifests(&all);
    project::sound_manifests(&[project::path("kubeconfig-examples/discovery.yaml")]);
}

#[test]
fn every_policy_for_admission_is_sound_with_its_neighbours() {
    for folder in [
        "config/examples",
        "config/policies/pod-security/baseline",
        "config/policies/pod-security/restricted",
    ] {
        project::sound_manifests(&project::files(&project::path(folder), ".yaml"));
    }
}

#[test]
fn what_the_user_of_the_gateway_may_do_is_sound() {
    let mut files = project::files(&project::path("config/cluster"), ".yaml");
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    project::sound_manifests(&files);
}

#[test]
fn every_example_has_cases_beside_it() {
    for file in project::files(&project::path("config/policies"), ".yaml") {
        let name = file.to_string_lossy();
        if !name.ends_with("_test.yaml") {
            let suite = name.replace(".yaml", "_test.yaml");
            assert!(std::path::Path::new(&suite).is_file(), "{suite}");
        }
    }
}

#[test]
fn init_installs_every_example_with_a_suite_and_in_shadow_where_it_denies() {
    let set_up = SetUp::with(&["--examples"]);
    for file in project::files(&project::path("config/policies"), ".yaml") {
        let name = file.file_name().unwrap().to_str().unwrap();
        let installed = project::text(&set_up.path("policies").join(name));
        if name.ends_with("_test.yaml") {
            continue;
        }
        let is_shadow = |line: &&str| line.contains("mode: Shadow") || line.contains("# Evaluated, logged");
        let enforced: Vec<&str> = installed.lines().filter(|line| !is_shadow(line)).collect();
        let example = project::text(&file);
        let example: Vec<&str> = example.lines().filter(|line| !is_shadow(line)).collect();
        assert_eq!(enforced, example, "{name}");
        assert_eq!(
            installed.matches("effect: Deny").count(),
            installed.matches("mode: Shadow").count(),
            "{name}"
        );
    }
}

#[test]
fn every_case_passes() {
    let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("test")
        .arg(project::path("config/policies"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(!said.starts_with("0 passed"), "{said}");
}
