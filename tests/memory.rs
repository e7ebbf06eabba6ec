//! What is made of a user's object takes memory in proportion to it, whatever it is like:
//! so many bytes a byte, at worst. SECURITY.md has the table; `cargo test --test memory --
//! --nocapture` prints what is measured.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a test fails by panicking"
)]

#[path = "memory/bindings.rs"]
mod bindings;
#[path = "harness/inner.rs"]
mod inner;
#[path = "memory/manifests.rs"]
mod manifests;
#[path = "memory/proofs.rs"]
mod proofs;
#[path = "memory/recordings.rs"]
mod recordings;
#[path = "memory/reviews.rs"]
mod reviews;
#[path = "memory/texts.rs"]
mod texts;

use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// All tests share the allocator, so one runs at a time, its inputs included.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints how many bytes a byte of each input `work` takes at most, and fails above `most`.
fn measure<I>(
    what: &str,
    most: f64,
    inputs: impl IntoIterator<Item = (&'static str, usize, I)>,
    work: impl Fn(&I),
) {
    let mut beyond = Vec::new();
    for (name, bytes, input) in inputs {
        // What is made once is there afterwards.
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        work(&input);
        let taken = (ALLOCATOR.peak_usage() - before) as f64 / bytes as f64;
        println!("{what}, {name}: {taken:.1} bytes a byte");
        if taken > most {
            beyond.push(format!("{name}: {taken:.1}"));
        }
    }
    assert!(
        beyond.is_empty(),
        "{what}, {most} bytes a byte at most: {beyond:?}"
    );
}

/// Texts of the same length that are as many values as they can be, or as deep.
fn worst() -> Vec<(&'static str, String)> {
    const BYTES: usize = 1_000_000;
    let list = |item: &str| {
        let count = BYTES / (item.len() + 1);
        format!("[{}]", vec![item; count].join(","))
    };
    let numbered = |of: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for number in 0.. {
            let item = of(number);
            if text.len() + item.len() > BYTES {
                break;
            }
            text.push_str(if text.is_empty() { "" } else { "," });
            text.push_str(&item);
        }
        text
    };
    let deep = format!("{}{}", "[".repeat(4_000), "]".repeat(4_000));
    let deep_maps = format!("{}0{}", "{\"a\":".repeat(4_000), "}".repeat(4_000));
    vec![
        ("empty maps", list("{}")),
        ("zeros", list("0")),
        ("lists of one", list("[0]")),
        ("maps of one", list("{\"a\":0}")),
        ("deep lists", list(&deep)),
        ("deep maps", list(&deep_maps)),
        (
            "many keys",
            format!("{{{}}}", numbered(&|number| format!("\"{number:x}\":0"))),
        ),
        (
            "wide maps",
            list(&format!(
                "{{{}}}",
                (0..40)
                    .map(|key| format!("\"{key:x}\":0"))
                    .collect::<Vec<_>>()
                    .join(",")
            )),
        ),
        (
            "texts",
            format!("[{}]", numbered(&|number| format!("\"{number:04x}\""))),
        ),
        ("escapes", list("\"\\u0061\\n\"")),
        ("secrets", list("{\"kind\":\"Secret\",\"data\":0}")),
        (
            "secrets in secrets",
            format!(
                "{}0{}",
                "{\"kind\":\"Secret\",\"data\":".repeat(9_000),
                "}".repeat(9_000)
            ),
        ),
    ]
}
