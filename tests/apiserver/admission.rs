//! The gateway as admission webhook of a real API server.
//!
//! ```text
//!         create, update, scale, delete, exec, apply
//!                          │
//!                   kube-apiserver             AdmissionConfiguration
//!  MutatingAdmissionWebhook │ │ ValidatingAdmissionWebhook
//!          by password      │ │     by certificate, or token for one namespace
//!                  /mutate  ▼ ▼  /validate
//!                        gateway               the policies of each file here
//! ```

pub(crate) mod as_sent;
pub(crate) mod custom_resources;
pub(crate) mod differential;
pub(crate) mod pods;
pub(crate) mod servers;
