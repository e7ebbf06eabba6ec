//! Limits for objects that patches and mutations change, and for their memory.
//!
//! Users choose the size and content of objects, and policies and webhooks, perhaps written by
//! others, change them. So the size after a change is limited by the size received, all patches of
//! a review share one budget, and the objects of all reviews share [`ObjectMemory`].

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Request;
use crate::model::StatusReason;
use portcullis_cel::json::{self, Document, write_string};
use portcullis_cel::{List, Map, Value};

/// The most bytes of an object after a change: the API server's limit for a request. If the object
/// received is large, its size may double instead.
pub const MAX_OBJECT: usize = 3 << 20;

/// The memory budget for changed objects, shared by all runs of the process.
pub trait ObjectMemory: Sync {
    /// Reserves `bytes` until the returned guard is dropped. `None` if the cluster or the user of
    /// this run may not reserve so many.
    fn reserve(&self, bytes: usize) -> Option<TakenMemory>;
}

/// A reservation of memory, which is released when it is dropped.
pub struct TakenMemory(pub Box<dyn Any + Send + Sync>);

/// An object after a change.
#[derive(Debug)]
pub struct ChangedObject {
    document: Document<'static>,
    _taken: Option<TakenMemory>,
}

/// The limits for changes of one object.
#[derive(Clone, Copy)]
pub(crate) struct ChangeLimits<'l> {
    /// The most bytes of the object after any change.
    max_bytes: usize,
    memory: Option<&'l dyn ObjectMemory>,
}

/// Why an object cannot be changed. Rejects the request whatever the failure policy: the missing
/// change may be what makes the object safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The object would be too large.
    #[error(
        "the object would have {bytes} bytes after the change, and may have {most}: 3 MiB, or twice what was received"
    )]
    TooLarge {
        /// The size that it would have.
        bytes: usize,
        /// The size limit.
        most: usize,
    },
    /// The patch is larger than any object that it may produce.
    #[error("the patch has {bytes} bytes, and may have {most}: twice as many as the object after it")]
    PatchTooLarge {
        /// The size of the patch.
        bytes: usize,
        /// The size limit.
        most: usize,
    },
    /// There is no memory for the object.
    #[error("the memory for objects under review, or one user's share of it, is used up; try again")]
    NoMemory,
    /// An API server could not decode the result as an object of its kind.
    #[error("{0}")]
    Undecodable(String),
    /// The result is not valid JSON, or too deeply nested.
    #[error("the object after the change cannot be read: {0}")]
    Unreadable(#[from] json::JsonError),
}

// === impl ChangeLimits ===

impl<'l> ChangeLimits<'l> {
    pub(crate) fn of(request: &Request<'_>, memory: Option<&'l dyn ObjectMemory>) -> Self {
        let received = request.object.map_or(0, |object| object.raw().len());
        let most = MAX_OBJECT.max(2 * received);
        Self {
            max_bytes: most,
            memory,
        }
    }

    /// Parses the JSON of a changed object, and reserves memory for it.
    pub(crate) fn object(self, text: String) -> Result<Arc<ChangedObject>, ChangeError> {
        let (bytes, most) = (text.len(), self.max_bytes);
        if bytes > most {
            return Err(ChangeError::TooLarge { bytes, most });
        }
        let taken = self.take(bytes + Document::most_index_bytes(text.as_bytes()))?;
        Ok(Arc::new(ChangedObject {
            document: Document::parse(text)?,
            _taken: taken,
        }))
    }

    /// Reserves memory for the index of a patch.
    pub(crate) fn memory_of_patch(self, patch: &[u8]) -> Result<Option<TakenMemory>, ChangeError> {
        let (bytes, most) = (patch.len(), 2 * self.max_bytes);
        if bytes > most {
            return Err(ChangeError::PatchTooLarge { bytes, most });
        }
        self.take(Document::most_index_bytes(patch))
    }

    fn take(self, bytes: usize) -> Result<Option<TakenMemory>, ChangeError> {
        let taken = self.memory.map(|memory| memory.reserve(bytes));
        taken.map(|taken| taken.ok_or(ChangeError::NoMemory)).transpose()
    }
}

// === impl ChangedObject ===

impl ChangedObject {
    /// Creates an object without reserving memory.
    #[must_use]
    pub fn new(document: Document<'static>) -> Arc<Self> {
        Arc::new(Self {
            document,
            _taken: None,
        })
    }
}

impl Deref for ChangedObject {
    type Target = Document<'static>;

    fn deref(&self) -> &Document<'static> {
        &self.document
    }
}

// === impl TakenMemory ===

impl fmt::Debug for TakenMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakenMemory")
    }
}

// === impl ChangeError ===

impl ChangeError {
    /// The reason of the denial.
    pub(crate) const fn reason(&self) -> StatusReason {
        match self {
            Self::TooLarge { .. } | Self::PatchTooLarge { .. } => StatusReason::RequestEntityTooLarge,
            Self::NoMemory => StatusReason::TooManyRequests,
            Self::Undecodable(_) | Self::Unreadable(_) => StatusReason::InternalError,
        }
    }
}

// CEL values as JSON.

/// The most bytes of a value as JSON, which is the API server's limit for a request: few values of
/// an expression that are shared many times can be far larger as JSON.
const MAX_JSON: usize = 3 << 20;

/// Writes `value` as JSON. Values from parsed JSON are copied verbatim.
///
/// Kubernetes converts numbers to floating point, and integers beyond 2^53 to strings; here they
/// are written as they are.
pub(crate) fn write(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    // Escapes can make a string several times as long, so its length is checked before.
    check_bytes(match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    })?;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        Value::Double(value) if value.is_finite() => out.push_str(&value.to_string()),
        Value::String(text) => write_string(out, text),
        // As protobuf writes them.
        Value::Timestamp(time) => write_string(out, &time.to_string()),
        Value::Duration(duration) => write_string(out, &duration.to_string()),
        Value::Optional(Some(value)) => write(out, value)?,
        Value::Bytes(bytes) => write_string(out, &STANDARD.encode(&**bytes)),
        Value::List(List::Json(node)) => out.push_str(node.raw()),
        Value::List(list) => write_list(out, list)?,
        Value::Map(Map::Json(node)) => out.push_str(node.raw()),
        Value::Map(map) => write_map(out, map)?,
        other => return Err(format!("a value of type {} is not JSON", other.type_of())),
    }
    check(out)
}

/// Checks that the output is not too long.
pub(crate) fn check(out: &str) -> Result<(), String> {
    check_bytes(out.len())
}

fn check_bytes(bytes: usize) -> Result<(), String> {
    if bytes > MAX_JSON {
        return Err(format!("more than {MAX_JSON} bytes"));
    }
    Ok(())
}

fn write_list(out: &mut String, list: &List<'_>) -> Result<(), String> {
    out.push('[');
    for (position, item) in list.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, &item)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(out: &mut String, map: &Map<'_>) -> Result<(), String> {
    out.push('{');
    for (position, (key, value)) in map.entries().enumerate() {
        if position > 0 {
            out.push(',');
        }
        match key {
            Value::String(text) => write(out, &Value::String(text))?,
            other => return Err(format!("a key of type {} is not JSON", other.type_of())),
        }
        out.push(':');
        write(out, &value)?;
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_many_times_is_not_written_without_bound() {
        let text = Value::str("0123456789");
        let shared = |levels: usize| (0..levels).fold(text.clone(), |value, _| Value::list(vec![value; 10]));
        let mut out = String::new();
        assert_eq!(write(&mut out, &shared(4)), Ok(()));
        assert!(write(&mut String::new(), &shared(30)).is_err());
    }
}
