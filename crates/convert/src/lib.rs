//! Converts policies of other kinds to ValidatingAdmissionPolicies and MutatingAdmissionPolicies
//! with the same meaning, or refuses them.
//!
//! ```text
//! document ─▶ deny      AuthorizationPolicy  ─┐
//!        ├──▶ kyverno   ValidatingPolicy, …  ─┤
//!        └──▶ gatekeeper  templates, constraints ─┴▶ Conversion ─▶ sound: loads without fault
//! ```
//!
//! Nothing here does IO or reads a clock.

#![warn(missing_docs)]

mod conversion;
mod deny;
mod gatekeeper;
mod kyverno;
#[cfg(test)]
#[path = "../tests/kyverno/reviews.rs"]
mod test_reviews;

pub use conversion::{Conversion, Remark, Summary};
use gatekeeper::Templates;
pub use kyverno::{TestSuite, TestSuites};
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document::Document;
use portcullis_policy::model::Deadline;

/// Converts all objects in order. The result for each is either policies that an API server
/// accepts, or the reasons why there are none. Objects of other kinds are ignored.
///
/// Converted AuthorizationPolicies exempt the subjects of `never_deny`. Returns `None` if the
/// deadline passed before everything was converted.
pub fn convert(documents: &[Document], never_deny: &NeverDeny, deadline: Deadline<'_>) -> Option<Conversion> {
    let in_time = || (!(deadline.expired)()).then_some(());
    // Templates come first, because constraints depend on whether their template is converted.
    let mut templates = Templates::default();
    let mut made: Vec<Conversion> = Vec::new();
    for document in documents {
        made.push(if is_template(document) {
            in_time()?;
            let of_template = conversion::checked(document, templates.convert(document), deadline);
            if !of_template.refusals.is_empty() {
                templates.refused(document);
            }
            of_template
        } else {
            Conversion::default()
        });
    }
    let exceptions = kyverno::Exceptions::read(documents);
    let mut all = Conversion::default();
    for (document, of_template) in documents.iter().zip(made) {
        in_time()?;
        let made = of_one(document, &templates, (never_deny, &exceptions), deadline);
        for mut made in [of_template, conversion::checked(document, made, deadline)] {
            made.converted = usize::from(!made.objects.is_empty());
            all.append(made);
        }
    }
    // If the deadline has passed by now, the last conversion may be incomplete.
    in_time()?;
    Some(all)
}

/// Converts Kyverno's tests (`kyverno test`) among the documents to PolicyTests of the converted
/// policies. The documents also have to contain the policies. Returns `None` if the deadline
/// passed.
pub fn kyverno_suites(
    documents: &[Document],
    never_deny: &NeverDeny,
    deadline: Deadline<'_>,
) -> Option<TestSuites> {
    kyverno::suites(documents, deadline, |policies| {
        convert(policies, never_deny, deadline)
    })
}

/// The fields of Kyverno's ClusterPolicies and PolicyExceptions, and how each is converted, in
/// Markdown.
pub fn kyverno_fields() -> impl Iterator<Item = (String, String)> {
    kyverno::reference()
}

/// The fields of Gatekeeper's templates and constraints, and how each is converted, in Markdown.
pub fn gatekeeper_fields() -> impl Iterator<Item = (String, String)> {
    gatekeeper::reference()
}

fn is_template(document: &Document) -> bool {
    group(document) == Some("templates.gatekeeper.sh") && document.text("kind") == Some("ConstraintTemplate")
}

fn group(document: &Document) -> Option<&str> {
    let (group, _) = document.text("apiVersion")?.split_once('/')?;
    Some(group)
}

/// Converts one object that is not a template. The result is empty if its kind is not converted.
fn of_one(
    document: &Document,
    templates: &Templates,
    (never_deny, exceptions): (&NeverDeny, &kyverno::Exceptions),
    deadline: Deadline<'_>,
) -> Conversion {
    match (group(document), document.text("kind")) {
        (Some(gatekeeper::CONSTRAINTS), Some(kind)) => templates.constraint(document, kind),
        (Some("portcullis.dev"), Some("AuthorizationPolicy")) => deny::convert(document, never_deny),
        (Some("portcullis.dev"), Some("AccessRequest")) => deny::refused_access_request(document),
        (Some("policies.kyverno.io"), Some(kind)) => kyverno::convert(document, kind),
        (Some("kyverno.io"), Some("ClusterPolicy" | "Policy")) => {
            kyverno::convert_cluster_policy(document, exceptions, deadline)
        }
        (Some("kyverno.io"), Some("PolicyException")) => exceptions.convert(document),
        _ => Conversion::default(),
    }
}
