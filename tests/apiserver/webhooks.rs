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

mod between;
mod chain;
mod objects;
mod past;
mod same;
mod servers;
