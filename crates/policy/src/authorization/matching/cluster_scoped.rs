//! Resources that are known to be cluster-scoped, and patterns of namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The cluster-scoped resources that kube-apiserver 1.36 or its aggregator serves, by group, and
/// those of Portcullis. For other custom resources see [`ClusterScoped`].
const CLUSTER_SCOPED: [(&str, &[&str]); 18] = [
    (
        "",
        &["componentstatuses", "namespaces", "nodes", "persistentvolumes"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("authentication.k8s.io", &["selfsubjectreviews", "tokenreviews"]),
    (
        "authorization.k8s.io",
        &[
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
    (
        "certificates.k8s.io",
        &["certificatesigningrequests", "clustertrustbundles"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["flowschemas", "prioritylevelconfigurations"],
    ),
    ("imagepolicy.k8s.io", &["imagereviews"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    (
        "networking.k8s.io",
        &["ingressclasses", "ipaddresses", "servicecidrs"],
    ),
    ("node.k8s.io", &["runtimeclasses"]),
    (
        "portcullis.dev",
        &[
            "accessrequests",
            "admissionexceptions",
            "authorizationinvariants",
            "authorizationpolicies",
        ],
    ),
    (
        "rbac.authorization.k8s.io",
        &["clusterrolebindings", "clusterroles"],
    ),
    (
        "resource.k8s.io",
        &[
            "deviceclasses",
            "devicetaintrules",
            "resourcepoolstatusrequests",
            "resourceslices",
        ],
    ),
    ("scheduling.k8s.io", &["priorityclasses"]),
    (
        "storage.k8s.io",
        &[
            "csidrivers",
            "csinodes",
            "storageclasses",
            "volumeattachments",
            "volumeattributesclasses",
        ],
    ),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
];

/// Whether `resource` of `group` is known to be cluster-scoped. A `*` is not.
#[must_use]
pub fn is_known_cluster_scoped(group: &str, resource: &str) -> bool {
    CLUSTER_SCOPED
        .iter()
        .any(|(known, resources)| *known == group && resources.contains(&resource))
}

/// Cluster-scoped custom resources, according to the CustomResourceDefinitions of a cluster.
///
/// Groups of Kubernetes and Portcullis are left out, because definitions do not determine what is
/// served there. Clones share their content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterScoped(Option<Arc<ResourcesByGroup>>);

type ResourcesByGroup = BTreeMap<String, BTreeSet<String>>;

impl ClusterScoped {
    /// The empty set.
    pub const NONE: Self = Self(None);

    /// Adds `resource` of `group`, unless it is a group of Kubernetes or Portcullis.
    pub fn add(&mut self, group: &str, resource: &str) {
        if !is_built_in(group) {
            let groups = Arc::make_mut(self.0.get_or_insert_default());
            let resources = groups.entry(group.to_owned()).or_default();
            resources.insert(resource.to_owned());
        }
    }

    /// Adds all resources of `other`.
    pub fn extend(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (_, None) => {}
            (none @ None, other) => *none = other,
            (Some(groups), Some(other)) => {
                let groups = Arc::make_mut(groups);
                for (group, resources) in Arc::unwrap_or_clone(other) {
                    groups.entry(group).or_default().extend(resources);
                }
            }
        }
    }

    /// Whether it contains no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The resources by group and name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|groups| groups.iter())
            .flat_map(|(group, resources)| {
                resources
                    .iter()
                    .map(|resource| (group.as_str(), resource.as_str()))
            })
    }

    /// All resources that are known to be cluster-scoped, by group and name, the built-in ones
    /// first.
    pub fn known(&self) -> impl Iterator<Item = (&str, &str)> {
        let built_in = CLUSTER_SCOPED.iter();
        let built_in =
            built_in.flat_map(|(group, resources)| resources.iter().map(|resource| (*group, *resource)));
        built_in.chain(self.iter())
    }

    /// Whether `resource` of `group` is known to be cluster-scoped, because it is built in or
    /// according to its definition. A `*` is not.
    #[must_use]
    pub fn contains(&self, group: &str, resource: &str) -> bool {
        is_known_cluster_scoped(group, resource)
            || self
                .0
                .as_ref()
                .and_then(|groups| groups.get(group))
                .is_some_and(|resources| resources.contains(resource))
    }
}

/// Whether the group belongs to Kubernetes or Portcullis. Groups without a dot belong to
/// Kubernetes, and so do those under `k8s.io` and `kubernetes.io`, where a CustomResourceDefinition
/// needs an approval.
fn is_built_in(group: &str) -> bool {
    let under =
        |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    !group.contains('.') || under("k8s.io") || under("kubernetes.io") || group == "portcullis.dev"
}

// Namespaces in rules: `""`, `team-a`, `team-*`.

/// Selects requests by their namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamespacePattern {
    /// `""`: requests without a namespace.
    ClusterScope,
    /// `team-a`: requests in this namespace.
    Named(String),
    /// `team-*`: requests in a namespace with this prefix. The prefix of `*` is empty: requests in
    /// any namespace.
    Prefix(String),
}

impl NamespacePattern {
    /// Whether the pattern matches the namespace of a request, which is empty for none.
    #[must_use]
    pub fn matches(&self, namespace: &str) -> bool {
        match self {
            Self::ClusterScope => namespace.is_empty(),
            Self::Named(name) => name == namespace,
            Self::Prefix(prefix) => !namespace.is_empty() && namespace.starts_with(prefix),
        }
    }

    /// Whether the pattern matches everything that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(prefix), Self::Named(text) | Self::Prefix(text)) => text.starts_with(prefix),
            _ => self == other,
        }
    }
}

impl From<&str> for NamespacePattern {
    fn from(written: &str) -> Self {
        Self::from(written.to_owned())
    }
}

impl From<String> for NamespacePattern {
    fn from(mut text: String) -> Self {
        if text.is_empty() {
            Self::ClusterScope
        } else if text.ends_with('*') {
            text.pop();
            Self::Prefix(text)
        } else {
            Self::Named(text)
        }
    }
}

/// The pattern as manifests spell it.
impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterScope => Ok(()),
            Self::Named(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_tells_of_custom_resources_alone() {
        let mut scoped = ClusterScoped::default();
        for (group, resource) in [
            ("example.com", "widgets"),
            ("networking.k8s.io", "networkpolicies"),
            ("apps", "deployments"),
            ("", "pods"),
            ("k8s.io", "things"),
            ("policy.kubernetes.io", "things"),
            ("portcullis.dev", "others"),
            ("notk8s.io", "things"),
        ] {
            scoped.add(group, resource);
        }
        let known: Vec<_> = scoped.iter().collect();
        assert_eq!(known, [("example.com", "widgets"), ("notk8s.io", "things")]);
        assert!(scoped.contains("example.com", "widgets") && scoped.contains("", "nodes"));
        assert!(!scoped.contains("example.com", "gadgets") && !scoped.contains("example.org", "widgets"));
        assert!(!scoped.contains("networking.k8s.io", "networkpolicies"));
    }

    #[test]
    fn only_what_is_known_is_cluster_scoped() {
        for (group, resource) in [
            ("", "nodes"),
            ("", "namespaces"),
            ("storage.k8s.io", "csinodes"),
            ("portcullis.dev", "authorizationpolicies"),
            ("portcullis.dev", "admissionexceptions"),
        ] {
            assert!(is_known_cluster_scoped(group, resource), "{group}/{resource}");
        }
        for (group, resource) in [
            ("", "pods"),
            ("*", "nodes"),
            ("", "*"),
            ("example.com", "nodes"),
            ("apps", "deployments"),
        ] {
            assert!(!is_known_cluster_scoped(group, resource), "{group}/{resource}");
        }
    }

    #[test]
    fn no_namespace_is_none_of_those_that_begin_with_anything() {
        for (pattern, matches, others) in [
            ("", &[""][..], &["a", "*"][..]),
            ("*", &["a", "*"], &[""]),
            ("a", &["a"], &["", "ab", "A"]),
            ("team-*", &["team-", "team-a"], &["", "team", "a-team-a"]),
            ("a**", &["a*", "a*b"], &["a", "ab"]),
        ] {
            let read = NamespacePattern::from(pattern);
            assert_eq!(read.to_string(), pattern);
            assert!(matches.iter().all(|one| read.matches(one)), "{pattern}");
            assert!(!others.iter().any(|one| read.matches(one)), "{pattern}");
        }
        let covers =
            |wide: &str, narrow: &str| NamespacePattern::from(wide).covers(&NamespacePattern::from(narrow));
        assert!(covers("*", "a") && covers("a*", "ab*") && covers("", "") && covers("a", "a"));
        assert!(!covers("*", "") && !covers("ab*", "a*") && !covers("a", "a*") && !covers("", "a"));
    }
}
