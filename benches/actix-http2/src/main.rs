//! The floor of the load benchmark, with actix-web's HTTP/2: the folder of the set-up is
//! its argument.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement that cannot be made ends at once"
)]

#[path = "../../load/floor.rs"]
mod floor;
#[path = "../../load/review.rs"]
mod review;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let folder = std::env::args_os().nth(1).expect("the folder of the set-up");
    floor::run(folder.as_ref());
}
