//! The rules of roles and policies, as regions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::condition::{Outcomes, RegionCondition, Side};
use super::predicates::RegionExpression;
use super::region::Region;
use super::sets::{GroupSet, Patterns, SelectorSet, TextSet, has_word};
use super::{ProofLimitError, RegionBudget, WorkLimit};
use crate::authorization::matching::{ClusterScoped, NamespacePattern, ResourcePattern, Wildcard};
use crate::authorization::never_deny::{NODE_PREFIX, NODES};
use crate::authorization::rbac::{PathPattern, WildcardSet};
use crate::authorization::{
    AuthorizationPolicy, Effect, FailurePolicy, NeverDeny, NonResourceRule, ObjectCondition, PolicySet,
    ResourceRule, Role, Rule, ServiceAccount, Subject, SubjectKind,
};
use crate::model::{LabelSelector, NAMESPACE_NAME_LABEL, SelectorMatch};

/// The verbs of requests for all objects or namespaces, if they do not name one.
const COLLECTION_VERBS: [&str; 4] = ["list", "watch", "deletecollection", "*"];

/// The requests that a rule allows or denies, or that a Limit does as a whole.
#[derive(Debug, PartialEq)]
pub(crate) struct RuleRegion {
    /// Its index in its object, as in causes; `None` for a Limit.
    pub(crate) rule: Option<usize>,
    pub(crate) requests: Region,
}

/// The requests that an AuthorizationPolicy decides, and its callers, separately.
#[derive(PartialEq)]
pub(crate) struct PolicyRegions {
    pub(crate) rules: Vec<RuleRegion>,
    pub(crate) callers: Vec<Region>,
    /// Requests that the policy does not decide: those within the rules of a Limit, and those for
    /// which it is lifted.
    pub(crate) exceptions: Vec<Region>,
}

// === impl PolicyRegions ===

impl PolicyRegions {
    /// Computes the regions of `policy`.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn new(
        set: &PolicySet,
        policy: &AuthorizationPolicy,
        limit: WorkLimit<'_>,
    ) -> Result<Self, ProofLimitError> {
        let outcomes = applying_outcomes(policy);
        let (mut rules, held) = unconditional(set, policy, limit)?;
        let conditions = policy.conditions.iter();
        let conditions = conditions.map(|one| RegionExpression::new(one.expression()));
        // Nothing is known about future objects.
        let of_object = policy.object_conditions.iter();
        let of_object = of_object.map(|one| RegionExpression::unknown(&of_object_condition(one)));
        for expression in conditions.chain(of_object) {
            let mut room = limit.room();
            let mut with = Vec::new();
            for RuleRegion { rule, requests } in rules {
                for requests in expression.parts(&requests, outcomes, limit)? {
                    room.take(requests.weight())?;
                    with.push(RuleRegion { rule, requests });
                }
            }
            rules = with;
        }
        Ok(Self {
            callers: callers(policy, limit)?,
            rules,
            exceptions: held,
        })
    }
}

/// The text that differences and witnesses show. It differs from all conditions on requests.
fn of_object_condition(condition: &ObjectCondition) -> String {
    let expression = condition.expression().trim();
    format!("objectCondition {}: {expression}", condition.name())
}

/// All requests of the kinds for which a Limit has rules.
fn limited(policy: &AuthorizationPolicy) -> Vec<Region> {
    let sorts = [false, true].into_iter();
    let sorts = sorts.filter(|is_path| policy.limits_requests(*is_path));
    sorts.flat_map(Region::of_each_caller).collect()
}

/// The outcomes that each condition of a policy may have if the policy applies.
pub(crate) fn applying_outcomes(policy: &AuthorizationPolicy) -> Outcomes {
    match (policy.effect.refuses(), policy.failure_policy) {
        (true, FailurePolicy::Deny) => Outcomes::DOES_NOT_FAIL,
        (true, FailurePolicy::NoOpinion) | (false, _) => Outcomes::HOLDS,
    }
}

/// The requests of each rule of a policy, disregarding its subjects and conditions; for a Limit,
/// all requests that it may apply to, and those within its rules.
///
/// # Errors
/// The limit is reached.
pub(crate) fn unconditional(
    set: &PolicySet,
    policy: &AuthorizationPolicy,
    limit: WorkLimit<'_>,
) -> Result<(Vec<RuleRegion>, Vec<Region>), ProofLimitError> {
    let mut of_rules = policy.resource_rules.iter();
    if of_rules.any(|rule| rule.resources.len() > limit.parts) {
        return Err(ProofLimitError::Parts);
    }
    let effect = policy.effect;
    let resources = policy.resource_rules.iter();
    let resources = resources.map(|rule| of_resource_rule(set, effect, rule));
    let paths = policy.non_resource_rules.iter();
    let paths = paths.map(|rule| of_path_rule(effect, rule));
    let of_rules = resources.chain(paths);
    let (said, held) = match effect {
        Effect::Allow | Effect::Deny => {
            let placed = of_rules.enumerate().map(|(rule, regions)| (Some(rule), regions));
            (placed.collect(), Vec::new())
        }
        Effect::Limit => (vec![(None, limited(policy))], of_rules.flatten().collect()),
    };
    let (mut rules, mut room) = (Vec::new(), limit.room());
    for (rule, regions) in said {
        for region in regions {
            let Some(requests) = region.during(policy.validity) else {
                continue;
            };
            room.take(requests.weight())?;
            rules.push(RuleRegion { rule, requests });
        }
    }
    Ok((rules, held))
}

/// What each rule of a role allows to the kind of callers in `within`, if it overlaps `within`.
///
/// # Errors
/// The limit is reached.
pub(crate) fn of_role(
    role: &Role,
    within: &Region,
    room: &mut RegionBudget<'_>,
) -> Result<Vec<RuleRegion>, ProofLimitError> {
    let mut rules = Vec::new();
    for (rule, own) in role.rules.iter().enumerate() {
        room.in_time()?;
        for requests in of_role_rule(own, within) {
            if requests.overlaps(within) {
                room.take(requests.weight())?;
                rules.push(RuleRegion {
                    rule: Some(rule),
                    requests,
                });
            }
        }
    }
    Ok(rules)
}

/// The callers that a policy applies to, with all their requests.
fn callers(policy: &AuthorizationPolicy, limit: WorkLimit<'_>) -> Result<Vec<Region>, ProofLimitError> {
    let (mut callers, mut room) = (Vec::new(), limit.room());
    let Some((users, groups)) = excluded(&policy.exclude_subjects) else {
        return Ok(callers);
    };
    let all = Region::of_each_caller(false);
    for subject in &policy.subjects {
        let of_subject = all.each_ref().map(|all| of_subject(all, subject));
        let of_subject = of_subject.into_iter().flatten();
        for region in of_subject.filter_map(|region| region.with(Side::User, &users)?.with_groups(&groups)) {
            room.take(region.weight())?;
            callers.push(region);
        }
    }
    Ok(callers)
}

/// The users and groups that are not among `subjects`; `None` if all users are.
fn excluded(subjects: &[Subject]) -> Option<(TextSet, GroupSet)> {
    let (mut users, mut groups) = (Patterns::default(), Patterns::default());
    for subject in subjects {
        match subject.kind {
            SubjectKind::Group if subject.name == "*" => return None,
            SubjectKind::Group => groups = groups.or(named(subject)),
            SubjectKind::User => users = users.or(named(subject)),
            SubjectKind::ServiceAccount => {
                users
                    .exact
                    .extend(subject.authenticated_name("").map(|name| (*name).into()));
            }
        }
    }
    let groups = GroupSet {
        all: Patterns::default(),
        none: groups,
    };
    Some((TextSet::all_but(users), groups))
}

/// The name of a user or group, of which a `*` at the end makes a prefix.
fn named(subject: &Subject) -> Patterns {
    match subject.name.strip_suffix('*') {
        Some(prefix) => Patterns::prefixes([prefix]),
        None => Patterns::exact([subject.name.as_str()]),
    }
}

/// The requests in `all` of a policy's `subject`.
pub(crate) fn of_subject(all: &Region, subject: &Subject) -> Option<Region> {
    match subject.kind {
        SubjectKind::User => all.with(Side::User, &TextSet::of(named(subject))),
        SubjectKind::Group if subject.name == "*" => Some(all.clone()),
        SubjectKind::Group => all.with_groups(&GroupSet {
            all: named(subject),
            none: Patterns::default(),
        }),
        SubjectKind::ServiceAccount => {
            let name = subject.authenticated_name("")?;
            all.with(Side::User, &TextSet::exact([&*name]))
        }
    }
}

pub(crate) fn never_denied(never: &NeverDeny) -> Vec<Region> {
    let (exact, prefixes) = never.paths.request_forms();
    let paths = TextSet::of(Patterns::exact(exact).or(Patterns::prefixes(prefixes)));
    let of_paths = Region::of_each_caller(true).into_iter();
    let of_paths = of_paths.filter_map(|all| all.with(Side::Path, &paths));
    never_denied_callers(never).into_iter().chain(of_paths).collect()
}

/// All requests of the users, groups and service accounts in `neverDeny`.
pub(crate) fn never_denied_callers(never: &NeverDeny) -> Vec<Region> {
    let accounts = never.service_accounts.iter().map(ServiceAccount::user_name);
    let users = TextSet::exact(never.users.iter().cloned().chain(accounts));
    let mut regions = Vec::new();
    for all in [false, true].into_iter().flat_map(Region::of_each_caller) {
        regions.extend(all.with(Side::User, &users));
        for group in &never.groups {
            let of_group = all.with_groups(&GroupSet {
                all: Patterns::exact([group.as_str()]),
                none: Patterns::default(),
            });
            let is_nodes = group == NODES;
            let nodes = TextSet::of(Patterns::prefixes([NODE_PREFIX]));
            regions.extend(of_group.and_then(|region| match is_nodes {
                true => region.with(Side::User, &nodes),
                false => Some(region),
            }));
        }
    }
    regions
}

// Rules.

/// The requests that a role's rule allows to the kind of callers in `within`; none if its words
/// certainly do not overlap `within`.
fn of_role_rule(rule: &Rule, within: &Region) -> Vec<Region> {
    let all = Region::all(within.is_path, within.is_service_account);
    // A few words rule out most rules.
    if !has_word(within.side(Side::Verb), &rule.verbs) {
        return Vec::new();
    }
    if within.is_path {
        let rest = with_words(&all, Effect::Allow, &rule.verbs, None);
        let regions = rest.and_then(|rest| rest.with(Side::Path, &paths(&rule.non_resource_urls)));
        return regions.into_iter().collect();
    }
    if !has_word(within.side(Side::ApiGroup), &rule.api_groups) {
        return Vec::new();
    }
    let named = match rule.resource_names.is_empty() {
        true => TextSet::all(),
        false => TextSet::exact(rule.resource_names.iter().map(String::as_str)),
    };
    let rest = with_words(&all, Effect::Allow, &rule.verbs, Some(&rule.api_groups))
        .and_then(|all| all.with(Side::Name, &named))
        .filter(|rest| rest.overlaps(within));
    let Some(rest) = rest else { return Vec::new() };
    role_resources(&rule.resources, within)
        .into_iter()
        .filter_map(|resources| with_resources(&rest, &resources))
        .collect()
}

fn with_words(
    all: &Region,
    effect: Effect,
    verbs: &WildcardSet,
    groups: Option<&WildcardSet>,
) -> Option<Region> {
    let with_verbs = all.with(Side::Verb, &matching_words(effect, verbs))?;
    match groups {
        Some(groups) => with_verbs.with(Side::ApiGroup, &matching_words(effect, groups)),
        None => Some(with_verbs),
    }
}

/// The words that match; for a Deny, this includes a requested `*`.
fn matching_words(effect: Effect, written: &WildcardSet) -> TextSet {
    let requested = (effect == Effect::Deny && !written.is_empty()).then_some(WildcardSet::ALL);
    match written.is_all() {
        true => TextSet::all(),
        false => TextSet::exact(written.as_slice().iter().map(String::as_str).chain(requested)),
    }
}

fn paths(patterns: &[PathPattern]) -> TextSet {
    let (prefixes, exact): (Vec<&PathPattern>, _) =
        patterns.iter().partition(|pattern| pattern.prefix().is_some());
    let text = |pattern: &PathPattern| Arc::<str>::from(pattern.text());
    TextSet::of(
        Patterns::exact(exact.into_iter().map(text)).or(Patterns::prefixes(prefixes.into_iter().map(text))),
    )
}

/// Resources, and their subresources.
type Resources = (TextSet, TextSet);

fn with_resources(region: &Region, (resources, subresources): &Resources) -> Option<Region> {
    region
        .with(Side::Resource, resources)?
        .with(Side::Subresource, subresources)
}

/// The resources of an RBAC rule that overlap `within`: `*`, `pods`, `pods/log`, `*/scale`.
fn role_resources(written: &WildcardSet, within: &Region) -> Vec<Resources> {
    let [asked, asked_subresources] = [Side::Resource, Side::Subresource].map(|side| within.side(side));
    if written.is_all() {
        return vec![(TextSet::all(), TextSet::all())];
    }
    let mut by_subresource: BTreeMap<&str, Patterns> = BTreeMap::new();
    for word in written.as_slice() {
        let (resource, subresource) = word.split_once('/').unwrap_or((word, ""));
        let is_none = subresource.is_empty() && word.contains('/');
        let is_asked =
            asked_subresources.contains(subresource) && (resource == "*" || asked.contains(resource));
        if is_none || !is_asked {
            continue;
        }
        let resources = by_subresource.entry(subresource).or_default();
        match resource {
            "*" => resources.prefixes.insert("".into()),
            resource => resources.exact.insert(resource.into()),
        };
    }
    let by_subresource = by_subresource.into_iter();
    by_subresource
        .map(|(subresource, resources)| (TextSet::of(resources), TextSet::exact([subresource])))
        .collect()
}

/// The resources of a policy's rule; for a Deny, this includes requested wildcards.
fn policy_resources(effect: Effect, written: &[ResourcePattern]) -> Vec<Resources> {
    let denies = effect == Effect::Deny;
    let of = |wildcard: &Wildcard| match wildcard {
        Wildcard::Any => TextSet::all(),
        Wildcard::Named(name) => TextSet::exact([name.as_str()].into_iter().chain(denies.then_some("*"))),
    };
    let mut plain = BTreeSet::new();
    let mut all = Vec::new();
    for pattern in written {
        match pattern {
            ResourcePattern::Everything => return vec![(TextSet::all(), TextSet::all())],
            ResourcePattern::Resource(name) => {
                plain.insert(name.as_str());
            }
            ResourcePattern::Subresource(resource, subresource) => {
                let subresources = of(subresource).intersection(&TextSet::all_but(Patterns::exact([""])));
                all.push((of(resource), subresources));
            }
        }
    }
    if !plain.is_empty() {
        all.push((TextSet::exact(plain), TextSet::exact([""])));
    }
    if denies && !written.is_empty() {
        all.push((TextSet::exact(["*"]), TextSet::exact(["", "*"])));
    }
    all
}

fn of_path_rule(effect: Effect, rule: &NonResourceRule) -> Vec<Region> {
    let mut own = Patterns::default();
    if effect == Effect::Deny && !rule.paths.is_empty() {
        own = Patterns::exact(["*"]);
    }
    let paths = TextSet::of(paths(&rule.paths).within().clone().or(own));
    let all = Region::of_each_caller(true).into_iter();
    all.filter_map(|all| with_words(&all, effect, &rule.verbs, None)?.with(Side::Path, &paths))
        .collect()
}

/// The requests of a policy's rule, as `compare_resource_rule` decides.
fn of_resource_rule(set: &PolicySet, effect: Effect, rule: &ResourceRule) -> Vec<Region> {
    let mut regions = Vec::new();
    for all in Region::of_each_caller(false) {
        let Some(rest) = with_words(&all, effect, &rule.verbs, Some(&rule.api_groups)) else {
            continue;
        };
        for resources in policy_resources(effect, &rule.resources) {
            let Some(rest) = with_resources(&rest, &resources) else {
                continue;
            };
            for rest in with_names(&rest, effect, &rule.names) {
                regions.extend(with_namespaces(set, &rest, effect, rule));
            }
        }
    }
    if rule.selectors.is_empty() {
        return regions;
    }
    let selectors = SelectorSet::of(&Arc::new(rule.selectors.clone()), effect != Effect::Deny);
    regions
        .iter()
        .filter_map(|region| region.with_selectors(&selectors))
        .collect()
}

fn with_names(rest: &Region, effect: Effect, names: &[String]) -> Vec<Region> {
    if names.is_empty() {
        return vec![rest.clone()];
    }
    let names = names.iter().map(String::as_str).filter(|name| !name.is_empty());
    let named = rest.with(Side::Name, &TextSet::exact(names));
    let all = (effect == Effect::Deny)
        .then(|| for_collections(rest, Side::Name))
        .flatten();
    named.into_iter().chain(all).collect()
}

/// The requests for collections that leave `side` empty.
fn for_collections(rest: &Region, side: Side) -> Option<Region> {
    rest.with(side, &TextSet::exact([""]))?
        .with(Side::Verb, &TextSet::exact(COLLECTION_VERBS))
}

fn with_namespaces(set: &PolicySet, rest: &Region, effect: Effect, rule: &ResourceRule) -> Vec<Region> {
    if !rule.depends_on_namespace() {
        return vec![rest.clone()];
    }
    let all_namespaces = for_all_namespaces(rest, set.cluster_scoped());
    let within = match rule.namespaces.is_empty() {
        true => TextSet::all(),
        false => namespaces(&rule.namespaces),
    };
    let others = other_namespaces(&rule.exclude_namespaces);
    let within = within.intersection(&others);
    let selected = match &rule.namespace_selector {
        Some(selector) => selected(set, selector),
        None => SelectedNamespaces {
            by_name: TextSet::all(),
            by_labels: None,
        },
    };
    let about = |names: &TextSet| match effect {
        Effect::Deny => names.clone(),
        Effect::Allow | Effect::Limit => names.intersection(&others),
    };
    let within = rest.with(Side::Namespace, &within);
    let mut regions: Vec<Region> = within
        .iter()
        .flat_map(|rest| about_namespaces(rest, &about(&selected.by_name)))
        .collect();
    if let Some((names, condition)) = &selected.by_labels {
        // Unknown labels may match a Deny, but do not prove that an Allow or Limit does.
        let outcomes = match effect {
            Effect::Deny => Outcomes::DOES_NOT_FAIL,
            Effect::Allow | Effect::Limit => Outcomes::HOLDS,
        };
        let by_labels = within
            .iter()
            .flat_map(|rest| about_namespaces(rest, &about(names)));
        regions.extend(by_labels.filter_map(|region| region.with_condition(condition, outcomes)));
    }
    let regions = regions.into_iter();
    match effect {
        Effect::Deny => regions.chain(all_namespaces).collect(),
        Effect::Allow | Effect::Limit if rule.exclude_namespaces.is_empty() => regions.collect(),
        Effect::Allow | Effect::Limit => {
            let all: Vec<&Region> = all_namespaces.iter().collect();
            regions
                .flat_map(|region| region.without_unlimited(&all))
                .collect()
        }
    }
}

/// The namespaces that match. A prefix does not match requests without a namespace.
fn namespaces(written: &[NamespacePattern]) -> TextSet {
    let all = TextSet::of(namespace_patterns(written));
    match written.contains(&NamespacePattern::ClusterScope) {
        true => all,
        false => all.intersection(&TextSet::all_but(Patterns::exact([""]))),
    }
}

/// All namespaces but those of `written`.
fn other_namespaces(written: &[NamespacePattern]) -> TextSet {
    let is_any =
        |pattern: &NamespacePattern| matches!(pattern, NamespacePattern::Prefix(prefix) if prefix.is_empty());
    match written.iter().any(is_any) && !written.contains(&NamespacePattern::ClusterScope) {
        true => TextSet::exact([""]),
        false => TextSet::all_but(namespace_patterns(written)),
    }
}

fn namespace_patterns(written: &[NamespacePattern]) -> Patterns {
    let mut patterns = Patterns::default();
    for pattern in written {
        match pattern {
            NamespacePattern::ClusterScope => patterns.exact.insert("".into()),
            NamespacePattern::Named(name) => patterns.exact.insert(name.as_str().into()),
            NamespacePattern::Prefix(prefix) => patterns.prefixes.insert(prefix.as_str().into()),
        };
    }
    patterns
}

/// The parts of `rest` for a namespace in `about`. A request for `namespaces/NAME` is for the
/// namespace NAME.
fn about_namespaces(rest: &Region, about: &TextSet) -> Vec<Region> {
    if about.is_all() {
        return vec![rest.clone()];
    }
    let named = TextSet::all_but(Patterns::exact([""]));
    let itself = rest
        .with(Side::ApiGroup, &TextSet::exact([""]))
        .and_then(|rest| rest.with(Side::Resource, &TextSet::exact(["namespaces"])))
        .and_then(|rest| rest.with(Side::Name, &named));
    let others = match &itself {
        Some(itself) => rest.without_unlimited(&[itself]),
        None => vec![rest.clone()],
    };
    let others = others.iter().filter_map(|rest| rest.with(Side::Namespace, about));
    others
        .chain(itself.and_then(|itself| itself.with(Side::Name, about)))
        .collect()
}

/// The requests in `rest` for all namespaces, without those for cluster-scoped resources.
fn for_all_namespaces(rest: &Region, scoped: &ClusterScoped) -> Vec<Region> {
    let Some(rest) = for_collections(rest, Side::Namespace) else {
        return Vec::new();
    };
    let mut by_group: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, resource) in scoped.known() {
        if rest.side(Side::ApiGroup).contains(group) && rest.side(Side::Resource).contains(resource) {
            by_group.entry(group).or_default().push(resource);
        }
    }
    let of = |(group, resources): (&&str, &Vec<&str>)| {
        rest.with(Side::ApiGroup, &TextSet::exact([*group]))?
            .with(Side::Resource, &TextSet::exact(resources.iter().copied()))
    };
    let cluster_scoped: Vec<Region> = by_group.iter().filter_map(of).collect();
    let cluster_scoped: Vec<&Region> = cluster_scoped.iter().collect();
    rest.without_unlimited(&cluster_scoped)
}

/// The namespaces that a selector selects.
struct SelectedNamespaces {
    by_name: TextSet,
    /// The namespaces with unknown labels, which are selected if their labels match.
    by_labels: Option<(TextSet, RegionCondition)>,
}

/// The namespaces that `selector` selects: by their labels if these are known, otherwise by their
/// names and by the condition on their labels.
fn selected(set: &PolicySet, selector: &LabelSelector) -> SelectedNamespaces {
    let number = set.policies.selectors.number(selector);
    let known: HashMap<&str, bool> = set.namespaces.selected(number, selector).collect();
    let named: Vec<&str> = selector
        .listed_values(NAMESPACE_NAME_LABEL)
        .filter(|name| !known.contains_key(name))
        .collect();
    // No Namespace has this name, so the result is that of all names which the selector does not
    // list.
    let of_others = selector.selects_by_name("\0");
    let of = |wanted: SelectorMatch| {
        let is_one = |name: &&str| match known.get(name) {
            Some(true) => wanted == SelectorMatch::Yes,
            Some(false) => wanted == SelectorMatch::No,
            None => selector.selects_by_name(name) == wanted,
        };
        let told = || known.keys().copied().chain(named.iter().copied());
        match of_others == wanted {
            true => TextSet::all_but(Patterns::exact(told().filter(|name| !is_one(name)).chain([""]))),
            false => TextSet::exact(told().filter(is_one)),
        }
    };
    let by_labels = of(SelectorMatch::Unknown);
    let condition = || RegionCondition::labels(selector.without(NAMESPACE_NAME_LABEL));
    SelectedNamespaces {
        by_name: of(SelectorMatch::Yes),
        by_labels: (!by_labels.is_empty()).then(|| (by_labels, condition())),
    }
}
