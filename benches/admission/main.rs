//! Evaluates five ValidatingAdmissionPolicies that match and pass, for Pods of 2 to 1000 KB, in process. Three
//! benchmarks each: decoding the review, evaluating the policies, and both with the encoded reply.

#![allow(
    clippy::expect_used,
    reason = "a measurement that cannot be made ends at once"
)]

#[path = "../load/workload.rs"]
mod workload;

use portcullis_policy::model::Time;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{
    AdmissionSet, AdmissionSettings, Chain, Outcome, Phase, Request, RunOptions,
};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn policies() -> (Arc<AdmissionSet>, Arc<PolicySet>) {
    let source = manifest::Source {
        file: "policies.yaml".to_owned(),
        text: workload::ADMISSION_POLICIES.to_owned(),
        cluster: None,
    };
    let (manifests, _) = manifest::load(&[source], &manifest::Options::default());
    let manifests = manifests.expect("valid policies");
    let admission = manifests.admission(&AdmissionSettings::default());
    (admission.shared, manifests.policies.shared)
}

fn judged(set: &AdmissionSet, request: &Request<'_>, access: &PolicySet) -> Outcome {
    Chain::run(
        Phase::Validate,
        set,
        request,
        RunOptions::new(access, Time::UNIX_EPOCH),
        &mut fail_every_call,
    )
}

fn benches(criterion: &mut Criterion) {
    let (set, access) = policies();
    let mut group = criterion.benchmark_group("admission");
    for Workload { name, body, .. } in Workload::admission() {
        let body = body.as_str();
        let of = |what: &str| BenchmarkId::new(what, name.trim_start_matches("admission "));
        group.throughput(Throughput::Bytes(body.len() as u64));
        let document = Document::parse(body).expect("JSON");
        let review = AdmissionReview::decode(&document).expect("a valid review");
        let passed = judged(&set, &review.request, &access);
        assert!(passed.denial.is_none(), "the policies must pass: {passed:?}");
        assert_eq!(passed.evaluations.len(), 5, "every policy is to be evaluated");
        group.bench_function(of("decode"), |bencher| {
            bencher.iter(|| {
                let document = Document::parse(black_box(body)).expect("JSON");
                let review = AdmissionReview::decode(&document).expect("a valid review");
                review.request.operation
            });
        });
        group.bench_function(of("judge"), |bencher| {
            bencher.iter(|| judged(&set, black_box(&review.request), &access));
        });
        group.bench_function(of("whole"), |bencher| {
            bencher.iter(|| {
                let document = Document::parse(black_box(body)).expect("JSON");
                let review = AdmissionReview::decode(&document).expect("a valid review");
                review.reply(&judged(&set, &review.request, &access))
            });
        });
    }
    group.finish();
}

criterion_group!(admission_benches, benches);
criterion_main!(admission_benches);
