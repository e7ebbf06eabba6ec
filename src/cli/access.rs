//! `portcullis who-can`, `what-can` and `escalations`: who may do something, what a user may do,
//! and who can escalate to whom.

use std::time::{Duration, Instant};

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{At, PolicyFiles};
use portcullis_policy::authorization::{
    EscalationQuery, EscalationTarget, OpenTarget, PolicySet, ServiceAccount, Within,
};
use portcullis_policy::explain::access::{QuestionError, WhatCanQuestion, WhoCanQuestion};
use portcullis_policy::explain::escalation_admission::PodReview;
use portcullis_policy::explain::escalations::{self, EscalationAnswer, EscalationQuestionError, RunningPods};
use portcullis_policy::explain::request::warning_of_missing_groups;
use portcullis_policy::model::{Deadline, User};

/// The error if a `who-can` or `what-can` result is too large.
const TOO_LONG: &str = "the result is too long: name a namespace, or query one object";

/// The time limit for one query or conversion, so that policies under review cannot stall a CI job.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(60);

/// The deadline of one query or conversion.
pub(crate) struct TimeLimit {
    end: Instant,
}

// === impl TimeLimit ===

impl TimeLimit {
    pub(crate) fn new() -> Self {
        Self {
            end: Instant::now() + MAX_TIME,
        }
    }

    pub(crate) fn has_passed(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Why there is no result: the deadline has passed, or the result is too large.
    fn error(&self) -> CommandError {
        CommandError::Usage(match self.has_passed() {
            true => format!(
                "the query takes longer than {} s: name a namespace, query one object, or simplify the \
                conditions of the policies",
                MAX_TIME.as_secs()
            ),
            false => TOO_LONG.to_owned(),
        })
    }
}

/// `-n` and `-A`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NamespaceArguments {
    /// The namespace [default: that of the context, or else `default`]
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces, and requests without a namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

// === impl NamespaceArguments ===

impl NamespaceArguments {
    /// The namespace of the query. `default` is used if none is named, for example that of a
    /// kubeconfig context.
    pub(crate) fn namespace_scope(&self, default: Option<&str>) -> Within {
        if self.all_namespaces {
            return Within::AnyNamespace;
        }
        let named = self
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        Within::Namespace(named.or(default).unwrap_or("default").to_owned())
    }

    /// Whether the command line names a namespace, or all.
    pub(crate) const fn is_named(&self) -> bool {
        self.namespace.is_some() || self.all_namespaces
    }
}

/// List who may perform an action, and which object allows it.
///
/// Takes RBAC and AuthorizationPolicies into account. A subject that a Deny policy always stops is not
/// listed; a Deny that may stop some of a subject's users or requests is listed with the subject.
#[derive(Debug, clap::Args)]
#[command(after_help = WHO_CAN_EXAMPLES)]
pub(crate) struct WhoCan {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …
    verb: String,
    /// `pods`, `pods/log`, `deployments.apps`, `deployments.apps/scale`; or a path, such as `/metrics`.
    #[arg(value_name = "RESOURCE[.GROUP][/SUBRESOURCE] or PATH")]
    target: String,
    /// The object's name [default: any]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    place: NamespaceArguments,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<Format>,
}

const WHO_CAN_EXAMPLES: &str = "\
Examples:
  portcullis who-can get secrets -n shop --manifests policies
  portcullis who-can create pods/exec -A --config portcullis.yaml
  kubectl portcullis who-can delete deployments.apps";

// === impl WhoCan ===

impl WhoCan {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let mut question = self.question()?;
        let loaded = self.files.load_with_default_roles()?;
        if let OpenTarget::Resource(resource) = &mut question.request.target {
            resource.within = self.place.namespace_scope(loaded.namespace.as_deref());
        }
        let set = loaded.policies.for_cluster(&self.files.cluster);
        if format == Format::Text {
            self.files.warn_of_unknown_rbac(&loaded);
            self.warn(&question, set);
            for authorizer in &loaded.authorizers {
                output::print_error(format_args!(
                    "warning: the authorizer `{}` decides requests that the policies do not decide; subjects \
                    that it allows are not listed",
                    authorizer.name
                ));
            }
        }
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let answer = question.answer(set, self.at.time(), Deadline::new(&expired));
        let answer = answer.ok_or_else(|| time.error())?;
        output::print(format, &answer.in_words(set), &answer.report())?;
        Ok(CommandResult::Success)
    }

    fn question(&self) -> Result<WhoCanQuestion, CommandError> {
        let name = self.name.as_deref();
        let place = self.place.is_named().then(|| self.place.namespace_scope(None));
        WhoCanQuestion::new(&self.verb, &self.target, name, place).map_err(|odd| {
            let message = match odd {
                QuestionError::PathInPlace => "a path cannot be combined with `--name`, `-n` and `-A`",
                QuestionError::Incomplete => {
                    "name a verb and a resource, such as `get pods`, or a verb and a path"
                }
            };
            CommandError::Usage(message.to_owned())
        })
    }

    /// Prints warnings about the query.
    fn warn(&self, question: &WhoCanQuestion, set: &PolicySet) {
        if self.place.is_named()
            && let Some(resource) = question.in_no_namespace(set)
        {
            output::print_error(format_args!(
                "warning: `{resource}` are cluster-scoped: `-n` and `-A` have no effect"
            ));
        }
        for hint in question.hints(set) {
            output::print_error(format_args!("warning: {hint}"));
        }
    }
}

/// List everything that a user may do, rule by rule.
///
/// Takes RBAC and AuthorizationPolicies into account. A rule is not listed if Deny policies leave
/// nothing of it. No groups are added to the user, so name all of them, including
/// `system:authenticated`.
#[derive(Debug, clap::Args)]
#[command(after_help = WHAT_CAN_EXAMPLES)]
pub(crate) struct WhatCan {
    /// The user's name; a service account is `system:serviceaccount:NAMESPACE:NAME`.
    #[arg(long, required_unless_present = "groups")]
    user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    place: NamespaceArguments,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<WhatCanFormat>,
}

const WHAT_CAN_EXAMPLES: &str = "\
Examples:
  portcullis what-can --user jane --group dev -n shop --manifests policies
  portcullis what-can --user jane --group dev -A -o wide";

/// The formats of `what-can`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum WhatCanFormat {
    /// A line for each rule.
    #[default]
    Text,
    /// A matrix of resources and verbs.
    Wide,
    /// One JSON document, for programs.
    Json,
}

// === impl WhatCan ===

impl WhatCan {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let loaded = self.files.load_with_default_roles()?;
        let set = loaded.policies.for_cluster(&self.files.cluster);
        let user = User {
            name: self.user.unwrap_or_default().into(),
            groups: self.groups.into_iter().map(Into::into).collect(),
            ..User::default()
        };
        let question = WhatCanQuestion {
            user,
            within: self.place.namespace_scope(loaded.namespace.as_deref()),
        };
        let now = self.at.time();
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let deadline = Deadline::new(&expired);
        let answer = question.answer(set, now, deadline).ok_or_else(|| time.error())?;
        let format = self.output.output;
        if format != WhatCanFormat::Json {
            self.files.warn_of_unknown_rbac(&loaded);
        }
        if question.is_never_asked() && format != WhatCanFormat::Json {
            output::print_error(
                "warning: an API server allows `system:masters` everything, without calling a \
                webhook",
            );
        }
        if let Some(warning) = warning_of_missing_groups(&question.user)
            && format != WhatCanFormat::Json
        {
            output::print_error(format_args!("warning: {warning}"));
        }
        let report = answer.report();
        match format {
            WhatCanFormat::Text => output::write(answer.in_words(set).as_str())?,
            WhatCanFormat::Wide => {
                let matrix = question
                    .matrix(set, &answer, now, deadline)
                    .ok_or_else(|| time.error())?;
                output::write(matrix.in_words().as_str())?;
            }
            WhatCanFormat::Json => output::print_json(&report)?,
        }
        Ok(CommandResult::Success)
    }
}

/// List paths of privilege escalation: who can become whom, and by which steps.
///
/// Without options, lists who can get what the ClusterRole `cluster-admin` allows and does not have it
/// yet. Each step takes RBAC and AuthorizationPolicies into account; a path that only a Deny prevents
/// is listed separately. The other conditions of a step are listed with it: the admission policies that
/// would refuse its Pod and, with `--kubeconfig`, the Pod that runs as a service account.
#[derive(Debug, clap::Args)]
#[command(after_help = ESCALATIONS_EXAMPLES)]
pub(crate) struct EscalationsOf {
    /// The subject to start from: `alice`, `Group dev`, `ServiceAccount shop/backup` [default:
    /// anybody]
    #[arg(long, value_name = "SUBJECT")]
    from: Option<String>,
    /// The target: a subject, or a request such as `get secrets -n prod` [default: `cluster-admin`]
    ///
    /// With `--from`, the default is every subject that can be reached.
    #[arg(long, value_name = "SUBJECT or 'VERB RESOURCE [-n NS]'")]
    to: Option<String>,
    #[command(flatten)]
    files: PolicyFiles,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<EscalationFormat>,
}

const ESCALATIONS_EXAMPLES: &str = "\
Examples:
  portcullis escalations --manifests policies
  portcullis escalations --from 'Group dev' --manifests policies
  kubectl portcullis escalations --to 'get secrets -n prod' -o mermaid";

/// The formats of `escalations`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum EscalationFormat {
    /// A line for each step.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// A graph for Graphviz.
    Dot,
    /// A flowchart for Mermaid.
    Mermaid,
}

// === impl EscalationsOf ===

impl EscalationsOf {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let mut query = self.query("default").map_err(usage)?;
        let loaded = self.files.load_with_admission()?;
        if let Some(namespace) = &loaded.namespace {
            query = self.query(namespace).map_err(usage)?;
        }
        let running = self.files.running_pods()?;
        query.accounts = running
            .iter()
            .flat_map(RunningPods::keys)
            .map(service_account)
            .collect();
        let format = self.output.output;
        if format != EscalationFormat::Json {
            self.files.warn_of_unknown_rbac(&loaded);
        }
        let set = loaded.policies.for_cluster(&self.files.cluster);
        let time = TimeLimit::new();
        let expired = || time.has_passed();
        let found = set.escalations(&query, self.at.time(), Deadline::new(&expired));
        let mut answer = EscalationAnswer(found.ok_or_else(|| time.error())?);
        if let Some(running) = &running {
            answer.name_running(running);
        }
        let review = PodReview {
            cluster: &self.files.cluster,
            now: self.at.time(),
            clock: std::time::Instant::now,
            deadline: &expired,
        };
        answer.ask_admission(&loaded, review);
        match format {
            EscalationFormat::Text => output::write(answer.in_words().as_str())?,
            EscalationFormat::Json => output::print_json(&answer.report())?,
            EscalationFormat::Dot => output::write(&answer.dot())?,
            EscalationFormat::Mermaid => output::write(&answer.mermaid())?,
        }
        Ok(CommandResult::Success)
    }

    fn query(&self, namespace: &str) -> Result<EscalationQuery, EscalationQuestionError> {
        let to = match &self.to {
            Some(to) => escalations::target(to, namespace)?,
            None if self.from.is_some() => EscalationTarget::Everybody,
            None => EscalationTarget::ClusterAdmin,
        };
        Ok(EscalationQuery {
            from: self.from.as_deref().map(escalations::subject).transpose()?,
            to,
            accounts: Vec::new(),
        })
    }
}

fn service_account((namespace, name): &(String, String)) -> ServiceAccount {
    ServiceAccount {
        namespace: namespace.clone(),
        name: name.clone(),
    }
}

fn usage(error: EscalationQuestionError) -> CommandError {
    CommandError::Usage(error.to_string())
}
