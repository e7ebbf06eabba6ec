//! The API groups whose objects decide, by name.

/// Roles and their bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// Admission's policies, bindings and webhook configurations.
pub const ADMISSION: &str = "admissionregistration.k8s.io";

/// Portcullis' own.
pub const PORTCULLIS: &str = "portcullis.dev";
