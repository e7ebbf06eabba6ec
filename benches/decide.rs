//! Decisions alone: no decoding, no sockets. `cargo bench --bench decide`.
//!
//! The cluster has as many role bindings as the name of the benchmark says, with typical roles, and 500
//! AuthorizationPolicies. The time of a request must not grow with the bindings.
//!
//! Proofs are measured, too: an AuthorizationInvariant over all bindings, and over one that is written; the
//! difference that five changed bindings make; and a search for escalations.
//!
//! Then the same policies in a cluster of 10,000 namespaces, where every second one applies to a hundred of them,
//! by a `namespaceSelector` or by name: labels are matched when the set is built.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis_policy::authorization::proof::{
    InvariantProof, InvariantStatus, UnknownRoles, WorkLimit, difference,
};
use portcullis_policy::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Binding, Effect, Enforcement, EscalationQuery,
    EscalationTarget, FailurePolicy, Mode, NamespaceLabels, NeverDeny, NonResourceRule, ObjectWrite, Objects,
    PolicySet, ResourceRule, Role, RoleKind, RoleRef, Rule, Subject,
};
use portcullis_policy::model::{
    Attributes, Deadline, LabelSelector, Operator, Requirement, ResourceAttributes, Selectors, Target, Time,
    User, Validity,
};

const POLICIES: usize = 500;
const NAMESPACES: usize = 10_000;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Rule {
    Rule {
        verbs: texts(verbs).into(),
        api_groups: texts(groups).into(),
        resources: texts(resources).into(),
        ..Rule::default()
    }
}

fn role(name: &str, rules: Vec<Rule>) -> Role {
    Role {
        name: name.to_owned(),
        rules: rules.into(),
        ..Role::default()
    }
}

fn roles() -> Vec<Role> {
    let read = ["get", "list", "watch"];
    let write = ["create", "delete", "deletecollection", "patch", "update"];
    let core = [
        "pods",
        "pods/log",
        "services",
        "endpoints",
        "configmaps",
        "persistentvolumeclaims",
        "events",
    ];
    let apps = [
        "deployments",
        "deployments/scale",
        "replicasets",
        "statefulsets",
        "daemonsets",
    ];
    let view = vec![
        rule(&read, &[""], &core),
        rule(&read, &["apps"], &apps),
        rule(&read, &["batch"], &["jobs", "cronjobs"]),
        rule(&read, &["networking.k8s.io"], &["ingresses", "networkpolicies"]),
    ];
    let edit = [
        vec![
            rule(&write, &[""], &core),
            rule(&write, &["apps"], &apps),
            rule(&write, &["batch"], &["jobs", "cronjobs"]),
            rule(&["create"], &[""], &["pods/exec", "pods/portforward"]),
            rule(&["*"], &[""], &["secrets"]),
        ],
        view.clone(),
    ]
    .concat();
    let discovery = Rule {
        verbs: texts(&["get"]).into(),
        non_resource_urls: ["/api", "/api/*", "/apis", "/apis/*", "/version", "/healthz"]
            .map(Into::into)
            .into(),
        ..Rule::default()
    };
    vec![
        role("view", view),
        role("edit", edit),
        role("discovery", vec![discovery]),
    ]
}

fn bindings(count: usize) -> Vec<Binding> {
    let binding = |namespace: String, name: String, role: &str, subjects| {
        let role = RoleRef {
            kind: RoleKind::ClusterRole,
            name: role.to_owned(),
        };
        Binding {
            namespace,
            name,
            role,
            subjects,
            until: None,
        }
    };
    let discovery = Subject::group("system:authenticated");
    let mut bindings = vec![binding(
        String::new(),
        "discovery".to_owned(),
        "discovery",
        vec![discovery],
    )];
    bindings.extend((1..count).map(|at| {
        let role = if at % 3 == 0 { "edit" } else { "view" };
        let subjects = vec![
            Subject::user(format!("user-{at}")),
            Subject::group(format!("team-{}", at % 500)),
        ];
        binding(
            format!("ns-{}", at % 1_000),
            format!("binding-{at}"),
            role,
            subjects,
        )
    }));
    bindings
}

fn policies() -> Vec<AuthorizationPolicy> {
    (0..POLICIES).map(policy).collect()
}

/// A third for everyone, a third for a team, a third for a prefix of users.
fn policy(at: usize) -> AuthorizationPolicy {
    let subject = match at % 3 {
        0 => Subject::group("*"),
        1 => Subject::group(format!("team-{at}")),
        _ => Subject::user(format!("agent-{at}-*")),
    };
    let effect = if at.is_multiple_of(2) {
        Effect::Deny
    } else {
        Effect::Allow
    };
    let node = Requirement {
        key: "spec.nodeName".into(),
        operator: Operator::In,
        values: vec![format!("node-{at}").into()],
    };
    let resource_rule = ResourceRule {
        verbs: texts(&["get", "list", "delete"]).into(),
        api_groups: texts(&["", "apps"]).into(),
        resources: vec!["pods".into(), format!("custom-{at}").into()],
        namespaces: vec![format!("ns-{at}").into(), format!("locked-{at}-*").into()],
        exclude_namespaces: Vec::new(),
        namespace_selector: None,
        names: Vec::new(),
        selectors: Selectors {
            field: vec![node],
            label: Vec::new(),
        },
    };
    let paths = NonResourceRule {
        verbs: texts(&["get"]).into(),
        paths: vec![format!("/debug-{at}/*").into()],
    };
    AuthorizationPolicy {
        validity: Validity::default(),
        name: format!("policy-{at}"),
        effect,
        mode: if at.is_multiple_of(50) {
            Mode::Shadow
        } else {
            Mode::Enforce
        },
        subjects: vec![subject],
        exclude_subjects: vec![Subject::user("root")],
        resource_rules: vec![resource_rule],
        non_resource_rules: vec![paths],
        conditions: Vec::new(),
        object_conditions: Vec::new(),
        liftable: false,
        failure_policy: FailurePolicy::Deny,
        reason: "not in this namespace".to_owned(),
    }
}

fn user(name: &'static str, team: &'static str) -> User<'static> {
    User {
        name: name.into(),
        groups: vec![team.into(), "oidc:everyone".into(), "system:authenticated".into()],
        ..User::default()
    }
}

fn resource(
    user: User<'static>,
    verb: &'static str,
    resource: &'static str,
    namespace: &'static str,
) -> Attributes<'static> {
    let target = ResourceAttributes {
        verb: verb.into(),
        version: "v1".into(),
        resource: resource.into(),
        namespace: namespace.into(),
        ..ResourceAttributes::default()
    };
    Attributes {
        user,
        target: Target::Resource(Box::new(target)),
    }
}

fn requests() -> Vec<(&'static str, Attributes<'static>)> {
    let version = Target::NonResource {
        path: "/version".into(),
        verb: "get".into(),
    };
    vec![
        (
            "allowed_by_binding",
            resource(user("user-77", "team-577"), "get", "configmaps", "ns-77"),
        ),
        (
            "no_opinion",
            resource(user("user-77", "team-77"), "create", "nodes", "ns-78"),
        ),
        (
            "unknown_user",
            resource(user("somebody", "nowhere"), "get", "pods", "ns-999"),
        ),
        (
            "denied_by_policy",
            resource(user("user-77", "team-77"), "delete", "pods", "ns-6"),
        ),
        (
            "path",
            Attributes {
                user: user("user-77", "team-77"),
                target: version,
            },
        ),
    ]
}

fn decide(criterion: &mut Criterion) {
    for count in [1, 100, 10_000, 100_000] {
        let objects = Objects {
            roles: roles(),
            bindings: bindings(count),
            policies: policies(),
            ..Objects::default()
        };
        let set = PolicySet::new(objects, &NeverDeny::default());
        let mut group = criterion.benchmark_group(format!("{count}_bindings"));
        for (name, request) in requests() {
            group.bench_function(name, |bench| {
                bench.iter(|| set.authorize(black_box(&request), Time::UNIX_EPOCH))
            });
        }
        group.finish();
    }
}

/// Policies of which every second one applies to a hundred namespaces: by their label, or by their names.
fn policies_for_teams(by_label: bool) -> Vec<AuthorizationPolicy> {
    let label = |team: usize| [("team".to_owned(), format!("team-{team}"))];
    let names = |team: usize| (team..NAMESPACES).step_by(100).map(|at| format!("ns-{at}"));
    let mut policies = policies();
    for (at, policy) in policies.iter_mut().enumerate().step_by(2) {
        let team = at % 100;
        for rule in &mut policy.resource_rules {
            if by_label {
                rule.namespaces = Vec::new();
                rule.namespace_selector = LabelSelector::compile(&label(team).into(), &[]).ok();
            } else {
                rule.namespaces = names(team).map(Into::into).collect();
            }
        }
    }
    policies
}

fn namespaces() -> NamespaceLabels {
    let namespace = |at: usize| {
        let name = format!("ns-{at}");
        let labels = [
            ("kubernetes.io/metadata.name".to_owned(), name.clone()),
            ("team".to_owned(), format!("team-{}", at % 100)),
            (
                "tier".to_owned(),
                if at.is_multiple_of(3) { "prod" } else { "test" }.to_owned(),
            ),
        ];
        (name, Arc::new(labels.into()))
    };
    (0..NAMESPACES).map(namespace).collect()
}

fn select(criterion: &mut Criterion) {
    for by_label in [false, true] {
        let objects = || Objects {
            roles: roles(),
            bindings: bindings(10_000),
            policies: policies_for_teams(by_label),
            namespaces: namespaces(),
            ..Objects::default()
        };
        let set = PolicySet::new(objects(), &NeverDeny::default());
        let name = if by_label { "label" } else { "name" };
        let mut group = criterion.benchmark_group(format!("10000_namespaces_by_{name}"));
        for (name, request) in requests() {
            group.bench_function(name, |bench| {
                bench.iter(|| set.authorize(black_box(&request), Time::UNIX_EPOCH))
            });
        }
        group.sample_size(10).bench_function("build", |bench| {
            bench.iter_with_setup(objects, |objects| PolicySet::new(objects, &NeverDeny::default()));
        });
        group.finish();
    }
}

/// Only the teams may read Secrets. The invariant holds, so that all bindings of the role that reads them have to
/// be compared.
fn invariant() -> AuthorizationInvariant {
    let secrets = ResourceRule {
        verbs: texts(&["get"]).into(),
        api_groups: texts(&[""]).into(),
        resources: vec!["secrets".into()],
        namespaces: Vec::new(),
        exclude_namespaces: Vec::new(),
        namespace_selector: None,
        names: Vec::new(),
        selectors: Selectors::default(),
    };
    AuthorizationInvariant {
        forbidden: AuthorizationPolicy {
            effect: Effect::Deny,
            mode: Mode::Enforce,
            subjects: vec![Subject::group("*")],
            exclude_subjects: vec![Subject::group("team-*"), Subject::user("user-*")],
            resource_rules: vec![secrets],
            non_resource_rules: Vec::new(),
            ..policy(0)
        },
        enforcement: Enforcement::Refuse,
    }
}

/// An invariant of all bindings, and of the one that is written.
fn prove(criterion: &mut Criterion) {
    let limit = WorkLimit {
        parts: usize::MAX,
        deadline: Deadline::NEVER,
    };
    for count in [10_000, 100_000] {
        let objects = Objects {
            roles: roles(),
            bindings: bindings(count),
            policies: policies(),
            invariants: vec![invariant()],
            ..Objects::default()
        };
        let set = PolicySet::new(objects, &NeverDeny::default());
        let mut written = bindings(4).remove(3);
        written.subjects = vec![Subject::group("contractors")];
        let write = ObjectWrite::Binding(Arc::new(written));
        let status = |proof: &InvariantProof<'_>| proof.status(&invariant(), UnknownRoles::GrantNothing);
        let mut group = criterion.benchmark_group(format!("invariant_{count}_bindings"));
        group.sample_size(10).bench_function("all", |bench| {
            bench.iter(|| {
                let proof = InvariantProof::of_set(&set, Time::UNIX_EPOCH, limit).unwrap();
                assert!(matches!(status(&proof), InvariantStatus::Holds));
            });
        });
        group.bench_function("write", |bench| {
            bench.iter(|| {
                let after = set.after_write(&write).unwrap();
                let proof = InvariantProof::of_change(&set, &after, Time::UNIX_EPOCH, limit).unwrap();
                assert!(matches!(status(&proof), InvariantStatus::Broken(_)));
            });
        });
        let mut changed = set.clone();
        for mut binding in bindings(6).into_iter().skip(1) {
            binding.subjects = vec![Subject::group("contractors")];
            let write = ObjectWrite::Binding(Arc::new(binding));
            changed = changed.after_write(&write).unwrap();
        }
        group.bench_function("difference of five", |bench| {
            bench.iter(|| {
                let changes = difference(&set, &changed, Time::UNIX_EPOCH, limit).unwrap();
                assert!(changes.len() >= 5);
            });
        });
        if count == 10_000 {
            let query = EscalationQuery {
                from: None,
                to: EscalationTarget::ClusterAdmin,
                accounts: Vec::new(),
            };
            group.bench_function("escalations", |bench| {
                bench.iter(|| {
                    set.escalations(&query, Time::UNIX_EPOCH, Deadline::NEVER)
                        .unwrap()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, decide, select, prove);
criterion_main!(benches);
