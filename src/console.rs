//! The console: a read-only page that shows what is decided, and why.
//!
//! ```text
//! snapshot, recent decisions, metrics ──▶ views: one model each ──▶ templates ──▶ HTML
//!                                                      └──────────▶ serde ──────▶ JSON
//! ```
//!
//! A view is a pure function of what is in force, of what was decided lately and of the
//! query of its URL. Nothing here knows sockets: `server` listens, lets people in and
//! sends what [`views::render`] returns. The bodies of objects and credentials do not get
//! this far, because the decision log, of which the decisions are taken, has neither.
//!
//! Templates are compiled by askama, which escapes every value for HTML. No template
//! contains a script or a style of its own, so that the Content-Security-Policy of the
//! listener allows none.

mod changes;
#[cfg(test)]
mod fixtures;
mod history;
mod live;
pub(crate) mod page;
mod query;
mod recent_decisions;
mod state;
mod status;
pub mod views;
mod visible;

pub use history::{MetricsHistory, SAMPLE_INTERVAL};
pub use live::LiveStream;
pub use page::{Page, Representation, ViewError};
pub use query::ViewQuery;
pub use recent_decisions::{ClusterDecisions, DecisionSlice, KeptDecision, RecentDecisions};
pub use state::{ConsoleState, ViewContext, ViewRequest, VisibleClusters};
