//! The header `Authorization`, on the first line, and an issuer's keys in the rest.
#![no_main]

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use portcullis::identity::{Authenticator, Credentials};
use portcullis::config;
use portcullis_fuzz::Memory;

const CONFIG: &str = "\
apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}
callers:
- {jwt: {issuer: 'https://i.example.com', audiences: [portcullis], jwks: jwks.json}, endpoints: [authorize]}
";

fuzz_target!(|data: &[u8]| {
    let (header, keys) = portcullis_fuzz::halves(data);
    let files = Memory::default().with("/p/jwks.json", keys);
    let (config, faults) = config::parse(Path::new("/p/portcullis.yaml"), CONFIG, Path::new("/p"));
    let config = config.unwrap_or_else(|| panic!("{faults}"));
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let (authenticator, _) = Authenticator::build_from(&files, &config, None, now);
    let credentials = Credentials {
        authorization: Some(header),
        ..Credentials::default()
    };
    let _ = authenticator.authenticate(&credentials, now);
});
