//! The views: which path shows which, and what each is made of.
//!
//! A view is a file of this folder: a model, which is a struct that serde writes as JSON, a
//! function that makes it, and a template of `templates/` that shows it. To add one, give it an
//! arm in [`render`] and a line in `NAVIGATION` of `page.rs`.

mod access;
mod changes;
mod clusters;
mod live;
mod now;
mod policies;
mod webhooks;
mod what_if;

#[cfg(test)]
mod tests;

use super::page::{Page, ViewError};
use super::{ViewContext, ViewRequest};

/// The page at a path.
///
/// # Errors
///
/// There is nothing there, or the query cannot be answered.
pub fn render(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        [""] => now::view(context, request),
        ["status"] => clusters::status(context, request),
        ["live"] => live::view(context, request),
        ["live", "complete"] => live::complete(context, request),
        ["live", sequence] => live::decision(context, request, sequence),
        ["who-can"] => access::who_can(context, request),
        ["what-can"] => access::what_can(context, request),
        ["what-if"] => what_if::view(context, request),
        ["policies"] => policies::view(context, request),
        ["policies", kind, namespace, name] => policies::detail(context, request, (kind, namespace, name)),
        ["webhooks"] => webhooks::view(context, request),
        ["changes"] => changes::view(context, request),
        ["clusters"] => clusters::view(context, request),
        _ => Err(ViewError::NotFound(format!(
            "there is no page `{}`",
            request.path
        ))),
    }
}

/// Whether a path takes a form by POST.
#[must_use]
pub fn takes_forms(path: &str) -> bool {
    path == "/what-if"
}

/// Whether the view at a path may take long: one of these is made at a time.
#[must_use]
pub fn is_costly(path: &str) -> bool {
    let is_of = |view: &str| {
        path.strip_prefix(view)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // One decision is decided again; the list of all is not.
    let is_decision = path.starts_with("/live/") && path != "/live/complete";
    is_decision
        || ["/what-if", "/who-can", "/what-can", "/policies", "/changes"]
            .into_iter()
            .any(is_of)
}
