//! Kubernetes' CEL: environment, libraries, type check, cost. Knows nothing of the rest.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
