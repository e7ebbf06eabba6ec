//! Kubernetes' CEL: the expressions of policies and match conditions.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod check;
pub mod cost;
mod environment;
mod error;
mod evaluate;
mod function;
mod go_format;
pub mod json;
mod library;
pub mod predicate;
mod program;
mod reads;
pub mod regex;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use crate::cost::{Budget, CompileBudget, MAX_COMPILE_STEPS, MAX_COMPILED_BYTES, MAX_EVALUATION_BYTES};
pub use environment::{AdmissionVariables, Environment, PerVersion, Version};
pub use error::{CompileError, CompileErrorKind, EvalError};
pub use go_format::{quote, write_quoted};
pub use library::authorizer::{AccessAnswer, AccessCheck, AccessQuestion, AuthorizeAccess};
pub use program::{Activation, LazyValue, Program};
pub use reads::{AttributeRead, ReadExtent, ReadStep};
pub use syntax::{
    MAX_DEPTH, MAX_LENGTH, MAX_NESTING, ObjectPart, PartStep, PatchPath, VariableUse, compared_parts,
    copied_parts, is_identifier, made_objects, patch_paths, plain_or_values, variable_uses,
};
pub use types::{ObjectType, Type};
pub use value::{
    Bytes, Duration, Entries, Key, List, Map, MapEntries, Object, Opaque, Quantity, QuantityFault, Semver,
    SemverFault, Text, Timestamp, UrlFault, UrlValue, Value,
};
