//! `portcullis who-can`: everybody who may do something.

use serde::Serialize;

use super::access::{NamespaceArguments, ViaReport, deny_lines, limits_in_words, object_and_rule};
use super::at::At;
use super::output::{self, Format};
use super::policy_files::{PolicyFiles, PolicyPurpose};
use super::request::split_resource;
use super::table::TextTable;
use super::{CommandResult, Error};
use crate::engine::authorization::{Grantee, OpenRequest, OpenResource, OpenTarget, PolicySet, SubjectKind};
use crate::engine::{ResourceAttributes, Target};
use crate::manifest::odd_request;

/// List everybody who may do something, and by which object.
///
/// RBAC and AuthorizationPolicies together. Whom a Deny policy certainly stops is not listed; a
/// Deny that may stop some of a subject's users or requests is listed with the subject.
#[derive(Debug, clap::Args)]
pub(super) struct WhoCan {
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
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhoCanReport<'a> {
    subjects: Vec<SubjectReport<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SubjectReport<'a> {
    kind: &'static str,
    name: &'a str,
    namespace: &'a str,
    pattern: bool,
    via: Vec<ViaWithLimits<'a>>,
    denied_by: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ViaWithLimits<'a> {
    #[serde(flatten)]
    via: ViaReport<'a>,
    limits: &'a [String],
}

// === impl WhoCan ===

impl WhoCan {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let mut request = self.request()?;
        let loaded = self.files.load(PolicyPurpose::Authorization)?;
        if let OpenTarget::Resource(resource) = &mut request.target {
            resource.within = self.place.within(loaded.namespace.as_deref());
        }
        let set = loaded.policies.for_cluster(&self.files.cluster);
        if format == Format::Text {
            self.warn(&request, set);
            for authorizer in &loaded.authorizers {
                output::complain(format_args!(
                    "warning: the authorizer `{}` is asked where nothing here decides; whom it allows something is \
                     not listed",
                    authorizer.name
                ));
            }
        }
        let found = set.who_can(&request, self.at.time());
        let report = WhoCanReport {
            subjects: found.iter().map(SubjectReport::from).collect(),
        };
        output::print(format, in_words(&found, set), &report)?;
        Ok(CommandResult::Success)
    }

    fn request(&self) -> Result<OpenRequest, Error> {
        let verb = self.verb.clone();
        if self.target.starts_with('/') {
            if self.name.is_some() || self.place.is_named() {
                let message = "a path cannot be combined with `--name`, `-n` and `-A`";
                return Err(Error::Usage(message.to_owned()));
            }
            let target = OpenTarget::Path(self.target.clone());
            return Ok(OpenRequest { verb, target });
        }
        let (group, resource, subresource) = split_resource(&self.target);
        if verb.is_empty() || resource.is_empty() {
            let message = "name a verb and a resource, such as `get pods`, or a verb and a path";
            return Err(Error::Usage(message.to_owned()));
        }
        let target = OpenTarget::Resource(OpenResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: self.name.clone().filter(|name| !name.is_empty()),
            within: self.place.within(None),
        });
        Ok(OpenRequest { verb, target })
    }

    /// Says what is odd about the question.
    fn warn(&self, request: &OpenRequest, set: &PolicySet) {
        let verb = request.verb.clone().into();
        let target = match &request.target {
            OpenTarget::Path(path) => Target::NonResource {
                path: path.clone().into(),
                verb,
            },
            OpenTarget::Resource(asked) => {
                if set.is_cluster_scoped(&asked.group, &asked.resource) && self.place.is_named() {
                    let resource = &asked.resource;
                    output::complain(format_args!(
                        "warning: `{resource}` are in no namespace: `-n` and `-A` have no effect"
                    ));
                }
                Target::Resource(Box::new(ResourceAttributes {
                    verb,
                    group: asked.group.clone().into(),
                    resource: asked.resource.clone().into(),
                    subresource: asked.subresource.clone().into(),
                    ..ResourceAttributes::default()
                }))
            }
        };
        for hint in odd_request(&target, set) {
            output::complain(format_args!("warning: {hint}"));
        }
    }
}

// === impl SubjectReport ===

impl<'a> From<&'a Grantee> for SubjectReport<'a> {
    fn from(grantee: &'a Grantee) -> Self {
        Self {
            kind: grantee.subject.kind.as_str(),
            name: &grantee.subject.name,
            namespace: &grantee.subject.namespace,
            pattern: grantee.is_pattern,
            via: grantee
                .via
                .iter()
                .map(|via| ViaWithLimits {
                    via: via.into(),
                    limits: &via.limits,
                })
                .collect(),
            denied_by: grantee.denied_by.iter().map(AsRef::as_ref).collect(),
        }
    }
}

fn in_words(found: &[Grantee], set: &PolicySet) -> String {
    let mut table = TextTable::new(&["KIND", "NAME", "VIA", "LIMITS", "DENIED BY"]);
    for grantee in found {
        let subject = &grantee.subject;
        let name = match subject.kind {
            SubjectKind::ServiceAccount => format!("{}/{}", subject.namespace, subject.name),
            SubjectKind::User | SubjectKind::Group => subject.name.clone(),
        };
        let denied_by = grantee.denied_by.join(", ");
        let row = |via: String, limits: String| {
            vec![
                subject.kind.to_string(),
                name.clone(),
                via,
                limits,
                denied_by.clone(),
            ]
        };
        if grantee.via.is_empty() {
            table.row(row("the API server, without asking".to_owned(), String::new()));
        }
        for via in &grantee.via {
            table.row(row(object_and_rule(via), limits_in_words(&via.limits)));
        }
    }
    let denied = found.iter().flat_map(|grantee| &grantee.denied_by);
    format!("{table}{}", deny_lines(denied, set))
}
