//! Normalizes an object after a mutation as an API server does: it decodes the object into its Go
//! type and encodes it again.
//!
//! ```text
//! before ─ patch or configuration ─▶ after ─ decode ─▶ after, as Go writes it │ error
//! ```
//!
//! Go omits empty fields that are marked `omitempty`, writes other fields even if they were not
//! set, and has one format for quantities, times and bytes. Defaults are set by code of Kubernetes
//! and are not added here. Only values that differ from the object before are decoded, because an
//! API server wrote the others.
//!
//! Unknown fields are kept, because a newer API server may know them. They are errors only if the
//! JSON Patch of a policy adds them (`jsonPatcher.Patch` of
//! `apiserver/pkg/admission/plugin/policy/mutating/patch/json_patch.go`).

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::MAX_LEVELS;
use super::check::{is_type_meta, misfit};
use super::error::{DecodeError, FieldMismatches, noted_path};
use super::schema::{MapView, Scalar, SchemaField, SchemaType, Schemas};
use crate::admission::GroupVersionKind;
use portcullis_cel::json::{Kind, Node, write_string};
use portcullis_cel::{Quantity, Timestamp};

/// The result of decoding and encoding an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedObject {
    /// The object as Go encodes it; `None` if it was in this form already.
    pub text: Option<String>,
    /// Whether the object differs from the object before. Unknown fields do not count
    /// (`apimachinery/pkg/api/equality/semantic.go`).
    pub is_changed: bool,
}

/// Decodes and encodes the object `after`, of `kind`, which was `before`. An object of a kind that
/// is not built in has no Go type and stays as it is.
///
/// # Errors
///
/// Fails if a changed value is of a wrong type or, in [`DecodeMode::Strict`], if a new field is
/// unknown.
pub fn decode(
    kind: &GroupVersionKind<'_>,
    before: Node<'_>,
    after: Node<'_>,
    reading: DecodeMode,
) -> Result<DecodedObject, DecodeError> {
    let schemas = Schemas::builtin();
    let Ok(of) = schemas.of(kind) else {
        return Ok(DecodedObject {
            text: None,
            is_changed: !before.same(after),
        });
    };
    let mut walk = DecodeWalk::new(schemas, reading);
    walk.value(of, Some(before), after);
    let DecodeWalk {
        out,
        is_changed,
        found,
        mut unknown,
        ..
    } = walk;
    found.none().map_err(DecodeError::Mismatches)?;
    if !unknown.is_empty() {
        let mut old = DecodeWalk::new(schemas, reading);
        old.value(of, None, before);
        let known: HashSet<String> = old.unknown.into_iter().map(|field| field.shape).collect();
        unknown.retain(|field| !known.contains(&field.shape));
        if !unknown.is_empty() {
            let paths = unknown.into_iter().take(FieldMismatches::MAX_MISMATCHES);
            return Err(DecodeError::Unknown(paths.map(Unknown::into_path).collect()));
        }
    }
    Ok(DecodedObject {
        text: (out != after.raw()).then_some(out),
        is_changed,
    })
}

// Decodes and encodes an object field by field.

/// The most unknown fields that are collected.
const MAX_UNKNOWN: usize = 1_000;

/// The walk through one object.
pub(crate) struct DecodeWalk<'s> {
    schemas: &'s Schemas<'static>,
    reading: DecodeMode,
    path: String,
    /// The path without list indices and map keys, which is equal for all items of a list or map.
    shape: String,
    level: usize,
    /// The encoded object.
    pub(crate) out: String,
    pub(crate) is_changed: bool,
    pub(crate) found: FieldMismatches,
    pub(crate) unknown: Vec<Unknown>,
}

/// A field that the schema does not have.
pub(crate) struct Unknown {
    path: String,
    pub(crate) shape: String,
}

/// Go's `base64.StdEncoding`.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The number of fractional digits of `metav1.MicroTime`.
const MICRO_DIGITS: usize = 6;

/// The value as Go encodes it. The value is a scalar of the right class, or anything for `[]byte`.
///
/// # Errors
///
/// Why Go does not decode it.
pub(crate) fn encoded(of: Scalar, node: Node<'_>, reading: DecodeMode) -> Result<Cow<'_, str>, String> {
    let text = node.as_str();
    match (of, text) {
        (Scalar::Int32, _) => integer(node, reading, |value| match reading {
            #[expect(clippy::cast_possible_truncation, reason = "as upstream")]
            DecodeMode::Values => Some(i64::from(value as i32)),
            DecodeMode::Strict | DecodeMode::Lenient => i32::try_from(value).ok().map(i64::from),
        }),
        (Scalar::Int64, _) => integer(node, reading, Some),
        (Scalar::IntOrString, None) => {
            integer(node, reading, |value| i32::try_from(value).ok().map(i64::from))
        }
        (Scalar::Quantity, _) => {
            let written = node.raw();
            let written = written
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or(written);
            let amount = Quantity::canonical(written.trim()).map_err(|fault| fault.to_string())?;
            Ok(quoted(&amount))
        }
        (Scalar::Bytes, Some(text)) => {
            let mut text = text.into_owned();
            text.retain(|one| !matches!(one, '\r' | '\n'));
            let bytes = BASE64
                .decode(text)
                .map_err(|error| format!("illegal base64 data: {error}"))?;
            Ok(quoted(&BASE64.encode(bytes)))
        }
        // Go also accepts a list of numbers.
        (Scalar::Bytes, None) => {
            let bytes = node.items().map(|item| byte(item, reading));
            let bytes: Option<Vec<u8>> = bytes.collect();
            let bytes = bytes.filter(|_| node.kind() == Kind::Array);
            bytes
                .map(|bytes| quoted(&BASE64.encode(bytes)))
                .ok_or_else(|| format!("expected string, got {}", node.raw()))
        }
        (Scalar::Time, Some(text)) => normalize_time(&text)
            .map(|time| quoted(&time))
            .ok_or_else(|| no_time(node)),
        (Scalar::MicroTime, Some(text)) => normalize_micro_time(&text)
            .map(|time| quoted(&time))
            .ok_or_else(|| no_time(node)),
        (Scalar::Time | Scalar::MicroTime, None) => Err(no_time(node)),
        (Scalar::Any | Scalar::String | Scalar::Double | Scalar::Boolean, _) => Ok(Cow::Borrowed(node.raw())),
        (Scalar::IntOrString, Some(_)) => Ok(Cow::Borrowed(node.raw())),
    }
}

/// The encoding of the zero value.
pub(crate) const fn zero(of: Scalar) -> &'static str {
    match of {
        Scalar::String => "\"\"",
        Scalar::Quantity => "\"0\"",
        Scalar::IntOrString | Scalar::Int32 | Scalar::Int64 | Scalar::Double => "0",
        Scalar::Boolean => "false",
        Scalar::Bytes | Scalar::Time | Scalar::MicroTime | Scalar::Any => "null",
    }
}

fn integer(
    node: Node<'_>,
    reading: DecodeMode,
    fits: impl Fn(i64) -> Option<i64>,
) -> Result<Cow<'_, str>, String> {
    let raw = node.raw();
    let whole = match reading {
        DecodeMode::Strict | DecodeMode::Lenient => raw.parse().ok(),
        DecodeMode::Values => raw.parse().ok().or_else(|| whole(node)),
    };
    match whole.filter(|_| node.kind() == Kind::Number).and_then(fits) {
        Some(value) => Ok(Cow::Owned(value.to_string())),
        None => Err(format!("expected an integer that fits, got {raw}")),
    }
}

fn byte(item: Node<'_>, reading: DecodeMode) -> Option<u8> {
    if item.is_null() {
        return Some(0);
    }
    let read = integer(item, reading, |value| match reading {
        DecodeMode::Values => Some(value.rem_euclid(256)),
        DecodeMode::Strict | DecodeMode::Lenient => u8::try_from(value).ok().map(i64::from),
    });
    read.ok()?.parse().ok()
}

/// The integer that is equal to a double.
fn whole(node: Node<'_>) -> Option<i64> {
    const LIMIT: f64 = 9.0e18;
    let value = node.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and fits")]
    let whole = value as i64;
    (value.fract() == 0.0 && value.abs() < LIMIT).then_some(whole)
}

/// The time in UTC, truncated to seconds.
fn normalize_time(text: &str) -> Option<String> {
    let time = Timestamp::parse(text)?;
    Some(Timestamp::from_seconds(time.seconds())?.to_string())
}

/// The time in UTC, truncated to microseconds. The input must have exactly six fractional digits.
fn normalize_micro_time(text: &str) -> Option<String> {
    let (_, fraction) = text.split_once('.')?;
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits != MICRO_DIGITS {
        return None;
    }
    let time = Timestamp::parse(text)?;
    let second = Timestamp::from_seconds(time.seconds())?.to_string();
    let micros = time.nanoseconds() / 1_000;
    Some(format!("{}.{micros:06}Z", second.trim_end_matches('Z')))
}

fn no_time(node: Node<'_>) -> String {
    format!("parsing time {}: no time in RFC 3339", node.raw())
}

fn quoted(text: &str) -> Cow<'static, str> {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    Cow::Owned(out)
}

// How objects are decoded.

/// How a changed object is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeMode {
    /// As JSON; a new unknown field is an error.
    Strict,
    /// As JSON; unknown fields are kept.
    Lenient,
    /// As values of an expression, with conversions as in Go: numbers that are too large wrap
    /// around (`FromUnstructured` of `apimachinery/pkg/runtime/converter.go`).
    Values,
}

// === impl Unknown ===

impl Unknown {
    pub(crate) fn into_path(self) -> String {
        self.path.trim_start_matches('.').to_owned()
    }
}

// === impl DecodeWalk ===

impl<'s> DecodeWalk<'s> {
    pub(crate) fn new(schemas: &'s Schemas<'static>, reading: DecodeMode) -> Self {
        Self {
            schemas,
            reading,
            path: String::new(),
            shape: String::new(),
            level: 0,
            out: String::new(),
            is_changed: false,
            found: FieldMismatches::default(),
            unknown: Vec::new(),
        }
    }

    /// Encodes a value.
    pub(crate) fn value(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        if before.is_some_and(|before| before.raw() == after.raw()) {
            return self.out.push_str(after.raw());
        }
        if after.is_null() {
            return self.null(of, before);
        }
        let is_bytes = matches!(of, SchemaType::Scalar(Scalar::Bytes));
        if let Some(message) = misfit(self.schemas, of, after).filter(|_| !is_bytes) {
            return self.found.push(&self.path, message);
        }
        if self.level == MAX_LEVELS {
            let message = format!("nested deeper than {MAX_LEVELS} levels");
            return self.found.push(&self.path, message);
        }
        self.level += 1;
        match of {
            SchemaType::Scalar(scalar) => match encoded(*scalar, after, self.reading) {
                Ok(text) => {
                    let is_same = before.is_some_and(|before| before.raw() == text || before.same(after));
                    self.is_changed |= !is_same;
                    self.out.push_str(&text);
                }
                Err(message) => self.found.push(&self.path, message),
            },
            SchemaType::List(item, _) => self.list(item, before, after),
            SchemaType::Map(value, _) => self.map(value, before, after),
            SchemaType::Struct(..) => self.fields(of, before, after),
            SchemaType::Deduced | SchemaType::Untyped => {
                self.is_changed |= !before.is_some_and(|before| before.same(after));
                self.out.push_str(after.raw());
            }
        }
        self.level -= 1;
    }

    /// Encodes `null` as the zero value of its type.
    fn null(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>) {
        let start = self.out.len();
        self.write_zero(of);
        let written = self.out.get(start..).unwrap_or_default();
        self.is_changed |= before.is_none_or(|before| before.raw() != written);
    }

    fn list(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        let before = before.filter(|before| before.kind() == Kind::Array);
        self.is_changed |= before.map_or(0, Node::len) != after.len();
        let mut old = before.into_iter().flat_map(Node::items);
        self.out.push('[');
        for (place, item) in after.items().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            let own = old.next();
            self.within(&format!("[{place}]"), "[]", |walk| walk.value(of, own, item));
        }
        self.out.push(']');
    }

    fn map(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        let before = before.filter(|before| before.kind() == Kind::Object);
        self.is_changed |= before.map_or(0, Node::len) != after.len();
        self.out.push('{');
        for (place, (key, value)) in after.entries().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            self.key(&key);
            let own = before.and_then(|before| before.get(&key));
            self.within(&format!(".{key}"), ".*", |walk| walk.value(of, own, value));
        }
        self.out.push('}');
    }

    /// Encodes a struct: its fields, and those that Go always writes.
    fn fields(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) {
        let Some(maps) = self.schemas.maps(of) else {
            return;
        };
        let before = before.filter(|before| before.kind() == Kind::Object);
        // An empty struct differs from none: `emptyDir: {}`.
        self.is_changed |= before.is_none();
        self.out.push('{');
        let start = self.out.len();
        for (name, value) in after.entries() {
            let own = before.and_then(|before| before.get(&name));
            let shape = format!(".{name}");
            self.within(&shape, &shape, |walk| {
                walk.entry(maps, (&name, value), own, start)
            });
        }
        for field in maps.fields() {
            let own = before.and_then(|before| before.get(field.name));
            if after.get(field.name).is_none() && (before.is_none() || own.is_some()) {
                self.absent(field, own, start);
            }
        }
        self.out.push('}');
    }

    fn entry(
        &mut self,
        maps: MapView<'s, 'static>,
        (name, value): (&str, Node<'_>),
        own: Option<Node<'_>>,
        start: usize,
    ) {
        // Only at this level, `apiVersion` and `kind` are those of the object.
        let is_of_root = self.level == 1 && is_type_meta(name);
        match maps.declared(name) {
            _ if own.is_some_and(|own| own.raw() == value.raw()) => self.member(name, value.raw(), start),
            // The kind of the object does not change, even if the fields do.
            Some(_) if is_of_root => self.member(name, own.unwrap_or(value).raw(), start),
            Some(field) if value.is_null() => self.absent(field, own, start),
            Some(field) => self.present(field, value, own, start),
            None => {
                self.note_unknown();
                self.member(name, value.raw(), start);
            }
        }
    }

    /// Encodes a field that is set; it is omitted if it is empty and `omitempty`.
    fn present(
        &mut self,
        field: &'s SchemaField<'static>,
        value: Node<'_>,
        own: Option<Node<'_>>,
        start: usize,
    ) {
        let (was_changed, back) = (self.is_changed, self.out.len());
        self.separate(start);
        self.key(field.name);
        let written = self.out.len();
        self.value(&field.of, own, value);
        let is_empty = self
            .out
            .get(written..)
            .is_some_and(|text| is_empty(&field.of, text));
        if field.omits_empty && !field.is_pointer && is_empty {
            self.out.truncate(back);
            self.is_changed = was_changed | own.is_some_and(|own| !is_empty_node(&field.of, own));
        }
    }

    /// Encodes a field that is not set: Go writes its zero value unless it is `omitempty`.
    fn absent(&mut self, field: &'s SchemaField<'static>, own: Option<Node<'_>>, start: usize) {
        let is_missed = |own: Node<'_>| !own.is_null() && (field.is_pointer || !self.is_zero(&field.of, own));
        let is_missed = own.is_some_and(is_missed);
        if self.level == 1 && is_type_meta(field.name) {
            if let Some(own) = own {
                self.member(field.name, own.raw(), start);
            }
            return;
        }
        self.is_changed |= is_missed;
        if field.omits_empty {
            return;
        }
        self.separate(start);
        self.key(field.name);
        if field.is_pointer {
            self.out.push_str("null");
        } else {
            self.write_zero(&field.of);
        }
    }

    /// Writes the zero value of Go.
    fn write_zero(&mut self, of: &'s SchemaType<'static>) {
        match of {
            SchemaType::Scalar(scalar) => self.out.push_str(zero(*scalar)),
            SchemaType::Struct(..) if self.level < MAX_LEVELS => {
                self.out.push('{');
                let start = self.out.len();
                self.level += 1;
                for field in self.schemas.maps(of).map_or(&[][..], |maps| maps.fields()) {
                    self.absent(field, None, start);
                }
                self.level -= 1;
                self.out.push('}');
            }
            _ => self.out.push_str("null"),
        }
    }

    /// Whether the value is the zero value of Go.
    fn is_zero(&self, of: &'s SchemaType<'static>, node: Node<'_>) -> bool {
        let Some(maps) = self
            .schemas
            .maps(of)
            .filter(|_| matches!(of, SchemaType::Struct(..)))
        else {
            return is_empty_node(of, node);
        };
        node.entries().all(|(name, value)| {
            let is_zero =
                |field: &'s SchemaField<'static>| !field.is_pointer && self.is_zero(&field.of, value);
            value.is_null() || maps.declared(&name).is_some_and(is_zero)
        })
    }

    fn member(&mut self, name: &str, raw: &str, start: usize) {
        self.separate(start);
        self.key(name);
        self.out.push_str(raw);
    }

    /// Writes a comma unless nothing was written since `start`.
    fn separate(&mut self, start: usize) {
        if self.out.len() > start {
            self.out.push(',');
        }
    }

    fn key(&mut self, name: &str) {
        write_string(&mut self.out, name);
        self.out.push(':');
    }

    /// Notes an unknown field if that is an error. Its shape identifies the field across the items
    /// of lists and maps.
    fn note_unknown(&mut self) {
        if self.reading == DecodeMode::Strict && self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push(Unknown {
                path: noted_path(&self.path),
                shape: self.shape.clone(),
            });
        }
    }

    fn within(&mut self, step: &str, shape: &str, go: impl FnOnce(&mut Self)) {
        let (path, back) = (self.path.len(), self.shape.len());
        self.path.push_str(step);
        self.shape.push_str(shape);
        go(self);
        self.path.truncate(path);
        self.shape.truncate(back);
    }
}

/// Whether the encoded value is empty, as `omitempty` defines it.
fn is_empty(of: &SchemaType<'_>, written: &str) -> bool {
    match of {
        SchemaType::Struct(..) => false,
        SchemaType::Scalar(scalar) => written == zero(*scalar) || matches!(written, "\"\"" | "null"),
        _ => matches!(written, "null" | "[]" | "{}"),
    }
}

fn is_empty_node(of: &SchemaType<'_>, node: Node<'_>) -> bool {
    match node.kind() {
        Kind::Array => node.is_empty(),
        Kind::Object => node.is_empty() && !matches!(of, SchemaType::Struct(..)),
        _ => is_empty(of, node.raw()),
    }
}

#[cfg(test)]
mod tests;
