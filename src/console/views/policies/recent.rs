//! What the recent decisions were decided by.

use std::collections::BTreeMap;

use crate::console::context::ViewContext;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};

/// The objects that recent decisions name, each by kind, namespace and name.
#[derive(Debug, Default)]
pub(crate) struct RecentUse(BTreeMap<(String, String, String), ObjectUse>);

/// What an object had to do with recent decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectUse {
    /// How many it decided.
    pub(crate) decided: u64,
    /// How many of these were denials.
    pub(crate) denied: u64,
    /// The last that it decided, or would have in Shadow: its number and time.
    pub(crate) last: Option<(u64, String)>,
    /// How many by each of its rules.
    pub(crate) rules: BTreeMap<usize, u64>,
}

// === impl RecentUse ===

impl RecentUse {
    /// Those of `cluster` among the decisions that the console remembers.
    pub(crate) fn new(context: &ViewContext<'_>, cluster: &str) -> Self {
        let mut recent = Self::default();
        for kept in context.decisions.since(0).iter() {
            recent.add(cluster, kept.sequence, kept.line);
        }
        recent
    }

    /// Adds a line of the decision log; lines come in the order of their numbers.
    fn add(&mut self, cluster: &str, sequence: u64, line: &[u8]) {
        let Some(logged) = LoggedDecision::read(line) else {
            return;
        };
        if logged.cluster != cluster {
            return;
        }
        if let Some(cause) = &logged.cause {
            let used = self.used(&cause.kind, cause, (sequence, &logged.time));
            used.decided += 1;
            used.denied += u64::from(logged.decision == "deny");
            if let Some(rule) = cause.rule {
                *used.rules.entry(rule).or_default() += 1;
            }
        }
        for shadow in &logged.shadow {
            self.used(&shadow.kind, shadow, (sequence, &logged.time));
        }
        for exception in &logged.exceptions {
            self.used("AdmissionException", exception, (sequence, &logged.time))
                .decided += 1;
        }
    }

    fn used(
        &mut self,
        kind: &str,
        object: &LoggedObject<'_>,
        (sequence, time): (u64, &str),
    ) -> &mut ObjectUse {
        let key = (
            kind.to_owned(),
            object.namespace.to_string(),
            object.name.to_string(),
        );
        let used = self.0.entry(key).or_default();
        used.last = Some((sequence, time.to_owned()));
        used
    }

    /// What the object of this kind, namespace and name was used for.
    pub(crate) fn of(&self, kind: &str, namespace: &str, name: &str) -> ObjectUse {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let used = self.0.get(&key);
        used.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_counted_for_the_objects_that_they_name() {
        let mut recent = RecentUse::default();
        for (sequence, line) in [
            (
                7,
                r#"{"time":"t7","cluster":"c","decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"a","rule":1}}"#,
            ),
            (
                8,
                r#"{"time":"t8","cluster":"c","cause":{"kind":"AuthorizationPolicy","name":"a","rule":1},"shadow":[{"kind":"AuthorizationPolicy","name":"s","decision":"deny"}]}"#,
            ),
            (
                9,
                r#"{"time":"t9","cluster":"other","cause":{"kind":"AuthorizationPolicy","name":"a","rule":0}}"#,
            ),
            (
                10,
                r#"{"time":"t10","cluster":"c","exceptions":[{"name":"e","policy":"p"}]}"#,
            ),
            (11, "no line"),
        ] {
            recent.add("c", sequence, line.as_bytes());
        }
        let used = recent.of("AuthorizationPolicy", "", "a");
        assert_eq!((used.decided, used.denied), (2, 1));
        assert_eq!(used.last, Some((8, "t8".to_owned())));
        assert_eq!(used.rules, [(1, 2)].into());
        let shadow = recent.of("AuthorizationPolicy", "", "s");
        assert_eq!((shadow.decided, shadow.last), (0, Some((8, "t8".to_owned()))));
        assert_eq!(recent.of("AdmissionException", "", "e").decided, 1);
        assert_eq!(recent.of("AuthorizationPolicy", "", "none"), ObjectUse::default());
    }
}
