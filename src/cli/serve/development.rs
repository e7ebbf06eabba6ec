//! The development set-up, served when nothing is configured, and the commands to try that are
//! printed with it.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use crate::cli::output::{self, CommandError, Format};
use crate::cli::{init, policy_files};
use crate::config::files::{KeyFolderOwner, unsafe_for_keys};
use crate::server::ListenAddresses;
use portcullis_policy::explain::Lines;

/// The configuration of the development set-up that is there.
///
/// # Errors
///
/// There is none; its folder is a link, or others may write to it.
pub(crate) fn existing() -> Result<PathBuf, CommandError> {
    found()?.ok_or_else(|| {
        let portcullis = output::program();
        CommandError::Usage(format!(
            "nothing says what to serve: name a configuration by `--config FILE`, make one by \
             `{portcullis} init DIR`, or run `{portcullis}` alone, which makes a development set-up in \
             `.portcullis/` and serves it"
        ))
    })
}

/// The folder of the development set-up.
fn folder() -> &'static Path {
    let configuration = Path::new(policy_files::DEVELOPMENT);
    configuration.parent().unwrap_or(Path::new(""))
}

fn found() -> Result<Option<PathBuf>, CommandError> {
    let configuration = PathBuf::from(policy_files::DEVELOPMENT);
    // Another's would be served with the keys that are in it.
    if let Some(why) = unsafe_for_keys(folder(), KeyFolderOwner::Own) {
        return Err(CommandError::Usage(why));
    }
    Ok(configuration.is_file().then_some(configuration))
}

/// The same, made now unless it is there.
///
/// # Errors
///
/// It cannot be made, or could not be served; its folder is a link, or others may write to it; a
/// folder that an interrupted start left behind is named.
pub(crate) fn set_up(format: Format) -> Result<PathBuf, CommandError> {
    if let Some(configuration) = found()? {
        return Ok(configuration);
    }
    check_ports()?;
    let folder = folder();
    let files = init::write(&init::absolute(folder)?, &init::SetUp::development())?;
    if format == Format::Text {
        let text = format!(
            "created a development set-up in {}: {} files",
            folder.display(),
            files.len()
        );
        output::print(format, &Lines::from_iter([text]), &())?;
    }
    Ok(PathBuf::from(policy_files::DEVELOPMENT))
}

/// Where a fresh development set-up listens.
const PORTS: [u16; 3] = [8443, 9090, 9091];

/// Refuses to make a set-up that could not be served.
fn check_ports() -> Result<(), CommandError> {
    for port in PORTS {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Err(CommandError::Usage(format!(
                "cannot listen on 127.0.0.1:{port}: {error}: stop the program that does, or let `{} init \
                 DIR` make a set-up whose configuration you give other addresses",
                output::program()
            )));
        }
    }
    Ok(())
}

/// Commands that work in the folder in which the gateway was started.
pub(crate) struct TryIt<'a> {
    /// The folder of the set-up, as seen from where the gateway was started.
    relative: &'a Path,
    /// The same for programs that are started elsewhere.
    absolute: &'a Path,
    addresses: ListenAddresses,
}

impl<'a> TryIt<'a> {
    /// For the set-up whose configuration is at these paths.
    pub(crate) fn new(relative: &'a Path, absolute: &'a Path, addresses: ListenAddresses) -> Self {
        let folder = |path: &'a Path| path.parent().unwrap_or(path);
        Self {
            relative: folder(relative),
            absolute: folder(absolute),
            addresses,
        }
    }
}

impl fmt::Display for TryIt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (relative, absolute) = (output::argument(self.relative), output::argument(self.absolute));
        let portcullis = output::program();
        let ListenAddresses {
            server,
            admin,
            console,
        } = self.addresses;
        let console = console.map(|address| format!("Look at what is decided, and why: http://{address}/\n"));
        let console = console.unwrap_or_default();
        write!(
            f,
            r#"serving https://{server}

Send a request, as an API server would:

  curl --cacert {relative}/pki/ca.crt --cert {relative}/pki/authorization.crt \
    --key {relative}/pki/authorization.key -H 'Content-Type: application/json' \
    https://{server}/authorize -d '{REVIEW}'

Decide the same offline, and see why; ask who else may, and what objects and past requests
would become:

  {portcullis} authorize {AUTHORIZE}
  {portcullis} who-can delete deployments.apps -n prod-web
  {portcullis} admit -f {relative}/examples/deployment.yaml
  {portcullis} replay {relative}/examples/recording.jsonl

Connect a kube-apiserver on this machine (1.30 and later, instead of --authorization-mode):

  --authorization-config={absolute}/authorization-configuration.yaml

or, with the older flags:

  --authorization-mode=Webhook,Node,RBAC --authorization-webhook-version=v1 \
  --authorization-webhook-config-file={absolute}/kubeconfigs/authorization.kubeconfig

The policies in {relative}/policies are examples, and in force: change one, and the gateway
notices. {relative}/examples/README.md tries every command with them.

{console}Metrics: curl http://{admin}/metrics
More: {relative}/README.md. For other hosts: {portcullis} init DIR --host NAME

"#
        )
    }
}

/// A developer wants to delete in production.
const REVIEW: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","groups":["dev"],"resourceAttributes":{"verb":"delete","group":"apps","resource":"deployments","namespace":"prod-web","name":"web"}}}"#;

/// The same request, for `authorize`.
const AUTHORIZE: &str =
    "--user jane --group dev --verb delete --resource deployments.apps -n prod-web --name web";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_review_is_one_that_the_server_reads() {
        let review = portcullis_policy::api::SubjectAccessReview::decode(REVIEW.as_bytes()).unwrap();
        assert_eq!(review.attributes.user.name, "jane");
        // The shell ends its argument at the first quote.
        assert!(!REVIEW.contains('\''));
    }

    #[test]
    fn what_is_decided_offline_is_the_review() {
        let review: serde_json::Value = serde_json::from_str(REVIEW).unwrap();
        let [user, group] =
            ["/spec/user", "/spec/groups/0"].map(|place| review.pointer(place).unwrap().as_str().unwrap());
        let of = |field: &str| review["spec"]["resourceAttributes"][field].as_str().unwrap();
        let flags = format!(
            "--user {user} --group {group} --verb {} --resource {}.{} -n {} --name {}",
            of("verb"),
            of("resource"),
            of("group"),
            of("namespace"),
            of("name"),
        );
        assert_eq!(AUTHORIZE, flags);
    }
}
