//! Without the programs.

use std::env;

pub(crate) fn without_the_programs_a_test_is_ignored_and_fails_where_they_are_required() {
    let empty = tempfile::tempdir().unwrap();
    let run = |required: &str| {
        std::process::Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "reload::the_next_request_is_decided_by_the_policies_just_loaded",
            ])
            .env("KUBEBUILDER_ASSETS", empty.path())
            .env("PORTCULLIS_REQUIRE_APISERVER", required)
            .output()
            .unwrap()
    };
    let without = run("0");
    let said = String::from_utf8(without.stdout).unwrap();
    assert!(without.status.success(), "{said}");
    assert!(said.contains("0 passed; 0 failed; 1 ignored"), "{said}");
    assert!(!run("1").status.success());
}
