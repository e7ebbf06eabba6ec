//! `portcullis init`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::run::Portcullis;

#[test]
fn writes_a_whole_set_up_and_says_what_to_do_next() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --host gateway.example.com");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("portcullis serve --config "), "{run:?}");
    for path in [
        "portcullis.yaml",
        "README.md",
        "authorization-configuration.yaml",
        "admission-configuration.yaml",
        "webhooks.yaml",
        "kubeconfigs/authorization.kubeconfig",
        "kubeconfigs/admission.kubeconfig",
        "pki/ca.crt",
        "pki/server.crt",
        "policies/README.md",
        "ca/ca.key",
    ] {
        assert!(portcullis.path("gateway").join(path).is_file(), "{path}");
    }
    let kubeconfig =
        std::fs::read_to_string(portcullis.path("gateway/kubeconfigs/authorization.kubeconfig")).unwrap();
    assert!(
        kubeconfig.contains("server: https://gateway.example.com:8443/authorize"),
        "{kubeconfig}"
    );
}

#[test]
fn what_holds_a_key_is_for_its_owner_alone() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init .").code, 0);
    let mode = |path: &str| {
        let metadata = std::fs::metadata(portcullis.path(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    for path in [
        "ca/ca.key",
        "pki/server.key",
        "pki/authorization.key",
        "pki/admission.key",
    ] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
    assert_eq!(mode("ca"), 0o700);
}

#[test]
fn modes_are_the_same_whatever_the_umask() {
    for umask in ["000", "077", "777"] {
        let portcullis = Portcullis::new();
        let script = format!("umask {umask}; exec \"$0\" init a/gateway");
        let run = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_portcullis")])
            .current_dir(portcullis.path(""))
            .output()
            .unwrap();
        assert!(run.status.success(), "{umask}: {run:?}");
        for (path, mode) in [
            ("a", 0o755),
            ("a/gateway", 0o755),
            ("a/gateway/pki", 0o755),
            ("a/gateway/policies", 0o755),
            ("a/gateway/ca", 0o700),
            ("a/gateway/pki/server.key", 0o600),
            ("a/gateway/pki/server.crt", 0o644),
            ("a/gateway/portcullis.yaml", 0o644),
        ] {
            let found = std::fs::metadata(portcullis.path(path)).unwrap().permissions();
            assert_eq!(found.mode() & 0o777, mode, "{umask}: {path}");
        }
    }
}

#[test]
fn keys_go_into_no_folder_that_is_a_link_or_that_others_may_write_to() {
    for folder in ["gateway", "gateway/pki", "gateway/ca"] {
        for mode in [0o775, 0o757, 0o1777] {
            let portcullis = Portcullis::new();
            std::fs::create_dir_all(portcullis.path(folder)).unwrap();
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(portcullis.path(folder), permissions).unwrap();
            let run = portcullis.run("init gateway");
            assert_eq!(run.code, 2, "{run:?}");
            let complaint = format!("{folder}` (mode {mode:04o})");
            assert!(run.stderr.contains("others may write to `"), "{run:?}");
            assert!(run.stderr.contains(&complaint), "`{complaint}`: {run:?}");
            assert!(!portcullis.path("gateway/portcullis.yaml").exists());
        }
        let portcullis = Portcullis::new();
        std::fs::create_dir(portcullis.path("elsewhere")).unwrap();
        std::fs::create_dir_all(portcullis.path(folder).parent().unwrap()).unwrap();
        symlink(portcullis.path("elsewhere"), portcullis.path(folder)).unwrap();
        let run = portcullis.run("init gateway");
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("` is a symbolic link: name"), "{run:?}");
        assert_eq!(
            std::fs::read_dir(portcullis.path("elsewhere")).unwrap().count(),
            0
        );
    }
}

#[test]
fn keys_are_renewed_and_served_from_no_such_folder_either() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let pki = portcullis.path("gateway/pki");
    std::fs::set_permissions(&pki, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = |wanted: &str| {
        for (command, code) in [
            ("init gateway --renew", 2),
            ("check --config gateway/portcullis.yaml", 1),
            ("serve --config gateway/portcullis.yaml", 1),
        ] {
            let run = portcullis.run(command);
            assert_eq!(run.code, code, "{run:?}");
            let said = format!("{}{}", run.stdout, run.stderr);
            assert!(said.contains(wanted), "`{wanted}`: {run:?}");
        }
    };
    refused("gateway/pki` (mode 0777), and so replace the keys in it: `chmod go-w ");
    std::fs::set_permissions(&pki, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&pki, portcullis.path("elsewhere")).unwrap();
    symlink(portcullis.path("elsewhere"), &pki).unwrap();
    refused("gateway/pki` is a symbolic link");
}

#[test]
fn the_development_set_up_is_not_another_s() {
    let portcullis = Portcullis::new();
    std::fs::create_dir(portcullis.path(".portcullis")).unwrap();
    let permissions = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(portcullis.path(".portcullis"), permissions).unwrap();
    let run = portcullis.run("");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("others may write to `.portcullis` (mode 0777)"),
        "{run:?}"
    );
    std::fs::remove_dir(portcullis.path(".portcullis")).unwrap();
    std::fs::create_dir(portcullis.path("elsewhere")).unwrap();
    symlink("elsewhere", portcullis.path(".portcullis")).unwrap();
    let run = portcullis.run("");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("`.portcullis` is a symbolic link"), "{run:?}");
}

#[test]
fn overwrites_nothing_and_writes_nothing_beside_it() {
    let portcullis = Portcullis::new();
    portcullis.write("gateway/pki/server.key", "mine");
    let run = portcullis.run("init gateway");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("already has pki/server.key"), "{run:?}");
    assert_eq!(
        std::fs::read_to_string(portcullis.path("gateway/pki/server.key")).unwrap(),
        "mine"
    );
    assert!(!portcullis.path("gateway/portcullis.yaml").exists());
}

#[test]
fn enforces_no_example_policies() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let run = portcullis.run(
        "authorize --config gateway/portcullis.yaml --user jane --group dev --verb delete \
         --resource pods -n prod-web --name web-0",
    );
    assert!(run.stdout.starts_with("noOpinion: "), "{run:?}");

    assert_eq!(portcullis.run("init examples --examples").code, 0);
    let run = portcullis.run(
        "authorize --config examples/portcullis.yaml --user jane --group dev --verb delete \
         --resource pods -n prod-web --name web-0",
    );
    assert!(run.stdout.starts_with("noOpinion: "), "{run:?}");
    assert!(
        run.stdout.contains("AuthorizationPolicy/production-guard"),
        "in Shadow it is shown: {run:?}"
    );
}

#[test]
fn the_examples_pass_the_suites_beside_them() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --examples").code, 0);
    let run = portcullis.run("test gateway/policies");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!run.stdout.starts_with("0 passed"), "{run:?}");
}

#[test]
fn the_command_that_it_prints_exists() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway");
    let hint = run.stdout.lines().last().unwrap().trim();
    let (program, _) = hint.split_once(" serve --config ").unwrap();
    assert!(
        std::path::Path::new(program).is_file(),
        "it was called by a path: {run:?}"
    );
}

#[test]
fn static_manifests_come_in_place_of_the_registration() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --static");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!portcullis.path("gateway/webhooks.yaml").exists());
    let configuration =
        std::fs::read_to_string(portcullis.path("gateway/admission-configuration.yaml")).unwrap();
    for kind in ["mutating", "validating"] {
        let folder = portcullis.path(format!("gateway/static/{kind}"));
        let named = format!(
            "staticManifestsDir: \"{}\"",
            folder.canonicalize().unwrap().display()
        );
        assert!(configuration.contains(&named), "{configuration}");
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(files.len(), 1, "a folder that mixes kinds stops the API server");
        let manifest = std::fs::read_to_string(folder.join("portcullis.yaml")).unwrap();
        assert!(manifest.contains("name: portcullis.static.k8s.io"), "{manifest}");
        assert!(
            manifest.contains("url: https://") && !manifest.contains("service:"),
            "{manifest}"
        );
    }
}

#[test]
fn a_gateway_in_the_cluster_needs_no_network_of_the_cluster() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --in-cluster gate --exempt-namespace tools");
    assert_eq!(run.code, 0, "{run:?}");
    let read = |path: &str| std::fs::read_to_string(portcullis.path("gateway").join(path)).unwrap();
    let gateway = read("gateway.yaml");
    assert!(gateway.contains("hostNetwork: true"), "{gateway}");
    assert!(read("namespace.yaml").contains("name: gate\n"));
    assert!(read("kustomization.yaml").contains("namespace: gate\n"));
    assert!(read("webhooks.yaml").contains("values: [kube-system, gate]"));
    let configuration = read("authorization-configuration.yaml");
    for namespace in ["gate", "tools"] {
        assert!(
            configuration.contains(&format!("'system:serviceaccounts:{namespace}' in request.groups")),
            "{configuration}"
        );
    }
}

#[test]
fn leaves_a_set_up_that_is_there_alone_when_told() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --if-absent").code, 0);
    let before = std::fs::read(portcullis.path("gateway/pki/ca.crt")).unwrap();
    let run = portcullis.run("init gateway --if-absent");
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        std::fs::read(portcullis.path("gateway/pki/ca.crt")).unwrap(),
        before
    );
}

#[test]
fn lists_its_files_as_json() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway -o json");
    let written: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let files = written["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file == "portcullis.yaml"), "{run:?}");
    assert!(
        files
            .iter()
            .all(|file| portcullis.path("gateway").join(file.as_str().unwrap()).is_file())
    );
}

#[test]
fn a_host_that_is_none_is_wrong_usage() {
    let run = Portcullis::new().run("init gateway --host https://gateway");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("expected a DNS name"), "{run:?}");
    let run = Portcullis::new().run("init gateway --in-cluster kube/system");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("expected the name of a namespace"), "{run:?}");
}

#[test]
fn a_gateway_that_watches_its_cluster_has_everything_for_it() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --watch");
    assert_eq!(run.code, 0, "{run:?}");
    let folder = portcullis.path("gateway");
    let folder = folder.canonicalize().unwrap();
    let commands: Vec<&str> = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    assert_eq!(
        commands[0],
        format!("kubectl apply -k {}/cluster", folder.display())
    );
    assert!(
        commands[1].ends_with(&format!("init {} --credentials", folder.display())),
        "{commands:?}"
    );
    // The README and the kustomization agree with what was written.
    let text = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    for command in &commands[..1] {
        assert!(text("README.md").contains(command), "{command}");
    }
    for file in text("cluster/kustomization.yaml")
        .lines()
        .filter_map(|line| line.strip_prefix("- "))
    {
        assert!(folder.join("cluster").join(file).is_file(), "{file}");
    }
    assert!(
        text("cluster/gateway.yaml")
            .contains("- {kind: ServiceAccount, name: portcullis, namespace: kube-system}")
    );

    // All that is missing is what the second command writes.
    std::fs::write(
        folder.join("policies/shop.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
    )
    .unwrap();
    let checked = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(
        checked.stdout.ends_with("\n1 error, 0 warnings\n"),
        "the missing file is reported once: {checked:?}"
    );
    let remedy = format!(
        "`portcullis init {} --credentials` writes this file",
        folder.display()
    );
    assert!(checked.stdout.contains(&remedy), "{checked:?}");
}

#[test]
fn credentials_are_for_a_set_up_that_watches() {
    let portcullis = Portcullis::new();
    let kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                      contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n";
    std::fs::write(portcullis.path("k"), kubeconfig).unwrap();
    assert_eq!(portcullis.run("init gateway").code, 0);
    let run = portcullis.run("init gateway --credentials --kubeconfig k");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("`--credentials` is for a set-up of `init --watch`"),
        "{run:?}"
    );
    let run = portcullis.run("init gateway --kubeconfig k");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("--credentials"), "{run:?}");
}

#[test]
fn what_kubernetes_makes_of_rbac_can_be_had_as_files() {
    let portcullis = Portcullis::new();
    let file = portcullis.path("gateway/policies/kubernetes-roles.yaml");
    assert_eq!(portcullis.run("init gateway --builtin-roles=1.36").code, 0);
    let older = std::fs::read_to_string(&file).unwrap();
    // In a set-up that is there, it is replaced, and nothing else.
    let configuration = std::fs::read(portcullis.path("gateway/portcullis.yaml")).unwrap();
    let run = portcullis.run("init gateway --builtin-roles");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("wrote 1 file to "), "{run:?}");
    assert_ne!(std::fs::read_to_string(&file).unwrap(), older);
    assert_eq!(
        std::fs::read(portcullis.path("gateway/portcullis.yaml")).unwrap(),
        configuration
    );
    let run = portcullis.run("init gateway --builtin-roles --examples");
    assert!(run.code == 2 && run.stderr.contains("already has"), "{run:?}");

    let checked = portcullis.run("check --strict --config gateway/portcullis.yaml");
    assert_eq!(checked.code, 0, "{checked:?}");
    // By aggregation, as the controller does it in a cluster.
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: jane, namespace: shop}\n\
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\n\
                   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]\n";
    portcullis.write("gateway/policies/jane.yaml", binding);
    for (question, code) in [
        ("get --resource pods", 0),
        ("create --resource rolebindings.rbac.authorization.k8s.io", 0),
        ("create --resource nodes", 1),
    ] {
        let run = portcullis.run(&format!(
            "authorize --config gateway/portcullis.yaml --user jane -n shop --verb {question}"
        ));
        assert_eq!(run.code, code, "{question}: {run:?}");
    }
}

#[test]
fn each_platform_is_told_of_the_gateway_in_its_own_form() {
    for (platform, files) in [
        ("kubeadm", &["kubeadm.yaml"][..]),
        ("k3s", &["k3s.yaml"]),
        ("rke2", &["rke2.yaml"]),
        ("talos", &["talos.yaml"]),
        ("kamaji", &["apiserver-secret.yaml", "kamaji.yaml"]),
        ("cluster-api", &["apiserver-secret.yaml", "cluster-api.yaml"]),
        (
            "kubermatic",
            &[
                "apiserver-secret.yaml",
                "kubermatic.yaml",
                "kubermatic-network-policy.yaml",
            ],
        ),
        ("gardener", &["gardener.yaml", "gardener-shoot.yaml"]),
    ] {
        let portcullis = Portcullis::new();
        let run = portcullis.run(&format!(
            "init gateway --host gateway.example.com --for {platform}"
        ));
        assert_eq!(run.code, 0, "{platform}: {run:?}");
        for file in files {
            let path = portcullis.path("gateway").join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("{{"), "{platform} {file}: {text}");
            let documents = portcullis_policy::document::parse(None, &text);
            assert!(documents.is_ok(), "{platform} {file}: {documents:?}\n{text}");
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let has_key = text.contains("PRIVATE KEY") || text.contains("client-key-data");
            assert_eq!(mode, if has_key { 0o600 } else { 0o644 }, "{platform} {file}");
        }
    }
}

#[test]
fn on_talos_the_webhook_comes_before_rbac() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --for talos").code, 0);
    let text = std::fs::read_to_string(portcullis.path("gateway/talos.yaml")).unwrap();
    let place = |authorizer: &str| text.find(&format!("    - type: {authorizer}\n")).unwrap();
    assert!(
        place("Webhook") < place("Node") && place("Node") < place("RBAC"),
        "{text}"
    );
}

#[test]
fn what_a_platform_cannot_be_told_is_refused() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --for hypershift");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("docs/install/managed.md"), "{run:?}");
    let run = portcullis.run("init gateway --for kamaji --static");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(!portcullis.path("gateway").exists());
}
