//! Requests for what Kubernetes does not have, or not only: to whoever asks offline, a typing
//! error looks like a refusal.

use super::impersonation;
use super::known::{odd_group, odd_method, odd_resource, odd_verb};
use crate::authorization::PolicySet;
use crate::engine::{ResourceAttributes, Target};

/// What is odd about the verb, group and resource that are asked for, in the words in which
/// `check` says it of a rule. A verb or group that a rule of `policies` names is taken as meant:
/// those of custom resources are known by nothing else.
#[must_use]
pub fn odd_request(target: &Target<'_>, policies: &PolicySet) -> Vec<String> {
    match target {
        Target::NonResource { verb, .. } => odd_method(verb).into_iter().collect(),
        Target::Resource(resource) => odd_resource_request(resource, policies),
    }
}

fn odd_resource_request(asked: &ResourceAttributes<'_>, policies: &PolicySet) -> Vec<String> {
    let named = |word: &str, within: for<'n> fn(&RuleWords<'n>) -> &'n [String]| {
        rules(policies).any(|rule| within(&rule).iter().any(|one| one == word))
    };
    let resource = match asked.subresource.as_ref() {
        "" => asked.resource.to_string(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    let verb = odd_verb(&asked.verb).filter(|_| !named(&asked.verb, |rule| rule.verbs));
    let group = odd_group(&asked.group).filter(|_| !named(&asked.group, |rule| rule.groups));
    let groups = [asked.group.to_string()];
    // A rule for several groups names resources that are of one of them alone.
    let others = impersonation::other_questions(&asked.verb, &asked.group, &resource);
    [verb, group, odd_resource(&groups, &resource), others]
        .into_iter()
        .flatten()
        .collect()
}

/// The words of one rule.
struct RuleWords<'p> {
    verbs: &'p [String],
    groups: &'p [String],
}

fn rules(policies: &PolicySet) -> impl Iterator<Item = RuleWords<'_>> {
    let roles = policies.roles().iter().flat_map(|role| &role.rules);
    let roles = roles.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    });
    let own = policies.authorization_policies();
    let own = own.flat_map(|policy| &policy.resource_rules);
    roles.chain(own.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    }))
}
