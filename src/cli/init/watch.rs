//! `init --watch` and `init --credentials`: what lets the gateway watch its cluster.
//!
//! ```text
//! --watch         cluster/*.yaml       definitions, roles, a service account   ── kubectl apply -k ──▶ cluster
//!                 portcullis.yaml      clusters: [{kubeconfig: cluster/kubeconfig}]
//! --credentials   cluster/kubeconfig   where the API server is, and the token  ◀─────────── Secret ── cluster
//! ```
//!
//! Gateways in the cluster use the token that each pod has, and need no second step.

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

/// Everything for watching, and the only folder with credentials for it.
const FOLDER: &str = "cluster";
const KUBECONFIG: &str = "cluster/kubeconfig";
const AUTHORITIES: &str = "cluster/ca.crt";
pub(crate) const TOKEN: &str = "cluster/token";
const SERVICE_ACCOUNT: &str = "cluster/service-account.yaml";

/// Where the service account of a gateway outside the cluster is, and its token.
const NAMESPACE: &str = "kube-system";
const SECRET: &str = "portcullis-token";

/// What was last seen, in a set-up that keeps it itself.
const STATE: &str = "state/default.cache";

/// How often, and how far apart, it is asked whether kube-controller-manager has made the token.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// What stands in the roles of config/cluster, for a gateway whose kubeconfig has a user of that name.
const USER: &str = "- {apiGroup: rbac.authorization.k8s.io, kind: User, name: portcullis}";

macro_rules! shipped {
    ($folder:literal, $name:literal) => {
        (
            concat!("cluster/", $name),
            include_str!(concat!("../../../config/", $folder, "/", $name)),
        )
    };
}

/// The definitions of Portcullis' own kinds, and what the gateway's user may do.
const MANIFESTS: [(&str, &str); 6] = [
    shipped!("crd", "authorizationpolicies.yaml"),
    shipped!("crd", "authorizationinvariants.yaml"),
    shipped!("crd", "admissionexceptions.yaml"),
    shipped!("crd", "accessrequests.yaml"),
    shipped!("cluster", "gateway.yaml"),
    shipped!("cluster", "admission.yaml"),
];

/// The files of `set_up` for watching; none where it does not watch.
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
        // For the folder, too: it has to be there.
        files.push(File::open("state/.gitignore", "*\n"));
    }
    files
}

/// Where a gateway keeps what it last saw: as other services do for a set-up in `/etc`, and pods, else
/// in the folder of the set-up.
pub(crate) fn cache_file(directory: &Path, set_up: &SetUp<'_>) -> &'static str {
    if set_up.in_cluster.is_some() || directory.starts_with("/etc") {
        "/var/lib/portcullis/default.cache"
    } else {
        STATE
    }
}

/// The commands that put it to use, for a gateway that does not run in the cluster.
pub(crate) fn commands(directory: &Path) -> [String; 2] {
    let folder = output::argument(&directory.join(FOLDER));
    let directory = output::argument(directory);
    [
        format!("kubectl apply -k {folder}"),
        format!("{} init {directory} --credentials", output::program()),
    ]
}

/// Refuses a set-up that has no use for credentials.
///
/// # Errors
///
/// It does not watch, or runs in the cluster.
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

/// Writes how the gateway of `directory` reaches `cluster`, at `server` if it is named, and the token
/// of its service account. Blocks until the cluster has one, for ten seconds at most.
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
    // Last: where it is, the rest is whole.
    files.push(File::open(KUBECONFIG, kubeconfig(cluster.server(), server)?));
    for file in &files {
        replace(directory, file)?;
    }
    Ok(files.iter().map(|file| file.path).collect())
}

/// For the server at `url`, or as `address` has it.
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

/// The token that kube-controller-manager puts into the Secret, once it has.
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
