//! What is recorded of reviews: redaction, lines, files.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis::config::{Endpoint, FileFormat, FolderBounds, RecordingSettings};
use portcullis::recording::{RecordedBody, RecordedDecision, RecordedReview, Recordings};
use portcullis::telemetry::metrics::IntCounter;
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::model::Decision;

use crate::{measure, worst};

fn review(object: &str) -> Arc<OwnedAdmissionReview> {
    let text = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u","kind":{{"group":"example.com","version":"v1","kind":"Widget"}},"resource":{{"group":"example.com","version":"v1","resource":"widgets"}},"name":"p","namespace":"n","operation":"CREATE","userInfo":{{"username":"jane"}},"object":{{"o":{object}}}}}}}"#
    );
    Arc::new(OwnedAdmissionReview::read(text.into_bytes()).unwrap())
}

fn recorded(read: &Arc<OwnedAdmissionReview>, patch: &str) -> RecordedReview {
    RecordedReview {
        time: SystemTime::UNIX_EPOCH,
        endpoint: Endpoint::Mutate,
        name: None,
        cluster: "default".to_owned(),
        caller: "api".to_owned(),
        revision: "0123".into(),
        decision: RecordedDecision {
            decision: Decision::Allow,
            reason: "because of what is written".to_owned(),
            cause: None,
            error: String::new(),
            patch: patch.to_owned(),
        },
        opinions: Vec::new(),
        calls: Vec::new(),
        body: RecordedBody::Admission(Arc::clone(read)),
    }
}

#[test]
fn redaction_takes_a_few_bytes_a_byte() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let dropped = IntCounter::new("dropped", "reviews").unwrap();
    let recordings = Recordings::new(dropped.clone());
    let settings = RecordingSettings {
        files: FolderBounds {
            folder: folder.path().join("recordings"),
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(3600),
        },
        format: FileFormat::Json,
        redact: Vec::new(),
    };
    recordings.follow(Some(&settings)).unwrap();
    let reviews = worst().into_iter().map(|(name, text)| {
        let patch = format!(r#"[{{"op":"add","path":"/o","value":{text}}}]"#);
        let read = review(&text);
        (name, read.bytes() + patch.len(), (read, patch))
    });
    measure("recording", 12.0, reviews, |(read, patch)| {
        recordings.record(|| recorded(read, patch));
        assert!(recordings.flush(Duration::from_secs(600)));
    });
    // What nests so that places take more than the review is not recorded.
    assert!(dropped.get() <= 2, "{}", dropped.get());
}
