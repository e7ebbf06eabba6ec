//! The ClusterRoles that every API server makes by itself.

use std::sync::{Arc, LazyLock};

use super::source::Source;
use super::source_objects::SourceObjects;
use super::validated::Content;
use crate::authorization::Role;
use crate::authorization::rbac::bootstrap_policy;
use portcullis_cel::Version;

static ROLES: LazyLock<Vec<Arc<Role>>> = LazyLock::new(|| {
    let source = Source {
        file: "Kubernetes' default".to_owned(),
        text: bootstrap_policy(Version::NEWEST).to_owned(),
        cluster: None,
    };
    let objects = SourceObjects::read(&source, Version::NEWEST, None);
    let roles = objects.objects().filter_map(|object| match &object.content {
        Content::Role(role) => Some(Arc::clone(role)),
        _ => None,
    });
    roles.collect()
});

/// The ClusterRoles that an API server of the newest version makes by itself, as they are written:
/// those that are aggregated have no rules yet.
#[must_use]
pub fn default_roles() -> &'static [Arc<Role>] {
    &ROLES
}
