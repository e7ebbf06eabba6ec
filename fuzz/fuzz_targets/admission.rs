//! An AdmissionReview: decoded, judged by policies that validate and mutate, answered.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::model::Time;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSet, Chain, Phase, RunOptions};
use portcullis_policy::authorization::PolicySet;
use portcullis_cel::json::Document;

static POLICIES: LazyLock<Arc<PolicySet>> = LazyLock::new(portcullis_fuzz::policies);
static SET: LazyLock<Arc<AdmissionSet>> =
    LazyLock::new(|| portcullis_fuzz::admission(portcullis_fuzz::ADMISSION));

fuzz_target!(|body: &[u8]| {
    let Ok(document) = Document::parse_bytes(body) else {
        return;
    };
    let Ok(review) = AdmissionReview::decode(&document) else {
        return;
    };
    for phase in Phase::ALL {
        let outcome = Chain::run(phase, &SET, &review.request, RunOptions::new(&**POLICIES, Time::UNIX_EPOCH), &mut fail_every_call);
        let reply = review.reply(&review.within_version(outcome));
        let _: serde_json::Value = serde_json::from_slice(&reply).expect("a reply is JSON");
    }
});
