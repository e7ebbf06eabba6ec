//! AdmissionExceptions: they excuse individual denials for a limited time.
//!
//! ```text
//! a policy or webhook denies ─▶ exceptions that name it, by name ─▶ the first that applies ─▶ the denial is excused
//!                                                              └─▶ none: the request is refused
//! ```
//!
//! Only denials by validation are excused, never an error, a warning, an audit annotation
//! or a mutation. Each denial of a request needs its own exception.

mod matcher;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::CompiledMatchCondition;
use super::matching::Constraints;
use crate::authorization::Subject;
use crate::model::Time;

pub(crate) use matcher::{ExceptionMatcher, note, publish};

/// An AdmissionException (`portcullis.dev/v1alpha1`).
#[derive(Debug)]
pub struct Exception {
    /// `metadata.name`, by which exceptions are ordered.
    pub name: String,
    /// Whose denials are excused, exactly: names of ValidatingAdmissionPolicies,
    /// and `configuration/webhook` of validating webhooks.
    pub policies: Vec<String>,
    /// Of whose requests, any of them; of everybody's where there are none.
    pub subjects: Vec<Subject>,
    /// Of which objects.
    pub constraints: Constraints,
    /// All must hold; one that errors does not.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// The first instant at which it excuses nothing any more.
    pub not_after: Time,
    /// Why, for the log, the audit annotation and reports.
    pub reason: String,
}

/// What manifests say about exceptions.
#[derive(Debug, Clone, Default)]
pub struct ExceptionObjects {
    /// Those of files, which excuse whatever they name.
    pub of_files: Vec<Arc<Exception>>,
    /// Those watched from an API server, which excuse only what is watched too.
    pub watched: Vec<Arc<Exception>>,
    /// The policies and webhooks (`configuration/webhook`) that are watched.
    pub watched_policies: BTreeSet<String>,
}

/// The exceptions of one cluster, by what they name.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// By policy or `configuration/webhook`; each list by the names of the exceptions.
    by_policy: HashMap<String, Vec<Arc<Exception>>>,
    all: Vec<Arc<Exception>>,
}

// === impl ExceptionObjects ===

impl ExceptionObjects {
    /// Whether there is none, and nothing that one could excuse.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_files.is_empty() && self.watched.is_empty() && self.watched_policies.is_empty()
    }

    /// Adds `other`, which holds besides it.
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

    /// Those that name `policy`, by name.
    fn of(&self, policy: &str) -> &[Arc<Exception>] {
        self.by_policy.get(policy).map(Vec::as_slice).unwrap_or_default()
    }

    /// Every one, those too that may excuse nothing.
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
    /// None of its `subjects` asks.
    Subjects,
    /// Its `namespaceSelector` does not select the namespace, or there is none, or it is not known.
    Namespace,
    /// Its `objectSelector` does not select the object.
    Object,
    /// None of its `resourceRules` is about such a request, or one of `excludeResourceRules` is.
    Rules,
    /// One of its `matchConditions` is false or has no result.
    Conditions,
}

impl NotExcused {
    /// Why, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "its `notAfter` has passed",
            Self::Subjects => "none of its `subjects` asks",
            Self::Namespace => {
                "its `namespaceSelector` selects no namespace that is known and of this request"
            }
            Self::Object => "its `objectSelector` does not select the object",
            Self::Rules => "none of its `resourceRules` is about such a request",
            Self::Conditions => "one of its `matchConditions` is false or has no result",
        }
    }
}
