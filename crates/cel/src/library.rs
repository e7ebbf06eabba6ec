//! Kubernetes' CEL functions, one file per library, with the version in which each was
//! added (apiserver `pkg/cel/environment/base.go`).

mod addresses;
mod arithmetic;
mod authorizer;
mod comparisons;
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
mod writer;

pub(crate) use authorizer::{AUTHORIZER, RESOURCE_CHECK};
pub(crate) use format::{check as check_format, is_formattable};

use std::sync::Arc;

use super::environment::{Functions, Version};
use super::function::Overload;
use super::regex::Regex;
use super::types::Type;

/// What can be worked out of the constant arguments of a call.
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
        add(lists::extended(version));
    }
    if since(37) {
        add(lists::membership());
    }
    functions
}

/// The functions that only a mutation has.
pub(crate) fn mutation() -> Vec<Overload> {
    patches::functions()
}

/// The type that a library gives this name.
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
