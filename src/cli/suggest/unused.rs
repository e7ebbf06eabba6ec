//! What of the policies in force no line of the log was decided by.

use std::collections::BTreeSet;

use serde::Serialize;

use portcullis_policy::authorization::authorizer::Authorizer;
use portcullis_policy::authorization::{Binding, PolicySet, RoleKind, Subject, SubjectKind};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};
use portcullis_policy::manifest;

/// The objects that lines of the log name as what decided.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    objects: BTreeSet<(String, String, String)>,
    rules: BTreeSet<(String, String, String, usize)>,
}

/// What decided nothing, by object.
#[derive(Debug, Default, Serialize)]
pub(crate) struct UnusedObjects {
    /// Bindings and policies of which nothing decided.
    pub(crate) objects: Vec<String>,
    /// Rules that decided nothing, of objects that decided something.
    pub(crate) rules: Vec<UnusedRule>,
    /// Bindings of which the log cannot tell, and why.
    pub(crate) unseen: Vec<UnreviewedBinding>,
}

/// A rule that decided nothing.
#[derive(Debug, Serialize)]
pub(crate) struct UnusedRule {
    pub(crate) object: String,
    /// Of a binding, the role that has the rule.
    pub(crate) role: Option<String>,
    /// Its index, from 0.
    pub(crate) rule: usize,
}

/// A binding for somebody about whom the API server does not ask.
#[derive(Debug, Serialize)]
pub(crate) struct UnreviewedBinding {
    pub(crate) object: String,
    pub(crate) subject: String,
}

// === impl Causes ===

impl Causes {
    /// Adds what `line` names: what decided, what would have in Shadow, and exceptions.
    pub(crate) fn add(&mut self, line: &LoggedDecision<'_>) {
        for cause in line.cause.iter().chain(&line.shadow) {
            self.insert(&cause.kind, cause);
        }
        for exception in &line.exceptions {
            self.insert("AdmissionException", exception);
        }
    }

    fn insert(&mut self, kind: &str, cause: &LoggedObject<'_>) {
        let object = (
            kind.to_owned(),
            cause.namespace.to_string(),
            cause.name.to_string(),
        );
        if let Some(rule) = cause.rule {
            let (kind, namespace, name) = object.clone();
            self.rules.insert((kind, namespace, name, rule));
        }
        self.objects.insert(object);
    }

    fn has(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let object = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.objects.contains(&object)
    }

    fn has_rule(&self, kind: &str, namespace: &str, name: &str, rule: usize) -> bool {
        let rule = (kind.to_owned(), namespace.to_owned(), name.to_owned(), rule);
        self.rules.contains(&rule)
    }
}

// === impl UnusedObjects ===

impl UnusedObjects {
    /// What of `loaded` is not among `causes`. `asked` are the API server's own authorization
    /// webhooks, as far as they are known.
    pub(crate) fn of(loaded: &LoadedPolicies, cluster: &str, causes: &Causes, asked: &[Authorizer]) -> Self {
        let mut unused = Self::default();
        let set = loaded.policies.for_cluster(cluster);
        for binding in set.bindings() {
            unused.binding(binding, set, causes, asked);
        }
        for policy in set.authorization_policies() {
            let rules = policy.resource_rules.len() + policy.non_resource_rules.len();
            let kind = "AuthorizationPolicy";
            unused.object(causes, (kind, "", &policy.name), None, rules);
        }
        for (name, _) in loaded.admission.for_cluster(cluster).exception_ends() {
            unused.object(causes, ("AdmissionException", "", name), None, 0);
        }
        unused
    }

    fn binding(&mut self, binding: &Binding, set: &PolicySet, causes: &Causes, asked: &[Authorizer]) {
        let kind = if binding.is_cluster_wide() {
            "ClusterRoleBinding"
        } else {
            "RoleBinding"
        };
        let unseen = binding.subjects.iter().find(|subject| is_unseen(subject, asked));
        if let Some(subject) = unseen {
            self.unseen.push(UnreviewedBinding {
                object: in_words(kind, &binding.namespace, &binding.name),
                subject: in_words(subject.kind.as_str(), &subject.namespace, &subject.name),
            });
            return;
        }
        let (role_kind, role_namespace) = match binding.role.kind {
            RoleKind::ClusterRole => ("ClusterRole", ""),
            RoleKind::Role => ("Role", binding.namespace.as_str()),
        };
        let role = set
            .roles()
            .iter()
            .find(|role| role.namespace == role_namespace && role.name == binding.role.name);
        let rules = role.map_or(0, |role| role.rules.len());
        let role = in_words(role_kind, role_namespace, &binding.role.name);
        self.object(
            causes,
            (kind, &binding.namespace, &binding.name),
            Some(role),
            rules,
        );
    }

    fn object(
        &mut self,
        causes: &Causes,
        (kind, namespace, name): (&str, &str, &str),
        role: Option<String>,
        rules: usize,
    ) {
        let object = in_words(kind, namespace, name);
        if !causes.has(kind, namespace, name) {
            self.objects.push(object);
            return;
        }
        // A line about Shadow names the policy, and none of its rules.
        let is_told = (0..rules).any(|rule| causes.has_rule(kind, namespace, name, rule));
        let idle = (0..rules).filter(|rule| is_told && !causes.has_rule(kind, namespace, name, *rule));
        self.rules.extend(idle.map(|rule| UnusedRule {
            object: object.clone(),
            role: role.clone(),
            rule,
        }));
    }
}

/// Whether the API server does not ask about `subject`.
fn is_unseen(subject: &Subject, asked: &[Authorizer]) -> bool {
    let masters = subject.kind == SubjectKind::Group && subject.name == "system:masters";
    masters || manifest::is_never_asked_about(subject, asked)
}

fn in_words(kind: &str, namespace: &str, name: &str) -> String {
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{kind}/{namespace}{slash}{name}")
}
