//! Signatures of bundles, as cosign makes them with a key: ECDSA on P-256 with SHA-256, or Ed25519.
//!
//! | form | where | what is signed |
//! |---|---|---|
//! | simple signing | layers of the manifest tagged `sha256-….sig` | JSON that contains the digest |
//! | Sigstore bundle | a referrer of the manifest | an in-toto statement about the digest, in an envelope (DSSE) |
//!
//! Both declare their purpose, which is checked: a key that also signs attestations, such as an
//! SBOM, does not thereby approve the artifacts that these are about. Keyless signatures are not
//! supported: they prove an identity only together with Sigstore's services and their root
//! certificates, and a gateway must be able to start without them.
//!
//! It follows cosign's `specs/SIGNATURE_SPEC.md` and `specs/BUNDLE_SPEC.md`, and
//! `secure-systems-lab/dsse`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::sign::Verifier;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::manifest::{BundleError, Descriptor};
use crate::config::files;

/// `mediaType` of a layer with a payload of simple signing.
pub(crate) const SIMPLE_SIGNING_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The prefix of `mediaType` and `artifactType` of Sigstore bundles.
pub(crate) const SIGSTORE_TYPE: &str = "application/vnd.dev.sigstore.bundle";

/// The annotation of a layer with the signature of its content.
const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";

/// `critical.type` of the payload of simple signing.
const SIMPLE_SIGNING: &str = "cosign container image signature";

/// `predicateType` of a statement that is a signature.
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// `payloadType` of envelopes with statements.
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";

const MAX_KEY_BYTES: usize = 64 << 10;

/// The public keys that may sign a bundle.
pub(crate) struct VerifyKeys {
    path: PathBuf,
    keys: Vec<PKey<Public>>,
}

/// A signature and its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleSignature {
    form: SignatureForm,
    #[serde(serialize_with = "serialize_bytes", deserialize_with = "deserialize_bytes")]
    payload: Vec<u8>,
    #[serde(serialize_with = "serialize_bytes", deserialize_with = "deserialize_bytes")]
    signature: Vec<u8>,
}

/// The format of a signature and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SignatureForm {
    SimpleSigning,
    SigstoreBundle,
}

#[derive(Deserialize)]
struct SimpleSigning {
    critical: SignedClaims,
}

#[derive(Deserialize)]
struct SignedClaims {
    image: SignedImage,
    r#type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SignedImage {
    docker_manifest_digest: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SigstoreBundle {
    dsse_envelope: Option<DsseEnvelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DsseEnvelope {
    payload: String,
    payload_type: String,
    signatures: Vec<DsseSignature>,
}

#[derive(Deserialize)]
struct DsseSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InTotoStatement {
    predicate_type: String,
    subject: Vec<StatementSubject>,
}

#[derive(Deserialize)]
struct StatementSubject {
    digest: BTreeMap<String, String>,
}

// === impl VerifyKeys ===

impl VerifyKeys {
    /// Reads one or more keys, in PEM, from the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read, contains no key, or a key of another type.
    pub(crate) fn read(path: &Path) -> Result<Self, BundleError> {
        const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
        let refused = |reason: String| BundleError::File {
            path: path.to_owned(),
            reason,
        };
        let text = files::read_text(path, MAX_KEY_BYTES).map_err(|error| refused(error.to_string()))?;
        let keys: Option<Vec<_>> = text
            .split(BEGIN)
            .skip(1)
            .map(|rest| key(&format!("{BEGIN}{rest}")))
            .collect();
        match keys {
            Some(keys) if !keys.is_empty() => Ok(Self {
                path: path.to_owned(),
                keys,
            }),
            _ => Err(refused(
                "must be public keys in PEM (`BEGIN PUBLIC KEY`), each ECDSA on P-256 or Ed25519, such as `cosign.pub`"
                    .to_owned(),
            )),
        }
    }

    /// Returns the first of `signatures` that one of these keys made for the manifest with this
    /// digest.
    ///
    /// # Errors
    ///
    /// None of them is valid, with the reason for the last.
    pub(crate) fn first_valid(
        &self,
        digest: &str,
        signatures: impl IntoIterator<Item = BundleSignature>,
    ) -> Result<BundleSignature, BundleError> {
        let mut reason = "it is not signed";
        for signature in signatures {
            match self.check(digest, &signature) {
                Ok(()) => return Ok(signature),
                Err(error) => reason = error,
            }
        }
        Err(BundleError::Unsigned {
            digest: digest.to_owned(),
            key: self.path.clone(),
            reason: reason.to_owned(),
        })
    }

    fn check(&self, digest: &str, signature: &BundleSignature) -> Result<(), &'static str> {
        let message = signature.message();
        if !self
            .keys
            .iter()
            .any(|key| is_valid(key, &signature.signature, &message))
        {
            return Err("another key signed it, or the signed content was changed");
        }
        // The payload is parsed only after the signature was verified.
        match signature.signs(digest) {
            Some(true) => Ok(()),
            Some(false) => Err("the signature is for another manifest"),
            None => Err("the signed content is not in cosign's format for artifacts"),
        }
    }
}

fn key(pem: &str) -> Option<PKey<Public>> {
    let key = PKey::public_key_from_pem(pem.as_bytes()).ok()?;
    let is_supported = match key.id() {
        Id::ED25519 => true,
        Id::EC => key
            .ec_key()
            .is_ok_and(|key| key.group().curve_name() == Some(Nid::X9_62_PRIME256V1)),
        _ => false,
    };
    is_supported.then_some(key)
}

fn is_valid(key: &PKey<Public>, signature: &[u8], message: &[u8]) -> bool {
    let verifier = match key.id() {
        Id::ED25519 => Verifier::new_without_digest(key),
        _ => Verifier::new(MessageDigest::sha256(), key),
    };
    verifier.is_ok_and(|mut verifier| verifier.verify_oneshot(signature, message).unwrap_or(false))
}

// === impl BundleSignature ===

impl BundleSignature {
    /// The signature of a layer with the content `payload`; `None` if the layer has no signature.
    pub(crate) fn of_layer(layer: &Descriptor, payload: &[u8]) -> Option<Self> {
        Some(Self {
            form: SignatureForm::SimpleSigning,
            signature: decode(layer.annotations.get(SIGNATURE_ANNOTATION)?)?,
            payload: payload.to_owned(),
        })
    }

    /// The signature in a Sigstore bundle; `None` if it does not sign a statement.
    pub(crate) fn of_sigstore_bundle(text: &[u8]) -> Option<Self> {
        let bundle: SigstoreBundle = serde_json::from_slice(text).ok()?;
        let envelope = bundle.dsse_envelope?;
        let signature = envelope.signatures.first()?;
        Some(Self {
            form: SignatureForm::SigstoreBundle,
            signature: decode(&signature.sig)?,
            payload: decode(&envelope.payload).filter(|_| envelope.payload_type == STATEMENT_TYPE)?,
        })
    }

    /// The bytes that were signed.
    fn message(&self) -> Vec<u8> {
        match self.form {
            SignatureForm::SimpleSigning => self.payload.clone(),
            SignatureForm::SigstoreBundle => {
                let (kind, length) = (STATEMENT_TYPE, self.payload.len());
                let mut message = format!("DSSEv1 {} {kind} {length} ", kind.len()).into_bytes();
                message.extend(&self.payload);
                message
            }
        }
    }

    /// Whether it signs the manifest with this digest; `None` if the payload is not that of a
    /// signature.
    fn signs(&self, digest: &str) -> Option<bool> {
        match self.form {
            SignatureForm::SimpleSigning => {
                let SimpleSigning { critical } = serde_json::from_slice(&self.payload).ok()?;
                (critical.r#type == SIMPLE_SIGNING).then(|| critical.image.docker_manifest_digest == digest)
            }
            SignatureForm::SigstoreBundle => {
                let statement: InTotoStatement = serde_json::from_slice(&self.payload).ok()?;
                let digits = digest.strip_prefix("sha256:")?;
                let names = |subject: &StatementSubject| {
                    subject.digest.get("sha256").is_some_and(|own| own == digits)
                };
                (statement.predicate_type == SIGN_PREDICATE).then(|| statement.subject.iter().any(names))
            }
        }
    }

    /// The name of the form, for messages.
    #[must_use]
    pub const fn form(&self) -> &'static str {
        match self.form {
            SignatureForm::SimpleSigning => "simple signing",
            SignatureForm::SigstoreBundle => "Sigstore bundle",
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.trim_ascii()).ok()
}

fn serialize_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn deserialize_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).ok_or_else(|| D::Error::custom("not base64"))
}

#[cfg(test)]
mod tests {
    use openssl::pkey::Private;
    use openssl::sign::Signer;
    use serde_json::json;

    use super::*;
    use crate::pki::{ec_key, new_key};

    const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";
    const OTHER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000002";

    fn sign(key: &PKey<Private>, message: &[u8]) -> Vec<u8> {
        let mut signer = match key.id() {
            Id::ED25519 => Signer::new_without_digest(key),
            _ => Signer::new(MessageDigest::sha256(), key),
        }
        .unwrap();
        signer.sign_oneshot_to_vec(message).unwrap()
    }

    fn simple(key: &PKey<Private>, kind: &str) -> BundleSignature {
        let payload = json!({"critical": {
            "identity": {"docker-reference": "registry.example.com/policies"},
            "image": {"docker-manifest-digest": DIGEST},
            "type": kind,
        }, "optional": null})
        .to_string()
        .into_bytes();
        let signature = STANDARD.encode(sign(key, &payload));
        let layer = Descriptor {
            annotations: [(SIGNATURE_ANNOTATION.to_owned(), signature)].into(),
            ..Descriptor::default()
        };
        BundleSignature::of_layer(&layer, &payload).unwrap()
    }

    fn sigstore(key: &PKey<Private>, predicate: &str) -> BundleSignature {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": DIGEST.trim_start_matches("sha256:")}, "annotations": {}}],
            "predicateType": predicate,
            "predicate": {},
        })
        .to_string();
        let message = format!(
            "DSSEv1 28 application/vnd.in-toto+json {} {statement}",
            statement.len()
        );
        let bundle = json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": "x"}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(statement),
                "payloadType": "application/vnd.in-toto+json",
                "signatures": [{"sig": STANDARD.encode(sign(key, message.as_bytes()))}],
            },
        });
        BundleSignature::of_sigstore_bundle(bundle.to_string().as_bytes()).unwrap()
    }

    fn keys(all: &[&PKey<Private>]) -> (tempfile::NamedTempFile, VerifyKeys) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pem: Vec<u8> = all
            .iter()
            .flat_map(|key| key.public_key_to_pem().unwrap())
            .collect();
        std::fs::write(file.path(), pem).unwrap();
        let keys = VerifyKeys::read(file.path()).unwrap();
        (file, keys)
    }

    #[test]
    fn both_forms_are_verified_by_keys_of_both_kinds() {
        let (ecdsa, ed25519, strange) = (new_key(), PKey::generate_ed25519().unwrap(), new_key());
        let (_file, known) = keys(&[&ecdsa, &ed25519]);
        for key in [&ecdsa, &ed25519, &strange] {
            for signature in [simple(key, SIMPLE_SIGNING), sigstore(key, SIGN_PREDICATE)] {
                let is_known = !key.public_eq(&strange);
                assert_eq!(known.check(DIGEST, &signature).is_ok(), is_known, "{signature:?}");
                assert!(known.check(OTHER, &signature).is_err());
                let mut changed = signature.clone();
                changed.payload.push(b' ');
                assert!(known.check(DIGEST, &changed).is_err());
                let stored = serde_json::to_string(&signature).unwrap();
                assert_eq!(
                    serde_json::from_str::<BundleSignature>(&stored).unwrap(),
                    signature
                );
            }
        }
    }

    #[test]
    fn what_the_key_signs_for_another_purpose_approves_nothing() {
        let key = new_key();
        let (_file, known) = keys(&[&key]);
        for other in [
            simple(&key, "atomic container signature"),
            sigstore(&key, "https://spdx.dev/Document"),
        ] {
            let refused = known.check(DIGEST, &other);
            assert_eq!(
                refused,
                Err("the signed content is not in cosign's format for artifacts")
            );
        }
        // A payload of one form is not accepted for the other.
        let mut mixed = simple(&key, SIMPLE_SIGNING);
        mixed.form = SignatureForm::SigstoreBundle;
        assert!(known.check(DIGEST, &mixed).is_err());
    }

    #[test]
    fn only_public_keys_of_the_two_kinds_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rsa = PKey::from_rsa(openssl::rsa::Rsa::generate(2048).unwrap()).unwrap();
        let good = new_key().public_key_to_pem().unwrap();
        for pem in [
            Vec::new(),
            new_key().private_key_to_pem_pkcs8().unwrap(),
            rsa.public_key_to_pem().unwrap(),
            ec_key(Nid::SECP384R1).public_key_to_pem().unwrap(),
            [&good[..], &rsa.public_key_to_pem().unwrap()].concat(),
            good[..good.len() / 2].to_owned(),
        ] {
            std::fs::write(file.path(), pem).unwrap();
            assert!(VerifyKeys::read(file.path()).is_err());
        }
    }
}
