//! The requests of each workload.

use portcullis_cel::json::Document;

/// Five ValidatingAdmissionPolicies that match and pass.
pub(crate) const ADMISSION_POLICIES: &str = include_str!("policies.yaml");

/// A review as kube-apiserver sends it: a user of a team reads a pod in the namespace of the team.
const ACCESS: &str = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"team-7","verb":"get","version":"v1","resource":"pods","name":"web-6d4cf56db6-x7k2p"},"user":"jane.doe@example.com","groups":["team-7","developers","engineering","berlin","on-call","vpn-users","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=8a1f0b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"],"example.com/session":["0f5c3a2e-77aa-4d0e-9d0a-5a4f1f0e7c11"],"example.com/device":["laptop-4711"],"example.com/scopes":["openid","profile","groups","offline_access"]},"uid":"6c2f1a52-9f0e-4a53-8f61-0f8a9c1f7b21"},"status":{"allowed":false}}"#;

/// The creation of a Pod with one container.
const POD_2K: &str = include_str!("pod-2k.json");
/// The creation of a Pod with five containers and managedFields.
const POD_10K: &str = include_str!("pod-10k.json");

/// The floors with which a workload is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each bench uses its own part")]
pub(crate) enum Floor {
    /// actix-web, and a fixed answer.
    Actix,
    /// The same, which also decodes the review.
    Decoding,
    /// hyper alone, over HTTP/2, and a fixed answer.
    Hyper,
}

/// One kind of requests.
#[allow(dead_code, reason = "each bench uses its own part")]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// The floors with which it is compared, each with its path.
    pub(crate) floors: &'static [(Floor, &'static str)],
    pub(crate) body: String,
}

/// The review of 2 KB.
#[allow(dead_code, reason = "each bench uses its own part")]
pub(crate) const REVIEW: &str = POD_2K;

#[allow(dead_code, reason = "each bench uses its own part")]
impl Workload {
    /// All workloads.
    pub(crate) fn all() -> Vec<Self> {
        std::iter::once(Self::access()).chain(Self::admission()).collect()
    }

    /// The first word of its name.
    pub(crate) fn sort(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// One SubjectAccessReview.
    pub(crate) fn access() -> Self {
        Self {
            name: "authorization",
            path: "/authorize?timeout=3s",
            floors: &[(Floor::Actix, "/authorize"), (Floor::Hyper, "/authorize")],
            body: ACCESS.to_owned(),
        }
    }

    /// AdmissionReviews of four sizes. The two large ones are that of 10 KB with more managedFields, as objects
    /// with many field managers have.
    pub(crate) fn admission() -> Vec<Self> {
        let of = |name, body| Self {
            name,
            path: "/validate?timeout=10s",
            floors: &[(Floor::Actix, "/validate"), (Floor::Decoding, "/decode")],
            body,
        };
        vec![
            of("admission 2 KB", POD_2K.to_owned()),
            of("admission 10 KB", POD_10K.to_owned()),
            of("admission 100 KB", grown(100_000)),
            of("admission 1000 KB", grown(1_000_000)),
        ]
    }
}

/// The review of 10 KB with its managedFields repeated until it has `bytes`.
fn grown(bytes: usize) -> String {
    const LIST: &str = r#""managedFields":["#;
    let document = Document::parse(POD_10K).expect("JSON");
    let entry = document
        .root()
        .pointer("/request/object/metadata/managedFields/0")
        .expect("an entry")
        .raw();
    let (before, after) = POD_10K.split_once(LIST).expect("a list");
    let copies = bytes.saturating_sub(POD_10K.len()) / (entry.len() + 1);
    let more = format!("{entry},").repeat(copies);
    format!("{before}{LIST}{more}{after}")
}
