//! Converts Kyverno's tests (`kyverno test`, `cli.kyverno.io`) to PolicyTests of the converted
//! policies.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::cluster_policy::policy_name;
use crate::conversion::{Conversion, Remark};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest;
use portcullis_policy::model::Deadline;

/// The most bytes of JSON of all cases of all tests: each case contains a copy of its object.
const MAX_CASE_BYTES: usize = 64 << 20;

/// The bytes counted for a case besides its object.
const CASE_BYTES: usize = 1 << 10;

/// Namespaces that are excluded by Kyverno's webhooks, but not by its tests.
const UNSEEN: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "kyverno"];

/// A PolicyTest made from a test of Kyverno.
#[derive(Debug)]
pub struct TestSuite {
    /// Its unique name.
    pub name: String,
    /// The PolicyTest. Its manifests are in the file `NAME_policies.yaml` next to it.
    pub suite: Value,
    /// The objects in that file: Namespaces, and the policies under test with bindings that deny.
    pub policies: Vec<Value>,
}

/// The converted tests, and what is left out of them.
#[derive(Debug, Default)]
pub struct TestSuites {
    /// One suite for each test that has cases.
    pub suites: Vec<TestSuite>,
    /// Why tests or results in them are left out.
    pub notes: Vec<Remark>,
}

/// The documents of each file.
struct Files<'d>(BTreeMap<PathBuf, Vec<&'d Document>>);

/// A test, and the objects that it refers to.
struct KyvernoTest<'d> {
    document: &'d Document,
    root: Value,
    /// The policies, each with its JSON.
    policies: Vec<(&'d Document, Value)>,
    resources: TestedObjects,
    files: &'d Files<'d>,
}

/// The objects under test.
struct TestedObjects {
    /// The objects, each with the bytes of its JSON.
    objects: Vec<(Value, usize)>,
    /// The indexes of objects by name.
    by_name: HashMap<String, Vec<usize>>,
}

/// The bytes that further cases may have, and the deadline.
struct CaseLimit<'l> {
    bytes: usize,
    deadline: Deadline<'l>,
}

/// Converts Kyverno's tests among the documents. Returns `None` if the deadline passed.
pub(crate) fn suites(
    documents: &[Document],
    deadline: Deadline<'_>,
    convert: impl Fn(&[Document]) -> Option<Conversion>,
) -> Option<TestSuites> {
    let files = Files::of(documents);
    let (mut made, mut names) = (TestSuites::default(), BTreeSet::new());
    let mut limit = CaseLimit {
        bytes: MAX_CASE_BYTES,
        deadline,
    };
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
        let policies: Vec<Document> = test
            .policies
            .iter()
            .map(|(policy, _)| (*policy).clone())
            .collect();
        let converted = convert(&policies)?;
        let (cases, namespaces) = test.cases(&converted.objects, &mut limit, &mut made.notes)?;
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

/// The name in a form that suits file names, with a number if it is already used.
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

/// The object, which denies if it is a binding: a test only tells whether a validation fails, not
/// which action follows.
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

    /// The documents in the file `name`, whose path is relative to that of `document`.
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
            "checks",
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
        let policies = named("policies")?.into_iter();
        Ok(Self {
            document,
            policies: policies.map(|policy| (policy, policy.root().to_json())).collect(),
            resources: TestedObjects::of(&resources),
            files,
            root,
        })
    }

    /// Makes a case for each result whose policy is converted, and the namespaces of their objects.
    /// Returns `None` if the deadline passed.
    fn cases(
        &self,
        converted: &[Value],
        limit: &mut CaseLimit<'_>,
        notes: &mut Vec<Remark>,
    ) -> Option<(Vec<Value>, Vec<Value>)> {
        let (mut cases, mut used) = (Vec::new(), BTreeSet::new());
        for (index, result) in self.root["results"].as_array().into_iter().flatten().enumerate() {
            let path = FieldPath::root().field("results").index(index);
            let mut note = |reason| notes.push(Remark::new(self.document, &path, reason));
            if !result["resourceSpecs"].is_null() {
                note(
                    "a suite has no counterpart of `resourceSpecs`: name the objects by `resources`"
                        .to_owned(),
                );
            }
            let names = result["resources"].as_array().into_iter().flatten();
            let mut names = names
                .chain([&result["resource"]])
                .filter_map(Value::as_str)
                .peekable();
            if names.peek().is_none() && result["resourceSpecs"].is_null() {
                note("it names no object: write `resources`".to_owned());
            }
            for name in names {
                if (limit.deadline.expired)() {
                    return None;
                }
                match self.case(result, name, converted, limit) {
                    Ok(Some((case, namespace))) => {
                        cases.push(case);
                        used.extend(namespace);
                    }
                    Ok(None) => {}
                    Err(reason) => note(reason),
                }
            }
        }
        let namespaces = used.into_iter().map(|name| {
            let own = self.resources.named(&name);
            let mut own = own.filter(|(one, _)| one["kind"] == "Namespace");
            own.next().map(|(one, _)| one.clone()).unwrap_or_else(|| {
                json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
            })
        });
        Some((cases, namespaces.collect()))
    }

    /// The case for one object and its namespace; `None` if the policy is not converted.
    fn case(
        &self,
        result: &Value,
        name: &str,
        converted: &[Value],
        limit: &mut CaseLimit<'_>,
    ) -> Result<Option<(Value, Option<String>)>, String> {
        let rule = result["rule"].as_str().unwrap_or_default();
        let kind = result["kind"].as_str().unwrap_or_default();
        let policy = result["policy"].as_str().unwrap_or_default();
        let Some((root, name_of_policy)) = self.policy(policy, rule, kind, converted)? else {
            return Ok(None);
        };
        let (namespace, own) = name
            .rsplit_once('/')
            .map_or((None, name), |(before, own)| (Some(before), own));
        let namespace = namespace.map(|before| before.rsplit('/').next().unwrap_or(before));
        let is_meant = |(object, _): &&(Value, usize)| {
            (kind.is_empty() || object["kind"] == kind.rsplit('/').next().unwrap_or(kind))
                && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
        };
        let found: Vec<&(Value, usize)> = self.resources.named(own).filter(is_meant).collect();
        let [(object, bytes)] = found.as_slice() else {
            return Err(format!("`{name}` is not one object among the resources"));
        };
        limit.take(bytes + CASE_BYTES)?;
        let mut object = object.clone();
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
            ("pass", true) => match self.patched(result, &object)? {
                Some(patched) => {
                    limit.take(*bytes)?;
                    json!({"allowed": true, "object": patched})
                }
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
        // Kyverno compares the object with the changes of all rules of the policy.
        if let (true, [_], Some(fields)) = (is_mutating, self.policies.as_slice(), case.as_object_mut()) {
            fields.remove("policy");
        }
        Ok(Some((case, namespace)))
    }

    /// The policy, and the name of the converted rule for objects of `kind`; `None` if it is not
    /// converted, which the conversion of the policy reports.
    fn policy(
        &self,
        name: &str,
        rule: &str,
        kind: &str,
        converted: &[Value],
    ) -> Result<Option<(&Value, String)>, String> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let mut roots = self.policies.iter().map(|(_, root)| root);
        let root = roots.find(|root| root["metadata"]["name"] == name && root["spec"]["rules"].is_array());
        let Some(root) = root else {
            return Err(format!(
                "`{name}` is no policy with rules among those of the test"
            ));
        };
        let plain = rule.strip_prefix("autogen-").unwrap_or(rule);
        let plain = plain.strip_prefix("cronjob-").unwrap_or(plain);
        let mut rules = root["spec"]["rules"].as_array().into_iter().flatten();
        if !rules.any(|own| own["name"] == rule || own["name"] == plain) {
            return Err(format!("the policy `{name}` has no rule `{rule}`"));
        }
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
        Ok(names.find(is_made).map(|found| (root, found)))
    }

    /// The changed object that the test expects; `None` if it does not tell.
    fn patched(&self, result: &Value, object: &Value) -> Result<Option<Value>, String> {
        let files = result["patchedResources"]
            .as_str()
            .or(result["patchedResource"].as_str());
        let Some(files) = files else { return Ok(None) };
        let documents = self.files.beside(self.document, files);
        let same = |patched: &Value| {
            patched["kind"] == object["kind"] && patched["metadata"]["name"] == object["metadata"]["name"]
        };
        let mut patched = documents.iter().map(|document| document.root().to_json());
        match patched.find(same) {
            Some(patched) => Ok(Some(patched)),
            None => Err(format!(
                "the object is not in `{files}`, or that is not among the files"
            )),
        }
    }
}

// === impl TestedObjects ===

impl TestedObjects {
    fn of(documents: &[&Document]) -> Self {
        let objects = documents.iter().map(|document| {
            let object = document.root().to_json();
            let bytes = object.to_string().len();
            (object, bytes)
        });
        let objects: Vec<(Value, usize)> = objects.collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, (object, _)) in objects.iter().enumerate() {
            if let Some(name) = object["metadata"]["name"].as_str() {
                by_name.entry(name.to_owned()).or_default().push(index);
            }
        }
        Self { objects, by_name }
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &(Value, usize)> {
        let indices = self.by_name.get(name).into_iter().flatten();
        indices.filter_map(|index| self.objects.get(*index))
    }
}

// === impl CaseLimit ===

impl CaseLimit<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            format!(
                "the cases of all tests have more than {MAX_CASE_BYTES} bytes: convert fewer tests together"
            )
        })?;
        Ok(())
    }
}

/// The review of a CREATE, and the namespace of the object.
fn review(object: &mut Value) -> (Value, Option<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = manifest::built_in_resource(group, &kind, "");
    let mut review = json!({"userInfo": {"username": "kyverno-test"}});
    if resource.is_none() {
        // The name of the resource does not matter, because rules only contain its group.
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
