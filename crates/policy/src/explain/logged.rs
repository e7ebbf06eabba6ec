//! Reads lines of a decision log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::recorded::qualified_resource;
use crate::model::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};

/// The content of a line. Absent fields are empty; those of later versions are ignored.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggedDecision<'l> {
    #[serde(borrow)]
    pub time: Cow<'l, str>,
    #[serde(borrow)]
    pub revision: Cow<'l, str>,
    #[serde(borrow)]
    pub cluster: Cow<'l, str>,
    #[serde(borrow)]
    pub caller: Cow<'l, str>,
    #[serde(borrow)]
    pub endpoint: Cow<'l, str>,
    #[serde(borrow)]
    pub uid: Cow<'l, str>,
    #[serde(borrow)]
    pub user: Cow<'l, str>,
    #[serde(borrow)]
    pub groups: Vec<Cow<'l, str>>,
    #[serde(borrow)]
    pub attributes: LoggedAttributes<'l>,
    #[serde(borrow)]
    pub decision: Cow<'l, str>,
    #[serde(borrow)]
    pub reason: Cow<'l, str>,
    #[serde(borrow)]
    pub cause: Option<LoggedObject<'l>>,
    #[serde(borrow)]
    pub near_misses: Vec<LoggedObject<'l>>,
    #[serde(borrow)]
    pub shadow: Vec<LoggedObject<'l>>,
    #[serde(borrow)]
    pub exceptions: Vec<LoggedObject<'l>>,
    #[serde(borrow)]
    pub webhooks: Vec<LoggedWebhook<'l>>,
    #[serde(borrow)]
    pub evaluation_error: Cow<'l, str>,
    pub duration_seconds: f64,
    pub truncated: bool,
}

/// The attributes of the request.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggedAttributes<'l> {
    #[serde(borrow)]
    pub verb: Cow<'l, str>,
    #[serde(borrow)]
    pub operation: Cow<'l, str>,
    #[serde(borrow)]
    pub namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub group: Cow<'l, str>,
    #[serde(borrow)]
    pub version: Cow<'l, str>,
    #[serde(borrow)]
    pub resource: Cow<'l, str>,
    #[serde(borrow)]
    pub subresource: Cow<'l, str>,
    #[serde(borrow)]
    pub name: Cow<'l, str>,
    #[serde(borrow)]
    pub kind: Cow<'l, str>,
    #[serde(borrow)]
    pub path: Cow<'l, str>,
    #[serde(borrow)]
    pub field_selector: Option<LoggedSelector<'l>>,
    #[serde(borrow)]
    pub label_selector: Option<LoggedSelector<'l>>,
    #[serde(borrow)]
    pub extra: BTreeMap<Cow<'l, str>, Vec<Cow<'l, str>>>,
    pub dry_run: bool,
}

/// A selector of a list request.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LoggedSelector<'l> {
    #[serde(borrow)]
    requirements: Vec<LoggedRequirement<'l>>,
}

/// A requirement of a selector.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct LoggedRequirement<'l> {
    #[serde(borrow)]
    key: Cow<'l, str>,
    #[serde(borrow)]
    operator: Cow<'l, str>,
    #[serde(borrow)]
    values: Vec<Cow<'l, str>>,
}

/// An object that a line names: the cause, a near miss, a policy in shadow mode, an exception.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LoggedObject<'l> {
    #[serde(borrow)]
    pub kind: Cow<'l, str>,
    #[serde(borrow)]
    pub namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub name: Cow<'l, str>,
    pub rule: Option<usize>,
    /// The criterion that a near miss did not meet.
    #[serde(borrow)]
    pub criterion: Cow<'l, str>,
    /// The policy or webhook whose denial an exception excused.
    #[serde(borrow)]
    pub policy: Cow<'l, str>,
    /// The decision of a policy in shadow mode.
    #[serde(borrow)]
    pub decision: Cow<'l, str>,
    #[serde(borrow)]
    pub reason: Cow<'l, str>,
}

/// The result of a webhook behind the gateway.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggedWebhook<'l> {
    #[serde(borrow)]
    pub configuration: Cow<'l, str>,
    #[serde(borrow)]
    pub webhook: Cow<'l, str>,
    pub round: usize,
    #[serde(borrow)]
    pub decision: Cow<'l, str>,
    #[serde(borrow)]
    pub reason: Cow<'l, str>,
    #[serde(borrow)]
    pub changed: Vec<Cow<'l, str>>,
    pub duration_seconds: Option<f64>,
}

// === impl LoggedDecision ===

impl<'l> LoggedDecision<'l> {
    /// Parses `line`; `None` if it is not a line of a decision log.
    pub fn read(line: &'l [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The verb, or the operation of an admission review.
    pub fn verb(&self) -> &str {
        match &*self.attributes.verb {
            "" => &self.attributes.operation,
            verb => verb,
        }
    }

    /// A description of the request: `get pods/log prod/web`.
    pub fn what(&self) -> String {
        let LoggedAttributes {
            namespace,
            name,
            path,
            ..
        } = &self.attributes;
        let verb = self.verb();
        if !path.is_empty() {
            return format!("{verb} {path}");
        }
        let object = match (&**namespace, &**name) {
            ("", name) => name.to_owned(),
            (namespace, "") => format!("{namespace}/*"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        format!("{verb} {} {object}", self.resource())
            .trim_end()
            .to_owned()
    }

    /// `deployments.apps/scale`, in the form that commands accept.
    pub fn resource(&self) -> String {
        let asked = &self.attributes;
        qualified_resource(&asked.resource, &asked.subresource, &asked.group)
    }

    /// The attributes of an authorization request; `None` if the line was truncated or is about
    /// admission. A line has no `rawSelector`, which API servers never send.
    pub fn asked(&self) -> Option<Attributes<'static>> {
        if self.is_admission() || self.truncated {
            return None;
        }
        let owned = |text: &Cow<'_, str>| Cow::Owned(text.to_string());
        let all = |texts: &[Cow<'_, str>]| texts.iter().map(owned).collect::<Vec<_>>();
        let asked = &self.attributes;
        let target = if asked.path.is_empty() {
            Target::Resource(Box::new(ResourceAttributes {
                verb: owned(&asked.verb),
                namespace: owned(&asked.namespace),
                group: owned(&asked.group),
                version: owned(&asked.version),
                resource: owned(&asked.resource),
                subresource: owned(&asked.subresource),
                name: owned(&asked.name),
                selectors: Selectors {
                    field: asked
                        .field_selector
                        .as_ref()
                        .map_or_else(Vec::new, LoggedSelector::requirements),
                    label: asked
                        .label_selector
                        .as_ref()
                        .map_or_else(Vec::new, LoggedSelector::requirements),
                },
                raw_selectors: RawSelectors::default(),
            }))
        } else {
            Target::NonResource {
                path: owned(&asked.path),
                verb: owned(&asked.verb),
            }
        };
        let extra = asked.extra.iter();
        Some(Attributes {
            user: User {
                name: owned(&self.user),
                uid: owned(&self.uid),
                groups: all(&self.groups),
                extra: extra.map(|(key, values)| (owned(key), all(values))).collect(),
            },
            target,
        })
    }

    /// Whether the line is about an AdmissionReview.
    pub fn is_admission(&self) -> bool {
        self.endpoint != "authorize"
    }
}

// === impl LoggedSelector ===

impl LoggedSelector<'_> {
    fn requirements(&self) -> Vec<Requirement<'static>> {
        let owned = |requirement: &LoggedRequirement<'_>| Requirement {
            key: requirement.key.to_string().into(),
            operator: match &*requirement.operator {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                later => Operator::Unknown(later.to_owned().into()),
            },
            values: requirement
                .values
                .iter()
                .map(|value| value.to_string().into())
                .collect(),
        };
        self.requirements.iter().map(owned).collect()
    }
}

impl fmt::Display for LoggedSelector<'_> {
    /// In the form that commands accept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            let LoggedRequirement {
                key,
                operator,
                values,
            } = requirement;
            let separator = if position == 0 { "" } else { "," };
            match (&**operator, values.as_slice()) {
                ("In", [value]) => write!(f, "{separator}{key}={value}")?,
                ("NotIn", [value]) => write!(f, "{separator}{key}!={value}")?,
                ("In", values) => write!(f, "{separator}{key} in ({})", values.join(","))?,
                ("NotIn", values) => write!(f, "{separator}{key} notin ({})", values.join(","))?,
                ("Exists", _) => write!(f, "{separator}{key}")?,
                ("DoesNotExist", _) => write!(f, "{separator}!{key}")?,
                // No command accepts other operators, so the requirement is left out, which widens
                // the request.
                _ => {}
            }
        }
        Ok(())
    }
}

// === impl LoggedObject ===

impl LoggedObject<'_> {
    /// `RoleBinding prod/readers`.
    pub fn title(&self) -> String {
        let name = match &*self.namespace {
            "" => self.name.to_string(),
            namespace => format!("{namespace}/{}", self.name),
        };
        format!("{} {name}", self.kind).trim_start().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_read_back() {
        let line = br#"{"endpoint":"authorize","uid":"u1","user":"jane","groups":["a","b"],"attributes":{"verb":"list","namespace":"n","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"d","fieldSelector":{"requirements":[{"key":"spec.x","operator":"In","values":["1"]}]},"labelSelector":{"requirements":[{"key":"k","operator":"Exists"},{"key":"l","operator":"Later"}]},"extra":{"scopes":["s1","s2"]}},"decision":"deny"}"#;
        let asked = LoggedDecision::read(line).unwrap().asked().unwrap();
        assert_eq!((&*asked.user.name, &*asked.user.uid), ("jane", "u1"));
        assert_eq!(asked.user.groups, ["a", "b"]);
        assert_eq!(
            asked.user.extra,
            [("scopes".into(), vec!["s1".into(), "s2".into()])]
        );
        let Target::Resource(resource) = &asked.target else {
            panic!("{asked:?}")
        };
        assert_eq!(
            [
                &resource.verb,
                &resource.namespace,
                &resource.group,
                &resource.version
            ],
            ["list", "n", "apps", "v1"]
        );
        assert_eq!(
            [&resource.resource, &resource.subresource, &resource.name],
            ["deployments", "scale", "d"]
        );
        let selectors = resource.selectors.field.iter().chain(&resource.selectors.label);
        let shown: Vec<String> = selectors.map(ToString::to_string).collect();
        assert_eq!(shown, ["spec.x in (1)", "k", "l Later ()"]);
        let path = br#"{"endpoint":"authorize","user":"u","attributes":{"path":"/metrics","verb":"get"}}"#;
        let target = LoggedDecision::read(path).unwrap().asked().unwrap().target;
        let expected = Target::NonResource {
            path: "/metrics".into(),
            verb: "get".into(),
        };
        assert_eq!(target, expected);
    }

    #[test]
    fn a_line_that_was_cut_or_is_about_an_object_does_not_say_what_was_asked() {
        for line in [
            &br#"{"endpoint":"authorize","user":"u","truncated":true,"attributes":{"path":"/x","verb":"get"}}"#[..],
            br#"{"endpoint":"validate","user":"u","attributes":{"operation":"CREATE"}}"#,
        ] {
            assert_eq!(LoggedDecision::read(line).unwrap().asked(), None);
        }
    }

    #[test]
    fn a_line_is_read_back() {
        let line = br#"{"time":"2026-01-01T00:00:00.000000Z","cluster":"east","endpoint":"authorize","user":"j\"ne","groups":["a","b"],"attributes":{"verb":"get","namespace":"ns","group":"apps","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","reason":"no","cause":{"kind":"AuthorizationPolicy","name":"p","rule":2},"shadow":[],"durationSeconds":0.000001000,"later":{"field":1}}"#;
        let read = LoggedDecision::read(line).unwrap();
        assert_eq!(read.user, "j\"ne");
        assert_eq!(read.what(), "get deployments.apps/scale ns/web");
        let cause = read.cause.as_ref().unwrap();
        assert_eq!(
            (cause.title().as_str(), cause.rule),
            ("AuthorizationPolicy p", Some(2))
        );
        assert!(LoggedDecision::read(b"{").is_none());
    }

    #[test]
    fn a_request_is_said_in_few_words() {
        for (attributes, expected) in [
            (r#""verb":"get","path":"/healthz""#, "get /healthz"),
            (r#""verb":"list","resource":"nodes""#, "list nodes"),
            (
                r#""verb":"list","resource":"pods","namespace":"a""#,
                "list pods a/*",
            ),
            (
                r#""operation":"CREATE","resource":"pods","namespace":"a","name":"b""#,
                "CREATE pods a/b",
            ),
            (
                r#""verb":"get","resource":"clusterroles","group":"rbac.authorization.k8s.io","name":"system:node""#,
                "get clusterroles.rbac.authorization.k8s.io system:node",
            ),
        ] {
            let line = format!("{{\"attributes\":{{{attributes}}}}}");
            let read = LoggedDecision::read(line.as_bytes()).unwrap();
            assert_eq!(read.what(), expected);
        }
    }
}
