//! Five ValidatingAdmissionPolicies that match and pass, for a Pod of 10 KB, in
//! process: indexing and decoding, judging, and the whole with the answer.

#![allow(
    clippy::expect_used,
    reason = "a measurement that cannot be made ends at once"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis::api::AdmissionReview;
use portcullis::engine::PolicySet;
use portcullis::engine::admission::{AdmissionSet, AdmissionSettings, Run};
use portcullis::json::Document;
use portcullis::manifest;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICIES: &str = include_str!("policies.yaml");
/// A review as an API server sends it for the creation of a Pod with five containers.
const REVIEW: &str = include_str!("pod-10k.json");

fn policies() -> (Arc<AdmissionSet>, Arc<PolicySet>) {
    let source = manifest::Source {
        file: "policies.yaml".to_owned(),
        text: POLICIES.to_owned(),
        cluster: None,
    };
    let (manifests, _) = manifest::load(&[source], &manifest::Options::default());
    let manifests = manifests.expect("sound policies");
    let admission = manifests.admission(&AdmissionSettings::default());
    (admission.shared, manifests.policies.shared)
}

fn benches(criterion: &mut Criterion) {
    let (set, access) = policies();
    let mut group = criterion.benchmark_group("admission");
    group.throughput(Throughput::Bytes(REVIEW.len() as u64));
    let document = Document::parse(REVIEW).expect("JSON");
    let review = AdmissionReview::decode(&document).expect("a sound review");
    let passed = set.validate(&review.request, Run::new(&*access));
    assert!(passed.denial.is_none(), "the policies must pass: {passed:?}");
    assert_eq!(passed.evaluations.len(), 5, "every policy is to be evaluated");
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            let document = Document::parse(black_box(REVIEW)).expect("JSON");
            AdmissionReview::decode(&document)
                .expect("a sound review")
                .request
                .operation
        });
    });
    group.bench_function("judge", |bencher| {
        bencher.iter(|| set.validate(black_box(&review.request), Run::new(&*access)));
    });
    group.bench_function("whole", |bencher| {
        bencher.iter(|| {
            let document = Document::parse(black_box(REVIEW)).expect("JSON");
            let review = AdmissionReview::decode(&document).expect("a sound review");
            review.reply(&set.validate(&review.request, Run::new(&*access)))
        });
    });
    group.finish();
}

criterion_group!(admission_benches, benches);
criterion_main!(admission_benches);
