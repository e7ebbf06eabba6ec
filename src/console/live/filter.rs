//! Which decisions somebody wants to see.

use memchr::memmem;
use serde::Serialize;

use crate::config::Endpoint;
use crate::console::live::search::Search;
use crate::console::page::ViewError;
use crate::console::query::ViewQuery;
use crate::console::recent_decisions::KeptDecision;
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::model::{Decision, Time};

/// The decisions that meet every condition that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecisionFilter {
    pub(crate) user: String,
    pub(crate) group: String,
    pub(crate) verb: String,
    /// `pods`, `deployments.apps`, `pods/log`: what is left out may be anything.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// The name of an object that decided, nearly did, excused, or would have decided in shadow.
    pub(crate) policy: String,
    pub(crate) decision: String,
    /// `true`: a policy or webhook in shadow had something to say.
    pub(crate) shadow: String,
    pub(crate) endpoint: String,
    pub(crate) cluster: String,
    /// Decided at this instant or later, in RFC 3339.
    pub(crate) from: String,
    /// Decided before this instant.
    pub(crate) to: String,
    /// A [`Search`].
    pub(crate) q: String,
    #[serde(skip)]
    search: Search,
    #[serde(skip)]
    from_time: Option<Time>,
    #[serde(skip)]
    to_time: Option<Time>,
}

/// The names of the fields, in the order in which they are shown.
pub(crate) const FIELDS: [&str; 13] = [
    "q",
    "user",
    "group",
    "verb",
    "resource",
    "namespace",
    "policy",
    "decision",
    "shadow",
    "endpoint",
    "cluster",
    "from",
    "to",
];

/// All decisions, in the words of the decision log.
pub(crate) const DECISIONS: [Decision; 3] = [Decision::Deny, Decision::Allow, Decision::NoOpinion];

/// What a line has that names somebody in shadow. A text cannot have it: its quotes are escaped.
const SOME_SHADOW: &[u8] = br#""shadow":[{"#;

// === impl DecisionFilter ===

impl DecisionFilter {
    /// The filter that `query` describes; `beside` are names that it may hold for others.
    ///
    /// # Errors
    ///
    /// A name is not known or given twice, or a value is none of those that there are.
    pub(crate) fn read(query: &ViewQuery, beside: &[&str]) -> Result<Self, ViewError> {
        query.only(&[&FIELDS, beside].concat())?;
        let text = |name: &'static str| query.one(name).map(|value| value.unwrap_or_default().to_owned());
        let endpoints = Endpoint::ALL.map(Endpoint::as_str);
        let q = text("q")?;
        let (from, from_time) = instant("from", text("from")?)?;
        let (to, to_time) = instant("to", text("to")?)?;
        Ok(Self {
            search: Search::parse(&q),
            q,
            from,
            from_time,
            to,
            to_time,
            user: text("user")?,
            group: text("group")?,
            verb: text("verb")?,
            resource: text("resource")?,
            namespace: text("namespace")?,
            policy: text("policy")?,
            decision: one_of("decision", text("decision")?, &DECISIONS.map(Decision::as_str))?,
            shadow: one_of("shadow", text("shadow")?, &["true"])?,
            endpoint: one_of("endpoint", text("endpoint")?, &endpoints)?,
            cluster: text("cluster")?,
        })
    }

    /// The query that describes it.
    pub(crate) fn query(&self) -> ViewQuery {
        self.values().into_iter().collect()
    }

    /// Each field with its value; empty where it is not set.
    pub(crate) fn values(&self) -> [(&'static str, &str); FIELDS.len()] {
        [
            ("q", &self.q),
            ("user", &self.user),
            ("group", &self.group),
            ("verb", &self.verb),
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("policy", &self.policy),
            ("decision", &self.decision),
            ("shadow", &self.shadow),
            ("endpoint", &self.endpoint),
            ("cluster", &self.cluster),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    /// The one decision that is shown, if only one is.
    pub(crate) fn decision(&self) -> Option<Decision> {
        let chosen = DECISIONS
            .into_iter()
            .find(|known| known.as_str() == self.decision);
        chosen.or_else(|| self.search.decision())
    }

    /// What is set: each part with the query that is left without it.
    pub(crate) fn parts(&self) -> Vec<(String, ViewQuery)> {
        let without = |name: &'static str, value: &str| -> ViewQuery {
            let others = self.values().into_iter().filter(|(other, _)| *other != name);
            others.chain([(name, value)]).collect()
        };
        let terms = self.search.terms();
        let terms = terms.map(|(text, rest)| (text.to_owned(), without("q", &rest)));
        let fields = self.values().into_iter().skip(1);
        let fields = fields.filter(|(_, value)| !value.is_empty());
        let fields = fields.map(|(name, value)| (format!("{name}={value}"), without(name, "")));
        terms.chain(fields).collect()
    }

    /// Whether a line could meet it, told without reading it: cheap, and never
    /// `false` for one that does.
    pub(crate) fn may_meet(&self, kept: &KeptDecision<'_>) -> bool {
        let is_decision = self.decision().is_none_or(|wanted| wanted == kept.decision);
        let is_shadow = self.shadow.is_empty() || memmem::find(kept.line, SOME_SHADOW).is_some();
        is_decision
            && is_shadow
            && self.exact().all(|value| {
                // What JSON escapes is not looked for.
                let is_plain = value
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
                value.is_empty() || !is_plain || memmem::find(kept.line, value.as_bytes()).is_some()
            })
    }

    /// The texts that stand in a line that meets the filter as they stand here.
    fn exact(&self) -> impl Iterator<Item = &str> {
        let whole = [
            &self.user,
            &self.group,
            &self.namespace,
            &self.endpoint,
            &self.cluster,
        ];
        // The names of a configuration and of its webhook stand apart, and so do the parts of a resource.
        whole
            .into_iter()
            .map(String::as_str)
            .chain(self.policy.split('/'))
            .chain(self.resource.split(['/', '.']).next())
    }

    /// Whether a decision meets it.
    pub(crate) fn is_met(&self, request: &LoggedDecision<'_>) -> bool {
        let attributes = &request.attributes;
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.user, &request.user)
            && (self.group.is_empty() || request.groups.iter().any(|group| *group == self.group))
            && (self.verb.is_empty() || self.verb.eq_ignore_ascii_case(request.verb()))
            && self.is_resource(request)
            && is(&self.namespace, &attributes.namespace)
            && (self.policy.is_empty() || self.names(request))
            && is(&self.decision, &request.decision)
            && (self.shadow.is_empty() || !request.shadow.is_empty())
            && is(&self.endpoint, &request.endpoint)
            && is(&self.cluster, &request.cluster)
            && self.is_time(request)
            && self.search.is_met(request)
    }

    fn is_time(&self, request: &LoggedDecision<'_>) -> bool {
        if self.from_time.is_none() && self.to_time.is_none() {
            return true;
        }
        Time::parse(&request.time).is_some_and(|time| {
            self.from_time.is_none_or(|from| from <= time) && self.to_time.is_none_or(|to| time < to)
        })
    }

    fn is_resource(&self, request: &LoggedDecision<'_>) -> bool {
        if self.resource.is_empty() {
            return true;
        }
        let attributes = &request.attributes;
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (&*self.resource, None),
        };
        let (resource, group) = match resource.split_once('.') {
            Some((resource, group)) => (resource, Some(group)),
            None => (resource, None),
        };
        attributes.resource == resource
            && group.is_none_or(|group| attributes.group == group)
            && subresource.is_none_or(|subresource| attributes.subresource == subresource)
    }

    /// Whether the line names the policy.
    fn names(&self, request: &LoggedDecision<'_>) -> bool {
        let lists = [&request.near_misses, &request.shadow, &request.exceptions];
        let mut objects = request.cause.iter().chain(lists.into_iter().flatten());
        let webhook = |configuration: &str, webhook: &str| {
            configuration == self.policy || format!("{configuration}/{webhook}") == self.policy
        };
        objects.any(|object| object.name == self.policy || object.policy == self.policy)
            || request
                .webhooks
                .iter()
                .any(|called| webhook(&called.configuration, &called.webhook))
    }
}

fn instant(name: &str, value: String) -> Result<(String, Option<Time>), ViewError> {
    if value.is_empty() {
        return Ok((value, None));
    }
    match Time::parse(&value) {
        Some(time) => Ok((value, Some(time))),
        None => Err(ViewError::Invalid(format!(
            "{name}: `{value}` is no time: give one such as `2027-01-15T08:00:00Z`"
        ))),
    }
}

fn one_of(name: &str, value: String, known: &[&str]) -> Result<String, ViewError> {
    if value.is_empty() || known.contains(&&*value) {
        return Ok(value);
    }
    let known: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
    Err(ViewError::Invalid(format!(
        "{name}: `{value}` is not supported: give {}",
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2027-01-15T08:00:00.500000Z","cluster":"east","endpoint":"authorize","user":"j\"ne","groups":["dev","qa"],"attributes":{"verb":"get","namespace":"ns","group":"apps","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"locked"},"nearMisses":[{"kind":"RoleBinding","namespace":"ns","name":"readers","criterion":"verbs"}],"shadow":[{"kind":"Webhook","name":"images/check","decision":"deny"}],"webhooks":[{"configuration":"limits","webhook":"cpu"}]}"#;

    fn kept() -> KeptDecision<'static> {
        KeptDecision {
            sequence: 1,
            decision: Decision::Deny,
            line: LINE.as_bytes(),
        }
    }

    #[test]
    fn a_decision_meets_a_filter_by_every_field() {
        let request = LoggedDecision::read(LINE.as_bytes()).unwrap();
        for (query, expected) in [
            ("", true),
            ("user=j%22ne", true),
            ("user=jane", false),
            ("group=qa", true),
            ("group=q", false),
            ("verb=GET", true),
            ("verb=list", false),
            ("resource=deployments", true),
            ("resource=deployments.apps", true),
            ("resource=deployments.apps/scale", true),
            ("resource=deployments/scale", true),
            ("resource=deployments.other", false),
            ("resource=deployments/status", false),
            ("resource=pods", false),
            ("namespace=ns", true),
            ("namespace=other", false),
            ("policy=locked", true),
            ("policy=readers", true),
            ("policy=images/check", true),
            ("policy=limits", true),
            ("policy=limits/cpu", true),
            ("policy=lock", false),
            ("decision=deny", true),
            ("decision=allow", false),
            ("shadow=true", true),
            ("endpoint=authorize&cluster=east", true),
            ("endpoint=mutate", false),
            ("cluster=west", false),
            ("user=j%22ne&decision=allow", false),
            ("q=ns:n+denied&policy=locked", true),
            ("q=allowed", false),
            ("from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:01Z", true),
            ("from=2027-01-15T10:00:00%2B02:00", true),
            ("from=2027-01-15T08:00:00.6Z", false),
            ("to=2027-01-15T08:00:00.5Z", false),
        ] {
            let filter = DecisionFilter::read(&ViewQuery::parse(query), &[]).unwrap();
            assert_eq!(filter.is_met(&request), expected, "{query}");
            assert!(filter.may_meet(&kept()) || !expected, "{query}");
            assert_eq!(filter.query(), ViewQuery::parse(query));
        }
        let unmet = DecisionFilter::read(&ViewQuery::parse("user=alice"), &[]).unwrap();
        assert!(!unmet.may_meet(&kept()), "what cannot be met is not read");
    }

    #[test]
    fn each_part_of_a_filter_can_be_taken_away() {
        let query = ViewQuery::parse("q=ns:n+denied&user=a&from=2027-01-15T08:00:00Z");
        let filter = DecisionFilter::read(&query, &[]).unwrap();
        let parts = filter.parts();
        let parts: Vec<(&str, String)> = parts
            .iter()
            .map(|(text, rest)| (text.as_str(), rest.encode()))
            .collect();
        let expected = [
            ("ns:n", "user=a&from=2027-01-15T08%3A00%3A00Z&q=denied"),
            ("denied", "user=a&from=2027-01-15T08%3A00%3A00Z&q=ns%3An"),
            ("user=a", "q=ns%3An+denied&from=2027-01-15T08%3A00%3A00Z"),
            ("from=2027-01-15T08:00:00Z", "q=ns%3An+denied&user=a"),
        ];
        assert_eq!(parts, expected.map(|(text, rest)| (text, rest.to_owned())));
    }

    #[test]
    fn what_no_decision_could_meet_is_an_error_that_says_what_could_be() {
        for (query, expected) in [
            (
                "decision=Denied",
                "decision: `Denied` is not supported: give `deny`, `allow`, `noOpinion`",
            ),
            ("shadow=no", "shadow: `no` is not supported: give `true`"),
            (
                "endpoint=/authorize",
                "endpoint: `/authorize` is not supported: give `authorize`, `validate`, `mutate`",
            ),
            ("user=a&user=b", "`user` is given more than once"),
            (
                "to=noon",
                "to: `noon` is no time: give one such as `2027-01-15T08:00:00Z`",
            ),
        ] {
            let error = DecisionFilter::read(&ViewQuery::parse(query), &[]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let error = DecisionFilter::read(&ViewQuery::parse("usr=a"), &["after"]).unwrap_err();
        assert!(
            error.to_string().starts_with("`usr` is not known here"),
            "{error}"
        );
        DecisionFilter::read(&ViewQuery::parse("after=3"), &["after"]).unwrap();
    }
}
