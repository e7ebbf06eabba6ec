//! Writes the seeds: inputs for the fuzz targets from the project's tests and examples.
//! `portcullis-fuzz-seeds PROJECT CORPORA` writes them to the folder CORPORA, in a folder
//! for each target, unless they exist.

mod http2;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde_json::Value;

/// The longest seed, in bytes: larger ones make every run slow.
const LONGEST: usize = 16 << 10;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [project, corpora] = arguments.as_slice() else {
        return Err(io::Error::other("the project's folder and that of the corpora"));
    };
    let mut seeds = Seeds::default();
    walk(Path::new(project), &mut |path| seeds.file(path))?;
    seeds.fixed();
    seeds.write(Path::new(corpora))
}

fn walk(folder: &Path, file: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&path, file)?;
            }
        } else {
            file(&path)?;
        }
    }
    Ok(())
}

/// The seeds of each target.
#[derive(Default)]
struct Seeds(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Seeds {
    fn add(&mut self, target: &'static str, seed: impl Into<Vec<u8>>) {
        let seed = seed.into();
        if seed.len() <= LONGEST {
            self.0.entry(target).or_default().push(seed);
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let extension = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !["yaml", "kubeconfig", "json", "jsonl", "txt", "rs"].contains(&&*extension) {
            return Ok(());
        }
        let Ok(text) = fs::read_to_string(path) else {
            return Ok(());
        };
        let is_cel = path.parent().is_some_and(|folder| folder.ends_with("tests/cel"));
        match &*extension {
            "yaml" => self.yaml(&text),
            "kubeconfig" => {
                self.add("kubeconfig", text.clone());
                self.add("document", text);
            }
            "json" => {
                if let Ok(value) = serde_json::from_str(&text) {
                    self.value(&value);
                }
            }
            "jsonl" => {
                for value in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                    self.value(&value);
                }
            }
            "txt" if is_cel => text
                .lines()
                .filter_map(|line| line.split('\t').nth(2))
                .for_each(|expression| self.expression(expression)),
            "rs" => self.patterns(&text),
            _ => {}
        }
        Ok(())
    }

    fn yaml(&mut self, text: &str) {
        if text.contains("kind: GatewayConfiguration") {
            self.add("configuration", text);
        }
        for document in text.split("\n---") {
            self.add("manifests", document);
            self.add("document", document);
            for line in document.lines() {
                if let Some((_, expression)) = line.split_once("xpression: ") {
                    self.expression(expression.trim_matches(['\'', '"', '|', '>']));
                }
            }
        }
    }

    /// A value, and those in it, by what they are.
    fn value(&mut self, value: &Value) {
        match value["kind"].as_str() {
            Some("SubjectAccessReview") => self.add("authorization", value.to_string()),
            Some("AdmissionReview") if value["response"].is_object() => {
                self.add("webhook_reply", value.to_string())
            }
            Some("AdmissionReview") => {
                self.add("admission", value.to_string());
                self.object(&value["request"]["object"]);
            }
            Some(_) if value["apiVersion"].is_string() => {
                self.add("manifests", value.to_string());
                self.object(value);
            }
            _ => {}
        }
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    if let (true, Some(text)) = (key.contains("xpression"), value.as_str()) {
                        self.expression(text);
                    }
                    self.value(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            _ => {}
        }
    }

    fn object(&mut self, object: &Value) {
        if object.is_object() {
            let patch = r#"[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"remove","path":"/spec"}]"#;
            self.add("json_patch", format!("{object}\n{patch}"));
            self.add("json_patch", format!("{object}\n{{\"spec\":{{}}}}"));
            self.add("apply", format!("{object}\n{object}"));
            self.add(
                "apply",
                format!(
                    "{object}\n{}",
                    r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x"}]}}"#
                ),
            );
        }
    }

    fn expression(&mut self, expression: &str) {
        let object = r#"{"metadata":{"name":"a","labels":{"a":"b"}},"spec":{"replicas":3,"containers":[{"image":"i:1"}]},"t":"x"}"#;
        let line = expression.replace(['\n', '\r'], " ");
        self.add("cel", format!("{line}\n{object}"));
    }

    /// What stands in `matches('…')`, in whatever file.
    fn patterns(&mut self, text: &str) {
        for call in text.split("matches('").skip(1) {
            if let Some((pattern, _)) = call.split_once("')") {
                self.add("regex", format!("{pattern}\nregistry.example.com/a-b_c:1.2"));
            }
        }
    }

    /// Archives with a file in a folder, and one with a link out of it; a layer; a manifest.
    fn bundles(&mut self) {
        let archive = [tar("policies", b'5', ""), tar("policies/a.yaml", b'0', "kind: Role\n"), vec![0; 1024]].concat();
        let link = [tar("policies/a.yaml", b'2', ""), vec![0; 1024]].concat();
        for archive in [archive, link] {
            self.add("bundle", [&[1][..], &archive].concat());
        }
        // An archive without files, compressed by gzip.
        self.add("bundle", b"\0\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x63\x60\x18\x05\xa3\x60\x14\x8c\x54\x00\x00\x2e\xaf\xb5\xef\x00\x04\x00\x00");
        let digest = format!("sha256:{}", "0".repeat(64));
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.portcullis.policies.v1",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": 2},
            "layers": [{"mediaType": "application/vnd.portcullis.policies.v1.tar+gzip", "digest": digest, "size": 1024}],
            "annotations": {"dev.portcullis.bundle.name": "policies", "dev.portcullis.bundle.sequence": "7",
                "org.opencontainers.image.created": "2026-11-27T10:00:00Z"},
        });
        self.add("bundle", format!("\u{2}{manifest}"));
    }

    /// What no file has.
    fn fixed(&mut self) {
        for pattern in [
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            r"(?i)\bA\B\Q.*\E",
            r"[[:alpha:]\d\pL\P{Greek}^-]+?",
            r"(?P<n>a|b){2,3}\C",
            r"\x{10FFFF}\101\z\A(?s-m:.)",
            "(a*)*b|[^]]",
            r"(?U)x*+",
            r"[[a]&&b]",
            r"\w{1000}",
        ] {
            self.add("regex", format!("{pattern}\naaab ab 日本 A.*\u{e9}"));
        }
        self.bundles();
        let reply = |response: &str| {
            format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#
            )
        };
        for response in [
            r#"{"uid":"u","allowed":true}"#,
            r#"{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscy94IiwidmFsdWUiOiJ5In1d"}"#,
            r#"{"uid":"u","allowed":false,"status":{"code":403,"message":"no","reason":"Forbidden","details":{"causes":[{"message":"m"}]}},"warnings":["w"],"auditAnnotations":{"a":"b"}}"#,
        ] {
            self.add("webhook_reply", reply(response));
            self.add("webhook_reply", reply(response).replace("io/v1", "io/v1beta1"));
        }
        let keys = r#"{"keys":[{"kty":"EC","kid":"e","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},{"kty":"OKP","kid":"o","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"}]}"#;
        for token in [
            "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUifQ.eyJpc3MiOiJodHRwczovL2kuZXhhbXBsZS5jb20iLCJhdWQiOiJwb3J0Y3VsbGlzIn0.AAAA",
            "eyJhbGciOiJub25lIn0.e30.",
            "a.b.c",
        ] {
            self.add("jwt", format!("Bearer {token}\n{keys}"));
        }
        self.add("jwt", format!("Basic dXNlcjpwYXNz\n{keys}"));
        http2::seeds().for_each(|seed| self.add("http2", seed));
    }

    fn write(&self, corpora: &Path) -> io::Result<()> {
        for (target, seeds) in &self.0 {
            let folder: PathBuf = corpora.join(target);
            fs::create_dir_all(&folder)?;
            for (number, seed) in seeds.iter().enumerate() {
                let path = folder.join(format!("seed-{number:04}"));
                if !path.exists() {
                    fs::write(path, seed)?;
                }
            }
            println!("{target}: {} seeds", seeds.len());
        }
        Ok(())
    }
}

/// A header of tar, whose checksum the target makes, with its content.
fn tar(name: &str, kind: u8, content: &str) -> Vec<u8> {
    let mut blocks = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| blocks[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(124, format!("{:011o}", content.len()).as_bytes());
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    blocks.extend_from_slice(content.as_bytes());
    blocks.resize(blocks.len().next_multiple_of(512), 0);
    blocks
}
