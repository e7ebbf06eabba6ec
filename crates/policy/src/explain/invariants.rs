//! Reports about invariants, as text and JSON.

use serde::Serialize;
use serde_json::Value;

use super::Lines;
use super::unknown_rbac;
use crate::authorization::SubjectAccessReviewVersion;
use crate::authorization::proof::{
    InvariantProof, InvariantStatus, ProofLimitError, UnknownRoles, WorkLimit,
};
use crate::authorization::{AuthorizationInvariant, Enforcement, PolicySet};
use crate::model::{Attributes, Cause, Time};

/// What invariants do not cover, for the end of a report.
pub const OUT_OF_SIGHT: &str = "not covered by invariants: system:masters and `neverDeny`, requests that an \
    API server decides with other authorizers or without calling the gateway, and RBAC objects that are not \
    known here";

/// The object that decided, in the form of the decision log.
#[derive(Debug, Serialize)]
pub(crate) struct ReportedCause {
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
}

/// An invariant with its status.
#[derive(Debug)]
pub struct CheckedInvariant {
    /// `metadata.name`.
    pub name: String,
    /// What happens to a write that breaks it.
    pub enforcement: Enforcement,
    /// `spec.reason`.
    pub reason: String,
    /// Whether it holds, and why not.
    pub status: InvariantStatus,
}

/// The status of an invariant before and after a change.
#[derive(Debug, Serialize)]
pub struct ChangedInvariant {
    name: String,
    enforcement: Enforcement,
    /// `None` if the invariant does not exist.
    before: Option<&'static str>,
    after: Option<&'static str>,
    /// A request that breaks the invariant after the change.
    witness: Option<Value>,
    /// The objects that allow such requests.
    objects: Vec<ReportedCause>,
    #[serde(skip)]
    sentences: Vec<String>,
}

/// The status of each invariant of `set`, which decides the requests of `cluster`, from `now` on.
///
/// # Errors
/// The limit is reached before any is examined.
pub fn checked_invariants(
    set: &PolicySet,
    cluster: &str,
    now: Time,
    limit: WorkLimit<'_>,
) -> Result<Vec<CheckedInvariant>, ProofLimitError> {
    if set.invariants().len() == 0 {
        return Ok(Vec::new());
    }
    let proof = InvariantProof::of_set(set, now, limit)?;
    let unknown = unknown_rbac(set, cluster);
    let check = |invariant: &AuthorizationInvariant| {
        let status = proof.status(invariant, UnknownRoles::Undecided);
        CheckedInvariant {
            name: invariant.name().to_owned(),
            enforcement: invariant.enforcement,
            reason: invariant.forbidden.reason.clone(),
            status: match (status, &unknown) {
                (InvariantStatus::Holds, Some(unknown)) => InvariantStatus::Undecided(unknown.clone()),
                (status, _) => status,
            },
        }
    };
    Ok(set.invariants().map(|invariant| check(invariant)).collect())
}

/// The status of each invariant before and after, sorted by name.
#[must_use]
pub fn changed_invariants(before: &[CheckedInvariant], after: &[CheckedInvariant]) -> Vec<ChangedInvariant> {
    let of = |list: &'_ [CheckedInvariant], name: &str| list.iter().position(|one| one.name == name);
    let mut names: Vec<&str> = before.iter().chain(after).map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let changed = names.into_iter().filter_map(|name| {
        let before = of(before, name).and_then(|at| before.get(at));
        let after = of(after, name).and_then(|at| after.get(at));
        let breaches = match after.map(|one| &one.status) {
            Some(InvariantStatus::Broken(breaches)) => breaches.as_slice(),
            _ => &[],
        };
        Some(ChangedInvariant {
            name: name.to_owned(),
            enforcement: after.or(before)?.enforcement,
            before: before.map(|one| one.status.as_str()),
            after: after.map(|one| one.status.as_str()),
            witness: breaches.iter().find_map(|breach| {
                let witness = breach.witness.as_ref()?;
                subject_access_review(&witness.attributes)
            }),
            objects: breaches
                .iter()
                .filter_map(|breach| breach.cause.as_ref().map(ReportedCause::new))
                .collect(),
            sentences: after.map(CheckedInvariant::sentences).unwrap_or_default(),
        })
    });
    changed.collect()
}

// === impl InvariantStatus ===

impl InvariantStatus {
    /// `holds`, `broken` or `notDecided`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Broken(_) => "broken",
            Self::Undecided(_) | Self::Unproven(_) => "notDecided",
        }
    }
}

// === impl CheckedInvariant ===

impl CheckedInvariant {
    /// Why the invariant does not hold, one sentence for each cause; empty if it holds.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        match &self.status {
            InvariantStatus::Holds => Vec::new(),
            InvariantStatus::Broken(breaches) => breaches.iter().map(ToString::to_string).collect(),
            InvariantStatus::Undecided(why) => vec![format!("not decided: {why}")],
            InvariantStatus::Unproven(limit) => vec![format!("not decided: {limit}")],
        }
    }
}

/// The SubjectAccessReview that an API server sends for `attributes`.
pub(super) fn subject_access_review(attributes: &Attributes<'_>) -> Option<Value> {
    serde_json::from_slice(&SubjectAccessReviewVersion::V1.encode(attributes)).ok()
}

// === impl ReportedCause ===

impl ReportedCause {
    pub(super) fn new(cause: &Cause<'_>) -> Self {
        Self {
            kind: cause.kind.as_str(),
            namespace: cause.namespace.to_string(),
            name: cause.name.to_string(),
            rule: cause.rule,
        }
    }

    pub(super) fn object(&self) -> [&str; 3] {
        [self.kind, &self.namespace, &self.name]
    }
}

// === impl ChangedInvariant ===

impl ChangedInvariant {
    /// Whether the change breaks the invariant, and its enforcement is Refuse.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.enforcement == Enforcement::Refuse && self.is_newly_broken()
    }

    fn is_newly_broken(&self) -> bool {
        self.after == Some("broken") && self.before != self.after
    }

    /// Kind, namespace and name of the objects that allow forbidden requests, then of the invariant
    /// itself.
    #[must_use]
    pub fn places(&self) -> Vec<[&str; 3]> {
        let objects = self.objects.iter().map(ReportedCause::object);
        objects
            .chain([["AuthorizationInvariant", "", self.name.as_str()]])
            .collect()
    }

    /// Appends the report to `lines`.
    pub(super) fn describe(&self, lines: &mut Lines) {
        lines.line(format_args!("  {}", self.title()));
        for sentence in &self.sentences {
            lines.line(format_args!("    {sentence}"));
        }
    }

    /// `NAME: holds -> broken; broken by …`.
    #[must_use]
    pub fn message(&self) -> String {
        let title = [self.title()];
        let parts: Vec<&str> = title.iter().chain(&self.sentences).map(String::as_str).collect();
        parts.join("; ")
    }

    fn title(&self) -> String {
        let words = |status: Option<&'static str>| status.unwrap_or("absent");
        format!("{}: {} -> {}", self.name, words(self.before), words(self.after))
    }

    /// Whether the status changed, or the invariant does not hold.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.before != self.after || self.after != Some("holds")
    }
}
