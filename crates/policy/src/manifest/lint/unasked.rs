//! Denies on subjects about which the API server never asks.

use super::Lint;
use crate::authorization::authorizer::{Authorizer, Relevance};
use crate::authorization::{AuthorizationPolicy, Effect, Subject, SubjectKind};
use crate::engine::{Attributes, Deadline, ResourceAttributes, Target, User};
use crate::field::FieldPath;

const AUTHENTICATED: &str = "system:authenticated";

/// Verb, group, resource and namespace of requests that differ: a subject that is skipped for
/// each of them is skipped for all.
const REQUESTS: [(&str, &str, &str, &str); 4] = [
    ("get", "", "pods", "default"),
    ("create", "apps", "deployments", "kube-system"),
    ("list", "", "nodes", ""),
    ("update", "example.com", "widgets", "team-a"),
];

/// Warns of subjects that the matchConditions of every one of `asked`, the API server's own
/// authorization webhooks, leave out. Says nothing where it is not known which these are.
pub(crate) fn lint(policy: &AuthorizationPolicy, asked: &[Authorizer], lint: &mut Lint<'_>) {
    if policy.effect != Effect::Deny || asked.is_empty() {
        return;
    }
    for (index, subject) in policy.subjects.iter().enumerate() {
        let Some(condition) = skipped_by(subject, asked) else {
            continue;
        };
        let message = format!(
            "the API server never asks about this subject, so this Deny does not apply to it: the \
             matchCondition `{condition}` of its AuthorizationConfiguration excludes it"
        );
        let path = FieldPath::root().field("spec").field("subjects").index(index);
        lint.suspicious(&path, message);
    }
}

/// Whether the matchConditions of every one of `asked`, the API server's own authorization webhooks,
/// leave out `subject`. A name with a `*` at its end, a prefix in some kinds, is never left out.
#[must_use]
pub fn is_never_asked_about(subject: &Subject, asked: &[Authorizer]) -> bool {
    !asked.is_empty() && skipped_by(subject, asked).is_some()
}

/// The condition that is false of every request of `subject`.
fn skipped_by(subject: &Subject, asked: &[Authorizer]) -> Option<String> {
    let user = user(subject)?;
    let mut by = None;
    for (verb, group, resource, namespace) in REQUESTS {
        let attributes = Attributes {
            user: user.clone(),
            target: Target::Resource(Box::new(ResourceAttributes {
                verb: verb.into(),
                group: group.into(),
                version: "v1".into(),
                resource: resource.into(),
                namespace: namespace.into(),
                ..ResourceAttributes::default()
            })),
        };
        for authorizer in asked {
            match authorizer.relevance(&attributes, Deadline::NEVER) {
                Relevance::Skipped(condition) => by = Some(condition),
                Relevance::Asked | Relevance::Failed(_) => return None,
            }
        }
    }
    by
}

/// Somebody who is that subject; `None` where names are prefixes.
fn user(subject: &Subject) -> Option<User<'static>> {
    let mut groups = vec![AUTHENTICATED.to_owned()];
    let name = match subject.kind {
        _ if subject.name.ends_with('*') => return None,
        SubjectKind::User => {
            if subject.name.starts_with("system:node:") {
                groups.push("system:nodes".to_owned());
            }
            subject.name.clone()
        }
        SubjectKind::Group => {
            groups.push(subject.name.clone());
            match subject.name.as_str() {
                "system:nodes" => "system:node:NAME".to_owned(),
                _ => "somebody".to_owned(),
            }
        }
        SubjectKind::ServiceAccount => {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{}", subject.namespace));
            format!("system:serviceaccount:{}:{}", subject.namespace, subject.name)
        }
    };
    Some(User {
        name: name.into(),
        groups: groups.into_iter().map(Into::into).collect(),
        ..User::default()
    })
}
