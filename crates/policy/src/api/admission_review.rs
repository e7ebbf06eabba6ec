//! AdmissionReview, `admission.k8s.io/v1`, `v1beta1`, and `v1alpha1` of Kubernetes 1.7.
//!
//! ```text
//! bytes ─json─▶ Document ─decode─▶ AdmissionReview { version, request } ─▶ engine
//! bytes ◀──────────────── reply { version, uid, outcome } ◀────────────────┤
//!                                                                          │ Call
//!           webhook ◀─bytes── encode_review(call, request, uid) ◀──────────┤
//!                   ─bytes─▶ verify(call, uid, phase) ─▶ Reply ────────────┘
//! ```
//!
//! The body is indexed and decoded once and not copied; `object` and `oldObject` are references
//! into it. An [`OwnedAdmissionReview`] holds a review together with its body. Sources:
//! `api/admission/{v1,v1beta1}/types.go`; `api@release-1.8/admission/v1alpha1`.

mod encode;
mod verify;

use std::borrow::Cow;

use self_cell::self_cell;

use super::excerpt;
use crate::admission::{GroupVersionKind, GroupVersionResource, Operation, Outcome, Request};
use crate::model::User;
use portcullis_cel::json::{self, Document, Kind, Node};

pub use crate::admission::webhook::ReviewVersion;
pub use encode::encode_review;
pub use verify::{verify, verify_decoded};

/// A decoded AdmissionReview of any version.
#[derive(Debug, Clone)]
pub struct AdmissionReview<'r> {
    /// The version of the review, and of its reply.
    pub version: ReviewVersion,
    /// The request under review.
    pub request: Request<'r>,
}

/// Why a body is not a valid review. Each is the sender's error: HTTP 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionReviewError {
    /// Not JSON, or JSON beyond the limits of the parser.
    #[error("the body cannot be read as an AdmissionReview: {0}")]
    Malformed(#[from] json::JsonError),
    /// Another kind, or none.
    #[error("expected kind `AdmissionReview`, found `{found}`")]
    Kind {
        /// The kind in the body; cut when long.
        found: String,
    },
    /// An unsupported version, or none.
    #[error("expected apiVersion `admission.k8s.io/v1`, `v1beta1` or `v1alpha1`, found `{found}`")]
    Version {
        /// The apiVersion in the body; cut when long.
        found: String,
    },
    /// A required field is missing, or a field has an invalid value.
    #[error("{field}: expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What was expected there.
        expected: &'static str,
    },
}

// === impl AdmissionReview ===

impl<'r> AdmissionReview<'r> {
    /// Decodes the review in an indexed body.
    ///
    /// # Errors
    ///
    /// [`AdmissionReviewError::Kind`], [`AdmissionReviewError::Version`], and
    /// [`AdmissionReviewError::Field`] for a request that no API server sends.
    pub fn decode(body: &'r Document<'r>) -> Result<Self, AdmissionReviewError> {
        let root = body.root();
        let [kind, version] = root.get_all(["kind", "apiVersion"]);
        let kind = text(kind, "kind")?;
        if kind != "AdmissionReview" {
            return Err(AdmissionReviewError::Kind {
                found: excerpt(&kind),
            });
        }
        let version = match text(version, "apiVersion")?.as_ref() {
            "admission.k8s.io/v1" => ReviewVersion::V1,
            "admission.k8s.io/v1beta1" => ReviewVersion::V1beta1,
            "admission.k8s.io/v1alpha1" => ReviewVersion::V1alpha1,
            found => {
                return Err(AdmissionReviewError::Version {
                    found: excerpt(found),
                });
            }
        };
        let field = if version == ReviewVersion::V1alpha1 {
            "spec"
        } else {
            "request"
        };
        let request = map(root.get(field), field)?.ok_or(AdmissionReviewError::Field {
            field,
            expected: "a map",
        })?;
        Ok(Self {
            version,
            request: read(request)?,
        })
    }

    /// Makes an outcome fit a reply in this version. A v1alpha1 reply has no field for a patch: an
    /// outcome that has one becomes a denial.
    #[must_use]
    pub fn within_version(&self, outcome: Outcome) -> Outcome {
        encode::within_version(self.version, outcome)
    }

    /// The reply with this outcome, in the version and with the uid of the request. The outcome
    /// must fit the version ([`within_version`](Self::within_version)).
    #[must_use]
    pub fn reply(&self, outcome: &Outcome) -> Vec<u8> {
        encode::encode(self.version, &self.request, outcome)
    }
}

fn read(node: Node<'_>) -> Result<Request<'_>, AdmissionReviewError> {
    let [
        uid,
        kind,
        resource,
        subresource,
        request_kind,
        request_resource,
        name,
        namespace,
        operation,
        user_info,
        object,
        old_object,
        dry_run,
        options,
    ] = node.get_all([
        "uid",
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
    ]);
    let kind = self::kind(map(kind, "request.kind")?)?;
    let resource = self::resource(map(resource, "request.resource")?)?;
    if resource.resource.is_empty() {
        return Err(AdmissionReviewError::Field {
            field: "request.resource",
            expected: "a resource",
        });
    }
    let request_kind = map(request_kind, "request.requestKind")?;
    let request_resource = map(request_resource, "request.requestResource")?;
    let operation = text(operation, "request.operation")?;
    Ok(Request {
        uid: text(uid, "request.uid")?,
        request_kind: request_kind.map_or_else(|| Ok(kind.clone()), |node| self::kind(Some(node)))?,
        request_resource: request_resource
            .map_or_else(|| Ok(resource.clone()), |node| self::resource(Some(node)))?,
        kind,
        resource,
        subresource: text(subresource, "request.subResource")?,
        name: text(name, "request.name")?,
        namespace: text(namespace, "request.namespace")?,
        operation: Operation::parse(&operation).ok_or(AdmissionReviewError::Field {
            field: "request.operation",
            expected: "`CREATE`, `UPDATE`, `DELETE` or `CONNECT`",
        })?,
        user: user(map(user_info, "request.userInfo")?)?,
        object: map(object, "request.object")?,
        old_object: map(old_object, "request.oldObject")?,
        options: map(options, "request.options")?,
        dry_run: flag(dry_run, "request.dryRun")?,
        written: node,
    })
}

fn kind(node: Option<Node<'_>>) -> Result<GroupVersionKind<'_>, AdmissionReviewError> {
    let Some(node) = node else {
        return Ok(GroupVersionKind::default());
    };
    let [group, version, kind] = node.get_all(["group", "version", "kind"]);
    Ok(GroupVersionKind {
        group: text(group, "group of a kind")?,
        version: text(version, "version of a kind")?,
        kind: text(kind, "kind of a kind")?,
    })
}

fn resource(node: Option<Node<'_>>) -> Result<GroupVersionResource<'_>, AdmissionReviewError> {
    let Some(node) = node else {
        return Ok(GroupVersionResource::default());
    };
    let [group, version, resource] = node.get_all(["group", "version", "resource"]);
    Ok(GroupVersionResource {
        group: text(group, "group of a resource")?,
        version: text(version, "version of a resource")?,
        resource: text(resource, "resource of a resource")?,
    })
}

fn user(node: Option<Node<'_>>) -> Result<User<'_>, AdmissionReviewError> {
    let Some(node) = node else {
        return Ok(User::default());
    };
    let [name, uid, groups, written_extra] = node.get_all(["username", "uid", "groups", "extra"]);
    let mut extra = Vec::new();
    if let Some(entries) = map(written_extra, "request.userInfo.extra")? {
        for (key, values) in entries.entries() {
            extra.push((key, texts(Some(values), "request.userInfo.extra")?));
        }
    }
    Ok(User {
        name: text(name, "request.userInfo.username")?,
        uid: text(uid, "request.userInfo.uid")?,
        groups: texts(groups, "request.userInfo.groups")?,
        extra,
    })
}

// === fields: absent and null are the same ===

fn text<'r>(value: Option<Node<'r>>, field: &'static str) -> Result<Cow<'r, str>, AdmissionReviewError> {
    match value.filter(|value| !value.is_null()) {
        None => Ok(Cow::Borrowed("")),
        Some(value) => value.as_str().ok_or(AdmissionReviewError::Field {
            field,
            expected: "text",
        }),
    }
}

fn map<'r>(value: Option<Node<'r>>, field: &'static str) -> Result<Option<Node<'r>>, AdmissionReviewError> {
    match value.filter(|value| !value.is_null()) {
        Some(value) if value.kind() != Kind::Object => Err(AdmissionReviewError::Field {
            field,
            expected: "a map",
        }),
        value => Ok(value),
    }
}

fn flag(value: Option<Node<'_>>, field: &'static str) -> Result<bool, AdmissionReviewError> {
    match value.filter(|value| !value.is_null()) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or(AdmissionReviewError::Field {
            field,
            expected: "true or false",
        }),
    }
}

fn texts<'r>(list: Option<Node<'r>>, field: &'static str) -> Result<Vec<Cow<'r, str>>, AdmissionReviewError> {
    let wrong = AdmissionReviewError::Field {
        field,
        expected: "a list of strings",
    };
    match list.filter(|list| !list.is_null()) {
        None => Ok(Vec::new()),
        Some(list) if list.kind() == Kind::Array => list
            .items()
            .map(|item| match item.kind() {
                Kind::Null => Ok(Cow::Borrowed("")),
                _ => item.as_str().ok_or_else(|| wrong.clone()),
            })
            .collect(),
        Some(_) => Err(wrong),
    }
}

// An AdmissionReview that owns its body.

self_cell! {
    /// A review together with its body, decoded once.
    pub struct OwnedAdmissionReview {
        owner: Document<'static>,
        #[covariant]
        dependent: AdmissionReview,
    }

    impl {Debug}
}

impl OwnedAdmissionReview {
    /// Decodes the review in `body`, which is copied only if it is not valid UTF-8.
    ///
    /// # Errors
    ///
    /// The errors of [`AdmissionReview::decode`], and [`AdmissionReviewError::Malformed`].
    pub fn read(body: Vec<u8>) -> Result<Self, AdmissionReviewError> {
        Self::try_new(document(body)?, |document| AdmissionReview::decode(document))
    }

    /// The review.
    #[must_use]
    pub fn review(&self) -> &AdmissionReview<'_> {
        self.borrow_dependent()
    }

    /// The length of the body in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.borrow_owner().text().len()
    }

    /// The bytes of memory that it holds: the body and its index.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.borrow_owner().bytes()
    }
}

fn document(body: Vec<u8>) -> Result<Document<'static>, json::JsonError> {
    match String::from_utf8(body) {
        Ok(text) => Document::parse(text),
        Err(error) => Document::parse_bytes(error.as_bytes()).map(Document::into_owned),
    }
}

#[cfg(test)]
mod tests;
