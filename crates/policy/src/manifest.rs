//! Manifests: read, validated, linted and compiled for the engine.
//!
//! ```text
//! Source --stream--> Document --object--> SourceObjects --> ObjectSet --assemble--> Manifests
//!  file, text,   a YAML stream  kind, decode,  each source     duplicates,  |     Policies, and
//!  cluster       or a List      defaults,      by itself       lint         |     what admission
//!                flattened      validation                                  |     uses
//!                                              what an API server tells of -'
//! ```
//!
//! What a source says is shared by the sets that have it, and so is each object that stays
//! as it is in a source that changes: neither is read, validated or compiled again.
//!
//! Every step collects all the faults that it finds; the last one happens only if none of
//! them is an error. Input is text: files are read elsewhere.

mod access_request;
mod admission;
mod admission_exception;
mod assemble;
mod authorization_invariant;
mod authorization_policy;
mod compile;
mod kind;
mod lint;
pub mod names;
mod namespace;
mod object;
mod object_set;
mod own_kinds;
mod rbac;
mod report;
mod source;
mod source_objects;
mod v1alpha1;
mod validated;

use std::sync::Arc;

pub use admission::{MigratedObject, migrate};
pub use assemble::{ChangedManifests, Manifests, Scope, assemble, assemble_changed, scope};
pub use kind::{KINDS, KnownKind};
pub use lint::{
    built_in_resource, built_in_resources, is_namespaced, is_never_asked_about, kind_of, odd_request,
};
pub use object_set::{ObjectSet, SetDifference, hidden_faults};
pub use own_kinds::{ValidationContext, needs_validation};
pub use report::Compilation;
pub use source::{Options, Source, documents, each_object};
pub use source_objects::{MemoryBudget, SourceLimits, SourceObjects, default_roles};
pub use validated::{ObjectIdentity, ValidatedObject};

use crate::field::Faults;

/// Reads, checks and assembles `sources`.
///
/// Every fault of every source is reported in one run. Where one is an error there
/// are no manifests; warnings are lint, and are returned with valid manifests.
#[must_use]
pub fn load(sources: &[Source], options: &Options) -> (Option<Manifests>, Faults) {
    let (set, faults) = read(sources, options);
    (set.map(|set| assemble(set.objects(), options)), faults)
}

/// Like [`load`], of the objects that there are.
#[must_use]
pub fn read(sources: &[Source], options: &Options) -> (Option<ObjectSet>, Faults) {
    let read = |source| Arc::new(SourceObjects::read(source, options.cel_version, None));
    ObjectSet::new(sources.iter().map(read).collect(), options, None)
}

#[cfg(test)]
mod tests;
