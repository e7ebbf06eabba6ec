//! Bundles that a gateway pulls: which it takes, which it refuses, and a start without the registry.

use std::fs;
use std::process::Command;

use openssl::pkey::{PKey, Private};
use portcullis::bundle::UnsignedBundle;
use portcullis_policy::model::Time;
use serde_json::{Value, json};

use crate::harness::gateway::{Gateway, Keys, Setup, program};
use crate::harness::pki::{Authority, new_key};
use crate::harness::registry::{BadReply, CosignForm, OciRegistry};
use crate::harness::{eventually, ports, reviews};

/// These users may get `/x`.
fn may(users: &[&str]) -> String {
    let subjects: Vec<Value> = users
        .iter()
        .map(|name| json!({"kind": "User", "name": name}))
        .collect();
    json!({
        "apiVersion": "portcullis.dev/v1alpha1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "may"},
        "spec": {
            "effect": "Allow",
            "subjects": subjects,
            "nonResourceRules": [{"verbs": ["get"], "paths": ["/x"]}],
        },
    })
    .to_string()
}

/// A registry, a key, and the folder of a gateway that pulls from it.
struct World {
    registry: OciRegistry,
    key: PKey<Private>,
    folder: tempfile::TempDir,
    keys: Keys,
}

impl World {
    fn new() -> Self {
        let (folder, key) = (tempfile::tempdir().unwrap(), new_key());
        let registry = OciRegistry::start(&Authority::new("registries"));
        fs::write(folder.path().join("cosign.pub"), key.public_key_to_pem().unwrap()).unwrap();
        fs::write(folder.path().join("registry.crt"), registry.authority()).unwrap();
        Self {
            registry,
            key,
            folder,
            keys: Keys::new(),
        }
    }

    /// Moves the tag to a bundle with this name, sequence and file, and returns its digest.
    fn push(&self, name: &str, sequence: u64, file: &str) -> String {
        let files = [("may.json".to_owned(), file.to_owned())];
        let created = Time::parse("2026-11-27T10:00:00Z").unwrap();
        let bundle = UnsignedBundle::build(name, sequence, created, &files).unwrap();
        self.registry.put_blob("policies", &bundle.layer);
        self.registry
            .put_manifest("policies", "stable", bundle.manifest.as_bytes())
    }

    /// The same, signed.
    fn publish(&self, sequence: u64, file: &str) -> String {
        let digest = self.push("policies", sequence, file);
        self.registry
            .sign("policies", &digest, &self.key, CosignForm::SigstoreBundle);
        digest
    }

    fn entry(&self) -> Value {
        json!({"oci": {
            "reference": format!("{}/policies:stable", self.registry.host()),
            "verify": {"key": "cosign.pub"},
            "caBundle": "registry.crt",
            "pollInterval": "1s",
            "cache": "oci",
        }})
    }

    fn start(&self, manifests: &Value) -> Gateway {
        Gateway::start(&Setup {
            folder: self.folder.path(),
            address: ports::free(),
            keys: &self.keys,
            callers: Vec::new(),
            manifests: &[("none.yaml", "# nothing\n")],
            more: json!({"manifests": manifests}),
        })
    }

    /// What `check` says of the configuration.
    fn check(&self) -> (Option<i32>, String) {
        let output = Command::new(program())
            .args(["check", "--config", "portcullis.yaml"])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.code(),
            told + &String::from_utf8_lossy(&output.stderr),
        )
    }
}

fn is_allowed(gateway: &Gateway, user: &str) -> bool {
    let review = reviews::authorization(&json!({
        "user": user, "nonResourceAttributes": {"path": "/x", "verb": "get"},
    }));
    let reply = gateway.client().post("/authorize", &review).unwrap();
    reply.json()["status"]["allowed"] == true
}

fn failures(gateway: &Gateway) -> f64 {
    gateway
        .metric(r#"portcullis_bundle_pulls_total{bundle="policies",result="failure"}"#)
        .unwrap()
}

#[test]
fn newer_bundles_are_taken_and_no_others() {
    let world = World::new();
    world.publish(1, &may(&["ann"]));
    let gateway = world.start(&json!(["policies", world.entry()]));
    assert!(is_allowed(&gateway, "ann"), "it is pulled at the start");
    let first = world.publish(2, &may(&["bob"]));
    assert!(eventually(
        || is_allowed(&gateway, "bob") && !is_allowed(&gateway, "ann")
    ));
    let created = gateway.metric(r#"portcullis_bundle_created_timestamp_seconds{bundle="policies"}"#);
    assert_eq!(created, Some(1_795_773_600.0));
    let kept = fs::read(world.folder.path().join("oci/bundle")).unwrap();

    let strange = new_key();
    let sign = |digest: &str, key: &PKey<Private>| {
        world
            .registry
            .sign("policies", digest, key, CosignForm::SimpleSigning);
    };
    let faulty = may(&["eve"]).replace("Allow", "Perhaps");
    let taken_twice = format!("{}\n---\n{0}", may(&["eve"]));
    type Attack<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let attacks: [Attack<'_>; 7] = [
        (
            "sequence 1 is not higher",
            Box::new(|| drop(world.publish(1, &may(&["eve"])))),
        ),
        (
            "sequence 2 is not higher",
            Box::new(|| drop(world.publish(2, &may(&["eve"])))),
        ),
        (
            "it is not signed",
            Box::new(|| drop(world.push("policies", 3, &may(&["eve"])))),
        ),
        (
            "another key signed it",
            Box::new(|| sign(&world.push("policies", 4, &may(&["eve"])), &strange)),
        ),
        (
            "the name of the bundle is `other`",
            Box::new(|| sign(&world.push("other", 5, &may(&["eve"])), &world.key)),
        ),
        ("spec.effect", Box::new(|| drop(world.publish(6, &faulty)))),
        (
            "the same object is also at",
            Box::new(|| drop(world.publish(7, &taken_twice))),
        ),
    ];
    for (expected, attack) in attacks {
        let before = failures(&gateway);
        attack();
        assert!(eventually(|| failures(&gateway) > before), "{expected}");
        assert!(
            eventually(|| gateway.log().contains(expected)),
            "{expected}\n{}",
            gateway.tail()
        );
        assert!(
            is_allowed(&gateway, "bob") && !is_allowed(&gateway, "eve"),
            "{expected}"
        );
        assert_eq!(fs::read(world.folder.path().join("oci/bundle")).unwrap(), kept);
    }
    assert_ne!(world.publish(8, &may(&["bob", "zoe"])), first);
    assert!(eventually(|| is_allowed(&gateway, "zoe")), "{}", gateway.tail());
}

#[test]
fn the_last_good_bundle_serves_a_start_without_the_registry() {
    let world = World::new();
    world.publish(1, &may(&["ann"]));
    drop(world.start(&json!([world.entry()])));
    // It neither answers nor ends.
    world.registry.behave(|_| Some(BadReply::Silence));
    let gateway = world.start(&json!(["policies", world.entry()]));
    assert!(is_allowed(&gateway, "ann"));
    let of_folder = may(&["joe"]).replace(r#""name":"may""#, r#""name":"joe""#);
    gateway.reload_after(|| fs::write(gateway.manifests().join("joe.json"), &of_folder).unwrap());
    assert!(is_allowed(&gateway, "joe") && is_allowed(&gateway, "ann"));
    drop(gateway);

    // What is kept is believed only as far as it is signed.
    let path = world.folder.path().join("oci/bundle");
    let kept = fs::read(&path).unwrap();
    let mut forged = kept.clone();
    *forged.last_mut().unwrap() ^= 1;
    for (content, expected) in [
        (forged, "differs from the signed one"),
        (b"{}\n".to_vec(), "is not a cached bundle"),
    ] {
        fs::write(&path, content).unwrap();
        let (code, told) = world.check();
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(expected), "{told}");
    }
    fs::write(
        world.folder.path().join("cosign.pub"),
        new_key().public_key_to_pem().unwrap(),
    )
    .unwrap();
    fs::write(&path, kept).unwrap();
    let (code, told) = world.check();
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("another key signed it"), "{told}");
    fs::remove_file(&path).unwrap();
    let (_, told) = world.check();
    assert!(told.contains("no bundle of `localhost:"), "{told}");
}

#[test]
fn an_old_bundle_is_not_taken_where_nothing_is_kept_but_the_configuration_knows_better() {
    let world = World::new();
    world.publish(5, &may(&["ann"]));
    let with_least = |least: u64| {
        let mut entry = world.entry();
        entry["oci"]["minSequence"] = least.into();
        json!(["policies", entry])
    };
    drop(world.start(&with_least(5)));
    let write = |manifests: Value| {
        let path = world.folder.path().join("portcullis.yaml");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        config["manifests"] = manifests;
        fs::write(&path, config.to_string()).unwrap();
    };
    let pull = || {
        let arguments = ["bundle", "pull", "--config", "portcullis.yaml"];
        let mut command = Command::new(program());
        let output = command
            .args(arguments)
            .current_dir(world.folder.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // Neither what is kept nor, without it, what the registry has: the sequence of a deleted cache is forgotten.
    write(with_least(6));
    let (code, told) = world.check();
    assert!(
        code == Some(1) && told.contains("its sequence 5 is lower than `minSequence`, 6"),
        "{told}"
    );
    fs::remove_file(world.folder.path().join("oci/bundle")).unwrap();
    let (code, told) = pull();
    assert!(
        code == Some(1) && told.contains("its sequence 5 is lower than `minSequence`, 6"),
        "{told}"
    );
    world.publish(6, &may(&["bob"]));
    assert_eq!(pull().0, Some(0));
    assert_eq!(world.check().0, Some(0));
}

#[test]
fn a_bundle_that_is_added_is_pulled_before_the_configuration_is_in_force() {
    let world = World::new();
    world.publish(1, &may(&["ann"]));
    let gateway = world.start(&json!(["policies"]));
    let path = world.folder.path().join("portcullis.yaml");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["manifests"] = json!(["policies", world.entry()]);
    fs::write(&path, config.to_string()).unwrap();
    assert!(eventually(|| is_allowed(&gateway, "ann")), "{}", gateway.tail());
}
