//! `init --watch` and `init --credentials`: the files with which a gateway watches its cluster.
//!
//! ```text
//! --watch         cluster/*.yaml       definitions, roles, a service account   ── kubectl apply -k ──▶ cluster
//!                 portcullis.yaml      clusters: [{kubeconfig: cluster/kubeconfig}]
//! --credentials   cluster/kubeconfig   address of the API server, and token    ◀─────────── Secret ── cluster
//! ```
//!
//! Gateways that run in the cluster use the tokens of their pods, and need no second step.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::platform::{File, SetUp, TemplateValues, replace};
use crate::cli::output::{self, CommandError};
use crate::cluster::{LiveCluster, ServerAddress};

/// The folder with all files for watching, including the credentials.
const FOLDER: &str = "cluster";
const KUBECONFIG: &str = "cluster/kubeconfig";
const AUTHORITIES: &str = "cluster/ca.crt";
pub(crate) const TOKEN: &str = "cluster/token";
const SERVICE_ACCOUNT: &str = "cluster/service-account.yaml";

/// The namespace of the service account of a gateway outside the cluster, and the Secret with its
/// token.
const NAMESPACE: &str = "kube-system";
const SECRET: &str = "portcullis-token";

/// The cache file, in a set-up that contains it.
const STATE: &str = "state/default.cache";

/// The number of requests for the token, and the pause between them: kube-controller-manager
/// creates it some time after the Secret.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// The subject in the bindings of config/cluster, which is replaced by the gateway's service
/// account.
const USER: &str = "- {apiGroup: rbac.authorization.k8s.io, kind: User, name: portcullis}";

macro_rules! shipped {
    ($folder:literal, $name:literal) => {
        (
            concat!("cluster/", $name),
            include_str!(concat!("../../../config/", $folder, "/", $name)),
        )
    };
}

/// The CustomResourceDefinitions of Portcullis' own kinds, and the permissions of the gateway's
/// user.
const MANIFESTS: [(&str, &str); 6] = [
    shipped!("crd", "authorizationpolicies.yaml"),
    shipped!("crd", "authorizationinvariants.yaml"),
    shipped!("crd", "admissionexceptions.yaml"),
    shipped!("crd", "accessrequests.yaml"),
    shipped!("cluster", "gateway.yaml"),
    shipped!("cluster", "admission.yaml"),
];

/// The files of `set_up` for watching; none if it does not watch.
pub(crate) fn files(set_up: &SetUp<'_>, filling: &TemplateValues<'_>) -> Vec<File> {
    if !set_up.watch {
        return Vec::new();
    }
    let namespace = set_up
        .in_cluster
        .map_or(NAMESPACE.to_owned(), ToString::to_string);
    let account = format!("- {{kind: ServiceAccount, name: portcullis, namespace: {namespace}}}");
    let mut files: Vec<File> = MANIFESTS
        .iter()
        .map(|(path, text)| File::open(path, text.replace(USER, &account)))
        .collect();
    let mut kustomization = filling.fill(include_str!("templates/watch/kustomization.yaml"));
    if set_up.in_cluster.is_some() {
        let kubeconfig = include_str!("../../../deploy/kustomize/components/watch/kubeconfig");
        files.push(File::open(KUBECONFIG, kubeconfig));
        kustomization.push_str(include_str!("templates/in-cluster/watch.yaml"));
    } else {
        let account = include_str!("templates/watch/service-account.yaml");
        files.push(File::open(SERVICE_ACCOUNT, account));
        kustomization.push_str("- service-account.yaml\n");
    }
    files.push(File::open("cluster/kustomization.yaml", kustomization));
    if cache_file(filling.directory(), set_up) == STATE {
        // Also creates the folder, which must exist.
        files.push(File::open("state/.gitignore", "*\n"));
    }
    files
}

/// The path of the cache file: below `/var/lib` for pods and for a set-up in `/etc`, otherwise in
/// the folder of the set-up.
pub(crate) fn cache_file(directory: &Path, set_up: &SetUp<'_>) -> &'static str {
    if set_up.in_cluster.is_some() || directory.starts_with("/etc") {
        "/var/lib/portcullis/default.cache"
    } else {
        STATE
    }
}

/// The commands to run after `init --watch`, for a gateway outside the cluster.
pub(crate) fn commands(directory: &Path) -> [String; 2] {
    let folder = output::argument(&directory.join(FOLDER));
    let directory = output::argument(directory);
    [
        format!("kubectl apply -k {folder}"),
        format!("{} init {directory} --credentials", output::program()),
    ]
}

/// Checks that the set-up in `directory` uses credentials.
///
/// # Errors
///
/// The set-up does not watch, or its gateway runs in the cluster.
pub(crate) fn check_set_up(directory: &Path) -> Result<(), CommandError> {
    if !directory.join(SERVICE_ACCOUNT).is_file() {
        return Err(CommandError::Usage(format!(
            "`{}` does not exist: `--credentials` is for a set-up of `init --watch` whose gateway runs outside \
             the cluster (one of `--in-cluster` uses the token of its pod)",
            directory.join(SERVICE_ACCOUNT).display()
        )));
    }
    Ok(())
}

/// Writes the kubeconfig with which the gateway of `directory` reaches `cluster`, at the URL
/// `server` if given, and the token of its service account. Blocks until the token exists, for at
/// most ten seconds.
///
/// # Errors
///
/// The cluster has no token, or a file cannot be written.
pub(crate) fn write_credentials(
    directory: &Path,
    cluster: &LiveCluster,
    server: Option<&str>,
) -> Result<Vec<&'static str>, CommandError> {
    let token = token(directory, cluster)?;
    let mut files = vec![File::secret(TOKEN, token)];
    if let Some(authorities) = &cluster.server().authorities {
        files.push(File::open(AUTHORITIES, authorities.clone()));
    }
    // The kubeconfig is written last, so that the files that it names exist.
    files.push(File::open(KUBECONFIG, kubeconfig(cluster.server(), server)?));
    for file in &files {
        replace(directory, file)?;
    }
    Ok(files.iter().map(|file| file.path).collect())
}

/// The kubeconfig for the API server at `url` or, if `None`, at the URL of `address`.
fn kubeconfig(address: &ServerAddress, url: Option<&str>) -> Result<String, CommandError> {
    if !address.is_verified {
        let message = "the kubeconfig does not verify the API server (`insecure-skip-tls-verify`), but the \
            gateway needs a verified connection: name a kubeconfig with `certificate-authority` by \
            `--kubeconfig`";
        return Err(CommandError::Usage(message.to_owned()));
    }
    let quoted = |text: &str| Value::from(text).to_string();
    let mut server = format!("    server: {}\n", quoted(url.unwrap_or(&address.url)));
    if address.authorities.is_some() {
        server.push_str("    certificate-authority: ca.crt\n");
    }
    if let Some(name) = &address.server_name {
        let _ = writeln!(server, "    tls-server-name: {}", quoted(name));
    }
    Ok(include_str!("templates/watch/kubeconfig").replace("    server: {{server}}\n", &server))
}

/// Waits for the token that kube-controller-manager writes into the Secret.
fn token(directory: &Path, cluster: &LiveCluster) -> Result<Vec<u8>, CommandError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        let secret = cluster.secret(NAMESPACE, SECRET)?.ok_or_else(|| {
            let [apply, _] = commands(directory);
            CommandError::Usage(format!(
                "there is no Secret `{SECRET}` in namespace `{NAMESPACE}`: run `{apply}` first"
            ))
        })?;
        let token = secret.pointer("/data/token").and_then(Value::as_str);
        if let Some(token) = token.and_then(|token| STANDARD.decode(token).ok()) {
            return Ok(token);
        }
    }
    Err(CommandError::Usage(format!(
        "the Secret `{SECRET}` in namespace `{NAMESPACE}` has no token yet: kube-controller-manager creates \
        it; wait until it runs, and try again"
    )))
}
