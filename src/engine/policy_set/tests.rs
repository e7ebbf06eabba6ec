use super::*;
use crate::engine::fixtures::*;
use crate::engine::{Criterion, Decision, Evaluation, FailurePolicy, Finding, Policies, Shadow, Subject};

mod conditions;
mod cost;
mod grants;
mod order;
mod reference;
