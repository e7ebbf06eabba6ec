//! Decodes a SubjectAccessReview in one pass, with Go's semantics.
//!
//! Keys are case-sensitive, and unknown ones are skipped. The value of a duplicate key is decoded
//! into the same place again: the last scalar or list wins, and the fields of objects are merged.
//! `null` leaves a scalar or a struct unchanged and clears a list, a map or a pointer
//! (`encoding/json`, `sigs.k8s.io/json`).

mod answer;
mod reader;

use std::borrow::Cow;
use std::cell::Cell;

use crate::authorization::SubjectAccessReviewVersion;
use crate::model::{Operator, Requirement, ResourceAttributes};
use portcullis_cel::json::JsonError;
use reader::Reader;

pub use answer::{AuthorizerReply, ReplyError};

/// The most groups and extra values of a review, and the most selector values. It is far more than
/// fits into an HTTP request to an API server, and bounds the memory that a body of short strings
/// takes.
pub(crate) const MAX_ITEMS: usize = 1 << 20;

/// The number of extra keys up to which they are compared pairwise, without a map.
const MAX_UNINDEXED_KEYS: usize = 8;

/// The number of groups that most users do not exceed.
const USUAL_GROUPS: usize = 8;

/// A document as decoded, before it is validated.
#[derive(Default)]
pub(crate) struct Raw<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) metadata: Metadata,
    pub(crate) spec: RawSpec<'a>,
    /// Whether there are more groups and extra values than [`MAX_ITEMS`].
    pub(crate) too_many_items: bool,
    /// The version, if the caller has determined it.
    known: Option<SubjectAccessReviewVersion>,
    /// Whether a part of the spec was read before its version was known.
    read_before_version: bool,
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

/// `spec.resourceAttributes`, with the selectors kept apart until they are validated.
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

/// `metadata`: the names of its fields that are not empty, except `managedFields`.
#[derive(Default)]
pub(crate) struct Metadata(pub(crate) Vec<&'static str>);

/// Reads only `kind` and `apiVersion`.
pub(crate) fn type_meta(text: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), JsonError> {
    let mut meta = TypeMeta::default();
    read(text, &mut meta, &ListItems::new(MAX_ITEMS))?;
    Ok((meta.kind, meta.api_version))
}

/// A JSON object that is decoded field by field.
pub(crate) trait JsonFields<'a>: Default {
    /// What an error says was expected.
    const EXPECTED: &'static str;

    /// Decodes or skips the value of `key`, exactly one value.
    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError>;
}

/// How many list items may still be kept.
pub(crate) struct ListItems {
    /// The budget of groups and extra values.
    pub(crate) identity: ListBudget,
    /// The budget of requirements and their values.
    pub(crate) selectors: ListBudget,
}

/// A number of items that may still be kept. Items beyond it are skipped, and that is recorded.
pub(crate) struct ListBudget {
    left: Cell<usize>,
    exhausted: Cell<bool>,
}

/// The user's extra: keys and their values, in the order received.
pub(crate) type Extra<'a> = Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>;

/// Decodes a document that is one object.
pub(crate) fn read<'a, T: JsonFields<'a>>(
    text: &'a str,
    into: &mut T,
    items: &ListItems,
) -> Result<(), JsonError> {
    let mut reader = Reader::new(text);
    reader.fill(into, items)?;
    reader.end()
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Decodes `text` with the field name for groups of `version`; without one, of the `apiVersion`
    /// that precedes the spec.
    pub(crate) fn read(
        text: &'a str,
        version: Option<SubjectAccessReviewVersion>,
    ) -> Result<Self, JsonError> {
        let items = ListItems::new(MAX_ITEMS);
        let mut raw = Self {
            known: version,
            ..Self::default()
        };
        read(text, &mut raw, &items)?;
        raw.too_many_items = items.identity.exhausted();
        raw.spec.keep_last_extra();
        Ok(raw)
    }

    /// Whether the spec was read in the version that the document has.
    pub(crate) fn settled(&self) -> bool {
        !self.read_before_version && self.spec.version.is_some() && self.spec.version == self.version()
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
                self.read_before_version |=
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
    /// Keeps the last values of each extra key that occurs twice, as a Go map would.
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

    /// Whether a key occurs twice. For few keys this is faster than building a map.
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
    /// A spec whose field name for groups is that of `version`.
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

// === impl ListItems and ListBudget ===

impl ListItems {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            identity: ListBudget::new(most),
            selectors: ListBudget::new(most),
        }
    }
}

impl ListBudget {
    const fn new(most: usize) -> Self {
        Self {
            left: Cell::new(most),
            exhausted: Cell::new(false),
        }
    }

    /// Takes one item from the budget. Returns whether the item may be kept.
    fn take(&self) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.exhausted.set(true),
        }
        !self.exhausted.get()
    }

    /// Whether an item was skipped.
    pub(crate) const fn exhausted(&self) -> bool {
        self.exhausted.get()
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Decodes an object; `null` changes nothing.
    pub(crate) fn fill<T: JsonFields<'a>>(
        &mut self,
        into: &mut T,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        if !self.take(b'{') {
            return match self.take_null()? {
                true => Ok(()),
                false => Err(self.expected(T::EXPECTED)),
            };
        }
        let mut is_first = true;
        while let Some(key) = self.key(is_first)? {
            into.field(key.as_bytes(), self, items)?;
            is_first = false;
        }
        Ok(())
    }

    /// Decodes a pointer to an object; `null` makes it nil.
    pub(crate) fn pointer<T: JsonFields<'a>>(
        &mut self,
        into: &mut Option<T>,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        if self.take_null()? {
            *into = None;
            return Ok(());
        }
        self.fill(into.get_or_insert_default(), items)
    }

    /// Decodes a string; `null` changes nothing.
    pub(crate) fn text(&mut self, into: &mut Cow<'a, str>) -> Result<(), JsonError> {
        match self.plain_string() {
            Some(text) => {
                *into = Cow::Borrowed(text);
                Ok(())
            }
            None => self.text_not_plain(into),
        }
    }

    #[inline(never)]
    fn text_not_plain(&mut self, into: &mut Cow<'a, str>) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'n') => self.literal("null"),
            _ => self.string("a string").map(|text| *into = text),
        }
    }

    /// Decodes `true` or `false`; `null` changes nothing.
    pub(crate) fn boolean(&mut self, into: &mut bool) -> Result<(), JsonError> {
        match self.peek() {
            Some(b't') => self.literal("true").map(|()| *into = true),
            Some(b'f') => self.literal("false").map(|()| *into = false),
            _ if self.take_null()? => Ok(()),
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    /// Decodes a list of strings, replacing the items of `into`; `null` empties it.
    pub(crate) fn strings(
        &mut self,
        into: &mut Vec<Cow<'a, str>>,
        budget: &ListBudget,
    ) -> Result<(), JsonError> {
        into.clear();
        self.list("a list of strings", |reader| {
            let mut text = Cow::default();
            reader.text(&mut text)?;
            if budget.take() {
                into.push(text);
            }
            Ok(())
        })
    }

    /// Decodes a list of requirements, replacing the items of `into`; `null` empties it.
    pub(crate) fn requirements(
        &mut self,
        into: &mut Vec<Requirement<'a>>,
        items: &ListItems,
    ) -> Result<(), JsonError> {
        into.clear();
        self.list("a list of requirements", |reader| {
            let mut requirement = RawRequirement::default();
            reader.fill(&mut requirement, items)?;
            // Once a value was skipped, this requirement and all that follow may be incomplete.
            // Leaving them out only widens the request.
            if items.selectors.take() {
                into.push(requirement.into());
            }
            Ok(())
        })
    }

    /// Decodes a map to lists of strings, adding to the entries of `into`; `null` empties it.
    pub(crate) fn extra(&mut self, into: &mut Extra<'a>, budget: &ListBudget) -> Result<(), JsonError> {
        if self.take_null()? {
            into.clear();
            return Ok(());
        }
        if !self.take(b'{') {
            return Err(self.expected("a map to lists of strings"));
        }
        let mut is_first = true;
        while let Some(key) = self.key(is_first)? {
            let mut values = Vec::new();
            self.strings(&mut values, budget)?;
            if budget.take() {
                into.push((key, values));
            }
            is_first = false;
        }
        Ok(())
    }

    /// Skips a value. Returns whether it is the zero value of its type.
    pub(crate) fn is_zero(&mut self) -> Result<bool, JsonError> {
        let is_zero = match self.peek() {
            Some(b'"') => return Ok(self.string("a string")?.is_empty()),
            Some(b'-' | b'0'..=b'9') => return Ok(self.number()?.parse::<f64>() == Ok(0.0)),
            Some(b'n' | b'f') => true,
            Some(b't') => false,
            Some(b'{') => self.begins_empty(b'}'),
            _ => self.begins_empty(b']'),
        };
        self.skip()?;
        Ok(is_zero)
    }

    fn list(
        &mut self,
        expected: &'static str,
        mut read_item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if !self.take(b'[') {
            return match self.take_null()? {
                true => Ok(()),
                false => Err(self.expected(expected)),
            };
        }
        let mut is_first = true;
        while self.item(is_first)? {
            read_item(self)?;
            is_first = false;
        }
        Ok(())
    }
}

/// A requirement that is being decoded.
#[derive(Default)]
struct RawRequirement<'a> {
    key: Cow<'a, str>,
    operator: Cow<'a, str>,
    values: Vec<Cow<'a, str>>,
}

impl<'a> JsonFields<'a> for RawRequirement<'a> {
    const EXPECTED: &'static str = "a requirement";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match key {
            b"key" => reader.text(&mut self.key),
            b"operator" => reader.text(&mut self.operator),
            b"values" => reader.strings(&mut self.values, &items.selectors),
            _ => reader.skip(),
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
