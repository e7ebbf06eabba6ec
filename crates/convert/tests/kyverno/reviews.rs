//! How policies that were made decide reviews, for the tests that compare this.

use portcullis_policy::admission::Phase;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{OfflineReview, OfflineReviewResult};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::manifest::{self, Options, Source};
use portcullis_policy::model::Time;

/// The objects of these texts of YAML.
pub(crate) fn loaded(texts: &[String]) -> LoadedPolicies {
    let source = |text: &String| Source {
        file: "made.yaml".into(),
        text: text.clone(),
        cluster: None,
    };
    let sources: Vec<Source> = texts.iter().map(source).collect();
    let (manifests, faults) = manifest::load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}\n{}", texts.join("\n---\n")));
    LoadedPolicies::of_manifests(manifests)
}

/// What they answer to an AdmissionReview.
#[expect(
    clippy::disallowed_methods,
    reason = "the test is the caller, whose clock it is"
)]
pub(crate) fn answered(by: &LoadedPolicies, phases: &'static [Phase], review: &str) -> OfflineReviewResult {
    let offline = OfflineReview {
        loaded: by,
        cluster: "default",
        phases,
        only: None,
        now: Time::UNIX_EPOCH,
        clock: std::time::Instant::now,
        answers: &RecordedAnswers::default(),
        requester_unknown: false,
        deadline: None,
        recorder: None,
    };
    offline.answer(review.as_bytes()).unwrap()
}
