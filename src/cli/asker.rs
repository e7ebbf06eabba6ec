//! Denies on the person who asks, in the report of `check`.

use std::collections::BTreeSet;

use super::policy_files::ObjectPlaces;
use portcullis_policy::authorization::matching::subject_matches;
use portcullis_policy::authorization::{AuthorizationPolicy, Effect, Mode};
use portcullis_policy::document::Document;
use portcullis_policy::engine::User;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// Whom the API server allows everything before it asks anybody.
const MASTERS: &str = "system:masters";

/// Who `text` is, as `USER` or `USER,GROUP…`; with the groups that everybody and service accounts have.
pub(crate) fn named(text: &str) -> User<'static> {
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
    user(name, groups)
}

/// Who has this name and exactly these groups.
pub(crate) fn user(name: String, groups: Vec<String>) -> User<'static> {
    User {
        name: name.into(),
        groups: groups.into_iter().map(Into::into).collect(),
        ..User::default()
    }
}

/// Warns of each policy of `loaded`, which `documents` say, that denies something to `asker`.
pub(crate) fn faults(loaded: &LoadedPolicies, documents: &[Document], asker: &User<'_>) -> Faults {
    let mut faults = Faults::new();
    if asker.groups.iter().any(|group| group == MASTERS) {
        return faults;
    }
    let places = ObjectPlaces::new(documents);
    let mut told = BTreeSet::new();
    for (_, set) in loaded.sets().filter(|(_, set)| !set.protects(asker)) {
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

/// Which subject of an enforced Deny is `asker`, unless the policy leaves `asker` out.
fn subject_of(policy: &AuthorizationPolicy, asker: &User<'_>) -> Option<usize> {
    let is_asker = |subject| subject_matches(subject, asker);
    let is_enforced_deny = policy.effect == Effect::Deny && policy.mode == Mode::Enforce;
    if !is_enforced_deny || policy.exclude_subjects.iter().any(is_asker) {
        return None;
    }
    policy.subjects.iter().position(is_asker)
}

fn warning(policy: &AuthorizationPolicy, asker: &User<'_>, place: Place) -> Fault {
    let under = match policy.is_unconditional() {
        true => "",
        false => " where its conditions hold",
    };
    let message = format!(
        "this Deny refuses you, `{}`{under}: if you are to keep what its rules cover, exclude yourself or a \
         group of yours with `excludeSubjects`",
        asker.name
    );
    Fault::warning(place, FaultKind::Suspicious, message)
}
