//! A snapshot of files, for tests.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::pki::Authority;
use crate::state::{FilesAlone, Snapshot, load};

/// The time of tests, at which what [`mk_snapshot`] writes is valid.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// What is in force with `manifests` for every cluster and with `more` in the configuration. The
/// files are in the folder.
pub(crate) fn mk_snapshot(manifests: &str, more: &str) -> (TempDir, Snapshot) {
    mk_snapshot_of(manifests, &[], more)
}

/// The same with manifests of `clusters`, each of which has a caller that may see the console, and
/// sees that cluster alone.
pub(crate) fn mk_snapshot_of(manifests: &str, clusters: &[(&str, &str)], more: &str) -> (TempDir, Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = authority.server();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    write("ca.crt", &authority.pem());
    write("server.crt", &server.pem());
    write("server.key", &server.key_pem());
    // A file without a byte is a fault.
    write(
        "manifests.yaml",
        format!("# those of all\n{manifests}").as_bytes(),
    );
    let (mut callers, mut paths) = (String::new(), "manifests.yaml".to_owned());
    for (cluster, manifests) in clusters {
        write(
            &format!("{cluster}.yaml"),
            format!("# its own\n{manifests}").as_bytes(),
        );
        paths += &format!(", {{path: {cluster}.yaml, cluster: {cluster}}}");
        callers += &format!(
            "- {{clientCertificate: {{commonNames: [{cluster}]}}, endpoints: [authorize, console], cluster: {cluster}}}\n"
        );
    }
    let configuration = format!(
        "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
         server: {{address: '127.0.0.1:0', tls: {{certificate: server.crt, privateKey: server.key, clientCA: ca.crt}}}}\n\
         callers:\n- {{clientCertificate: {{commonNames: [api]}}, endpoints: [authorize, validate, mutate]}}\n\
         {callers}manifests: [{paths}]\n{more}"
    );
    write("portcullis.yaml", configuration.as_bytes());
    let snapshot = snapshot(&folder.path().join("portcullis.yaml"));
    (folder, snapshot)
}

fn snapshot(configuration: &Path) -> Snapshot {
    let (snapshot, faults) = load(configuration, &FilesAlone, None, now());
    snapshot.unwrap_or_else(|| panic!("{faults}"))
}
