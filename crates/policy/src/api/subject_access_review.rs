//! SubjectAccessReview, `authorization.k8s.io/v1` and `v1beta1`.
//!
//! ```text
//! bytes ── wire ──▶ Raw: as written ── validate ──▶ faults ──▶ Attributes
//! ```
//!
//! The opposite direction is the review for another authorizer (`ask`) and its reply
//! (`wire::answer`).
//!
//! The body is decoded in one pass, and strings are borrowed from it. Two cases take a slower path,
//! which is bounded too: a body whose `apiVersion` follows its `spec`, and bytes that are not
//! UTF-8.
//!
//! Sources: `kubernetes/pkg/apis/authorization/validation/validation.go`,
//! `api/authorization/{v1,v1beta1}/types.go`, and Go's `encoding/json` for duplicate keys and
//! `null`.

mod wire;

use std::borrow::Cow;

use super::{excerpt, utf8};
use crate::authorization::{AuthorizationReason, SubjectAccessReviewVersion};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};
use crate::model::{
    Attributes, Decision, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
    is_label_key, is_label_value, label_key_faults, label_value_faults,
};
use portcullis_cel::json::{self, ObjectWriter, StringWriter, write_string};
use wire::{MAX_ITEMS, Raw, RawResource, RawSelector, RawSpec};

pub use wire::{AuthorizerReply, ReplyError};

/// A decoded SubjectAccessReview of either version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectAccessReview<'a> {
    /// The version of the review, and of its reply.
    pub version: SubjectAccessReviewVersion,
    /// The attributes of the request. Invalid selector requirements are left out, which only widens
    /// it.
    pub attributes: Attributes<'a>,
}

/// All errors, in the API server's order.
pub(crate) fn all_faults(raw: &Raw<'_>) -> Faults {
    let mut faults = Faults::new();
    check_spec(raw, &mut faults);
    if let Some(resource) = &raw.spec.resource {
        let path = FieldPath::root().field("spec").field("resourceAttributes");
        check_selector(
            resource.field_selector.as_ref(),
            &path.field("fieldSelector"),
            field_requirement,
            &mut faults,
        );
        check_selector(
            resource.label_selector.as_ref(),
            &path.field("labelSelector"),
            label_requirement,
            &mut faults,
        );
    }
    check_metadata(raw, &mut faults);
    faults
}

/// The errors for which a review is rejected: all except those of selectors.
pub(crate) fn rejecting_faults(raw: &Raw<'_>) -> Faults {
    let mut faults = Faults::new();
    check_spec(raw, &mut faults);
    check_metadata(raw, &mut faults);
    faults
}

/// The requirements that the API server would accept, and the raw selector. If there is a raw
/// selector, no requirement counts.
fn field_requirements<'a>(selector: RawSelector<'a>) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    accepted(selector, |requirement| !requirement.key.is_empty())
}

/// Like [`field_requirements`], with the syntax of label keys and values.
fn label_requirements<'a>(selector: RawSelector<'a>) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    accepted(selector, |requirement| {
        is_label_key(&requirement.key) && requirement.values.iter().all(|value| is_label_value(value))
    })
}

fn accepted<'a>(
    selector: RawSelector<'a>,
    is_valid: impl Fn(&Requirement<'a>) -> bool,
) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    let RawSelector {
        raw,
        mut requirements,
    } = selector;
    if !raw.is_empty() {
        requirements.clear();
    }
    requirements.retain(|requirement| values_fault(requirement).is_none() && is_valid(requirement));
    (requirements, raw)
}

fn check_spec(raw: &Raw<'_>, faults: &mut Faults) {
    let mut refuse = |field: &str, kind: FaultKind, message: &str| {
        let path = FieldPath::root().field("spec").field(field);
        faults.push(fault(path, kind, message));
    };
    match (&raw.spec.resource, &raw.spec.non_resource) {
        (Some(_), Some(_)) => refuse(
            "nonResourceAttributes",
            FaultKind::Invalid,
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => refuse(
            "resourceAttributes",
            FaultKind::Invalid,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    if raw.spec.user.is_empty() && raw.spec.groups.is_empty() {
        refuse(
            "user",
            FaultKind::Invalid,
            "at least one of user or group must be specified",
        );
    }
    if raw.too_many_items {
        let message = format!("groups and extra hold more than {MAX_ITEMS} items");
        refuse("groups", FaultKind::TooMany, &message);
    }
}

fn check_metadata(raw: &Raw<'_>, faults: &mut Faults) {
    if !raw.metadata.0.is_empty() {
        let message = format!("must be empty, but {} is set", raw.metadata.0.join(", "));
        faults.push(fault(
            FieldPath::root().field("metadata"),
            FaultKind::Invalid,
            &message,
        ));
    }
}

fn check_selector(
    selector: Option<&RawSelector<'_>>,
    path: &FieldPath,
    requirement: fn(&Requirement<'_>, &FieldPath, &mut Faults),
    faults: &mut Faults,
) {
    let Some(selector) = selector else { return };
    match (selector.raw.is_empty(), selector.requirements.is_empty()) {
        (false, false) => faults.push(fault(
            path.field("rawSelector"),
            FaultKind::Invalid,
            "may not be specified at the same time as requirements",
        )),
        (true, true) => faults.push(fault(
            path.field("requirements"),
            FaultKind::Required,
            &format!("when {path} is specified, requirements or rawSelector is required"),
        )),
        _ => {}
    }
    for (index, each) in selector.requirements.iter().enumerate() {
        requirement(each, &path.field("requirements").index(index), faults);
    }
}

fn field_requirement(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    if requirement.key.is_empty() {
        faults.push(fault(path.field("key"), FaultKind::Required, "must be specified"));
    }
    check_values(requirement, path, faults);
}

fn label_requirement(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    check_values(requirement, path, faults);
    for message in label_key_faults(&requirement.key) {
        faults.push(fault(path.field("key"), FaultKind::Invalid, message));
    }
    for (index, value) in requirement.values.iter().enumerate() {
        for message in label_value_faults(value) {
            faults.push(fault(
                path.field("values").index(index),
                FaultKind::Invalid,
                message,
            ));
        }
    }
}

fn check_values(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    if let Some((kind, message)) = values_fault(requirement) {
        faults.push(fault(path.field("values"), kind, message));
    }
}

/// The error if the number of values does not suit the operator.
fn values_fault(requirement: &Requirement<'_>) -> Option<(FaultKind, &'static str)> {
    match (&requirement.operator, requirement.values.is_empty()) {
        (Operator::In | Operator::NotIn, true) => Some((
            FaultKind::Required,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        (Operator::Exists | Operator::DoesNotExist, false) => Some((
            FaultKind::Forbidden,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => None,
    }
}

fn fault(path: FieldPath, kind: FaultKind, message: &str) -> Fault {
    Fault::error(Place::default().at(path), kind, message)
}

// === impl SubjectAccessReview ===

impl<'a> SubjectAccessReview<'a> {
    /// Decodes one review.
    ///
    /// Everything that a user can put into a request is accepted: bytes that are not UTF-8 become
    /// U+FFFD as in Go, and invalid selectors and requirements are left out. Time and memory are
    /// proportional to the length of `bytes`, which the caller limits.
    ///
    /// # Errors
    /// [`SubjectAccessReviewError::Malformed`], [`SubjectAccessReviewError::Kind`],
    /// [`SubjectAccessReviewError::Version`]; and [`SubjectAccessReviewError::Refused`] for what
    /// the API server would reject too: not exactly one attributes block, neither user nor groups,
    /// metadata that is not empty, more than a million groups and extra values.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SubjectAccessReviewError> {
        let settled = str::from_utf8(bytes)
            .ok()
            .and_then(|text| Raw::read(text, None).ok());
        match settled {
            Some(raw) if raw.settled() => Self::from_raw(raw),
            _ => Self::decode_slowly(bytes),
        }
    }

    /// Returns every error for which the API server would reject this review, including those of
    /// selectors, in its order.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode) except [`SubjectAccessReviewError::Refused`].
    pub fn faults(bytes: &[u8]) -> Result<Faults, SubjectAccessReviewError> {
        let text = utf8(bytes);
        let version = SubjectAccessReviewVersion::of(&text)?;
        Ok(all_faults(&Raw::read(&text, Some(version))?))
    }

    fn decode_slowly(bytes: &'a [u8]) -> Result<Self, SubjectAccessReviewError> {
        match utf8(bytes) {
            Cow::Borrowed(text) => {
                Self::from_raw(Raw::read(text, Some(SubjectAccessReviewVersion::of(text)?))?)
            }
            Cow::Owned(text) => {
                let review = SubjectAccessReview::from_raw(Raw::read(
                    &text,
                    Some(SubjectAccessReviewVersion::of(&text)?),
                )?)?;
                Ok(Self {
                    version: review.version,
                    attributes: review.attributes.into_owned(),
                })
            }
        }
    }

    fn from_raw(raw: Raw<'a>) -> Result<Self, SubjectAccessReviewError> {
        let version = SubjectAccessReviewVersion::parse(&raw.kind, &raw.api_version)?;
        let faults = rejecting_faults(&raw);
        match raw.spec.target() {
            Some((user, target)) if faults.is_empty() => Ok(Self {
                version,
                attributes: Attributes { user, target },
            }),
            _ => Err(SubjectAccessReviewError::Refused(faults)),
        }
    }
}

impl<'a> RawSpec<'a> {
    /// The user and target, unless there is no attributes block. Invalid selectors are left out.
    fn target(self) -> Option<(User<'a>, Target<'a>)> {
        let target = match (self.resource, self.non_resource) {
            (Some(resource), _) => Target::Resource(Box::new(resource.attributes())),
            (None, Some(request)) => Target::NonResource {
                path: request.path,
                verb: request.verb,
            },
            (None, None) => return None,
        };
        Some((
            User {
                name: self.user,
                uid: self.uid,
                groups: self.groups,
                extra: self.extra,
            },
            target,
        ))
    }
}

impl<'a> RawResource<'a> {
    fn attributes(self) -> ResourceAttributes<'a> {
        let (mut selectors, mut raw_selectors) = (Selectors::default(), RawSelectors::default());
        if let Some(field) = self.field_selector {
            (selectors.field, raw_selectors.field) = field_requirements(field);
        }
        if let Some(label) = self.label_selector {
            (selectors.label, raw_selectors.label) = label_requirements(label);
        }
        ResourceAttributes {
            selectors,
            raw_selectors,
            ..self.attributes
        }
    }
}

// === impl SubjectAccessReviewVersion ===

impl SubjectAccessReviewVersion {
    /// The value of `apiVersion`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "authorization.k8s.io/v1",
            Self::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }

    /// The version of a document, wherever in it `apiVersion` stands.
    fn of(text: &str) -> Result<Self, SubjectAccessReviewError> {
        let (kind, api_version) = wire::type_meta(text)?;
        Self::parse(&kind, &api_version)
    }

    fn parse(kind: &str, api_version: &str) -> Result<Self, SubjectAccessReviewError> {
        if kind != "SubjectAccessReview" {
            return Err(SubjectAccessReviewError::Kind { found: excerpt(kind) });
        }
        Self::from_api_version(api_version).ok_or_else(|| SubjectAccessReviewError::Version {
            found: excerpt(api_version),
        })
    }

    fn from_api_version(api_version: &str) -> Option<Self> {
        [Self::V1, Self::V1beta1]
            .into_iter()
            .find(|version| version.as_str() == api_version)
    }
}

// Errors of decoding a SubjectAccessReview.

/// Why a body is not a valid review. Each is the sender's error: HTTP 400.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectAccessReviewError {
    /// Not JSON, or a field of the wrong type.
    #[error("the body cannot be read as a SubjectAccessReview")]
    Malformed(#[from] json::JsonError),
    /// Another kind, or none.
    #[error("expected kind `SubjectAccessReview`, found `{found}`")]
    Kind {
        /// The kind in the body; cut when long.
        found: String,
    },
    /// An unsupported version, or none.
    #[error(
        "expected apiVersion `authorization.k8s.io/v1` or `authorization.k8s.io/v1beta1`, found `{found}`"
    )]
    Version {
        /// The apiVersion in the body; cut when long.
        found: String,
    },
    /// A review that the API server itself would reject.
    #[error("{0}")]
    Refused(Faults),
}

impl SubjectAccessReviewError {
    /// The message for the sender: the error, and for malformed JSON also the position and cause.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Malformed(source) => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

// Writes the reply to a SubjectAccessReview for the API server's webhook client.
//
// The client uses only `status` (`apiserver/plugin/pkg/authorizer/webhook/webhook.go`). Kind and
// apiVersion, if present, must be those of its request.

/// The reply to one review.
#[derive(Debug, Clone, Copy)]
pub struct SubjectAccessReviewReply<'a> {
    /// The version of the request.
    pub version: SubjectAccessReviewVersion,
    /// Allow is written as `allowed`, Deny as `denied`, NoOpinion as neither; never both.
    pub decision: Decision,
    /// The reason of the decision; left out if empty.
    pub reason: &'a AuthorizationReason<'a>,
    /// Errors that did not prevent the decision; left out if empty.
    pub evaluation_error: &'a str,
}

impl SubjectAccessReviewReply<'_> {
    /// Appends the JSON body.
    pub fn encode(&self, out: &mut String) {
        out.push_str(match self.version {
            SubjectAccessReviewVersion::V1 => {
                r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":"#
            }
            SubjectAccessReviewVersion::V1beta1 => {
                r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":"#
            }
        });
        out.push_str(match self.decision {
            Decision::Allow => "true",
            Decision::Deny => r#"false,"denied":true"#,
            Decision::NoOpinion => "false",
        });
        if !self.reason.is_empty() {
            out.push_str(r#","reason":""#);
            // Writing to a String cannot fail.
            let _infallible = self.reason.write(&mut StringWriter(out));
            out.push('"');
        }
        if !self.evaluation_error.is_empty() {
            out.push_str(r#","evaluationError":"#);
            write_string(out, self.evaluation_error);
        }
        out.push_str("}}");
    }
}

// Writes the SubjectAccessReview for another authorizer as kube-apiserver does.
//
// Source: `apiserver/plugin/pkg/authorizer/webhook/webhook.go`.

// === impl SubjectAccessReviewVersion ===

impl SubjectAccessReviewVersion {
    /// Encodes the review that asks about `attributes`. Empty fields and requirements with unknown
    /// operators are left out.
    #[must_use]
    pub fn encode(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        ObjectWriter::write(&mut out, |review| {
            review.text("kind", "SubjectAccessReview");
            review.text("apiVersion", self.as_str());
            review.object("metadata", |_| {});
            review.object("spec", |spec| write_spec(spec, self, attributes));
            review.object("status", |status| status.flag("allowed", false));
        });
        out.into_bytes()
    }

    /// Encodes only the spec. Equal attributes give equal bytes.
    #[must_use]
    pub fn encode_spec(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        ObjectWriter::write(&mut out, |spec| write_spec(spec, self, attributes));
        out.into_bytes()
    }
}

fn write_spec(spec: &mut ObjectWriter<'_>, version: SubjectAccessReviewVersion, attributes: &Attributes<'_>) {
    match &attributes.target {
        Target::Resource(resource) => {
            spec.object("resourceAttributes", |target| write_resource(target, resource));
        }
        Target::NonResource { path, verb } => spec.object("nonResourceAttributes", |target| {
            target.text_if_any("path", path);
            target.text_if_any("verb", verb);
        }),
    }
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    spec.text_if_any("user", name);
    spec.texts_if_any(
        match version {
            SubjectAccessReviewVersion::V1 => "groups",
            SubjectAccessReviewVersion::V1beta1 => "group",
        },
        groups,
    );
    if !extra.is_empty() {
        spec.object("extra", |object| write_extra(object, extra));
    }
    spec.text_if_any("uid", uid);
}

fn write_resource(target: &mut ObjectWriter<'_>, resource: &ResourceAttributes<'_>) {
    for (name, text) in [
        ("namespace", &resource.namespace),
        ("verb", &resource.verb),
        ("group", &resource.group),
        ("version", &resource.version),
        ("resource", &resource.resource),
        ("subresource", &resource.subresource),
        ("name", &resource.name),
    ] {
        target.text_if_any(name, text);
    }
    write_selector(target, "fieldSelector", &resource.selectors.field);
    write_selector(target, "labelSelector", &resource.selectors.label);
}

/// Writes keys in order, as Go writes maps.
fn write_extra(object: &mut ObjectWriter<'_>, extra: &[(Cow<'_, str>, Vec<Cow<'_, str>>)]) {
    let mut sorted: Vec<_> = extra.iter().collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (key, values) in sorted {
        object.texts(key, values);
    }
}

/// Leaves out requirements with unknown operators, which only widens the request.
fn write_selector(target: &mut ObjectWriter<'_>, key: &str, requirements: &[Requirement<'_>]) {
    let is_known = |requirement: &&Requirement<'_>| !matches!(requirement.operator, Operator::Unknown(_));
    let mut requirements = requirements.iter().filter(is_known).peekable();
    if requirements.peek().is_none() {
        return;
    }
    target.object(key, |selector| {
        selector.list("requirements", requirements, |out, requirement| {
            ObjectWriter::write(out, |object| {
                object.text_if_any("key", &requirement.key);
                object.text_if_any("operator", requirement.operator.as_str());
                object.texts_if_any("values", &requirement.values);
            });
        });
    });
}

#[cfg(test)]
mod tests;
