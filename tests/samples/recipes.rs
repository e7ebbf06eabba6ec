//! `docs/recipes`: each folder is shown by its page, passes `check --strict`, and its suite
//! covers every rule and expression.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::project;

/// What the page of a recipe warns of, too: the warning that `check` gives, by its beginning.
const WARNED_OF: [(&str, &str); 1] = [(
    "secrets-for-vault",
    "spec.subjects[0]: warning: Suspicious: this refuses everybody (`*`), you included, reading secrets, which locks out",
)];

fn recipes() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(project::path("docs/recipes"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 25, "{folders:?}");
    folders
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

/// Every YAML file of a recipe but its suite.
fn shown(folder: &Path) -> Vec<PathBuf> {
    let mut files = project::files(folder, ".yaml");
    files.retain(|file| !file.ends_with("policy_test.yaml"));
    files
}

/// What the gateway reads as manifests: not its own configuration, nor the API server's.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut files = shown(folder);
    files.retain(|file| {
        let text = project::text(file);
        !text.contains("kind: GatewayConfiguration") && !text.contains("kind: AuthenticationConfiguration")
    });
    files
}

fn portcullis(arguments: &[&str], paths: &[PathBuf]) -> (Output, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .args(paths)
        .output()
        .unwrap();
    let said = [run.stdout.as_slice(), run.stderr.as_slice()].concat();
    (run, String::from_utf8(said).unwrap())
}

#[test]
fn every_case_passes_and_every_rule_is_covered() {
    for folder in recipes() {
        let arguments = ["test", "--coverage", "--fail-under", "100"];
        let (run, said) = portcullis(&arguments, std::slice::from_ref(&folder));
        assert!(run.status.success(), "{}: {said}", folder.display());
        assert!(!said.starts_with("0 passed"), "{said}");
        for one_sided in ["never true", "never false", "not covered"] {
            assert!(!said.contains(one_sided), "{}: {said}", folder.display());
        }
    }
}

/// A suite that only allows, or only refuses, would pass with no policy or with a broken one.
#[test]
fn every_suite_shows_what_passes_and_what_is_refused() {
    for folder in recipes() {
        let suite = project::text(&folder.join("policy_test.yaml"));
        let has = |words: &[&str]| words.iter().any(|word| suite.contains(word));
        let mutates = suite.contains("phase: mutate");
        assert!(
            has(&["decision: noOpinion", "decision: allow", "allowed: true"]),
            "{folder:?}"
        );
        assert!(
            mutates || has(&["decision: deny", "decision: noOpinion", "allowed: false"]),
            "{folder:?}"
        );
        assert!(suite.matches("- name: ").count() > 1, "{folder:?}");
    }
}

#[test]
fn every_recipe_passes_the_strict_check() {
    for folder in recipes() {
        let (run, said) = portcullis(&["check", "--strict"], &manifests(&folder));
        let expected = WARNED_OF.iter().find(|(recipe, _)| *recipe == name(&folder));
        let Some((_, warning)) = expected else {
            assert!(run.status.success(), "{}: {said}", folder.display());
            continue;
        };
        assert!(
            said.contains(warning) && said.contains("valid, 1 warning"),
            "{said}"
        );
    }
}

#[test]
fn every_page_shows_its_files_word_for_word() {
    for folder in recipes() {
        let page = project::text(&folder.join("README.md"));
        for file in shown(&folder) {
            let block = format!("```yaml\n{}```\n", project::text(&file));
            assert!(
                page.contains(&block),
                "README.md does not show {}",
                file.display()
            );
        }
        for part in ["\n## Apply\n", "\n## Test\n", "\n## Limitations\n"] {
            assert!(page.contains(part), "{}: {part}", folder.display());
        }
    }
}

/// The page says what `diff` answers where a label is added.
#[test]
fn a_label_that_widens_access_is_caught() {
    let folder = project::path("docs/recipes/pull-request-check");
    let changed = tempfile::tempdir().unwrap();
    let rbac = project::text(&folder.join("rbac.yaml"));
    let (name, label) = (
        "  name: backup\nrules:",
        "  name: backup\n  labels: {example.com/aggregate-to-viewer: \"true\"}\nrules:",
    );
    assert_eq!(rbac.matches(name).count(), 1, "{rbac}");
    std::fs::write(changed.path().join("rbac.yaml"), rbac.replace(name, label)).unwrap();
    std::fs::copy(folder.join("policy.yaml"), changed.path().join("policy.yaml")).unwrap();
    let (run, said) = portcullis(
        &["diff", "--no-new-access"],
        &[folder.clone(), changed.path().to_owned()],
    );
    assert_eq!(run.status.code(), Some(1), "{said}");
    let page = project::text(&folder.join("README.md"));
    assert!(
        page.contains(&format!("policies --no-new-access\n{said}```\n")),
        "{said}"
    );
}

#[test]
fn every_recipe_is_listed_with_its_title() {
    let summary = project::text(&project::path("docs/SUMMARY.md"));
    let overview = project::text(&project::path("docs/recipes/README.md"));
    for folder in recipes() {
        let page = project::text(&folder.join("README.md"));
        let title = page.lines().next().unwrap().trim_start_matches("# ");
        let entry = format!("[{title}](recipes/{}/README.md)", name(&folder));
        assert!(summary.contains(&entry), "SUMMARY.md: {entry}");
        let link = format!("]({}/README.md)", name(&folder));
        assert!(overview.contains(&link), "{link}");
    }
}
