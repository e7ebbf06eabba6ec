//! AuthorizationConfigurations, held to what kube-apiserver requires of them
//! (`apiserver/pkg/apis/apiserver/validation/validation.go`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use portcullis_cel::Version;
use portcullis_policy::authorization::Condition;
use portcullis_policy::authorization::condition::RequestActivation;
use portcullis_policy::model::{Attributes, ResourceAttributes, Target, User};
use serde::Deserialize;

use crate::project::{self, ON_API_SERVER, SetUp};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorizationConfiguration {
    api_version: String,
    kind: String,
    authorizers: Vec<Authorizer>,
}

#[derive(Deserialize)]
struct Authorizer {
    r#type: String,
    name: String,
    webhook: Option<Webhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    timeout: String,
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: String,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: String,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfo,
    match_conditions: Vec<MatchCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionInfo {
    r#type: String,
    kube_config_file: PathBuf,
}

#[derive(Deserialize)]
struct MatchCondition {
    expression: String,
}

impl Webhook {
    /// Whether the API server asks about `user` of `groups`.
    fn asks_about(&self, user: &str, groups: &[&str]) -> bool {
        self.asks_about_resource(user, groups, "", "pods")
    }

    /// Whether it asks about `user` of `groups` for a resource.
    fn asks_about_resource(&self, user: &str, groups: &[&str], group: &str, resource: &str) -> bool {
        self.asks(user, groups, to_list(group, resource))
    }

    /// Whether it asks about somebody without credentials, for a path.
    fn asks_about_path(&self, verb: &'static str, path: &'static str) -> bool {
        let target = Target::NonResource {
            verb: verb.into(),
            path: path.into(),
        };
        self.asks("system:anonymous", &["system:unauthenticated"], target)
    }

    fn asks(&self, user: &str, groups: &[&str], target: Target<'_>) -> bool {
        let attributes = attributes(user, groups, target);
        let activation = RequestActivation::new(&attributes);
        self.match_conditions.iter().all(|condition| {
            Condition::compile(Version::NEWEST, "match", &condition.expression)
                .unwrap()
                .evaluate(&activation)
                .unwrap()
        })
    }
}

fn to_list(group: &str, resource: &str) -> Target<'static> {
    Target::Resource(Box::new(ResourceAttributes {
        verb: "list".into(),
        group: group.to_owned().into(),
        resource: resource.to_owned().into(),
        ..ResourceAttributes::default()
    }))
}

fn attributes<'t>(user: &str, groups: &[&str], target: Target<'t>) -> Attributes<'t> {
    Attributes {
        user: User {
            name: user.to_owned().into(),
            groups: groups.iter().map(|group| (*group).to_owned().into()).collect(),
            ..User::default()
        },
        target,
    }
}

fn webhook(path: &Path) -> Webhook {
    let configuration: AuthorizationConfiguration = project::decode(path);
    assert_eq!(configuration.api_version, "apiserver.config.k8s.io/v1");
    assert_eq!(configuration.kind, "AuthorizationConfiguration");
    let types: Vec<&str> = configuration
        .authorizers
        .iter()
        .map(|one| one.r#type.as_str())
        .collect();
    assert_eq!(types, ["Webhook", "Node", "RBAC"]);
    for authorizer in &configuration.authorizers {
        assert!(is_dns_subdomain(&authorizer.name), "{}", authorizer.name);
        assert_eq!(authorizer.webhook.is_some(), authorizer.r#type == "Webhook");
        // A built-in authorizer is called as its type.
        assert!(authorizer.r#type == "Webhook" || authorizer.name == authorizer.r#type.to_lowercase());
    }
    let names: BTreeSet<&str> = configuration
        .authorizers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names.len(), 3);
    configuration
        .authorizers
        .into_iter()
        .find_map(|authorizer| authorizer.webhook)
        .unwrap()
}

fn is_dns_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn valid(path: &Path) -> Webhook {
    let webhook = webhook(path);
    assert_eq!(webhook.timeout, "3s");
    assert_eq!(
        (webhook.authorized_ttl.as_str(), webhook.unauthorized_ttl.as_str()),
        ("10s", "10s")
    );
    assert_eq!(webhook.subject_access_review_version, "v1");
    assert_eq!(webhook.match_condition_subject_access_review_version, "v1");
    assert_eq!(webhook.failure_policy, "Deny");
    assert_eq!(webhook.connection_info.r#type, "KubeConfigFile");
    assert!(webhook.connection_info.kube_config_file.is_absolute());
    let expressions: BTreeSet<&str> = webhook
        .match_conditions
        .iter()
        .map(|condition| condition.expression.as_str())
        .collect();
    assert_eq!(
        expressions.len(),
        webhook.match_conditions.len(),
        "the API server refuses duplicates"
    );
    webhook
}

/// What holds for the one of `init` and the example alike.
fn keeps_the_control_plane_going(webhook: &Webhook) {
    let authenticated = "system:authenticated";
    for (user, groups) in [
        ("system:node:node-1", vec!["system:nodes", authenticated]),
        ("system:kube-controller-manager", vec![authenticated]),
        ("system:kube-scheduler", vec![authenticated]),
        (
            "system:serviceaccount:kube-system:replicaset-controller",
            vec![
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                authenticated,
            ],
        ),
    ] {
        assert!(!webhook.asks_about(user, &groups), "{user}");
    }
    let kubelet_client = |group, resource| {
        let groups = ["kubeadm:cluster-admins", authenticated];
        webhook.asks_about_resource("kube-apiserver-kubelet-client", &groups, group, resource)
    };
    assert!(
        !kubelet_client("", "nodes"),
        "kubelets ask about it for logs and exec"
    );
    assert!(kubelet_client("", "pods") && kubelet_client("metrics.k8s.io", "nodes"));
    assert!(webhook.asks_about_resource("jane", &[authenticated], "", "nodes"));
    for path in ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/etcd"] {
        assert!(!webhook.asks_about_path("get", path), "kubelets get {path}");
        assert!(webhook.asks_about_path("post", path), "{path}");
    }
    for path in [
        "/",
        "/livezz",
        "/livez-not",
        "/metrics",
        "/api",
        "/logs/livez",
        "/version",
    ] {
        assert!(webhook.asks_about_path("get", path), "{path}");
    }
    for (user, groups) in [
        ("jane", vec![authenticated]),
        ("jane", vec![]),
        // Neither the group alone nor the name alone makes a node.
        ("jane", vec!["system:nodes"]),
        ("system:node:node-1", vec![authenticated]),
        (
            "system:serviceaccount:default:default",
            vec!["system:serviceaccounts", "system:serviceaccounts:default"],
        ),
    ] {
        assert!(webhook.asks_about(user, &groups), "{user} of {groups:?}");
    }
}

#[test]
fn the_configuration_of_init_skips_the_control_plane_and_nobody_else() {
    let set_up = SetUp::new();
    let webhook = valid(&set_up.path("authorization-configuration.yaml"));
    keeps_the_control_plane_going(&webhook);
    assert!(webhook.connection_info.kube_config_file.is_file());
    assert!(webhook.asks_about(
        "system:serviceaccount:portcullis:portcullis",
        &["system:serviceaccounts:portcullis"]
    ));
}

/// `admission.enforceAuthorization` refuses nobody whom an API server with this configuration would not
/// have asked about.
#[test]
fn the_gateway_knows_whom_the_configuration_of_init_skips() {
    let set_up = SetUp::new();
    let webhook = valid(&set_up.path("authorization-configuration.yaml"));
    let groups: [&[&str]; 5] = [
        &[],
        &["system:nodes"],
        &["system:authenticated", "system:serviceaccounts:kube-system"],
        &["system:serviceaccounts:kube-systems", "system:serviceaccounts"],
        &["kubeadm:cluster-admins"],
    ];
    for user in [
        "jane",
        "system:node:node-1",
        "system:node",
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:kube-proxy",
        "kube-apiserver-kubelet-client",
        "system:serviceaccount:kube-system:x",
    ] {
        for (groups, (group, resource)) in groups.iter().flat_map(|groups| {
            let resources = [("", "nodes"), ("", "pods"), ("metrics.k8s.io", "nodes")];
            resources.map(|resource| (groups, resource))
        }) {
            let attributes = attributes(user, groups, to_list(group, resource));
            assert_eq!(
                attributes.skips_authorization_webhook(),
                !webhook.asks_about_resource(user, groups, group, resource),
                "{attributes:?}"
            );
        }
    }
    let master = attributes("jane", &["system:masters"], to_list("", "pods"));
    assert!(
        master.skips_authorization_webhook(),
        "the API server allows it before it asks anybody"
    );
}

#[test]
fn the_example_also_skips_the_gateway_s_own_identity() {
    let webhook = valid(&project::path(
        "kubeconfig-examples/authorization-configuration.yaml",
    ));
    keeps_the_control_plane_going(&webhook);
    assert!(!webhook.asks_about(
        "system:serviceaccount:portcullis:portcullis",
        &["system:serviceaccounts:portcullis"]
    ));
    let name = webhook
        .connection_info
        .kube_config_file
        .strip_prefix(ON_API_SERVER)
        .unwrap()
        .to_owned();
    assert!(project::path("kubeconfig-examples").join(name).is_file());
}
