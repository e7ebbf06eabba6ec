//! Requests as users write them: flags of `authorize`, a form of the console, `request` of a test
//! case.
//!
//! ```text
//! --user … --verb … -l …  --.
//! a form of the console   --|--> RequestArguments --> engine::Attributes
//! request: {user: …, …}   --'
//! ```
//!
//! They are converted to what a kube-apiserver would send. Nothing is added: `system:authenticated`
//! must be given explicitly.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::authorization::SubjectScope;
use crate::model::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User, selector,
};

/// An authorization request. Absent strings are empty; `path` replaces all fields about resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestArguments {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    pub verb: String,
    /// `pods`, `pods/log`, `deployments.apps`, `deployments.apps/scale`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// In the syntax of `kubectl -l`.
    pub label_selector: String,
    /// In the syntax of `kubectl --field-selector`.
    pub field_selector: String,
    /// A non-resource path, such as `/healthz`.
    pub path: String,
}

/// An error in a field of [`RequestArguments`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentError {
    /// The field, as named in test cases.
    pub field: &'static str,
    /// The error, and the remedy.
    pub message: String,
}

/// Splits `RESOURCE[.GROUP][/SUBRESOURCE]` into group, resource and subresource; absent parts are
/// empty.
pub fn split_resource(written: &str) -> (&str, &str, &str) {
    let (resource, subresource) = written.split_once('/').unwrap_or((written, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    (group, resource, subresource)
}

/// The warning about a service account without one of the groups that an API server adds for it,
/// because policies for that group are then not seen to apply. `None` for other users.
#[must_use]
pub fn warning_of_missing_groups(user: &User<'_>) -> Option<String> {
    user.name.strip_prefix("system:serviceaccount:")?;
    let groups = SubjectScope::User(user.name.clone().into_owned()).implied_groups();
    let is_missing = |group: &&String| user.groups.iter().all(|named| *named != group.as_str());
    let missing: Vec<&String> = groups.iter().filter(is_missing).collect();
    let is_own = |group: &&&String| group.starts_with("system:serviceaccounts");
    missing.iter().find(is_own)?;
    let options: Vec<String> = missing.iter().map(|group| format!("--group {group}")).collect();
    Some(format!(
        "an API server sends all groups of a service account, but some are missing here, so policies for \
        these groups do not apply: add `{}`",
        options.join(" ")
    ))
}

// === impl RequestArguments ===

impl RequestArguments {
    /// The attributes of the request.
    ///
    /// # Errors
    ///
    /// All errors in the arguments, which an API server would reject, too.
    pub fn attributes(&self) -> Result<Attributes<'static>, Vec<ArgumentError>> {
        let mut misfits = Vec::new();
        if self.user.is_empty() && self.groups.is_empty() {
            misfits.push(misfit("user", "a user or a group is required"));
        }
        if self.verb.is_empty() {
            misfits.push(misfit(
                "verb",
                "a verb is required, such as `get`, `list` or `create`",
            ));
        }
        let target = self.target(&mut misfits);
        if !misfits.is_empty() {
            return Err(misfits);
        }
        Ok(Attributes {
            user: self.subject(),
            target,
        })
    }

    fn subject(&self) -> User<'static> {
        let owned = |values: &[String]| values.iter().map(|value| value.clone().into()).collect();
        User {
            name: self.user.clone().into(),
            uid: self.uid.clone().into(),
            groups: owned(&self.groups),
            extra: self
                .extra
                .iter()
                .map(|(key, values)| (key.clone().into(), owned(values)))
                .collect(),
        }
    }

    fn target(&self, misfits: &mut Vec<ArgumentError>) -> Target<'static> {
        if !self.path.is_empty() {
            self.refuse_beside_path(misfits);
            return Target::NonResource {
                path: self.path.clone().into(),
                verb: self.verb.clone().into(),
            };
        }
        if self.resource.is_empty() {
            misfits.push(misfit(
                "resource",
                "a resource such as `deployments.apps/scale`, or a path, is required",
            ));
        }
        let (group, resource, subresource) = split_resource(&self.resource);
        let selectors = self.selectors(misfits);
        Target::Resource(Box::new(ResourceAttributes {
            verb: self.verb.clone().into(),
            namespace: self.namespace.clone().into(),
            group: group.to_owned().into(),
            // The default of the API server for a review without a version.
            version: "*".into(),
            resource: resource.to_owned().into(),
            subresource: subresource.to_owned().into(),
            name: self.object_name(&selectors.field).into(),
            selectors,
            raw_selectors: RawSelectors::default(),
        }))
    }

    fn refuse_beside_path(&self, misfits: &mut Vec<ArgumentError>) {
        let others = [
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("labelSelector", &self.label_selector),
            ("fieldSelector", &self.field_selector),
        ];
        for (field, value) in others {
            if !value.is_empty() {
                misfits.push(misfit(field, "cannot be combined with a path"));
            }
        }
    }

    fn selectors(&self, misfits: &mut Vec<ArgumentError>) -> Selectors<'static> {
        let mut parsed = |field, result: Result<_, String>| {
            result.unwrap_or_else(|message| {
                misfits.push(misfit(field, message));
                Vec::new()
            })
        };
        Selectors {
            label: parsed("labelSelector", selector::parse_labels(&self.label_selector)),
            field: parsed("fieldSelector", selector::parse_fields(&self.field_selector)),
        }
    }

    /// The name of the object. Like the API server, takes the name of a list or watch from its
    /// field selector (`apiserver/pkg/endpoints/request/requestinfo.go`).
    fn object_name(&self, fields: &[Requirement<'_>]) -> String {
        if !self.name.is_empty() || !matches!(self.verb.as_str(), "list" | "watch") {
            return self.name.clone();
        }
        let exact = |requirement: &&Requirement<'_>| {
            requirement.key == "metadata.name" && requirement.operator == Operator::In
        };
        fields
            .iter()
            .find(exact)
            .and_then(|found| found.values.first())
            .map(|name| name.to_string())
            .unwrap_or_default()
    }
}

fn misfit(field: &'static str, message: impl Into<String>) -> ArgumentError {
    ArgumentError {
        field,
        message: message.into(),
    }
}

// Creates AdmissionReviews for test cases and manifests.

/// An AdmissionRequest in which most fields are optional.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenReview {
    pub operation: String,
    pub object: Option<Value>,
    pub old_object: Option<Value>,
    pub options: Option<Value>,
    pub kind: Option<WrittenKind>,
    pub resource: Option<WrittenResource>,
    pub sub_resource: String,
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub dry_run: bool,
    pub user_info: WrittenUser,
}

#[derive(Debug, Clone, Deserialize)]
pub struct WrittenKind {
    #[serde(default)]
    pub group: String,
    pub version: String,
    pub kind: String,
}

#[derive(Debug, Deserialize)]
pub struct WrittenResource {
    #[serde(default)]
    pub group: String,
    pub version: String,
    pub resource: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WrittenUser {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Default for WrittenReview {
    fn default() -> Self {
        Self {
            operation: "CREATE".to_owned(),
            object: None,
            old_object: None,
            options: None,
            kind: None,
            resource: None,
            sub_resource: String::new(),
            name: None,
            namespace: None,
            dry_run: false,
            user_info: WrittenUser::default(),
        }
    }
}

// === impl WrittenUser ===

impl WrittenUser {
    pub fn new(username: String, groups: Vec<String>) -> Self {
        Self {
            username,
            groups,
            ..Self::default()
        }
    }
}

// === impl WrittenReview ===

impl WrittenReview {
    /// Returns the review that an API server would send. `Err` says what is missing.
    pub fn review(&self) -> Result<String, String> {
        let kind = match &self.kind {
            Some(kind) => kind.clone(),
            None => self
                .kind_of_object()
                .ok_or("set `kind`, or an `object` or `oldObject` with apiVersion and kind")?,
        };
        let resource = match &self.resource {
            Some(resource) => json!({
                "group": resource.group, "version": resource.version, "resource": resource.resource,
            }),
            None => json!({
                "group": kind.group, "version": kind.version, "resource": plural(&kind.kind),
            }),
        };
        let name = self.name.clone().or_else(|| self.metadata("name"));
        let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
        let namespace = self.namespace.clone().or_else(|| match is_namespace {
            true => name.clone(),
            false => self.metadata("namespace"),
        });
        let kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let user = &self.user_info;
        let mut request = Map::new();
        let mut put = |name: &str, value: Value| {
            request.insert(name.to_owned(), value);
        };
        put("uid", json!("00000000-0000-0000-0000-000000000000"));
        put("kind", kind.clone());
        put("requestKind", kind);
        put("resource", resource.clone());
        put("requestResource", resource);
        if !self.sub_resource.is_empty() {
            put("subResource", json!(self.sub_resource));
            put("requestSubResource", json!(self.sub_resource));
        }
        put("name", json!(name));
        put("namespace", json!(namespace));
        put("operation", json!(self.operation));
        put(
            "userInfo",
            json!({"username": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}),
        );
        put("object", json!(self.object));
        put("oldObject", json!(self.old_object));
        put("dryRun", json!(self.dry_run));
        put("options", json!(self.options));
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request,
        });
        Ok(review.to_string())
    }

    /// The new object, or else the existing one.
    fn object_or_old(&self) -> Option<&Value> {
        self.object.as_ref().or(self.old_object.as_ref())
    }

    fn kind_of_object(&self) -> Option<WrittenKind> {
        let object = self.object_or_old()?;
        let api_version = object.get("apiVersion")?.as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(WrittenKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: object.get("kind")?.as_str()?.to_owned(),
        })
    }

    fn metadata(&self, field: &str) -> Option<String> {
        let text = self.object_or_old()?.get("metadata")?.get(field)?.as_str()?;
        Some(text.to_owned())
    }
}

/// Guesses the resource of a kind like `meta.UnsafeGuessKindToResource`, which is right for every
/// built-in kind.
pub fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    if kind.ends_with("endpoints") {
        kind
    } else if kind.ends_with('s') {
        kind + "es"
    } else if let Some(stem) = kind.strip_suffix('y') {
        format!("{stem}ies")
    } else {
        kind + "s"
    }
}

/// `deployments.apps/scale`, in the form of `--resource`.
#[must_use]
pub fn with_group(resource: &str, group: &str) -> String {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{resource}{dot}{group}{slash}{subresource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut RequestArguments)) -> RequestArguments {
        let mut request = RequestArguments {
            user: "jane".into(),
            verb: "get".into(),
            resource: "pods".into(),
            ..RequestArguments::default()
        };
        change(&mut request);
        request
    }

    fn resource(request: &RequestArguments) -> ResourceAttributes<'static> {
        match request.attributes().unwrap().target {
            Target::Resource(resource) => *resource,
            Target::NonResource { .. } => panic!("a resource was asked for"),
        }
    }

    #[test]
    fn a_resource_has_group_and_subresource() {
        let found = resource(&request(|r| r.resource = "deployments.apps/scale".into()));
        assert_eq!(
            (&*found.resource, &*found.group, &*found.subresource),
            ("deployments", "apps", "scale")
        );
        let found = resource(&request(|r| r.resource = "widgets.shop.example.com".into()));
        assert_eq!(
            (&*found.resource, &*found.group, &*found.subresource),
            ("widgets", "shop.example.com", "")
        );
        let found = resource(&request(|_| ()));
        assert_eq!(
            (&*found.resource, &*found.group, &*found.subresource),
            ("pods", "", "")
        );
    }

    #[test]
    fn a_list_takes_its_name_from_the_field_selector() {
        let selector = |r: &mut RequestArguments| r.field_selector = "metadata.name=db-0".into();
        let list = request(|r| {
            r.verb = "list".into();
            selector(r);
        });
        assert_eq!(resource(&list).name, "db-0");
        assert_eq!(resource(&request(selector)).name, "");
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let fields: Vec<_> = RequestArguments {
            label_selector: "a==b==".into(),
            ..RequestArguments::default()
        }
        .attributes()
        .unwrap_err()
        .into_iter()
        .map(|misfit| misfit.field)
        .collect();
        assert_eq!(fields, ["user", "verb", "resource", "labelSelector"]);
    }

    #[test]
    fn a_path_stands_alone() {
        let misfits = request(|r| r.path = "/healthz".into()).attributes().unwrap_err();
        assert_eq!(misfits.len(), 1, "{misfits:?}");
        assert_eq!(misfits[0].field, "resource");
        let alone = RequestArguments {
            path: "/healthz".into(),
            resource: String::new(),
            ..request(|_| ())
        };
        let target = alone.attributes().unwrap().target;
        assert_eq!(
            target,
            Target::NonResource {
                path: "/healthz".into(),
                verb: "get".into()
            }
        );
    }

    #[test]
    fn kinds_have_their_resources() {
        for (kind, resource) in [
            ("Pod", "pods"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("Endpoints", "endpoints"),
            ("StorageClass", "storageclasses"),
        ] {
            assert_eq!(plural(kind), resource);
        }
    }

    #[test]
    fn what_is_not_written_comes_from_the_object() {
        let written: WrittenReview = serde_json::from_value(json!({
            "operation": "DELETE",
            "oldObject": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}},
        }))
        .unwrap();
        let review: Value = serde_json::from_str(&written.review().unwrap()).unwrap();
        let request = &review["request"];
        assert_eq!(
            request["resource"],
            json!({"group": "apps", "version": "v1", "resource": "deployments"})
        );
        assert_eq!(
            (&request["name"], &request["namespace"]),
            (&json!("d"), &json!("n"))
        );
        assert!(WrittenReview::default().review().is_err());
    }
}
