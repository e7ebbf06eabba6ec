//! `validate`: what a rule requires of objects, by patterns, conditions, loops, or CEL; and the
//! action on failure, by `validationFailureAction` and its overrides for namespaces.
//!
//! Each override becomes a binding, and the binding for the rule's own action excludes the
//! namespaces of overrides. In Kyverno, the first override that matches a namespace applies.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::matching::{Matching, texts};
use super::scope::Scope;
use super::{conditions, context, jmespath, pattern, pod_security};
use crate::conversion;
use crate::conversion::{Refusal, on_one_line};
use crate::kyverno::autogen::is_optional;
use crate::kyverno::expression::{CelCondition, FallibleCondition, has_wildcard};
use portcullis_cel::plain_or_values;
use portcullis_policy::manifest;

/// How deep loops may nest: each level makes the expression longer.
const MAX_LOOPS: usize = 3;

/// The operations for which Kyverno evaluates a rule that names none.
pub(crate) fn operations(validate: &Value, matching: &Matching) -> Vec<&'static str> {
    let mut operations = vec!["CREATE", "UPDATE", "DELETE"];
    if validate["cel"].is_object() || matching.has_subresources() {
        operations.push("CONNECT");
    }
    operations
}

/// Whether every DELETE passes, apart from errors of the preconditions.
pub(crate) fn passes_deletes(validate: &Value) -> bool {
    !validate["cel"].is_object() && validate["deny"].is_null()
}

/// The condition on the object, which fails where Kyverno has an error.
pub(crate) fn holds(validate: &Value, scope: &Scope) -> Result<FallibleCondition, Refusal> {
    match &validate["foreach"] {
        Value::Null => object_condition(validate, scope, &scope.object),
        loops => of_loops(loops, scope, 0),
    }
}

/// `foreach`: the condition on each element of lists.
fn of_loops(loops: &Value, scope: &Scope, nesting: usize) -> Result<FallibleCondition, Refusal> {
    let mut all = FallibleCondition::infallible(CelCondition::constant(true));
    for (index, written) in loops.as_array().into_iter().flatten().enumerate() {
        let of_loop = of_loop(written, scope, nesting);
        all = all.and(of_loop.map_err(|refusal| refusal.within_index(index).within("foreach"))?);
    }
    Ok(all)
}

/// The fields of a loop.
const LOOP: [&str; 8] = [
    "list",
    "context",
    "preconditions",
    "elementScope",
    "deny",
    "pattern",
    "anyPattern",
    "foreach",
];

fn of_loop(written: &Value, scope: &Scope, nesting: usize) -> Result<FallibleCondition, Refusal> {
    conversion::unknown(written, &LOOP)?;
    if nesting >= MAX_LOOPS {
        return Err(Refusal::whole(format!("loops nest at most {MAX_LOOPS} deep")));
    }
    let query = written["list"].as_str().unwrap_or_default();
    let list = jmespath::parse(query).map_err(|reason| Refusal::new("list", reason))?;
    let list = scope.term(&list).map_err(|refusal| refusal.within("list"))?;
    if list.is_fallible {
        return conversion::of(
            "list",
            "where it has an error Kyverno leaves the loop out: let it have none",
        );
    }
    if !["request.object", "element"]
        .iter()
        .any(|root| query.trim_start().starts_with(root))
    {
        return conversion::of("list", "a loop over what is not of the object has no counterpart");
    }
    let element = scope.fresh("e");
    let mut inner = scope.clone();
    for name in ["element".to_owned(), format!("element{nesting}")] {
        inner.names.push((name, Ok(list.element(&element))));
    }
    for name in ["elementIndex".to_owned(), format!("elementIndex{nesting}")] {
        inner
            .names
            .push((name, Err("the place of an element has no counterpart".to_owned())));
    }
    context::add_variables(&written["context"], &mut inner)?;
    let applies = conditions::condition_of(&written["preconditions"], &inner)
        .map_err(|refusal| refusal.within("preconditions"))?;
    if applies.may_fail {
        return conversion::of(
            "preconditions",
            "where they have an error Kyverno leaves the element out: end their queries with `|| ''`",
        );
    }
    let holds = match &written["foreach"] {
        Value::Null => of_element(written, &inner, &element)?,
        loops => of_loops(loops, &inner, nesting + 1)?,
    };
    let applies = match scope.is_typed {
        true => applies,
        false => {
            FallibleCondition::infallible(CelCondition::relation(format!("{element} != null"))).and(applies)
        }
    };
    let condition = match holds.may_fail {
        true => applies
            .condition
            .choice(&holds.condition, &CelCondition::constant(true)),
        false => CelCondition::any([applies.condition.not(), holds.condition]),
    };
    scope.made.set(inner.made.get());
    Ok(FallibleCondition {
        condition: CelCondition::primary(format!("{}.all({element}, {condition})", list.elements(scope))),
        may_fail: holds.may_fail,
    })
}

/// A pattern applies to an element that is a non-empty map, otherwise to the whole object.
fn of_element(written: &Value, scope: &Scope, element: &str) -> Result<FallibleCondition, Refusal> {
    if !written["deny"].is_null() {
        return object_condition(written, scope, element);
    }
    if written["elementScope"] == false {
        return conversion::of("elementScope", "a pattern about the whole object needs no loop");
    }
    let of_element = object_condition(written, scope, element)?;
    if scope.is_typed || written["elementScope"] == true {
        return Ok(of_element);
    }
    let is_scope = CelCondition::all([
        CelCondition::relation(format!("type({element}) == map")),
        CelCondition::relation(format!("{element} != {{}}")),
    ]);
    let of_object = object_condition(written, scope, &scope.object)?;
    Ok(FallibleCondition::infallible(
        is_scope.choice(&of_element.condition, &of_object.condition),
    ))
}

/// The condition on `object`.
fn object_condition(validate: &Value, scope: &Scope, object: &str) -> Result<FallibleCondition, Refusal> {
    if !validate["deny"].is_null() {
        let within = |refusal: Refusal| refusal.within("deny");
        conversion::unknown(&validate["deny"], &["conditions"]).map_err(within)?;
        let denied = conditions::condition_of(&validate["deny"]["conditions"], scope)
            .map_err(|refusal| within(refusal.within("conditions")))?;
        return Ok(denied.not());
    }
    if validate["pattern"].is_object() || validate["anyPattern"].is_array() {
        return Ok(FallibleCondition::infallible(of_patterns(validate, object)?));
    }
    if validate["podSecurity"].is_object() {
        let checks = pod_security::checks(&validate["podSecurity"], object, scope)
            .map_err(|refusal| refusal.within("podSecurity"))?;
        return Ok(FallibleCondition::infallible(CelCondition::all(
            checks.into_iter().map(|(passes, _)| passes),
        )));
    }
    Err(Refusal::whole("it asks nothing of the object"))
}

/// Whether Kyverno reports every mismatch of a pattern as a failure, and none as an error.
pub(crate) fn fails_without_error(validate: &Value) -> bool {
    let mut loops = validate["foreach"].as_array().into_iter().flatten();
    if !loops.all(fails_without_error) {
        return false;
    }
    let (_, patterns) = patterns(validate);
    patterns
        .iter()
        .all(|pattern| pattern::fails_without_error(pattern))
}

fn patterns(validate: &Value) -> (&'static str, Vec<&Value>) {
    match &validate["pattern"] {
        pattern @ Value::Object(_) => ("pattern", vec![pattern]),
        _ => (
            "anyPattern",
            validate["anyPattern"].as_array().into_iter().flatten().collect(),
        ),
    }
}

/// `pattern` and `anyPattern`: the condition that the object does not fail.
fn of_patterns(validate: &Value, object: &str) -> Result<CelCondition, Refusal> {
    let (field, patterns) = patterns(validate);
    let mut passes = Vec::new();
    let mut does_not_fail = Vec::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let outcome = pattern::outcome(pattern, object).map_err(|refusal| match field {
            "pattern" => refusal.within(field),
            _ => refusal.within_index(index).within(field),
        })?;
        passes.push(outcome.passes);
        does_not_fail.push(outcome.does_not_fail);
    }
    // If no pattern passes and none fails, the rule does not apply.
    Ok(CelCondition::any(
        passes.into_iter().chain([CelCondition::all(does_not_fail)]),
    ))
}

/// `validate.cel`, which already is a ValidatingAdmissionPolicy. Kyverno denies a request if an
/// expression fails, whatever the `failurePolicy` of its webhook.
pub(crate) fn of_cel(validate: &Value) -> Result<Value, Refusal> {
    let cel = &validate["cel"];
    let known = [
        "expressions",
        "variables",
        "auditAnnotations",
        "paramKind",
        "paramRef",
        "generate",
    ];
    conversion::unknown(cel, &known).map_err(|refusal| refusal.within("cel"))?;
    refuse_plain_or_values(cel).map_err(|refusal| refusal.within("cel"))?;
    let mut spec = json!({"failurePolicy": "Fail"});
    for field in ["paramKind", "variables", "auditAnnotations"] {
        if !cel[field].is_null() {
            spec[field] = cel[field].clone();
        }
    }
    spec["validations"] = cel["expressions"].clone();
    let shared = on_one_line(validate["message"].as_str().unwrap_or_default());
    for validation in spec["validations"].as_array_mut().into_iter().flatten() {
        let own = on_one_line(validation["message"].as_str().unwrap_or_default());
        let message = if own.is_empty() { shared.clone() } else { own };
        if let Some(validation) = validation.as_object_mut() {
            validation.remove("message");
            if !message.is_empty() {
                validation.insert("message".to_owned(), message.into());
            }
        }
    }
    Ok(spec)
}

/// Refuses `.orValue()` of a value that is not an optional: Kyverno returns the value itself,
/// Kubernetes fails.
fn refuse_plain_or_values(cel: &Value) -> Result<(), Refusal> {
    let mut optional = Vec::new();
    for list in ["variables", "expressions"] {
        for (index, item) in cel[list].as_array().into_iter().flatten().enumerate() {
            let text = item["expression"].as_str().unwrap_or_default();
            // A syntax error is reported when the expression is compiled.
            let plain = plain_or_values(text, &optional).unwrap_or_default();
            if let Some((line, column)) = plain.first() {
                let reason = format!(
                    "{line}:{column}: `.orValue()` of what is no optional value is an error in Kubernetes: \
                     select with `.?` before it"
                );
                let refusal = Refusal::new("expression", reason);
                return Err(refusal.within_index(index).within(list));
            }
            if list == "variables" && is_optional(text, &optional) {
                optional.extend(item["name"].as_str().map(str::to_owned));
            }
        }
    }
    Ok(())
}

// Actions on failure.

/// The label of every namespace with its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// The actions on failure.
#[derive(Debug)]
pub(crate) struct FailureActions {
    /// Whether the rule's own action denies requests.
    pub(crate) is_enforced: bool,
    actions: Vec<Action>,
}

/// The `validationActions` for some namespaces.
#[derive(Debug)]
struct Action {
    actions: Value,
    /// The requirements on the labels of the namespace.
    requirements: Vec<Value>,
}

/// Refuses overrides of a policy that Kyverno itself interprets inconsistently.
pub(crate) fn check_overrides(spec: &Value) -> Result<(), Refusal> {
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

// === impl FailureActions ===

impl FailureActions {
    /// The actions of the rule with this `validate`.
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

    /// The policy and its bindings.
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

/// Whether all objects are known to be namespaced.
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

/// The action of each override, and its requirement on the labels of a namespace, if any.
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

/// The requirement that holds exactly for the namespaces for which `requirement` does not.
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
