//! A line of the decision log, read back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::query::ViewQuery;

/// What a line says. Fields that are absent are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DecidedRequest<'l> {
    #[serde(borrow)]
    pub(super) time: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) revision: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) cluster: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) caller: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) endpoint: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) user: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) groups: Vec<Cow<'l, str>>,
    #[serde(borrow)]
    pub(super) attributes: DecidedAttributes<'l>,
    #[serde(borrow)]
    pub(super) decision: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reason: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) cause: Option<DecidedObject<'l>>,
    #[serde(borrow)]
    pub(super) near_misses: Vec<DecidedObject<'l>>,
    #[serde(borrow)]
    pub(super) shadow: Vec<DecidedObject<'l>>,
    #[serde(borrow)]
    pub(super) exceptions: Vec<DecidedObject<'l>>,
    #[serde(borrow)]
    pub(super) webhooks: Vec<DecidedWebhook<'l>>,
    #[serde(borrow)]
    pub(super) evaluation_error: Cow<'l, str>,
    pub(super) duration_seconds: f64,
    pub(super) truncated: bool,
}

/// What the request was about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DecidedAttributes<'l> {
    #[serde(borrow)]
    pub(super) verb: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) operation: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) group: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) version: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) resource: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) subresource: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) path: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) field_selector: DecidedSelector<'l>,
    #[serde(borrow)]
    pub(super) label_selector: DecidedSelector<'l>,
    #[serde(borrow)]
    pub(super) extra: BTreeMap<Cow<'l, str>, Vec<Cow<'l, str>>>,
    pub(super) dry_run: bool,
}

/// A selector of a list request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DecidedSelector<'l> {
    #[serde(borrow)]
    requirements: Vec<DecidedRequirement<'l>>,
}

/// One requirement of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DecidedRequirement<'l> {
    #[serde(borrow)]
    key: Cow<'l, str>,
    #[serde(borrow)]
    operator: Cow<'l, str>,
    #[serde(borrow)]
    values: Vec<Cow<'l, str>>,
}

/// An object that the line names: the cause, a near miss, a policy in shadow, an exception.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DecidedObject<'l> {
    #[serde(borrow)]
    pub(super) kind: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) namespace: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'l, str>,
    pub(super) rule: Option<usize>,
    /// Of a near miss, what did not fit.
    #[serde(borrow)]
    pub(super) criterion: Cow<'l, str>,
    /// Of an exception, what it excused from.
    #[serde(borrow)]
    pub(super) policy: Cow<'l, str>,
    /// Of a policy or webhook in shadow.
    #[serde(borrow)]
    pub(super) decision: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reason: Cow<'l, str>,
}

/// What a webhook behind the gateway came to.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DecidedWebhook<'l> {
    #[serde(borrow)]
    pub(super) configuration: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) webhook: Cow<'l, str>,
    pub(super) round: usize,
    #[serde(borrow)]
    pub(super) decision: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reason: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) changed: Vec<Cow<'l, str>>,
    pub(super) duration_seconds: Option<f64>,
}

// === impl DecidedRequest ===

impl<'l> DecidedRequest<'l> {
    /// What `line` says; `None` if it is no line of a decision log.
    pub(super) fn read(line: &'l [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The verb, or the operation of an admission review.
    pub(super) fn verb(&self) -> &str {
        match &*self.attributes.verb {
            "" => &self.attributes.operation,
            verb => verb,
        }
    }

    /// `get pods/log prod/web`, as one says it.
    pub(super) fn what(&self) -> String {
        let DecidedAttributes {
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

    /// `deployments.apps/scale`, as commands take it.
    pub(super) fn resource(&self) -> String {
        let DecidedAttributes {
            group,
            resource,
            subresource,
            ..
        } = &self.attributes;
        let mut text = resource.to_string();
        for (separator, part) in [('.', group), ('/', subresource)] {
            if !part.is_empty() {
                text.push(separator);
                text.push_str(part);
            }
        }
        text
    }

    /// Whether it is of an AdmissionReview.
    pub(super) fn is_admission(&self) -> bool {
        self.endpoint != "authorize"
    }

    /// The same request as the query of *What if*.
    pub(super) fn what_if(&self) -> ViewQuery {
        let attributes = &self.attributes;
        let resource = self.resource();
        let labels = attributes.label_selector.to_string();
        let fields = attributes.field_selector.to_string();
        let extra: Vec<String> = attributes
            .extra
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |value| format!("{key}={value}")))
            .collect();
        let mut pairs: Vec<(&str, &str)> = vec![("user", &self.user)];
        if !self.is_admission() {
            pairs.push(("uid", &self.uid));
        }
        pairs.extend(self.groups.iter().map(|group| ("group", &**group)));
        let verb = if self.is_admission() { "operation" } else { "verb" };
        pairs.extend([
            (verb, self.verb()),
            ("resource", &*resource),
            ("namespace", &*attributes.namespace),
            ("name", &*attributes.name),
            ("path", &*attributes.path),
            ("selector", &*labels),
            ("field-selector", &*fields),
            ("cluster", &*self.cluster),
        ]);
        pairs.extend(extra.iter().map(|extra| ("extra", extra.as_str())));
        pairs.into_iter().collect()
    }
}

// === impl DecidedSelector ===

impl fmt::Display for DecidedSelector<'_> {
    /// As commands take it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            let DecidedRequirement {
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
                // Of an operator that no command takes, it is as if it were not there: the request is wider.
                _ => {}
            }
        }
        Ok(())
    }
}

// === impl DecidedObject ===

impl DecidedObject<'_> {
    /// `RoleBinding prod/readers`.
    pub(super) fn title(&self) -> String {
        let name = match &*self.namespace {
            "" => self.name.to_string(),
            namespace => format!("{namespace}/{}", self.name),
        };
        format!("{} {name}", self.kind).trim_start().to_owned()
    }

    /// The path of its view.
    pub(super) fn path(&self) -> String {
        let part = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let namespace = match &*self.namespace {
            "" => "-".to_owned(),
            namespace => part(namespace),
        };
        match &*self.kind {
            "Webhook" => "/webhooks".to_owned(),
            kind => format!("/policies/{}/{namespace}/{}", part(kind), part(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let line = br#"{"time":"2026-01-01T00:00:00.000000Z","revision":"r","cluster":"east","caller":"c","endpoint":"authorize","uid":"u-1","user":"j\"ne","groups":["a","b"],"attributes":{"verb":"get","namespace":"ns","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","reason":"no","cause":{"kind":"AuthorizationPolicy","name":"p"},"shadow":[],"durationSeconds":0.000001000}"#;
        let read = DecidedRequest::read(line).unwrap();
        assert_eq!(read.user, "j\"ne");
        assert_eq!(read.what(), "get deployments.apps/scale ns/web");
        assert_eq!(
            read.cause.as_ref().unwrap().path(),
            "/policies/AuthorizationPolicy/-/p"
        );
        assert_eq!(read.cause.as_ref().unwrap().title(), "AuthorizationPolicy p");
        assert_eq!(
            read.what_if().encode(),
            "user=j%22ne&uid=u-1&group=a&group=b&verb=get&resource=deployments.apps%2Fscale\
             &namespace=ns&name=web&cluster=east"
        );
        assert!(DecidedRequest::read(b"{").is_none());
    }

    #[test]
    fn selectors_are_asked_about_again() {
        let line = br#"{"endpoint":"authorize","user":"a","attributes":{"verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b","c"]},{"key":"d","operator":"Exists"},{"key":"e","operator":"DoesNotExist"},{"key":"f","operator":"NotIn","values":["g"]}]},"extra":{"k":["v","w"]}}}"#;
        let query = DecidedRequest::read(line).unwrap().what_if();
        assert_eq!(query.one("field-selector"), Ok(Some("spec.nodeName=n1")));
        assert_eq!(query.one("selector"), Ok(Some("a notin (b,c),d,!e,f!=g")));
        assert_eq!(query.all("extra").collect::<Vec<_>>(), ["k=v", "k=w"]);
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
            let read = DecidedRequest::read(line.as_bytes()).unwrap();
            assert_eq!(read.what(), expected);
        }
    }
}
