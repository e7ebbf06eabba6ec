//! What is released beside the program: versions, recipes that workflows call, the summary of the pages.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::project;

fn text(path: &str) -> String {
    project::text(&project::path(path))
}

#[test]
fn manifests_and_chart_have_the_version_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = text("deploy/helm/portcullis/Chart.yaml");
    assert!(
        chart.contains(&format!("\nversion: {version}\nappVersion: {version}\n")),
        "{chart}"
    );
    for overlay in ["in-cluster", "static-pod"] {
        let kustomization = text(&format!("deploy/kustomize/overlays/{overlay}/kustomization.yaml"));
        let image = format!("{{name: portcullis, newName: portcullis, newTag: {version}}}");
        assert!(kustomization.contains(&image), "{overlay}: {kustomization}");
    }
}

/// kubectl 1.32 crashes where one file of patches deletes several objects.
#[test]
fn each_patch_of_a_kustomization_stands_by_itself() {
    let mut found = 0;
    for folder in ["base", "components/watch", "overlays/in-cluster"] {
        let folder = project::path("deploy/kustomize").join(folder);
        let kustomization = project::documents(&folder.join("kustomization.yaml"))[0]
            .root()
            .to_json();
        for patch in kustomization["patches"].as_array().into_iter().flatten() {
            let documents = match (patch["path"].as_str(), patch["patch"].as_str()) {
                (Some(path), _) => project::documents(&folder.join(path)).len(),
                (None, inline) => portcullis_policy::document::parse(None, inline.unwrap())
                    .unwrap()
                    .len(),
            };
            assert_eq!(documents, 1, "{}: {patch}", folder.display());
            found += 1;
        }
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn the_image_is_built_by_the_compiler_of_the_project() {
    let toolchain = text("rust-toolchain.toml");
    let line = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = line.unwrap().trim_matches('"');
    let dockerfile = text("Dockerfile");
    assert!(
        dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={channel} ")),
        "{channel}"
    );
    let (minor, _) = channel.rsplit_once('.').unwrap();
    assert!(
        dockerfile.contains(&format!("FROM docker.io/library/rust:{minor}-")),
        "{minor}"
    );
}

/// What a release script says, if it fails.
fn refusal(script: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(project::path(script))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (!output.status.success()).then_some(said)
}

/// One for another architecture, with another interpreter, library or a newer glibc.
#[test]
fn no_program_is_packed_that_would_not_start_where_the_pages_say() {
    let (own, other, machine) = match std::env::consts::ARCH {
        "x86_64" => ("amd64", "arm64", 183_u16),
        "aarch64" => ("arm64", "amd64", 62),
        _ => return,
    };
    let (program, folder) = (env!("CARGO_BIN_EXE_portcullis"), tempfile::tempdir().unwrap());
    assert_eq!(refusal("deploy/release/verify", &[program, own]), None);
    let said = refusal("deploy/release/verify", &[program, own, "2.5"]).unwrap();
    assert!(said.contains("newer than 2.5"), "{said}");
    let said = refusal("deploy/release/verify", &[program, other]).unwrap();
    assert!(said.contains(&format!("not for {other}")), "{said}");

    let copy = folder.path().join("copy");
    fs::copy(program, &copy).unwrap();
    let (bytes, file) = (
        fs::read(program).unwrap(),
        File::options().write(true).open(&copy).unwrap(),
    );
    let refused = |at: usize, changed: &[u8], architecture: &str| {
        file.write_all_at(changed, at as u64).unwrap();
        let said = refusal("deploy/release/verify", &[copy.to_str().unwrap(), architecture]);
        file.write_all_at(&bytes[at..at + changed.len()], at as u64)
            .unwrap();
        said.unwrap()
    };
    let find = |text: &[u8]| {
        bytes
            .windows(text.len())
            .position(|window| window == text)
            .unwrap()
    };
    // e_machine: the rest of it is still that of this machine.
    let said = refused(18, &machine.to_le_bytes(), other);
    assert!(said.contains("its interpreter is"), "{said}");
    let said = refused(find(b"libgcc_s.so.1\0"), b"libssl.so.99\0", own);
    assert!(said.contains("it needs libssl.so.99"), "{said}");
    let path = copy.to_str().unwrap();
    assert_eq!(refusal("deploy/release/verify", &[path, own]), None);

    symlink(program, folder.path().join("portcullis")).unwrap();
    let dist = folder.path().to_str().unwrap();
    let said = refusal("deploy/release/archive", &["1.2.3", other, dist]).unwrap();
    assert!(said.contains(&format!("not for {other}")), "{said}");
    assert!(
        !folder
            .path()
            .join(format!("portcullis-1.2.3-linux-{other}.tar.gz"))
            .exists()
    );
    let newest = text("deploy/release/archive");
    assert!(newest.contains("\"$architecture\" 2.36\n"), "{newest}");
    for page in ["README.md", "docs/install/host.md", "docs/install/README.md"] {
        assert!(text(page).contains("2.36 or "), "{page}");
    }
}

/// Each is built, run, packed, signed and listed.
#[test]
fn a_release_has_both_architectures() {
    let release = text(".github/workflows/release.yml");
    for architecture in ["amd64", "arm64"] {
        assert!(release.contains(&format!("{{architecture: {architecture}, runner: ")));
        assert!(text("justfile").contains(&format!("(sbom-of FOLDER \"{architecture}\" ")));
    }
    let both = release.matches("for architecture in amd64 arm64; do");
    assert_eq!(both.count(), 2, "the manifest of the image, and its lists");
    assert!(release.contains("just release-test dist ${{ matrix.architecture }}"));
    assert!(release.contains("dist/portcullis-$architecture.cdx.json"));
}

/// Of each architecture that was packed, with its checksum; none without.
#[test]
fn krew_installs_the_plugin_from_the_archives() {
    let (script, folder) = (project::path("deploy/release/krew"), tempfile::tempdir().unwrap());
    let run = || {
        let arguments = [
            "1.2.3",
            "https://example.com/v1.2.3/",
            folder.path().to_str().unwrap(),
        ];
        Command::new(&script).args(arguments).output().unwrap()
    };
    assert!(!run().status.success(), "nothing was packed");
    for (architecture, digit) in [("amd64", "a"), ("arm64", "b")] {
        let name = format!("portcullis-1.2.3-linux-{architecture}");
        let sums = format!(
            "{}  {name}.tar.gz\n{}  {name}-debug.tar.gz\n",
            digit.repeat(64),
            "c".repeat(64)
        );
        fs::write(folder.path().join(format!("{name}.sha256")), sums).unwrap();
    }
    let output = run();
    assert!(output.status.success(), "{output:?}");
    let written = fs::read_to_string(folder.path().join("portcullis.yaml")).unwrap();
    let documents = portcullis_policy::document::parse(None, &written).unwrap();
    let manifest = documents[0].root().to_json();
    assert_eq!(manifest["kind"], "Plugin");
    assert_eq!(manifest["metadata"]["name"], "portcullis");
    assert_eq!(manifest["spec"]["version"], "v1.2.3");
    assert!(manifest["spec"]["shortDescription"].as_str().unwrap().len() < 60);
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2, "{written}");
    assert_eq!(platforms[1]["selector"]["matchLabels"]["arch"], "arm64");
    assert_eq!(
        platforms[1]["uri"],
        "https://example.com/v1.2.3/portcullis-1.2.3-linux-arm64.tar.gz"
    );
    assert_eq!(platforms[1]["sha256"], "b".repeat(64));
    assert_eq!(
        platforms[1]["files"][0]["from"],
        "portcullis-1.2.3-linux-arm64/portcullis"
    );
    assert_eq!(platforms[1]["bin"], "portcullis");
}

#[test]
fn workflows_call_only_recipes_that_exist() {
    let justfile = text("justfile");
    let recipes: BTreeSet<&str> = justfile
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(':'))
        .map(|line| line.split([' ', ':']).next().unwrap())
        .collect();
    let mut called = BTreeSet::new();
    for workflow in project::files(&project::path(".github/workflows"), ".yml") {
        let text = project::text(&workflow);
        for line in text.lines().filter(|line| !line.trim().starts_with('#')) {
            let after_just = line.split("just ").skip(1);
            let names = after_just.map(|rest| rest.split(' ').next().unwrap().to_owned());
            let in_matrix = line.trim().strip_prefix("- {recipe: ").map(|rest| {
                let name = rest.split([' ', '}']).next().unwrap();
                name.to_owned()
            });
            called.extend(names.filter(|name| !name.starts_with("${{")).chain(in_matrix));
        }
    }
    assert!(called.len() >= 9, "{called:?}");
    let unknown: Vec<_> = called
        .iter()
        .filter(|name| !recipes.contains(name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Who reads from the beginning finds every page.
#[test]
fn the_summary_lists_every_page() {
    fn collect(folder: &Path, pages: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, pages);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let page = path.strip_prefix(project::path("docs")).unwrap();
                pages.insert(page.display().to_string());
            }
        }
    }
    let mut pages = BTreeSet::new();
    collect(&project::path("docs"), &mut pages);
    pages.remove("SUMMARY.md");
    let summary = text("docs/SUMMARY.md");
    let listed: BTreeSet<String> = summary
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .collect();
    assert_eq!(listed, pages);
}

/// Cargo wants to know which program of the repository is meant, since there are several.
#[test]
fn the_readme_says_how_to_get_what_a_release_has() {
    let readme = project::text(&project::path("README.md"));
    let install = project::text(&project::path("docs/install/README.md"));
    for page in [&readme, &install] {
        let command = "cargo install --locked --git https://github.com/$OWNER/portcullis";
        let commands = page.matches(command).count();
        assert!(commands > 0);
        assert_eq!(page.matches(&format!("{command} portcullis`")).count(), commands);
    }
    let archive = project::text(&project::path("deploy/release/archive"));
    assert!(archive.contains("name=portcullis-$version-linux-$architecture\n"));
    assert!(archive.contains(r#">"$name.sha256""#));
    assert!(readme.contains("/portcullis-$VERSION-linux-amd64.{tar.gz,sha256}\"\n"));
    assert!(readme.contains("$ \"portcullis-$VERSION-linux-amd64/portcullis\"\n"));
    let release = project::text(&project::path(".github/workflows/release.yml"));
    assert!(release.contains("IMAGE: ghcr.io/") && readme.contains("ghcr.io/$OWNER/portcullis:$VERSION"));
    assert!(release.contains("dist/*.tar.gz") && release.contains("dist/*.sha256"));
}
