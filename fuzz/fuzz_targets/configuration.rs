//! The configuration, and the files of callers that it names.
#![no_main]

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use portcullis::identity::Authenticator;
use portcullis::config;
use portcullis_fuzz::Memory;

const KUBECONFIG: &str = include_str!("../../kubeconfig-examples/authorization-by-token.kubeconfig");

fuzz_target!(|data: &[u8]| {
    let files = Memory::default()
        .with("/p/portcullis.yaml", data)
        .with("/p/callers.kubeconfig", KUBECONFIG);
    let (config, faults) = config::load_from(&files, Path::new("/p/portcullis.yaml"));
    assert!(config.is_some() || faults.has_errors(), "{faults}");
    if let Some(config) = config {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let _ = Authenticator::build_from(&files, &config, None, now);
    }
});
