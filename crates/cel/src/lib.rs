//! Kubernetes' CEL: the expressions of policies and match conditions, with the libraries,
//! static types and cost model of kube-apiserver. It is independent of how expressions
//! are used.
//!
//! ```text
//! load:     text -> syntax -> check (names, types, overloads) -> Program
//! request:  Program + Activation + Budget -> Value | EvalError
//! ```
//!
//! ```
//! use portcullis_cel::{Activation, Budget, Environment, Type, Value, Version};
//!
//! let environment = Environment::new(Version::NEWEST).variable("replicas", Type::Int);
//! let program = environment.compile("replicas <= 5", &[Type::Bool]).unwrap();
//!
//! let mut activation = Activation::new(&environment);
//! activation.set(environment.slot("replicas").unwrap(), Value::Int(3));
//! let mut budget = Budget::new(portcullis_cel::cost::PER_BINDING);
//! let allowed = program.evaluate(&mut activation, &mut budget).unwrap();
//! assert_eq!(allowed.as_bool(), Some(true));
//! ```
//!
//! Expressions and objects may be malicious: length and nesting are limited before
//! parsing, cost and time during evaluation, and nothing panics.

#![warn(missing_docs)]

mod authorize;
mod budget;
mod check;
pub mod cost;
mod declarations;
mod environment;
mod error;
mod evaluate;
mod function;
pub mod json;
mod library;
mod program;
mod quote;
mod reads;
pub mod regex;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use authorize::{AccessAnswer, AccessCheck, AccessQuestion, AuthorizeAccess};
pub use budget::{Budget, CompileBudget, MAX_COMPILE_STEPS, MAX_COMPILED_BYTES, MAX_EVALUATION_BYTES};
pub use declarations::AdmissionVariables;
pub use environment::{Environment, PerVersion, Version};
pub use error::{CompileError, CompileErrorKind, EvalError};
pub use program::{Activation, LazyValue, Program};
pub use quote::{quote, write_quoted};
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
