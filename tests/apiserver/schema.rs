//! The tables of built-in types and resources, against what API servers say of them. They have
//! what each version that is tested has.

pub(crate) mod contained;
pub(crate) mod definitions;
pub(crate) mod go_types;
pub(crate) mod resources;

use crate::binaries::{self, Binaries};
use crate::cluster::Cluster;
use crate::harness::folder::Folder;
use definitions::Definitions;
use go_types::GoTypes;
use portcullis_policy::admission::matching::Equivalents;
use resources::Resources;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Set to write the tables instead of comparing them.
const WRITE: &str = "PORTCULLIS_WRITE_SCHEMA";

const TYPES: &str = "crates/policy/src/admission/apply/schema.txt";
const RESOURCES: &str = "crates/policy/src/manifest/lint/known/resources.txt";

/// The fields that the newest version merges otherwise than the ones before: the table has them
/// as it does.
const CHANGED: &[&str] = &["core.v1.PodStatus.nodeAllocatableResourceClaimStatuses"];

/// What one API server says.
struct Said {
    version: String,
    definitions: Definitions,
    resources: Resources,
}

pub(crate) fn every_type_and_resource_of_the_api_server_is_in_the_tables() {
    let Some(binaries) = binaries::find() else { return };
    let Some(said) = said(&binaries) else { return };
    let types = committed(TYPES);
    let mut missing = contained::missing(&types, &said.definitions.table(&said.version));
    if !types.contains(&format!(" or {} merges", said.version)) {
        let is_known = |found: &String| {
            found
                .split(':')
                .next()
                .is_some_and(|field| CHANGED.contains(&field))
        };
        missing.retain(|found| !is_known(found));
    }
    assert_eq!(
        missing,
        BTreeSet::new(),
        "{TYPES}: run tests/apiserver/write-schema"
    );
    let missing = said.resources.missing(&committed(RESOURCES));
    assert_eq!(missing, [""; 0], "{RESOURCES}: run tests/apiserver/write-schema");
    let unequal = said.resources.unequal(&Equivalents::kubernetes());
    assert_eq!(
        unequal, [""; 0],
        "crates/policy/src/admission/matching/builtin.rs"
    );
}

pub(crate) fn the_tables_are_what_the_api_servers_of_all_versions_say_together() {
    let (Some(newest), Some(older)) = (binaries::find(), binaries::older()) else {
        return;
    };
    let (Some(mut newest), Some(older)) = (said(&newest), said(&older)) else {
        return;
    };
    if newest.version == older.version {
        // The older one is tested as if it were the newest.
        return;
    }
    let servers = format!("{} or {}", older.version, newest.version);
    newest.definitions.join(older.definitions);
    newest.resources.join(older.resources);
    compare(TYPES, &newest.definitions.table(&servers));
    compare(RESOURCES, &newest.resources.table(&servers));
}

fn said(binaries: &Binaries) -> Option<Said> {
    let flags = [
        "--authorization-mode=RBAC".to_owned(),
        "--runtime-config=api/all=true".to_owned(),
    ];
    let cluster = Cluster::start(binaries, Folder::new("schema"), &[], &flags);
    let version = get(&cluster, "/version")["gitVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    Some(Said {
        definitions: definitions(&cluster, GoTypes::of(&version)?),
        resources: Resources::of(&cluster),
        version,
    })
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn committed(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap()
}

fn compare(file: &str, table: &str) {
    if std::env::var_os(WRITE).is_some() {
        fs::write(path(file), table).unwrap();
        return;
    }
    let committed = committed(file);
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

fn definitions(cluster: &Cluster, go_types: GoTypes) -> Definitions {
    let index = get(cluster, "/openapi/v3");
    let mut definitions = Definitions::new(go_types);
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
