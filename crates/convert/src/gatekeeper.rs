//! Gatekeeper's ConstraintTemplates with CEL, and their constraints.
//!
//! What is made is what Gatekeeper itself makes of them (`pkg/drivers/k8scel/transform` of
//! Gatekeeper): the template becomes a policy whose parameters are constraints, each constraint a
//! binding; the constraint stays, as the parameter.

mod constraint;
mod template;

use std::collections::BTreeMap;

use super::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// The group of constraints.
pub(crate) const CONSTRAINTS: &str = "constraints.gatekeeper.sh";

/// The templates of all files, by the kind of their constraints.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// Whether each is converted.
    converted: BTreeMap<String, bool>,
}

// === impl Templates ===

impl Templates {
    /// Converts a template, and keeps in mind whether that was done.
    pub(crate) fn convert(&mut self, document: &Document) -> Conversion {
        let made = template::convert(document);
        if let Some(kind) = template::kind(document) {
            self.converted.insert(kind, made.refusals.is_empty());
        }
        made
    }

    /// Says that the template of `document` is not converted after all.
    pub(crate) fn refused(&mut self, document: &Document) {
        if let Some(kind) = template::kind(document) {
            self.converted.insert(kind, false);
        }
    }

    /// Converts a constraint, if its template is.
    pub(crate) fn constraint(&self, document: &Document, kind: &str) -> Conversion {
        let reason = match self.converted.get(kind) {
            Some(true) => return constraint::convert(document, kind),
            Some(false) => "its ConstraintTemplate is not converted",
            None => "its ConstraintTemplate is not among the files",
        };
        let mut made = Conversion::default();
        made.refuse(document, &FieldPath::root().field("kind"), reason);
        made
    }
}

/// As Gatekeeper names it.
fn policy_name(kind: &str) -> String {
    format!("gatekeeper-{}", kind.to_lowercase())
}

#[cfg(test)]
mod tests;
