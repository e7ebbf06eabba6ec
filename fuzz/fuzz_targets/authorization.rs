//! A SubjectAccessReview: decoded, decided, answered.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use portcullis_policy::api::{SubjectAccessReview, SubjectAccessReviewReply};
use portcullis_policy::model::Time;
use portcullis_policy::authorization::PolicySet;

static POLICIES: LazyLock<Arc<PolicySet>> = LazyLock::new(portcullis_fuzz::policies);

fuzz_target!(|body: &[u8]| {
    let Ok(review) = SubjectAccessReview::decode(body) else {
        return;
    };
    let decided = POLICIES.authorize(&review.attributes, Time::UNIX_EPOCH);
    let reply = SubjectAccessReviewReply {
        version: review.version,
        decision: decided.decision,
        reason: &decided.reason,
        evaluation_error: "",
    };
    let mut out = String::new();
    reply.encode(&mut out);
    let written: serde_json::Value = serde_json::from_str(&out).expect("a reply is JSON");
    assert_eq!(written["kind"], "SubjectAccessReview");
});
