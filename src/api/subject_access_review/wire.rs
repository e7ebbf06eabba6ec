//! The review as written, read in one pass in the way Go reads it.
//!
//! Keys are case-sensitive and unknown ones skipped. A key given twice is read
//! twice into the same place: the last scalar or list wins, the fields of
//! objects add up. `null` leaves a scalar or a struct as it is and empties a
//! list, a map or a pointer. (`encoding/json`, `sigs.k8s.io/json`.)

mod object;

use std::borrow::Cow;

use serde::de::{IgnoredAny, MapAccess};

use super::Version;
use crate::engine::{Operator, Requirement, ResourceAttributes};
use object::{Extra, Fill, Items, Object, Pointer, Requirements, Strings, Text, Zero};

/// How many groups and extra values, and apart from them how many selector
/// values, a review may have: far beyond what fits into an HTTP request to an
/// API server, and a bound on the memory that a body of short strings takes.
pub(super) const MOST_ITEMS: usize = 1 << 20;

/// How many groups most users have at most.
const USUAL_GROUPS: usize = 8;

/// A document before anything about it is settled.
#[derive(Default)]
pub(super) struct Raw<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) api_version: Cow<'a, str>,
    pub(super) metadata: Metadata,
    pub(super) spec: RawSpec<'a>,
    /// Whether there were more groups and extra values than [`MOST_ITEMS`].
    pub(super) too_many_items: bool,
    /// The version that the caller has already settled.
    told: Option<Version>,
    /// Whether some of the spec was read before its version was known.
    guessed: bool,
}

/// `spec`.
#[derive(Default)]
pub(super) struct RawSpec<'a> {
    pub(super) user: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) groups: Vec<Cow<'a, str>>,
    pub(super) extra: Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>,
    pub(super) resource: Option<RawResource<'a>>,
    pub(super) non_resource: Option<RawNonResource<'a>>,
    version: Option<Version>,
}

/// `spec.resourceAttributes`; the selectors beside the attributes until they are validated.
#[derive(Default)]
pub(super) struct RawResource<'a> {
    pub(super) attributes: ResourceAttributes<'a>,
    pub(super) field_selector: Option<RawSelector<'a>>,
    pub(super) label_selector: Option<RawSelector<'a>>,
}

/// `spec.nonResourceAttributes`.
#[derive(Default)]
pub(super) struct RawNonResource<'a> {
    pub(super) path: Cow<'a, str>,
    pub(super) verb: Cow<'a, str>,
}

/// `fieldSelector` or `labelSelector`.
#[derive(Default)]
pub(super) struct RawSelector<'a> {
    pub(super) raw: Cow<'a, str>,
    pub(super) requirements: Vec<Requirement<'a>>,
}

#[derive(Default)]
struct TypeMeta<'a> {
    kind: Cow<'a, str>,
    api_version: Cow<'a, str>,
}

/// `metadata`: which of its fields are not empty, `managedFields` aside.
#[derive(Default)]
pub(super) struct Metadata(pub(super) Vec<&'static str>);

/// Reads `kind` and `apiVersion` alone.
pub(super) fn type_meta(text: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), serde_json::Error> {
    let mut meta = TypeMeta::default();
    object::read(text, &mut meta, &Items::new(MOST_ITEMS))?;
    Ok((meta.kind, meta.api_version))
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Reads `text` with the groups of `version`; without one, of the version
    /// that stands before the spec.
    pub(super) fn read(text: &'a str, version: Option<Version>) -> Result<Self, serde_json::Error> {
        let items = Items::new(MOST_ITEMS);
        let mut raw = Self {
            told: version,
            ..Self::default()
        };
        object::read(text, &mut raw, &items)?;
        raw.too_many_items = items.identity.exhausted();
        raw.spec.keep_last_extra();
        Ok(raw)
    }

    /// Whether the spec was read in the version that the document turned out to have.
    pub(super) fn settled(&self) -> bool {
        !self.guessed && self.spec.version.is_some() && self.spec.version == self.version()
    }

    fn version(&self) -> Option<Version> {
        self.told.or_else(|| Version::from_api_version(&self.api_version))
    }
}

impl<'de> Object<'de> for Raw<'de> {
    const EXPECTED: &'static str = "a SubjectAccessReview";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error> {
        match key.as_bytes() {
            b"kind" => map.next_value_seed(Text(&mut self.kind)),
            b"apiVersion" => map.next_value_seed(Text(&mut self.api_version)),
            b"metadata" => map.next_value_seed(Fill(&mut self.metadata, items)),
            b"spec" => {
                let version = self.version();
                self.guessed |=
                    version.is_none() || (self.spec.version.is_some() && self.spec.version != version);
                self.spec.version = version;
                map.next_value_seed(Fill(&mut self.spec, items))
            }
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

// === impl TypeMeta ===

impl<'de> Object<'de> for TypeMeta<'de> {
    const EXPECTED: &'static str = "a SubjectAccessReview";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, _: &Items) -> Result<(), A::Error> {
        match key.as_bytes() {
            b"kind" => map.next_value_seed(Text(&mut self.kind)),
            b"apiVersion" => map.next_value_seed(Text(&mut self.api_version)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

// === impl Metadata ===

impl<'de> Object<'de> for Metadata {
    const EXPECTED: &'static str = "metadata";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, _: &Items) -> Result<(), A::Error> {
        const FIELDS: [&str; 14] = [
            "name",
            "generateName",
            "namespace",
            "selfLink",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "labels",
            "annotations",
            "ownerReferences",
            "finalizers",
        ];
        let zero = map.next_value_seed(Zero)?;
        self.0
            .extend(FIELDS.into_iter().find(|field| *field == key && !zero));
        Ok(())
    }
}

// === impl RawSpec ===

impl<'a> RawSpec<'a> {
    /// Of extra keys given twice, the last values: Go reads them into a map.
    fn keep_last_extra(&mut self) {
        if self.extra.len() < 2 {
            return;
        }
        let mut last = std::collections::HashMap::with_capacity_and_hasher(
            self.extra.len(),
            foldhash::fast::RandomState::default(),
        );
        for (position, (key, _)) in self.extra.iter().enumerate() {
            last.insert(key.as_ref(), position);
        }
        if last.len() == self.extra.len() {
            return;
        }
        let mut keep = vec![false; self.extra.len()];
        for position in last.into_values() {
            if let Some(kept) = keep.get_mut(position) {
                *kept = true;
            }
        }
        let mut keep = keep.into_iter();
        self.extra.retain(|_| keep.next().unwrap_or_default());
    }
}

impl<'de> Object<'de> for RawSpec<'de> {
    const EXPECTED: &'static str = "a spec";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error> {
        match (key.as_bytes(), self.version) {
            (b"user", _) => map.next_value_seed(Text(&mut self.user)),
            (b"uid", _) => map.next_value_seed(Text(&mut self.uid)),
            (b"groups", Some(Version::V1)) | (b"group", Some(Version::V1beta1)) => {
                self.groups.reserve(USUAL_GROUPS);
                map.next_value_seed(Strings(&mut self.groups, &items.identity))
            }
            (b"extra", _) => map.next_value_seed(Extra(&mut self.extra, &items.identity)),
            (b"resourceAttributes", _) => map.next_value_seed(Pointer(&mut self.resource, items)),
            (b"nonResourceAttributes", _) => map.next_value_seed(Pointer(&mut self.non_resource, items)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

// === impl RawResource ===

impl<'de> Object<'de> for RawResource<'de> {
    const EXPECTED: &'static str = "resourceAttributes";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error> {
        let attributes = &mut self.attributes;
        let text = match key.as_bytes() {
            b"namespace" => &mut attributes.namespace,
            b"verb" => &mut attributes.verb,
            b"group" => &mut attributes.group,
            b"version" => &mut attributes.version,
            b"resource" => &mut attributes.resource,
            b"subresource" => &mut attributes.subresource,
            b"name" => &mut attributes.name,
            b"fieldSelector" => return map.next_value_seed(Pointer(&mut self.field_selector, items)),
            b"labelSelector" => return map.next_value_seed(Pointer(&mut self.label_selector, items)),
            _ => return map.next_value::<IgnoredAny>().map(drop),
        };
        map.next_value_seed(Text(text))
    }
}

// === impl RawNonResource ===

impl<'de> Object<'de> for RawNonResource<'de> {
    const EXPECTED: &'static str = "nonResourceAttributes";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, _: &Items) -> Result<(), A::Error> {
        match key.as_bytes() {
            b"path" => map.next_value_seed(Text(&mut self.path)),
            b"verb" => map.next_value_seed(Text(&mut self.verb)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

// === impl RawSelector ===

impl<'de> Object<'de> for RawSelector<'de> {
    const EXPECTED: &'static str = "a selector";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error> {
        match key.as_bytes() {
            b"rawSelector" => map.next_value_seed(Text(&mut self.raw)),
            b"requirements" => map.next_value_seed(Requirements(&mut self.requirements, items)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// One requirement while it is read.
#[derive(Default)]
struct RawRequirement<'a> {
    key: Cow<'a, str>,
    operator: Cow<'a, str>,
    values: Vec<Cow<'a, str>>,
}

impl<'de> Object<'de> for RawRequirement<'de> {
    const EXPECTED: &'static str = "a requirement";

    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A, items: &Items) -> Result<(), A::Error> {
        match key.as_bytes() {
            b"key" => map.next_value_seed(Text(&mut self.key)),
            b"operator" => map.next_value_seed(Text(&mut self.operator)),
            b"values" => map.next_value_seed(Strings(&mut self.values, &items.selectors)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl<'a> From<RawRequirement<'a>> for Requirement<'a> {
    fn from(raw: RawRequirement<'a>) -> Self {
        let operator = match raw.operator.as_bytes() {
            b"In" => Operator::In,
            b"NotIn" => Operator::NotIn,
            b"Exists" => Operator::Exists,
            b"DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown(raw.operator),
        };
        Self {
            key: raw.key,
            operator,
            values: raw.values,
        }
    }
}
