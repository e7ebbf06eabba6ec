//! What a failure of a rule does: `validationFailureAction`, and what overrides it in namespaces.
//!
//! Each override becomes a binding, and the binding of the rule's own action leaves out their namespaces.
//! Kyverno takes the first one that matches a namespace.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::matching::{Matching, texts};
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::has_wildcard;
use portcullis_policy::manifest;

/// The label of each namespace that is its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// What failures do.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether the rule's own action refuses requests.
    pub(crate) is_enforced: bool,
    actions: Vec<Action>,
}

/// `validationActions` in some namespaces.
#[derive(Debug)]
struct Action {
    actions: Value,
    /// What the labels of the namespace must satisfy.
    requirements: Vec<Value>,
}

/// Refuses overrides of a policy that mean different things in different parts of Kyverno.
pub(crate) fn check(spec: &Value) -> Result<(), Refusal> {
    const FIELD: &str = "validationFailureActionOverrides";
    let has_some = spec[FIELD]
        .as_array()
        .is_some_and(|overrides| !overrides.is_empty());
    let mut rules = spec["rules"].as_array().into_iter().flatten();
    if has_some && rules.any(|rule| !rule["validate"]["failureAction"].is_null()) {
        return conversion::of(
            FIELD,
            "whether they or `failureAction` of a rule count is not the same throughout Kyverno: write \
             `failureActionOverrides` into the rules",
        );
    }
    requirements(&spec[FIELD]).map_err(|refusal| refusal.within(FIELD))?;
    Ok(())
}

// === impl Failure ===

impl Failure {
    /// What failures of the rule with this `validate` do.
    pub(crate) fn of(spec: &Value, validate: &Value, matching: &Matching) -> Result<Self, Refusal> {
        let own = validate["failureAction"].as_str();
        let own = own.or_else(|| spec["validationFailureAction"].as_str());
        let has_own = validate["failureActionOverrides"]
            .as_array()
            .is_some_and(|own| !own.is_empty());
        let overrides = match has_own {
            true => &validate["failureActionOverrides"],
            false => &spec["validationFailureActionOverrides"],
        };
        let found = requirements(overrides).map_err(|refusal| refusal.within("failureActionOverrides"))?;
        if !found.is_empty() && !is_namespaced(matching) {
            return conversion::of(
                "failureActionOverrides",
                "they are for namespaces, and not every object of these kinds is known to be in one: write a rule \
                 for each action",
            );
        }
        let mut action = own.unwrap_or("Audit");
        let is_enforced = is_enforce(action);
        let mut others: Vec<Value> = Vec::new();
        let mut actions = Vec::new();
        for (own, requirement) in found {
            let Some(requirement) = requirement else {
                action = own;
                break;
            };
            let mut requirements = others.clone();
            requirements.push(requirement.clone());
            actions.push(Action {
                actions: validation_actions(spec, own),
                requirements,
            });
            others.push(opposite(requirement));
        }
        actions.insert(
            0,
            Action {
                actions: validation_actions(spec, action),
                requirements: others,
            },
        );
        Ok(Self { is_enforced, actions })
    }

    /// The policy, and its bindings.
    pub(crate) fn objects(&self, name: &str, spec: Value, binding: &Value) -> Vec<Value> {
        let mut objects = Vec::new();
        for (index, action) in self.actions.iter().enumerate() {
            let mut binding = binding.clone();
            binding["validationActions"] = action.actions.clone();
            if !action.requirements.is_empty() {
                binding["matchResources"] =
                    json!({"namespaceSelector": {"matchExpressions": action.requirements}});
            }
            let [policy, mut binding] =
                conversion::policy_and_binding("ValidatingAdmissionPolicy", name, spec.clone(), binding);
            if index == 0 {
                objects.push(policy);
            } else {
                binding["metadata"]["name"] = format!("{name}-override-{index}").into();
            }
            objects.push(binding);
        }
        objects
    }
}

fn is_enforce(action: &str) -> bool {
    action.eq_ignore_ascii_case("enforce")
}

fn validation_actions(spec: &Value, action: &str) -> Value {
    match (is_enforce(action), spec["emitWarning"] == true) {
        (true, _) => json!(["Deny"]),
        (false, true) => json!(["Warn", "Audit"]),
        (false, false) => json!(["Audit"]),
    }
}

/// Whether all objects are known to be in namespaces.
fn is_namespaced(matching: &Matching) -> bool {
    matching.served_kinds().iter().all(|kind| match kind {
        Some([group, version, kind]) => {
            let api_version = match group.as_str() {
                "" => version.clone(),
                group => format!("{group}/{version}"),
            };
            manifest::is_namespaced(&api_version, kind)
        }
        None => false,
    })
}

/// The action of each override, and what it asks of the labels of a namespace; none: nothing.
fn requirements(overrides: &Value) -> Result<Vec<(&str, Option<Value>)>, Refusal> {
    let overrides = overrides.as_array().into_iter().flatten().enumerate();
    let all = overrides.map(|(index, written)| {
        let requirement = requirement(written).map_err(|refusal| refusal.within_index(index))?;
        Ok((written["action"].as_str().unwrap_or_default(), requirement))
    });
    all.collect()
}

fn requirement(written: &Value) -> Result<Option<Value>, Refusal> {
    conversion::unknown(written, &["action", "namespaces", "namespaceSelector"])?;
    let namespaces: Vec<&str> = texts(&written["namespaces"]).collect();
    let selector = &written["namespaceSelector"];
    match (namespaces.is_empty(), selector.is_null()) {
        (true, true) => Ok(None),
        (false, false) => conversion::of(
            "namespaceSelector",
            "Kyverno asks for both in one place and for either in another: write one of the two",
        ),
        (false, true) if namespaces.contains(&"*") => Ok(None),
        (false, true) if namespaces.iter().any(|namespace| has_wildcard(namespace)) => conversion::of(
            "namespaces",
            "a binding selects namespaces by labels, which have no wildcards: name them",
        ),
        (false, true) => Ok(Some(json!({"key": NAME, "operator": "In", "values": namespaces}))),
        (true, false) => {
            let labels = selector["matchLabels"].as_object().into_iter().flatten();
            let labels = labels.map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
            let written = selector["matchExpressions"]
                .as_array()
                .into_iter()
                .flatten()
                .cloned();
            match labels.chain(written).collect::<Vec<_>>().as_slice() {
                [requirement] => Ok(Some(requirement.clone())),
                _ => conversion::of(
                    "namespaceSelector",
                    "the opposite of one requirement alone can be asked of all other namespaces: write one",
                ),
            }
        }
    }
}

/// What holds of exactly the namespaces of which `requirement` does not hold.
fn opposite(mut requirement: Value) -> Value {
    let operator = match requirement["operator"].as_str() {
        Some("In") => "NotIn",
        Some("NotIn") => "In",
        Some("Exists") => "DoesNotExist",
        _ => "Exists",
    };
    requirement["operator"] = operator.into();
    requirement
}
