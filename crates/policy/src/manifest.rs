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

mod admission;
mod admission_exception;
mod assemble;
mod authorization_policy;
mod budget;
mod compile;
mod judge;
mod kind;
mod lint;
pub mod names;
mod namespace;
mod object;
mod object_set;
mod rbac;
mod report;
mod source;
mod v1alpha1;
mod validated;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use admission::{MigratedObject, migrate};
pub use assemble::{ChangedManifests, assemble, assemble_changed, scope};
pub use budget::{MemoryBudget, SourceLimits};
pub use compile::Compilation;
pub use judge::{Surroundings, is_judged};
pub use kind::{KINDS, KnownKind};
pub use lint::{built_in_resource, built_in_resources, is_never_asked_about, kind_of, odd_request};
pub use object_set::{ObjectSet, SetDifference, hidden_faults};
pub use source::{SourceObjects, documents};
pub use validated::{ObjectIdentity, ValidatedObject};

use crate::authorization::authorizer::Authorizer;
use crate::authorization::matching::ClusterScoped;
use crate::authorization::{NeverDeny, Policies};
use crate::engine::Time;
use crate::engine::admission::AdmissionObjects;
use crate::engine::admission::matching::MissingNamespace;
use crate::field::Faults;
use portcullis_cel::Version;

/// The text of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name, for messages.
    pub file: String,
    /// YAML, in any number of documents, or JSON.
    pub text: String,
    /// The only cluster that its objects hold for; `None` for every cluster.
    pub cluster: Option<String>,
}

/// What the configuration says about manifests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Whom no Deny can hold up.
    pub never_deny: NeverDeny,
    /// The clusters that callers speak for; none: one without a name.
    pub clusters: BTreeSet<String>,
    /// The clusters whose objects are watched, Namespaces among them.
    pub watched: BTreeSet<String>,
    /// The custom resources without namespace of each cluster, as far as it is known.
    pub cluster_scoped: BTreeMap<String, ClusterScoped>,
    /// What becomes of requests in a namespace of which nothing tells, to warn of it.
    pub missing_namespace: MissingNamespace,
    /// What expressions are compiled for.
    pub cel_version: Version,
    /// When it is read, to warn of what holds no more; `None`: of nothing.
    pub now: Option<Time>,
    /// The webhooks of the API server's own AuthorizationConfiguration, to warn of Denies that it
    /// never asks about; empty where it is not known.
    pub api_server_webhooks: Vec<Authorizer>,
}

impl Options {
    /// The custom resources without namespace of `cluster`, as far as it is known.
    pub(crate) fn scoped(&self, cluster: &str) -> &ClusterScoped {
        static NONE: ClusterScoped = ClusterScoped::NONE;
        self.cluster_scoped.get(cluster).unwrap_or(&NONE)
    }
}

/// Everything that sources say, ready for use.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// What decides requests.
    pub policies: Policies,
    /// What admission uses, for every cluster.
    pub shared: Scope,
    /// What admission uses for one cluster besides that.
    pub clusters: BTreeMap<String, Scope>,
}

/// The objects for admission that hold for one cluster, or for all.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// What decides admission: policies, bindings, and the objects that these look at.
    pub admission: AdmissionObjects,
}

/// Reads, checks and assembles `sources`.
///
/// Every fault of every source is reported in one run. Where one is an error there
/// are no manifests; warnings are lint, and are returned with valid manifests.
#[must_use]
pub fn load(sources: &[Source], options: &Options) -> (Option<Manifests>, Faults) {
    let (set, faults) = read(sources, options);
    (set.map(|set| assemble(set.objects(), options)), faults)
}

/// Like [`load`], as far as the objects that there are.
#[must_use]
pub fn read(sources: &[Source], options: &Options) -> (Option<ObjectSet>, Faults) {
    let read = |source| Arc::new(SourceObjects::read(source, options.cel_version, None));
    ObjectSet::new(sources.iter().map(read).collect(), options, None)
}

#[cfg(test)]
mod tests;
