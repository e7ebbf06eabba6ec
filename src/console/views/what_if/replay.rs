//! Decides the recent decisions again, with a policy on trial.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::console::recent_decisions::DecisionSlice;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::authorization::{self, Opinions};
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::explain::recorded::{
    ChangeGroup, KnownDecision, ReplayDecision, ReplaySummary, ReviewComparison, UnknownReason,
    target_in_words,
};
use portcullis_policy::model::{Attributes, Decision, Time};

/// The maximum number of changes that are shown individually.
const MAX_CHANGES: usize = 200;

/// After how many decisions the thread sleeps for as long as they took, to leave the processor to
/// others.
const DECISIONS_BEFORE_PAUSE: usize = 100;

/// The maximum duration of that pause.
const PAUSE: Duration = Duration::from_millis(50);

/// The recent decisions that would change.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecentReplay {
    /// The number of requests that were decided again.
    pub(crate) decided: u64,
    /// The number of requests whose decision is unknown.
    pub(crate) unknown: u64,
    /// The number of older requests that were not decided before the deadline.
    pub(crate) not_reached: u64,
    /// The changes, by cause.
    pub(crate) groups: Vec<ChangeCount>,
    /// The newest changes.
    pub(crate) changes: Vec<ChangeSample>,
    pub(crate) unknown_because: Vec<UnknownReason>,
}

/// The number of decisions that change in the same way.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeCount {
    #[serde(flatten)]
    pub(crate) group: ChangeGroup,
    pub(crate) count: u64,
}

/// A decision that changes.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeSample {
    /// The sequence number, which links to the decision.
    pub(crate) sequence: u64,
    pub(crate) time: String,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) request: String,
    /// The decision with the policies in force.
    pub(crate) before: ComparedDecision,
    /// The decision with the policies on trial.
    pub(crate) after: ComparedDecision,
}

/// A decision that is compared.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComparedDecision {
    pub(crate) decision: &'static str,
    /// `KIND/NAMESPACE/NAME`; empty if nothing decided.
    pub(crate) cause: String,
    pub(crate) reason: String,
}

/// The policies that are compared.
#[derive(Clone, Copy)]
pub(crate) struct ComparedPolicies<'a> {
    pub(crate) in_force: &'a LoadedPolicies,
    pub(crate) on_trial: &'a LoadedPolicies,
}

impl ComparedPolicies<'_> {
    /// Compares the decisions of the request in `line`, a decision log line with the number
    /// `sequence`.
    pub(crate) fn compare(self, sequence: u64, line: &[u8]) -> ReviewComparison<ChangeSample> {
        let unknown = |why: &str| ReviewComparison::Unknown(why.to_owned());
        let Some(logged) = LoggedDecision::read(line) else {
            return unknown("the line cannot be read");
        };
        if logged.is_admission() {
            return unknown("objects are not kept, so admission is not decided again");
        }
        let (Some(asked), Some(time)) = (logged.asked(), Time::parse(&logged.time)) else {
            return unknown("the line was cut, so parts of the request are missing");
        };
        let decide = |side: &LoadedPolicies| decide(side, &logged.cluster, &asked, time);
        let sample = |before: KnownDecision, after: ComparedDecision| ChangeSample {
            sequence,
            time: logged.time.to_string(),
            cluster: logged.cluster.to_string(),
            user: logged.user.to_string(),
            request: target_in_words(&asked.target),
            before: before.into(),
            after,
        };
        match (decide(self.in_force), decide(self.on_trial)) {
            (ReplayDecision::Known(before), ReplayDecision::Known(after)) => {
                if before.decision == after.decision {
                    return ReviewComparison::Same;
                }
                ReviewComparison::Changed(ChangeGroup::of(&before, &after), sample(before, after.into()))
            }
            (ReplayDecision::Known(before), ReplayDecision::Unknown(why))
                if before.decision == Decision::Deny =>
            {
                let group = ChangeGroup::lost(&before);
                let after = ComparedDecision {
                    decision: group.to,
                    cause: String::new(),
                    reason: why.clone(),
                };
                ReviewComparison::UnknownDenial(group, why, sample(before, after))
            }
            (ReplayDecision::Unknown(why), _) | (_, ReplayDecision::Unknown(why)) => {
                ReviewComparison::Unknown(why)
            }
        }
    }
}

fn decide(loaded: &LoadedPolicies, cluster: &str, asked: &Attributes<'_>, now: Time) -> ReplayDecision {
    let policies = loaded.policies.for_cluster(cluster);
    let own = policies.authorize(asked, now);
    if own.decision != Decision::NoOpinion || loaded.authorizers.is_empty() {
        return ReplayDecision::Known(KnownDecision::of_authorization(&own));
    }
    let nothing = Opinions::default();
    let consulted = authorization::consult(policies, asked, own, (&loaded.authorizers, &nothing));
    if let Some(name) = consulted.unanswered().next() {
        let why = format!("the authorizer {name} would be called, but its response is not kept");
        return ReplayDecision::Unknown(why);
    }
    ReplayDecision::Known(KnownDecision::of_authorization(&consulted.authorization))
}

// === impl RecentReplay ===

impl RecentReplay {
    /// Decides the requests of `slice` again, newest first, until `deadline`.
    pub(crate) fn new(slice: &DecisionSlice, sides: ComparedPolicies<'_>, deadline: Instant) -> Self {
        let mut replayed = ReplaySummary::<()>::default();
        let mut changes = Vec::new();
        let mut began = Instant::now();
        for (place, kept) in slice.iter().rev().enumerate() {
            if place % DECISIONS_BEFORE_PAUSE == DECISIONS_BEFORE_PAUSE - 1 {
                thread::sleep(began.elapsed().min(PAUSE));
                began = Instant::now();
            }
            if Instant::now() >= deadline {
                break;
            }
            let mut keep = |change| {
                if changes.len() < MAX_CHANGES {
                    changes.push(change);
                }
            };
            replayed.add(match sides.compare(kept.sequence, kept.line) {
                ReviewComparison::Same => ReviewComparison::Same,
                ReviewComparison::Unknown(why) => ReviewComparison::Unknown(why),
                ReviewComparison::UnknownDenial(group, why, change) => {
                    keep(change);
                    ReviewComparison::UnknownDenial(group, why, ())
                }
                ReviewComparison::Changed(group, change) => {
                    keep(change);
                    ReviewComparison::Changed(group, ())
                }
            });
        }
        let not_reached = slice.len().saturating_sub(replayed.decided + replayed.unknown);
        Self::of(replayed, changes, not_reached)
    }

    fn of(replayed: ReplaySummary<()>, changes: Vec<ChangeSample>, not_reached: u64) -> Self {
        let unknown_because = replayed.unknown_reasons();
        let groups = replayed.changes.into_iter();
        let mut groups: Vec<ChangeCount> = groups
            .map(|(group, (count, _))| ChangeCount { group, count })
            .collect();
        groups.sort_by_key(|change| std::cmp::Reverse(change.count));
        Self {
            decided: replayed.decided,
            unknown: replayed.unknown,
            not_reached,
            groups,
            changes,
            unknown_because,
        }
    }

    /// The number of decisions that change.
    pub(crate) fn changed(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// The number of changes that are not shown individually.
    pub(crate) fn not_shown(&self) -> u64 {
        let shown = u64::try_from(self.changes.len()).unwrap_or(u64::MAX);
        self.changed().saturating_sub(shown)
    }
}

// === impl ComparedDecision ===

impl From<KnownDecision> for ComparedDecision {
    fn from(known: KnownDecision) -> Self {
        Self {
            decision: known.decision.as_str(),
            cause: known.cause,
            reason: known.reason,
        }
    }
}

// === impl ChangeCount ===

impl ChangeCount {
    /// The cause of the new decision, or of the former one if nothing decides now.
    pub(crate) fn cause_text(&self) -> String {
        let ChangeGroup { cause, is_gone, .. } = &self.group;
        match (cause.as_str(), is_gone) {
            ("", _) => String::new(),
            (cause, true) => format!("no longer {cause}"),
            (cause, false) => cause.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::recent_decisions::RecentDecisions;
    use portcullis_policy::authorization::authorizer::Authorizer;
    use portcullis_policy::manifest::{self, Options, Source};

    const RBAC: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\n\
        rules: [{verbs: [get, list], apiGroups: [''], resources: [pods]}]\n---\n\
        apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: readers}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}\n\
        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]\n---\n";
    const DENY: &str = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: stop}\n\
        spec:\n  effect: Deny\n  reason: not now\n  notBefore: '2026-02-01T00:00:00Z'\n  \
        subjects: [{kind: User, name: jane}]\n  \
        resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]\n";

    fn mk_loaded(text: &str, authorizers: Vec<Authorizer>) -> LoadedPolicies {
        let source = Source {
            file: "m.yaml".into(),
            text: text.into(),
            cluster: None,
        };
        let (manifests, faults) = manifest::load(&[source], &Options::default());
        LoadedPolicies {
            authorizers,
            ..LoadedPolicies::of_manifests(manifests.unwrap_or_else(|| panic!("{faults}")))
        }
    }

    fn mk_line(time: &str, user: &str, verb: &str) -> String {
        format!(
            r#"{{"time":"{time}","cluster":"default","endpoint":"authorize","user":"{user}","groups":["readers"],"attributes":{{"verb":"{verb}","resource":"pods","namespace":"n"}},"decision":"allow"}}"#
        )
    }

    fn replay(lines: &[String], time: Duration) -> RecentReplay {
        let (in_force, on_trial) = (
            mk_loaded(RBAC, Vec::new()),
            mk_loaded(&format!("{RBAC}{DENY}"), Vec::new()),
        );
        let sides = ComparedPolicies {
            in_force: &in_force,
            on_trial: &on_trial,
        };
        let recent = RecentDecisions::new(1000);
        for line in lines {
            recent.push(Decision::Allow, "default", line.as_bytes());
        }
        RecentReplay::new(&recent.since(0), sides, Instant::now() + time)
    }

    #[test]
    fn recent_decisions_are_decided_again_for_their_own_time() {
        let (early, late) = ("2026-01-31T23:59:59.000000Z", "2026-02-01T00:00:00.000000Z");
        let lines = [
            mk_line(early, "jane", "get"),
            mk_line(late, "joe", "get"),
            mk_line(late, "jane", "list"),
            mk_line(late, "jane", "get"),
            mk_line(late, "jane", "get"),
            r#"{"endpoint":"validate","user":"jane"}"#.to_owned(),
            mk_line(late, "jane", "get").replace(r#""decision""#, r#""truncated":true,"decision""#),
            "no line".to_owned(),
        ];
        let found = replay(&lines, Duration::from_secs(600));
        assert_eq!((found.decided, found.changed(), found.unknown), (5, 2, 3));
        let [group] = found.groups.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (group.count, group.cause_text().as_str()),
            (2, "AuthorizationPolicy/stop")
        );
        let sequences: Vec<u64> = found.changes.iter().map(|change| change.sequence).collect();
        assert_eq!(sequences, [5, 4], "the newest first");
        let ChangeSample {
            request,
            before,
            after,
            ..
        } = &found.changes[0];
        assert_eq!(request, "get pods in namespace n");
        assert_eq!((before.decision, after.decision), ("allow", "deny"));
        assert_eq!(
            (before.cause.as_str(), after.cause.as_str()),
            ("ClusterRoleBinding/readers", "AuthorizationPolicy/stop")
        );
        assert!(after.reason.contains("not now"), "{after:?}");
        assert_eq!(found.unknown_because.len(), 3);
        // Without time nothing is decided, which is reported.
        let found = replay(&lines, Duration::ZERO);
        assert_eq!((found.decided, found.unknown, found.not_reached), (0, 0, 8));
    }

    #[test]
    fn what_is_shown_one_by_one_is_bounded_and_the_rest_is_counted() {
        let line = mk_line("2026-02-01T00:00:00.000000Z", "jane", "get");
        let found = replay(&vec![line; 300], Duration::from_secs(600));
        assert_eq!(
            (found.changed(), found.changes.len(), found.not_shown()),
            (300, 200, 100)
        );
    }

    #[test]
    fn what_other_authorizers_would_say_is_not_known() {
        let text = "- {type: Webhook, name: other, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, \
            connectionInfo: {type: KubeConfigFile, kubeConfigFile: k}}}";
        let configuration = format!(
            "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
             server: {{address: '127.0.0.1:0', tls: {{certificate: a, privateKey: b}}}}\nauthorization:\n  webhooks:\n  {text}\n"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("k"), "apiVersion: v1\nkind: Config\n").unwrap();
        let path = folder.path().join("c.yaml");
        let (config, faults) = crate::config::parse(&path, &configuration, folder.path());
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let authorizers = || {
            config
                .authorization
                .webhooks
                .iter()
                .map(|entry| entry.rules.clone())
                .collect()
        };
        let (in_force, on_trial) = (mk_loaded("", authorizers()), mk_loaded(RBAC, authorizers()));
        let sides = ComparedPolicies {
            in_force: &in_force,
            on_trial: &on_trial,
        };
        let line = mk_line("2026-01-01T00:00:00.000000Z", "joe", "get");
        let ReviewComparison::Unknown(why) = sides.compare(1, line.as_bytes()) else {
            panic!()
        };
        assert!(why.contains("authorizer other"), "{why}");
    }
}
