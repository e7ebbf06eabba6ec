//! The variables that Kubernetes declares: for admission
//! (apiserver `pkg/admission/plugin/cel/compile.go`) and for match conditions of
//! authorization webhooks (apiserver `pkg/authorization/cel/compile.go`).

use super::environment::{Environment, Version};
use super::library::{AUTHORIZER, RESOURCE_CHECK};
use super::types::Type;
use super::types::Type::{Bool, Dyn, Int, String as Str, Timestamp};

/// What an admission policy may name beside `object`, `oldObject`, `request`
/// and `namespaceObject`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionVariables {
    /// `params`: the policy names a parameter kind.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
}

impl Environment {
    /// What an expression of a policy, or a match condition of a webhook, may
    /// name. `variables` are declared with [`Environment::add_lazy_variable`].
    #[must_use]
    pub fn admission(version: Version, variables: AdmissionVariables) -> Self {
        let mut environment = Self::new(version)
            .variable("object", Dyn)
            .variable("oldObject", Dyn)
            .variable("request", admission_request())
            .variable("namespaceObject", namespace());
        if variables.params {
            environment = environment.variable("params", Dyn);
        }
        if variables.authorizer {
            environment = environment
                .variable("authorizer", AUTHORIZER)
                .variable("authorizer.requestResource", RESOURCE_CHECK);
        }
        environment
    }

    /// What a condition on a SubjectAccessReview may name: `request`, its spec
    /// in v1 shape.
    #[must_use]
    pub fn authorization(version: Version) -> Self {
        Self::new(version).variable("request", subject_access_review_spec())
    }
}

fn texts() -> Type {
    Type::list(Str)
}

fn texts_by_name() -> Type {
    Type::map(Str, texts())
}

fn strings<const N: usize>(name: &str, fields: [&str; N]) -> Type {
    Type::object(name, fields.map(|field| (field, Str)))
}

/// `request` of admission: neither uid nor objects, which are variables.
fn admission_request() -> Type {
    let kind = || strings("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = || {
        strings(
            "kubernetes.GroupVersionResource",
            ["group", "version", "resource"],
        )
    };
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Str),
            ("uid", Str),
            ("groups", texts()),
            ("extra", texts_by_name()),
        ],
    );
    Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", Str),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", Str),
            ("name", Str),
            ("namespace", Str),
            ("operation", Str),
            ("userInfo", user),
            ("dryRun", Bool),
            ("options", Dyn),
        ],
    )
}

/// `namespaceObject`: of metadata, what is not for the API server's own use.
fn namespace() -> Type {
    let metadata = Type::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Str),
            ("generateName", Str),
            ("namespace", Str),
            ("labels", Type::map(Str, Str)),
            ("annotations", Type::map(Str, Str)),
            ("UID", Str),
            ("creationTimestamp", Timestamp),
            ("deletionGracePeriodSeconds", Int),
            ("deletionTimestamp", Timestamp),
            ("generation", Int),
            ("resourceVersion", Str),
            ("finalizers", texts()),
        ],
    );
    let condition = Type::object(
        "kubernetes.NamespaceCondition",
        [
            ("status", Str),
            ("type", Str),
            ("lastTransitionTime", Timestamp),
            ("message", Str),
            ("reason", Str),
        ],
    );
    let status = Type::object(
        "kubernetes.NamespaceStatus",
        [("conditions", Type::list(condition)), ("phase", Str)],
    );
    let spec = Type::object("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    Type::object(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
}

/// `request` of authorization.
fn subject_access_review_spec() -> Type {
    let requirement = || {
        Type::object(
            "kubernetes.SelectorRequirement",
            [("key", Str), ("operator", Str), ("values", texts())],
        )
    };
    let selector = |name| {
        Type::object(
            name,
            [("rawSelector", Str), ("requirements", Type::list(requirement()))],
        )
    };
    let resource = Type::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", Str),
            ("verb", Str),
            ("group", Str),
            ("version", Str),
            ("resource", Str),
            ("subresource", Str),
            ("name", Str),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ],
    );
    Type::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            (
                "nonResourceAttributes",
                strings("kubernetes.NonResourceAttributes", ["path", "verb"]),
            ),
            ("user", Str),
            ("groups", texts()),
            ("extra", texts_by_name()),
            ("uid", Str),
        ],
    )
}
