//! A review's request as the engine reads it, and what the API server asked its authorizers before it
//! sent the request.
//!
//! A review does not say by which verb the user came. So one review can have several questions behind
//! it, of which the API server asked one:
//!
//! | operation | verbs |
//! |---|---|
//! | CREATE | `create`, without a name unless it is of a subresource |
//! | UPDATE | `update` (PUT) or `patch` (PATCH, apply) |
//! | DELETE | `delete`, or without a name `deletecollection` |
//! | CONNECT | those of [`CONNECT_VERBS`] |
//!
//! An apply that creates an object is asked about as `patch` and as `create`; here it is a `create`.
//! The selectors of a `deletecollection` are not part of a review: the question has none, which is
//! wider than what was asked.

use std::borrow::Cow;

use crate::model::{Attributes, ResourceAttributes, Target, User, groups};
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

/// What somebody connects to, by the verbs that lead there: `get` and `create` by a websocket or by
/// POST; through a proxy also the others (`ConnectMethods` of the storage of each). All are of the
/// core group.
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

// === impl Request ===

impl Request<'_> {
    /// The questions of which the API server asked one before it sent this request: at least one.
    ///
    /// They are about the resource that the user asked for, whatever the object was converted to.
    #[must_use]
    pub fn authorization_questions(&self) -> Vec<Attributes<'_>> {
        // A name in the body is none in the path.
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

    /// The verbs by which somebody may connect to what it is about.
    pub(crate) fn connect_verbs(&self) -> &'static [&'static str] {
        let resource = &self.request_resource;
        let is_this = |(name, subresource, _): &&(&str, &str, _)| {
            resource.group.is_empty() && resource.resource == *name && self.subresource == *subresource
        };
        let known = CONNECT_VERBS.iter().find(is_this);
        known.map_or(PROXY_VERBS, |(_, _, verbs)| verbs)
    }

    /// The question whether the user may do this to the resource that they asked for, under this name.
    pub(crate) fn authorization_question<'r>(
        &'r self,
        verb: &'static str,
        name: Cow<'r, str>,
    ) -> Attributes<'r> {
        let resource = &self.request_resource;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        let target = ResourceAttributes {
            verb: verb.into(),
            // Of a Namespace, a path that names it is one within it.
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
        let asked = request.authorization_questions();
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
