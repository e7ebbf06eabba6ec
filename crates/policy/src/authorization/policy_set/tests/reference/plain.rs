//! What the rules say, read one by one.

use super::*;
use crate::authorization::SubjectKind;

type PlainCause = (CauseKind, String, String, Option<usize>);

pub(crate) struct Plain {
    pub(crate) decision: Decision,
    pub(crate) cause: Option<PlainCause>,
    pub(crate) shadow: Vec<(String, Decision)>,
}

pub(crate) fn authorize(objects: &Objects, asked: &Attributes<'_>, now: Time) -> Plain {
    let holds = |policy: &&AuthorizationPolicy| {
        let Validity {
            not_before,
            not_after,
        } = policy.validity;
        not_before.is_none_or(|start| now >= start) && not_after.is_none_or(|end| now < end)
    };
    let mut policies: Vec<_> = objects.policies.iter().filter(holds).collect();
    policies.sort_by_key(|policy| policy.name.clone());
    let mut shadow = Vec::new();
    let (mut denied, mut allowed) = (None, None);
    for policy in policies {
        let Some((rule, outcome)) = outcome(policy, &objects.namespaces, asked) else {
            continue;
        };
        let cause = (
            CauseKind::AuthorizationPolicy,
            String::new(),
            policy.name.clone(),
            rule,
        );
        let denies = policy.effect != Effect::Allow;
        let decision = if denies { Decision::Deny } else { Decision::Allow };
        let fails_closed = denies && policy.failure_policy == FailurePolicy::Deny;
        match (policy.mode, outcome) {
            (Mode::Shadow, Some(())) => shadow.push((policy.name.clone(), decision)),
            (Mode::Shadow, None) if fails_closed => shadow.push((policy.name.clone(), Decision::Deny)),
            (Mode::Shadow, None) => shadow.push((policy.name.clone(), Decision::NoOpinion)),
            (Mode::Enforce, Some(())) if denies => denied = denied.or(Some(cause)),
            (Mode::Enforce, Some(())) => allowed = allowed.or(Some(cause)),
            (Mode::Enforce, None) if fails_closed => denied = denied.or(Some(cause)),
            (Mode::Enforce, None) => {}
        }
    }
    let (decision, cause) = match (denied, rbac(objects, asked), allowed) {
        (Some(cause), ..) => (Decision::Deny, Some(cause)),
        (None, Some(cause), _) | (None, None, Some(cause)) => (Decision::Allow, Some(cause)),
        (None, None, None) => (Decision::NoOpinion, None),
    };
    Plain {
        decision,
        cause,
        shadow,
    }
}

/// The rule that applies, none of a Limit, and whether the conditions hold (`None`: unknown).
fn outcome(
    policy: &AuthorizationPolicy,
    namespaces: &NamespaceLabels,
    asked: &Attributes<'_>,
) -> Option<(Option<usize>, Option<()>)> {
    let means = |list: &[Subject]| list.iter().any(|subject| means(subject, &asked.user));
    if !means(&policy.subjects) || means(&policy.exclude_subjects) {
        return None;
    }
    let denies = policy.effect == Effect::Deny;
    let (rule, limited) = match &asked.target {
        Target::Resource(request) => {
            let mut rules = policy.resource_rules.iter();
            let found = rules.position(|rule| resource_rule(denies, rule, namespaces, request));
            (found, !policy.resource_rules.is_empty())
        }
        Target::NonResource { path, verb } => {
            let covers = |rule: &NonResourceRule| {
                text(denies, rule.verbs.as_slice(), verb)
                    && written(&rule.paths)
                        .iter()
                        .any(|url| covers(url, path) || denies && path == "*")
            };
            let found = policy.non_resource_rules.iter().position(covers);
            let found = found.map(|at| policy.resource_rules.len() + at);
            (found, !policy.non_resource_rules.is_empty())
        }
    };
    match policy.effect {
        Effect::Limit if !limited || rule.is_some() => return None,
        Effect::Limit => {}
        Effect::Allow | Effect::Deny => _ = rule?,
    }
    if policy.effect != Effect::Allow
        && asked.user.name.starts_with("system:node:")
        && asked.user.groups.contains(&"system:nodes".into())
    {
        return None;
    }
    let results: Vec<Option<bool>> = policy
        .conditions
        .iter()
        .map(|condition| holds(condition.expression(), asked))
        .collect();
    if results.contains(&Some(false)) {
        return None;
    }
    Some((rule, if results.contains(&None) { None } else { Some(()) }))
}

/// Every field of a request's attributes is there, empty where it says nothing.
fn holds(expression: &str, asked: &Attributes<'_>) -> Option<bool> {
    let user = &asked.user;
    let is_in_group = |is: &dyn Fn(&str) -> bool| user.groups.iter().any(|group| is(group));
    match (expression, &asked.target) {
        ("request.user == 'u1'", _) => Some(user.name == "u1"),
        ("true", _) => Some(true),
        ("request.uid != ''", _) => Some(false),
        ("request.user.endsWith('1') || 'h' in request.groups", _) => {
            Some(user.name.ends_with('1') || is_in_group(&|group| group == "h"))
        }
        (groups, _)
            if groups.starts_with("request.groups.exists")
                && is_in_group(&|group| group.starts_with('g')) =>
        {
            Some(true)
        }
        (both, Target::NonResource { .. }) if both.starts_with("has(request.resourceAttributes)") => {
            Some(false)
        }
        ("request.nonResourceAttributes.path == '/a'", Target::NonResource { path, .. }) => {
            Some(path == "/a")
        }
        (_, Target::NonResource { .. }) => None,
        (of_resource, Target::Resource(request)) => match of_resource.split_once('.')?.0 {
            "!request" => {
                Some(!["a", "ab"].contains(&&*request.namespace) && ["get", "list"].contains(&&*request.verb))
            }
            "request" if of_resource.contains("size()") => Some(request.name.chars().count() < 2),
            "has(request" => Some(request.name == request.namespace),
            _ => None,
        },
    }
}

fn means(subject: &Subject, user: &User<'_>) -> bool {
    let fits = |name: &str| match subject.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == subject.name,
    };
    match subject.kind {
        SubjectKind::User => fits(&user.name),
        SubjectKind::Group => subject.name == "*" || user.groups.iter().any(|group| fits(group)),
        SubjectKind::ServiceAccount => {
            let name = format!("system:serviceaccount:{}:{}", subject.namespace, subject.name);
            !subject.namespace.is_empty() && user.name == name
        }
    }
}

/// Whether the labels of the namespace are as `terms` ask; `None`: it depends on
/// what is not known.
fn selects(terms: &[&str], name: &str, known: Option<&BTreeMap<String, String>>) -> Option<bool> {
    let mut all = Some(true);
    for term in terms {
        let bare = term.trim_start_matches('!');
        let key = bare.split(['!', '=']).next().unwrap();
        let value = match known {
            _ if key == NAMESPACE_NAME_LABEL => Some(Some(name)),
            Some(labels) => Some(labels.get(key).map(String::as_str)),
            None => None,
        };
        let holds = value.map(|value| match term.split_once('=') {
            Some((before, wanted)) if before.ends_with('!') => value != Some(wanted),
            Some((_, wanted)) => value == Some(wanted),
            None if term.starts_with('!') => value.is_none(),
            None => value.is_some(),
        });
        all = match (all, holds) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
    }
    all
}

pub(crate) fn resource_rule(
    denies: bool,
    rule: &ResourceRule,
    namespaces: &NamespaceLabels,
    request: &ResourceAttributes<'_>,
) -> bool {
    let lists = ["list", "watch", "deletecollection", "*"].contains(&request.verb.as_ref());
    let about_all = denies && lists;
    let (resource, sub) = match (request.resource.split_once('/'), request.subresource.as_ref()) {
        (None, sub) => (request.resource.as_ref(), sub.to_owned()),
        (Some((resource, sub)), "") => (resource, sub.to_owned()),
        (Some((resource, before)), sub) => (resource, format!("{before}/{sub}")),
    };
    let namespace = request.namespace.as_ref();
    let is_one_of = |patterns: &[_], namespace: &str| {
        written(patterns)
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                _ if namespace.is_empty() => pattern.is_empty(),
                Some(prefix) => namespace.starts_with(prefix),
                None => pattern == namespace,
            })
    };
    let in_namespace = is_one_of(&rule.namespaces, namespace);
    let is_namespaces = resource == "namespaces" && request.group.is_empty();
    let is_cluster_scoped = is_namespaces || resource == "nodes" && request.group.is_empty();
    let all_namespaces = about_all && namespace.is_empty() && !is_cluster_scoped;
    let within = if is_namespaces && !request.name.is_empty() {
        request.name.as_ref()
    } else {
        namespace
    };
    let for_all = lists && namespace.is_empty() && !is_cluster_scoped;
    let excludes = !rule.exclude_namespaces.is_empty();
    let excluded = is_one_of(&rule.exclude_namespaces, namespace);
    let left = if denies {
        for_all || !excluded
    } else {
        !(excluded || is_one_of(&rule.exclude_namespaces, within) || excludes && for_all)
    };
    let selected = rule.namespace_selector.as_ref().is_none_or(|selector| {
        let terms = SELECTORS
            .iter()
            .find(|terms| compiled(terms) == *selector)
            .unwrap();
        let in_one = !within.is_empty()
            && selects(terms, within, namespaces.get(within).map(|labels| &**labels)).unwrap_or(denies);
        in_one || all_namespaces
    });
    let narrow = narrow(&rule.selectors.field, &request.selectors.field, false)
        && narrow(&rule.selectors.label, &request.selectors.label, true);
    let asks = !rule.selectors.field.is_empty() || !rule.selectors.label.is_empty();
    text(denies, rule.verbs.as_slice(), &request.verb)
        && text(denies, rule.api_groups.as_slice(), &request.group)
        && written(&rule.resources)
            .iter()
            .any(|pattern| resources(denies, pattern, resource, &sub))
        && (rule.namespaces.is_empty() || in_namespace || all_namespaces)
        && left
        && selected
        && (rule.names.is_empty()
            || rule.names.iter().any(|name| *name == request.name)
            || about_all && request.name.is_empty())
        && (!asks || narrow != denies)
}

/// Patterns as they are written.
fn written(patterns: &[impl ToString]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

pub(crate) fn text(denies: bool, list: &[String], requested: &str) -> bool {
    !list.is_empty()
        && (list.iter().any(|text| text == "*" || text == requested) || denies && requested == "*")
}

/// Every resource and subresource that there is, in a small world: whether the
/// rule's part of it holds the requested part, or has something in common.
pub(crate) fn resources(denies: bool, pattern: &str, resource: &str, sub: &str) -> bool {
    const WORLD: [&str; 5] = ["pods", "nodes", "namespaces", "elsewhere", "*"];
    const SUBS: [&str; 5] = ["", "log", "scale", "other", "*"];
    let in_pattern = |one: &str, its: &str| match pattern.split_once('/') {
        None => pattern == "*" || pattern == one && its.is_empty(),
        Some((left, right)) => {
            !its.is_empty() && (left == "*" || left == one) && (right == "*" || right == its)
        }
    };
    if !denies {
        return in_pattern(resource, sub);
    }
    let in_request = |one: &str, its: &str| match (resource, sub) {
        ("*", "" | "*") => true,
        ("*", sub) => its == sub,
        (_, "*") => one == resource && !its.is_empty(),
        (_, sub) => one == resource && its == sub,
    };
    let subs = || SUBS.into_iter().chain([sub]);
    WORLD
        .iter()
        .any(|one| subs().any(|its| in_pattern(one, its) && in_request(one, its)))
}

/// Whether every object that meets `received` meets `written`, by trying all
/// values there can be: of each key one of those written anywhere, another, or none.
fn narrow(written: &[Requirement<'_>], received: &[Requirement<'_>], labels: bool) -> bool {
    let meets = |value: Option<&str>, requirement: &Requirement<'_>| {
        let listed = value.is_some_and(|value| requirement.values.iter().any(|one| one == value));
        match (&requirement.operator, requirement.values.is_empty()) {
            (Operator::In, false) => Some(listed),
            (Operator::NotIn, false) => Some(!listed),
            (Operator::Exists, true) if labels => Some(value.is_some()),
            (Operator::DoesNotExist, true) if labels => Some(value.is_none()),
            _ => None,
        }
    };
    written.iter().all(|wanted| {
        let known: Vec<_> = received
            .iter()
            .filter(|one| one.key == wanted.key && meets(None, one).is_some())
            .collect();
        // Of labels and fields alike, what is written of Exists needs no values.
        let wanted_is_known = matches!(
            (&wanted.operator, wanted.values.is_empty()),
            (Operator::In | Operator::NotIn, false) | (Operator::Exists | Operator::DoesNotExist, true)
        );
        let meets_wanted = |value: Option<&str>| match (&wanted.operator, wanted.values.is_empty()) {
            (Operator::Exists, true) => value.is_some(),
            (Operator::DoesNotExist, true) => value.is_none(),
            _ => meets(value, wanted) == Some(true),
        };
        let values = [None, Some("x"), Some("y"), Some("z"), Some("another")];
        let mut possible = values
            .into_iter()
            .filter(|value| known.iter().all(|one| meets(*value, one) == Some(true)));
        !known.is_empty() && wanted_is_known && possible.all(meets_wanted)
    })
}

pub(crate) fn covers(url: &str, path: &str) -> bool {
    if url.ends_with('*') {
        path.starts_with(url.trim_end_matches('*'))
    } else {
        url == path
    }
}

fn rbac(objects: &Objects, asked: &Attributes<'_>) -> Option<PlainCause> {
    let namespace = match &asked.target {
        Target::Resource(request) => request.namespace.as_ref(),
        Target::NonResource { .. } => "",
    };
    let mut bindings: Vec<_> = objects.bindings.iter().collect();
    bindings.sort_by_key(|binding| (binding.namespace.clone(), binding.name.clone()));
    for binding in bindings {
        let here = binding.namespace.is_empty() || binding.namespace == namespace;
        if !here
            || !binding
                .subjects
                .iter()
                .any(|subject| bound(subject, &asked.user, &binding.namespace))
        {
            continue;
        }
        let home = match binding.role.kind {
            RoleKind::ClusterRole => "",
            RoleKind::Role if binding.namespace.is_empty() => continue,
            RoleKind::Role => binding.namespace.as_str(),
        };
        let role = objects
            .roles
            .iter()
            .find(|role| role.namespace == home && role.name == binding.role.name);
        if let Some(rule) = role.and_then(|role| role.rules.iter().position(|rule| allows(rule, asked))) {
            let cluster = binding.namespace.is_empty();
            let kind = if cluster {
                CauseKind::ClusterRoleBinding
            } else {
                CauseKind::RoleBinding
            };
            return Some((kind, binding.namespace.clone(), binding.name.clone(), Some(rule)));
        }
    }
    None
}

fn bound(subject: &Subject, user: &User<'_>, namespace: &str) -> bool {
    match subject.kind {
        SubjectKind::User => user.name == subject.name,
        SubjectKind::Group => user.groups.iter().any(|group| *group == subject.name),
        SubjectKind::ServiceAccount => {
            let own = if subject.namespace.is_empty() {
                namespace
            } else {
                &subject.namespace
            };
            !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{}", subject.name)
        }
    }
}

fn allows(rule: &Rule, asked: &Attributes<'_>) -> bool {
    let any = |list: &[String], text: &str| list.iter().any(|one| one == "*" || one == text);
    match &asked.target {
        Target::NonResource { path, verb } => {
            any(rule.verbs.as_slice(), verb)
                && written(&rule.non_resource_urls)
                    .iter()
                    .any(|url| covers(url, path))
        }
        Target::Resource(request) => {
            let sub = request.subresource.as_ref();
            let full = if sub.is_empty() {
                request.resource.to_string()
            } else {
                format!("{}/{sub}", request.resource)
            };
            let wild = format!("*/{sub}");
            any(rule.verbs.as_slice(), &request.verb)
                && any(rule.api_groups.as_slice(), &request.group)
                && rule
                    .resources
                    .as_slice()
                    .iter()
                    .any(|one| one == "*" || *one == full || !sub.is_empty() && *one == wild)
                && (rule.resource_names.is_empty()
                    || rule.resource_names.iter().any(|name| *name == request.name))
        }
    }
}
