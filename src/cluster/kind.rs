//! The kinds that are watched.

use std::collections::BTreeSet;
use std::fmt;

use portcullis_policy::admission::ParamKind;
use portcullis_policy::manifest::{KINDS, KnownKind};
use portcullis_policy::model::groups::{ADMISSION, PORTCULLIS};

const EXCEPTION: &str = "AdmissionException";
const INVARIANT: &str = "AuthorizationInvariant";
const ACCESS_REQUEST: &str = "AccessRequest";

/// The name of an object: its namespace, empty if it has none, and its `metadata.name`.
pub(crate) type Name = (String, String);

/// A kind, and its supported versions, the preferred one first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WatchedKind {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) versions: Vec<String>,
    pub(crate) purpose: WatchPurpose,
}

/// Why a kind is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WatchPurpose {
    /// All objects affect decisions, or describe a namespace.
    Base,
    /// Admission policies and webhook configurations of the API server, of which only those apply
    /// that the cluster's entry selects.
    Selected,
    /// AdmissionExceptions, if the cluster's entry accepts them.
    Exception,
    /// AdmissionExceptions that are not accepted, so that their status can say so.
    ReportedOnly,
    /// AuthorizationInvariants, which do not decide requests.
    Invariant,
    /// AccessRequests, without which only they grant nothing.
    AccessRequest,
    /// CustomResourceDefinitions, which determine the scope of resources and the fields that are
    /// stored.
    Definition,
    /// Webhook configurations of the API server, which do not apply here but determine whether it
    /// calls this gateway.
    Registration,
    /// Objects that policies use as parameters.
    Parameter,
}

// === impl WatchedKind ===

impl WatchedKind {
    /// The kinds that are always watched, those to which a selector applies if there is one, and
    /// exceptions if they are accepted.
    pub(crate) fn fixed(with_selector: bool, with_exceptions: bool) -> Vec<Self> {
        let watched = KINDS.iter().filter(|known| !known.watched.is_empty());
        let fixed = watched.map(|known| Self::new(known.group, known.kind, known.watched, purpose(known)));
        let is_wanted = |fixed: &Self| match fixed.purpose {
            WatchPurpose::Selected => with_selector,
            WatchPurpose::Exception => with_exceptions,
            _ => true,
        };
        fixed.filter(is_wanted).chain([Self::definitions()]).collect()
    }

    /// AdmissionExceptions that have no effect, which their status says.
    pub(crate) fn reported_only() -> Self {
        Self::new(PORTCULLIS, EXCEPTION, &["v1alpha1"], WatchPurpose::ReportedOnly)
    }

    /// CustomResourceDefinitions.
    pub(crate) fn definitions() -> Self {
        let (group, kind) = ("apiextensions.k8s.io", "CustomResourceDefinition");
        Self::new(group, kind, &["v1"], WatchPurpose::Definition)
    }

    /// All webhook configurations.
    pub(crate) fn registrations() -> [Self; 2] {
        ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]
            .map(|kind| Self::new(ADMISSION, kind, &["v1"], WatchPurpose::Registration))
    }

    /// Whether this is one of Portcullis' own kinds, whose objects have a status.
    pub(crate) fn is_own(&self) -> bool {
        self.group == PORTCULLIS
    }

    /// Whether unknown objects of this kind have another effect on decisions than none.
    pub(crate) fn affects_decisions_when_unknown(&self) -> bool {
        matches!(self.purpose, WatchPurpose::Parameter | WatchPurpose::Registration)
    }

    /// Whether objects of this kind contain expressions, which are compiled.
    pub(crate) fn has_expressions(&self) -> bool {
        self.is_own() || self.group == "admissionregistration.k8s.io"
    }

    /// Whether all other objects can be in force without this kind.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(
            self.purpose,
            WatchPurpose::AccessRequest
                | WatchPurpose::Definition
                | WatchPurpose::Invariant
                | WatchPurpose::ReportedOnly
                | WatchPurpose::Registration
        )
    }

    /// The kind of parameters to watch; `None` if it is already watched for another purpose, and is
    /// not a parameter here.
    pub(crate) fn of_parameters(kind: &ParamKind) -> Option<Self> {
        let kind = Self::of_object(&kind.api_version, &kind.kind);
        (kind.purpose == WatchPurpose::Parameter).then_some(kind)
    }

    /// The kind as policies name it, if its objects are parameters.
    pub(crate) fn param_kind(&self) -> Option<ParamKind> {
        let version = self
            .versions
            .first()
            .filter(|_| self.purpose == WatchPurpose::Parameter)?;
        Some(ParamKind {
            api_version: self.api_version(version),
            kind: self.kind.clone(),
        })
    }

    /// The kind of an object with this `apiVersion` and `kind`.
    pub(crate) fn of_object(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let fixed = Self::fixed(true, true).into_iter();
        // Policies can use CustomResourceDefinitions as parameters like any other object.
        let objects = fixed.filter(|fixed| fixed.purpose != WatchPurpose::Definition);
        let mut own = objects.filter(|fixed| fixed.group == group && fixed.kind == kind);
        own.next()
            .unwrap_or_else(|| Self::new(group, kind, &[version], WatchPurpose::Parameter))
    }

    fn new(group: &str, kind: &str, versions: &[&str], role: WatchPurpose) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            purpose: role,
        }
    }

    /// `apiVersion` of this kind in `version`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        match self.group.as_str() {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }
}

fn purpose(known: &KnownKind) -> WatchPurpose {
    match (known.group, known.kind) {
        (ADMISSION, _) => WatchPurpose::Selected,
        (_, EXCEPTION) => WatchPurpose::Exception,
        (_, INVARIANT) => WatchPurpose::Invariant,
        (_, ACCESS_REQUEST) => WatchPurpose::AccessRequest,
        _ => WatchPurpose::Base,
    }
}

impl fmt::Display for WatchedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

/// The maximum number of kinds of parameters that are watched in a cluster. Each needs its own
/// watch, and the administrators of the cluster choose them in policies.
pub(crate) const MAX_PARAMETER_KINDS: usize = 100;

/// The kinds of parameters that the policies of a cluster use.
pub(crate) struct WatchedParameters {
    /// The kinds that are watched.
    pub(crate) kinds: BTreeSet<WatchedKind>,
    /// The kinds that are not watched because there are too many. Their objects are unknown, so
    /// that policies that use them fail.
    pub(crate) excess: BTreeSet<WatchedKind>,
}

// === impl WatchedParameters ===

impl WatchedParameters {
    /// Selects the kinds of `shared` policies first, and then those of `all`, each by group and
    /// name.
    pub(crate) fn new<'k>(
        shared: impl Iterator<Item = &'k ParamKind>,
        all: impl Iterator<Item = &'k ParamKind>,
    ) -> Self {
        let shared: BTreeSet<_> = shared.filter_map(WatchedKind::of_parameters).collect();
        let all: BTreeSet<_> = all.filter_map(WatchedKind::of_parameters).collect();
        let own = all.difference(&shared).cloned();
        let mut ordered = shared.iter().cloned().chain(own);
        Self {
            kinds: ordered.by_ref().take(MAX_PARAMETER_KINDS).collect(),
            excess: ordered.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_cel::Version;
    use portcullis_policy::admission::{NotFound, ParamError, ParamRef, ParamTarget, Parameters};

    use super::*;
    use crate::cluster::store::Store;

    fn param(api_version: &str, kind: &str) -> Option<WatchedKind> {
        WatchedKind::of_parameters(&ParamKind {
            api_version: api_version.into(),
            kind: kind.into(),
        })
    }

    #[test]
    fn policies_and_webhooks_of_admission_need_a_selector() {
        let names = |with: bool| {
            WatchedKind::fixed(with, false)
                .iter()
                .filter(|kind| kind.group == ADMISSION)
                .count()
        };
        assert_eq!((names(false), names(true)), (0, 6));
    }

    #[test]
    fn parameters_are_of_any_other_kind() {
        let kind = param("rules.example.com/v1", "Limit").unwrap();
        assert_eq!(kind.to_string(), "Limit.rules.example.com");
        assert_eq!(kind.api_version("v1"), "rules.example.com/v1");
        assert_eq!(param("v1", "ConfigMap").unwrap().api_version("v1"), "v1");
        assert_eq!(param("v1", "Namespace"), None);
        let definitions = param("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        assert!(definitions.is_some_and(|kind| kind != WatchedKind::definitions()));
        let named = kind.param_kind().map(|kind| kind.to_string());
        assert_eq!(named.as_deref(), Some("rules.example.com/v1, Kind=Limit"));
    }

    #[test]
    fn what_is_beyond_the_kinds_that_are_watched_is_unknown() {
        let limit = |group: &str, number: usize| ParamKind {
            api_version: format!("{group}.example.com/v1"),
            kind: format!("Limit{number:03}"),
        };
        let shared = [limit("z", 0)];
        let mut own: Vec<ParamKind> = (0..MAX_PARAMETER_KINDS + 20)
            .rev()
            .map(|number| limit("a", number))
            .collect();
        own.extend(shared.clone());
        let found = WatchedParameters::new(shared.iter(), own.iter());
        let last = limit("a", MAX_PARAMETER_KINDS - 2);
        let is_watched = |kind: &ParamKind| found.kinds.contains(&WatchedKind::of_parameters(kind).unwrap());
        assert_eq!((found.kinds.len(), found.excess.len()), (MAX_PARAMETER_KINDS, 21));
        assert!(
            is_watched(&shared[0]) && is_watched(&last),
            "no cluster's kinds crowd out those of all"
        );
        // No response of an API server has arrived; an empty list has the same effect.
        let store = Store::new("east", None, Version::NEWEST);
        store.set_kinds(&found.kinds);
        for kind in &found.kinds {
            store.replace(kind, Vec::new());
        }
        let unknown = store.watched(None, false).unknown.clone();
        let parameters = Parameters::default().with_unknown(Some(unknown));
        let reference = ParamRef {
            target: ParamTarget::Name("a".to_owned()),
            namespace: "n".to_owned(),
            not_found: NotFound::Allow,
        };
        let collected = |kind| parameters.collect(Some(kind), Some(&reference), "n");
        assert_eq!(collected(&last).unwrap().len(), 0, "it is known to be absent");
        let beyond = limit("a", MAX_PARAMETER_KINDS - 1);
        assert_eq!(
            collected(&beyond).unwrap_err(),
            ParamError::NotSynced(beyond.to_string())
        );
    }
}
