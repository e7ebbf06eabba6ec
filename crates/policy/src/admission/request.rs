//! The request of an AdmissionReview, and the authorization checks that the API server made before
//! it sent the review.
//!
//! A review does not contain the verb of the user's request, so several checks are possible, of
//! which the API server made one:
//!
//! | operation | verbs |
//! |---|---|
//! | CREATE | `create`, with a name only for a subresource |
//! | UPDATE | `update` (PUT) or `patch` (PATCH, apply) |
//! | DELETE | `delete`, or without a name `deletecollection` |
//! | CONNECT | those of [`CONNECT_VERBS`] |
//!
//! For an apply that creates an object the API server checks `patch` and `create`; here it counts
//! as `create`. A review does not contain the selectors of a `deletecollection`, so the check here
//! has none and covers more than the one that the API server made.

use std::borrow::Cow;

use crate::model::{Attributes, ResourceAttributes, Target, User, groups};
use portcullis_cel::json::Node;

/// The request of one AdmissionReview (`admission.Attributes` of
/// `apiserver/pkg/admission/interfaces.go`), which borrows its strings from the review.
///
/// `object` and `old_object` refer to the JSON of the review and are read only as far as policies
/// need.
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
    /// The kind that the user requested; differs from `kind` if the API server converted the
    /// object.
    pub request_kind: GroupVersionKind<'r>,
    /// The resource that the user requested.
    pub request_resource: GroupVersionResource<'r>,
    /// The name of the object; empty if the API server generates it.
    pub name: Cow<'r, str>,
    /// The namespace: for a Namespace its own name, and empty for other cluster-scoped objects.
    pub namespace: Cow<'r, str>,
    /// The operation.
    pub operation: Operation,
    /// The requester.
    pub user: User<'r>,
    /// The new object; `None` for DELETE.
    pub object: Option<Node<'r>>,
    /// The existing object, for UPDATE and DELETE.
    pub old_object: Option<Node<'r>>,
    /// The options of the operation, such as `CreateOptions`.
    pub options: Option<Node<'r>>,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The `request` of the review as JSON.
    pub written: Node<'r>,
}

/// The operation on the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed, by PUT, PATCH or apply.
    Update,
    /// The object is deleted.
    Delete,
    /// A client connects to the object, for example for `exec`.
    Connect,
}

/// A kind with its group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind<'r> {
    /// The API group; empty for the core group.
    pub group: Cow<'r, str>,
    /// The version.
    pub version: Cow<'r, str>,
    /// The kind, such as `Pod`.
    pub kind: Cow<'r, str>,
}

/// A resource with its group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource<'r> {
    /// The API group; empty for the core group.
    pub group: Cow<'r, str>,
    /// The version.
    pub version: Cow<'r, str>,
    /// The resource in the plural, such as `pods`.
    pub resource: Cow<'r, str>,
}

/// The subresources for CONNECT, with the verbs that the API server may have checked: `get` and
/// `create`, for a websocket or POST, and for proxies also the others (`ConnectMethods` of each
/// storage). All are in the core group.
pub const CONNECT_VERBS: [(&str, &str, &[&str]); 6] = [
    ("pods", "exec", &["get", "create"]),
    ("pods", "attach", &["get", "create"]),
    ("pods", "portforward", &["get", "create"]),
    ("pods", "proxy", PROXY_VERBS),
    ("services", "proxy", PROXY_VERBS),
    ("nodes", "proxy", PROXY_VERBS),
];

const PROXY_VERBS: &[&str] = &["get", "create", "update", "patch", "delete"];

// === impl Request ===

impl Request<'_> {
    /// Returns the bytes of `text`, which contains parts of the objects, and restores what was not
    /// valid UTF-8 in the review.
    #[must_use]
    pub fn restored(&self, text: String) -> Vec<u8> {
        match self.object.or(self.old_object).or(self.options) {
            Some(node) => node.document().restored(text),
            None => text.into_bytes(),
        }
    }

    /// Whether the object configures admission. Webhooks and policies are not called for these
    /// objects, so that a faulty one can always be repaired.
    ///
    /// `IsExemptAdmissionConfigurationResource` of
    /// `apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`.
    #[must_use]
    pub fn is_admission_configuration(&self) -> bool {
        self.request_kind.is_admission_configuration()
    }

    /// Whether the API server converted the object from the version that the user requested.
    #[must_use]
    pub fn is_converted(&self) -> bool {
        self.resource != self.request_resource
    }
}

// === impl Operation ===

impl Operation {
    /// Parses the `operation` of a review or rule.
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

    /// The value in reviews and rules.
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

    /// Copies borrowed strings.
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
    /// Whether objects of this resource are not stored: reviews of tokens and of access. Policies
    /// never see them, and webhooks no longer since Kubernetes 1.37
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

    /// Whether this is a policy or binding, which only static policies see
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

    /// Copies borrowed strings.
    #[must_use]
    pub fn into_owned(self) -> GroupVersionResource<'static> {
        GroupVersionResource {
            group: Cow::Owned(self.group.into_owned()),
            version: Cow::Owned(self.version.into_owned()),
            resource: Cow::Owned(self.resource.into_owned()),
        }
    }
}

// === impl Request ===

impl Request<'_> {
    /// Returns the authorization checks of which the API server made one before it sent the review;
    /// never empty.
    ///
    /// They name the resource that the user requested, even if the API server converted the object.
    #[must_use]
    pub fn possible_authorization_checks(&self) -> Vec<Attributes<'_>> {
        // In a create request, the name is in the body and not in the path.
        let is_nameless = self.operation == Operation::Create && self.subresource.is_empty();
        let name = if is_nameless { "" } else { self.name.as_ref() };
        let verbs = self.possible_verbs().iter();
        verbs
            .map(|verb| self.authorization_question(verb, Cow::Borrowed(name)))
            .collect()
    }

    fn possible_verbs(&self) -> &'static [&'static str] {
        match self.operation {
            Operation::Create => &["create"],
            Operation::Update => &["update", "patch"],
            Operation::Delete if self.name.is_empty() => &["deletecollection"],
            Operation::Delete => &["delete"],
            Operation::Connect => self.connect_verbs(),
        }
    }

    /// The verbs that the API server may have checked for this CONNECT.
    pub(crate) fn connect_verbs(&self) -> &'static [&'static str] {
        let resource = &self.request_resource;
        let is_this = |(name, subresource, _): &&(&str, &str, _)| {
            resource.group.is_empty() && resource.resource == *name && self.subresource == *subresource
        };
        let known = CONNECT_VERBS.iter().find(is_this);
        known.map_or(PROXY_VERBS, |(_, _, verbs)| verbs)
    }

    /// Returns the check whether the user may `verb` the requested resource under this name.
    pub(crate) fn authorization_question<'r>(
        &'r self,
        verb: &'static str,
        name: Cow<'r, str>,
    ) -> Attributes<'r> {
        let resource = &self.request_resource;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        let target = ResourceAttributes {
            verb: verb.into(),
            // A request path that names a Namespace also counts as a path within it.
            namespace: if name.is_empty() && is_namespace {
                "".into()
            } else {
                self.namespace.as_ref().into()
            },
            group: resource.group.as_ref().into(),
            version: resource.version.as_ref().into(),
            resource: resource.resource.as_ref().into(),
            subresource: self.subresource.as_ref().into(),
            name,
            ..ResourceAttributes::default()
        };
        Attributes {
            user: self.user.clone(),
            target: Target::Resource(Box::new(target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{GroupVersionKind, GroupVersionResource};
    use crate::model::User;
    use portcullis_cel::json::Document;

    const PROXIED: &str = "get create update patch delete";

    /// `OPERATION resource[.group][/subresource] [namespace] [name]`; `-` for no namespace.
    fn questions(text: &'static str) -> Vec<String> {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (operation, resource) = (Operation::parse(word()).unwrap(), word());
        let (namespace, name) = (word().trim_start_matches('-'), word());
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let document = Document::parse("{}").unwrap();
        let resource = GroupVersionResource {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        };
        let request = Request {
            uid: "u".into(),
            kind: GroupVersionKind::default(),
            resource: GroupVersionResource::default(),
            subresource: subresource.into(),
            request_kind: GroupVersionKind::default(),
            request_resource: resource,
            name: name.into(),
            namespace: namespace.into(),
            operation,
            user: User {
                name: "alice".into(),
                ..User::default()
            },
            object: None,
            old_object: None,
            options: None,
            dry_run: false,
            written: document.root(),
        };
        let asked = request.possible_authorization_checks();
        let asked = asked.into_iter().map(|attributes| {
            assert_eq!(attributes.user.name, "alice");
            let Target::Resource(of) = attributes.target else {
                panic!("a path")
            };
            assert_eq!(of.version, "v1");
            let parts = [&of.verb, &of.group, &of.resource, &of.subresource];
            let parts = parts.into_iter().chain([&of.namespace, &of.name]);
            parts.map(|part| &**part).collect::<Vec<_>>().join(",")
        });
        asked.collect()
    }

    #[test]
    fn a_request_has_every_question_behind_it_that_the_api_server_can_have_asked() {
        for (request, verbs, rest) in [
            ("CREATE pods a x", "create", ",pods,,a,"),
            ("CREATE pods/eviction a x", "create", ",pods,eviction,a,x"),
            ("CREATE namespaces x x", "create", ",namespaces,,,"),
            ("CREATE nodes - x", "create", ",nodes,,,"),
            ("UPDATE namespaces x x", "update patch", ",namespaces,,x,x"),
            (
                "UPDATE deployments.apps/scale a x",
                "update patch",
                "apps,deployments,scale,a,x",
            ),
            ("DELETE pods a x", "delete", ",pods,,a,x"),
            ("DELETE namespaces x x", "delete", ",namespaces,,x,x"),
            ("DELETE pods a", "deletecollection", ",pods,,a,"),
            ("CONNECT pods/exec a x", "get create", ",pods,exec,a,x"),
            ("CONNECT pods/attach a x", "get create", ",pods,attach,a,x"),
            (
                "CONNECT pods/portforward a x",
                "get create",
                ",pods,portforward,a,x",
            ),
            ("CONNECT pods/proxy a x", PROXIED, ",pods,proxy,a,x"),
            ("CONNECT services/proxy a x", PROXIED, ",services,proxy,a,x"),
            ("CONNECT nodes/proxy - x", PROXIED, ",nodes,proxy,,x"),
            (
                "CONNECT pods.example.com/exec a x",
                PROXIED,
                "example.com,pods,exec,a,x",
            ),
        ] {
            let expected = verbs.split(' ').map(|verb| format!("{verb},{rest}"));
            assert_eq!(questions(request), expected.collect::<Vec<_>>(), "{request}");
        }
    }
}
