//! An OCI registry in the test's own process, which can also misbehave.
//!
//! ```text
//! client ──TLS──▶ a thread for each connection ─▶ behaviour, if it answers ─▶ BadReply
//!                                              └▶ else what is stored, or stores what is pushed
//! ```

use super::pki::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, Private};
use openssl::sha::sha256;
use openssl::sign::Signer;
use openssl::ssl::{SslAcceptor, SslMethod, SslStream};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A registry on the loopback address, as long as the test runs.
pub(crate) struct OciRegistry {
    address: SocketAddr,
    authority: Vec<u8>,
    shared: Arc<Shared>,
}

struct Shared {
    acceptor: SslAcceptor,
    /// What is at each path.
    stored: Mutex<BTreeMap<String, Vec<u8>>>,
    seen: Mutex<Vec<SeenRequest>>,
    behaviour: Mutex<Option<Behaviour>>,
}

/// What a registry answers instead of what is stored.
type Behaviour = Arc<dyn Fn(&SeenRequest) -> Option<BadReply> + Send + Sync>;

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenRequest {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// A reply that a test chooses.
#[derive(Debug, Clone)]
pub(crate) enum BadReply {
    /// A status with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// A whole body.
    Body(Vec<u8>),
    /// A body that ends before its end.
    Cut(Vec<u8>),
    /// A body without end.
    Endless,
    /// No reply.
    Silence,
    /// The connection breaks.
    Break,
}

/// The forms of cosign's signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CosignForm {
    SimpleSigning,
    SigstoreBundle,
}

impl OciRegistry {
    /// A registry whose certificate `authority` signed.
    pub(crate) fn start(authority: &Authority) -> Self {
        let identity = authority.server();
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.set_certificate(&identity.certificate).unwrap();
        acceptor.set_private_key(&identity.key).unwrap();
        let shared = Arc::new(Shared {
            acceptor: acceptor.build(),
            stored: Mutex::default(),
            seen: Mutex::default(),
            behaviour: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let of_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_listener);
                // What fails is for the client to notice.
                thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Self {
            address,
            authority: authority.pem(),
            shared,
        }
    }

    /// `localhost` with its port: what it redirects to may be on this machine.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// In PEM.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// Stores a manifest under a tag and under its digest, which it returns.
    pub(crate) fn put_manifest(&self, repository: &str, tag: &str, text: &[u8]) -> String {
        let digest = digest(text);
        for version in [tag, &digest] {
            let path = format!("/v2/{repository}/manifests/{version}");
            lock(&self.shared.stored).insert(path, text.to_owned());
        }
        digest
    }

    /// Stores a blob, and returns what names it.
    pub(crate) fn put_blob(&self, repository: &str, content: &[u8]) -> String {
        let digest = digest(content);
        let path = format!("/v2/{repository}/blobs/{digest}");
        lock(&self.shared.stored).insert(path, content.to_owned());
        digest
    }

    /// Signs the manifest of this digest, as cosign does with this key.
    pub(crate) fn sign(&self, repository: &str, digest: &str, key: &PKey<Private>, form: CosignForm) {
        let blob = |content: &[u8], kind: &str| {
            let digest = self.put_blob(repository, content);
            json!({"mediaType": kind, "digest": digest, "size": content.len()})
        };
        match form {
            CosignForm::SimpleSigning => {
                let payload = json!({"critical": {
                    "identity": {"docker-reference": format!("{}/{repository}", self.host())},
                    "image": {"docker-manifest-digest": digest},
                    "type": "cosign container image signature",
                }, "optional": null})
                .to_string();
                let mut layer = blob(
                    payload.as_bytes(),
                    "application/vnd.dev.cosign.simplesigning.v1+json",
                );
                let signature = STANDARD.encode(signature(key, payload.as_bytes()));
                layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
                let tag = format!("{}.sig", digest.replace(':', "-"));
                let text = manifest(&layer).to_string();
                self.put_manifest(repository, &tag, text.as_bytes());
            }
            CosignForm::SigstoreBundle => {
                const KIND: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
                let statement = json!({
                    "_type": "https://in-toto.io/Statement/v1",
                    "subject": [{"digest": {"sha256": digest.trim_start_matches("sha256:")}, "annotations": {}}],
                    "predicateType": "https://sigstore.dev/cosign/sign/v1",
                    "predicate": {},
                })
                .to_string();
                let message = format!(
                    "DSSEv1 28 application/vnd.in-toto+json {} {statement}",
                    statement.len()
                );
                let bundle = json!({
                    "mediaType": KIND,
                    "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
                    "dsseEnvelope": {
                        "payload": STANDARD.encode(statement),
                        "payloadType": "application/vnd.in-toto+json",
                        "signatures": [{"sig": STANDARD.encode(signature(key, message.as_bytes()))}],
                    },
                })
                .to_string();
                let mut signed = manifest(&blob(bundle.as_bytes(), KIND));
                signed["artifactType"] = KIND.into();
                let text = signed.to_string();
                let own = self.put_manifest(repository, "referrer", text.as_bytes());
                let index = json!({
                    "schemaVersion": 2,
                    "mediaType": "application/vnd.oci.image.index.v1+json",
                    "manifests": [{
                        "mediaType": "application/vnd.oci.image.manifest.v1+json",
                        "digest": own, "size": text.len(), "artifactType": KIND,
                    }],
                });
                let path = format!("/v2/{repository}/referrers/{digest}");
                lock(&self.shared.stored).insert(path, index.to_string().into_bytes());
            }
        }
    }

    /// Answers as `behaviour` says from now on, and where it says nothing, with what is stored.
    pub(crate) fn behave(
        &self,
        behaviour: impl Fn(&SeenRequest) -> Option<BadReply> + Send + Sync + 'static,
    ) {
        *lock(&self.shared.behaviour) = Some(Arc::new(behaviour));
    }

    /// Answers with what is stored again.
    pub(crate) fn recover(&self) {
        *lock(&self.shared.behaviour) = None;
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        lock(&self.shared.seen).clone()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let Ok(mut stream) = self.acceptor.accept(stream) else {
            return Ok(());
        };
        let (request, body) = read(&mut stream)?;
        lock(&self.seen).push(request.clone());
        let behaviour = lock(&self.behaviour).clone();
        let chosen = behaviour.and_then(|behaviour| behaviour(&request));
        match chosen.unwrap_or_else(|| self.answer(&request, body)) {
            BadReply::Status(status, headers) => head(&mut stream, status, &headers, Some(0)),
            BadReply::Body(body) => {
                head(&mut stream, 200, &[], Some(body.len()))?;
                stream.write_all(&body)
            }
            BadReply::Cut(body) => {
                head(&mut stream, 200, &[], Some(body.len()))?;
                stream.write_all(&body[..body.len() / 2])
            }
            BadReply::Endless => {
                head(&mut stream, 200, &[], None)?;
                loop {
                    stream.write_all(&[b'x'; 4096])?;
                }
            }
            BadReply::Silence => {
                // Until the client has enough of it.
                let mut end = [0; 1];
                stream.read(&mut end).map(drop)
            }
            BadReply::Break => Ok(()),
        }
    }

    fn answer(&self, request: &SeenRequest, body: Vec<u8>) -> BadReply {
        let mut stored = lock(&self.stored);
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match request.method.as_str() {
            "POST" => BadReply::Status(202, vec![("Location", format!("{path}1?state=a%2Fb"))]),
            "PUT" => {
                let digest = digest(&body);
                let (folder, name) = path.rsplit_once('/').unwrap();
                let folder = folder.trim_end_matches("/uploads");
                let named = query.split('&').find_map(|part| part.strip_prefix("digest="));
                if named.is_some_and(|named| named != digest) {
                    return BadReply::Status(400, Vec::new());
                }
                if named.is_none() {
                    stored.insert(format!("{folder}/{name}"), body.clone());
                }
                stored.insert(format!("{folder}/{digest}"), body);
                BadReply::Status(201, Vec::new())
            }
            method => match stored.get(path) {
                Some(_) if method == "HEAD" => BadReply::Status(200, Vec::new()),
                Some(content) => BadReply::Body(content.clone()),
                None => BadReply::Status(404, Vec::new()),
            },
        }
    }
}

/// The manifest of a signature with this layer.
fn manifest(layer: &Value) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": [layer],
    })
}

/// The digest of `content`, as registries write it.
pub(crate) fn digest(content: &[u8]) -> String {
    let digits: String = sha256(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn signature(key: &PKey<Private>, message: &[u8]) -> Vec<u8> {
    let signer = match key.id() {
        Id::ED25519 => Signer::new_without_digest(key),
        _ => Signer::new(MessageDigest::sha256(), key),
    };
    signer.unwrap().sign_oneshot_to_vec(message).unwrap()
}

fn read(stream: &mut SslStream<TcpStream>) -> io::Result<(SeenRequest, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.to_owned())
    };
    let mut words = head.split(' ').map(str::to_owned);
    let request = SeenRequest {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        authorization: header("authorization"),
    };
    let length = header("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body)?;
    Ok((request, body))
}

fn head(
    stream: &mut SslStream<TcpStream>,
    status: u16,
    headers: &[(&str, String)],
    length: Option<usize>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Status\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
