//! The review for an authorizer, and its cache key.

use std::sync::Arc;

use bytes::Bytes;

use portcullis_policy::authorization::SubjectAccessReviewVersion;
use portcullis_policy::engine::{Attributes, Requirement, Target};

/// From this size on an answer is not kept: the size of what users choose, all
/// of it. kube-apiserver counts the attributes alone.
const LARGE_BYTES: usize = 10_000;

/// The largest key, groups included.
const KEY_BYTES: usize = 64 << 10;

/// One question, in words.
#[derive(Debug)]
pub(crate) struct AuthorizerQuestion {
    pub(crate) key: Option<CacheKey>,
    attributes: Attributes<'static>,
}

/// What makes two questions one: the cluster they come from, and the whole spec
/// in v1. No digest, with which somebody could find another that collides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey(Arc<[u8]>);

// === impl AuthorizerQuestion ===

impl AuthorizerQuestion {
    pub(crate) fn new(attributes: &Attributes<'_>, key: Option<CacheKey>) -> Self {
        let attributes = attributes.clone().into_owned();
        Self { key, attributes }
    }

    pub(crate) fn into_attributes(self) -> Attributes<'static> {
        self.attributes
    }

    /// The body in which it is asked.
    pub(crate) fn body(&self, version: SubjectAccessReviewVersion) -> Bytes {
        version.encode(&self.attributes).into()
    }
}

// === impl CacheKey ===

impl CacheKey {
    /// The key of a question, unless it is too large to be kept.
    pub(crate) fn new(cluster: &str, attributes: &Attributes<'_>) -> Option<Self> {
        if chosen(attributes) >= LARGE_BYTES {
            return None;
        }
        let mut key = cluster.as_bytes().to_vec();
        // No cluster's name and no JSON holds this byte.
        key.push(0);
        key.extend(SubjectAccessReviewVersion::V1.encode_spec(attributes));
        (key.len() <= KEY_BYTES).then(|| Self(key.into()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// How many bytes of a question its user chose.
fn chosen(attributes: &Attributes<'_>) -> usize {
    let target = match &attributes.target {
        Target::NonResource { path, verb } => path.len() + verb.len(),
        Target::Resource(resource) => {
            let texts = [
                &resource.namespace,
                &resource.verb,
                &resource.group,
                &resource.version,
                &resource.resource,
                &resource.subresource,
                &resource.name,
            ];
            let selectors = resource.selectors.field.iter().chain(&resource.selectors.label);
            texts.iter().map(|text| text.len()).sum::<usize>() + selectors.map(requirement).sum::<usize>()
        }
    };
    let extra = attributes.user.extra.iter();
    target
        + extra
            .map(|(key, values)| key.len() + values.iter().map(|value| value.len() + 1).sum::<usize>())
            .sum::<usize>()
}

fn requirement(requirement: &Requirement<'_>) -> usize {
    let values = requirement.values.iter().map(|value| value.len() + 1);
    requirement.key.len() + requirement.operator.as_str().len() + values.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::engine::{Operator, ResourceAttributes, Selectors, User};

    fn listing(name: &str, values: &[&str], extra: &str) -> Attributes<'static> {
        Attributes {
            user: User {
                name: "u".into(),
                extra: vec![("k".into(), vec![extra.to_owned().into()])],
                ..User::default()
            },
            target: Target::Resource(Box::new(ResourceAttributes {
                name: name.to_owned().into(),
                selectors: Selectors {
                    label: vec![Requirement {
                        key: "a".into(),
                        operator: Operator::In,
                        values: values.iter().map(|value| (*value).to_owned().into()).collect(),
                    }],
                    field: Vec::new(),
                },
                ..ResourceAttributes::default()
            })),
        }
    }

    #[test]
    fn what_a_user_makes_large_is_not_kept() {
        let long = "x".repeat(LARGE_BYTES);
        assert!(CacheKey::new("c", &listing("n", &["v"], "e")).is_some());
        assert_eq!(CacheKey::new("c", &listing(&long, &["v"], "e")), None);
        assert_eq!(CacheKey::new("c", &listing("n", &[&long], "e")), None);
        assert_eq!(CacheKey::new("c", &listing("n", &["v"], &long)), None);
        let many = vec![""; LARGE_BYTES];
        assert_eq!(
            CacheKey::new("c", &listing("n", &many, "e")),
            None,
            "empty values count"
        );
    }

    #[test]
    fn a_large_key_is_not_kept_either() {
        let mut many = listing("n", &["v"], "e");
        many.user.groups = vec!["group".into(); KEY_BYTES / 8];
        assert_eq!(CacheKey::new("c", &many), None);
        many.user.groups.truncate(1000);
        assert!(CacheKey::new("c", &many).is_some());
    }

    #[test]
    fn clusters_and_questions_are_told_apart() {
        let key = |cluster: &str, name: &str| CacheKey::new(cluster, &listing(name, &["v"], "e"));
        assert_eq!(key("a", "n"), key("a", "n"));
        assert_ne!(key("a", "n"), key("b", "n"));
        assert_ne!(key("a", "n"), key("a", "m"));
    }
}
