//! A kubeconfig, as that of callers.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use portcullis::config::kubeconfig;
use portcullis_fuzz::Memory;

fuzz_target!(|data: &[u8]| {
    let files = Memory::default()
        .with("/p/kubeconfig", data)
        .with("/p/token", "abc")
        .with(
            "/p/client.crt",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
    let (read, faults) = kubeconfig::read(&files, Path::new("/p/kubeconfig"));
    assert!(!read.files.is_empty() || faults.has_errors(), "{faults}");
});
