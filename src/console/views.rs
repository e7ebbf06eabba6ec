//! The views, by path.
//!
//! A view is a file in this folder with a model, which is a struct that is serialized as JSON, a
//! function that makes it, and a template in `templates/`. A new view needs a match arm in
//! [`render`] and a line in `NAVIGATION` of `page.rs`.

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

/// Renders the page at the path of `request`.
///
/// # Errors
///
/// There is no page, or the query is invalid.
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

/// Whether a path accepts a form by POST.
#[must_use]
pub fn accepts_forms(path: &str) -> bool {
    path == "/what-if"
}

/// Whether the view at a path may take long. Only one such view is rendered at a time.
#[must_use]
pub fn is_costly(path: &str) -> bool {
    let is_of = |view: &str| {
        path.strip_prefix(view)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // A page for one decision decides its request again; the list does not.
    let is_decision = path.starts_with("/live/") && path != "/live/complete";
    is_decision
        || ["/what-if", "/who-can", "/what-can", "/policies", "/changes"]
            .into_iter()
            .any(is_of)
}
