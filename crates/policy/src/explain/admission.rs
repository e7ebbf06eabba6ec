//! Answers about admission: what becomes of a review, step by step.

mod explain;
mod review;
mod trace;

use crate::engine::admission::Phase;

pub use explain::{
    AdmitAllExplained, AdmitAllInWords, AdmitExplained, AdmitInWords, AnsweredObject, StepsInWords,
};
pub use review::{OfflineDecision, OfflineReview, OfflineReviewResult};
pub use trace::{StepRecorder, TracedStep, TracedValue};

/// The phases, in the order in which an API server asks.
pub const PHASES: [Phase; 2] = [Phase::Mutate, Phase::Validate];
