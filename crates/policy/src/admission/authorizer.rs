//! The CEL variable `authorizer`: access checks in expressions. They are decided by the same
//! policies as the API server's SubjectAccessReviews.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use super::Request;
use crate::authorization::{Authorization, PolicySet};
use crate::model::{
    Attributes, Deadline, Decision, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, Time,
    User, is_label_key, is_label_value, selector,
};
use portcullis_cel::{AccessCheckAttributes, AccessCheckDecision, AuthorizeAccess, LazyValue, Value};

/// Decides access checks.
pub trait AccessChecker: fmt::Debug + Sync {
    /// Decides a check as of `now`. The result is meaningless if the deadline has passed.
    fn answer(&self, attributes: &Attributes<'_>, now: Time, deadline: Deadline<'_>) -> AccessCheckDecision;

    /// Evaluates Denies and Limits only: the decision is a Deny or no opinion. The result is
    /// meaningless if the deadline has passed.
    fn refusal(&self, attributes: &Attributes<'_>, now: Time, deadline: Deadline<'_>) -> Authorization<'_>;
}

/// The maximum number of cached results for one request.
const MAX_CACHED_ANSWERS: usize = 1024;
/// The maximum size of a check whose result is cached, in bytes.
const MAX_QUESTION_BYTES: usize = 4096;

/// The access checks of one request, each decided once
/// (`apiserver/pkg/admission/plugin/authorizer/caching_authorizer.go`).
#[derive(Debug)]
pub(crate) struct RequestAuthorizer<'r> {
    checker: &'r dyn AccessChecker,
    user: &'r User<'r>,
    now: Time,
    /// [`Deadline::needs_more_memory`].
    needs_more: Option<&'r AtomicBool>,
    answers: Mutex<HashMap<AccessCheckAttributes, Arc<AccessCheckDecision>>>,
}

/// The variables `authorizer` and `authorizer.requestResource` of one request.
#[derive(Debug)]
pub(crate) struct AuthorizerVariables<'r> {
    pub(crate) authorizer: AuthorizerVariable<'r>,
    pub(crate) request_resource: RequestResourceVariable<'r>,
}

/// The variable `authorizer`.
#[derive(Debug)]
pub(crate) struct AuthorizerVariable<'r>(&'r RequestAuthorizer<'r>);

/// The variable `authorizer.requestResource`.
#[derive(Debug)]
pub(crate) struct RequestResourceVariable<'r>(&'r RequestAuthorizer<'r>, &'r Request<'r>);

// === impl PolicySet ===

/// The API server's other authorizers are not considered, and Allows with objectConditions grant
/// nothing.
impl AccessChecker for PolicySet {
    fn answer(&self, attributes: &Attributes<'_>, now: Time, deadline: Deadline<'_>) -> AccessCheckDecision {
        let authorization = self.authorize_unconditionally(attributes, now, deadline);
        AccessCheckDecision {
            allowed: authorization.decision == Decision::Allow,
            reason: authorization.reason.to_string(),
            error: None,
        }
    }

    fn refusal(&self, attributes: &Attributes<'_>, now: Time, deadline: Deadline<'_>) -> Authorization<'_> {
        self.refuse(attributes, now, deadline)
    }
}

// === impl RequestAuthorizer ===

impl<'r> RequestAuthorizer<'r> {
    pub(crate) fn new(checker: &'r dyn AccessChecker, user: &'r User<'r>, now: Time) -> Self {
        Self {
            checker,
            user,
            now,
            needs_more: None,
            answers: Mutex::default(),
        }
    }

    /// This authorizer for an attempt, which is stopped if it needs more memory than `deadline`
    /// allows.
    pub(crate) fn within(self, deadline: Deadline<'r>) -> Self {
        Self {
            needs_more: deadline.needs_more_memory,
            ..self
        }
    }

    fn answer(&self, question: &AccessCheckAttributes, deadline: Deadline<'_>) -> AccessCheckDecision {
        let user = match &question.service_account {
            None => self.user.clone(),
            Some((namespace, name)) => service_account(namespace, name),
        };
        let target = target(question);
        self.checker
            .answer(&Attributes { user, target }, self.now, deadline)
    }
}

impl AuthorizeAccess for RequestAuthorizer<'_> {
    fn authorize(
        &self,
        question: AccessCheckAttributes,
        expired: &dyn Fn() -> bool,
    ) -> Arc<AccessCheckDecision> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&question) {
            return Arc::clone(answer);
        }
        let deadline = Deadline {
            expired,
            needs_more_memory: self.needs_more,
        };
        let answer = Arc::new(self.answer(&question, deadline));
        if answers.len() < MAX_CACHED_ANSWERS && question.bytes() <= MAX_QUESTION_BYTES {
            answers.insert(question, Arc::clone(&answer));
        }
        answer
    }
}

/// The user of a service account, as `ServiceAccountInfo.UserInfo` of
/// `apiserver/pkg/authentication/serviceaccount`.
fn service_account(namespace: &str, name: &str) -> User<'static> {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}").into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}").into(),
        ],
        ..User::default()
    }
}

/// The target of a check, as in `resourceCheckVal.Authorize` and `pathCheckVal.Authorize` of
/// `apiserver/pkg/cel/library/authz.go`.
fn target(question: &AccessCheckAttributes) -> Target<'_> {
    fn text(text: &str) -> Cow<'_, str> {
        Cow::Borrowed(text)
    }
    if let Some(path) = &question.path {
        return Target::NonResource {
            path: text(path),
            verb: text(&question.verb),
        };
    }
    Target::Resource(Box::new(ResourceAttributes {
        verb: text(&question.verb),
        namespace: text(&question.namespace),
        group: text(&question.group),
        version: text("*"),
        resource: text(&question.resource),
        subresource: text(&question.subresource),
        name: text(&question.name),
        selectors: Selectors {
            field: selector::parse_fields(&question.field_selector).unwrap_or_default(),
            label: labels(&question.label_selector),
        },
        raw_selectors: RawSelectors::default(),
    }))
}

/// Parses a label selector. An invalid one is ignored, so that the check is decided like one for
/// all objects.
fn labels(text: &str) -> Vec<Requirement<'static>> {
    let requirements = selector::parse_labels(text).unwrap_or_default();
    let is_sound = requirements
        .iter()
        .all(|one| is_label_key(&one.key) && one.values.iter().all(|value| is_label_value(value)));
    if is_sound { requirements } else { Vec::new() }
}

// === impl AuthorizerVariables ===

impl<'r> AuthorizerVariables<'r> {
    pub(crate) const fn new(authorizer: &'r RequestAuthorizer<'r>, request: &'r Request<'r>) -> Self {
        Self {
            authorizer: AuthorizerVariable(authorizer),
            request_resource: RequestResourceVariable(authorizer, request),
        }
    }
}

impl LazyValue for AuthorizerVariable<'_> {
    fn value(&self) -> Value<'_> {
        Value::authorizer(self.0)
    }
}

impl LazyValue for RequestResourceVariable<'_> {
    fn value(&self) -> Value<'_> {
        let Self(authorizer, request) = *self;
        let question = AccessCheckAttributes {
            group: request.request_resource.group.to_string(),
            resource: request.request_resource.resource.to_string(),
            subresource: request.subresource.to_string(),
            namespace: request.namespace.to_string(),
            name: request.name.to_string(),
            ..AccessCheckAttributes::default()
        };
        Value::resource_check(authorizer, question)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts its checks.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl AccessChecker for Counting {
        fn answer(&self, _: &Attributes<'_>, _: Time, _: Deadline<'_>) -> AccessCheckDecision {
            self.0.fetch_add(1, Ordering::Relaxed);
            AccessCheckDecision::default()
        }

        fn refusal(&self, _: &Attributes<'_>, _: Time, _: Deadline<'_>) -> Authorization<'_> {
            Authorization::no_opinion("")
        }
    }

    fn question(name: &str) -> AccessCheckAttributes {
        AccessCheckAttributes {
            name: name.into(),
            ..AccessCheckAttributes::default()
        }
    }

    #[test]
    fn a_question_is_asked_once_in_a_request() {
        let (checker, user) = (Counting::default(), User::default());
        let authorizer = RequestAuthorizer::new(&checker, &user, Time::UNIX_EPOCH);
        for name in ["a", "b", "a", "b"] {
            authorizer.authorize(question(name), &|| false);
        }
        assert_eq!(checker.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (checker, user) = (Counting::default(), User::default());
        let authorizer = RequestAuthorizer::new(&checker, &user, Time::UNIX_EPOCH);
        let long = "a".repeat(MAX_QUESTION_BYTES + 1);
        for _ in 0..2 {
            authorizer.authorize(question(&long), &|| false);
        }
        assert_eq!(checker.0.load(Ordering::Relaxed), 2);
        for number in 0..2 * MAX_CACHED_ANSWERS {
            authorizer.authorize(question(&number.to_string()), &|| false);
        }
        assert_eq!(authorizer.answers.lock().unwrap().len(), MAX_CACHED_ANSWERS);
    }
}
