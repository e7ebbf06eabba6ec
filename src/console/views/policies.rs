//! `/policies`: all policies, exceptions and AccessRequests, and how often they decided.

mod detail;

use std::collections::BTreeMap;

use askama::Template;
use serde::Serialize;

use super::clusters::ClusterChoice;
use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::query::Paging;
use crate::console::{ViewContext, ViewRequest};
use crate::state::Snapshot;
use crate::telemetry::metrics::PolicyCounts;
use portcullis_policy::admission::{AdmissionSet, Applicability, Phase, PolicyBinding};
use portcullis_policy::authorization::{
    AccessRequest, AccessRequestTrust, AuthorizationPolicy, Effect, Mode, PolicySet,
};
use portcullis_policy::explain::access::limits_in_words;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};
use portcullis_policy::field::FieldPath;
use portcullis_policy::model::PolicyResult;

pub(crate) use detail::view as detail;

/// The parameters of the form.
const FIELDS: [&str; 5] = ["filter", "kind", "unused", "cluster", "page"];

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage<'a> {
    frame: PageFrame,
    filter: &'a PolicyFilter,
    clusters: &'a ClusterChoice,
    rows: &'a [PolicyRow],
    paging: Paging,
    /// The number of policies that are unused, before filtering.
    unused: usize,
}

/// The JSON response: the policies that match the filter.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoliciesReport<'a> {
    cluster: &'a str,
    policies: &'a [PolicyRow],
}

/// Selects the policies to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PolicyFilter {
    /// A part of the name, ignoring case.
    text: String,
    kind: Option<ListedKind>,
    /// Whether to show only unused policies.
    is_unused: bool,
}

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let query = &request.query;
    query.reject_unknown(&FIELDS)?;
    let clusters = ClusterChoice::new(context, query)?;
    let filter = PolicyFilter {
        text: query.text("filter")?.to_owned(),
        kind: query.single("kind")?.map(ListedKind::parse).transpose()?,
        is_unused: query.single("unused")?.is_some(),
    };
    let recent = RecentUse::new(context, &clusters.chosen);
    let list = PolicyList::new(context, &clusters.chosen, &recent);
    let unused = list.0.iter().filter(|row| row.is_unused()).count();
    let rows: Vec<PolicyRow> = list.0.into_iter().filter(|row| filter.matches(row)).collect();
    let paging = Paging::new(rows.len(), "/policies", query)?;
    let page = PoliciesPage {
        frame: context.frame("Policies", request),
        filter: &filter,
        clusters: &clusters,
        rows: paging.rows(&rows),
        paging: paging.clone(),
        unused,
    };
    let report = PoliciesReport {
        cluster: &clusters.chosen,
        policies: &rows,
    };
    Page::of(request.representation, &report, &page)
}

/// The kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum ListedKind {
    AuthorizationPolicy,
    ValidatingAdmissionPolicy,
    MutatingAdmissionPolicy,
    AdmissionException,
    AccessRequest,
}

/// The policies and exceptions in force for a cluster, by kind in the order of evaluation, and the
/// AccessRequests.
#[derive(Debug)]
pub(crate) struct PolicyList(pub(crate) Vec<PolicyRow>);

/// A policy, exception or AccessRequest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyRow {
    pub(crate) kind: ListedKind,
    pub(crate) name: String,
    /// A description of its effect and bindings.
    pub(crate) about: String,
    /// The file and line, or the cluster; empty if neither is known.
    pub(crate) place: String,
    /// Counts since the start, for all clusters together: only for users who may see all clusters.
    /// Exceptions and AccessRequests have none.
    pub(crate) counts: Option<RowCounts>,
    /// The number of recent decisions that it caused.
    pub(crate) recent: u64,
    /// How many of these were denials.
    pub(crate) recent_denials: u64,
    /// The sequence number of the last recent decision.
    pub(crate) last_sequence: Option<u64>,
    /// The time of the last recent decision.
    pub(crate) last_time: Option<String>,
}

/// The number of evaluations of a policy, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowCounts {
    pub(crate) matched: u64,
    pub(crate) not_matched: u64,
    pub(crate) errors: u64,
    pub(crate) shadow_allows: u64,
    pub(crate) shadow_denies: u64,
    /// The total cost of its expressions, in the units of Kubernetes' CEL cost model.
    pub(crate) cost: u64,
    /// The cost per evaluation that matched, failed or would have decided in Shadow; `None` if
    /// there was none.
    pub(crate) mean_cost: Option<u64>,
}

/// The places of objects, by kind and name.
#[derive(Debug, Default)]
pub(crate) struct PlacesByName(BTreeMap<(String, String), String>);

// === impl PolicyFilter ===

impl PolicyFilter {
    fn matches(&self, row: &PolicyRow) -> bool {
        let contains = || row.name.to_lowercase().contains(&self.text.to_lowercase());
        self.kind.is_none_or(|kind| kind == row.kind)
            && (!self.is_unused || row.is_unused())
            && (self.text.is_empty() || contains())
    }

    /// The kinds to choose from, and whether each is selected.
    fn kinds(&self) -> impl Iterator<Item = (&'static str, bool)> {
        ListedKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), self.kind == Some(kind)))
    }
}

// === impl ListedKind ===

impl ListedKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::AuthorizationPolicy,
        Self::ValidatingAdmissionPolicy,
        Self::MutatingAdmissionPolicy,
        Self::AdmissionException,
        Self::AccessRequest,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Self::AdmissionException => "AdmissionException",
            Self::AccessRequest => "AccessRequest",
        }
    }

    /// # Errors
    ///
    /// There is no such kind.
    pub(crate) fn parse(text: &str) -> Result<Self, ViewError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(|kind| format!("`{}`", kind.as_str())).join(", ");
            ViewError::Invalid(format!("`kind` is `{text}`: there are {known}"))
        })
    }
}

// === impl PolicyList ===

impl PolicyList {
    pub(crate) fn new(context: &ViewContext<'_>, cluster: &str, recent: &RecentUse) -> Self {
        let snapshot = context.snapshot;
        Self::of(
            snapshot.policies.for_cluster(cluster),
            snapshot.admission.for_cluster(cluster),
            context
                .visible
                .only()
                .is_none()
                .then(|| context.metrics.policy_counts())
                .as_ref(),
            &PlacesByName::new(snapshot, cluster),
            recent,
        )
    }

    pub(crate) fn of(
        access: &PolicySet,
        admission: &AdmissionSet,
        counts: Option<&BTreeMap<(String, String), PolicyCounts>>,
        places: &PlacesByName,
        recent: &RecentUse,
    ) -> Self {
        let row = |kind: ListedKind, name: &str, about: String| {
            let key = (kind.as_str().to_owned(), name.to_owned());
            let ObjectUse {
                decided,
                denied,
                last,
                ..
            } = recent.of(kind.as_str(), "", name);
            let (last_sequence, last_time) = last.unzip();
            PolicyRow {
                kind,
                name: name.to_owned(),
                about,
                place: places.0.get(&key).cloned().unwrap_or_default(),
                counts: counts
                    .filter(|_| !matches!(kind, ListedKind::AdmissionException | ListedKind::AccessRequest))
                    .map(|counts| counts.get(&key).map(RowCounts::from).unwrap_or_default()),
                recent: decided,
                recent_denials: denied,
                last_sequence,
                last_time,
            }
        };
        let mut rows: Vec<PolicyRow> = access
            .authorization_policies()
            .map(|policy| {
                row(
                    ListedKind::AuthorizationPolicy,
                    &policy.name,
                    describe_policy(policy),
                )
            })
            .collect();
        for (phase, kind) in [
            (Phase::Mutate, ListedKind::MutatingAdmissionPolicy),
            (Phase::Validate, ListedKind::ValidatingAdmissionPolicy),
        ] {
            let bound = admission.policies(phase).into_iter();
            rows.extend(
                bound.map(|(policy, bindings)| row(kind, &policy.name, describe_bindings(policy, bindings))),
            );
            let unbound = admission.unbound_policies(phase);
            rows.extend(unbound.map(|name| row(kind, name, "no binding, so it has no effect".to_owned())));
        }
        rows.extend(admission.exceptions().iter().map(|exception| {
            let policies = exception.policies.join(", ");
            let about = format!("excuses denials by {policies} until {}", exception.not_after);
            row(ListedKind::AdmissionException, &exception.name, about)
        }));
        let trust = access.access_request_trust();
        let mut requests: Vec<_> = access.access_requests().iter().collect();
        requests.sort_by(|one, other| one.name.cmp(&other.name));
        rows.extend(requests.into_iter().map(|request| {
            row(
                ListedKind::AccessRequest,
                &request.name,
                describe_access_request(request, trust),
            )
        }));
        Self(rows)
    }
}

fn describe_policy(policy: &AuthorizationPolicy) -> String {
    let effect = match policy.effect {
        Effect::Allow => "allow",
        Effect::Deny => "deny",
        Effect::Limit => "limit",
    };
    let mode = match policy.mode {
        Mode::Enforce => "",
        Mode::Shadow => ", in Shadow",
    };
    let limits = limits_in_words(&policy.limits());
    let separator = if limits.is_empty() { "" } else { ": " };
    format!("{effect}{mode}{separator}{limits}")
}

fn describe_access_request(request: &AccessRequest, trust: Option<AccessRequestTrust>) -> String {
    let place = match request.namespaces.as_slice() {
        [] => "the whole cluster".to_owned(),
        some => some.join(", "),
    };
    let period = trust.and_then(|trust| Some((trust.settings, request.period(trust.settings)?)));
    let standing = match period {
        _ if request.is_withdrawn => "withdrawn".to_owned(),
        _ if request.is_denied => "denied".to_owned(),
        None if trust.is_none() => "grants nothing in this cluster".to_owned(),
        None => "not approved".to_owned(),
        Some((settings, (from, until))) => {
            let approvers: Vec<&str> = request.approvers(settings).collect();
            format!("from {from} until {until}, approved by {}", approvers.join(", "))
        }
    };
    let (role, user) = (&request.role, &request.requester.username);
    format!(
        "ClusterRole {role} in {place} for {user}: {standing}; {}",
        request.reason
    )
}

fn describe_bindings(policy: &Applicability, bindings: &[std::sync::Arc<PolicyBinding>]) -> String {
    let binding = |binding: &std::sync::Arc<PolicyBinding>| {
        let actions: Vec<&str> = binding.actions.iter().map(|action| action.as_str()).collect();
        match actions.as_slice() {
            [] => binding.name.clone(),
            actions => format!("{} ({})", binding.name, actions.join(", ")),
        }
    };
    let bindings: Vec<String> = bindings.iter().map(binding).collect();
    let parameters = match &policy.param_kind {
        None => String::new(),
        Some(kind) => format!("; parameters of kind {}", kind.kind),
    };
    format!("bound by {}{parameters}", bindings.join(", "))
}

// === impl PolicyRow ===

impl PolicyRow {
    /// Whether the policy caused no decision, and would not have in Shadow.
    pub(crate) fn is_unused(&self) -> bool {
        let is_counted = self.counts.is_some_and(|counts| {
            counts.matched + counts.errors + counts.shadow_allows + counts.shadow_denies > 0
        });
        !is_counted && self.last_sequence.is_none()
    }
}

// === impl RowCounts ===

impl From<&PolicyCounts> for RowCounts {
    fn from(counts: &PolicyCounts) -> Self {
        // Evaluations that do not match mostly cost nothing, and would lower all means.
        let evaluated = PolicyResult::ALL
            .into_iter()
            .filter(|result| *result != PolicyResult::NoMatch)
            .map(|result| counts.of(result))
            .sum();
        Self {
            matched: counts.of(PolicyResult::Match),
            not_matched: counts.of(PolicyResult::NoMatch),
            errors: counts.of(PolicyResult::Error),
            shadow_allows: counts.of(PolicyResult::ShadowAllow),
            shadow_denies: counts.of(PolicyResult::ShadowDeny),
            cost: counts.cost,
            mean_cost: counts.cost.checked_div(evaluated),
        }
    }
}

// === impl PlacesByName ===

impl PlacesByName {
    /// The places of policies for `cluster`. If an object is in files, it is not taken from the
    /// cluster.
    pub(crate) fn new(snapshot: &Snapshot, cluster: &str) -> Self {
        let mut places = BTreeMap::new();
        for object in snapshot.objects_in_force() {
            if object.has_expressions() && object.cluster() == Some(cluster) {
                let identity = object.identity();
                let key = (identity.kind().to_owned(), identity.name().to_owned());
                places.insert(key, format!("cluster {cluster}"));
            }
        }
        for (object, document) in snapshot.documents_of_policies() {
            if object.cluster().is_none_or(|of| of == cluster) {
                let identity = object.identity();
                let place = document.place(FieldPath::root());
                let file = place.file.as_deref().unwrap_or_default();
                let key = (identity.kind().to_owned(), identity.name().to_owned());
                places.insert(key, format!("{file}:{}", place.line));
            }
        }
        Self(places)
    }
}

/// The objects in recent decisions, by kind, namespace and name.
#[derive(Debug, Default)]
pub(crate) struct RecentUse(BTreeMap<(String, String, String), ObjectUse>);

/// The use of an object in recent decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectUse {
    /// The number of decisions that it caused.
    pub(crate) decided: u64,
    /// How many of these were denials.
    pub(crate) denied: u64,
    /// The number and time of the last decision that it caused, or would have in Shadow.
    pub(crate) last: Option<(u64, String)>,
    /// The number of decisions by rule.
    pub(crate) rules: BTreeMap<usize, u64>,
}

// === impl RecentUse ===

impl RecentUse {
    /// The use of objects in the recent decisions for `cluster`.
    pub(crate) fn new(context: &ViewContext<'_>, cluster: &str) -> Self {
        let mut recent = Self::default();
        for kept in context.decisions.since(0).iter() {
            recent.add(cluster, kept.sequence, kept.line);
        }
        recent
    }

    /// Adds a decision log line. Lines must be added in the order of their numbers.
    fn add(&mut self, cluster: &str, sequence: u64, line: &[u8]) {
        let Some(logged) = LoggedDecision::read(line) else {
            return;
        };
        if logged.cluster != cluster {
            return;
        }
        if let Some(cause) = &logged.cause {
            let used = self.used(&cause.kind, cause, (sequence, &logged.time));
            used.decided += 1;
            used.denied += u64::from(logged.decision == "deny");
            if let Some(rule) = cause.rule {
                *used.rules.entry(rule).or_default() += 1;
            }
        }
        for shadow in &logged.shadow {
            self.used(&shadow.kind, shadow, (sequence, &logged.time));
        }
        for exception in &logged.exceptions {
            self.used("AdmissionException", exception, (sequence, &logged.time))
                .decided += 1;
        }
    }

    fn used(
        &mut self,
        kind: &str,
        object: &LoggedObject<'_>,
        (sequence, time): (u64, &str),
    ) -> &mut ObjectUse {
        let key = (
            kind.to_owned(),
            object.namespace.to_string(),
            object.name.to_string(),
        );
        let used = self.0.entry(key).or_default();
        used.last = Some((sequence, time.to_owned()));
        used
    }

    /// The use of the object with this kind, namespace and name.
    pub(crate) fn of(&self, kind: &str, namespace: &str, name: &str) -> ObjectUse {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let used = self.0.get(&key);
        used.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
