//! One configuration against `serverBehaviours`.

use super::reinvocation::scripted;
use super::*;
use portcullis_policy::model::Time;

/// A webhook that changes something after all others.
const LAST: &str = "last";

fn behaviour(path: &str, question: &Value) -> Answer {
    let reply = |response| replying(question, response);
    let annotations = json!({"key1": "value1"});
    match path {
        "internalErr" => Answer::http(500, "webhook internal server error"),
        "invalidReq" => Answer::http(101, ""),
        "invalidResp" => Answer::http(200, "webhook invalid response"),
        "nonStatusError" => Answer::Reset,
        "nilResponse" => {
            let review = json!({"apiVersion": question["apiVersion"], "kind": "AdmissionReview"});
            Answer::http(200, review.to_string())
        }
        "disallow" | "shouldNotBeCalled" => reply(json!({"allowed": false, "status": {"code": 403}})),
        "disallowReason" => {
            reply(json!({"allowed": false, "status": {"code": 403, "message": "you shall not pass"}}))
        }
        "allow" => reply(allowed(&json!({"auditAnnotations": annotations}))),
        "invalidAnnotation" => reply(allowed(&json!({"auditAnnotations": {"invalid*key": "value1"}}))),
        "noop" => reply(allowed(&json!({}))),
        "removeLabel" => {
            let mut response = json_patch(&json!([{"op": "remove", "path": "/metadata/labels/remove"}]));
            response["auditAnnotations"] = annotations;
            reply(response)
        }
        "addLabel" => reply(json_patch(
            &json!([{"op": "add", "path": "/metadata/labels/added", "value": "test"}]),
        )),
        "invalidPatch" => reply(allowed(
            &json!({"patchType": "JSONPatch", "patch": STANDARD.encode("[{")}),
        )),
        "invalidMutation" => reply(allowed(
            &json!({"patchType": "JSONPatch", "patch": STANDARD.encode("[{\"op\": \"add\"")}),
        )),
        _ => Answer::http(404, ""),
    }
}

fn path_of(written: &Value) -> String {
    let client = &written["clientConfig"];
    let path = client["url"]
        .as_str()
        .or_else(|| client["service"]["path"].as_str())
        .unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

pub(super) fn dispatch(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let written = input["webhooks"].as_array().unwrap();
    let of = |written: &Value| webhook(written, "test-webhooks", written["name"].as_str().unwrap());
    let webhooks = || -> Vec<Webhook> { written.iter().map(of).collect() };
    let phase = match input["phase"].as_str() {
        Some("mutating") => Phase::Mutate,
        _ => Phase::Validate,
    };
    let document = review(
        input["customResource"] == true,
        input["dryRun"] == true,
        &input["extraLabels"],
    );
    let review = AdmissionReview::decode(&document).unwrap();
    let run = |webhooks: Vec<Webhook>| {
        let mut asked = Vec::new();
        let set = set(webhooks, &[]);
        let access = PolicySet::default();
        let outcome = Chain::run(
            phase,
            &set,
            &review.request,
            RunOptions::new(&access, Time::UNIX_EPOCH),
            &mut |one| {
                let written = written
                    .iter()
                    .find(|written| written["name"] == one.webhook.name.as_str());
                asked.push(one.webhook.name.clone());
                call(one, &review, phase, &|question| match written {
                    Some(written) => behaviour(&path_of(written), question),
                    None => scripted("/set/last/1", question),
                })
            },
        );
        (outcome, asked)
    };
    let (outcome, _) = run(webhooks());
    case.same("allowed", &outcome.denial.is_none(), &(expect["allowed"] == true))?;
    if let Some(denial) = &outcome.denial {
        let code = expect["code"].as_i64().unwrap_or_default();
        case.same("code", &i64::from(denial.code), &code)?;
        let part = expect["errorContains"].as_str().unwrap_or_default();
        if !denial.message.contains(part) {
            return Err(Mismatch::new(denial.message.clone()));
        }
    }
    same_annotations(case, &outcome, &expect["auditAnnotations"])?;
    if let Some(labels) = expect.get("labels") {
        case.same(
            "labels",
            &patched(&review, &outcome)["metadata"]["labels"],
            labels,
        )?;
    }
    for (name, is_eligible) in expect["eligibleForReinvocation"]
        .as_object()
        .into_iter()
        .flatten()
    {
        // One more, after whose change all are asked again that want to be.
        let last = json!({"admissionReviewVersions": ["v1"], "sideEffects": "None"});
        let mut more = webhooks();
        more.push(webhook(&last, "test-webhooks", LAST));
        let (_, asked) = run(more);
        let times = asked.iter().filter(|one| *one == name).count();
        case.same("asked again", &json!(times > 1), is_eligible)?;
    }
    Ok(())
}
