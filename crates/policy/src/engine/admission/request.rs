//! The AdmissionRequest: one operation on one object.

use std::borrow::Cow;

use crate::engine::{User, groups};
use portcullis_cel::json::Node;

/// One admission question (`admission.Attributes` of
/// `apiserver/pkg/admission/interfaces.go`), its text borrowed from the review.
///
/// `object` and `old_object` are handles into the review: nothing of them is
/// read until a policy looks.
#[derive(Debug, Clone)]
pub struct Request<'r> {
    /// Identifies the review, not the user's request; empty in `v1alpha1`.
    pub uid: Cow<'r, str>,
    /// The kind in which the object is given.
    pub kind: GroupVersionKind<'r>,
    /// The resource of that kind.
    pub resource: GroupVersionResource<'r>,
    /// The subresource, such as `scale`; empty for the object itself.
    pub subresource: Cow<'r, str>,
    /// The kind that the user asked for; another one where the API server converted.
    pub request_kind: GroupVersionKind<'r>,
    /// The resource that the user asked for.
    pub request_resource: GroupVersionResource<'r>,
    /// The object's name; empty where the API server is to make one up.
    pub name: Cow<'r, str>,
    /// The namespace. For a Namespace it is its own name; for other
    /// cluster-scoped objects it is empty.
    pub namespace: Cow<'r, str>,
    /// What is done.
    pub operation: Operation,
    /// Who does it.
    pub user: User<'r>,
    /// The object as it is to be; none for DELETE.
    pub object: Option<Node<'r>>,
    /// The object as it is; for UPDATE and DELETE.
    pub old_object: Option<Node<'r>>,
    /// The options of the operation, such as `CreateOptions`.
    pub options: Option<Node<'r>>,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The question as it was written, for expressions that look at `request`.
    pub written: Node<'r>,
}

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed, by PUT, PATCH or apply.
    Update,
    /// It is deleted.
    Delete,
    /// Something connects to it, such as `exec`.
    Connect,
}

/// Names a kind of object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind<'r> {
    /// The API group; empty for the core group.
    pub group: Cow<'r, str>,
    /// The version.
    pub version: Cow<'r, str>,
    /// The kind, such as `Pod`.
    pub kind: Cow<'r, str>,
}

/// Names a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource<'r> {
    /// The API group; empty for the core group.
    pub group: Cow<'r, str>,
    /// The version.
    pub version: Cow<'r, str>,
    /// The resource in the plural, such as `pods`.
    pub resource: Cow<'r, str>,
}

// === impl Request ===

impl Request<'_> {
    /// The bytes of `text`, which holds parts of the objects, as they were received: what is
    /// no UTF-8 is so again.
    #[must_use]
    pub fn restored(&self, text: String) -> Vec<u8> {
        match self.object.or(self.old_object).or(self.options) {
            Some(node) => node.document().restored(text),
            None => text.into_bytes(),
        }
    }

    /// Whether it is about one of the objects that configure admission
    /// themselves. Webhooks and policies never judge these, so that a bad one
    /// can always be mended.
    ///
    /// `IsExemptAdmissionConfigurationResource` of
    /// `apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`.
    #[must_use]
    pub fn is_admission_configuration(&self) -> bool {
        self.request_kind.is_admission_configuration()
    }

    /// Whether the API server converted the object from the version that the user asked for.
    #[must_use]
    pub fn is_converted(&self) -> bool {
        self.resource != self.request_resource
    }
}

// === impl Operation ===

impl Operation {
    /// The operation that a review spells so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            "CONNECT" => Some(Self::Connect),
            _ => None,
        }
    }

    /// As reviews and rules spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

// === impl GroupVersionKind ===

impl GroupVersionKind<'_> {
    /// Whether objects of this kind configure admission.
    #[must_use]
    pub fn is_admission_configuration(&self) -> bool {
        self.group == groups::ADMISSION
            && matches!(
                self.kind.as_ref(),
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }

    /// The same with text of its own.
    #[must_use]
    pub fn into_owned(self) -> GroupVersionKind<'static> {
        GroupVersionKind {
            group: Cow::Owned(self.group.into_owned()),
            version: Cow::Owned(self.version.into_owned()),
            kind: Cow::Owned(self.kind.into_owned()),
        }
    }
}

// === impl GroupVersionResource ===

impl GroupVersionResource<'_> {
    /// Whether the API server answers this resource from nothing that is
    /// stored: reviews of tokens and of access. Policies never see them, and
    /// webhooks not since Kubernetes 1.37
    /// (`kubernetes/pkg/kubeapiserver/admission/exclusion/resources.go`).
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        match self.group.as_ref() {
            "authentication.k8s.io" => {
                matches!(self.resource.as_ref(), "selfsubjectreviews" | "tokenreviews")
            }
            "authorization.k8s.io" => matches!(
                self.resource.as_ref(),
                "localsubjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
                    | "subjectaccessreviews"
            ),
            _ => false,
        }
    }

    /// Whether it is a policy or binding. Of policies only static ones see them
    /// (`isExcludedFromAPIHooks` of `apiserver/pkg/admission/plugin/policy/generic/plugin.go`).
    #[must_use]
    pub fn is_policy(&self) -> bool {
        self.group == groups::ADMISSION
            && matches!(
                self.resource.as_ref(),
                "validatingadmissionpolicies"
                    | "validatingadmissionpolicybindings"
                    | "mutatingadmissionpolicies"
                    | "mutatingadmissionpolicybindings"
            )
    }

    /// The same with text of its own.
    #[must_use]
    pub fn into_owned(self) -> GroupVersionResource<'static> {
        GroupVersionResource {
            group: Cow::Owned(self.group.into_owned()),
            version: Cow::Owned(self.version.into_owned()),
            resource: Cow::Owned(self.resource.into_owned()),
        }
    }
}
