//! Kyverno's tests (`kyverno test`, `cli.kyverno.io`) as PolicyTests of the converted policies.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::cluster_policy::policy_name;
use crate::conversion::{Conversion, Remark};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest;

/// Namespaces that Kyverno's webhooks leave out, and its tests do not.
const UNSEEN: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "kyverno"];

/// A test of Kyverno as a suite.
#[derive(Debug)]
pub struct TestSuite {
    /// Its name, which no other has.
    pub name: String,
    /// The PolicyTest, whose manifests are the file `NAME_policies.yaml` beside it.
    pub suite: Value,
    /// The objects of that file: the policies under test, whose bindings deny, and Namespaces.
    pub policies: Vec<Value>,
}

/// The suites that Kyverno's tests become, and what is left out of them.
#[derive(Debug, Default)]
pub struct TestSuites {
    /// One for each test that has cases.
    pub suites: Vec<TestSuite>,
    /// Why a test, or results of it, are left out.
    pub notes: Vec<Remark>,
}

/// The documents by the files that they are in.
struct Files<'d>(BTreeMap<PathBuf, Vec<&'d Document>>);

/// A test, and the objects that it names.
struct KyvernoTest<'d> {
    document: &'d Document,
    root: Value,
    policies: Vec<&'d Document>,
    resources: Vec<Value>,
    files: &'d Files<'d>,
}

/// What Kyverno's tests among the documents become. `None` where the deadline passed.
pub(crate) fn suites(
    documents: &[Document],
    convert: impl Fn(&[Document]) -> Option<Conversion>,
) -> Option<TestSuites> {
    let files = Files::of(documents);
    let (mut made, mut names) = (TestSuites::default(), BTreeSet::new());
    for document in documents {
        let is_test = document.text("kind") == Some("Test")
            && document
                .text("apiVersion")
                .is_some_and(|version| version.starts_with("cli.kyverno.io/"));
        if !is_test {
            continue;
        }
        let test = match KyvernoTest::read(document, &files) {
            Ok(test) => test,
            Err((field, reason)) => {
                let path = FieldPath::root().field(field);
                made.notes.push(Remark::new(document, &path, reason));
                continue;
            }
        };
        let policies: Vec<Document> = test.policies.iter().map(|policy| (*policy).clone()).collect();
        let converted = convert(&policies)?;
        let (cases, namespaces) = test.cases(&converted.objects, &mut made.notes);
        if cases.is_empty() {
            continue;
        }
        let name = unique(
            &mut names,
            test.root["metadata"]["name"].as_str().unwrap_or("test"),
        );
        let suite = json!({
            "apiVersion": "portcullis.dev/v1alpha1",
            "kind": "PolicyTest",
            "metadata": {"name": name},
            "manifests": [format!("{name}_policies.yaml")],
            "cases": cases,
        });
        let policies = converted
            .objects
            .into_iter()
            .map(denying)
            .chain(namespaces)
            .collect();
        made.suites.push(TestSuite {
            name,
            suite,
            policies,
        });
    }
    Some(made)
}

/// The name as that of a file, with a number where it is taken.
fn unique(names: &mut BTreeSet<String>, name: &str) -> String {
    let plain = |part: char| if part.is_ascii_alphanumeric() { part } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut candidates = std::iter::once(name.clone()).chain(numbered);
    let free = candidates
        .find(|candidate| !names.contains(candidate))
        .unwrap_or(name);
    names.insert(free.clone());
    free
}

/// The object, which denies if it is a binding: a test shows what a policy finds, whatever is done about it.
fn denying(mut object: Value) -> Value {
    if object["kind"] == "ValidatingAdmissionPolicyBinding" {
        object["spec"]["validationActions"] = json!(["Deny"]);
    }
    object
}

// === impl Files ===

impl<'d> Files<'d> {
    fn of(documents: &'d [Document]) -> Self {
        let mut files: BTreeMap<PathBuf, Vec<&Document>> = BTreeMap::new();
        for document in documents {
            if let Some(file) = document.place(FieldPath::root()).file {
                files
                    .entry(resolved(Path::new(&*file)))
                    .or_default()
                    .push(document);
            }
        }
        Self(files)
    }

    /// The documents in the file `name`, as `document` names it.
    fn beside(&self, document: &Document, name: &str) -> &[&'d Document] {
        let own = document.place(FieldPath::root()).file.unwrap_or_default();
        let folder = Path::new(&*own).parent().unwrap_or(Path::new(""));
        self.0
            .get(&resolved(&folder.join(name)))
            .map_or(&[], Vec::as_slice)
    }
}

/// The path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if resolved.file_name().is_some() => {
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

// === impl KyvernoTest ===

impl<'d> KyvernoTest<'d> {
    fn read(document: &'d Document, files: &'d Files<'d>) -> Result<Self, (&'static str, String)> {
        let root = document.root().to_json();
        for field in [
            "variables",
            "userinfo",
            "context",
            "exceptions",
            "targetResources",
        ] {
            if !root[field].is_null() {
                let reason = "a suite has no counterpart of it: write its cases as reviews";
                return Err((field, reason.to_owned()));
            }
        }
        let named = |field: &'static str| -> Result<Vec<&'d Document>, (&'static str, String)> {
            let mut all = Vec::new();
            for name in root[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                match files.beside(document, name) {
                    [] => {
                        return Err((
                            field,
                            format!("`{name}` is not among the files: convert it together with them"),
                        ));
                    }
                    found => all.extend(found),
                }
            }
            Ok(all)
        };
        let resources = named("resources")?;
        Ok(Self {
            document,
            policies: named("policies")?,
            resources: resources.iter().map(|one| one.root().to_json()).collect(),
            files,
            root,
        })
    }

    /// A case for each result whose policy is converted, and the namespaces of their objects.
    fn cases(&self, converted: &[Value], notes: &mut Vec<Remark>) -> (Vec<Value>, Vec<Value>) {
        let (mut cases, mut used) = (Vec::new(), BTreeSet::new());
        for (index, result) in self.root["results"].as_array().into_iter().flatten().enumerate() {
            let path = FieldPath::root().field("results").index(index);
            let names = result["resources"].as_array().into_iter().flatten();
            for name in names.chain([&result["resource"]]).filter_map(Value::as_str) {
                match self.case(result, name, converted) {
                    Ok(Some((case, namespace))) => {
                        cases.push(case);
                        used.extend(namespace);
                    }
                    Ok(None) => {}
                    Err(reason) => notes.push(Remark::new(self.document, &path, reason)),
                }
            }
        }
        let namespaces = used.into_iter().map(|name| {
            let own = self.resources.iter();
            let mut own = own.filter(|one| one["kind"] == "Namespace" && one["metadata"]["name"] == *name);
            own.next().cloned().unwrap_or_else(|| {
                json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
            })
        });
        (cases, namespaces.collect())
    }

    /// The case of one object, and its namespace; none where the policy is not converted.
    fn case(
        &self,
        result: &Value,
        name: &str,
        converted: &[Value],
    ) -> Result<Option<(Value, Option<String>)>, String> {
        let rule = result["rule"].as_str().unwrap_or_default();
        let kind = result["kind"].as_str().unwrap_or_default();
        let policy = result["policy"].as_str().unwrap_or_default();
        let Some((root, name_of_policy)) = self.policy(policy, rule, kind, converted) else {
            return Ok(None);
        };
        let (namespace, own) = name
            .rsplit_once('/')
            .map_or((None, name), |(before, own)| (Some(before), own));
        let namespace = namespace.map(|before| before.rsplit('/').next().unwrap_or(before));
        let is_meant = |object: &&Value| {
            object["metadata"]["name"] == own
                && (kind.is_empty() || object["kind"] == kind.rsplit('/').next().unwrap_or(kind))
                && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
        };
        let found: Vec<&Value> = self.resources.iter().filter(is_meant).collect();
        let [object] = found.as_slice() else {
            return Err(format!("`{name}` is not one object among the resources"));
        };
        let mut object = (*object).clone();
        let (review, namespace) = review(&mut object);
        if namespace
            .as_deref()
            .is_some_and(|namespace| UNSEEN.contains(&namespace))
        {
            return Err(format!(
                "`{name}` is in a namespace that Kyverno's webhooks leave out, and so do the converted policies"
            ));
        }
        let expected = result["result"]
            .as_str()
            .or(result["status"].as_str())
            .unwrap_or_default();
        let is_mutating = root["spec"]["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|own| own["name"] == rule && own["mutate"].is_object());
        let expect = match (expected, is_mutating) {
            ("pass", true) => match self.patched(result, &object) {
                Some(patched) => json!({"allowed": true, "object": patched}),
                None => json!({"allowed": true}),
            },
            ("pass" | "skip", _) => json!({"allowed": true}),
            ("fail", false) => json!({"allowed": false}),
            _ => return Err(format!("the result `{expected}` has no counterpart")),
        };
        let mut case = json!({
            "name": format!("{policy}/{rule}: {kind} {name}: {expected}"),
            "policy": name_of_policy,
            "review": review,
            "expect": expect,
        });
        // Kyverno compares what all rules of a policy make of an object.
        if let (true, [_], Some(fields)) = (is_mutating, self.policies.as_slice(), case.as_object_mut()) {
            fields.remove("policy");
        }
        Ok(Some((case, namespace)))
    }

    /// The policy, and the name of what the rule became for objects of `kind`.
    fn policy(&self, name: &str, rule: &str, kind: &str, converted: &[Value]) -> Option<(Value, String)> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let roots = self.policies.iter().map(|policy| policy.root().to_json());
        let mut roots =
            roots.filter(|root| root["metadata"]["name"] == name && root["spec"]["rules"].is_array());
        let root = roots.next()?;
        let derived = match kind.rsplit('/').next() {
            Some("CronJob") => "autogen-cronjob-",
            Some(
                "DaemonSet" | "Deployment" | "Job" | "ReplicaSet" | "ReplicationController" | "StatefulSet",
            ) => "autogen-",
            _ => "",
        };
        let candidates = [format!("{derived}{rule}"), rule.to_owned()];
        let is_made = |name: &String| {
            converted
                .iter()
                .any(|object| object["metadata"]["name"] == name.as_str())
        };
        let mut names = candidates
            .iter()
            .map(|rule| policy_name(name, &root["spec"], rule));
        let found = names.find(is_made)?;
        Some((root, found))
    }

    /// The object as the test says that it is changed.
    fn patched(&self, result: &Value, object: &Value) -> Option<Value> {
        let files = result["patchedResources"]
            .as_str()
            .or(result["patchedResource"].as_str())?;
        let documents = self.files.beside(self.document, files);
        let same = |patched: &Value| {
            patched["kind"] == object["kind"] && patched["metadata"]["name"] == object["metadata"]["name"]
        };
        documents
            .iter()
            .map(|document| document.root().to_json())
            .find(same)
    }
}

/// The review of a CREATE, and the object's namespace.
fn review(object: &mut Value) -> (Value, Option<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = manifest::built_in_resource(group, &kind, "");
    let mut review = json!({"userInfo": {"username": "kyverno-test"}});
    if resource.is_none() {
        // Which resource it is matters to no rule: they name the group alone.
        review["resource"] =
            json!({"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())});
    }
    let is_namespaced = resource.is_none() || manifest::is_namespaced(&api_version, &kind);
    if is_namespaced && object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
        object["metadata"]["namespace"] = "default".into();
    }
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .filter(|_| is_namespaced)
        .map(str::to_owned);
    review["object"] = object.clone();
    (review, namespace)
}
