//! A file of manifests: read, checked, compiled.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use portcullis_policy::admission::AdmissionSettings;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else {
        return Corpus::Reject;
    };
    let (manifests, faults) = portcullis_fuzz::load(text);
    assert_eq!(manifests.is_none(), faults.has_errors(), "{faults}");
    if let Some(manifests) = manifests {
        let _ = manifests.admission(&AdmissionSettings::default());
    }
    Corpus::Keep
});
