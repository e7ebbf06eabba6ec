//! Rules for what makes Pods, as Kyverno derives them from those on Pods (`pkg/autogen/v1`).

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::matching::texts;

/// The kinds that make Pods, with group and version; the last makes Jobs.
const KINDS: [(&str, &str); 7] = [
    ("DaemonSet", "apps/v1/DaemonSet"),
    ("Deployment", "apps/v1/Deployment"),
    ("Job", "batch/v1/Job"),
    ("ReplicaSet", "apps/v1/ReplicaSet"),
    ("ReplicationController", "v1/ReplicationController"),
    ("StatefulSet", "apps/v1/StatefulSet"),
    ("CronJob", "batch/v1/CronJob"),
];

/// The annotation that chooses among them.
const ANNOTATION: &str = "pod-policies.kyverno.io/autogen-controllers";

/// The rules that Kyverno derives from `rule`, one of those of the policy.
pub(crate) fn derived(policy: &Value, rule: &Value) -> Vec<Value> {
    if !rules_allow(&policy["spec"]) || !is_on_pods(rule) {
        return Vec::new();
    }
    let chosen = policy["metadata"]["annotations"][ANNOTATION].as_str();
    let is_chosen = |kind: &str| chosen.is_none_or(|chosen| chosen.split(',').any(|one| one == kind));
    let kinds: Vec<&str> = KINDS
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
    let template = format!("spec.{}", template.join("."));
    renamed(&rule, is_cel, &template)
}

/// The rule for `kinds` in place of Pods.
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
        // Kyverno asks a derived rule about these kinds alone.
        if let Some(filters) = block["any"].as_array_mut().filter(|_| name == "match") {
            filters.retain_mut(|filter| keep_makers(&mut filter["resources"]["kinds"], kinds));
        }
    }
    rule
}

/// Leaves what makes Pods among the kinds; false, if nothing is left.
fn keep_makers(written: &mut Value, kinds: &[&str]) -> bool {
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

/// Kyverno replaces text in the whole rule, as JSON.
fn renamed(rule: &Value, is_cel: bool, template: &str) -> Value {
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

/// Whether the rules of the policy have nothing that keeps Kyverno from deriving others.
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
        texts(&resources["kinds"]).any(|kind| kind == "Pod" || KINDS.iter().any(|(maker, _)| *maker == kind))
    };
    filters.iter().all(|resources| is_by_kind(resources))
        && filters.iter().any(|resources| names_maker(resources))
}

/// Whether a rule is on Pods, and leaves out nothing but Pods.
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
