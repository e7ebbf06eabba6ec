//! Admission policies that nothing binds, and bindings to policies that are not there.

use std::cell::Cell;
use std::collections::HashMap;

use super::Lint;
use super::known::nearest;
use crate::field::{FaultKind, Faults, FieldPath};
use crate::manifest::admission::AdmissionObject;
use crate::manifest::object::{Content, ManifestObject};

/// The most bindings for which a policy of a similar name is looked for: each look is at every name.
const MOST_LOOKS: usize = 100;

/// Which policies and bindings there are, each with the only cluster that it holds for.
#[derive(Default)]
struct BoundNames<'o> {
    policies: Known<'o>,
    bound: Known<'o>,
    /// How often a similar name has been looked for.
    looks: Cell<usize>,
}

/// By sort and name: the clusters; `None` for every cluster.
type Known<'o> = HashMap<(Sort, &'o str), Vec<Option<&'o str>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    Validating,
    Mutating,
}

pub(crate) fn lint(objects: &[&ManifestObject], faults: &mut Faults) {
    let names = BoundNames::new(objects);
    for object in objects {
        let Content::Admission(admission) = &object.content else {
            continue;
        };
        let cluster = object.cluster.as_deref();
        let mut lint = Lint {
            document: &object.document,
            faults,
        };
        if let Some((sort, name)) = policy(admission) {
            names.lint_policy(sort, name, cluster, &mut lint);
        } else if let Some((sort, policy)) = binding(admission) {
            names.lint_binding(sort, policy, cluster, &mut lint);
        }
    }
}

fn policy(admission: &AdmissionObject) -> Option<(Sort, &str)> {
    match admission {
        AdmissionObject::ValidatingPolicy(policy) => Some((Sort::Validating, &policy.applicability.name)),
        AdmissionObject::MutatingPolicy(policy) => Some((Sort::Mutating, &policy.applicability.name)),
        _ => None,
    }
}

/// The policy that a binding binds.
fn binding(admission: &AdmissionObject) -> Option<(Sort, &str)> {
    match admission {
        AdmissionObject::ValidatingBinding(binding) => Some((Sort::Validating, &binding.policy)),
        AdmissionObject::MutatingBinding(binding) => Some((Sort::Mutating, &binding.policy)),
        _ => None,
    }
}

// === impl BoundNames ===

impl<'o> BoundNames<'o> {
    fn new(objects: &[&'o ManifestObject]) -> Self {
        let mut names = Self::default();
        for object in objects {
            let Content::Admission(admission) = &object.content else {
                continue;
            };
            let cluster = object.cluster.as_deref();
            if let Some(policy) = policy(admission) {
                names.policies.entry(policy).or_default().push(cluster);
            }
            if let Some(policy) = binding(admission) {
                names.bound.entry(policy).or_default().push(cluster);
            }
            // Initializers run the policies that they name without any binding.
            if let AdmissionObject::Initializers(configuration) = admission {
                for initializer in &configuration.initializers {
                    let policy = (Sort::Mutating, initializer.name.as_str());
                    names.bound.entry(policy).or_default().push(cluster);
                }
            }
        }
        names
    }

    fn lint_policy(&self, sort: Sort, name: &str, cluster: Option<&str>, lint: &mut Lint<'_>) {
        if meets(self.bound.get(&(sort, name)), cluster) {
            return;
        }
        let kind = sort.policy();
        let message = format!("there is no {kind}Binding for this policy, so it never applies: add one");
        lint.warn(
            FaultKind::NotFound,
            &FieldPath::root().field("metadata").field("name"),
            message,
        );
    }

    fn lint_binding(&self, sort: Sort, policy: &str, cluster: Option<&str>, lint: &mut Lint<'_>) {
        if meets(self.policies.get(&(sort, policy)), cluster) {
            return;
        }
        let others = self.policies.keys().filter(|(other, _)| *other == sort);
        let looks = self.looks.replace(self.looks.get().saturating_add(1));
        let others = others.filter(|_| looks < MOST_LOOKS);
        let meant = match nearest(policy, others.map(|(_, name)| *name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add it".to_owned(),
        };
        let message = format!(
            "there is no manifest of the {} `{policy}`, so this binding has no effect: {meant}",
            sort.policy()
        );
        let path = FieldPath::root().field("spec").field("policyName");
        lint.warn(FaultKind::NotFound, &path, message);
    }
}

/// Whether one of `clusters` is one for which an object of `cluster` holds.
fn meets(clusters: Option<&Vec<Option<&str>>>, cluster: Option<&str>) -> bool {
    clusters
        .into_iter()
        .flatten()
        .any(|of| of.is_none() || cluster.is_none() || *of == cluster)
}

// === impl Sort ===

impl Sort {
    const fn policy(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingAdmissionPolicy",
            Self::Mutating => "MutatingAdmissionPolicy",
        }
    }
}
