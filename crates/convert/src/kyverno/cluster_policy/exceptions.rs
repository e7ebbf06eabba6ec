//! PolicyExceptions (`kyverno.io`): what rules of ClusterPolicies leave out.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{self, Part};
use super::matching::{Filters, texts};
use super::refusal::Refusal;
use crate::conversion::Conversion;
use crate::kyverno::expression::is_wildcard_match;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// The longest name of a rule of which a policy can be made. Longer ones are not compared with patterns, which
/// takes as many steps as both are long, times each other.
const MAX_RULE_NAME_BYTES: usize = 253;

/// Objects that PolicyExceptions take out.
#[derive(Debug, Clone)]
struct Exception {
    /// Policies, and patterns of the names of their rules.
    rules: Vec<(String, Vec<String>)>,
    filters: Filters,
}

/// The PolicyExceptions beside the policies.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    all: Vec<Exception>,
    /// The names of all policies.
    policies: BTreeSet<String>,
}

// === impl Exceptions ===

impl Exceptions {
    /// Those among the documents that can be read; `refusals` says why another cannot.
    pub(crate) fn read(documents: &[Document]) -> Self {
        let mut exceptions = Self::default();
        for document in documents {
            if !is_of_kyverno(document) {
                continue;
            }
            let root = document.root().to_json();
            let metadata = |name: &str| root["metadata"][name].as_str().unwrap_or_default().to_owned();
            match document.text("kind") {
                Some("ClusterPolicy") => {
                    exceptions.policies.insert(metadata("name"));
                }
                Some("Policy") => {
                    let namespace = Some(metadata("namespace")).filter(|namespace| !namespace.is_empty());
                    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
                    exceptions
                        .policies
                        .insert(format!("{namespace}/{}", metadata("name")));
                }
                Some("PolicyException") => {
                    exceptions.all.extend(Exception::read(&root["spec"]));
                }
                _ => {}
            }
        }
        exceptions
    }

    /// Those that name the rule.
    pub(crate) fn of(&self, policy: &str, rule: &str) -> Vec<Filters> {
        if rule.len() > MAX_RULE_NAME_BYTES {
            return Vec::new();
        }
        let names = |exception: &&Exception| {
            exception.rules.iter().any(|(own, rules)| {
                own == policy && rules.iter().any(|pattern| is_wildcard_match(pattern, rule))
            })
        };
        let found = self.all.iter().filter(names);
        found.map(|exception| exception.filters.clone()).collect()
    }

    /// What becomes of the PolicyException that `document` is: a condition of the policies that it names.
    pub(crate) fn convert(&self, document: &Document) -> Conversion {
        let mut made = Conversion::default();
        let path = FieldPath::root().field("spec");
        match Exception::read(&document.root().to_json()["spec"]) {
            Err(refusal) => made.refuse(document, &refusal.path(&path), refusal.reason),
            Ok(exception) => {
                let unknown = exception
                    .rules
                    .iter()
                    .find(|(policy, _)| !self.policies.contains(policy));
                match unknown {
                    Some((policy, _)) => made.refuse(
                        document,
                        &path.field("exceptions"),
                        format!("no ClusterPolicy here is `{policy}`: convert both together"),
                    ),
                    None => made.note(
                        document,
                        &path,
                        "it is a condition of the policies that it names, whether or not Kyverno had \
                         `enablePolicyException` set and reads the namespace",
                    ),
                }
            }
        }
        made
    }
}

fn is_of_kyverno(document: &Document) -> bool {
    let version = document.text("apiVersion");
    version.is_some_and(|version| version.starts_with("kyverno.io/"))
}

// === impl Exception ===

impl Exception {
    fn read(spec: &Value) -> Result<Self, Refusal> {
        fields::check(Part::Exception, spec)?;
        let filters = Filters::of_exception(&spec["match"]).map_err(|refusal| refusal.within("match"))?;
        let rules = spec["exceptions"].as_array().into_iter().flatten().map(|one| {
            let names = texts(&one["ruleNames"]).map(str::to_owned).collect();
            (one["policyName"].as_str().unwrap_or_default().to_owned(), names)
        });
        Ok(Self {
            rules: rules.collect(),
            filters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::document;

    #[test]
    fn a_name_that_no_policy_can_have_is_compared_with_no_pattern() {
        let text = "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {\
                    exceptions: [{policyName: p, ruleNames: ['*']}], \
                    match: {any: [{resources: {kinds: [Pod], names: [x]}}]}}}";
        let exceptions = Exceptions::read(&document::parse(None, text).unwrap());
        let found = |bytes| exceptions.of("p", &"r".repeat(bytes)).len();
        assert_eq!((found(253), found(254)), (1, 0));
    }
}
