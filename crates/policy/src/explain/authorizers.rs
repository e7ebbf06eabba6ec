//! Other authorizers, offline: which ones would be asked about a request, and the effect
//! of recorded answers. Nothing is called.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::authorization::SubjectAccessReviewVersion;
use crate::authorization::authorizer::{Authorizer, Consultation, NamedOpinion, Opinion, Relevance};
use crate::authorization::{Authorization, PolicySet};
use crate::engine::{Attributes, Deadline, Decision};
use crate::field::FieldPath;

/// What authorizers answer, by name.
#[derive(Debug, Default)]
pub struct Opinions(BTreeMap<String, Opinion>);

/// What comes of a request.
pub struct Consulted {
    pub authorization: Authorization<'static>,
    /// What went wrong on the way; empty if nothing did.
    pub error: String,
    /// Those whose turn it was.
    pub turns: Vec<AuthorizerTurn>,
}

/// One authorizer whose turn it was.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizerTurn {
    pub name: String,
    #[serde(flatten)]
    pub outcome: TurnOutcome,
}

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum TurnOutcome {
    /// It would be asked, and nobody knows what it says.
    Asked,
    /// It was asked: what is recorded.
    Answered { decision: Decision },
    /// It is passed over: this condition is false.
    ConditionFalse { condition: String },
    /// A condition has no result: under failurePolicy.
    ConditionError { error: String, decision: Decision },
}

impl Consulted {
    /// The names of those that would be asked, and of which nobody knows what they say.
    pub fn unanswered(&self) -> impl Iterator<Item = &str> {
        let asked = |turn: &&AuthorizerTurn| matches!(turn.outcome, TurnOutcome::Asked);
        self.turns.iter().filter(asked).map(|turn| turn.name.as_str())
    }
}

/// Decides by `policies`, and where they have no opinion by what `recorded` says
/// of `authorizers`, up to the first of which it says nothing.
pub fn consult(
    policies: &PolicySet,
    attributes: &Attributes<'_>,
    own: Authorization<'_>,
    (authorizers, recorded): (&[Authorizer], &Opinions),
) -> Consulted {
    let mut turns = Vec::new();
    let is_open = own.decision == Decision::NoOpinion;
    let mut consultation = Consultation::new(own, policies.is_protected(attributes));
    let mut is_known = true;
    for authorizer in authorizers.iter().filter(|_| is_open) {
        let (outcome, opinion) = turn(authorizer, attributes, recorded);
        is_known &= !matches!(outcome, TurnOutcome::Asked);
        turns.push(AuthorizerTurn {
            name: authorizer.name.clone(),
            outcome,
        });
        let decides = opinion.is_some_and(|opinion| is_known && consultation.take(&authorizer.name, opinion));
        if decides {
            break;
        }
    }
    let (authorization, error) = consultation.finish();
    Consulted {
        authorization,
        error,
        turns,
    }
}

fn turn(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    Opinions(recorded): &Opinions,
) -> (TurnOutcome, Option<Opinion>) {
    match (
        authorizer.relevance(attributes, Deadline::NEVER),
        recorded.get(&authorizer.name),
    ) {
        (Relevance::Skipped(condition), _) => (TurnOutcome::ConditionFalse { condition }, None),
        (Relevance::Failed(error), _) => {
            let opinion = authorizer.failed(error.as_str());
            let decision = opinion.decision;
            (TurnOutcome::ConditionError { error, decision }, Some(opinion))
        }
        (Relevance::Asked, None) => (TurnOutcome::Asked, None),
        (Relevance::Asked, Some(opinion)) => {
            let decision = opinion.decision;
            (TurnOutcome::Answered { decision }, Some(opinion.clone()))
        }
    }
}

// === impl Opinions ===

impl Opinions {
    /// Reads a map of names to what stands under `status` of their reviews.
    pub fn read(written: &Value, path: &FieldPath, fault: &mut dyn FnMut(FieldPath, String)) -> Self {
        let Some(entries) = written.as_object() else {
            fault(path.clone(), "must be a mapping of names".to_owned());
            return Self::default();
        };
        let mut opinions = BTreeMap::new();
        for (name, status) in entries {
            let reply = json!({"status": status}).to_string();
            match SubjectAccessReviewVersion::V1.verify(reply.as_bytes()) {
                Ok(opinion) => drop(opinions.insert(name.clone(), opinion)),
                Err(error) => fault(path.key(name), error.to_string()),
            }
        }
        Self(opinions)
    }

    /// What was recorded; of several by one authorizer, the first.
    pub fn of(recorded: Vec<NamedOpinion>) -> Self {
        let mut opinions = BTreeMap::new();
        for NamedOpinion { name, opinion } in recorded {
            opinions.entry(name).or_insert(opinion);
        }
        Self(opinions)
    }

    /// The names that none of `authorizers` has.
    pub fn foreign<'a>(&'a self, authorizers: &'a [Authorizer]) -> impl Iterator<Item = &'a str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| authorizers.iter().all(|authorizer| authorizer.name != *name))
    }
}
