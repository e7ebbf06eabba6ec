//! Checks of whole policy sets, for `check`, `diff` and `test`: Denies and Limits that affect the
//! current user, parts of AuthorizationPolicies without effect, and AuthorizationInvariants.

use std::collections::{BTreeMap, BTreeSet};

use super::access::TimeLimit;
use super::output::CommandError;
use super::policy_files::ObjectPlaces;
use crate::config::DEFAULT_CLUSTER;
use portcullis_policy::authorization::matching::subject_matches;
use portcullis_policy::authorization::proof::{InvariantStatus, RedundantPart, WorkLimit, redundant_parts};
use portcullis_policy::authorization::{AuthorizationPolicy, Effect, Enforcement, Mode, PolicySet};
use portcullis_policy::document::Document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::invariants::{CheckedInvariant, checked_invariants};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};
use portcullis_policy::model::{Deadline, Time, User};

/// The maximum number of parts into which the requests of one rule are split.
const MAX_IDLE_PARTS: usize = 10_000;

/// Warns about parts of policies without effect. `sets` are those of the clusters; a policy of
/// several clusters must have no effect in any of them. There are no warnings if finding out takes
/// too long, and none about places that `known` contains.
pub(crate) fn idle_faults(
    sets: &[&PolicySet],
    documents: &[Document],
    known: &Faults,
    time: &TimeLimit,
) -> Faults {
    let now = std::time::SystemTime::now().into();
    let expired = || time.has_passed();
    let limit = WorkLimit {
        parts: MAX_IDLE_PARTS,
        deadline: Deadline::new(&expired),
    };
    let mut found: BTreeMap<(String, FieldKey), (usize, RedundantPart)> = BTreeMap::new();
    for set in sets {
        let Ok(parts) = redundant_parts(set, now, limit) else {
            return Faults::new();
        };
        for (name, part) in parts {
            let known = found.entry((name, FieldKey::of(&part))).or_insert((0, part));
            known.0 += 1;
        }
    }
    let places = ObjectPlaces::new(documents);
    let mut faults = Faults::new();
    for ((name, _), (times, part)) in found {
        let policies = sets.iter().filter_map(|set| {
            let mut policies = set.authorization_policies();
            policies.find(|policy| policy.name == name)
        });
        let rules: Vec<usize> = policies.map(|policy| policy.resource_rules.len()).collect();
        let path = idle_path(&part, rules.first().copied().unwrap_or_default());
        let place = places.place(["AuthorizationPolicy", "", &name], path);
        let is_known =
            |fault: &Fault| (&fault.place.object, &fault.place.path) == (&place.object, &place.path);
        if rules.len() == times && !known.iter().any(is_known) {
            faults.push(Fault::warning(place, FaultKind::Suspicious, idle_words(&part)));
        }
    }
    faults
}

/// The part of a policy, regardless of why it has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FieldKey {
    Policy,
    Rule(usize),
    Condition(usize, bool),
    Exclusion(usize),
}

impl FieldKey {
    const fn of(part: &RedundantPart) -> Self {
        match part {
            RedundantPart::Rule(rule) => Self::Rule(*rule),
            RedundantPart::Deny(_) | RedundantPart::Allow(_) => Self::Policy,
            RedundantPart::Condition(condition, holds) => Self::Condition(*condition, *holds),
            RedundantPart::Exclusion(subject) => Self::Exclusion(*subject),
        }
    }
}

/// The path of the part. Indexes of non-resource rules follow those of resource rules.
fn idle_path(part: &RedundantPart, resource_rules: usize) -> FieldPath {
    let spec = FieldPath::root().field("spec");
    match part {
        RedundantPart::Rule(rule) if *rule < resource_rules => spec.field("resourceRules").index(*rule),
        RedundantPart::Rule(rule) => spec.field("nonResourceRules").index(rule - resource_rules),
        RedundantPart::Condition(condition, _) => spec.field("conditions").index(*condition),
        RedundantPart::Exclusion(subject) => spec.field("excludeSubjects").index(*subject),
        RedundantPart::Deny(_) | RedundantPart::Allow(_) => FieldPath::root().field("metadata").field("name"),
    }
}

fn idle_words(part: &RedundantPart) -> String {
    let list = |names: &[String]| {
        let quoted: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
        let more = if names.len() > 3 { " and others" } else { "" };
        format!("{}{more}", quoted.join(", "))
    };
    match part {
        RedundantPart::Rule(_) => {
            "this rule never applies: no request matches the rule, the subjects and the \
            conditions of the policy; correct or remove it"
                .to_owned()
        }
        RedundantPart::Deny(others) => format!(
            "this policy changes nothing: all that it denies is denied by {}; remove it, or one of them",
            list(others)
        ),
        RedundantPart::Allow(bindings) => format!(
            "this Allow changes nothing: all that it allows is granted by {}; remove it",
            list(bindings)
        ),
        RedundantPart::Condition(_, true) => {
            "this condition makes no difference: it is true for every request that the rules match; remove it"
                .to_owned()
        }
        RedundantPart::Condition(_, false) => {
            "with this condition the policy never applies: it is false for every request that the rules match"
                .to_owned()
        }
        RedundantPart::Exclusion(_) => {
            "this excludes nobody: it matches none of `subjects`; remove it, or correct its name".to_owned()
        }
    }
}

/// The group whose users the API server allows everything, without calling an authorizer.
const MASTERS: &str = "system:masters";

/// Parses a user as `USER` or `USER,GROUP…`, and adds the groups of all users and of service
/// accounts.
pub(crate) fn parse_user(text: &str) -> User<'static> {
    let mut names = text.split(',').map(str::to_owned);
    let name = names.next().unwrap_or_default();
    let mut groups: Vec<String> = names.collect();
    groups.push("system:authenticated".to_owned());
    if let Some((namespace, _)) = name
        .strip_prefix("system:serviceaccount:")
        .and_then(|account| account.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    asker_user(name, groups)
}

/// The user with this name and exactly these groups.
pub(crate) fn asker_user(name: String, groups: Vec<String>) -> User<'static> {
    User {
        name: name.into(),
        groups: groups.into_iter().map(Into::into).collect(),
        ..User::default()
    }
}

/// Warns about each policy of `loaded`, defined in `documents`, that denies or limits requests of
/// `asker`.
pub(crate) fn user_faults(loaded: &LoadedPolicies, documents: &[Document], asker: &User<'_>) -> Faults {
    let mut faults = Faults::new();
    if asker.groups.iter().any(|group| group == MASTERS) {
        return faults;
    }
    let places = ObjectPlaces::new(documents);
    let mut told = BTreeSet::new();
    for (_, set) in loaded.sets().filter(|(_, set)| !set.never_denies_user(asker)) {
        for policy in set.authorization_policies() {
            let Some(subject) = subject_of(policy, asker) else {
                continue;
            };
            if told.insert((policy.name.clone(), subject)) {
                let path = FieldPath::root().field("spec").field("subjects").index(subject);
                let place = places.place(["AuthorizationPolicy", "", &policy.name], path);
                faults.push(warning(policy, asker, place));
            }
        }
    }
    faults
}

/// The index of the subject of an enforced Deny or Limit that matches `asker`, unless `asker` is
/// excluded.
fn subject_of(policy: &AuthorizationPolicy, asker: &User<'_>) -> Option<usize> {
    let is_asker = |subject| subject_matches(subject, asker);
    let is_enforced = policy.effect.refuses() && policy.mode == Mode::Enforce;
    if !is_enforced || policy.exclude_subjects.iter().any(is_asker) {
        return None;
    }
    policy.subjects.iter().position(is_asker)
}

fn warning(policy: &AuthorizationPolicy, asker: &User<'_>, place: Place) -> Fault {
    let under = match policy.is_unconditional() {
        true => "",
        false => " where its conditions hold",
    };
    let asker = &asker.name;
    let says = match policy.effect {
        Effect::Limit => {
            format!("this Limit leaves you, `{asker}`, nothing but what its rules cover{under}: to do more")
        }
        Effect::Deny | Effect::Allow => {
            format!("this Deny refuses you, `{asker}`{under}: to keep access to what its rules cover")
        }
    };
    let message = format!("{says}, exclude yourself or a group of yours with `excludeSubjects`");
    Fault::warning(place, FaultKind::Suspicious, message)
}

const KIND: &str = "AuthorizationInvariant";

/// The maximum number of parts into which the requests that an invariant forbids are split.
const MAX_INVARIANT_PARTS: usize = 100_000;

/// Checks the invariants of `set`, the policies for `cluster`.
///
/// # Errors
///
/// The time limit is exceeded.
pub(crate) fn check_invariants(
    set: &PolicySet,
    cluster: &str,
    now: Time,
    time: &TimeLimit,
) -> Result<Vec<CheckedInvariant>, CommandError> {
    let expired = || time.has_passed();
    let limit = WorkLimit {
        parts: MAX_INVARIANT_PARTS,
        deadline: Deadline::new(&expired),
    };
    checked_invariants(set, cluster, now, limit).map_err(|error| CommandError::Usage(error.to_string()))
}

/// Checks the invariants of `loaded`, defined in `documents`. Returns how many hold, and the errors
/// and warnings about the others.
///
/// # Errors
///
/// The time limit is exceeded.
pub(crate) fn invariant_faults(
    loaded: &LoadedPolicies,
    documents: &[Document],
) -> Result<(usize, Faults), CommandError> {
    let (now, time) = (std::time::SystemTime::now().into(), TimeLimit::new());
    let mut found = Vec::new();
    let mut holding = 0;
    for (cluster, set) in loaded.sets() {
        for invariant in check_invariants(set, cluster.unwrap_or(DEFAULT_CLUSTER), now, &time)? {
            let sentences = invariant.sentences();
            holding += usize::from(sentences.is_empty());
            for sentence in sentences {
                found.push((cluster, invariant.name.clone(), is_error(&invariant), sentence));
            }
        }
    }
    let places = ObjectPlaces::new(documents);
    let mut faults = Faults::new();
    let of_all: Vec<(String, String)> = found
        .iter()
        .filter(|(cluster, ..)| cluster.is_none())
        .map(|(_, name, _, sentence)| (name.clone(), sentence.clone()))
        .collect();
    for (cluster, name, is_error, sentence) in found {
        let message = match cluster {
            Some(_) if of_all.contains(&(name.clone(), sentence.clone())) => continue,
            Some(cluster) => format!("{sentence} (in the cluster `{cluster}`)"),
            None => sentence,
        };
        let place = places.place([KIND, "", &name], FieldPath::root());
        faults.push(match is_error {
            true => Fault::error(place, FaultKind::Forbidden, message),
            false => Fault::warning(place, FaultKind::Suspicious, message),
        });
    }
    Ok((holding, faults))
}

/// Whether the finding about `invariant` is an error instead of a warning.
const fn is_error(invariant: &CheckedInvariant) -> bool {
    matches!(
        (invariant.enforcement, &invariant.status),
        (Enforcement::Refuse, InvariantStatus::Broken(_))
    )
}
