//! A snapshot of files, for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::config::Config;
use crate::pki::Authority;
use crate::state::{
    ManifestSource, NoManifestSource, Snapshot, WatchedObjects, WatchedPart, WatchedText, load,
};
use portcullis_cel::Version;
use portcullis_policy::document;
use portcullis_policy::manifest::ValidatedObject;

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
    mk_snapshot_from(manifests, clusters, more, &NoManifestSource)
}

/// What is in force with `manifests`, and with `watched` from a watched cluster called `default`.
pub(crate) fn mk_snapshot_watching(manifests: &str, watched: &str) -> (TempDir, Snapshot) {
    let watched = WatchedAlone(Arc::new(mk_watched("default", watched)));
    mk_snapshot_from(manifests, &[], "", &watched)
}

/// What a watched cluster has.
pub(crate) fn mk_watched(cluster: &str, manifests: &str) -> WatchedObjects {
    let mut part = WatchedPart::default();
    for document in document::parse(None, manifests).unwrap() {
        part.texts.push(Arc::new(document.root().to_json()));
        let object = ValidatedObject::read(document, cluster.into(), Version::NEWEST);
        part.objects.push(Arc::new(object.unwrap()));
    }
    WatchedObjects {
        cluster: cluster.to_owned(),
        parts: vec![Arc::new(part)],
        ..WatchedObjects::default()
    }
}

/// A cluster that stays as it is.
struct WatchedAlone(Arc<WatchedObjects>);

impl ManifestSource for WatchedAlone {
    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        vec![Arc::clone(&self.0)]
    }
}

impl WatchedText for serde_json::Value {
    fn to_json(&self) -> serde_json::Value {
        self.clone()
    }
}

fn mk_snapshot_from(
    manifests: &str,
    clusters: &[(&str, &str)],
    more: &str,
    source: &dyn ManifestSource,
) -> (TempDir, Snapshot) {
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
    let snapshot = snapshot(&folder.path().join("portcullis.yaml"), source);
    (folder, snapshot)
}

fn snapshot(configuration: &Path, source: &dyn ManifestSource) -> Snapshot {
    let (snapshot, faults) = load(configuration, source, None, now());
    snapshot.unwrap_or_else(|| panic!("{faults}"))
}
