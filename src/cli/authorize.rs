//! `portcullis authorize`: decides a SubjectAccessReview offline with the server's code.

use std::path::PathBuf;

use serde::Serialize;

use super::admit::{answer_each, no_manifest, read_objects, read_review, result_of_all};
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{At, PolicyFiles, PolicyPurpose};
use portcullis_policy::admission::{CONNECT_VERBS, Operation, Phase};
use portcullis_policy::api::SubjectAccessReview;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{
    AdmitAllExplained, AdmitAllInWords, AnsweredObject, OfflineReview,
};
use portcullis_policy::explain::authorization::{AuthorizationAnswer, DecisionExplanation};
use portcullis_policy::explain::objects::ManifestRequest;
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::explain::request::{
    ArgumentError, RequestArguments, warning_of_missing_groups, with_group,
};
use portcullis_policy::model::{Attributes, Decision, ResourceAttributes, Target, Time};

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
    object: ObjectArguments,
    #[command(flatten)]
    output: Output<Format>,
}

/// The object of a request that writes or connects, for policies with objectConditions.
#[derive(Debug, clap::Args)]
struct ObjectArguments {
    /// The object to write, in YAML or JSON, `-` for standard input: also decide what `/validate`
    /// answers.
    #[arg(short, long, value_name = "FILE", conflicts_with = "review")]
    filename: Option<PathBuf>,
    /// The object before the change, for `update` and `patch`.
    #[arg(long, value_name = "FILE", requires = "filename")]
    old: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis authorize --user jane --group dev --verb delete --resource deployments.apps -n prod --name web
  portcullis authorize --config portcullis.yaml --user jane --group dev --verb create --resource pods -n prod -f pod.yaml
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
    /// All namespaces: the same as no `--namespace`.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
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
            object,
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
            return decide(format, &files, (&review.attributes, now), &object);
        }
        let attributes = flags
            .request()
            .attributes()
            .map_err(|misfits| misfit_error(&misfits))?;
        if let Some(warning) = warning_of_missing_groups(&attributes.user)
            && format == Format::Text
        {
            output::print_error(format_args!("warning: {warning}"));
        }
        decide(format, &files, (&attributes, now), &object)
    }
}

fn decide(
    format: Format,
    files: &PolicyFiles,
    (attributes, now): (&Attributes<'_>, Time),
    object: &ObjectArguments,
) -> Result<CommandResult, CommandError> {
    let purpose = match object.filename {
        Some(_) => PolicyPurpose::Admission,
        None => PolicyPurpose::Authorization,
    };
    let loaded = files.load(purpose)?;
    let validated = object.validated(files, &loaded, (attributes, now))?;
    let answer = AuthorizationAnswer::new(&loaded, &files.cluster, attributes, now);
    if format == Format::Text {
        answer
            .hints
            .iter()
            .for_each(|hint| output::print_error(format_args!("warning: {hint}")));
    }
    let decision = answer.consulted.authorization.decision;
    let mut words = answer.in_words();
    if let Some((objects, notes)) = &validated {
        words.line("");
        words.line("/validate:");
        words.append(&AdmitAllInWords(objects, notes).lines());
    }
    let report = AuthorizeReport {
        authorization: answer.report(),
        validate: validated
            .as_ref()
            .map(|(objects, notes)| AdmitAllExplained::new(objects, notes)),
    };
    output::print(format, &words, &report)?;
    if decision == Decision::NoOpinion && format == Format::Text {
        note_default_roles(files, loaded, (attributes, now));
    }
    Ok(match decision {
        Decision::Allow => validated.map_or(CommandResult::Success, |(objects, _)| result_of_all(&objects)),
        Decision::Deny | Decision::NoOpinion => CommandResult::Failure,
    })
}

/// The JSON output: the decisions of `/authorize` and, if an object is named, of `/validate`.
#[derive(Serialize)]
struct AuthorizeReport<'a> {
    #[serde(flatten)]
    authorization: DecisionExplanation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    validate: Option<AdmitAllExplained<'a>>,
}

/// Decided reviews of objects, and notes about them.
type ValidatedObjects = (Vec<AnsweredObject>, Vec<String>);

impl ObjectArguments {
    /// Decides the review of the request's object at `/validate`, if an object is named.
    fn validated(
        &self,
        files: &PolicyFiles,
        loaded: &LoadedPolicies,
        (attributes, now): (&Attributes<'_>, Time),
    ) -> Result<Option<ValidatedObjects>, CommandError> {
        let Some(path) = &self.filename else {
            return Ok(None);
        };
        let operation = operation_of(attributes)?;
        let old = match (&self.old, operation) {
            (Some(old), Operation::Update) => read_objects(old)?,
            (None, Operation::Update) => {
                let message = "an update needs the object before the change: add `--old FILE`";
                return Err(CommandError::Usage(message.to_owned()));
            }
            (Some(_), _) => {
                let message = "`--old` is only for the verbs `update` and `patch`; for a deletion, pass the object with \
                    `-f`";
                return Err(CommandError::Usage(message.to_owned()));
            }
            (None, _) => Vec::new(),
        };
        let request = manifest_request(attributes, operation);
        let set = loaded.admission.for_cluster(&files.cluster);
        let is_named = |group: &str, resource: &str| set.names_resource(group, resource);
        let objects = read_objects(path)?;
        let reviews = request.reviews(
            &objects,
            &old,
            loaded.kinds.clone(),
            || files.documents(),
            is_named,
        );
        let reviews = reviews.map_err(|faults| CommandError::Faulty {
            path: path.display().to_string(),
            faults,
        })?;
        if reviews.reviews.is_empty() {
            return Err(no_manifest(path));
        }
        let asked = OfflineReview {
            loaded,
            cluster: &files.cluster,
            phases: &[Phase::Validate],
            only: None,
            now,
            clock: std::time::Instant::now,
            answers: &RecordedAnswers::default(),
            requester_unknown: false,
            deadline: None,
            recorder: None,
        };
        Ok(Some((answer_each(&asked, reviews.reviews)?, reviews.notes)))
    }
}

/// The admission operation for the verb of a request.
fn operation_of(attributes: &Attributes<'_>) -> Result<Operation, CommandError> {
    let Target::Resource(resource) = &attributes.target else {
        return Err(CommandError::Usage(
            "a path has no object: use `-f` only with a resource".to_owned(),
        ));
    };
    match resource.verb.as_ref() {
        _ if connects(resource) => Ok(Operation::Connect),
        "create" => Ok(Operation::Create),
        "update" | "patch" => Ok(Operation::Update),
        "delete" | "deletecollection" => Ok(Operation::Delete),
        verb => Err(CommandError::Usage(format!(
            "`{verb}` has no object: use `-f` only with `create`, `update`, `patch`, `delete` and \
            `deletecollection`"
        ))),
    }
}

fn connects(resource: &ResourceAttributes<'_>) -> bool {
    let mut connecting = CONNECT_VERBS.iter();
    connecting
        .any(|(name, subresource, _)| resource.resource == *name && resource.subresource == *subresource)
}

fn manifest_request(attributes: &Attributes<'_>, operation: Operation) -> ManifestRequest {
    let Attributes { user, target } = attributes;
    let groups = user.groups.iter().map(ToString::to_string).collect();
    let mut request = ManifestRequest {
        operation: Some(operation),
        user: Some((user.name.to_string(), groups)),
        subresource: String::new(),
        resource: None,
        namespace: None,
        dry_run: false,
        default_namespace: None,
    };
    if let Target::Resource(resource) = target {
        request.subresource = resource.subresource.to_string();
        request.resource = Some(with_group(&resource.resource, &resource.group));
        let namespace = resource.namespace.to_string();
        request.namespace = (!namespace.is_empty()).then_some(namespace);
    }
    request
}

/// Prints a note if the default definitions of ClusterRoles that `loaded` lacks would allow the
/// request. The decision stays that of `serve`, which does not know these ClusterRoles either.
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
        output::print_error(format_args!(
            "note: {lacking}: their Kubernetes defaults would allow this{}",
            files.effect()
        ));
    }
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

/// The error for arguments that do not fit, with the names of their flags.
fn misfit_error(misfits: &[ArgumentError]) -> CommandError {
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
