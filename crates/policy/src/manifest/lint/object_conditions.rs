//! Policies with `objectConditions` that decide nothing, because `/validate` does not see what they are
//! about.

use super::warnings::Lint;
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::{self, AuthorizationPolicy, Effect};
use crate::engine::groups;
use crate::field::FieldPath;

/// Warns of what `policy` says in vain; `is_reviewed` is whether `/validate` is known to see requests of a
/// cluster that it is for.
pub(crate) fn lint(policy: &AuthorizationPolicy, is_reviewed: bool, lint: &mut Lint<'_>) {
    if policy.object_conditions.is_empty() {
        return;
    }
    let spec = FieldPath::root().field("spec");
    if policy.effect == Effect::Allow && !is_reviewed {
        let message = "grants nothing, because it is not known that /validate sees what is written: apply the \
                       registrations of `portcullis init`, and set `admission: Declared` in the cluster's entry \
                       of `clusters`";
        lint.suspicious(&spec.field("objectConditions"), message);
    }
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        let path = spec.field("resourceRules").index(index).field("resources");
        for (index, resource) in rule.resources.iter().enumerate() {
            let is_left_out = |group: &str| is_left_out(group, resource);
            if rule.api_groups.named().all(is_left_out) {
                let message = format!(
                    "the registrations of `portcullis init` leave out `{resource}`, because a cluster needs it while \
                     no gateway answers: with these registrations the rule has no effect on it"
                );
                lint.suspicious(&path.index(index), message);
            }
        }
    }
}

fn is_left_out(group: &str, resource: &ResourcePattern) -> bool {
    let name = match resource {
        ResourcePattern::Resource(name) => name.clone(),
        ResourcePattern::Subresource(Wildcard::Named(name), Wildcard::Named(subresource)) => {
            format!("{name}/{subresource}")
        }
        ResourcePattern::Everything | ResourcePattern::Subresource(..) => return false,
    };
    // What is written to this group is refused by nobody while no gateway answers.
    group == groups::PORTCULLIS || authorization::is_left_out(group, &name)
}
