//! The verbs of constrained impersonation (KEP-5284).
//!
//! `apiserver/pkg/endpoints/filters/impersonation/mode.go`: `impersonate:MODE` about whoever is
//! impersonated, `impersonate-on:MODE:VERB` about the request itself.

use super::similar::nearest;

/// What a verb about whoever is impersonated begins with.
pub(crate) const CONSTRAINED: &str = "impersonate:";
/// What a verb about the request itself begins with.
const CONSTRAINED_ON: &str = "impersonate-on:";

const MODES: [&str; 4] = ["associated-node", "arbitrary-node", "serviceaccount", "user-info"];

/// What is odd about `verb`, where it is one of constrained impersonation, and `None` otherwise;
/// `of_request` says what is odd about the verb of a request.
pub(crate) fn odd_verb(verb: &str, of_request: impl Fn(&str) -> Option<String>) -> Option<Option<String>> {
    if let Some(mode) = verb.strip_prefix(CONSTRAINED) {
        return Some(odd_mode(verb, mode));
    }
    let on = verb.strip_prefix(CONSTRAINED_ON)?;
    let odd = match on.split_once(':') {
        None | Some((_, "" | "*")) => Some(format!(
            "`{verb}` has no verb of a request, and there are no wildcards: write one for each verb, such as \
             `{CONSTRAINED_ON}user-info:get`"
        )),
        Some((mode, of)) => odd_mode(verb, mode).or_else(|| of_request(of)),
    };
    Some(odd)
}

fn odd_mode(verb: &str, mode: &str) -> Option<String> {
    if MODES.contains(&mode) {
        return None;
    }
    let meant = match nearest(mode, MODES) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the modes are `{}`", MODES.join("`, `")),
    };
    Some(format!(
        "`{verb}`: there is no mode `{mode}` of impersonation; {meant}"
    ))
}
