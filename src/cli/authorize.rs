//! `portcullis authorize`: decides one SubjectAccessReview offline, with the server's code.

use std::path::{Path, PathBuf};

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{At, PolicyFiles, PolicyPurpose};
use crate::config::files;
use portcullis_policy::api::SubjectAccessReview;
use portcullis_policy::document;
use portcullis_policy::engine::{Attributes, Decision, Time};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::authorization::AuthorizationAnswer;
use portcullis_policy::explain::request::{Misfit, RequestArguments};
use portcullis_policy::field::Faults;

/// Decide one authorization request offline, and explain the decision.
///
/// The flags describe the review that a kube-apiserver would send. Nothing is added to it, so name
/// all groups of the user, including `system:authenticated`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Authorize {
    #[command(flatten)]
    files: PolicyFiles,
    /// A SubjectAccessReview in JSON or YAML, `-` for standard input; instead of the flags below.
    #[arg(long, value_name = "FILE", conflicts_with = "Flags")]
    review: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis authorize --user jane --group dev --verb delete --resource deployments.apps -n prod --name web
  portcullis authorize --config portcullis.yaml --review review.json -o json";

#[derive(Debug, clap::Args)]
struct Flags {
    /// The user's name; a service account is `system:serviceaccount:NAMESPACE:NAME`.
    #[arg(long)]
    user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// The user's uid.
    #[arg(long)]
    uid: Option<String>,
    /// Extra information about the user; repeat for each value.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    extra: Vec<(String, String)>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …
    #[arg(long)]
    verb: Option<String>,
    /// `pods`, `pods/log`, `deployments.apps`, `deployments.apps/scale`.
    #[arg(long, value_name = "RESOURCE[.GROUP][/SUBRESOURCE]")]
    resource: Option<String>,
    /// The namespace; without it, the request is cluster-scoped or for all namespaces.
    #[arg(short, long)]
    namespace: Option<String>,
    /// The object's name.
    #[arg(long)]
    name: Option<String>,
    /// The label selector of a list request: `a=b,c!=d,e in (x,y),f,!g`.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// The field selector of a list request: `spec.nodeName=node-1`.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// A non-resource path, such as `/healthz`, instead of a resource.
    #[arg(long)]
    path: Option<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected `key=value`")?;
    Ok((key.to_owned(), value.to_owned()))
}

// === impl Authorize ===

impl Authorize {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let Self {
            files,
            review,
            at,
            flags,
            ..
        } = self;
        let now = at.time();
        if let Some(review) = review {
            let bytes = read_review(&review)?;
            let review = SubjectAccessReview::decode(&bytes).map_err(|error| {
                CommandError::Usage(format!(
                    "cannot decide `{}`: {}",
                    review.display(),
                    error.message()
                ))
            })?;
            return decide(format, &files, (&review.attributes, now));
        }
        let attributes = flags.request().attributes().map_err(|misfits| usage(&misfits))?;
        decide(format, &files, (&attributes, now))
    }
}

fn decide(
    format: Format,
    files: &PolicyFiles,
    (attributes, now): (&Attributes<'_>, Time),
) -> Result<CommandResult, CommandError> {
    let loaded = files.load(PolicyPurpose::Authorization)?;
    let answer = AuthorizationAnswer::new(&loaded, &files.cluster, attributes, now);
    if format == Format::Text {
        answer
            .hints
            .iter()
            .for_each(|hint| output::complain(format_args!("warning: {hint}")));
    }
    output::print(format, &answer.in_words(), &answer.report())?;
    let decision = answer.consulted.authorization.decision;
    if decision == Decision::NoOpinion && format == Format::Text {
        note_default_roles(files, loaded, (attributes, now));
    }
    Ok(match decision {
        Decision::Allow => CommandResult::Success,
        Decision::Deny | Decision::NoOpinion => CommandResult::Failure,
    })
}

/// Says where ClusterRoles that an API server makes by itself, and the files of `loaded` lack, would
/// allow what nothing here does. The answer stays that of `serve`, which does not know them either.
fn note_default_roles(
    files: &PolicyFiles,
    mut loaded: LoadedPolicies,
    (attributes, now): (&Attributes<'_>, Time),
) {
    let Some(lacking) = files.lacking_default_roles(&loaded) else {
        return;
    };
    loaded.add_default_roles();
    let answer = AuthorizationAnswer::new(&loaded, &files.cluster, attributes, now);
    if answer.consulted.authorization.decision == Decision::Allow {
        output::complain(format_args!(
            "note: {lacking}: Kubernetes' default of them would allow this{}",
            files.effect()
        ));
    }
}

/// The review in `path`, which may be YAML, as JSON. JSON is passed on as it is.
pub(crate) fn read_review(path: &Path) -> Result<Vec<u8>, CommandError> {
    let bytes = read(path)?;
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(bytes);
    }
    let name = path.display().to_string();
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Ok(bytes);
    };
    let documents = document::parse(Some(&name), text).map_err(|fault| {
        let mut faults = Faults::new();
        faults.push(fault);
        CommandError::Faulty {
            path: name.clone(),
            faults,
        }
    })?;
    match documents.as_slice() {
        [review] => Ok(review.root().to_json().to_string().into_bytes()),
        several => Err(CommandError::Usage(format!(
            "`{name}` has {} documents: write one review",
            several.len()
        ))),
    }
}

/// What `path` holds; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let bytes = if path == Path::new("-") {
        files::read_rest(std::io::stdin().lock(), 0, files::MANIFEST_BYTES)
    } else {
        files::read(path, files::MANIFEST_BYTES)
    };
    bytes.map_err(|source| CommandError::file("read", path, source))
}

// === impl Flags ===

impl Flags {
    fn request(self) -> RequestArguments {
        let mut request = RequestArguments {
            user: self.user.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            groups: self.groups,
            verb: self.verb.unwrap_or_default(),
            resource: self.resource.unwrap_or_default(),
            namespace: self.namespace.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            label_selector: self.selector.unwrap_or_default(),
            field_selector: self.field_selector.unwrap_or_default(),
            path: self.path.unwrap_or_default(),
            ..RequestArguments::default()
        };
        for (key, value) in self.extra {
            request.extra.entry(key).or_default().push(value);
        }
        request
    }
}

/// Misfits, with the flags that they are about.
fn usage(misfits: &[Misfit]) -> CommandError {
    let flag = |field| match field {
        "labelSelector" => "-l",
        "fieldSelector" => "--field-selector",
        "resource" => "--resource",
        "namespace" => "--namespace",
        "name" => "--name",
        "verb" => "--verb",
        _ => "--user",
    };
    let lines: Vec<String> = misfits
        .iter()
        .map(|misfit| format!("{}: {}", flag(misfit.field), misfit.message))
        .collect();
    CommandError::Usage(lines.join("; "))
}
