//! Which parts of a review an expression may look at.

use super::environment::{OBJECT, OLD_OBJECT, REQUEST};
use portcullis_cel::Program;

/// Whether an expression may look at what lies at `place` of a review: the steps from the
/// request, such as `["object", "spec", "replicas"]`.
#[must_use]
pub fn may_read(program: &Program, place: &[String]) -> bool {
    let reads = program.reads();
    let slot_of = |part: &str| match part {
        "object" => Some(OBJECT),
        "oldObject" => Some(OLD_OBJECT),
        _ => None,
    };
    let slot = place.first().and_then(|part| slot_of(part));
    reads.iter().any(|read| match slot {
        Some(slot) => read.slot == slot && read.touches(place.get(1..).unwrap_or_default()),
        None => read.slot == REQUEST && read.touches(place),
    })
}
