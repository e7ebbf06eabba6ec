//! An object, on the first line, and what is to be changed of it: as a patch, and
//! as the object that a patch is to make of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_cel::json::{Document, diff, patch};

fuzz_target!(|data: &[u8]| {
    let (before, rest) = portcullis_fuzz::halves(data);
    let (Ok(before), Ok(rest)) = (Document::parse_bytes(before), Document::parse_bytes(rest)) else {
        return;
    };
    if let Ok(operations) = patch::read(rest.root())
        && let Ok(changed) = patch::apply(before.root(), operations)
    {
        Document::parse(changed.to_text()).expect("what a patch makes is JSON");
    }
    let operations = patch::write(&diff(before.root(), rest.root()));
    let written = Document::parse(operations.as_str()).expect("a patch is JSON");
    let Ok(changed) = patch::apply(before.root(), patch::read(written.root()).expect("it is a patch")) else {
        // A scalar cannot be replaced as a whole.
        return;
    };
    let changed = Document::parse(changed.to_text()).expect("what a patch makes is JSON");
    assert!(changed.root().same(rest.root()), "{operations}");
});
