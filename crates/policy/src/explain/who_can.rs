//! Everybody who may do something.

use serde::Serialize;

use super::request::split_resource;
use super::what_can::{ViaReport, deny_lines, limits_in_words, object_and_rule};
use super::{Lines, TextTable};
use crate::authorization::{Grantee, OpenRequest, OpenResource, OpenTarget, PolicySet, SubjectKind, Within};
use crate::manifest::odd_request;
use crate::model::{Deadline, ResourceAttributes, Target, Time};

/// Who may do this?
#[derive(Debug, Clone)]
pub struct WhoCanQuestion {
    pub request: OpenRequest,
}

/// Why there is no such question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OddQuestion {
    /// A path has no name and is in no namespace.
    #[error("a path cannot be combined with a name and a namespace")]
    PathInPlace,
    /// There is no verb or nothing that it is about.
    #[error("name a verb and a resource, such as `get` and `pods`, or a verb and a path")]
    Incomplete,
}

/// Who may, in the order of kinds and names.
#[derive(Debug)]
pub struct WhoCanAnswer(pub Vec<Grantee>);

/// The same as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhoCanReport<'a> {
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

// === impl WhoCanQuestion ===

impl WhoCanQuestion {
    /// Who may `verb` the `target`: `RESOURCE[.GROUP][/SUBRESOURCE]` of any name or the one given,
    /// in the namespace `default` or what is given, or a path.
    ///
    /// # Errors
    ///
    /// Something is missing, or does not go with a path.
    pub fn new(
        verb: &str,
        target: &str,
        name: Option<&str>,
        place: Option<Within>,
    ) -> Result<Self, OddQuestion> {
        let verb = verb.to_owned();
        if target.starts_with('/') {
            if name.is_some() || place.is_some() {
                return Err(OddQuestion::PathInPlace);
            }
            if verb.is_empty() {
                return Err(OddQuestion::Incomplete);
            }
            let target = OpenTarget::Path(target.to_owned());
            let request = OpenRequest { verb, target };
            return Ok(Self { request });
        }
        let (group, resource, subresource) = split_resource(target);
        if verb.is_empty() || resource.is_empty() {
            return Err(OddQuestion::Incomplete);
        }
        let target = OpenTarget::Resource(OpenResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.filter(|name| !name.is_empty()).map(str::to_owned),
            within: place.unwrap_or_else(|| Within::Namespace("default".to_owned())),
        });
        let request = OpenRequest { verb, target };
        Ok(Self { request })
    }

    /// Who may, at `now`; `None` where it takes longer than until `deadline`, or the answer is too
    /// long for anybody to read.
    pub fn answer(&self, set: &PolicySet, now: Time, deadline: Deadline<'_>) -> Option<WhoCanAnswer> {
        set.who_can(&self.request, now, deadline).map(WhoCanAnswer)
    }

    /// The resource asked about, if its objects are in no namespace.
    pub fn in_no_namespace(&self, set: &PolicySet) -> Option<&str> {
        match &self.request.target {
            OpenTarget::Resource(asked) if set.cluster_scoped().contains(&asked.group, &asked.resource) => {
                Some(&asked.resource)
            }
            OpenTarget::Resource(_) | OpenTarget::Path(_) => None,
        }
    }

    /// What may have been meant, where Kubernetes has no such verb, group or resource.
    pub fn hints(&self, set: &PolicySet) -> Vec<String> {
        let verb = self.request.verb.clone().into();
        let target = match &self.request.target {
            OpenTarget::Path(path) => Target::NonResource {
                path: path.clone().into(),
                verb,
            },
            OpenTarget::Resource(asked) => Target::Resource(Box::new(ResourceAttributes {
                verb,
                group: asked.group.clone().into(),
                resource: asked.resource.clone().into(),
                subresource: asked.subresource.clone().into(),
                ..ResourceAttributes::default()
            })),
        };
        odd_request(&target, set)
    }
}

// === impl WhoCanAnswer ===

impl WhoCanAnswer {
    /// For programs.
    pub fn report(&self) -> WhoCanReport<'_> {
        WhoCanReport {
            subjects: self.0.iter().map(SubjectReport::from).collect(),
        }
    }

    /// For people.
    pub fn in_words(&self, set: &PolicySet) -> Lines {
        in_words(&self.0, set)
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

fn in_words(found: &[Grantee], set: &PolicySet) -> Lines {
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
    let mut lines = table.folded().in_words();
    lines.append(&deny_lines(denied, set));
    lines
}
