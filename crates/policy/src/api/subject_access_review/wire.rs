//! Decodes a SubjectAccessReview in one pass, with Go's semantics.
//!
//! Keys are case-sensitive, and unknown ones are skipped. A duplicate key is decoded
//! twice into the same place: the last scalar or list wins, and the fields of objects are
//! merged. `null` leaves a scalar or a struct unchanged and clears a list, a map or a
//! pointer. (`encoding/json`, `sigs.k8s.io/json`.)

mod answer;
mod object;
mod reader;

use std::borrow::Cow;

pub use answer::{AuthorizerReply, ReplyError};

use crate::authorization::SubjectAccessReviewVersion;
use crate::engine::{Requirement, ResourceAttributes};
use object::{Extra, JsonFields, ListItems};
use portcullis_cel::json::JsonError;
use reader::Reader;

/// How many groups and extra values, and apart from them how many selector
/// values, a review may have: far beyond what fits into an HTTP request to an
/// API server, and a bound on the memory that a body of short strings takes.
pub(crate) const MAX_ITEMS: usize = 1 << 20;

/// Up to this many keys of extra are compared with each other, without a map.
const MAX_UNINDEXED_KEYS: usize = 8;

/// How many groups most users have at most.
const USUAL_GROUPS: usize = 8;

/// A document before anything about it is settled.
#[derive(Default)]
pub(crate) struct Raw<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) metadata: Metadata,
    pub(crate) spec: RawSpec<'a>,
    /// Whether there were more groups and extra values than [`MAX_ITEMS`].
    pub(crate) too_many_items: bool,
    /// The version that the caller has already settled.
    known: Option<SubjectAccessReviewVersion>,
    /// Whether some of the spec was read before its version was known.
    guessed: bool,
}

/// `spec`.
#[derive(Default)]
pub(crate) struct RawSpec<'a> {
    pub(crate) user: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) groups: Vec<Cow<'a, str>>,
    pub(crate) extra: Extra<'a>,
    pub(crate) resource: Option<RawResource<'a>>,
    pub(crate) non_resource: Option<RawNonResource<'a>>,
    version: Option<SubjectAccessReviewVersion>,
}

/// `spec.resourceAttributes`; the selectors beside the attributes until they are validated.
#[derive(Default)]
pub(crate) struct RawResource<'a> {
    pub(crate) attributes: ResourceAttributes<'a>,
    pub(crate) field_selector: Option<RawSelector<'a>>,
    pub(crate) label_selector: Option<RawSelector<'a>>,
}

/// `spec.nonResourceAttributes`.
#[derive(Default)]
pub(crate) struct RawNonResource<'a> {
    pub(crate) path: Cow<'a, str>,
    pub(crate) verb: Cow<'a, str>,
}

/// `fieldSelector` or `labelSelector`.
#[derive(Default)]
pub(crate) struct RawSelector<'a> {
    pub(crate) raw: Cow<'a, str>,
    pub(crate) requirements: Vec<Requirement<'a>>,
}

#[derive(Default)]
struct TypeMeta<'a> {
    kind: Cow<'a, str>,
    api_version: Cow<'a, str>,
}

/// `metadata`: which of its fields are not empty, `managedFields` aside.
#[derive(Default)]
pub(crate) struct Metadata(pub(crate) Vec<&'static str>);

/// Reads `kind` and `apiVersion` alone.
pub(crate) fn type_meta(text: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), JsonError> {
    let mut meta = TypeMeta::default();
    object::read(text, &mut meta, &ListItems::new(MAX_ITEMS))?;
    Ok((meta.kind, meta.api_version))
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Reads `text` with the groups of `version`; without one, of the version
    /// that stands before the spec.
    pub(crate) fn read(
        text: &'a str,
        version: Option<SubjectAccessReviewVersion>,
    ) -> Result<Self, JsonError> {
        let items = ListItems::new(MAX_ITEMS);
        let mut raw = Self {
            known: version,
            ..Self::default()
        };
        object::read(text, &mut raw, &items)?;
        raw.too_many_items = items.identity.exhausted();
        raw.spec.keep_last_extra();
        Ok(raw)
    }

    /// Whether the spec was read in the version that the document turned out to have.
    pub(crate) fn settled(&self) -> bool {
        !self.guessed && self.spec.version.is_some() && self.spec.version == self.version()
    }

    fn version(&self) -> Option<SubjectAccessReviewVersion> {
        self.known
            .or_else(|| SubjectAccessReviewVersion::from_api_version(&self.api_version))
    }
}

impl<'a> JsonFields<'a> for Raw<'a> {
    const EXPECTED: &'static str = "a SubjectAccessReview";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match key {
            b"kind" => reader.text(&mut self.kind),
            b"apiVersion" => reader.text(&mut self.api_version),
            b"metadata" => reader.fill(&mut self.metadata, items),
            b"spec" => {
                let version = self.version();
                self.guessed |=
                    version.is_none() || (self.spec.version.is_some() && self.spec.version != version);
                self.spec.version = version;
                reader.fill(&mut self.spec, items)
            }
            _ => reader.skip(),
        }
    }
}

// === impl TypeMeta ===

impl<'a> JsonFields<'a> for TypeMeta<'a> {
    const EXPECTED: &'static str = "a SubjectAccessReview";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, _: &ListItems) -> Result<(), JsonError> {
        match key {
            b"kind" => reader.text(&mut self.kind),
            b"apiVersion" => reader.text(&mut self.api_version),
            _ => reader.skip(),
        }
    }
}

// === impl Metadata ===

impl<'a> JsonFields<'a> for Metadata {
    const EXPECTED: &'static str = "metadata";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, _: &ListItems) -> Result<(), JsonError> {
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
        let zero = reader.is_zero()?;
        self.0
            .extend(FIELDS.into_iter().find(|field| field.as_bytes() == key && !zero));
        Ok(())
    }
}

// === impl RawSpec ===

impl<'a> RawSpec<'a> {
    /// Of extra keys given twice, the last values: Go reads them into a map.
    fn keep_last_extra(&mut self) {
        if self.extra.len() <= MAX_UNINDEXED_KEYS && !self.has_repeated_extra() {
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

    /// Whether a key of few stands twice: found quicker than a map is made.
    fn has_repeated_extra(&self) -> bool {
        let mut others = self.extra.iter();
        while let Some((key, _)) = others.next() {
            if others.as_slice().iter().any(|(other, _)| other == key) {
                return true;
            }
        }
        false
    }
}

impl RawSpec<'_> {
    /// With the groups of `version`.
    fn of_version(version: SubjectAccessReviewVersion) -> Self {
        Self {
            version: Some(version),
            ..Self::default()
        }
    }
}

impl<'a> JsonFields<'a> for RawSpec<'a> {
    const EXPECTED: &'static str = "a spec";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match (key, self.version) {
            (b"user", _) => reader.text(&mut self.user),
            (b"uid", _) => reader.text(&mut self.uid),
            (b"groups", Some(SubjectAccessReviewVersion::V1))
            | (b"group", Some(SubjectAccessReviewVersion::V1beta1)) => {
                self.groups.reserve(USUAL_GROUPS);
                reader.strings(&mut self.groups, &items.identity)
            }
            (b"extra", _) => reader.extra(&mut self.extra, &items.identity),
            (b"resourceAttributes", _) => reader.pointer(&mut self.resource, items),
            (b"nonResourceAttributes", _) => reader.pointer(&mut self.non_resource, items),
            _ => reader.skip(),
        }
    }
}

// === impl RawResource ===

impl<'a> JsonFields<'a> for RawResource<'a> {
    const EXPECTED: &'static str = "resourceAttributes";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        let attributes = &mut self.attributes;
        let text = match key {
            b"namespace" => &mut attributes.namespace,
            b"verb" => &mut attributes.verb,
            b"group" => &mut attributes.group,
            b"version" => &mut attributes.version,
            b"resource" => &mut attributes.resource,
            b"subresource" => &mut attributes.subresource,
            b"name" => &mut attributes.name,
            b"fieldSelector" => return reader.pointer(&mut self.field_selector, items),
            b"labelSelector" => return reader.pointer(&mut self.label_selector, items),
            _ => return reader.skip(),
        };
        reader.text(text)
    }
}

// === impl RawNonResource ===

impl<'a> JsonFields<'a> for RawNonResource<'a> {
    const EXPECTED: &'static str = "nonResourceAttributes";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, _: &ListItems) -> Result<(), JsonError> {
        match key {
            b"path" => reader.text(&mut self.path),
            b"verb" => reader.text(&mut self.verb),
            _ => reader.skip(),
        }
    }
}

// === impl RawSelector ===

impl<'a> JsonFields<'a> for RawSelector<'a> {
    const EXPECTED: &'static str = "a selector";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match key {
            b"rawSelector" => reader.text(&mut self.raw),
            b"requirements" => reader.requirements(&mut self.requirements, items),
            _ => reader.skip(),
        }
    }
}
