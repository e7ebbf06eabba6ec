//! Compares decisions, and keeps an example of what changes.

use serde::Serialize;

use super::source::RecordingFile;
use crate::config::Endpoint;
use crate::recording::RecordLine;
use portcullis_cel::json::{Document, patch};
use portcullis_policy::api::{AdmissionReview, SubjectAccessReview};
use portcullis_policy::engine::{Decision, User};
use portcullis_policy::explain::replayed::{
    ChangeGroup, ReplayDecision, ReviewComparison, about, of_group, target_in_words,
};

/// A review whose decision changes.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeExample {
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) time: String,
    pub(crate) endpoint: &'static str,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    /// What was asked, in words.
    pub(crate) request: String,
    /// The reason for the decision before.
    pub(crate) before: String,
    /// The reason for the decision now.
    pub(crate) now: String,
    /// What was considered for the decision now, in lines.
    pub(crate) considered: Vec<String>,
}

/// What became of the review `recorded`.
pub(crate) fn compared(
    file: &RecordingFile,
    recorded: &RecordLine<'_>,
    before: ReplayDecision,
    now: ReplayDecision,
) -> ReviewComparison<Box<ChangeExample>> {
    let (before, now) = match (before, now) {
        (ReplayDecision::Known(before), ReplayDecision::Known(now)) => (before, now),
        (ReplayDecision::Known(before), ReplayDecision::Unknown(why))
            if before.decision == Decision::Deny =>
        {
            let group = ChangeGroup::lost(&before);
            let example = ChangeExample::new(file, recorded, before.reason, why.clone());
            return ReviewComparison::Lost(group, why, Box::new(example));
        }
        (ReplayDecision::Unknown(why), _) | (_, ReplayDecision::Unknown(why)) => {
            return ReviewComparison::Unknown(why);
        }
    };
    let group = if before.decision != now.decision {
        ChangeGroup::of(&before, &now)
    } else if recorded.endpoint == Endpoint::Mutate && now.decision == Decision::Allow {
        match is_same_patch(recorded, before.patch.as_deref(), now.patch.as_deref()) {
            Ok(true) => return ReviewComparison::Same,
            Ok(false) => ChangeGroup {
                from: Decision::Allow.as_str(),
                to: Decision::Allow.as_str(),
                cause: "patch".to_owned(),
                is_gone: false,
            },
            Err(why) => return ReviewComparison::Unknown(why),
        }
    } else {
        return ReviewComparison::Same;
    };
    let example = ChangeExample::new(file, recorded, before.reason, now.reason);
    ReviewComparison::Changed(group, Box::new(example))
}

/// Whether both make the same of the object.
fn is_same_patch(recorded: &RecordLine<'_>, before: Option<&str>, now: Option<&str>) -> Result<bool, String> {
    let (Some(before), Some(now)) = (before, now) else {
        return Err("something of the recorded patch is redacted".to_owned());
    };
    if before == now {
        return Ok(true);
    }
    let parts = ["/request/object", "/spec/object"];
    let object = parts.into_iter().find_map(|part| recorded.review.pointer(part));
    let result = |changes: &str| {
        let object = object?;
        if changes.is_empty() {
            return Document::parse(object.raw().to_owned()).ok();
        }
        let changes = Document::parse(changes.to_owned()).ok()?;
        let changed = patch::apply(object, patch::read(changes.root()).ok()?).ok()?;
        Document::parse(changed.to_text()).ok()
    };
    match (result(before), result(now)) {
        (Some(before), Some(now)) => Ok(before.root().same(now.root())),
        _ => Err("the recorded patch does not fit the recorded object".to_owned()),
    }
}

// === impl ChangeExample ===

impl ChangeExample {
    fn new(file: &RecordingFile, recorded: &RecordLine<'_>, before: String, now: String) -> Self {
        let (user, request) = asked(recorded).unwrap_or_default();
        Self {
            file: file.path.display().to_string(),
            line: file.line,
            time: recorded.time.to_string(),
            endpoint: recorded.endpoint.as_str(),
            cluster: recorded.text("cluster"),
            user: user.name.into_owned(),
            groups: user.groups.into_iter().map(|group| group.into_owned()).collect(),
            request,
            before,
            now,
            considered: Vec::new(),
        }
    }
}

/// Who asked, and for what.
fn asked(recorded: &RecordLine<'_>) -> Option<(User<'static>, String)> {
    let text = recorded.review.raw();
    if recorded.endpoint == Endpoint::Authorize {
        let review = SubjectAccessReview::decode(text.as_bytes()).ok()?;
        let attributes = review.attributes.into_owned();
        return Some((attributes.user, target_in_words(&attributes.target)));
    }
    let document = Document::parse(text).ok()?;
    let request = AdmissionReview::decode(&document).ok()?.request;
    let resource = of_group(
        &request.resource.resource,
        &request.subresource,
        &request.resource.group,
    );
    let words = about(
        request.operation.as_str(),
        &resource,
        &request.namespace,
        &request.name,
    );
    let user = User {
        name: request.user.name.into_owned().into(),
        groups: request
            .user
            .groups
            .into_iter()
            .map(|group| group.into_owned().into())
            .collect(),
        ..User::default()
    };
    Some((user, words))
}
