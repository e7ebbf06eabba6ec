//! The tables of built-in types and resources, against what the API server says of them.

mod definitions;
mod resources;

use crate::binaries;
use crate::cluster::Cluster;
use crate::harness::folder::Folder;
use definitions::Definitions;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Set to write the table instead of comparing it.
const WRITE: &str = "PORTCULLIS_WRITE_SCHEMA";

const TYPES: &str = "src/engine/admission/apply/schema.txt";
const RESOURCES: &str = "src/manifest/lint/known/resources.txt";

#[test]
fn the_tables_of_types_and_resources_are_what_the_api_server_says() {
    let Some(binaries) = binaries::find() else { return };
    let flags = [
        "--authorization-mode=RBAC".to_owned(),
        "--runtime-config=api/all=true".to_owned(),
    ];
    let cluster = Cluster::start(&binaries, Folder::new("schema"), &[], &flags);
    let version = get(&cluster, "/version");
    let version = version["gitVersion"].as_str().unwrap();
    compare(TYPES, &definitions(&cluster).table(version));
    compare(RESOURCES, &resources::list(&cluster, version));
}

fn compare(file: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os(WRITE).is_some() {
        fs::write(path, table).unwrap();
        return;
    }
    let committed = fs::read_to_string(path).unwrap();
    // The first line names the version: other binaries have other types.
    assert_eq!(
        committed.lines().next(),
        table.lines().next(),
        "{file} is of another API server: run tests/apiserver/write-schema"
    );
    let differs = committed
        .lines()
        .zip(table.lines())
        .find(|(own, theirs)| own != theirs);
    assert_eq!(differs, None, "{file}: run tests/apiserver/write-schema");
    assert_eq!(
        committed.lines().count(),
        table.lines().count(),
        "{file}: run tests/apiserver/write-schema"
    );
}

fn definitions(cluster: &Cluster) -> Definitions {
    let index = get(cluster, "/openapi/v3");
    let mut definitions = Definitions::default();
    for (path, document) in index["paths"].as_object().unwrap() {
        let version = path.strip_prefix("apis/").or(path.strip_prefix("api/"));
        if let Some(version) = version {
            let document = get(cluster, document["serverRelativeURL"].as_str().unwrap());
            definitions.read(version, &document);
        }
    }
    definitions
}

fn get(cluster: &Cluster, path: &str) -> Value {
    let response = cluster.admin().get(path).unwrap();
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.json()
}
