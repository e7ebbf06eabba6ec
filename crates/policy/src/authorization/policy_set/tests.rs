use super::*;
use crate::authorization::fixtures::*;
use crate::authorization::{Criterion, Effect, FailurePolicy, Finding, Mode, Shadow, Subject};
use crate::model::{Deadline, Decision, PolicyResult};

mod access_requests;
mod conditions;
mod cost;
mod grants;
mod limits;
mod order;
mod promises;
pub(crate) mod reference;
mod selectors;
mod times;
