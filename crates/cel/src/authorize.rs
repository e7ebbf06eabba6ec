//! Authorization checks in expressions (apiserver `pkg/cel/library/authz.go`).

use std::fmt;
use std::sync::Arc;

use super::value::{Opaque, Value};

/// Answers whether somebody may do something: the caller's own authorization.
///
/// Expressions may put the same question many times; the caller remembers
/// what is worth it.
pub trait AuthorizeAccess: Sync {
    /// Whether it is allowed. Once `expired`, what it answers means nothing.
    fn authorize(&self, question: AccessQuestion, expired: &dyn Fn() -> bool) -> Arc<AccessAnswer>;
}

/// May this user do this?
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AccessQuestion {
    /// The service account that would, as namespace and name; else the user of
    /// the request.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The path, if it is no resource that is asked for.
    pub path: Option<String>,
    /// The API group; its version is `*`.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource, or nothing.
    pub subresource: String,
    /// The namespace, or nothing.
    pub namespace: String,
    /// The object's name, or nothing.
    pub name: String,
    /// The field selector as it was written, or nothing.
    pub field_selector: String,
    /// The label selector as it was written, or nothing.
    pub label_selector: String,
}

/// The authorizer's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessAnswer {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong, if anything did.
    pub error: Option<String>,
}

/// A question to the authorizer that is still being put together.
#[derive(Clone)]
pub struct AccessCheck<'a> {
    pub(crate) host: &'a dyn AuthorizeAccess,
    pub(crate) stage: CheckStage,
    pub(crate) question: AccessQuestion,
}

/// What is known of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckStage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl AccessQuestion {
    /// How many bytes of text it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let account = self.service_account.iter();
        let account = account.flat_map(|(namespace, name)| [namespace, name]);
        let texts = [
            &self.verb,
            &self.group,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector,
            &self.label_selector,
        ];
        let texts = texts.into_iter().chain(&self.path).chain(account);
        texts.map(String::len).sum()
    }
}

impl AccessAnswer {
    /// How many bytes of text it has.
    pub(crate) fn bytes(&self) -> usize {
        self.reason.len() + self.error.as_ref().map_or(0, String::len)
    }
}

impl AccessCheck<'_> {
    pub(crate) const fn type_name(&self) -> &'static str {
        match self.stage {
            CheckStage::Authorizer => "kubernetes.authorization.Authorizer",
            CheckStage::Path => "kubernetes.authorization.PathCheck",
            CheckStage::Group => "kubernetes.authorization.GroupCheck",
            CheckStage::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }
}

impl fmt::Debug for AccessCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("stage", &self.stage)
            .field("question", &self.question)
            .finish()
    }
}

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    #[must_use]
    pub fn authorizer(host: &'a dyn AuthorizeAccess) -> Self {
        let check = AccessCheck {
            host,
            stage: CheckStage::Authorizer,
            question: AccessQuestion::default(),
        };
        Self::Opaque(Opaque::Check(Arc::new(check)))
    }

    /// The variable `authorizer.requestResource`: `question` names group,
    /// resource, subresource, namespace and name of the request.
    #[must_use]
    pub fn resource_check(host: &'a dyn AuthorizeAccess, question: AccessQuestion) -> Self {
        Self::Opaque(Opaque::Check(Arc::new(AccessCheck {
            host,
            stage: CheckStage::Resource,
            question,
        })))
    }
}
