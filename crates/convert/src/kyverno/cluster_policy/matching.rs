//! `match` and `exclude` of a rule: resource rules, and conditions for what these cannot express.
//!
//! As in `pkg/engine/utils/match.go` of Kyverno, all fields of a filter must hold, one value of
//! each list suffices, and names may have wildcards.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::fields::{self, Part};
use super::kinds::{KindSelector, Resource};
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::{
    CelCondition, field, has_wildcard, is_wildcard_match, literal, literals, matches_wildcard, one_of,
    optional_field,
};
use portcullis_cel::Type;
use portcullis_policy::admission::GroupVersionKind;
use portcullis_policy::admission::apply::Schemas;

/// The namespace of the request; for a Namespace, its name.
pub(crate) const NAMESPACE: &str = "request.?namespace.orValue('')";

/// The object to which filters are applied, and for which operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterSubject {
    /// The object in CEL.
    pub(crate) object: &'static str,
    /// The assumed operation, if it is not that of the request.
    pub(crate) operation: Option<&'static str>,
}

/// `match` and `exclude` of a rule.
#[derive(Debug)]
pub(crate) struct Matching {
    /// The filters of `match`; `is_any` tells whether one of them suffices.
    filters: Vec<Filter>,
    is_any: bool,
    excluded: Vec<Filter>,
    is_any_excluded: bool,
    /// The filters of PolicyExceptions.
    pub(crate) exceptions: Vec<Filters>,
}

/// Filters; `is_any` tells whether one of them suffices.
#[derive(Debug, Clone)]
pub(crate) struct Filters {
    all: Vec<Filter>,
    is_any: bool,
}

/// An item of `any` or `all`, or the fields next to them.
#[derive(Debug, Clone)]
struct Filter {
    kinds: Vec<KindSelector>,
    operations: Vec<String>,
    /// The other fields, as written.
    resources: Value,
    subjects: Value,
}

// === impl Matching ===

impl Matching {
    /// Reads `match` and `exclude` of `rule`.
    pub(crate) fn read(rule: &Value) -> Result<Self, Refusal> {
        let (filters, is_any) = filters(&rule["match"]).map_err(|refusal| refusal.within("match"))?;
        let (excluded, is_any_excluded) =
            filters_or_none(&rule["exclude"]).map_err(|refusal| refusal.within("exclude"))?;
        let named = || filters.iter().flat_map(|filter| &filter.kinds);
        if named().next().is_none() {
            return conversion::of("match", "it names no kind, and Kyverno sends it no request");
        }
        if named().all(KindSelector::is_filtered) {
            return conversion::of(
                "match",
                "Kyverno's default `resourceFilters` leave out every object of these kinds, so that the rule has \
                 no effect unless they were changed: write a ValidatingAdmissionPolicy for the resource",
            );
        }
        Ok(Self {
            filters,
            is_any,
            excluded,
            is_any_excluded,
            exceptions: Vec::new(),
        })
    }

    /// The resource rules of the policy for a rule that applies to `operations`.
    pub(crate) fn resource_rules(&self, operations: &[&str]) -> Vec<Value> {
        let mut rules: Vec<Value> = Vec::new();
        for filter in &self.filters {
            let names = |operation: &&&str| {
                filter.operations.is_empty() || filter.operations.iter().any(|own| own == **operation)
            };
            let operations: Vec<&str> = operations.iter().filter(names).copied().collect();
            if operations.is_empty() {
                continue;
            }
            let kinds = filter.kinds.iter().filter(|kind| !kind.is_filtered());
            for resource in kinds.flat_map(KindSelector::resources) {
                add_rule(&mut rules, resource, &operations);
            }
        }
        rules
    }

    /// Whether the rule may apply to the operation.
    pub(crate) fn may_apply_to(&self, operation: &str) -> bool {
        let names = |filter: &Filter| {
            filter.operations.is_empty() || filter.operations.iter().any(|own| own == operation)
        };
        self.filters.iter().any(names)
    }

    /// The group, version and kind of all matched kinds; `None` for each that Kubernetes does not
    /// serve.
    pub(crate) fn served_kinds(&self) -> Vec<Option<[String; 3]>> {
        let kinds = self.filters.iter().flat_map(|filter| &filter.kinds);
        kinds.map(KindSelector::served).collect()
    }

    /// The types of the objects, if Kubernetes serves all of them. Those of subresources are not
    /// known.
    pub(crate) fn types(&self) -> Vec<Type> {
        let declared = |kind: Option<[String; 3]>| {
            let [group, version, kind] = kind?;
            Schemas::builtin().declared(&GroupVersionKind {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
            })
        };
        if self.has_subresources() || !self.is_typed() {
            return Vec::new();
        }
        let types: Option<Vec<Type>> = self.served_kinds().into_iter().map(declared).collect();
        types.unwrap_or_default()
    }

    /// Whether Kubernetes serves the types of all objects.
    pub(crate) fn is_typed(&self) -> bool {
        let mut kinds = self.filters.iter().flat_map(|filter| &filter.kinds);
        kinds.all(KindSelector::is_served)
    }

    /// Whether requests for subresources may match, which includes CONNECT.
    pub(crate) fn has_subresources(&self) -> bool {
        let kinds = self.filters.iter().flat_map(|filter| &filter.kinds);
        kinds.into_iter().any(KindSelector::has_subresource)
    }

    /// Whether a condition depends on the labels of the namespace.
    pub(crate) fn uses_namespace_selector(&self) -> bool {
        let mut filters = self.filters.iter().chain(&self.excluded);
        filters.any(|filter| !filter.resources["namespaceSelector"].is_null())
    }

    /// The condition that Kyverno's default `resourceFilters` and `excludeGroups` do not exclude
    /// the request.
    pub(crate) fn default_filters(&self) -> CelCondition {
        let namespaces = ["kube-system", "kube-public", "kube-node-lease", "kyverno"];
        let kinds: Vec<KindSelector> = self
            .filters
            .iter()
            .flat_map(|filter| filter.kinds.clone())
            .collect();
        CelCondition::all([
            CelCondition::relation("'system:nodes' in request.userInfo.?groups.orValue([])").not(),
            one_of(NAMESPACE, &namespaces).not(),
            KindSelector::filter(&kinds),
        ])
    }

    /// The condition of `match` on `subject`, besides the resource rules.
    pub(crate) fn condition(&self, subject: FilterSubject) -> CelCondition {
        let conditions = self.filters.iter().map(|filter| filter.condition(subject, self));
        match self.is_any {
            true => CelCondition::any(conditions),
            false => CelCondition::all(conditions),
        }
    }

    /// The condition that the rule applies to `subject`, besides the resource rules.
    pub(crate) fn applies(&self, subject: FilterSubject) -> CelCondition {
        CelCondition::all([
            self.condition(subject),
            self.exclusion(subject).not(),
            self.excepted(subject).not(),
        ])
    }

    /// The condition that an exception applies to `subject`.
    pub(crate) fn excepted(&self, subject: FilterSubject) -> CelCondition {
        CelCondition::any(self.exceptions.iter().map(|exception| {
            let conditions = exception
                .all
                .iter()
                .map(|filter| self.filter_condition(filter, subject));
            match exception.is_any {
                true => CelCondition::any(conditions),
                false => CelCondition::all(conditions),
            }
        }))
    }

    /// The condition that `exclude` applies to `subject`.
    pub(crate) fn exclusion(&self, subject: FilterSubject) -> CelCondition {
        let conditions = self
            .excluded
            .iter()
            .map(|filter| self.filter_condition(filter, subject));
        match self.is_any_excluded || self.excluded.is_empty() {
            true => CelCondition::any(conditions),
            false => CelCondition::all(conditions),
        }
    }

    /// The condition of a filter on `subject` that does not rely on resource rules.
    fn filter_condition(&self, filter: &Filter, subject: FilterSubject) -> CelCondition {
        let kinds = filter.kinds(false, self.has_subresources());
        filter.holds(subject, kinds, filter.operation(subject))
    }
}

fn add_rule(rules: &mut Vec<Value>, resource: Resource, operations: &[&str]) {
    let mut rule = json!({
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "operations": operations,
        "resources": [],
    });
    let same = rules.iter_mut().find(|other| {
        ["apiGroups", "apiVersions", "operations"]
            .iter()
            .all(|field| other[*field] == rule[*field])
    });
    let (rule, is_new) = match same {
        Some(same) => (same, false),
        None => (&mut rule, true),
    };
    if let Some(resources) = rule["resources"].as_array_mut() {
        for name in resource.names {
            let name = Value::from(name);
            if !resources.contains(&name) {
                resources.push(name);
            }
        }
    }
    if is_new {
        let rule = rule.take();
        rules.push(rule);
    }
}

fn filters_or_none(block: &Value) -> Result<(Vec<Filter>, bool), Refusal> {
    match block.as_object().is_none_or(serde_json::Map::is_empty) {
        true => Ok((Vec::new(), true)),
        false => filters(block),
    }
}

/// Reads the filters of `match` or `exclude`. An empty filter matches nothing.
fn filters(block: &Value) -> Result<(Vec<Filter>, bool), Refusal> {
    fields::check(Part::Filter, block)?;
    for (list, is_any) in [("any", true), ("all", false)] {
        if let Some(written) = block[list].as_array().filter(|written| !written.is_empty()) {
            let filters = written.iter().enumerate().map(|(index, filter)| {
                Filter::read(filter).map_err(|refusal| refusal.within_index(index).within(list))
            });
            return Ok((filters.collect::<Result<_, _>>()?, is_any));
        }
    }
    Ok((vec![Filter::read(block)?], false))
}

// === impl Filters ===

impl Filters {
    /// Reads `match` of a PolicyException, in which operations and namespace selectors are refused.
    pub(crate) fn of_exception(written: &Value) -> Result<Self, Refusal> {
        let (all, is_any) = filters(written)?;
        for filter in &all {
            let fields = ["operations", "namespaceSelector"];
            if let Some(field) = fields
                .into_iter()
                .find(|field| !is_nothing(&filter.resources[*field]))
            {
                let reason =
                    "Kyverno looks at it in no exception as it does in policies: name objects or namespaces";
                return Err(Refusal::new(field, reason).within("resources"));
            }
        }
        Ok(Self { all, is_any })
    }
}

// === impl Filter ===

impl Filter {
    fn read(written: &Value) -> Result<Self, Refusal> {
        fields::check(Part::Filter, written)?;
        let resources = &written["resources"];
        fields::check(Part::Resources, resources).map_err(|refusal| refusal.within("resources"))?;
        let kinds = texts(&resources["kinds"]).map(|kind| {
            KindSelector::parse(kind).map_err(|reason| Refusal::new("kinds", reason).within("resources"))
        });
        let filter = Self {
            kinds: kinds.collect::<Result<_, _>>()?,
            operations: texts(&resources["operations"]).map(str::to_owned).collect(),
            resources: resources.clone(),
            subjects: written["subjects"].clone(),
        };
        for field in ["selector", "namespaceSelector"] {
            selects("", &resources[field])
                .map_err(|reason| Refusal::new(field, reason).within("resources"))?;
        }
        Ok(filter)
    }

    fn is_empty(&self) -> bool {
        let has_none = |value: &Value| match value {
            Value::Object(fields) => fields.values().all(is_nothing),
            other => is_nothing(other),
        };
        has_none(&self.resources) && has_none(&self.subjects)
    }

    /// The condition of the filter on `subject`, besides what the resource rules of `all` ensure.
    fn condition(&self, subject: FilterSubject, all: &Matching) -> CelCondition {
        let is_alone = all.filters.len() == 1;
        let kinds = match is_alone && self.kinds.iter().all(KindSelector::is_determined_by_rules) {
            true => CelCondition::constant(true),
            false => self.kinds(is_alone, all.has_subresources()),
        };
        let operation = match is_alone && subject.operation.is_none() {
            true => CelCondition::constant(true),
            false => self.operation(subject),
        };
        self.holds(subject, kinds, operation)
    }

    fn kinds(&self, is_stated: bool, has_subresources: bool) -> CelCondition {
        match self.kinds.is_empty() {
            true => CelCondition::constant(true),
            false => KindSelector::any(&self.kinds, is_stated, has_subresources),
        }
    }

    fn holds(&self, subject: FilterSubject, kinds: CelCondition, operation: CelCondition) -> CelCondition {
        if self.is_empty() {
            return CelCondition::constant(false);
        }
        let resources = &self.resources;
        let annotations = map(subject.object, "annotations");
        let labels = map(subject.object, "labels");
        let mut parts = vec![operation, kinds];
        let names: Vec<&str> = resources["name"]
            .as_str()
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect();
        let several: Vec<&str> = texts(&resources["names"]).collect();
        for names in [names, several] {
            if !names.is_empty() {
                parts.push(any_wildcard(&name(subject), &names));
            }
        }
        let namespaces: Vec<&str> = texts(&resources["namespaces"]).collect();
        if !namespaces.is_empty() {
            parts.push(any_wildcard(NAMESPACE, &namespaces));
        }
        for (key, value) in resources["annotations"].as_object().into_iter().flatten() {
            parts.push(has_entry(&annotations, key, value.as_str().unwrap_or_default()));
        }
        parts.extend(selects(&labels, &resources["selector"]));
        if !resources["namespaceSelector"].is_null() {
            // To Kyverno, a Namespace is not in a namespace.
            parts.push(CelCondition::relation("request.kind.kind != 'Namespace'"));
            let labels = "(namespaceObject == null ? {} : namespaceObject.metadata.?labels.orValue({}))";
            parts.extend(selects(labels, &resources["namespaceSelector"]));
        }
        parts.push(match subject.operation {
            None => subjects(&self.subjects),
            Some(_) => CelCondition::constant(is_anyone(&self.subjects)),
        });
        CelCondition::all(parts)
    }

    fn operation(&self, subject: FilterSubject) -> CelCondition {
        if self.operations.is_empty() {
            return CelCondition::constant(true);
        }
        let operations: Vec<&str> = self.operations.iter().map(String::as_str).collect();
        match subject.operation {
            Some(operation) => CelCondition::constant(operations.contains(&operation)),
            None => one_of("request.operation", &operations),
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

pub(crate) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The name of the object, or its `generateName` if it has none yet.
fn name(subject: FilterSubject) -> String {
    let object = subject.object;
    format!(
        "({object}.?metadata.?name.orValue('') != '' ? {object}.metadata.name : {object}.?metadata.?generateName.orValue(''))"
    )
}

/// The condition that the value matches one of the wildcard patterns.
pub(crate) fn any_wildcard(value: &str, patterns: &[&str]) -> CelCondition {
    let (with, without): (Vec<&str>, Vec<&str>) = patterns.iter().partition(|pattern| has_wildcard(pattern));
    let mut conditions = vec![one_of(value, &without)];
    conditions.extend(with.iter().map(|pattern| matches_wildcard(value, pattern)));
    CelCondition::any(conditions)
}

// Labels and annotations.

/// A map in the metadata, empty if it is absent.
fn map(object: &str, name: &str) -> String {
    format!("{object}.?metadata.?{name}.orValue({{}})")
}

/// The condition that `map` has an entry whose key and value match.
fn has_entry(map: &str, key: &str, value: &str) -> CelCondition {
    if has_wildcard(key) {
        let of_value = matches_wildcard(&format!("{map}[key]"), value);
        let found = CelCondition::all([matches_wildcard("key", key), of_value]);
        return CelCondition::primary(format!("{map}.exists(key, {found})"));
    }
    let entry = optional_field(map, key);
    match has_wildcard(value) || value.is_empty() {
        true => CelCondition::all([
            CelCondition::relation(format!("{} in {map}", literal(key))),
            matches_wildcard(&field(map, key), value),
        ]),
        false => CelCondition::relation(format!("{entry}.orValue('') == {}", literal(value))),
    }
}

/// The condition that a label selector matches the map of labels.
fn selects(labels: &str, selector: &Value) -> Result<CelCondition, &'static str> {
    let mut parts = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(has_entry(labels, key, value.as_str().unwrap_or_default()));
    }
    for requirement in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = requirement["key"].as_str().unwrap_or_default();
        let has = CelCondition::relation(format!("{} in {labels}", literal(key)));
        let is_one = CelCondition::relation(format!(
            "{} in {}",
            field(labels, key),
            literals(texts(&requirement["values"]))
        ));
        parts.push(match requirement["operator"].as_str() {
            Some("In") => CelCondition::all([has, is_one]),
            Some("NotIn") => CelCondition::all([has, is_one]).not(),
            Some("Exists") => has,
            Some("DoesNotExist") => has.not(),
            _ => return Err("an operator is `In`, `NotIn`, `Exists` or `DoesNotExist`"),
        });
    }
    Ok(CelCondition::all(parts))
}

// Subjects.

/// Whether the subjects include the user that Kyverno assumes for an old object.
fn is_anyone(written: &Value) -> bool {
    let matches = |subject: &Value| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => is_wildcard_match(name, "kyverno:kyverno-invalid-controller"),
            Some("Group") => is_wildcard_match(name, "kyverno:invalidgroup"),
            _ => false,
        }
    };
    written
        .as_array()
        .is_none_or(|written| written.is_empty() || written.iter().any(matches))
}

/// The condition that the user is one of the subjects; true if there are none.
fn subjects(written: &Value) -> CelCondition {
    let Some(written) = written.as_array().filter(|written| !written.is_empty()) else {
        return CelCondition::constant(true);
    };
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for subject in written {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or_default();
                users.push(format!("system:serviceaccount:{namespace}:{name}"));
            }
            Some("User") => users.push(name.to_owned()),
            Some("Group") => groups.push(name.to_owned()),
            _ => {}
        }
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let groups = groups.iter().map(|group| match has_wildcard(group) {
        true => CelCondition::primary(format!(
            "request.userInfo.?groups.orValue([]).exists(group, {})",
            matches_wildcard("group", group)
        )),
        false => CelCondition::relation(format!(
            "{} in request.userInfo.?groups.orValue([])",
            literal(group)
        )),
    });
    let mut any = vec![any_wildcard("request.userInfo.username", &users)];
    any.extend(groups);
    CelCondition::any(any)
}
