//! Telemetry: metrics, the decision log, structured logs, traces.
//!
//! Each has a fixed schema: metric names and label values are in [`metrics`], the fields
//! of the decision log in [`decision_log`]. No label value comes from a request's body,
//! and no credential appears in any of them.

mod bounded_folder;
pub mod decision_log;
mod log_records;
pub mod logging;
pub mod metrics;
pub(crate) mod per_worker;
pub mod traces;
mod write_queue;

pub(crate) use bounded_folder::{BoundedFolder, create_private_folder};
pub use decision_log::DecisionLog;
pub use log_records::LogRecords;
pub use metrics::Metrics;
pub use traces::{ReviewTrace, Traces};
pub(crate) use write_queue::{BatchWriter, QueueSettings, SwitchedQueue, WriteBatch, WriteQueue};
