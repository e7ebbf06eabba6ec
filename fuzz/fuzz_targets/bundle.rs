//! The layer of a bundle, its archive, and its manifest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| portcullis::bundle::fuzz(data));
