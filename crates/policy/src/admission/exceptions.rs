//! AdmissionExceptions: they excuse individual denials for a limited time.
//!
//! ```text
//! a policy or webhook denies ─▶ exceptions that name it, by name ─▶ the first that applies ─▶ the denial is excused
//!                                                              └─▶ none: the request is rejected
//! ```
//!
//! Only denials by validation are excused, never errors, warnings, audit annotations or mutations.
//! Each denial of a request needs an exception.

mod matcher;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::CompiledMatchCondition;
use super::matching::Constraints;
use crate::authorization::Subject;
use crate::model::Time;

pub(crate) use matcher::{ExceptionMatcher, add_excused, write_annotation};

/// An AdmissionException (`portcullis.dev/v1alpha1`).
#[derive(Debug)]
pub struct Exception {
    /// `metadata.name`, by which exceptions are ordered.
    pub name: String,
    /// The policies and webhooks whose denials are excused: exact names of
    /// ValidatingAdmissionPolicies, and `configuration/webhook` of validating webhooks.
    pub policies: Vec<String>,
    /// The users whose requests are excused; empty for everybody.
    pub subjects: Vec<Subject>,
    /// The objects for which denials are excused.
    pub constraints: Constraints,
    /// All must be true; an error counts as false.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// From this time on it excuses nothing.
    pub not_after: Time,
    /// The reason for the exception, for the log, the audit annotation and reports.
    pub reason: String,
}

/// The exceptions of manifests.
#[derive(Debug, Clone, Default)]
pub struct ExceptionObjects {
    /// Exceptions from files, which may excuse any policy and webhook.
    pub of_files: Vec<Arc<Exception>>,
    /// Exceptions watched from an API server, which excuse only policies and webhooks that are
    /// watched too.
    pub watched: Vec<Arc<Exception>>,
    /// The names of watched policies and webhooks (`configuration/webhook`).
    pub watched_policies: BTreeSet<String>,
}

/// The exceptions of one cluster, indexed by policy and webhook.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// By policy or `configuration/webhook`; each list is sorted by the names of the exceptions.
    by_policy: HashMap<String, Vec<Arc<Exception>>>,
    all: Vec<Arc<Exception>>,
}

// === impl ExceptionObjects ===

impl ExceptionObjects {
    /// Whether there are neither exceptions nor watched policies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_files.is_empty() && self.watched.is_empty() && self.watched_policies.is_empty()
    }

    /// Adds those of `other`.
    pub fn extend(&mut self, other: Self) {
        self.of_files.extend(other.of_files);
        self.watched.extend(other.watched);
        self.watched_policies.extend(other.watched_policies);
    }
}

// === impl Exceptions ===

impl Exceptions {
    pub(crate) fn new(objects: ExceptionObjects) -> Self {
        let ExceptionObjects {
            of_files,
            watched,
            watched_policies,
        } = objects;
        let mut exceptions = Self::default();
        for exception in of_files {
            exceptions.add(&exception, |_| true);
        }
        for exception in watched {
            exceptions.add(&exception, |policy| watched_policies.contains(policy));
        }
        for list in exceptions.by_policy.values_mut() {
            list.sort_by(|one, other| one.name.cmp(&other.name));
        }
        exceptions
    }

    fn add(&mut self, exception: &Arc<Exception>, may_excuse: impl Fn(&str) -> bool) {
        self.all.push(Arc::clone(exception));
        for policy in exception.policies.iter().filter(|policy| may_excuse(policy)) {
            let list = self.by_policy.entry(policy.clone()).or_default();
            list.push(Arc::clone(exception));
        }
    }

    /// The exceptions that name `policy`, sorted by name.
    fn of(&self, policy: &str) -> &[Arc<Exception>] {
        self.by_policy.get(policy).map(Vec::as_slice).unwrap_or_default()
    }

    /// All exceptions, including those that can excuse nothing.
    pub(crate) fn all(&self) -> &[Arc<Exception>] {
        &self.all
    }
}

// A denial that an exception excused.

/// Denials of one policy or webhook that an exception excused.
#[derive(Debug, Clone)]
pub struct ExcusedDenials {
    /// The exception.
    pub exception: Arc<Exception>,
    /// The policy, or `configuration/webhook`.
    pub policy: String,
}

// Why an exception does not excuse a denial.

/// Why an exception that names a policy does not excuse its denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotExcused {
    /// Its `notAfter` has passed.
    Ended,
    /// None of its `subjects` is the user.
    Subjects,
    /// Its `namespaceSelector` does not select the namespace, or the request has no namespace, or
    /// the namespace is not known.
    Namespace,
    /// Its `objectSelector` does not select the object.
    Object,
    /// None of its `resourceRules` matches, or one of `excludeResourceRules` does.
    Rules,
    /// One of its `matchConditions` is false or an error.
    Conditions,
}

impl NotExcused {
    /// The reason, for the user.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "its `notAfter` has passed",
            Self::Subjects => "none of its `subjects` asks",
            Self::Namespace => {
                "its `namespaceSelector` selects no namespace that is known and of this request"
            }
            Self::Object => "its `objectSelector` does not select the object",
            Self::Rules => "none of its `resourceRules` matches the request",
            Self::Conditions => "one of its `matchConditions` is false or has no result",
        }
    }
}
