//! The same webhooks twice: registered with the API server, and behind the gateway.
//!
//! ```text
//!                       kube-apiserver
//!  namespace `direct` ┌──────┴──────┐ namespace `behind`
//!                     │             ▼
//!                     │          gateway (its webhooks in a manifest)
//!                     ▼             ▼
//!              /direct/m1 …    /behind/m1 …     one server: m1, m2, m3 mutate, v1, v2, v3 validate
//! ```

pub(crate) mod between;
pub(crate) mod chain;
pub(crate) mod objects;
pub(crate) mod past;
pub(crate) mod same;
pub(crate) mod servers;
