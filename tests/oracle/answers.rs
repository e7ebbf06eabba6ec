//! The program answers at all, in order, and what Kubernetes is known to say.

use portcullis_cel::Version;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::program::Oracle;
use crate::random::{Random, cases};

#[derive(Deserialize)]
struct Converted {
    documents: Vec<Value>,
}

pub(crate) fn answers_come_in_the_order_of_the_questions() {
    let Some(mut oracle) = Oracle::start("yaml") else {
        return;
    };
    let mut random = Random::of(0);
    let numbers: Vec<u64> = (0..cases(5_000)).map(|_| random.next() >> 12).collect();
    let questions: Vec<Value> = numbers
        .iter()
        .map(|number| json!({ "text": format!("{number}") }))
        .collect();
    let answers: Vec<Converted> = oracle.ask(&questions);
    let answered: Vec<u64> = answers
        .iter()
        .map(|answer| answer.documents[0].as_u64().unwrap())
        .collect();
    assert_eq!(answered, numbers);
}

pub(crate) fn every_subject_answers() {
    let known = [
        (
            "yaml",
            json!({ "text": "a: yes" }),
            json!({ "documents": [{ "a": true }], "strict": true }),
        ),
        (
            "regex",
            json!({ "pattern": "YQ==", "texts": ["YmFh"] }),
            json!({ "found": [[[1, 2], [2, 3]]] }),
        ),
    ];
    for (subject, question, expected) in known {
        let Some(mut oracle) = Oracle::start(subject) else {
            return;
        };
        let answers: Vec<Value> = oracle.ask(&[question]);
        assert_eq!(answers, [expected], "{subject}");
    }
}

pub(crate) fn each_kubernetes_answers_for_its_own_version() {
    let question = json!({ "expression": "[1].includes(1)" });
    for (server, minor, is_known) in [("1.36", 36, false), ("1.37", 36, false), ("1.37", 37, true)] {
        let Some(mut oracle) = Oracle::of_expressions(server, Version::new(minor)) else {
            return;
        };
        let answers: Vec<Value> = oracle.ask(std::slice::from_ref(&question));
        assert_eq!(
            answers[0]["value"] == "true",
            is_known,
            "{server} {minor}: {answers:?}"
        );
    }
}
