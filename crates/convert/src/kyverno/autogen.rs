//! Derives policies on the kinds that create Pods from those on Pods, as Kyverno does; likewise
//! rules of ClusterPolicies (`pkg/autogen/v1`).
//!
//! Kyverno replaces substrings of the policy's expressions and messages (`pkg/cel/autogen` and
//! `pkg/cel/policies/{vpol,mpol}/autogen` of Kyverno), and the same ones are replaced here.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster_policy::matching::texts;
use super::policy::{KyvernoPolicy, WrittenOperations, spec_path};
use portcullis_cel::{VariableUse, plain_or_values, variable_uses};
use portcullis_policy::field::FieldPath;

/// The kinds that create Pods: resource, group, and whether they do so through Jobs.
const KINDS: [(&str, &str, bool); 6] = [
    ("cronjobs", "batch", true),
    ("daemonsets", "apps", false),
    ("deployments", "apps", false),
    ("jobs", "batch", false),
    ("replicasets", "apps", false),
    ("statefulsets", "apps", false),
];

/// Kinds that have their Pod template at the same path.
#[derive(Debug)]
pub(crate) struct Controllers {
    is_cron_job: bool,
    /// The resources, by group.
    resources: BTreeMap<&'static str, Vec<&'static str>>,
}

/// The kinds that create Pods, with group and version; the last one creates Jobs.
const RULE_KINDS: [(&str, &str); 7] = [
    ("DaemonSet", "apps/v1/DaemonSet"),
    ("Deployment", "apps/v1/Deployment"),
    ("Job", "batch/v1/Job"),
    ("ReplicaSet", "apps/v1/ReplicaSet"),
    ("ReplicationController", "v1/ReplicationController"),
    ("StatefulSet", "apps/v1/StatefulSet"),
    ("CronJob", "batch/v1/CronJob"),
];

/// The annotation that selects from these kinds.
const ANNOTATION: &str = "pod-policies.kyverno.io/autogen-controllers";

/// The rules that Kyverno derives from `rule`, which is a rule of the policy.
pub(crate) fn derived(policy: &Value, rule: &Value) -> Vec<Value> {
    if !rules_allow(&policy["spec"]) || !is_on_pods(rule) {
        return Vec::new();
    }
    let chosen = policy["metadata"]["annotations"][ANNOTATION].as_str();
    let is_chosen = |kind: &str| chosen.is_none_or(|chosen| chosen.split(',').any(|one| one == kind));
    let kinds: Vec<&str> = RULE_KINDS
        .iter()
        .filter(|(kind, _)| *kind != "CronJob" && is_chosen(kind))
        .map(|(_, selector)| *selector)
        .collect();
    let mut derived = Vec::new();
    if !kinds.is_empty() {
        derived.push(derive(rule, "autogen", &kinds, &["template"]));
    }
    if is_chosen("CronJob") {
        derived.push(derive(
            rule,
            "autogen-cronjob",
            &["batch/v1/CronJob"],
            &["jobTemplate", "spec", "template"],
        ));
    }
    derived
}

fn derive(rule: &Value, prefix: &str, kinds: &[&str], template: &[&str]) -> Value {
    let mut rule = with_kinds(rule, kinds);
    rule["name"] = format!("{prefix}-{}", rule["name"].as_str().unwrap_or_default()).into();
    let wrapped = |pattern: &Value| {
        let inner = template
            .iter()
            .rev()
            .fold(pattern.clone(), |inner, field| json!({*field: inner}));
        json!({"spec": inner})
    };
    let validate = &mut rule["validate"];
    if validate["pattern"].is_object() {
        validate["pattern"] = wrapped(&validate["pattern"]);
    }
    for pattern in validate["anyPattern"].as_array_mut().into_iter().flatten() {
        *pattern = wrapped(pattern);
    }
    let is_cel = validate["cel"].is_object();
    let mutate = &mut rule["mutate"];
    if mutate["patchStrategicMerge"].is_object() {
        mutate["patchStrategicMerge"] = wrapped(&mutate["patchStrategicMerge"]);
    }
    // Kyverno drops `order`, and makes a null patch for loops within loops.
    if let Some(loops) = mutate.get_mut("foreach").and_then(Value::as_array_mut) {
        loops.iter_mut().for_each(|each| {
            *each = json!({"list": each["list"], "context": each["context"], "preconditions": each["preconditions"],
                "patchStrategicMerge": wrapped(&each["patchStrategicMerge"])});
        });
    }
    let template = format!("spec.{}", template.join("."));
    with_replaced_paths(&rule, is_cel, &template)
}

/// The rule with `kinds` in place of Pods.
fn with_kinds(rule: &Value, kinds: &[&str]) -> Value {
    let mut rule = rule.clone();
    let is_cron_job = kinds == ["batch/v1/CronJob"];
    for name in ["match", "exclude"] {
        let Some(block) = rule.get_mut(name).filter(|block| block.is_object()) else {
            continue;
        };
        let lists = ["any", "all"];
        let list = lists
            .into_iter()
            .find(|list| block[*list].as_array().is_some_and(|list| !list.is_empty()));
        let Some(list) = list else {
            if name == "match" || texts(&block["resources"]["kinds"]).next().is_some() {
                block["resources"]["kinds"] = json!(kinds);
            }
            continue;
        };
        for filter in block[list].as_array_mut().into_iter().flatten() {
            if is_cron_job || texts(&filter["resources"]["kinds"]).any(names_pods) {
                filter["resources"]["kinds"] = json!(kinds);
            }
        }
        // Kyverno evaluates a derived rule only for these kinds.
        if let Some(filters) = block["any"].as_array_mut().filter(|_| name == "match") {
            filters.retain_mut(|filter| keep_pod_controllers(&mut filter["resources"]["kinds"], kinds));
        }
    }
    rule
}

/// Keeps only the kinds that create Pods. Returns `false` if none is left.
fn keep_pod_controllers(written: &mut Value, kinds: &[&str]) -> bool {
    let is_maker = |written: &str| {
        let kind = written.rsplit_once('/').map_or(written, |(_, kind)| kind);
        kinds
            .iter()
            .any(|maker| maker.rsplit_once('/').is_some_and(|(_, maker)| maker == kind))
    };
    let had_none = texts(written).next().is_none();
    let kept: Vec<&str> = match texts(written).any(|kind| kind == "*") {
        true => kinds.to_vec(),
        false => texts(written).filter(|kind| is_maker(kind)).collect(),
    };
    let is_kept = had_none || !kept.is_empty();
    if !had_none {
        *written = json!(kept);
    }
    is_kept
}

/// Replaces substrings of the whole rule as JSON, as Kyverno does.
fn with_replaced_paths(rule: &Value, is_cel: bool, template: &str) -> Value {
    let mut text = rule.to_string();
    let request = if is_cel { "" } else { "request." };
    for part in ["spec", "metadata"] {
        for object in ["object", "oldObject"] {
            let from = format!("{request}{object}.{part}");
            text = text.replace(&from, &format!("{request}{object}.{template}.{part}"));
        }
    }
    serde_json::from_str(&text).unwrap_or_default()
}

/// Whether no rule of the policy prevents Kyverno from deriving others.
fn rules_allow(spec: &Value) -> bool {
    let mut filters = Vec::new();
    for rule in spec["rules"].as_array().into_iter().flatten() {
        let has_patches = |mutate: &Value| {
            mutate["patchesJson6902"]
                .as_str()
                .is_some_and(|patches| !patches.is_empty())
        };
        let mut loops = rule["mutate"]["foreach"].as_array().into_iter().flatten();
        if rule["generate"].is_object() || has_patches(&rule["mutate"]) || loops.any(has_patches) {
            return false;
        }
        for block in [&rule["match"], &rule["exclude"]] {
            filters.push(&block["resources"]);
            for list in ["any", "all"] {
                let written = block[list].as_array().into_iter().flatten();
                filters.extend(written.map(|filter| &filter["resources"]));
            }
        }
    }
    let is_by_kind = |resources: &Value| {
        let has = |field: &str| match &resources[field] {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        };
        let kinds: Vec<&str> = texts(&resources["kinds"]).collect();
        !["name", "names", "selector", "annotations"].into_iter().any(has)
            && (kinds.len() < 2 || !kinds.iter().any(|kind| names_pods(kind)))
    };
    let names_maker = |resources: &Value| {
        texts(&resources["kinds"])
            .any(|kind| kind == "Pod" || RULE_KINDS.iter().any(|(maker, _)| *maker == kind))
    };
    filters.iter().all(|resources| is_by_kind(resources))
        && filters.iter().any(|resources| names_maker(resources))
}

/// Whether a rule matches Pods, and what it excludes, if anything, includes Pods.
fn is_on_pods(rule: &Value) -> bool {
    let kinds = |block: &Value| -> Vec<String> {
        let mut kinds: Vec<String> = texts(&block["resources"]["kinds"]).map(str::to_owned).collect();
        for list in ["any", "all"] {
            for filter in block[list].as_array().into_iter().flatten() {
                kinds.extend(texts(&filter["resources"]["kinds"]).map(str::to_owned));
            }
        }
        kinds
    };
    let excluded = kinds(&rule["exclude"]);
    let is_derived = rule["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("autogen-"));
    !is_derived
        && kinds(&rule["match"]).iter().any(|kind| names_pods(kind))
        && (excluded.is_empty() || excluded.iter().any(|kind| names_pods(kind)))
}

fn names_pods(kind: &str) -> bool {
    let kind = kind.rsplit_once('/').map_or(kind, |(_, kind)| kind);
    kind.split('.').next() == Some("Pod")
}

// === impl Controllers ===

impl Controllers {
    /// The kinds for which Kyverno derives policies from one with `spec`.
    pub(crate) fn of(spec: &Value) -> Vec<Self> {
        if !is_on_pods_alone(&spec["matchConstraints"]) {
            return Vec::new();
        }
        let chosen = spec["autogen"]["podControllers"]["controllers"].as_array();
        let is_chosen = |resource: &str| chosen.is_none_or(|chosen| chosen.contains(&Value::from(resource)));
        [false, true]
            .into_iter()
            .map(|is_cron_job| {
                let mut resources: BTreeMap<_, Vec<_>> = BTreeMap::new();
                for (resource, group, by_jobs) in KINDS {
                    if by_jobs == is_cron_job && is_chosen(resource) {
                        resources.entry(group).or_default().push(resource);
                    }
                }
                Self {
                    is_cron_job,
                    resources,
                }
            })
            .filter(|controllers| !controllers.resources.is_empty())
            .collect()
    }

    /// The suffix of a derived policy's name.
    pub(crate) const fn suffix(&self) -> &'static str {
        if self.is_cron_job {
            "autogen-cronjobs"
        } else {
            "autogen-defaults"
        }
    }

    /// The path of the Pod template in these kinds.
    pub(crate) const fn template(&self) -> &'static str {
        if self.is_cron_job {
            "spec.jobTemplate.spec.template"
        } else {
            "spec.template"
        }
    }

    /// The `matchConstraints` for these kinds.
    pub(crate) fn constraints(&self, of_pods: &Value) -> Value {
        let operations = &of_pods["resourceRules"][0]["operations"];
        let rules: Vec<Value> = self
            .resources
            .iter()
            .map(|(group, resources)| {
                json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources})
            })
            .collect();
        let mut constraints = json!({"resourceRules": rules});
        if !of_pods["namespaceSelector"].is_null() {
            constraints["namespaceSelector"] = of_pods["namespaceSelector"].clone();
        }
        constraints
    }
}

/// Derives the spec of a ValidatingPolicy on the kinds that create Pods.
pub(crate) fn validating(spec: &Value, controllers: &Controllers) -> Value {
    let mut derived = spec.clone();
    let template = controllers.template();
    each_text(&mut derived, &|text| {
        let text = replaced(text, "object.spec", &format!("object.{template}.spec"));
        let text = replaced(&text, "oldObject.spec", &format!("oldObject.{template}.spec"));
        let text = replaced(&text, "object.metadata", &format!("object.{template}.metadata"));
        replaced(
            &text,
            "oldObject.metadata",
            &format!("oldObject.{template}.metadata"),
        )
    });
    derived["matchConstraints"] = controllers.constraints(&spec["matchConstraints"]);
    derived
}

fn each_text(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(entries) => entries.values_mut().for_each(|value| each_text(value, change)),
        _ => {}
    }
}

/// Replaces every `from` by `to`, unless `.namespace` follows: a template has no namespace.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut parts = text.split(from);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let is_namespace = rest.strip_prefix(".namespace").is_some_and(|after| {
            !after.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
        });
        result.push_str(if is_namespace { from } else { to });
        result.push_str(rest);
    }
    result
}

/// Whether Kyverno derives policies from one with these constraints (`CanAutoGen`).
fn is_on_pods_alone(constraints: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        value => value.is_null(),
    };
    let selector = &constraints["objectSelector"];
    let rules = constraints["resourceRules"].as_array();
    let Some([rule]) = rules.map(Vec::as_slice) else {
        return false;
    };
    is_empty(&selector["matchLabels"])
        && is_empty(&selector["matchExpressions"])
        && is_empty(&constraints["excludeResourceRules"])
        && is_empty(&rule["resourceNames"])
        && rule["apiGroups"] == json!([""])
        && rule["apiVersions"] == json!(["v1"])
        && rule["resources"] == json!(["pods"])
        && !is_empty(&rule["operations"])
}

/// Derives the spec of a MutatingPolicy on the kinds that create Pods. JSON patches are not
/// changed.
///
/// # Errors
///
/// The index of a mutation that cannot be applied once derived, because its types are not those of
/// the fields.
pub(crate) fn mutating(spec: &Value, controllers: &Controllers) -> Result<Value, usize> {
    let mut derived = spec.clone();
    let template = controllers.template();
    for condition in derived["matchConditions"].as_array_mut().into_iter().flatten() {
        if let Some(Value::String(text)) = condition.get_mut("expression") {
            *text = within_template(text, template);
        }
    }
    for (index, mutation) in derived["mutations"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if !mutation["applyConfiguration"].is_object() {
            continue;
        }
        if let Some(Value::String(text)) = mutation.pointer_mut("/applyConfiguration/expression") {
            *text = wrap_in_template(&within_template(text, template), template).ok_or(index)?;
        }
    }
    derived["matchConstraints"] = controllers.constraints(&spec["matchConstraints"]);
    Ok(derived)
}

/// Replaces the paths of the Pod's spec, labels and annotations by those in the template, after
/// `object`, `oldObject` and the type name `Object`.
fn within_template(text: &str, template: &str) -> String {
    let mut text = text.to_owned();
    for field in ["spec", "metadata.labels", "metadata.annotations"] {
        text = at_words(&text, field, &format!("{template}.{field}"));
    }
    text
}

fn at_words(text: &str, field: &str, to: &str) -> String {
    let mut result = String::with_capacity(text.len() * 2);
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let variable = ["oldObject", "object", "Object"].into_iter().find(|variable| {
            let after = rest
                .strip_prefix(variable)
                .and_then(|after| after.strip_prefix('.'));
            !is_word(before) && after.is_some_and(|after| after.starts_with(field))
        });
        let taken = match variable {
            Some(variable) => {
                result.push_str(variable);
                result.push('.');
                result.push_str(to);
                before = 'x';
                variable.len() + 1 + field.len()
            }
            None => {
                result.push(first);
                before = first;
                first.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    result
}

/// Wraps `Object{…}` into an `Object{…}` that has it as its template.
fn wrap_in_template(text: &str, template: &str) -> Option<String> {
    let Some(content) = text
        .trim()
        .strip_prefix("Object")
        .and_then(|rest| rest.trim_start().strip_prefix('{'))
    else {
        return Some(text.to_owned());
    };
    // The metadata of a template has another type than that of a Pod.
    if content.contains("Object.metadata") {
        return None;
    }
    let mut depth = 1_usize;
    let end = content.char_indices().find_map(|(at, character)| {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let (inner, rest) = content.split_at_checked(end)?;
    let mut start = String::new();
    let mut name = "Object".to_owned();
    for field in template.split('.') {
        start.push_str(&format!("{name}{{{field}: "));
        name = format!("{name}.{field}");
    }
    let closing = "}".repeat(template.split('.').count());
    Some(format!(
        "{start}{name}{{{inner}}}{closing}{}",
        rest.strip_prefix('}')?
    ))
}

// Expressions that both Kyverno and Kubernetes compile, but with different meanings.

/// Lists of objects with expressions, and the fields of the expressions.
const EXPRESSIONS: [(&str, &[&str]); 5] = [
    ("matchConditions", &["expression"]),
    ("variables", &["expression"]),
    ("validations", &["expression", "messageExpression"]),
    ("auditAnnotations", &["valueExpression"]),
    ("mutations", &[]),
];

/// Adapts every expression of `policy`, so that it means the same to Kubernetes as to Kyverno, or
/// refuses it:
///
/// - If there is no object, Kyverno passes an empty one, and Kubernetes null.
/// - In Kyverno, `.orValue()` of a value that is not an optional returns the value; in later
///   versions of Kubernetes it is an error.
/// - For a request for a Namespace, Kyverno passes a `namespaceObject`, and Kubernetes null.
pub(crate) fn adapt(policy: &mut KyvernoPolicy<'_>) {
    let operations = policy.operations();
    let matches_namespaces = policy.matches_namespaces();
    let mut optional = Vec::new();
    for (list, fields) in EXPRESSIONS {
        let count = policy.spec[list].as_array().map_or(0, Vec::len);
        for index in 0..count {
            let path = spec_path(&[list]).index(index);
            for (steps, path) in places(&policy.spec[list][index], list, fields, &path) {
                let Some(text) = at(&policy.spec[list][index], &steps).as_str().map(str::to_owned) else {
                    continue;
                };
                match adapted(&text, operations, matches_namespaces, &optional) {
                    Ok(adapted) => {
                        let pointer = format!("/{list}/{index}/{}", steps.join("/"));
                        if let Some(text) = policy.spec.pointer_mut(&pointer) {
                            *text = adapted.into();
                        }
                    }
                    Err(reason) => policy.made.refuse(policy.document, &path, reason),
                }
                if list == "variables"
                    && is_optional(&text, &optional)
                    && let Some(name) = policy.spec[list][index]["name"].as_str()
                {
                    optional.push(name.to_owned());
                }
            }
        }
    }
}

/// The positions of the expressions in one item.
fn places(item: &Value, list: &str, fields: &[&str], path: &FieldPath) -> Vec<(Vec<String>, FieldPath)> {
    let fields = fields
        .iter()
        .map(|field| (vec![(*field).to_owned()], path.field(field)));
    if list != "mutations" {
        return fields.collect();
    }
    ["applyConfiguration", "jsonPatch"]
        .into_iter()
        .filter(|kind| item[kind].is_object())
        .map(|kind| {
            let steps = vec![kind.to_owned(), "expression".to_owned()];
            (steps, path.field(kind).field("expression"))
        })
        .collect()
}

fn at<'v>(item: &'v Value, steps: &[String]) -> &'v Value {
    steps.iter().fold(item, |value, step| &value[step.as_str()])
}

fn adapted(
    text: &str,
    operations: WrittenOperations,
    matches_namespaces: bool,
    optional: &[String],
) -> Result<String, String> {
    // A syntax error is reported when the expression is compiled.
    let Ok(plain) = plain_or_values(text, optional) else {
        return Ok(text.to_owned());
    };
    if let Some((line, column)) = plain.first() {
        return Err(format!(
            "{line}:{column}: `.orValue()` of what is no optional value is an error in Kubernetes: select with `.?` before it"
        ));
    }
    let uses = |variable: &str| variable_uses(text, variable).map_err(|error| error.to_string());
    if matches_namespaces && !uses("namespaceObject")?.is_empty() {
        return Err(
            "of a Namespace itself `namespaceObject` is null in Kubernetes, and the Namespace in Kyverno"
                .to_owned(),
        );
    }
    let mut found: Vec<(&str, VariableUse)> = Vec::new();
    for (variable, is_absent) in [("object", operations.deletes), ("oldObject", operations.creates)] {
        if is_absent {
            let uses = uses(variable)?.into_iter();
            found.extend(
                uses.filter(|one| one.is_presence_test || one.fields.is_empty())
                    .map(|one| (variable, one)),
            );
        }
    }
    found.sort_by_key(|(_, one)| one.range.start);
    let mut adapted = String::with_capacity(text.len() * 2);
    let mut end = 0;
    for (variable, one) in found {
        adapted.push_str(text.get(end..one.range.start).unwrap_or_default());
        let fields: String = one.fields.iter().map(|field| format!(".{field}")).collect();
        let value = format!("({variable} == null ? dyn({{}}) : {variable}){fields}");
        adapted.push_str(&match one.is_presence_test {
            true => format!("has({value})"),
            false => value,
        });
        end = one.range.end;
    }
    adapted.push_str(text.get(end..).unwrap_or_default());
    Ok(adapted)
}

/// Whether `text` evaluates to an optional.
pub(crate) fn is_optional(text: &str, optional: &[String]) -> bool {
    let asked = format!("({text}\n).orValue(0)");
    plain_or_values(&asked, optional).is_ok_and(|plain| plain.is_empty())
}
