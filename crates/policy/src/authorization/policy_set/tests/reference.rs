//! The index answers as a plain reading of the rules does: one after the other,
//! text by text, written here once more and sharing nothing with the code it checks: of
//! patterns it reads what is written, not what was made of it.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use std::collections::BTreeMap;

use super::*;
use crate::authorization::{NamespaceLabels, NonResourceRule, ResourceRule, RoleKind, RoleRef, Rule};
use crate::model::{
    LabelExpression, LabelSelector, NAMESPACE_NAME_LABEL, Operator, Requirement, ResourceAttributes,
    Selectors, Target, User, Validity,
};

mod access;
mod changes;
pub(crate) mod plain;

const VERBS: &[&str] = &["get", "list", "create", "*"];
const GROUPS: &[&str] = &["", "apps", "*"];
const RESOURCES: &[&str] = &[
    "pods", "nodes", "pods/log", "pods/*", "*/log", "*/scale", "*/*", "*",
];
const NAMES: &[&str] = &["n1", "n2", "*"];
const NAMESPACES: &[&str] = &["a", "ab", "b"];
const PATTERNS: &[&str] = &["", "a", "b", "a*", "ab*", "a**", "*"];
const PATHS: &[&str] = &["/a", "/a/*", "/a/b", "/*", "*", "/a**", "/é*"];
const ASKED_PATHS: &[&str] = &["/a", "/a/", "/a/b", "/b", "*", "", "/éa", "/è"];
const CONDITIONS: &[&str] = &[
    "request.user == 'u1'",
    "true",
    "request.nonResourceAttributes.path == '/a'",
    "request.uid != ''",
    "request.user.endsWith('1') || 'h' in request.groups",
    "!request.resourceAttributes.namespace.matches('^ab?$') && request.resourceAttributes.verb in ['get', 'list']",
    "request.groups.exists(g, g.startsWith('g')) || request.resourceAttributes.name.size() < 2",
    "has(request.resourceAttributes) && request.resourceAttributes.name == request.resourceAttributes.namespace",
];

fn some(of: &'static [&'static str], most: usize) -> BoxedStrategy<Vec<String>> {
    let most = most.min(of.len());
    subsequence(of.to_vec(), 0..=most)
        .prop_map(|texts| texts.into_iter().map(str::to_owned).collect())
        .boxed()
}

fn one(of: &'static [&'static str]) -> BoxedStrategy<String> {
    select(of).prop_map(str::to_owned).boxed()
}

/// The patterns of such texts, which they are to give back as they were.
fn read<P: From<String> + ToString>(texts: Vec<String>) -> Vec<P> {
    let one = |text: String| {
        let pattern = P::from(text.clone());
        assert_eq!(pattern.to_string(), text);
        pattern
    };
    texts.into_iter().map(one).collect()
}

fn subject() -> BoxedStrategy<Subject> {
    prop_oneof![
        select(&["u1", "u2", "u*", "*", "system:serviceaccount:a:s"][..]).prop_map(Subject::user),
        select(&["g1", "g2", "g*", "*", "system:nodes"][..]).prop_map(Subject::group),
        (select(&["", "a", "b"][..]), select(&["s", "*"][..]))
            .prop_map(|(namespace, name)| Subject::service_account(namespace, name)),
    ]
    .boxed()
}

fn requirement() -> BoxedStrategy<Requirement<'static>> {
    let operator = prop_oneof![
        Just(Operator::In),
        Just(Operator::NotIn),
        Just(Operator::Exists),
        Just(Operator::DoesNotExist),
        Just(Operator::Unknown("Gt".into())),
    ];
    (
        select(&["k", "l"][..]),
        operator,
        subsequence(vec!["x", "y", "z"], 0..=2),
    )
        .prop_map(|(key, operator, values)| {
            let has_values = matches!(operator, Operator::In | Operator::NotIn | Operator::Unknown(_));
            let values = values
                .into_iter()
                .filter(|_| has_values)
                .map(Into::into)
                .collect();
            Requirement {
                key: key.into(),
                operator,
                values,
            }
        })
        .boxed()
}

pub(crate) fn selectors() -> BoxedStrategy<Selectors<'static>> {
    let list = |most| prop::collection::vec(requirement(), 0..=most);
    prop_oneof![
        2 => Just(Selectors::default()),
        1 => (list(2), list(3)).prop_map(|(field, label)| Selectors { field, label }),
    ]
    .boxed()
}

fn role_rule() -> BoxedStrategy<Rule> {
    (
        some(VERBS, 3),
        some(GROUPS, 2),
        some(RESOURCES, 3),
        some(NAMES, 1),
        some(PATHS, 2),
    )
        .prop_map(
            |(verbs, api_groups, resources, resource_names, non_resource_urls)| Rule {
                verbs: verbs.into(),
                api_groups: api_groups.into(),
                resources: resources.into(),
                resource_names,
                non_resource_urls: read(non_resource_urls),
            },
        )
        .boxed()
}

pub(crate) fn roles() -> BoxedStrategy<Vec<Role>> {
    let role = (
        select(&["", "a", "b"][..]),
        one(&["r1", "r2"]),
        prop::collection::vec(role_rule(), 0..12),
    );
    prop::collection::vec(
        role.prop_map(|(namespace, name, rules)| super::role(namespace, &name, rules)),
        0..6,
    )
    .prop_map(|mut roles| {
        roles.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        roles.dedup_by(|one, other| (&one.namespace, &one.name) == (&other.namespace, &other.name));
        roles
    })
    .boxed()
}

pub(crate) fn bindings() -> BoxedStrategy<Vec<Binding>> {
    let binding = (
        select(&["", "a", "b"][..]),
        select(&[RoleKind::Role, RoleKind::ClusterRole, RoleKind::ClusterRole][..]),
        select(&["r1", "r2", "gone"][..]),
        prop::collection::vec(subject(), 0..3),
    );
    prop::collection::vec(binding, 0..24)
        .prop_map(|bindings| {
            let named = bindings.into_iter().enumerate();
            named
                .map(|(at, (namespace, kind, role, subjects))| Binding {
                    namespace: namespace.into(),
                    // In another order than they are listed.
                    name: format!("b{}", at * 7 % 24),
                    role: RoleRef {
                        kind,
                        name: role.into(),
                    },
                    subjects,
                    until: None,
                })
                .collect()
        })
        .boxed()
}

fn policy_rules() -> BoxedStrategy<(Vec<ResourceRule>, Vec<NonResourceRule>)> {
    let resource = (
        (some(VERBS, 2), some(GROUPS, 2), some(RESOURCES, 2)),
        (
            (
                some(PATTERNS, 2),
                prop_oneof![3 => Just(Vec::new()), 1 => some(PATTERNS, 2)],
            ),
            some(NAMES, 1),
            selectors(),
            prop::option::weighted(0.4, select(SELECTORS).prop_map(compiled)),
        ),
    )
        .prop_map(
            |(
                (verbs, api_groups, resources),
                ((namespaces, excluded), names, selectors, namespace_selector),
            )| {
                ResourceRule {
                    verbs: verbs.into(),
                    api_groups: api_groups.into(),
                    resources: read(resources),
                    namespaces: read(namespaces),
                    exclude_namespaces: read(excluded),
                    names,
                    selectors,
                    namespace_selector,
                }
            },
        );
    let path = (some(VERBS, 2), some(PATHS, 2)).prop_map(|(verbs, paths)| NonResourceRule {
        verbs: verbs.into(),
        paths: read(paths),
    });
    (
        prop::collection::vec(resource, 0..3),
        prop::collection::vec(path, 0..2),
    )
        .boxed()
}

/// Selectors over the labels `k`, `l` and the name: terms such as `k=x`, `k!=x`, `k`, `!k`.
const SELECTORS: &[&[&str]] = &[
    &["k=x"],
    &["k!=x"],
    &["k"],
    &["!k"],
    &["k=x", "l=y"],
    &["l!=y", "k"],
    &["kubernetes.io/metadata.name=a"],
    &["kubernetes.io/metadata.name!=a"],
    &["kubernetes.io/metadata.name=a", "k=x"],
    &["!kubernetes.io/metadata.name"],
    &["kubernetes.io/metadata.name=unknown", "!l"],
];

fn compiled(terms: &[&str]) -> LabelSelector {
    let expression = |term: &&str| {
        let (key, operator, value) = match (
            term.split_once("!="),
            term.split_once('='),
            term.strip_prefix('!'),
        ) {
            (Some((key, value)), ..) => (key, "NotIn", Some(value)),
            (None, Some((key, value)), _) => (key, "In", Some(value)),
            (None, None, Some(key)) => (key, "DoesNotExist", None),
            (None, None, None) => (*term, "Exists", None),
        };
        LabelExpression {
            key: key.into(),
            operator: operator.into(),
            values: value.into_iter().map(str::to_owned).collect(),
        }
    };
    let expressions: Vec<_> = terms.iter().map(expression).collect();
    LabelSelector::compile(&BTreeMap::new(), &expressions).unwrap()
}

/// The labels of some of [`NAMESPACES`].
pub(crate) fn namespaces() -> BoxedStrategy<NamespaceLabels> {
    let label = || prop::option::of(select(&["x", "y"][..]));
    let labels = (label(), label());
    let known = subsequence(NAMESPACES, 0..=3);
    (known, prop::collection::vec(labels, 3))
        .prop_map(|(known, labels)| {
            let of = |(name, (k, l)): (&str, (Option<&str>, Option<&str>))| {
                let written = [("k", k), ("l", l), (NAMESPACE_NAME_LABEL, Some(name))];
                let labels = written
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
                (name.to_owned(), Arc::new(labels.collect()))
            };
            known.into_iter().zip(labels).map(of).collect()
        })
        .boxed()
}

/// A few instants, among them the boundaries of periods.
fn instant() -> BoxedStrategy<Time> {
    let of = |second| Time::parse(&format!("2026-12-01T08:00:0{second}Z")).unwrap();
    (0..4_u8).prop_map(of).boxed()
}

fn validity() -> BoxedStrategy<Validity> {
    let some = || prop::option::weighted(0.3, instant());
    (some(), some())
        .prop_map(|(not_before, not_after)| Validity {
            not_before,
            not_after,
        })
        .boxed()
}

fn effect() -> BoxedStrategy<Effect> {
    prop_oneof![3 => Just(Effect::Allow), 3 => Just(Effect::Deny), 2 => Just(Effect::Limit)].boxed()
}

pub(crate) fn policies() -> BoxedStrategy<Vec<AuthorizationPolicy>> {
    let policy = (
        (effect(), prop::bool::weighted(0.2), any::<bool>(), validity()),
        (
            prop::collection::vec(subject(), 0..3),
            prop::collection::vec(subject(), 0..2),
        ),
        policy_rules(),
        subsequence(CONDITIONS, 0..=2),
    )
        .prop_map(
            |((effect, is_shadow, opens, validity), (subjects, exclude_subjects), rules, conditions)| {
                AuthorizationPolicy {
                    mode: if is_shadow { Mode::Shadow } else { Mode::Enforce },
                    subjects,
                    exclude_subjects,
                    resource_rules: rules.0,
                    non_resource_rules: rules.1,
                    conditions: conditions.into_iter().map(condition).collect(),
                    failure_policy: if opens {
                        FailurePolicy::NoOpinion
                    } else {
                        FailurePolicy::Deny
                    },
                    validity,
                    ..super::policy(effect, "")
                }
            },
        );
    prop::collection::vec(policy, 0..12)
        .prop_map(|mut policies| {
            policies
                .iter_mut()
                .enumerate()
                .for_each(|(at, policy)| policy.name = format!("p{}", at * 5 % 12));
            policies
        })
        .boxed()
}

fn asked() -> BoxedStrategy<Attributes<'static>> {
    let who = (
        select(&["u1", "u2", "x", "", "system:serviceaccount:a:s", "system:node:n"][..]),
        subsequence(vec!["g1", "g2", "h", "*", "system:nodes"], 0..3),
    )
        .prop_map(|(name, groups)| user(name, &groups));
    let resource = (
        (
            one(&["get", "list", "create", "watch", "*"]),
            one(&["", "apps", "*"]),
        ),
        (
            one(&["pods", "nodes", "*", "pods/log", "namespaces"]),
            one(&["", "", "log", "scale", "*"]),
        ),
        (
            prop_oneof![Just(String::new()), one(NAMESPACES), Just("unknown".to_owned())],
            one(&["", "n1", "n3", "*", "a"]),
            selectors(),
        ),
    )
        .prop_map(
            |((verb, group), (resource, subresource), (namespace, name, selectors))| {
                Target::Resource(Box::new(ResourceAttributes {
                    verb: verb.into(),
                    group: group.into(),
                    resource: resource.into(),
                    subresource: subresource.into(),
                    namespace: namespace.into(),
                    name: name.into(),
                    selectors,
                    ..ResourceAttributes::default()
                }))
            },
        );
    let path =
        (one(ASKED_PATHS), one(&["get", "create", "*"])).prop_map(|(path, verb)| Target::NonResource {
            path: path.into(),
            verb: verb.into(),
        });
    (who, prop_oneof![3 => resource, 1 => path])
        .prop_map(|(user, target): (User<'static>, _)| Attributes { user, target })
        .boxed()
}

proptest! {
    #![proptest_config(crate::authorization::fixtures::cases(2_000))]

    #[test]
    fn the_index_decides_as_the_plain_reading_does(
        roles in roles(),
        bindings in bindings(),
        policies in policies(),
        namespaces in namespaces(),
        comparisons in 0_usize..8,
        asked in prop::collection::vec((asked(), instant()), 8),
    ) {
        let objects = Objects { roles, bindings, policies, namespaces, ..Objects::default() };
        let mut set = PolicySet::new(objects.clone(), &NeverDeny::default());
        // Of namespaces beyond this, requests compare the labels.
        let index = set.policies.selectors.resolve_within(comparisons, &objects.namespaces);
        set.namespaces = Arc::new(index);
        for (asked, now) in &asked {
            let now = *now;
            let answer = set.authorize(asked, now);
            let plain = plain::authorize(&objects, asked, now);
            let cause = answer.cause.as_ref().map(|cause| {
                (cause.kind, cause.namespace.to_string(), cause.name.to_string(), cause.rule)
            });
            let shadow: Vec<_> =
                answer.shadow.iter().map(|shadow| (shadow.name.to_string(), shadow.decision)).collect();
            prop_assert_eq!((answer.decision, &cause), (plain.decision, &plain.cause), "{:?}", asked);
            prop_assert_eq!(&shadow, &plain.shadow, "{:?}", asked);
            let (explained, trace) = set.explain(asked, now);
            prop_assert_eq!(
                (explained.decision, &explained.reason, &explained.cause, &explained.shadow),
                (answer.decision, &answer.reason, &answer.cause, &answer.shadow)
            );
            prop_assert!(answer.decision == Decision::NoOpinion || !trace.events.is_empty());
        }
    }
}
