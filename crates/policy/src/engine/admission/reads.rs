//! Which parts of a review an expression may look at.

use super::environment::{OBJECT, OLD_OBJECT, REQUEST};
use portcullis_cel::Program;

/// Whether an expression may look at what lies at one of these places of a review: the steps
/// from the request, such as `["object", "spec", "replicas"]`.
#[must_use]
pub fn may_read(program: &Program, places: &[Vec<String>]) -> bool {
    let reads = program.reads();
    let slot_of = |part: &String| match part.as_str() {
        "object" => Some(OBJECT),
        "oldObject" => Some(OLD_OBJECT),
        _ => None,
    };
    places.iter().any(|place| {
        let slot = place.first().and_then(slot_of);
        reads.iter().any(|read| match slot {
            Some(slot) => read.slot == slot && read.touches(place.get(1..).unwrap_or_default()),
            None => read.slot == REQUEST && read.touches(place),
        })
    })
}
