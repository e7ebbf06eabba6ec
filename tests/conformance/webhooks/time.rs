//! How much time each webhook is given, and what becomes of a request without any left.

use portcullis_policy::admission::webhook::CallFailure;
use portcullis_policy::model::Time;

use super::*;

/// The time that has passed since the request began. Webhooks only say how
/// much of it they take.
struct Clock {
    request: Duration,
    passed: Duration,
}

pub(super) fn timeout(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let seconds = |value: &Value| Duration::from_secs(value.as_u64().unwrap());
    let mut clock = Clock {
        request: seconds(&input["requestTimeoutSeconds"]),
        passed: Duration::ZERO,
    };
    let document = review(false, false, &Value::Null);
    let review = AdmissionReview::decode(&document).unwrap();
    let mut announced = Map::new();
    let mut is_refused = false;
    for (phase, field) in [(Phase::Mutate, "mutating"), (Phase::Validate, "validating")] {
        if is_refused {
            break;
        }
        let webhooks = input[field].as_array().into_iter().flatten().map(|one| {
            let mut written = one.clone();
            written["admissionReviewVersions"] = json!(["v1"]);
            Webhook {
                timeout: seconds(&one["timeoutSeconds"]),
                ..webhook(&written, "test-webhooks", one["path"].as_str().unwrap())
            }
        });
        let set = set(webhooks.collect(), &[]);
        let access = PolicySet::default();
        let begun = clock.passed;
        let outcome = Chain::run(
            phase,
            &set,
            &review.request,
            RunOptions::new(&access, Time::UNIX_EPOCH),
            &mut |one| {
                // Validating webhooks are asked at once.
                let since = if phase == Phase::Validate {
                    begun
                } else {
                    clock.passed
                };
                let (path, answer) = (one.webhook.name.clone(), clock.ask(one, since, phase, &review));
                announced.insert(path, json!(seconds_announced()));
                answer
            },
        );
        is_refused = outcome.denial.is_some();
    }
    case.same(
        "announced",
        &Value::Object(announced),
        &expect["timeoutQuerySeconds"],
    )?;
    case.same("an error", &is_refused, &(expect["error"] == true))
}

impl Clock {
    /// The webhook at `/…/5s` takes so long, if it is given that.
    fn ask(
        &mut self,
        one: &Call,
        since: Duration,
        phase: Phase,
        review: &AdmissionReview<'_>,
    ) -> webhook::WebhookCallResult {
        let given = one.webhook.timeout.min(self.request - since);
        let takes = one.webhook.name.rsplit('/').next().unwrap();
        let takes = Duration::from_secs(takes.trim_end_matches('s').parse().unwrap());
        self.passed = self.passed.max(since + takes.min(given));
        let answer = call_within(one, review, phase, given, &|question| {
            replying(question, allowed(&json!({})))
        });
        if takes < given {
            return answer;
        }
        let is_over = self.passed >= self.request;
        let late = CallFailure::Failed("failed to call webhook: no reply in time".to_owned());
        webhook::WebhookCallResult {
            result: Err(if is_over {
                CallFailure::RequestExpired
            } else {
                late
            }),
            ..answer
        }
    }
}

/// The `timeout` of the last call.
fn seconds_announced() -> u64 {
    let called = LIVE.server.calls().pop().unwrap();
    let seconds = called
        .query
        .strip_prefix("timeout=")
        .unwrap()
        .trim_end_matches('s');
    seconds.parse().unwrap()
}
