//! What becomes of an HTTP answer.

use super::*;
use portcullis_policy::model::Time;

pub(super) fn response(case: &Case<'_>) -> Result<(), Mismatch> {
    for (failure_policy, expected) in case.expect()["byFailurePolicy"].as_object().unwrap() {
        response_under(case, failure_policy, expected)?;
    }
    Ok(())
}

fn response_under(case: &Case<'_>, failure_policy: &str, expected: &Value) -> Result<(), Mismatch> {
    let input = case.input();
    let phase = match input["phase"].as_str() {
        Some("mutating") => Phase::Mutate,
        _ => Phase::Validate,
    };
    let written = json!({"failurePolicy": failure_policy, "sideEffects": "None",
                         "admissionReviewVersions": [input["admissionReviewVersion"]]});
    let set = set(vec![webhook(&written, "test-webhooks", "hook.example.com")], &[]);
    let document = review(false, false, &Value::Null);
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let outcome = Chain::run(
        phase,
        &set,
        &review.request,
        RunOptions::new(&access, Time::UNIX_EPOCH),
        &mut |one| call(one, &review, phase, &|question| http(&input["http"], question)),
    );
    case.same(
        "allowed",
        &outcome.denial.is_none(),
        &(expected["allowed"] == true),
    )?;
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    let expected_warnings = expected.get("warnings").cloned().unwrap_or(json!([]));
    case.same("warnings", &json!(warnings), &expected_warnings)?;
    if let Some(labels) = expected.get("labels") {
        case.same(
            "labels",
            &patched(&review, &outcome)["metadata"]["labels"],
            labels,
        )?;
    }
    if expected["nonStatusError"] == true {
        // No Status was made of it; the user gets an internal error.
        return case.same("code", &outcome.denial.map(|denial| denial.code), &Some(500));
    }
    same_annotations(case, &outcome, &expected["auditAnnotations"])?;
    same_denial(case, &outcome, expected)
}

fn same_denial(case: &Case<'_>, outcome: &Outcome, expected: &Value) -> Result<(), Mismatch> {
    let Some(denial) = &outcome.denial else {
        return Ok(());
    };
    let details = &denial.details;
    case.same("code", &json!(denial.code), &expected["code"])?;
    case.same("reason", &json!(denial.reason), &expected["reason"])?;
    let seconds = expected["retryAfterSeconds"].as_i64().unwrap_or_default();
    case.same("retry", &i64::from(details.retry_after_seconds), &seconds)?;
    if let Some(causes) = expected["details"].get("causes") {
        let actual: Vec<Value> = details
            .causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        case.same("causes", &json!(actual), causes)?;
    }
    let message = expected["message"].as_str().unwrap_or_default();
    // Go's own words follow in what these begin.
    let beginnings = [
        "failed to call webhook",
        "received invalid webhook response",
        "undecodable patch",
    ];
    let beginning = beginnings
        .iter()
        .find_map(|part| Some(message.split_once(part)?.0.to_owned() + part));
    let beginning = beginning.unwrap_or_else(|| match denial.reason.as_ref() {
        "InternalError" if !message.contains("patch type") => "Internal error occurred: ".to_owned(),
        _ => message.to_owned(),
    });
    if denial.message.starts_with(&beginning) {
        Ok(())
    } else {
        Err(Mismatch::new(denial.message.clone()))
    }
}

fn http(written: &Value, question: &Value) -> Answer {
    let uid = question["request"]["uid"].as_str().unwrap();
    let body = written["body"].as_str().unwrap_or_default();
    let body = body
        .replace("\"UID\"", &format!("\"{uid}\""))
        .replace("uid: UID", uid);
    let status = u16::try_from(written["status"].as_u64().unwrap()).unwrap();
    let headers = written["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, value)| {
        let name = match name.as_str() {
            "Content-Type" => "content-type",
            "Retry-After" => "retry-after",
            "Location" => "location",
            other => panic!("{other}"),
        };
        (name, value.as_str().unwrap().to_owned())
    });
    Answer::Http {
        status,
        headers: headers.collect(),
        body: body.into_bytes(),
    }
}
