//! Selectors of kinds as in Kyverno: `Pod`, `apps/v1/Deployment`, `Pod/exec`, `*`.

use std::collections::BTreeSet;

use crate::kyverno::expression::{CelCondition, literal, matches_wildcard, one_of};
use portcullis_policy::manifest;

/// A selector of kinds, parsed as in `pkg/utils/kube/kind.go` of Kyverno.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KindSelector {
    group: String,
    version: String,
    kind: String,
    subresource: String,
    /// The resource of the kind, if Kubernetes serves it.
    resource: Option<&'static str>,
}

/// Kinds that Kyverno's default `resourceFilters` exclude.
const FILTERED: [&str; 10] = [
    "Event",
    "Node",
    "APIService",
    "TokenReview",
    "SubjectAccessReview",
    "SelfSubjectAccessReview",
    "Binding",
    "ReplicaSet",
    "EphemeralReport",
    "ClusterEphemeralReport",
];

/// Kinds of which they also exclude the subresources.
const FILTERED_SUBRESOURCES: [&str; 3] = ["Node", "APIService", "ReplicaSet"];

/// A part of a resource rule.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) names: Vec<String>,
}

// === impl KindSelector ===

impl KindSelector {
    /// # Errors
    ///
    /// The selector is invalid, or resource rules cannot express it.
    pub(crate) fn parse(written: &str) -> Result<Self, String> {
        let [group, version, kind, subresource] = parts(written).ok_or_else(|| {
            format!("`{written}` is no kind: write `Kind`, `version/Kind` or `group/version/Kind`")
        })?;
        let resource = resource_of(&group, &kind);
        if resource.is_none() && kind != "*" && !subresource.is_empty() {
            return Err(format!(
                "which resource `{kind}` is, whose subresource is meant, only its cluster knows: write a \
                 ValidatingAdmissionPolicy for the resource"
            ));
        }
        if [&group, &version, &subresource]
            .into_iter()
            .any(|part| part != "*" && part.contains(['*', '?']))
        {
            return Err(
                "only kinds, and `*` as group, version or subresource, may have wildcards".to_owned(),
            );
        }
        Ok(Self {
            group,
            version,
            kind,
            subresource,
            resource,
        })
    }

    /// The resources of the kind; for an unknown kind, all resources of its group.
    pub(crate) fn resources(&self) -> impl Iterator<Item = Resource> {
        let mut names = Vec::new();
        let name = self.resource.unwrap_or("*");
        match self.subresource.as_str() {
            "" => names.push(name.to_owned()),
            "*" if name == "*" => names.push("*/*".to_owned()),
            subresource => names.push(format!("{name}/{subresource}")),
        }
        // In Kyverno, a policy on Pods also applies to their ephemeral containers.
        if self.subresource.is_empty() && (name == "pods" || self.kind == "*") {
            names.push("pods/ephemeralcontainers".to_owned());
        }
        std::iter::once(Resource {
            group: self.group.clone(),
            version: self.version.clone(),
            names,
        })
    }

    /// Whether resource rules alone determine the kind.
    pub(crate) fn is_determined_by_rules(&self) -> bool {
        self.kind == "*" || self.resource.is_some() && (self.group != "*" || !self.subresource.is_empty())
    }

    /// Whether Kubernetes serves the kind.
    pub(crate) const fn is_served(&self) -> bool {
        self.resource.is_some()
    }

    /// The group, version and kind, if Kubernetes serves it.
    pub(crate) fn served(&self) -> Option<[String; 3]> {
        let groups: BTreeSet<&str> = manifest::built_in_resources().map(|(group, _)| group).collect();
        let mut groups = groups
            .into_iter()
            .filter(|own| self.group == "*" || self.group == *own);
        let group = groups.find(|own| manifest::built_in_resource(own, &self.kind, "").is_some())?;
        let version = if self.version == "*" { "v1" } else { &self.version };
        Some([group.to_owned(), version.to_owned(), self.kind.clone()])
    }

    pub(crate) fn has_subresource(&self) -> bool {
        !self.subresource.is_empty()
    }

    /// Whether Kyverno's default `resourceFilters` exclude every object of the kind.
    pub(crate) fn is_filtered(&self) -> bool {
        match self.subresource.as_str() {
            "" => FILTERED.contains(&self.kind.as_str()),
            "binding" if self.kind == "Pod" => true,
            _ => FILTERED_SUBRESOURCES.contains(&self.kind.as_str()),
        }
    }

    /// The condition that the default filters do not exclude a kind that is selected by wildcards.
    pub(crate) fn filter(selectors: &[Self]) -> CelCondition {
        match selectors.iter().any(Self::has_wildcard) {
            true => one_of("request.kind.kind", &FILTERED).not(),
            false => CelCondition::constant(true),
        }
    }

    fn means(&self, kind: &str) -> bool {
        self.kind == kind || self.kind == "*"
    }

    fn has_wildcard(&self) -> bool {
        self.kind.contains(['*', '?'])
    }

    /// The condition that the request is for one of the kinds. `is_determined_by_rules` tells that the resource
    /// rules match only their resources, and `has_subresources` that these may include
    /// subresources.
    pub(crate) fn any(selectors: &[Self], is_stated: bool, has_subresources: bool) -> CelCondition {
        let is_plain = |one: &&Self| {
            let is_in_rules = is_stated && one.resource.is_some();
            !has_subresources
                && !one.has_wildcard()
                && (is_in_rules || one.group == "*" && one.version == "*")
        };
        let (plain, others): (Vec<&Self>, Vec<&Self>) = selectors.iter().partition(is_plain);
        let kinds: Vec<&str> = plain.iter().map(|one| one.kind.as_str()).collect();
        let mut conditions = vec![one_of("request.kind.kind", &kinds)];
        conditions.extend(others.iter().map(|one| one.condition(has_subresources)));
        CelCondition::any(conditions)
    }

    /// The condition that the request is for the kind.
    fn condition(&self, has_subresources: bool) -> CelCondition {
        let mut parts = Vec::new();
        if let (Some(resource), false) = (self.resource, self.subresource.is_empty()) {
            parts.push(one_of("request.resource.resource", &[resource]));
        } else if self.kind != "*" {
            parts.push(matches_wildcard("request.kind.kind", &self.kind));
        }
        match self.subresource.as_str() {
            "*" => {}
            "" if !has_subresources => {}
            "" if self.means("Pod") => parts.push(CelCondition::relation(
                "request.?subResource.orValue('') in ['', 'ephemeralcontainers']",
            )),
            subresource => parts.push(CelCondition::relation(format!(
                "request.?subResource.orValue('') == {}",
                literal(subresource)
            ))),
        }
        for (part, value) in [("group", &self.group), ("version", &self.version)] {
            if value != "*" {
                parts.push(one_of(&format!("request.kind.{part}"), &[value]));
            }
        }
        CelCondition::all(parts)
    }
}

/// Splits a selector into group, version, kind and subresource.
fn parts(written: &str) -> Option<[String; 4]> {
    let (before, last) = written
        .rsplit_once('/')
        .map_or((None, written), |(before, last)| (Some(before), last));
    let mut parts: Vec<&str> = before.into_iter().flat_map(|before| before.split('/')).collect();
    parts.extend(last.split('.'));
    let is_version = |part: &str| {
        let digits = part.strip_prefix('v').unwrap_or_default();
        part == "*" || digits.starts_with(|first: char| first.is_ascii_digit())
    };
    let parts = match *parts.as_slice() {
        [kind] => ["*", "*", kind, ""],
        ["*", "*"] => ["*", "*", "*", "*"],
        ["*", subresource] if subresource.to_lowercase() == subresource => ["*", "*", "*", subresource],
        [version, kind] if is_version(version) => ["*", version, kind, ""],
        [kind, subresource] => ["*", "*", kind, subresource],
        [version, kind, subresource] if is_version(version) => ["*", version, kind, subresource],
        [group, version, kind] => [group, version, kind, ""],
        [group, version, kind, subresource] => [group, version, kind, subresource],
        _ => return None,
    };
    Some(parts.map(str::to_owned))
}

/// The resource of a kind that Kubernetes serves.
fn resource_of(group: &str, kind: &str) -> Option<&'static str> {
    let groups: BTreeSet<&str> = manifest::built_in_resources().map(|(group, _)| group).collect();
    let mut found = groups
        .into_iter()
        .filter(|own| group == "*" || group == *own)
        .filter_map(|own| manifest::built_in_resource(own, kind, ""));
    found.next().map(|(_, resource)| resource)
}
