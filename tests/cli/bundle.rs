//! `portcullis bundle`, against a registry in the test's own process.

use openssl::pkey::{PKey, Private};

use crate::harness::pki::{Authority, new_key};
use crate::harness::registry::{BadReply, CosignForm, OciRegistry};
use crate::run::{Portcullis, Run};

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: web}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
";

/// A folder with manifests, keys and a registry.
struct Publisher {
    portcullis: Portcullis,
    registry: OciRegistry,
    key: PKey<Private>,
}

impl Publisher {
    fn new(key: PKey<Private>) -> Self {
        let authority = Authority::new("registries");
        let (portcullis, registry) = (Portcullis::new(), OciRegistry::start(&authority));
        portcullis.write("policies/a.yaml", ROLE);
        portcullis.write("policies/b/c.yaml", "# nothing\n");
        let public = String::from_utf8(key.public_key_to_pem().unwrap()).unwrap();
        portcullis.write("cosign.pub", &public);
        portcullis.write("ca.crt", std::str::from_utf8(registry.authority()).unwrap());
        Self {
            portcullis,
            registry,
            key,
        }
    }

    /// Runs `arguments` with the reference in the place of `REF`.
    fn run(&self, arguments: &str) -> Run {
        let reference = format!("{}/team/policies:stable", self.registry.host());
        let arguments = arguments.replace("REF", &reference);
        let with_ca = format!("{arguments} --ca-bundle ca.crt");
        self.portcullis.run(if arguments.contains("bundle build") {
            &arguments
        } else {
            &with_ca
        })
    }

    /// Builds and pushes, and returns the digest.
    fn publish(&self, sequence: u64) -> String {
        let folder = format!("build-{sequence}");
        let run = self.run(&format!(
            "bundle build policies --name policies --sequence {sequence} --into {folder}"
        ));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let run = self.run(&format!("bundle push {folder} REF -o json"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let pushed: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        pushed["digest"].as_str().unwrap().to_owned()
    }
}

#[test]
fn what_is_built_pushed_and_signed_is_verified_and_pulled() {
    for key in [new_key(), PKey::generate_ed25519().unwrap()] {
        for form in [CosignForm::SimpleSigning, CosignForm::SigstoreBundle] {
            let publisher = Publisher::new(key.clone());
            let digest = publisher.publish(7);
            let verify = "bundle verify REF --key cosign.pub --name policies";
            let unsigned = publisher.run(verify);
            assert_eq!(unsigned.code, 1, "{unsigned:?}");
            assert!(unsigned.stderr.contains("it is not signed"), "{unsigned:?}");

            publisher
                .registry
                .sign("team/policies", &digest, &publisher.key, form);
            let run = publisher.run(verify);
            assert_eq!(run.code, 0, "{run:?}");
            assert!(run.stdout.contains("policies, sequence 7, built 2"), "{run:?}");
            assert!(
                run.stdout.contains(&digest) && run.stdout.contains("  b/c.yaml\n"),
                "{run:?}"
            );

            let pull = "bundle pull REF --key cosign.pub --name policies --into pulled";
            let run = publisher.run(pull);
            assert_eq!(run.code, 0, "{run:?}");
            let pulled = std::fs::read_to_string(publisher.portcullis.path("pulled/a.yaml")).unwrap();
            assert_eq!(pulled, ROLE);
            let again = publisher.run(pull);
            assert_eq!(again.code, 2, "{again:?}");
            assert!(again.stderr.contains("is not empty"), "{again:?}");
        }
    }
}

#[test]
fn another_key_and_another_name_are_refused() {
    let publisher = Publisher::new(new_key());
    let digest = publisher.publish(1);
    let strange = new_key();
    publisher
        .registry
        .sign("team/policies", &digest, &strange, CosignForm::SimpleSigning);
    let run = publisher.run("bundle verify REF --key cosign.pub --name policies");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("another key signed it"), "{run:?}");
    publisher.registry.sign(
        "team/policies",
        &digest,
        &publisher.key,
        CosignForm::SigstoreBundle,
    );
    let run = publisher.run("bundle verify REF --key cosign.pub");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr
            .contains("the name of the bundle is `policies`, not `team/policies`"),
        "{run:?}"
    );
}

#[test]
fn faulty_manifests_are_not_built() {
    let publisher = Publisher::new(new_key());
    publisher
        .portcullis
        .write("policies/a.yaml", &ROLE.replace("rules", "rulez"));
    let run = publisher.run("bundle build policies --name policies --sequence 1 --into build");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("policies/a.yaml:4"), "{run:?}");
    assert!(!publisher.portcullis.path("build").exists());
}

#[test]
fn credentials_go_to_the_registry_and_its_token_server_alone() {
    let publisher = Publisher::new(new_key());
    let digest = publisher.publish(1);
    let registry = &publisher.registry;
    registry.sign(
        "team/policies",
        &digest,
        &publisher.key,
        CosignForm::SimpleSigning,
    );
    let elsewhere = OciRegistry::start(&Authority::new("elsewhere"));
    // As one file, both are trusted.
    let both = [registry.authority(), elsewhere.authority()].concat();
    publisher
        .portcullis
        .write("ca.crt", &String::from_utf8(both).unwrap());
    let auths = serde_json::json!({"auths": {registry.host(): {"username": "u", "password": "s3cret"}}});
    publisher.portcullis.write("docker.json", &auths.to_string());

    let (own, other) = (registry.host(), elsewhere.host());
    registry.behave(move |request| {
        if request.path.starts_with("/token") {
            let token = r#"{"token": "t0ken", "expires_in": 300}"#;
            return Some(BadReply::Body(token.into()));
        }
        if request.authorization.as_deref() != Some("Bearer t0ken") {
            let asked = format!(r#"Bearer realm="https://{own}/token?a=b",service="s""#);
            return Some(BadReply::Status(401, vec![("WWW-Authenticate", asked)]));
        }
        let location = format!("https://{other}{}", request.path);
        let is_blob = request.path.contains("/blobs/");
        is_blob.then(|| BadReply::Status(307, vec![("Location", location)]))
    });
    let back = registry.host();
    // Storage that sends the client back gets no token either.
    elsewhere.behave(move |request| {
        let location = format!("https://{back}{}", request.path);
        Some(BadReply::Status(307, vec![("Location", location)]))
    });
    let verify = "bundle verify REF --key cosign.pub --name policies --credentials docker.json";
    let run = publisher.run(verify);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("refuses access"), "{run:?}");
    assert!(
        !run.stderr.contains("s3cret") && !run.stderr.contains("t0ken"),
        "{run:?}"
    );
    assert!(
        elsewhere
            .seen()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    assert!(!elsewhere.seen().is_empty());

    let seen = registry.seen();
    let token = seen
        .iter()
        .find(|request| request.path.starts_with("/token"))
        .unwrap();
    assert_eq!(
        token.path,
        "/token?a=b&service=s&scope=repository%3Ateam%2Fpolicies%3Apull"
    );
    assert_eq!(token.authorization.as_deref(), Some("Basic dTpzM2NyZXQ="));
    let basic = |request: &&_| matches!(request, crate::harness::registry::SeenRequest { authorization: Some(value), .. } if value.starts_with("Basic"));
    assert_eq!(seen.iter().filter(basic).count(), 1, "{seen:?}");
}

#[test]
fn what_a_registry_does_wrong_is_said_and_ends() {
    let publisher = Publisher::new(new_key());
    let digest = publisher.publish(1);
    let registry = &publisher.registry;
    registry.sign(
        "team/policies",
        &digest,
        &publisher.key,
        CosignForm::SimpleSigning,
    );
    let here = registry.host();
    let to_itself = format!("https://{here}/v2/team/policies/manifests/stable");
    for (part, reply, expected) in [
        (
            "/manifests/stable",
            BadReply::Status(500, Vec::new()),
            "status 500",
        ),
        ("/manifests/stable", BadReply::Endless, "more than 1048576 bytes"),
        ("/manifests/stable", BadReply::Break, "`localhost:"),
        (
            "/manifests/stable",
            BadReply::Body(b"{}".to_vec()),
            "it is not signed",
        ),
        (
            "/manifests/stable",
            BadReply::Status(302, vec![("Location", to_itself)]),
            "redirects more than 3 times",
        ),
        (
            "/manifests/stable",
            BadReply::Status(302, vec![("Location", "http://localhost/".to_owned())]),
            "an address that does not begin with `https`",
        ),
        (
            "/manifests/stable",
            BadReply::Status(302, vec![("Location", "https://169.254.169.254/".to_owned())]),
            "169.254.169.254",
        ),
        ("/blobs/", BadReply::Endless, "more than"),
        ("/blobs/", BadReply::Cut(vec![b'x'; 64]), "`localhost:"),
        ("/blobs/", BadReply::Body(b"x".to_vec()), "has another digest"),
        (".sig", BadReply::Body(b"{}".to_vec()), "not one of a bundle"),
        (".sig", BadReply::Status(404, Vec::new()), "it is not signed"),
    ] {
        registry.behave(move |request| request.path.contains(part).then(|| reply.clone()));
        let run = publisher.run("bundle verify REF --key cosign.pub --name policies");
        assert_ne!(run.code, 0, "{expected}: {run:?}");
        assert!(run.stderr.contains(expected), "{expected}: {run:?}");
    }
    registry.recover();
    let run = publisher.run("bundle verify REF --key cosign.pub --name policies");
    assert_eq!(run.code, 0, "{run:?}");
}
