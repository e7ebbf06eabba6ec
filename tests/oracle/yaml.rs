//! YAML: what `document` reads, and what kubectl reads.

pub(crate) mod generate;

use std::path::{Path, PathBuf};

use generate::Generator;
use portcullis_policy::document;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::program::Oracle;
use crate::random::{Random, cases};

/// How many documents are asked about at once.
const BATCH: usize = 5_000;

#[derive(Deserialize)]
struct Answer {
    documents: Option<Vec<Value>>,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    error: String,
}

/// What became of the documents compared.
#[derive(Debug, Default)]
struct Tally {
    read: usize,
    refused: usize,
    /// Refused here alone, with a reason that is meant.
    stricter: usize,
}

pub(crate) fn generated_documents_are_read_as_kubectl_reads_them() {
    let Some(mut oracle) = Oracle::start("yaml") else {
        return;
    };
    let examples: Vec<String> = examples().into_iter().map(|(_, text)| text).collect();
    let mut generator = Generator::new(Random::of(12), &examples);
    let mut tally = Tally::default();
    let mut left = cases(50_000);
    while left > 0 {
        let texts: Vec<String> = (0..left.min(BATCH)).map(|_| generator.document()).collect();
        compare(&mut oracle, &texts, &mut tally);
        left -= texts.len();
    }
    println!("{tally:?}");
    assert!(tally.read * 4 > tally.refused, "too few are valid: {tally:?}");
    assert!(tally.stricter * 10 < tally.read, "{tally:?}");
}

pub(crate) fn every_example_is_read_as_kubectl_reads_it() {
    let Some(mut oracle) = Oracle::start("yaml") else {
        return;
    };
    let examples = examples();
    assert!(examples.len() > 40, "{}", examples.len());
    let mut tally = Tally::default();
    for (path, text) in examples {
        println!("{}", path.display());
        compare(&mut oracle, &[text], &mut tally);
    }
    assert_eq!(tally.stricter, 0, "{tally:?}");
}

fn compare(oracle: &mut Oracle, texts: &[String], tally: &mut Tally) {
    let questions: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
    let answers: Vec<Answer> = oracle.ask(&questions);
    let mut differences = Vec::new();
    for (text, answer) in texts.iter().zip(answers) {
        match tally.add(read(text), answer) {
            Ok(()) => {}
            Err(difference) => differences.push(format!("{difference}: {text:?}\n{text}")),
        }
    }
    differences.sort_by_key(String::len);
    differences.truncate(10);
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

impl Tally {
    /// Counts one document, or says what differs.
    fn add(&mut self, ours: Result<Vec<Value>, String>, theirs: Answer) -> Result<(), String> {
        match (ours, theirs.documents) {
            (Ok(ours), Some(documents)) => {
                let documents: Vec<Value> = documents.into_iter().map(normal).collect();
                if ours != documents {
                    return Err(format!("read as {ours:?}, by kubectl as {documents:?}"));
                }
                self.read += 1;
            }
            (Err(_), None) => self.refused += 1,
            (Err(message), Some(documents)) => {
                if !is_meant(&message, theirs.strict) {
                    return Err(format!(
                        "refused with {message}, read by kubectl as {documents:?}"
                    ));
                }
                self.stricter += 1;
            }
            (Ok(ours), None) => {
                return Err(format!(
                    "read as {ours:?}, refused by kubectl with {}",
                    theirs.error
                ));
            }
        }
        Ok(())
    }
}

fn read(text: &str) -> Result<Vec<Value>, String> {
    let documents = document::parse(None, text).map_err(|fault| fault.to_string())?;
    Ok(documents
        .iter()
        .map(|document| document.root().to_json())
        .collect())
}

/// Why we refuse what kubectl reads: it loses what is written.
fn is_meant(message: &str, strict: bool) -> bool {
    let twice = ["duplicate key", "`<<` would replace"];
    message.contains("text after the end of the document")
        || message.contains("unexpected characters after a value")
        || message.contains("two byte order marks")
        || message.contains("with another type")
        || message.contains("nested deeper than")
        || (!strict && twice.iter().any(|reason| message.contains(reason)))
}

/// Numbers as the API machinery has them: whole ones are integers.
fn normal(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap();
            let is_whole = float == float.trunc() && float.abs() < 1e21;
            let digits = if is_whole {
                float.to_string()
            } else {
                String::new()
            };
            match (digits.parse::<i64>(), digits.parse::<u64>()) {
                (Ok(integer), _) => integer.into(),
                (_, Ok(integer)) => integer.into(),
                _ => Value::Number(number),
            }
        }
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, normal(value)))
            .collect(),
        other => other,
    }
}

/// Every YAML and JSON file of the project.
fn examples() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(Path::new(env!("CARGO_MANIFEST_DIR")), &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != "vectors" {
                walk(&path, found);
            }
        } else if [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}
