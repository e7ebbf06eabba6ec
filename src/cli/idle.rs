//! What AuthorizationPolicies say in vain, in the report of `check`.

use std::collections::BTreeMap;

use super::access::TimeLimit;
use super::policy_files::ObjectPlaces;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::authorization::proof::{IdlePart, WorkLimit, idle_parts};
use portcullis_policy::document::Document;
use portcullis_policy::engine::Deadline;
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath};

/// The most parts into which the requests of one rule fall.
const MAX_PARTS: usize = 10_000;

/// Warnings of what the policies of `sets`, each that of a cluster, say in vain: of a policy of several
/// clusters, what is in vain in all of them. None where that takes too long to tell,
/// and of no Deny twice of which `known` warns already.
pub(crate) fn faults(
    sets: &[&PolicySet],
    documents: &[Document],
    known: &Faults,
    time: &TimeLimit,
) -> Faults {
    let now = std::time::SystemTime::now().into();
    let expired = || time.has_passed();
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline: Deadline::new(&expired),
    };
    let mut found: BTreeMap<(String, FieldKey), (usize, IdlePart)> = BTreeMap::new();
    for set in sets {
        let Ok(parts) = idle_parts(set, now, limit) else {
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
        let path = path(&part, rules.first().copied().unwrap_or_default());
        let place = places.place(["AuthorizationPolicy", "", &name], path);
        let is_known =
            |fault: &Fault| (&fault.place.object, &fault.place.path) == (&place.object, &place.path);
        if rules.len() == times && !known.iter().any(is_known) {
            faults.push(Fault::warning(place, FaultKind::Suspicious, words(&part)));
        }
    }
    faults
}

/// Which part of a policy it is, whatever makes it idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FieldKey {
    Policy,
    Rule(usize),
    Condition(usize, bool),
    Exclusion(usize),
}

impl FieldKey {
    const fn of(part: &IdlePart) -> Self {
        match part {
            IdlePart::Rule(rule) => Self::Rule(*rule),
            IdlePart::Deny(_) | IdlePart::Allow(_) => Self::Policy,
            IdlePart::Condition(condition, holds) => Self::Condition(*condition, *holds),
            IdlePart::Exclusion(subject) => Self::Exclusion(*subject),
        }
    }
}

/// Rules count on from resource rules to those of paths.
fn path(part: &IdlePart, resource_rules: usize) -> FieldPath {
    let spec = FieldPath::root().field("spec");
    match part {
        IdlePart::Rule(rule) if *rule < resource_rules => spec.field("resourceRules").index(*rule),
        IdlePart::Rule(rule) => spec.field("nonResourceRules").index(rule - resource_rules),
        IdlePart::Condition(condition, _) => spec.field("conditions").index(*condition),
        IdlePart::Exclusion(subject) => spec.field("excludeSubjects").index(*subject),
        IdlePart::Deny(_) | IdlePart::Allow(_) => FieldPath::root().field("metadata").field("name"),
    }
}

fn words(part: &IdlePart) -> String {
    let list = |names: &[String]| {
        let quoted: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
        let more = if names.len() > 3 { " and others" } else { "" };
        format!("{}{more}", quoted.join(", "))
    };
    match part {
        IdlePart::Rule(_) => "this rule never applies: no request fits it, the policy's subjects and its \
                              conditions; mend or remove it"
            .to_owned(),
        IdlePart::Deny(others) => format!(
            "this policy changes nothing: all that it denies is denied by {}; remove it, or one of them",
            list(others)
        ),
        IdlePart::Allow(bindings) => format!(
            "this Allow changes nothing: all that it allows is granted by {}; remove it",
            list(bindings)
        ),
        IdlePart::Condition(_, true) => {
            "this condition makes no difference: it lets the policy apply to every request that its rules are \
             about; remove it"
                .to_owned()
        }
        IdlePart::Condition(_, false) => {
            "with this condition the policy never applies: no request that its rules are about fulfils it".to_owned()
        }
        IdlePart::Exclusion(_) => {
            "this excludes nobody: none of `subjects` can be it; remove it, or correct its name".to_owned()
        }
    }
}
