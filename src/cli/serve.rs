//! `portcullis serve`, and `portcullis` without a command: starts and runs a gateway.
//!
//! ```text
//! configuration --state::load--> Snapshot --> State --.--> Server --until SIGTERM--> drained
//!                                               ^      |
//!                              Reloader --------'   metrics, decision log
//!                                 ^-- SIGHUP, clusters
//! ```

use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::{init, policy_files};
use crate::config::files::{KeyFolderOwner, unsafe_for_keys};
use crate::config::{Config, LogPath};
use crate::server::{Gateway, ListenAddresses, Server, Signals};
use crate::state::{
    self, BundleObserver, BundlePuller, LastGoodError, ManifestSource, ReloadAttempt, ReloadFailure,
    ReloadState, Reloader, Snapshot, Trigger,
};
use crate::telemetry::decision_log::Destination;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::{DecisionLog, Metrics, logging};
use portcullis_policy::explain::Lines;
use portcullis_policy::field::Faults;

/// Serve until SIGTERM; read all files again on SIGHUP.
///
/// Logs go to standard error. PORTCULLIS_LOG filters them (`info`, `portcullis::state=debug`);
/// PORTCULLIS_LOG_FORMAT=json writes one JSON object per line.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The configuration file [default: that of the development set-up in `.portcullis/`, if there
    /// is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept that objects missing in this watched cluster were deleted; repeat for each cluster.
    ///
    /// Applies until every kind of the cluster has been listed, even if the lists are older than
    /// the known objects or lack most of them.
    #[arg(long, value_name = "CLUSTER")]
    accept_absence: Vec<String>,
    #[command(flatten)]
    output: Output<Format>,
    /// Whether a development set-up is made where there is none.
    #[arg(skip)]
    is_without_command: bool,
}

const EXAMPLES: &str = "\
Examples:
  portcullis serve --config /etc/portcullis/portcullis.yaml
  PORTCULLIS_LOG=debug portcullis serve --config portcullis.yaml";

/// The JSON output: the addresses of the gateway.
#[derive(Debug, Serialize)]
struct ListenerAddresses<'a> {
    config: &'a Path,
    server: String,
    admin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    console: Option<String>,
}

/// The path of the development configuration.
///
/// # Errors
///
/// It does not exist; its folder is a link, or others may write to it.
pub(crate) fn development_configuration() -> Result<PathBuf, CommandError> {
    find_development_configuration()?.ok_or_else(|| {
        let portcullis = output::program();
        CommandError::Usage(format!(
            "no configuration: name one with `--config FILE`, create one with `{portcullis} init DIR`, or run \
            `{portcullis}` without arguments to create and serve a development set-up in `.portcullis/`"
        ))
    })
}

/// The folder of the development set-up.
fn folder() -> &'static Path {
    let configuration = Path::new(policy_files::DEVELOPMENT);
    configuration.parent().unwrap_or(Path::new(""))
}

fn find_development_configuration() -> Result<Option<PathBuf>, CommandError> {
    let configuration = PathBuf::from(policy_files::DEVELOPMENT);
    // Otherwise the gateway could use keys that another user has written.
    if let Some(why) = unsafe_for_keys(folder(), KeyFolderOwner::Own) {
        return Err(CommandError::Usage(why));
    }
    Ok(configuration.is_file().then_some(configuration))
}

/// The path of the development configuration, which is created if it does not exist.
///
/// # Errors
///
/// It cannot be created, or could not be served; its folder is a link, or others may write to it;
/// an interrupted start left files behind.
pub(crate) fn set_up(format: Format) -> Result<PathBuf, CommandError> {
    if let Some(configuration) = find_development_configuration()? {
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

/// The ports of a new development set-up.
const PORTS: [u16; 3] = [8443, 9090, 9091];

/// Checks that the ports are free before a set-up is created.
fn check_ports() -> Result<(), CommandError> {
    for port in PORTS {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Err(CommandError::Usage(format!(
                "cannot listen on 127.0.0.1:{port}: {error}: stop the program that does, or create a set-up \
                with `{} init DIR` and set other addresses in its configuration",
                output::program()
            )));
        }
    }
    Ok(())
}

/// The text output for a development set-up: commands to try, for the working directory of the
/// gateway.
pub(crate) struct TryOutMessage<'a> {
    /// The folder of the set-up, relative to the working directory.
    relative: &'a Path,
    /// The absolute path of the folder.
    absolute: &'a Path,
    addresses: ListenAddresses,
}

impl<'a> TryOutMessage<'a> {
    /// The output for the set-up with this configuration.
    pub(crate) fn new(relative: &'a Path, absolute: &'a Path, addresses: ListenAddresses) -> Self {
        let folder = |path: &'a Path| path.parent().unwrap_or(path);
        Self {
            relative: folder(relative),
            absolute: folder(absolute),
            addresses,
        }
    }
}

impl fmt::Display for TryOutMessage<'_> {
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

/// A developer wants to delete a Deployment in production.
const REVIEW: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","groups":["dev"],"resourceAttributes":{"verb":"delete","group":"apps","resource":"deployments","namespace":"prod-web","name":"web"}}}"#;

/// The same request as arguments of `authorize`.
const AUTHORIZE: &str =
    "--user jane --group dev --verb delete --resource deployments.apps -n prod-web --name web";

// === impl Serve ===

impl Serve {
    /// The arguments of `portcullis` without a command.
    pub(crate) fn without_command() -> Self {
        Self {
            is_without_command: true,
            ..Self::default()
        }
    }

    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let metrics = Arc::new(Metrics::new().map_err(|error| CommandError::Serve(error.into()))?);
        let _log =
            logging::start(metrics.log_dropped()).map_err(|error| CommandError::Usage(error.to_string()))?;
        let path = match &self.config {
            Some(path) => policy_files::check_regular_file(path).map(|()| path.clone())?,
            None if self.is_without_command => set_up(format)?,
            None => development_configuration()?,
        };
        let now = SystemTime::now();
        let source = policy_files::source_accepting_absence(self.accept_absence.iter().cloned().collect());
        let Some(start) = GatewayStart::read(&path, &*source, now) else {
            return Ok(CommandResult::Failure);
        };
        self.check_clusters(&start.snapshot.config)?;
        match start.failure {
            None if start.snapshot.held_objects.is_empty() => metrics.loaded(now),
            _ => metrics.not_loaded(),
        }
        let GatewayStart { snapshot, failure } = start;
        let decision_log = open_log(
            snapshot.config.decision_log.as_ref().map(|log| &log.path),
            &metrics,
        )?;
        let revision = Arc::clone(&snapshot.revision);
        let state = match failure {
            None => ReloadState::new(snapshot, source),
            Some(failure) => ReloadState::with_last_good(failure, snapshot, source),
        };
        let reloader = reloader(&state, &path, &metrics)?;
        let _bundles = bundles(&state, &path, reloader.trigger(), &metrics)?;
        state
            .start_source(reloader.trigger())
            .map_err(|error| CommandError::Serve(error.into()))?;
        let gateway = Gateway {
            state,
            metrics,
            decision_log: decision_log.clone(),
        };
        let server = Server::bind(gateway).map_err(|error| CommandError::Serve(error.into()))?;
        let addresses = server.addresses();
        let announcement = StartMessage {
            format,
            config: path,
            addresses,
            development: self.config.is_none(),
        };
        let trigger = reloader.trigger();
        let stop = async move {
            match Signals::listen() {
                Ok(signals) => {
                    let console = addresses.console.map(tracing::field::display);
                    tracing::info!(server = %addresses.server, admin = %addresses.admin, console, %revision, "serving");
                    // Printing must not delay reviews if nobody reads standard output.
                    std::thread::spawn(move || announcement.print());
                    signals
                        .until_terminated(|| handle_sighup(&trigger, decision_log.as_ref()))
                        .await;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot install signal handlers")
                }
            }
        };
        server
            .run(stop)
            .map_err(|error| CommandError::Serve(error.into()))?;
        tracing::info!("stopped");
        Ok(CommandResult::Success)
    }
}

impl Serve {
    /// Checks that each `--accept-absence` names a watched cluster, because a misspelt name would
    /// have no effect.
    fn check_clusters(&self, config: &Config) -> Result<(), CommandError> {
        for name in &self.accept_absence {
            if !config.clusters.iter().any(|entry| entry.name == *name) {
                let message = format!("--accept-absence: `{name}` is not a cluster in `clusters`");
                return Err(CommandError::Usage(message));
            }
            tracing::warn!(
                cluster = name,
                "objects missing in the cluster count as deleted until all kinds are listed: start without \
                `--accept-absence` the next time"
            );
        }
        Ok(())
    }
}

/// The snapshot with which a gateway starts.
struct GatewayStart {
    snapshot: Snapshot,
    /// Why the files on disk are not in force, if the snapshot is the last good one.
    failure: Option<ReloadFailure>,
}

// === impl GatewayStart ===

impl GatewayStart {
    /// Loads the files or, if they have errors, the last good files. Prints the errors and returns
    /// `None` if that fails, too.
    fn read(path: &Path, source: &dyn ManifestSource, now: SystemTime) -> Option<Self> {
        let (mut snapshot, mut faults) = state::load(path, source, None, now);
        // The errors may be gone with the first or with a newer version of a bundle.
        if snapshot.is_none() && pull_bundles(path, source) {
            (snapshot, faults) = state::load(path, source, None, now);
        }
        if let Some(snapshot) = snapshot {
            state::log(&faults, &snapshot);
            return Some(Self {
                snapshot,
                failure: None,
            });
        }
        match state::last_good(path, source, now) {
            Ok(snapshot) => Some(Self::of_last_good(snapshot, faults, now)),
            Err(error) => {
                if !matches!(error, LastGoodError::NotConfigured) {
                    tracing::error!(%error, "cannot use the last good set either");
                }
                let path = path.display().to_string();
                output::print_error_lines(&CommandError::Faulty { path, faults }.to_lines());
                None
            }
        }
    }

    fn of_last_good(snapshot: Snapshot, faults: Faults, now: SystemTime) -> Self {
        faults.iter().for_each(|fault| tracing::error!("{fault}"));
        tracing::error!(
            revision = %snapshot.revision,
            faults = faults.len(),
            "the files have errors: serving the last good set"
        );
        let failure = ReloadFailure {
            at: now,
            faults: Arc::new(faults),
            is_hanging: false,
        };
        Self {
            snapshot,
            failure: Some(failure),
        }
    }
}

/// Pulls the bundles of the configuration, and returns whether any pull succeeded.
fn pull_bundles(path: &Path, source: &dyn ManifestSource) -> bool {
    let results = state::pull_bundles(path, source).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot pull bundles");
        Vec::new()
    });
    for (bundle, result) in &results {
        if let Err(error) = result {
            tracing::error!(bundle = bundle.name, reference = %bundle.reference, %error, "the bundle was rejected");
        }
    }
    results.iter().any(|(_, result)| result.is_ok())
}

/// Starts to pull the bundles of the configuration periodically, and counts the results.
fn bundles(
    state: &Arc<ReloadState>,
    path: &Path,
    trigger: Trigger,
    metrics: &Arc<Metrics>,
) -> Result<BundlePuller, CommandError> {
    let metrics = Arc::clone(metrics);
    let observer: BundleObserver = Arc::new(move |source, result| {
        let created = result.as_ref().ok().map(|manifest| manifest.created);
        metrics.bundle_pull(&source.name, created, SystemTime::now());
    });
    BundlePuller::start(Arc::clone(state), path.to_owned(), trigger, observer)
        .map_err(|error| CommandError::Serve(error.into()))
}

fn open_log(path: Option<&LogPath>, metrics: &Metrics) -> Result<Option<DecisionLog>, CommandError> {
    let Some(path) = path else { return Ok(None) };
    let destination = match path {
        LogPath::Stdout => Destination::Stdout,
        LogPath::File(path) => Destination::File(path.clone()),
        // Parquet files are written by the gateway.
        LogPath::Parquet(_) => return Ok(None),
    };
    let log = DecisionLog::open(destination, metrics.decision_log_dropped());
    log.map(Some).map_err(|source| match path {
        LogPath::File(path) => CommandError::file("write", path, source),
        LogPath::Stdout | LogPath::Parquet(_) => CommandError::Output(source),
    })
}

/// Starts to reload `state` when files change, and counts the results.
fn reloader(state: &Arc<ReloadState>, path: &Path, metrics: &Arc<Metrics>) -> Result<Reloader, CommandError> {
    let metrics = Arc::clone(metrics);
    let observer = Box::new(move |attempt: ReloadAttempt<'_>| match attempt {
        ReloadAttempt::Reloaded(state) => {
            metrics.reload(Outcome::Success, SystemTime::now());
            if !state.current().held_objects.is_empty() {
                metrics.not_loaded();
            }
        }
        // The files were not read again.
        ReloadAttempt::Refreshed(_) => {}
        ReloadAttempt::RestrictionsRemoved(restrictions) => {
            restrictions
                .iter()
                .for_each(|restriction| metrics.restriction_removed(restriction.kind));
        }
        ReloadAttempt::Failed(_) => metrics.reload(Outcome::Failure, SystemTime::now()),
    });
    Reloader::start(
        Arc::clone(state),
        path.to_owned(),
        state::RELOAD_TIMEOUT,
        observer,
    )
    .map_err(|error| CommandError::Serve(error.into()))
}

/// On SIGHUP, reloads the files and reopens the decision log.
fn handle_sighup(trigger: &Trigger, decision_log: Option<&DecisionLog>) {
    trigger.reload();
    if let Some(log) = decision_log {
        log.reopen();
    }
}

/// The output on start: the addresses and, for a development set-up, commands to try.
struct StartMessage {
    format: Format,
    config: PathBuf,
    addresses: ListenAddresses,
    development: bool,
}

impl StartMessage {
    /// Prints the message. A closed standard output does not stop the gateway.
    fn print(&self) {
        let serving = ListenerAddresses {
            config: &self.config,
            server: self.addresses.server.to_string(),
            admin: self.addresses.admin.to_string(),
            console: self.addresses.console.map(|address| address.to_string()),
        };
        let printed = if self.development {
            super::init::absolute(&self.config).and_then(|absolute| {
                let mut words = Lines::new();
                words.each(
                    "",
                    &TryOutMessage::new(&self.config, &absolute, self.addresses).to_string(),
                );
                output::print(self.format, &words, &serving)
            })
        } else {
            output::print(self.format, &Lines::new(), &serving)
        };
        if let Err(error) = printed {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_review_is_one_that_the_server_reads() {
        let review = portcullis_policy::api::SubjectAccessReview::decode(REVIEW.as_bytes()).unwrap();
        assert_eq!(review.attributes.user.name, "jane");
        // The argument is in single quotes in the shell.
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
