//! Builds an AdmissionReview from what matters of it: of a test case, or around a manifest.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// An AdmissionRequest of which only what matters has to be written.
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
    /// The review that an API server would send; `Err` says what is missing.
    pub fn review(&self) -> Result<String, String> {
        let kind = match &self.kind {
            Some(kind) => kind.clone(),
            None => self
                .of_object()
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

    /// The object that is to be, or else the one that is.
    fn either(&self) -> Option<&Value> {
        self.object.as_ref().or(self.old_object.as_ref())
    }

    fn of_object(&self) -> Option<WrittenKind> {
        let object = self.either()?;
        let api_version = object.get("apiVersion")?.as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(WrittenKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: object.get("kind")?.as_str()?.to_owned(),
        })
    }

    fn metadata(&self, field: &str) -> Option<String> {
        let text = self.either()?.get("metadata")?.get(field)?.as_str()?;
        Some(text.to_owned())
    }
}

/// The resource of a kind, as `meta.UnsafeGuessKindToResource` guesses it,
/// which is right for every kind that Kubernetes has.
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

#[cfg(test)]
mod tests {
    use super::*;

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
