//! `portcullis request`, `approve`, `deny` and `withdraw`: temporary access, which a user requests
//! and others approve or deny.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::live_policies::LiveArguments;
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files;
use crate::cluster::LiveCluster;
use crate::config::{self, ManifestPath};
use crate::state;
use portcullis_policy::authorization::{
    AccessRequest, AccessRequestSettings, ReviewKnowledge, ReviewedResources,
};
use portcullis_policy::document::Document;
use portcullis_policy::explain::{Lines, LoadedPolicies, one_line};
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::names::dns_subdomain;
use portcullis_policy::manifest::{ObjectIdentity, ValidatedObject, documents};
use portcullis_policy::model::groups;

/// Request a ClusterRole for a limited time.
///
/// Creates an AccessRequest in the cluster. Once others have approved it, the gateway allows what
/// the ClusterRole allows, until the time is over. Users cannot approve their own requests.
#[derive(Debug, clap::Args)]
#[command(after_help = REQUEST_EXAMPLES)]
pub(crate) struct RequestAccess {
    /// The ClusterRole.
    #[arg(value_name = "ROLE")]
    role: String,
    /// A namespace to grant the role in; repeat for each [default: that of the context, or else
    /// `default`]
    #[arg(
        short,
        long = "namespace",
        value_name = "NS",
        conflicts_with = "all_namespaces"
    )]
    namespaces: Vec<String>,
    /// Grant the role in the whole cluster.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How long to grant the role, from the last approval that is needed: `2h`, `90m`.
    #[arg(long = "for", value_name = "DURATION")]
    duration: String,
    /// Why the role is needed, for approvers and logs.
    #[arg(long)]
    reason: String,
    /// A Deny or Limit with `liftable: true` that must not refuse what the role allows; repeat for
    /// each.
    #[arg(long = "lifts", value_name = "NAME")]
    lifts: Vec<String>,
    /// The name of the AccessRequest [default: a generated name that begins with that of the role]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    live: WrittenCluster,
    #[command(flatten)]
    output: Output<Format>,
}

const REQUEST_EXAMPLES: &str = "\
Examples:
  kubectl portcullis request edit -n prod --for 2h --reason INC-1
  kubectl get accessrequests";

const APPROVE_EXAMPLES: &str = "\
Examples:
  kubectl get accessrequests
  kubectl portcullis approve edit-x7k2p";

const DENY_EXAMPLES: &str = "\
Examples:
  kubectl portcullis deny edit-x7k2p";

const WITHDRAW_EXAMPLES: &str = "\
Examples:
  kubectl portcullis withdraw edit-x7k2p";

/// Approve somebody else's AccessRequest.
#[derive(Debug, clap::Args)]
#[command(after_help = APPROVE_EXAMPLES)]
pub(crate) struct ApproveAccess {
    #[command(flatten)]
    decision: AccessDecision,
}

/// Deny somebody else's AccessRequest, so that it grants nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = DENY_EXAMPLES)]
pub(crate) struct DenyAccess {
    #[command(flatten)]
    decision: AccessDecision,
}

/// Withdraw an AccessRequest, so that it grants nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = WITHDRAW_EXAMPLES)]
pub(crate) struct WithdrawAccess {
    #[command(flatten)]
    decision: AccessDecision,
}

#[derive(Debug, clap::Args)]
struct AccessDecision {
    /// The name of the AccessRequest.
    name: String,
    #[command(flatten)]
    live: WrittenCluster,
    #[command(flatten)]
    output: Output<Format>,
}

/// The cluster in which it is written.
#[derive(Debug, clap::Args)]
struct WrittenCluster {
    /// The kubeconfig [default: the one that kubectl uses]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

// === impl WrittenCluster ===

impl WrittenCluster {
    fn connect(self) -> Result<LiveCluster, CommandError> {
        let live = LiveArguments {
            kubeconfig: self.kubeconfig,
            context: self.context,
        };
        live.connect()
    }
}

// === impl RequestAccess ===

impl RequestAccess {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let cluster = self.live.connect()?;
        let mut namespaces = self.namespaces;
        if namespaces.is_empty() && !self.all_namespaces {
            namespaces.push(cluster.namespace().to_owned());
        }
        let metadata = match self.name {
            Some(name) => json!({"name": name}),
            None => json!({"generateName": generate_name(&self.role)}),
        };
        let object = json!({
            "apiVersion": "portcullis.dev/v1alpha1",
            "kind": "AccessRequest",
            "metadata": metadata,
            "spec": {
                "role": self.role,
                "namespaces": namespaces,
                "duration": self.duration,
                "reason": self.reason,
                "lifts": self.lifts,
            },
        });
        let created = cluster.create_access_request(&object)?;
        let name = text(&created, "/metadata/name");
        let requester = text(&created, "/spec/requester/username");
        if requester.is_empty() {
            return Err(CommandError::Usage(format!(
                "AccessRequest `{name}` was created without its requester, so it grants nothing: the API \
                server does not call the gateway for it. Apply the webhook configurations of `portcullis \
                init`, and config/crd/accessrequests.yaml"
            )));
        }
        let place = match namespaces.as_slice() {
            [] => "the whole cluster".to_owned(),
            some => some.join(", "),
        };
        let mut words = Lines::new();
        let (requester, role, duration) = (one_line(requester), self.role, self.duration);
        words.each(
            "",
            &format!(
                "accessrequest.portcullis.dev/{name} created: {requester} asks for {role} in {place} for {duration}\n\
                 somebody else can approve it with: kubectl portcullis approve {name}"
            ),
        );
        output::print(self.output.output, &words, &created)?;
        Ok(CommandResult::Success)
    }
}

/// The `generateName` of an AccessRequest for `role`.
fn generate_name(role: &str) -> String {
    const MAX_BYTES: usize = 40;
    let plain = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let name: String = role.chars().map(plain).take(MAX_BYTES).collect();
    match name.trim_matches('-') {
        "" => "request-".to_owned(),
        name => format!("{name}-"),
    }
}

// === impl ApproveAccess, DenyAccess, WithdrawAccess ===

impl ApproveAccess {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        self.decision
            .add(("approve", "approved"), "/status/approvals", |object| {
                let known = object.pointer("/status/approvals").and_then(Value::as_array);
                let mut approvals = known.cloned().unwrap_or_default();
                approvals.push(json!({}));
                json!({"approvals": approvals})
            })
    }
}

impl DenyAccess {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        self.decision
            .add(("deny", "denied"), "/status/denied", |_| json!({"denied": {}}))
    }
}

impl WithdrawAccess {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let add = |_: &Value| json!({"withdrawn": {}});
        self.decision
            .add(("withdraw", "withdrawn"), "/status/withdrawn", add)
    }
}

impl AccessDecision {
    /// Adds an entry to the status. The gateway sets its author and time on admission.
    fn add(
        self,
        (verb, done): (&str, &str),
        pointer: &str,
        change: impl Fn(&Value) -> Value,
    ) -> Result<CommandResult, CommandError> {
        let name = self.name;
        dns_subdomain(&name).map_err(|why| CommandError::Usage(format!("`{name}`: {why}")))?;
        let changed = self
            .live
            .connect()?
            .change_access_request((verb, &name), change)?;
        let entry = changed.pointer(pointer);
        let entry = entry.and_then(|entry| entry.as_array().map_or(Some(entry), |entries| entries.last()));
        let author = entry.map_or("", |entry| text(entry, "/username"));
        if author.is_empty() {
            return Err(CommandError::Usage(format!(
                "AccessRequest `{name}` is not {done}: the API server dropped the change. Apply \
                config/crd/accessrequests.yaml, and the webhook configurations of `portcullis init`"
            )));
        }
        let mut words = Lines::new();
        let (author, what) = (one_line(author), description(&changed));
        words.each(
            "",
            &format!("accessrequest.portcullis.dev/{name} {done} by {author}: {what}"),
        );
        output::print(self.output.output, &words, &changed)?;
        Ok(CommandResult::Success)
    }
}

/// Describes the present AccessRequest, which may have been replaced since the user read it.
fn description(object: &Value) -> String {
    let field = |name: &str| one_line(text(object, &format!("/spec/{name}"))).to_string();
    let names = |name: &str| {
        let names = object.pointer(&format!("/spec/{name}")).and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names
            .map(|name| one_line(name).to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let place = match names("namespaces") {
        namespaces if namespaces.is_empty() => "the whole cluster".to_owned(),
        namespaces => namespaces,
    };
    let lifts = match names("lifts") {
        lifts if lifts.is_empty() => String::new(),
        lifts => format!(", lifting {lifts}"),
    };
    let (requester, role) = (field("requester/username"), field("role"));
    let (duration, reason) = (field("duration"), field("reason"));
    format!("{requester} asks for {role} in {place} for {duration}{lifts} ({reason})")
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

// AccessRequests in files: a gateway ignores them, but commands report what they would grant.

/// Lets the AccessRequests in `paths` and in the manifests of `config` grant access in `loaded`,
/// regardless of their age, in the clusters whose configuration allows that. Without `config`, the
/// manifests are treated as those of a cluster with `admission: Declared` and `accessRequests: {}`.
pub(crate) fn apply_access_requests_of_files(
    loaded: &mut LoadedPolicies,
    config: Option<&Path>,
    paths: &[PathBuf],
) -> Faults {
    let mut files = config.map_or_else(Vec::new, |config| config::load_valid_parts(config).0.manifests);
    files.extend(policy_files::for_all_clusters(paths));
    let (requests, faults) = of_files(&files);
    let mut do_any_grant = requests.is_empty();
    let clusters = loaded.policies.clusters.iter_mut();
    let sets = clusters.map(|(cluster, set)| (Some(cluster.as_str()), set));
    for (cluster, set) in sets.chain([(None, &mut loaded.policies.shared)]) {
        let mut settings = set.access_request_trust().map(|trust| trust.settings);
        if config.is_none() {
            settings = Some(AccessRequestSettings::default());
            let assumed = ReviewedResources {
                knowledge: ReviewKnowledge::Assumed,
                ..ReviewedResources::default()
            };
            *set = Arc::new(set.as_ref().clone().with_reviewed_resources(Some(assumed)));
        }
        let own = requests
            .iter()
            .filter(|(of, _)| of.is_none() || of.as_deref() == cluster);
        if let Some(settings) = settings {
            let own = own.map(|(_, request)| Arc::clone(request)).collect();
            *set = Arc::new(set.with_access_requests(own, settings));
            do_any_grant = true;
        }
    }
    if !do_any_grant {
        output::print_error(
            "note: the AccessRequests grant nothing: set `authorization.accessRequests`, and \
            `clusters[].admission` of their cluster",
        );
    }
    faults
}

/// AccessRequests with the only cluster to which each applies, or `None` for all.
type RequestsByCluster = Vec<(Option<String>, Arc<AccessRequest>)>;

fn of_files(files: &[ManifestPath]) -> (RequestsByCluster, Faults) {
    let (sources, mut faults) = state::read_manifests(files);
    let mut requests = Vec::new();
    for source in &sources {
        let is_wanted = |document: &Document| {
            let identity = ObjectIdentity::of(document);
            (identity.group(), identity.kind()) == (groups::PORTCULLIS, "AccessRequest")
        };
        for document in documents(source, &mut faults).into_iter().filter(is_wanted) {
            match ValidatedObject::read(document, "".into(), <_>::default()) {
                Ok(object) => requests.extend(
                    object
                        .access_request()
                        .map(|request| (source.cluster.clone(), Arc::new(request.clone()))),
                ),
                Err(found) => faults.append(found),
            }
        }
    }
    (requests, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decided_on_is_said_on_one_line() {
        let mut object = json!({"spec": {"role": "edit", "namespaces": ["prod", "dev"], "duration": "2h",
            "reason": "INC-1\nINC-2", "requester": {"username": "ann"}}});
        assert_eq!(
            description(&object),
            "ann asks for edit in prod, dev for 2h (INC-1\\nINC-2)"
        );
        object["spec"]["namespaces"] = json!(null);
        object["spec"]["lifts"] = json!(["frozen"]);
        object["spec"]["reason"] = json!("INC-1");
        assert_eq!(
            description(&object),
            "ann asks for edit in the whole cluster for 2h, lifting frozen (INC-1)"
        );
    }

    #[test]
    fn names_begin_with_the_role_as_far_as_names_may() {
        for (role, expected) in [
            ("edit", "edit-"),
            ("system:node", "system-node-"),
            ("::", "request-"),
            (&"a".repeat(300), &format!("{}-", "a".repeat(40))),
        ] {
            assert_eq!(generate_name(role), expected);
        }
    }
}
