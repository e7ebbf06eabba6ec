//! Every kind of set-up, and what must hold of its files.

use super::{listen, *};

fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn files(set_up: &SetUp<'_>) -> Vec<File> {
    compose(Path::new("/srv/gate \"way\": x"), set_up, 1_790_000_000).unwrap()
}

fn text(set_up: &SetUp<'_>, path: &str) -> String {
    let file = files(set_up).into_iter().find(|file| file.path == path).unwrap();
    String::from_utf8(file.contents).unwrap()
}

/// Has `act` see a set-up of each kind.
fn each_kind(act: impl Fn(&SetUp<'_>)) {
    let hosts = hosts(&["a.example.com", "::1"]);
    let namespace = "gate".parse().unwrap();
    let exempt = ["tools".parse().unwrap()];
    act(&SetUp::default());
    act(&SetUp {
        hosts: &hosts,
        exempt: &exempt,
        is_static: true,
        watch: true,
        ..SetUp::default()
    });
    act(&SetUp {
        in_cluster: Some(&namespace),
        examples: Examples::InShadow,
        watch: true,
        ..SetUp::default()
    });
}

#[test]
fn no_template_keeps_a_gap() {
    each_kind(|set_up| {
        for file in files(set_up) {
            let text = String::from_utf8(file.contents).unwrap();
            assert!(!text.contains("{{"), "{}", file.path);
        }
    });
}

#[test]
fn keys_are_secret_and_nothing_else() {
    each_kind(|set_up| {
        for file in files(set_up) {
            assert_eq!(file.secret, file.path.ends_with(".key"), "{}", file.path);
        }
    });
}

#[test]
fn every_yaml_file_can_be_read_whatever_the_folder_is_called() {
    each_kind(|set_up| {
        for file in files(set_up) {
            if !file.path.ends_with(".yaml") && !file.path.ends_with(".kubeconfig") {
                continue;
            }
            let text = String::from_utf8(file.contents).unwrap();
            let documents = portcullis_policy::document::parse(Some(file.path), &text).unwrap();
            assert!(!documents.is_empty(), "{}", file.path);
        }
    });
}

#[test]
fn the_configuration_comes_last() {
    each_kind(|set_up| assert_eq!(files(set_up).last().unwrap().path, CONFIGURATION));
}

#[test]
fn the_key_of_the_authority_is_the_only_one_of_its_folder() {
    each_kind(|set_up| {
        let keys: Vec<&str> = files(set_up)
            .iter()
            .map(|file| file.path)
            .filter(|path| path.starts_with("ca/"))
            .collect();
        assert_eq!(keys, ["ca/ca.key", "ca/ca.crt"]);
    });
}

#[test]
fn examples_come_only_when_asked_for() {
    let policies = |examples| {
        let set_up = SetUp {
            examples,
            ..SetUp::default()
        };
        let files = files(&set_up);
        let is_manifest = |file: &&File| file.path.starts_with("policies/") && file.path.ends_with(".yaml");
        files.iter().filter(is_manifest).count()
    };
    assert_eq!(policies(Examples::None), 0);
    assert!(policies(Examples::InShadow) >= 12);
}

/// It is on only for development: every user of the machine sees it.
#[test]
fn a_console_is_one_comment_away() {
    let configured = text(&SetUp::development(), CONFIGURATION);
    assert!(
        configured.ends_with("\nconsole:\n  address: 127.0.0.1:9091\n"),
        "{configured}"
    );
    each_kind(|set_up| {
        let configured = text(set_up, CONFIGURATION);
        assert!(
            configured.ends_with("\n# console:\n#   address: 127.0.0.1:9091\n"),
            "{configured}"
        );
    });
}

#[test]
fn the_gateway_listens_where_its_hosts_are() {
    assert_eq!(listen(&hosts(&["localhost", "127.0.0.1"])), "127.0.0.1:8443");
    assert_eq!(listen(&hosts(&["localhost", "a.example.com"])), "0.0.0.0:8443");
    assert_eq!(listen(&hosts(&["fd00::1"])), "[::]:8443");
}

#[test]
fn admission_credentials_are_found_by_host_and_port() {
    let hosts = hosts(&["a.example.com", "::1"]);
    let set_up = SetUp {
        hosts: &hosts,
        ..SetUp::default()
    };
    let kubeconfig = text(&set_up, "kubeconfigs/admission.kubeconfig");
    assert!(kubeconfig.contains("- name: \"a.example.com:8443\""));
    assert!(kubeconfig.contains("- name: \"[::1]:8443\""));
}

#[test]
fn kubeconfigs_name_files_by_absolute_path_and_embed_nothing() {
    for path in [
        "kubeconfigs/authorization.kubeconfig",
        "kubeconfigs/admission.kubeconfig",
    ] {
        let kubeconfig = text(&SetUp::default(), path);
        assert!(
            kubeconfig.contains("client-key: \"/srv/gate \\\"way\\\": x/pki/"),
            "{kubeconfig}"
        );
        assert!(!kubeconfig.contains("-data"), "{kubeconfig}");
    }
}

#[test]
fn the_gateway_s_own_namespace_is_left_out_of_everything() {
    let namespace = "gate".parse().unwrap();
    let exempt = ["tools".parse().unwrap(), "kube-system".parse().unwrap()];
    let set_up = SetUp {
        in_cluster: Some(&namespace),
        exempt: &exempt,
        ..SetUp::default()
    };
    let configuration = text(&set_up, "authorization-configuration.yaml");
    for namespace in ["kube-system", "gate", "tools"] {
        let condition = format!("!('system:serviceaccounts:{namespace}' in request.groups)");
        assert_eq!(configuration.matches(&condition).count(), 1, "{configuration}");
    }
    let registrations = text(&set_up, "webhooks.yaml");
    assert_eq!(registrations.matches("values: [kube-system, gate]").count(), 2);
}

#[test]
fn what_was_seen_is_kept_where_a_service_keeps_its_state() {
    let namespace = "gate".parse().unwrap();
    let kept = |directory: &str, in_cluster| {
        let set_up = SetUp {
            in_cluster,
            watch: true,
            ..SetUp::default()
        };
        let files = compose(Path::new(directory), &set_up, 1_790_000_000).unwrap();
        let configuration = String::from_utf8(files.last().unwrap().contents.clone()).unwrap();
        let line = configuration
            .lines()
            .find_map(|line| line.trim().strip_prefix("cacheFile: "));
        let is_made = files.iter().any(|file| file.path.starts_with("state/"));
        (line.unwrap().to_owned(), is_made)
    };
    let of_a_service = ("/var/lib/portcullis/default.cache".to_owned(), false);
    assert_eq!(kept("/etc/portcullis", None), of_a_service);
    assert_eq!(kept("/srv/gate", Some(&namespace)), of_a_service);
    assert_eq!(kept("/srv/gate", None), ("state/default.cache".to_owned(), true));
}

#[test]
fn every_example_that_denies_is_in_shadow() {
    for example in &EXAMPLE_POLICIES {
        let text = with_denies_in_shadow(example.text);
        assert_eq!(
            text.matches("effect: Deny").count(),
            text.matches("mode: Shadow").count(),
            "{}",
            example.path
        );
    }
}
