//! A difference in SARIF 2.1.0, at the objects that decide what is decided otherwise.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::object_places::ObjectPlaces;
use crate::cli::output;
use portcullis_policy::document::Document;
use portcullis_policy::explain::difference::{DifferenceReport, ReportedChange};
use portcullis_policy::field::FieldPath;

/// What is told, each by the list of the report that has it.
const RULES: [(&str, &str); 5] = [
    ("gain", "Requests that are allowed, and were not"),
    ("loss", "Requests that were allowed, and are not"),
    (
        "otherwise",
        "Requests that are denied where there was no opinion, or the reverse",
    ),
    ("reason", "Requests that are decided as before, by something else"),
    (
        "invariant",
        "An AuthorizationInvariant that does not hold after the change",
    ),
];

/// The manifests after the change.
pub(crate) struct ChangedFiles {
    pub(crate) documents: Vec<Document>,
    /// If they are of a revision, the folder that they were written to, and where it is in the
    /// repository.
    pub(crate) revision: Option<(PathBuf, PathBuf)>,
}

/// The log of `report`. What `fails` is an error, other gains are warnings.
pub(crate) fn log(report: &DifferenceReport, files: &ChangedFiles, fails: impl Fn(&str) -> bool) -> Value {
    let places = ObjectPlaces::new(&files.documents);
    let level = |rule: &str| match rule {
        _ if fails(rule) => "error",
        "gain" | "invariant" => "warning",
        _ => "note",
    };
    let result = |rule: &str, level: &str, message: String, objects: Vec<[&str; 3]>| {
        let location = objects
            .into_iter()
            .find_map(|object| files.location(&places, object));
        json!({
            "ruleId": rule,
            "level": level,
            "message": {"text": message},
            "locations": location.into_iter().collect::<Vec<_>>(),
        })
    };
    let lists: [(&str, &[ReportedChange]); 4] = [
        ("gain", &report.gains),
        ("loss", &report.losses),
        ("otherwise", &report.otherwise),
        ("reason", &report.reasons),
    ];
    let mut results = Vec::new();
    for (rule, changes) in lists {
        let changes = changes.iter();
        results.extend(changes.map(|change| result(rule, level(rule), change.message(), change.objects())));
    }
    for invariant in report.invariants.iter().filter(|invariant| invariant.is_news()) {
        let level = if invariant.is_refused() {
            "error"
        } else {
            level("invariant")
        };
        results.push(result(
            "invariant",
            level,
            invariant.message(),
            invariant.places(),
        ));
    }
    let rules = RULES.map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}}));
    output::log(rules.to_vec(), results)
}

// === impl ChangedFiles ===

impl ChangedFiles {
    fn location(&self, places: &ObjectPlaces<'_>, object: [&str; 3]) -> Option<Value> {
        let place = places.document(object)?.place(FieldPath::root());
        let file = place.file.as_deref()?;
        let within = self.revision.as_ref().and_then(|(folder, named)| {
            let path = Path::new(file).strip_prefix(folder).ok()?;
            Some(named.join(path).display().to_string())
        });
        let file = within.unwrap_or_else(|| file.to_owned());
        let physical = output::physical_location(&file, place.line, place.column)?;
        Some(json!({"physicalLocation": physical}))
    }
}
