//! `portcullis register`: registers the webhooks of gateways that run in the same cluster as the
//! API server, if the API server's flags cannot be set.
//!
//! ```text
//! Secret ──read──▶ WebhookCredentials ──repaired, advanced──▶ Secret ──kubelet──▶ gateways
//!                         '── token, authorities ──▶ webhook configurations ──▶ API servers
//! ```
//!
//! Each run is one step, and does not depend on earlier runs: a Job runs the command whenever the
//! installation changes, and a CronJob every hour. It creates no objects, so it only needs
//! permission for three objects by name: the Secret and the two webhook configurations, which the
//! manifests of the installation create without content.

mod credentials;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::init::Host;
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::parse_time;
use crate::cluster::LiveCluster;
use crate::config::files::{CONFIGURATION_BYTES, read_text};
use crate::config::parse_duration;
use credentials::{RotationRules, WebhookCredentials};
use portcullis_policy::document;
use portcullis_policy::explain::Lines;
use portcullis_policy::field::Faults;
use portcullis_policy::model::Time;

/// The interval at which the state of the pods is read.
const PAUSE: Duration = Duration::from_secs(2);

/// Register webhooks whose path contains a token with the cluster's API server, and renew the
/// token.
///
/// For clusters whose API server flags cannot be set, such as managed ones. The chart runs this
/// command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Register {
    /// A file with webhook configurations, which must exist in the cluster; repeat for each.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The Secret that holds the token, the certificate and its key. It must exist, and may be empty.
    #[arg(long, value_name = "NAME", default_value = "portcullis-webhook")]
    secret: String,
    /// The namespace of the Secret and of the gateways [default: that of the kubeconfig or of the pod]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// A DNS name at which the API server reaches the gateways, for their certificate; repeat for
    /// each.
    ///
    /// Without a name, only the token is created, and another program must create the certificate.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<Host>,
    /// Wait until all pods of this Deployment or DaemonSet have its current version and one is
    /// ready.
    #[arg(long, value_name = "KIND/NAME", value_parser = Workload::parse)]
    after: Option<Workload>,
    /// The maximum time to wait for `--after`.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    /// Replace a certificate and a token created before this time [default: eight months ago].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    renew_before: Option<Time>,
    /// The maximum time that pods and API servers take to read a change.
    ///
    /// A replacement has three steps, each in a separate run, at least this long after the one
    /// before.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    propagation: Duration,
    /// Remove the webhooks from the webhook configurations, so that the API server calls no
    /// gateway.
    #[arg(long)]
    remove: bool,
    /// The kubeconfig of the cluster [default: the one that kubectl uses, or the pod's
    /// ServiceAccount]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis register -f webhooks.yaml -n portcullis --host portcullis.portcullis.svc --after deployment/portcullis
  portcullis register -f webhooks.yaml --remove";

/// The Deployment or DaemonSet of the gateways.
#[derive(Debug, Clone)]
struct Workload {
    kind: &'static str,
    name: String,
}

/// The JSON output: what was changed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RegistrationResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<&'static str>,
    changed: Vec<String>,
}

// === impl Register ===

impl Register {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let now = SystemTime::now();
        if self.renew_before.is_some_and(|before| before > now.into()) {
            let message = "`--renew-before` is in the future: name a time in the past";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let configurations = self.configurations()?;
        let cluster = LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref())?;
        let result = if self.remove {
            RegistrationResult {
                rotation: None,
                changed: remove(&cluster, &configurations)?,
            }
        } else {
            self.register(&cluster, &configurations, now)?
        };
        output::print(self.output.output, &result.in_words(), &result)?;
        Ok(CommandResult::Success)
    }

    fn register(
        &self,
        cluster: &LiveCluster,
        configurations: &[Value],
        now: SystemTime,
    ) -> Result<RegistrationResult, CommandError> {
        let rules = RotationRules {
            hosts: &self.hosts,
            now,
            propagation: self.propagation,
            renew_before: self.renew_before,
        };
        let secret = self.secret(cluster)?;
        let mut credentials = WebhookCredentials::read(&secret);
        for fault in credentials.faults(&rules) {
            let Self { secret, .. } = self;
            output::print_error(format_args!(
                "warning: Secret `{secret}`: {fault}: it is replaced"
            ));
        }
        let repaired = credentials.repaired(&rules)?;
        let mut is_written = repaired.is_some();
        if let Some(repaired) = repaired {
            cluster.apply(&repaired.object(&secret))?;
            credentials = repaired;
        }
        if let Some(workload) = &self.after {
            workload.wait(cluster, self.namespace(cluster), self.timeout)?;
        }
        let mut changed = register(cluster, configurations, &credentials)?;
        // A new registration has not reached all API servers yet.
        if !is_written
            && changed.is_empty()
            && let Some(advanced) = credentials.advanced(&rules)?
        {
            cluster.apply(&advanced.object(&secret))?;
            changed = register(cluster, configurations, &advanced)?;
            (credentials, is_written) = (advanced, true);
        }
        if is_written {
            changed.insert(0, format!("secret/{}", self.secret));
        }
        Ok(RegistrationResult {
            rotation: Some(credentials.phase().as_str()),
            changed,
        })
    }

    fn namespace<'a>(&'a self, cluster: &'a LiveCluster) -> &'a str {
        self.namespace.as_deref().unwrap_or(cluster.namespace())
    }

    fn secret(&self, cluster: &LiveCluster) -> Result<Value, CommandError> {
        let namespace = self.namespace(cluster);
        cluster.secret(namespace, &self.secret)?.ok_or_else(|| {
            let Self { secret, .. } = self;
            CommandError::Usage(format!(
                "there is no Secret `{secret}` in namespace `{namespace}`, which the chart creates: `kubectl \
                create secret generic {secret} --namespace {namespace}` makes an empty one"
            ))
        })
    }

    /// The webhook configurations in the files.
    fn configurations(&self) -> Result<Vec<Value>, CommandError> {
        let mut configurations = Vec::new();
        for path in &self.files {
            for configuration in read(path)? {
                check(&configuration)
                    .map_err(|why| CommandError::Usage(format!("`{}`: {why}", path.display())))?;
                configurations.push(configuration);
            }
        }
        if configurations.is_empty() {
            let message = "the files contain no webhook configuration";
            return Err(CommandError::Usage(message.to_owned()));
        }
        Ok(configurations)
    }
}

// === impl RegistrationResult ===

impl RegistrationResult {
    fn in_words(&self) -> Lines {
        if self.changed.is_empty() {
            return Lines::from_iter(["nothing to change"]);
        }
        self.changed
            .iter()
            .map(|object| format!("{object} changed"))
            .collect()
    }
}

// === impl Workload ===

impl Workload {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let expected = "expected `deployment/NAME` or `daemonset/NAME`";
        let (kind, name) = text.split_once('/').ok_or(expected)?;
        let kind = match kind {
            "deployment" => "Deployment",
            "daemonset" => "DaemonSet",
            _ => return Err(expected),
        };
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }

    fn wait(&self, cluster: &LiveCluster, namespace: &str, timeout: Duration) -> Result<(), CommandError> {
        let object = json!({
            "apiVersion": "apps/v1", "kind": self.kind, "metadata": {"name": self.name, "namespace": namespace},
        });
        let start = Instant::now();
        loop {
            let found = cluster.find(&object)?;
            if found.as_ref().is_some_and(is_rolled_out) {
                return Ok(());
            }
            if start.elapsed() >= timeout {
                let Self { kind, name } = self;
                return Err(CommandError::Usage(format!(
                    "{kind} `{name}` in namespace `{namespace}` has no ready pod, or pods of an older version, so the \
                     webhook configurations stay as they are: `kubectl -n {namespace} describe pods` says why"
                )));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Whether all pods are of the current version, and one is ready.
fn is_rolled_out(workload: &Value) -> bool {
    let number = |pointer: &str| workload.pointer(pointer).and_then(Value::as_u64);
    let of_either = |deployment: &str, daemon_set: &str| number(deployment).or_else(|| number(daemon_set));
    let wanted = of_either("/spec/replicas", "/status/desiredNumberScheduled");
    let updated = of_either("/status/updatedReplicas", "/status/updatedNumberScheduled");
    let ready = of_either("/status/availableReplicas", "/status/numberAvailable");
    let is_seen = number("/status/observedGeneration") >= number("/metadata/generation");
    is_seen && wanted.is_some() && updated >= wanted && ready > Some(0)
}

fn read(path: &Path) -> Result<Vec<Value>, CommandError> {
    let text =
        read_text(path, CONFIGURATION_BYTES).map_err(|source| CommandError::file("read", path, source))?;
    let documents = document::parse(path.to_str(), &text).map_err(|fault| {
        let mut faults = Faults::new();
        faults.push(fault);
        let path = path.display().to_string();
        CommandError::Faulty { path, faults }
    })?;
    let values = documents.iter().map(|document| document.root().to_json());
    Ok(values.filter(|value| !value.is_null()).collect())
}

/// Checks that this is a webhook configuration, in whose paths a token can be inserted.
fn check(configuration: &Value) -> Result<(), String> {
    let kind = configuration
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    if !kinds.contains(&kind) {
        return Err(format!("`{kind}` is not one of {}", kinds.join(", ")));
    }
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    for (index, webhook) in webhooks.into_iter().flatten().enumerate() {
        let path = webhook
            .pointer("/clientConfig/service/path")
            .and_then(Value::as_str);
        if !path.is_some_and(|path| path.starts_with('/')) {
            return Err(format!(
                "{kind}: webhooks[{index}].clientConfig.service.path: must be the path of the gateway without \
                a token, such as `/validate`"
            ));
        }
    }
    Ok(())
}

/// Applies the webhook configurations, and returns the names of changed objects.
fn register(
    cluster: &LiveCluster,
    configurations: &[Value],
    credentials: &WebhookCredentials,
) -> Result<Vec<String>, CommandError> {
    let connected = configurations
        .iter()
        .map(|configuration| with_credentials(configuration, credentials));
    apply_existing(cluster, connected)
}

fn remove(cluster: &LiveCluster, configurations: &[Value]) -> Result<Vec<String>, CommandError> {
    let without = configurations.iter().map(|configuration| {
        let field = |name: &str| configuration.get(name);
        let (api_version, kind, metadata) = (field("apiVersion"), field("kind"), field("metadata"));
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "webhooks": []})
    });
    apply_existing(cluster, without)
}

/// Applies objects that exist in the cluster. It is an error if one does not exist, unless its
/// webhooks are to be removed.
fn apply_existing(
    cluster: &LiveCluster,
    objects: impl Iterator<Item = Value>,
) -> Result<Vec<String>, CommandError> {
    let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
    let mut changed = Vec::new();
    for object in objects {
        let named = |field: &str| {
            object
                .pointer(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let name = format!("{}/{}", named("/kind").to_lowercase(), named("/metadata/name"));
        let Some(before) = cluster.find(&object)? else {
            let is_removal = object.get("webhooks") == Some(&json!([]));
            if is_removal {
                continue;
            }
            return Err(CommandError::Usage(format!(
                "there is no `{name}` in the cluster: install the chart again, which creates it"
            )));
        };
        let after = cluster.apply(&object)?;
        if version(&before) != version(&after) {
            changed.push(name);
        }
    }
    Ok(changed)
}

/// Adds the token to each path, and the CA of the gateways' certificate as `caBundle`.
fn with_credentials(configuration: &Value, credentials: &WebhookCredentials) -> Value {
    let mut configuration = configuration.clone();
    let webhooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        let Some(client) = webhook.get_mut("clientConfig") else {
            continue;
        };
        if let (Some(Value::String(path)), Some(token)) =
            (client.pointer_mut("/service/path"), credentials.token())
        {
            path.insert_str(0, &format!("/t/{token}"));
        }
        if let (Some(client), Some(authorities)) = (client.as_object_mut(), credentials.authorities()) {
            client.insert("caBundle".to_owned(), json!(STANDARD.encode(authorities)));
        }
    }
    configuration
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("expected a duration, such as `10m`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_rolled_out_once_all_pods_are_of_its_version_and_one_is_ready() {
        let deployment = |generation, updated, available| {
            json!({
                "metadata": {"generation": 2}, "spec": {"replicas": 2},
                "status": {"observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": available},
            })
        };
        assert!(is_rolled_out(&deployment(2, 2, 1)));
        assert!(!is_rolled_out(&deployment(1, 2, 2)));
        assert!(!is_rolled_out(&deployment(2, 1, 2)));
        assert!(!is_rolled_out(&deployment(2, 2, 0)));
        assert!(!is_rolled_out(
            &json!({"metadata": {"generation": 1}, "spec": {"replicas": 2}})
        ));
        let daemon_set = json!({
            "metadata": {"generation": 1}, "spec": {},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 1},
        });
        assert!(is_rolled_out(&daemon_set));
    }

    #[test]
    fn only_webhook_configurations_with_a_path_are_registered() {
        let with = |kind: &str, client: Value| json!({"kind": kind, "webhooks": [{"clientConfig": client}]});
        let service = json!({"service": {"path": "/validate"}});
        assert_eq!(
            check(&with("ValidatingWebhookConfiguration", service.clone())),
            Ok(())
        );
        assert!(check(&with("ClusterRoleBinding", service)).is_err());
        for client in [
            json!({"url": "https://a/validate"}),
            json!({"service": {"path": "validate"}}),
            json!(null),
        ] {
            let why = check(&with("MutatingWebhookConfiguration", client)).unwrap_err();
            assert!(why.contains("webhooks[0].clientConfig.service.path"), "{why}");
        }
    }

    #[test]
    fn kinds_of_workloads_are_those_that_run_gateways() {
        assert_eq!(Workload::parse("daemonset/a").unwrap().kind, "DaemonSet");
        for text in ["statefulset/a", "a", ""] {
            assert!(Workload::parse(text).is_err(), "{text}");
        }
    }
}
