//! Legacy kinds, converted to their modern equivalents.

use serde_json::{Value, json};

use super::legacy::{self, LegacyRule, WrittenInitializer, WrittenInitializerConfiguration};
use crate::document::Document;
use crate::field::Faults;
use crate::manifest::{Source, stream};

/// The modern equivalent of a legacy object.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// What it comes from, and what to look at before using it.
    pub remarks: Vec<String>,
    /// The object; none if the legacy object had no effect.
    pub object: Option<Value>,
}

/// The modern equivalents of every InitializerConfiguration and
/// ExternalAdmissionHookConfiguration in `sources`, in the order written.
/// Other objects are left alone.
#[must_use]
pub fn migrate(sources: &[Source]) -> (Vec<Migrated>, Faults) {
    let (mut migrated, mut faults) = (Vec::new(), Faults::new());
    for source in sources {
        for document in stream::documents(source, &mut faults) {
            if document.text("apiVersion") == Some("admissionregistration.k8s.io/v1alpha1") {
                of_document(&document, &mut migrated, &mut faults);
            }
        }
    }
    (migrated, faults)
}

fn of_document(document: &Document, migrated: &mut Vec<Migrated>, faults: &mut Faults) {
    match document.text("kind") {
        Some("InitializerConfiguration") => {
            let configuration = legacy::read_initializers(document, faults);
            migrated.extend(configuration.iter().flat_map(bindings));
        }
        Some("ExternalAdmissionHookConfiguration") => {
            migrated.extend(
                legacy::read_hooks(document, faults).map(|(configuration, _)| Migrated {
                    remarks: vec![
                        format!("from {}", document.object()),
                        "its webhooks must support AdmissionReviews of v1 or v1beta1, without side \
                             effects on dry runs"
                            .to_owned(),
                    ],
                    object: Some(configuration.modern()),
                }),
            );
        }
        _ => {}
    }
}

/// For each initializer, the binding that brings its policy to the same objects.
fn bindings(configuration: &WrittenInitializerConfiguration) -> impl Iterator<Item = Migrated> {
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    configuration
        .initializers
        .iter()
        .map(move |initializer| binding(name, initializer))
}

fn binding(configuration: &str, initializer: &WrittenInitializer) -> Migrated {
    let name = &initializer.name;
    let from = format!("from InitializerConfiguration/{configuration}, the initializer {name}");
    let Some(rule) = intersection(&initializer.rules) else {
        let remark = "no resource matches all of its rules, so it never ran".to_owned();
        return Migrated {
            remarks: vec![from, remark],
            object: None,
        };
    };
    let remarks = vec![
        from,
        format!("needs the MutatingAdmissionPolicy {name}; policies run in order of their names"),
        "initializers skipped mirror pods; exempt them in the policy if necessary".to_owned(),
    ];
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{configuration}.{name}")},
        "spec": {
            "policyName": name,
            "matchResources": {
                "matchPolicy": "Exact",
                "resourceRules": [{
                    "operations": ["CREATE"],
                    "apiGroups": rule.api_groups,
                    "apiVersions": rule.api_versions,
                    "resources": rule.resources,
                }],
            },
        },
    });
    Migrated {
        remarks,
        object: Some(object),
    }
}

/// The rule that matches what all of `rules` match; none if that is nothing.
fn intersection(rules: &[LegacyRule]) -> Option<LegacyRule> {
    let common = |field: fn(&LegacyRule) -> &Vec<String>| {
        let lists = rules.iter().map(field).filter(|list| !is_everything(list));
        let common = lists.fold(None, |common: Option<Vec<String>>, list| {
            Some(match common {
                None => list.iter().filter(|item| *item != "*").cloned().collect(),
                Some(common) => common.into_iter().filter(|item| list.contains(item)).collect(),
            })
        });
        let common = common.unwrap_or_else(|| vec!["*".to_owned()]);
        (!common.is_empty()).then_some(common)
    };
    Some(LegacyRule {
        operations: Vec::new(),
        api_groups: common(|rule| &rule.api_groups)?,
        api_versions: common(|rule| &rule.api_versions)?,
        resources: common(|rule| &rule.resources)?,
    })
}

/// A `*` counts in the first place alone.
fn is_everything(list: &[String]) -> bool {
    list.first().is_some_and(|first| first == "*")
}
