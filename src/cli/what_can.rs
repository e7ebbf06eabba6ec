//! `portcullis what-can`: everything that one user may do.

use super::access::NamespaceArguments;
use super::at::At;
use super::output::{self, Output};
use super::policy_files::{PolicyFiles, PolicyPurpose};
use super::{CommandResult, Error};
use portcullis_policy::engine::User;
use portcullis_policy::explain::what_can::WhatCanQuestion;

/// List everything that a user may do, rule by rule.
///
/// RBAC and AuthorizationPolicies together. A rule of which Deny policies leave nothing is not
/// listed. Nothing is added to the user, so name all groups, including `system:authenticated`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
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

const EXAMPLES: &str = "\
Examples:
  portcullis what-can --user jane --group dev -n shop --manifests policies
  portcullis what-can --user system:serviceaccount:shop:backup -A -o wide";

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
    pub(crate) fn run(self) -> Result<CommandResult, Error> {
        let loaded = self.files.load(PolicyPurpose::Authorization)?;
        let set = loaded.policies.for_cluster(&self.files.cluster);
        let user = User {
            name: self.user.unwrap_or_default().into(),
            groups: self.groups.into_iter().map(Into::into).collect(),
            ..User::default()
        };
        let question = WhatCanQuestion {
            user,
            within: self.place.within(loaded.namespace.as_deref()),
        };
        let now = self.at.time();
        let answer = question.answer(set, now);
        let format = self.output.output;
        if question.is_never_asked() && format != WhatCanFormat::Json {
            output::complain("warning: an API server allows `system:masters` everything, without asking");
        }
        let report = answer.report();
        match format {
            WhatCanFormat::Text => output::write(answer.in_words(set).as_str())?,
            WhatCanFormat::Wide => {
                let matrix = question.matrix(set, &answer, now);
                output::write(matrix.in_words().as_str())?;
            }
            WhatCanFormat::Json => output::print_json(&report)?,
        }
        Ok(CommandResult::Success)
    }
}
