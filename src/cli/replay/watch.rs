//! Watches a run for whether it looks at something that was redacted.

use std::cell::RefCell;

use portcullis_cel::Program;
use portcullis_cel::json::pointer;
use portcullis_policy::engine::admission::exceptions::NotExcused;
use portcullis_policy::engine::admission::matching::Mismatch;
use portcullis_policy::engine::admission::may_read;
use portcullis_policy::engine::admission::trace::{MatchFinding, PolicyExpression, Recorder, TraceStep};

/// How many places are told apart. Of a review with more, all of its objects count as redacted:
/// each expression is compared with each place.
const MAX_PLACES: usize = 1000;

/// The places of a review that are redacted, and whether one of them counted.
pub(crate) struct RedactionWatch {
    /// Each as steps from the request on.
    places: Vec<Vec<String>>,
    touched: RefCell<Option<String>>,
}

// === impl RedactionWatch ===

impl RedactionWatch {
    /// For a review of which `redacted` was removed, as JSON Pointers.
    pub(crate) fn new(redacted: &[String]) -> Self {
        let steps = |pointer: &String| {
            // `/request` or `/spec` comes first.
            let steps = pointer::steps(pointer).unwrap_or_default().into_iter().skip(1);
            steps.map(|step| step.into_owned()).collect()
        };
        let places = if redacted.len() > MAX_PLACES {
            ["object", "oldObject", "options"]
                .map(|name| vec![name.to_owned()])
                .to_vec()
        } else {
            redacted.iter().map(steps).collect()
        };
        Self {
            places,
            touched: RefCell::default(),
        }
    }

    /// Whether anything is redacted.
    pub(crate) fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Says that something redacted would count.
    pub(crate) fn touch(&self, why: impl FnOnce() -> String) {
        let mut touched = self.touched.borrow_mut();
        if touched.is_none() {
            *touched = Some(why());
        }
    }

    /// Why it cannot be said what would be decided, if so.
    pub(crate) fn into_touched(self) -> Option<String> {
        self.touched.into_inner()
    }

    /// Whether what is redacted overlaps with `path` of either object.
    fn hides(&self, path: &[&str]) -> bool {
        self.places.iter().any(|place| {
            let is_object = matches!(place.first().map(String::as_str), Some("object" | "oldObject"));
            let mut both = place.iter().skip(1).zip(path);
            is_object && both.all(|(step, name)| step == name)
        })
    }

    /// Whether a pointer into the object leads to something redacted, into it or to what is
    /// around it.
    pub(crate) fn overlaps(&self, target: &str) -> bool {
        let Some(steps) = pointer::steps(target) else {
            return true;
        };
        let steps: Vec<&str> = steps.iter().map(AsRef::as_ref).collect();
        self.hides(&steps)
    }

    fn look(&self, program: &Program, what: impl Fn() -> String) {
        if self.is_any() && may_read(program, &self.places) {
            self.touch(|| format!("{} may look at what is redacted", what()));
        }
    }

    /// Labels decide whether something applies.
    fn selects(&self, finding: &MatchFinding<'_>, what: impl Fn() -> String) {
        let is_by_labels = match finding {
            MatchFinding::Applies { .. } | MatchFinding::Fails(_) => true,
            MatchFinding::Misses(mismatch) => matches!(mismatch, Mismatch::Object | Mismatch::Namespace),
        };
        if is_by_labels && self.hides(&["metadata", "labels"]) {
            self.touch(|| format!("{} selects by labels, which are redacted", what()));
        }
    }
}

impl Recorder for RedactionWatch {
    fn record(&self, step: TraceStep<'_>) {
        match step {
            TraceStep::Policy { kind, name, finding } => self.selects(&finding, || format!("{kind}/{name}")),
            TraceStep::Binding { name, finding } => self.selects(&finding, || format!("the binding {name}")),
            TraceStep::Webhook { webhook, finding } => {
                self.selects(&finding, || format!("the webhook {}", webhook.id()));
            }
            TraceStep::Variable { name, program, .. } => {
                self.look(program, || format!("the variable `{name}`"));
            }
            TraceStep::Expression {
                part, program, text, ..
            } => match part {
                // These decide nothing.
                PolicyExpression::Message(_) | PolicyExpression::Annotation(_) => {}
                PolicyExpression::Condition(_) | PolicyExpression::Validation(_) => {
                    self.look(program, || format!("`{text}`"));
                }
                // What it makes of the object is typed and compared as a whole.
                PolicyExpression::Mutation(_) => {
                    self.touch(|| "a mutation changes an object of which something is redacted".to_owned());
                }
            },
            TraceStep::Exception { name, found, .. } => {
                if !matches!(
                    found,
                    Err(NotExcused::Ended | NotExcused::Subjects | NotExcused::Rules)
                ) && self.hides(&["metadata", "labels"])
                {
                    self.touch(|| format!("AdmissionException/{name} selects by labels, which are redacted"));
                }
            }
            TraceStep::Initializer { .. } => {
                if self.hides(&["metadata", "initializers"]) {
                    self.touch(|| "the initializers of the object are redacted".to_owned());
                }
            }
            TraceStep::Run { .. }
            | TraceStep::Changed { .. }
            | TraceStep::Decided(_)
            | TraceStep::Again
            | TraceStep::Asked { .. }
            | TraceStep::Answered(_) => {}
        }
    }
}
