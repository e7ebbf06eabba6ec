//! YAML and JSON: read, written, and read to the same values.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use portcullis_policy::document;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else {
        return Corpus::Reject;
    };
    for read in document::parse(None, text).into_iter().flatten() {
        let value = read.root().to_json();
        for written in [document::to_yaml(&value), value.to_string()] {
            let again = document::parse(None, &written).unwrap_or_else(|fault| panic!("{fault}: {written}"));
            let again = again.first().map(|document| document.root().to_json());
            assert_eq!(again.as_ref(), Some(&value), "{written}");
        }
    }
    Corpus::Keep
});
