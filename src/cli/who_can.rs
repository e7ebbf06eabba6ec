//! `portcullis who-can`: everybody who may do something.

use super::access::NamespaceArguments;
use super::at::At;
use super::output::{self, Format, Output};
use super::policy_files::{PolicyFiles, PolicyPurpose};
use super::{CommandResult, Error};
use portcullis_policy::authorization::{OpenTarget, PolicySet};
use portcullis_policy::explain::who_can::{OddQuestion, WhoCanQuestion};

/// List everybody who may do something, and by which object.
///
/// RBAC and AuthorizationPolicies together. Whom a Deny policy certainly stops is not listed; a
/// Deny that may stop some of a subject's users or requests is listed with the subject.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
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

const EXAMPLES: &str = "\
Examples:
  portcullis who-can get secrets -n shop --manifests policies
  portcullis who-can create pods/exec -A --config portcullis.yaml
  kubectl portcullis who-can delete deployments.apps";

// === impl WhoCan ===

impl WhoCan {
    pub(crate) fn run(self) -> Result<CommandResult, Error> {
        let format = self.output.output;
        let mut question = self.question()?;
        let loaded = self.files.load(PolicyPurpose::Authorization)?;
        if let OpenTarget::Resource(resource) = &mut question.request.target {
            resource.within = self.place.within(loaded.namespace.as_deref());
        }
        let set = loaded.policies.for_cluster(&self.files.cluster);
        if format == Format::Text {
            self.warn(&question, set);
            for authorizer in &loaded.authorizers {
                output::complain(format_args!(
                    "warning: the authorizer `{}` is asked where nothing here decides; whom it allows something is \
                     not listed",
                    authorizer.name
                ));
            }
        }
        let answer = question.answer(set, self.at.time());
        output::print(format, &answer.in_words(set), &answer.report())?;
        Ok(CommandResult::Success)
    }

    fn question(&self) -> Result<WhoCanQuestion, Error> {
        let name = self.name.as_deref();
        let place = self.place.is_named().then(|| self.place.within(None));
        WhoCanQuestion::new(&self.verb, &self.target, name, place).map_err(|odd| {
            let message = match odd {
                OddQuestion::PathInPlace => "a path cannot be combined with `--name`, `-n` and `-A`",
                OddQuestion::Incomplete => {
                    "name a verb and a resource, such as `get pods`, or a verb and a path"
                }
            };
            Error::Usage(message.to_owned())
        })
    }

    /// Says what is odd about the question.
    fn warn(&self, question: &WhoCanQuestion, set: &PolicySet) {
        if self.place.is_named()
            && let Some(resource) = question.in_no_namespace(set)
        {
            output::complain(format_args!(
                "warning: `{resource}` are in no namespace: `-n` and `-A` have no effect"
            ));
        }
        for hint in question.hints(set) {
            output::complain(format_args!("warning: {hint}"));
        }
    }
}
