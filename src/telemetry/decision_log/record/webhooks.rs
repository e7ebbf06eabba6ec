//! The field `webhooks` of the decision log.

use super::line::Line;
use portcullis_policy::engine::admission::webhook::{Verdict, WebhookResult};

// === impl Line ===

impl Line<'_> {
    /// Nothing where no webhook was to be asked.
    pub(crate) fn webhooks(&mut self, results: &[WebhookResult]) {
        if results.is_empty() {
            return;
        }
        self.raw(r#","webhooks":["#);
        self.items(results, Self::webhook);
        self.raw("]");
    }

    fn webhook(&mut self, result: &WebhookResult) {
        let (decision, reason) = verdict(&result.verdict);
        self.raw("{");
        self.members(&[
            ("configuration", &result.webhook.configuration),
            ("webhook", &result.webhook.name),
        ]);
        self.key("round");
        self.raw(&result.round.to_string());
        self.members(&[("decision", decision), ("reason", reason)]);
        self.key("changed");
        self.raw("[");
        self.items(&result.changed, |line, path| line.text(path));
        self.raw("]");
        if let Some(took) = result.took {
            self.key("durationSeconds");
            self.seconds(took);
        }
        self.raw("}");
    }
}

/// `decision` and `reason`.
const fn verdict(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Allowed => ("allow", ""),
        Verdict::Denied(message) => ("deny", message.as_str()),
        Verdict::Failed {
            message,
            is_ignored: false,
        } => ("error", message.as_str()),
        Verdict::Failed {
            message,
            is_ignored: true,
        } => ("ignored", message.as_str()),
    }
}
