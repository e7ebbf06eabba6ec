//! The form with a pasted manifest and an operation, and what the policies decide about each object.

use std::cell::Cell;
use std::time::Instant;

use super::request::RequestForm;
use crate::console::page::ViewError;
use crate::console::query::ViewQuery;
use portcullis_cel::json::{Document, Node, patch};
use portcullis_policy::admission::Operation;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::{
    AdmitAllExplained, AnsweredObject, OfflineReview, PHASES, StepsInWords, TracedStep, TracedValue,
};
use portcullis_policy::explain::authorization::object;
use portcullis_policy::explain::objects::{
    self, KnownKinds, ManifestRequest, ReviewOfManifest, ReviewsOfManifests,
};
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::model::{Deadline, Time};

/// The fields of the form, in addition to those of a request.
pub(crate) const FIELDS: [&str; 5] = ["manifest", "old", "operation", "subresource", "dry-run"];

/// The operations that the form offers.
const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];

/// The most objects of one manifest.
const MAX_OBJECTS: usize = 50;

/// The longest value of a change that is shown, in characters.
const SHOWN: usize = 2000;

/// Shown instead of the value of an expression in a policy with parameters.
const NOT_SHOWN: &str = "\"(not shown: it may be that of a parameter)\"";

/// A manifest as it was pasted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestForm {
    pub(crate) manifest: String,
    pub(crate) old: String,
    operation: Option<Operation>,
    pub(crate) subresource: String,
    pub(crate) is_dry_run: bool,
}

/// The decision about each object.
pub(crate) struct AdmissionAnswer {
    objects: Vec<AnsweredObject>,
    notes: Vec<String>,
}

/// The same for the HTML page.
#[derive(Debug)]
pub(crate) struct ManifestView {
    pub(crate) objects: Vec<ObjectView>,
    pub(crate) notes: Vec<String>,
}

/// The decision about one object.
#[derive(Debug)]
pub(crate) struct ObjectView {
    pub(crate) name: String,
    /// Its line in the pasted text.
    pub(crate) line: u32,
    /// `allow`, `deny` or `unknown`.
    pub(crate) decision: &'static str,
    pub(crate) message: String,
    pub(crate) cause: Option<String>,
    pub(crate) warnings: Vec<String>,
    /// Audit annotations: key and value.
    pub(crate) annotations: Vec<(String, String)>,
    pub(crate) changes: Vec<ManifestChange>,
    /// Every step, in words.
    pub(crate) steps: String,
}

/// A change that mutations make at one place of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ManifestChange {
    pub(crate) path: String,
    /// As JSON; empty where there was nothing.
    pub(crate) before: String,
    /// As JSON; empty where nothing is left.
    pub(crate) after: String,
}

// === impl ManifestForm ===

impl ManifestForm {
    pub(crate) fn new(form: &ViewQuery) -> Result<Self, ViewError> {
        let text = |name| {
            form.single(name)
                .map(|value| value.unwrap_or_default().to_owned())
        };
        let operation = match form.single("operation")? {
            None => None,
            Some(written) => {
                let found = OPERATIONS.into_iter().find(|known| known.as_str() == written);
                Some(found.ok_or_else(|| {
                    ViewError::Invalid(format!(
                        "`operation` is `{written}`: there are `CREATE`, `UPDATE`, `DELETE` and `CONNECT`"
                    ))
                })?)
            }
        };
        Ok(Self {
            manifest: text("manifest")?,
            old: text("old")?,
            operation,
            subresource: text("subresource")?.trim().to_owned(),
            is_dry_run: form.single("dry-run")?.is_some(),
        })
    }

    /// Whether an operation was chosen.
    pub(crate) const fn has_operation(&self) -> bool {
        self.operation.is_some()
    }

    /// Whether nothing was pasted.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifest.trim().is_empty()
    }

    /// The operations to choose from, and whether each is chosen.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let chosen = self.operation.unwrap_or(Operation::Create);
        OPERATIONS
            .into_iter()
            .map(move |operation| (operation.as_str(), operation == chosen))
    }

    /// A review for each object, by the user and in the namespace of `request`; or the faults in what was pasted.
    /// `is_named` tells whether policies name a resource of a group.
    pub(crate) fn reviews(
        &self,
        request: &RequestForm,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<ReviewsOfManifests, Vec<String>> {
        let read = |name: &str, text: &str| {
            let objects = objects::read(name, text.to_owned());
            objects.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let pasted = read("manifest", &self.manifest)?;
        if pasted.len() > MAX_OBJECTS {
            return Err(vec![format!(
                "there are {} objects: paste {MAX_OBJECTS} at most, or use `portcullis admit -f`",
                pasted.len()
            )]);
        }
        let old = match self.operation {
            Some(Operation::Update) if self.old.trim().is_empty() => {
                return Err(vec![
                    "an UPDATE needs the object before the change: paste it, too".to_owned(),
                ]);
            }
            Some(Operation::Update) => read("old", &self.old)?,
            _ => Vec::new(),
        };
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let asked = ManifestRequest {
            operation: self.operation,
            user: text(&request.user).map(|user| (user, request.groups.clone())),
            subresource: self.subresource.clone(),
            resource: None,
            namespace: text(&request.namespace),
            dry_run: self.is_dry_run,
            default_namespace: None,
        };
        let reviews = asked
            .reviews(&pasted, &old, KnownKinds::default(), Vec::new, is_named)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        if reviews.reviews.is_empty() {
            return Err(vec!["there is no object in the manifest".to_owned()]);
        }
        Ok(reviews)
    }
}

// === impl AdmissionAnswer ===

impl AdmissionAnswer {
    /// Evaluates `reviews` with the policies of `loaded`. Webhooks are not called.
    ///
    /// # Errors
    ///
    /// The evaluation did not end before `deadline`, or a review is invalid.
    pub(crate) fn new(
        loaded: &LoadedPolicies,
        cluster: &str,
        reviews: &ReviewsOfManifests,
        now: Time,
        deadline: Instant,
    ) -> Result<Self, ViewError> {
        let is_over = Cell::new(false);
        let expired = || {
            is_over.set(is_over.get() || Instant::now() >= deadline);
            is_over.get()
        };
        let nothing = RecordedAnswers::default();
        let asked = OfflineReview {
            loaded,
            cluster,
            phases: &PHASES,
            only: None,
            now,
            clock: std::time::Instant::now,
            answers: &nothing,
            requester_unknown: false,
            deadline: Some(Deadline::new(&expired)),
            recorder: None,
        };
        let mut objects = Vec::new();
        for about in &reviews.reviews {
            let answered = asked.answer(about.review.as_bytes());
            if expired() {
                return Err(ViewError::TooLate);
            }
            let mut answered = answered.map_err(|error| ViewError::Invalid(error.to_string()))?;
            hide_parameters(&mut answered.trace);
            objects.push(AnsweredObject {
                about: about.clone(),
                answered,
            });
        }
        Ok(Self {
            objects,
            notes: reviews.notes.clone(),
        })
    }

    /// The answer in the format of `portcullis admit -o json`.
    pub(crate) fn report(&self) -> AdmitAllExplained<'_> {
        AdmitAllExplained::new(&self.objects, &self.notes)
    }
}

/// Hides the values of expressions in policies with parameters, except `true` and `false`: other values may
/// contain what the parameter says.
fn hide_parameters(trace: &mut [TracedStep]) {
    let mut has_parameter = false;
    for step in trace {
        match step {
            TracedStep::Run { parameter, .. } => has_parameter = parameter.is_some(),
            TracedStep::Variable { result, .. } | TracedStep::Expression { result, .. } if has_parameter => {
                if let TracedValue::Value(value) = result
                    && !["true", "false"].contains(&value.get())
                {
                    *value = serde_json::from_str(NOT_SHOWN).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
}

// === impl ManifestView ===

impl From<&AdmissionAnswer> for ManifestView {
    fn from(answer: &AdmissionAnswer) -> Self {
        Self {
            objects: answer.objects.iter().map(ObjectView::from).collect(),
            notes: answer.notes.clone(),
        }
    }
}

// === impl ObjectView ===

impl From<&AnsweredObject> for ObjectView {
    fn from(AnsweredObject { about, answered }: &AnsweredObject) -> Self {
        let mut view = Self {
            name: object(&about.kind, &about.namespace, &about.name),
            line: about.line,
            decision: "unknown",
            message: String::new(),
            cause: None,
            warnings: Vec::new(),
            annotations: Vec::new(),
            changes: Vec::new(),
            steps: StepsInWords(&answered.trace).lines().to_string(),
        };
        match &answered.decided {
            Err(missing) => {
                view.message = format!(
                    "the console calls no webhooks, and the decision depends on their responses: {}",
                    missing.webhooks.join(", ")
                );
            }
            Ok(decided) => {
                let outcome = &decided.outcome;
                view.decision = if outcome.denial.is_some() { "deny" } else { "allow" };
                if let Some(denial) = &outcome.denial {
                    view.message = format!("{} ({} {})", denial.message, denial.code, denial.reason);
                }
                view.cause = outcome.cause.as_ref().map(ToString::to_string);
                view.warnings = outcome.warnings.iter().map(ToString::to_string).collect();
                let annotations = outcome.audit_annotations.iter();
                view.annotations = annotations
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                view.changes = changes(about, &outcome.patch);
            }
        }
        view
    }
}

/// The changes that a JSON Patch makes to the object of a review, one for each operation.
fn changes(about: &ReviewOfManifest, changes: &str) -> Vec<ManifestChange> {
    let (Ok(review), Ok(operations)) = (
        Document::parse(about.review.clone()),
        Document::parse(changes.to_owned()),
    ) else {
        return Vec::new();
    };
    let object = review.root().pointer("/request/object");
    let Ok(operations) = patch::read(operations.root()) else {
        return Vec::new();
    };
    let shown = |value: Option<Node<'_>>| value.map(|value| excerpt(value.raw())).unwrap_or_default();
    let change = |operation: patch::PatchOperation<'_>| ManifestChange {
        path: operation.path.to_string(),
        before: match &*operation.op {
            // In a list, `add` inserts: the item that is there now is not replaced.
            "add" if is_item(object, &operation.path) => String::new(),
            _ => shown(object.and_then(|object| object.pointer(&operation.path))),
        },
        after: shown(operation.value),
    };
    operations.operations().map(change).collect()
}

/// Whether a JSON Pointer names an item of a list.
fn is_item(object: Option<Node<'_>>, path: &str) -> bool {
    let list = path.rsplit_once('/').and_then(|(list, _)| object?.pointer(list));
    list.is_some_and(|list| list.kind() == portcullis_cel::json::Kind::Array)
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
