//! Telemetry: metrics, the decision log, structured logs.
//!
//! Each is a typed contract: metric names and label values stand in
//! [`metrics`], the lines of the decision log in [`decision_log`]. No label
//! takes its value from a request's body, no credential reaches any of them.

pub mod decision_log;
mod line_queue;
pub mod logging;
pub mod metrics;

pub use decision_log::DecisionLog;
pub use metrics::Metrics;
