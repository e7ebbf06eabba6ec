//! Kubernetes' test vectors, applied to Portcullis.
//!
//! `cargo test --test conformance` reads every JSON file of `tests/vectors/`
//! and of the folders named in `CONFORMANCE_VECTORS` (colon-separated), and
//! prints for each file and check how many cases passed of those run, and what
//! was skipped and why:
//!
//! ```text
//! vectors rbac.json authorize 56/56
//! vectors selectors.json nodeAuthorizer skipped 14: …
//! ```
//!
//! Run and skipped together are all cases of a file; a check that neither
//! [`CHECKS`] nor [`SKIPS`] knows fails.
//!
//! To add a check: write `fn name(case: &Case<'_>) -> Result<(), Mismatch>` into
//! the file named for its vectors, which gathers its own in a `CHECKS` table,
//! name that table in [`CHECKS`] here, and take the check's row out of [`SKIPS`].

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "in a test, a panic is a failure"
)]

mod agnhost;
mod authorizers;
mod conditions;
mod decisions;
mod expressions;
mod harness;
mod matching;
mod nonresource;
mod policy;
mod rbac;
mod reviews;
mod sar;
mod selectors;
mod skips;
#[path = "../harness/mod.rs"]
mod tools;
mod upstreams;
mod validation;
mod webhooks;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use harness::{Report, Table};
use skips::SKIPS;

/// Every check that has a counterpart, by the file of its vectors. A file may have several tables.
const CHECKS: &[(&str, Table)] = &[
    ("admission_request.json", reviews::REQUESTS),
    ("admission_request.json", upstreams::ENVELOPE),
    ("agnhost.json", agnhost::CHECKS),
    ("authz_config.json", authorizers::CONFIGURATION),
    ("cel_evaluation.json", expressions::EVALUATION),
    ("kubeconfig_auth.json", upstreams::CREDENTIALS),
    ("match_conditions.json", conditions::CHECKS),
    ("match_conditions.json", expressions::CONDITIONS),
    ("match_conditions.json", decisions::CONDITIONS),
    ("dispatch.json", webhooks::DISPATCH),
    ("map_patches.json", policy::PATCHES),
    ("namespace_selector.json", matching::NAMESPACES),
    ("nonresource.json", nonresource::CHECKS),
    ("object_selector.json", matching::OBJECTS),
    ("policy_match.json", matching::POLICIES),
    ("policy_validation.json", validation::POLICIES),
    ("rbac.json", rbac::CHECKS),
    ("reinvocation.json", webhooks::REINVOCATION),
    ("review_response.json", reviews::REPLIES),
    ("review_response.json", webhooks::RESPONSES),
    ("rules.json", matching::RULES),
    ("sar_v1beta1_v1.json", sar::CHECKS),
    ("sar_v1beta1_v1.json", authorizers::CALLS),
    ("selectors.json", selectors::CHECKS),
    ("should_call_hook.json", matching::HOOKS),
    ("vap_validator.json", decisions::VALIDATIONS),
    ("warnings.json", decisions::WARNINGS),
    ("webhook_validation.json", validation::WEBHOOKS),
];

#[test]
fn vectors() {
    let mut report = Report::default();
    for folder in folders(&std::env::var_os("CONFORMANCE_VECTORS").unwrap_or_default()) {
        for file in files(&folder) {
            report.run(&file, CHECKS, SKIPS);
        }
    }
    // Straight to the stream: the test harness would keep `println!` back. Its
    // own line is not ended yet.
    write!(std::io::stdout().lock(), "\n{report}").unwrap();
    assert!(report.cases > 0, "no vectors were found");
    assert_eq!(report.failures, 0, "of {} cases; see above", report.cases);
}

/// Our own, and those in `named`, the value of `CONFORMANCE_VECTORS`.
fn folders(named: &OsStr) -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let named = std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty());
    std::iter::once(own).chain(named).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn folders_are_our_own_and_those_named() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    assert_eq!(folders("".as_ref()), std::slice::from_ref(&own));
    assert_eq!(folders("/a:/b".as_ref()), [own.clone(), "/a".into(), "/b".into()]);
    let json = std::fs::read_dir(&own).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "json")
    });
    assert_eq!(files(&own).len(), json.count());
}
