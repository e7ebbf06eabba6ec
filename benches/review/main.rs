//! A review in process, without sockets: decode, decide, encode, and the whole.
//!
//! The whole is what a request costs beyond what actix-web and OpenSSL take.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that cannot be made ends at once"
)]

mod tape;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_cel::json::Document;
use portcullis_policy::api::{SubjectAccessReview, SubjectAccessReviewReply};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest;
use portcullis_policy::model::Time;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many RoleBindings are loaded, one of which grants what is asked.
const BINDINGS: usize = 10_000;

/// A review as an API server sends it for a service account: 780 bytes.
fn review() -> String {
    let mut review = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"team-17","verb":"list","group":"apps","version":"v1","resource":"deployments","fieldSelector":{"requirements":[{"key":"metadata.name","operator":"In","values":["web"]}]}},"user":"system:serviceaccount:team-17:deployer","groups":["system:serviceaccounts","system:serviceaccounts:team-17","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=3b9f1a52-6f0c-4a0e-9a52-0d1d3f0c7a11"],"authentication.kubernetes.io/pod-name":["deployer-7c9d8f6b5-x2x4k"],"authentication.kubernetes.io/pod-uid":["0f9b6a1e-51a4-4b7e-8f1c-2d0a9d1f3c55"]},"uid":"1c2d3e4f-0a1b-4c2d-8e3f-"#.to_owned();
    let end = r#""},"status":{"allowed":false}}"#;
    review.push_str(&"9".repeat(780_usize.saturating_sub(review.len() + end.len())));
    review.push_str(end);
    review
}

fn policies() -> Arc<PolicySet> {
    let mut text = String::from(
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: deployers},
          rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list]}]}\n",
    );
    for number in 0..BINDINGS {
        text.push_str(&format!(
            "---\n{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: b{number}, namespace: team-{number}}},
              roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deployers}},
              subjects: [{{kind: ServiceAccount, name: deployer, namespace: team-{number}}}]}}\n"
        ));
    }
    let source = manifest::Source {
        file: "bench.yaml".to_owned(),
        text,
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &manifest::Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    Arc::clone(&manifests.policies.shared)
}

fn benches(criterion: &mut Criterion) {
    let (body, policies) = (review(), policies());
    let body = body.as_bytes();
    let decoded = SubjectAccessReview::decode(body).expect("a valid review");
    let decided = policies.authorize(&decoded.attributes, Time::UNIX_EPOCH);
    let reply = SubjectAccessReviewReply {
        version: decoded.version,
        decision: decided.decision,
        reason: &decided.reason,
        evaluation_error: "",
    };
    let document = Document::parse_bytes(body).expect("JSON");
    let by_index = tape::decode(&document).expect("a valid review");
    assert_eq!(by_index, (decoded.version, decoded.attributes.clone()));
    assert_eq!((body.len(), decided.decision.as_str()), (780, "allow"));

    let mut group = criterion.benchmark_group("review");
    group.throughput(Throughput::Elements(1));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| SubjectAccessReview::decode(black_box(body)));
    });
    group.bench_function("decode by the index of json", |bencher| {
        bencher.iter(|| {
            let document = Document::parse_bytes(black_box(body)).expect("JSON");
            tape::decode(&document).map(black_box).is_some()
        });
    });
    group.bench_function("decide", |bencher| {
        bencher.iter(|| policies.authorize(black_box(&decoded.attributes), Time::UNIX_EPOCH));
    });
    group.bench_function("encode", |bencher| {
        bencher.iter_batched_ref(
            || String::with_capacity(320),
            |out| black_box(&reply).encode(out),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("whole", |bencher| {
        bencher.iter(|| {
            let review = SubjectAccessReview::decode(black_box(body)).expect("a valid review");
            let decided = policies.authorize(&review.attributes, Time::UNIX_EPOCH);
            let mut out = String::with_capacity(320);
            let reply = SubjectAccessReviewReply {
                version: review.version,
                decision: decided.decision,
                reason: &decided.reason,
                evaluation_error: "",
            };
            reply.encode(&mut out);
            out
        });
    });
    group.finish();
}

criterion_group!(review_benches, benches);
criterion_main!(review_benches);
