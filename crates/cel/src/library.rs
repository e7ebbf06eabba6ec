//! Kubernetes' CEL functions, one file for each library, with the version in which each was added
//! (apiserver `pkg/cel/environment/base.go`).

mod addresses;
mod arithmetic;
pub(crate) mod authorizer;
mod conversions;
mod format;
pub(crate) mod formats;
pub(crate) mod lists;
mod optionals;
mod patches;
mod quantities;
mod regexes;
mod semvers;
mod sets;
mod standard;
mod strings;
mod timestamps;
mod urls;

use std::cmp::Ordering;
use std::fmt::{self, Display, Write};
use std::sync::Arc;

use super::environment::{Functions, Version};
use super::function::Overload;
use super::regex::Regex;
use super::types::Type;
use crate::EvalError;
use crate::evaluate::Evaluation;
use crate::function::Cost;
use crate::program::Call;
use crate::types::Type::{Bool, Int};
use crate::value::{Opaque, Text, Value};
use standard::Computed;

pub(crate) use authorizer::{AUTHORIZER, RESOURCE_CHECK};
pub(crate) use format::{check as check_format, is_formattable};

/// A constant argument of a call in the form that is prepared at compile time.
#[derive(Debug)]
pub(crate) enum PreparedArgument {
    /// The pattern of `matches`, `find` or `findAll`.
    Regex(Arc<Regex>),
}

/// The functions of `version`.
pub(crate) fn functions(version: Version) -> Functions {
    let since = |minor| version >= Version::new(minor);
    let mut functions = Functions::new();
    let mut add = |library: Vec<Overload>| {
        for overload in library {
            functions
                .entry(overload.name)
                .or_default()
                .push(Arc::new(overload));
        }
    };
    add(standard::functions(version));
    add(timestamps::functions());
    add(optionals::functions());
    add(lists::functions());
    add(strings::functions());
    add(regexes::functions());
    add(urls::functions());
    add(authorizer::functions());
    add(quantities::functions());
    if since(29) {
        add(sets::functions());
    }
    if since(30) {
        add(addresses::functions());
    }
    if since(31) {
        add(formats::functions());
        add(authorizer::selectors());
    }
    if since(33) {
        add(semvers::functions());
    }
    if since(34) {
        add(lists::extension(version));
    }
    if since(37) {
        add(lists::since_1_37());
    }
    functions
}

/// The functions that are only available in mutations.
pub(crate) fn mutation() -> Vec<Overload> {
    patches::functions()
}

/// The library type of this name.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    let of = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "string" => Type::String,
        "type" => Type::of_type(Type::Dyn),
        "uint" => Type::Uint,
        "kubernetes.Quantity" => quantities::QUANTITY,
        "kubernetes.URL" => urls::URL,
        "kubernetes.Semver" => semvers::SEMVER,
        "kubernetes.NamedFormat" => formats::FORMAT,
        "net.IP" => addresses::IP,
        "net.CIDR" => addresses::CIDR,
        _ => return None,
    };
    Some(of)
}

// Code that several libraries share: comparisons of quantities and versions, and strings that are
// written piece by piece, each of which is charged before it is written.

/// The functions `isGreaterThan`, `isLessThan` and `compareTo` of a type, with the names of their
/// overloads.
pub(crate) fn comparisons(of: &Type, [greater, less, compare]: [&'static str; 3]) -> [Overload; 3] {
    let nominal = Cost::OfFunction(|_, _| 1);
    let two = || [of.clone(), of.clone()];
    [
        Overload::member(greater, "isGreaterThan", two(), Bool, is_greater).cost(nominal),
        Overload::member(less, "isLessThan", two(), Bool, is_less).cost(nominal),
        Overload::member(compare, "compareTo", two(), Int, compare_to).cost(nominal),
    ]
}

fn order(arguments: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match arguments {
        [Value::Opaque(left), Value::Opaque(right)] => match (left, right) {
            (Opaque::Semver(left), Opaque::Semver(right)) => Ok(left.compare(right)),
            (left, right) => left
                .quantity()
                .zip(right.quantity())
                .map(|(left, right)| left.compare(right))
                .ok_or_else(EvalError::no_such_overload),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_greater<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Bool(order.is_gt()))
}

fn is_less<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Bool(order.is_lt()))
}

fn compare_to<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Int(order as i64))
}

/// A string that is being written. It only grows as far as the evaluation may allocate.
pub(crate) struct TextWriter<'w, 'e, 'a> {
    pub(crate) evaluation: &'w mut Evaluation<'e, 'a>,
    text: String,
    /// The bytes allocated for `text`, which are released when the writer is dropped.
    allocated: usize,
    /// The error that ended writing, which `fmt::Error` cannot carry.
    fault: Option<EvalError>,
}

// === impl TextWriter ===

impl<'w, 'e, 'a> TextWriter<'w, 'e, 'a> {
    pub(crate) const fn new(own: &'w mut Evaluation<'e, 'a>) -> Self {
        Self {
            evaluation: own,
            text: String::new(),
            allocated: 0,
            fault: None,
        }
    }

    /// Appends `piece`, if the evaluation has memory and time for it.
    pub(crate) fn push(&mut self, piece: &str) -> Result<(), EvalError> {
        self.evaluation.work(piece.len())?;
        self.reserve(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// Appends `value`, each piece of it by [`push`](Self::push).
    pub(crate) fn display(&mut self, value: impl Display) -> Result<(), EvalError> {
        let written = write!(self, "{value}");
        written.map_err(|fmt::Error| self.fault.take().unwrap_or_else(EvalError::no_such_overload))
    }

    /// Reserves room for `bytes` more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), EvalError> {
        let needed = self.text.len().saturating_add(bytes);
        let missing = needed.saturating_sub(self.allocated);
        if missing == 0 {
            return Ok(());
        }
        // Doubles the capacity if there is memory for that, so that a long string is rarely moved.
        let more = missing.max(self.allocated.min(self.evaluation.room()));
        self.evaluation.allocate(more)?;
        self.allocated += more;
        self.text.reserve_exact(self.allocated - self.text.len());
        Ok(())
    }

    /// The bytes allocated so far.
    pub(crate) const fn allocated(&self) -> usize {
        self.allocated
    }

    /// Returns the string, whose memory is no longer counted.
    pub(crate) fn into_string(mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Returns the string as a value.
    pub(crate) fn finish(self) -> Computed<'a> {
        self.evaluation.allocate(self.text.len() + Text::BYTES)?;
        Ok(Value::String(Text::Shared(self.text.as_str().into())))
    }
}

impl Write for TextWriter<'_, '_, '_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.push(piece).map_err(|fault| {
            self.fault = Some(fault);
            fmt::Error
        })
    }
}

impl Drop for TextWriter<'_, '_, '_> {
    fn drop(&mut self) {
        self.evaluation.release(self.allocated);
    }
}
