//! Who answers the questions of expressions.

use portcullis_policy::authorization::Authorization;

use super::*;

/// Answers by the verb alone.
#[derive(Debug)]
pub(super) struct ByVerb;

impl AccessChecker for ByVerb {
    fn answer(&self, attributes: &Attributes<'_>, _: Time, _: Deadline<'_>) -> AccessCheckDecision {
        let asked = sar::verb(&attributes.target);
        AccessCheckDecision {
            allowed: asked == "allowme",
            reason: if asked == "allowme" { "because" } else { "" }.to_owned(),
            error: (asked == "errme").then(|| "the authorizer failed".to_owned()),
        }
    }

    fn refusal(&self, _: &Attributes<'_>, _: Time, _: Deadline<'_>) -> Authorization<'_> {
        Authorization::no_opinion("")
    }
}

/// Answers as a case says: one way for the attributes it names, another for all others.
#[derive(Debug)]
pub(super) struct ByTable(pub(super) Value);

impl ByTable {
    fn answer_to(&self, is_match: impl Fn(&Value) -> bool) -> AccessCheckDecision {
        let named = &self.0["match"];
        let answer = if named.is_object() && is_match(named) {
            &self.0["matchResult"]
        } else {
            &self.0["default"]
        };
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        AccessCheckDecision {
            allowed: answer["decision"] == "Allow",
            reason: text("reason"),
            error: Some(text("error")).filter(|error| !error.is_empty()),
        }
    }
}

impl AccessChecker for ByTable {
    fn answer(&self, attributes: &Attributes<'_>, _: Time, _: Deadline<'_>) -> AccessCheckDecision {
        self.answer_to(|named| {
            let is_user = named["user"]
                .as_str()
                .is_none_or(|name| name == attributes.user.name)
                && (named["groups"].is_null() || named["groups"] == json!(attributes.user.groups));
            is_user && sar::is_target(named, &attributes.target)
        })
    }

    fn refusal(&self, _: &Attributes<'_>, _: Time, _: Deadline<'_>) -> Authorization<'_> {
        Authorization::no_opinion("")
    }
}

impl AuthorizeAccess for ByTable {
    fn authorize(&self, question: AccessCheckAttributes, _: &dyn Fn() -> bool) -> Arc<AccessCheckDecision> {
        Arc::new(self.answer_to(|named| {
            ["group", "resource", "subresource", "namespace", "name", "verb"]
                .into_iter()
                .zip([
                    &question.group,
                    &question.resource,
                    &question.subresource,
                    &question.namespace,
                    &question.name,
                    &question.verb,
                ])
                .all(|(field, asked)| named[field] == asked.as_str())
        }))
    }
}
