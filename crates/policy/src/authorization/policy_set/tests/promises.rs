//! What `docs/policies.md` promises of rules, subjects and order, sentence by sentence.

use super::*;
use crate::authorization::matching::ClusterScoped;
use crate::authorization::{Binding, ResourceRule};
use crate::model::{Attributes, LabelSelector, Operator, RawSelectors, Requirement, Selectors, Target};

const NOW: Time = Time::UNIX_EPOCH;

fn decides(effect: Effect, rule: &ResourceRule, request: &str) -> bool {
    decides_about(effect, rule, &asks(user("alice", &[]), request))
}

fn decides_about(effect: Effect, rule: &ResourceRule, attributes: &Attributes<'_>) -> bool {
    let policy = AuthorizationPolicy {
        resource_rules: vec![rule.clone()],
        ..policy(effect, "p")
    };
    policies(vec![policy]).authorize(attributes, NOW).decision == effect.decision()
}

/// Which requests an Allow and a Deny with the rule apply to: `(request, Allow, Deny)`.
fn table(rule: &ResourceRule, cases: &[(&str, bool, bool)]) {
    for &(request, allow, deny) in cases {
        assert_eq!(
            decides(Effect::Allow, rule, request),
            allow,
            "Allow {rule:?}: {request}"
        );
        assert_eq!(
            decides(Effect::Deny, rule, request),
            deny,
            "Deny {rule:?}: {request}"
        );
    }
}

fn in_group(group: &str, rule: ResourceRule) -> ResourceRule {
    ResourceRule {
        api_groups: words(&[group]),
        ..rule
    }
}

fn in_namespaces(namespaces: &[&str], rule: ResourceRule) -> ResourceRule {
    ResourceRule {
        namespaces: patterns(namespaces),
        ..rule
    }
}

fn named(names: &[&str], rule: ResourceRule) -> ResourceRule {
    ResourceRule {
        names: texts(names),
        ..rule
    }
}

#[test]
fn a_deny_also_applies_to_a_requested_star() {
    table(
        &in_group("apps", rule(&["get"], &["deployments"])),
        &[
            ("get deployments.apps ns d", true, true),
            ("* deployments.apps ns d", false, true),
            ("get deployments.* ns d", false, true),
            ("get *.apps ns d", false, true),
            ("* *.* ns", false, true),
            ("list deployments.apps ns", false, false),
            ("get deployments.extensions ns d", false, false),
        ],
    );
    table(
        &rule(&["get"], &["pods/log"]),
        &[
            ("get pods/log ns p", true, true),
            ("get pods/* ns p", false, true),
            ("get */log ns p", false, true),
            ("get pods ns p", false, false),
            ("get */exec ns p", false, false),
        ],
    );
    for resource in ["pods", "pods/log", "pods/*", "*/scale", "*"] {
        for request in ["get * ns p", "get */* ns p"] {
            assert!(
                decides(Effect::Deny, &rule(&["get"], &[resource]), request),
                "{resource}: {request}"
            );
        }
    }
}

#[test]
fn a_deny_for_a_path_also_applies_to_the_path_star() {
    for (path, allow, deny) in [
        ("/debug/x", true, true),
        ("*", false, true),
        ("/", false, false),
        ("/debug", false, false),
    ] {
        for (effect, applies) in [(Effect::Allow, allow), (Effect::Deny, deny)] {
            let policy = AuthorizationPolicy {
                non_resource_rules: vec![paths(&["get"], &["/debug/*"])],
                ..policy(effect, "p")
            };
            let decision = policies(vec![policy])
                .authorize(&opens(user("alice", &[]), path), NOW)
                .decision;
            assert_eq!(decision == effect.decision(), applies, "{effect:?} {path}");
        }
    }
}

#[test]
fn a_requested_verb_star_counts_as_a_list() {
    table(
        &in_namespaces(&["ns"], rule(&["delete"], &["pods"])),
        &[("* pods -", false, true), ("delete pods -", false, false)],
    );
    table(
        &named(&["p"], rule(&["delete"], &["pods"])),
        &[("* pods ns", false, true), ("delete pods ns", false, false)],
    );
}

#[test]
fn a_deny_by_namespace_or_name_applies_to_collections_that_name_none() {
    let verbs = &["*"];
    table(
        &in_namespaces(&["ns"], rule(verbs, &["pods"])),
        &[
            ("get pods ns p", true, true),
            ("list pods ns", true, true),
            ("list pods -", false, true),
            ("watch pods -", false, true),
            ("deletecollection pods -", false, true),
            ("get pods - p", false, false),
            ("list pods other", false, false),
        ],
    );
    table(
        &named(&["p"], rule(verbs, &["pods"])),
        &[
            ("get pods ns p", true, true),
            ("list pods ns", false, true),
            ("watch pods -", false, true),
            ("deletecollection pods ns", false, true),
            ("list pods ns p", true, true),
            ("list pods ns other", false, false),
            ("create pods ns", false, false),
        ],
    );
}

#[test]
fn a_deny_by_namespace_leaves_lists_of_what_is_known_to_be_cluster_scoped() {
    let rule = in_namespaces(&["ns"], rule(&["list"], &["*"]));
    table(
        &rule,
        &[
            ("list nodes -", false, false),
            ("list authorizationpolicies.portcullis.dev -", false, false),
            ("list admissionexceptions.portcullis.dev -", false, false),
            ("list clusterroles.rbac.authorization.k8s.io -", false, false),
            // By the group that is asked for, not that of the rule.
            ("list nodes.* -", false, true),
            ("list nodes.example.com -", false, true),
            ("list *.rbac.authorization.k8s.io -", false, true),
            ("list widgets.example.com -", false, true),
        ],
    );
}

#[test]
fn a_deny_by_namespace_leaves_lists_of_what_a_definition_says_is_cluster_scoped() {
    let mut cluster_scoped = ClusterScoped::default();
    cluster_scoped.add("example.com", "widgets");
    let by_name = in_namespaces(&["ns"], rule(&["list"], &["*"]));
    let by_label = ResourceRule {
        namespace_selector: LabelSelector::compile(&[("a".to_owned(), "b".to_owned())].into(), &[]).ok(),
        ..rule(&["list"], &["*"])
    };
    for rule in [by_name, by_label] {
        let policy = AuthorizationPolicy {
            resource_rules: vec![in_group("*", rule)],
            ..policy(Effect::Deny, "p")
        };
        let set = set(Objects {
            policies: vec![policy],
            cluster_scoped: cluster_scoped.clone(),
            ..Objects::default()
        });
        for (request, denied) in [
            ("list widgets.example.com", false),
            ("list gadgets.example.com", true),
            ("list widgets.example.org", true),
            ("list *.example.com", true),
            ("list widgets.*", true),
        ] {
            let answer = set.authorize(&asks(user("alice", &[]), request), NOW);
            assert_eq!(answer.decision == Decision::Deny, denied, "{request}");
        }
    }
}

#[test]
fn names_are_exact_and_namespaces_are_not() {
    table(
        &named(&["*"], rule(&["get"], &["pods"])),
        &[("get pods ns *", true, true), ("get pods ns p", false, false)],
    );
    table(
        &named(&["web-*"], rule(&["get"], &["pods"])),
        &[
            ("get pods ns web-*", true, true),
            ("get pods ns web-1", false, false),
        ],
    );
    table(
        &in_namespaces(&["*"], rule(&["get", "list"], &["pods"])),
        &[
            ("get pods any p", true, true),
            ("get pods - p", false, false),
            ("list pods -", false, true),
        ],
    );
    table(
        &in_namespaces(&["team-*"], rule(&["get"], &["pods"])),
        &[
            ("get pods team-a p", true, true),
            ("get pods other p", false, false),
        ],
    );
    table(
        &in_namespaces(&[""], rule(&["get"], &["pods"])),
        &[("get pods - p", true, true), ("get pods ns p", false, false)],
    );
}

#[test]
fn a_subject_star_is_everybody_and_accounts_have_no_patterns() {
    let of = |subjects: Vec<Subject>| AuthorizationPolicy {
        subjects,
        ..AuthorizationPolicy {
            resource_rules: vec![rule(&["*"], &["*"])],
            ..policy(Effect::Deny, "p")
        }
    };
    let denies = |subject: Subject, name: &str, groups: &[&str]| {
        let set = policies(vec![of(vec![subject])]);
        let answer = set.authorize(&asks(user(name, groups), "get pods ns p"), NOW);
        answer.decision == Decision::Deny
    };
    for subject in [Subject::user("*"), Subject::group("*")] {
        assert!(denies(subject.clone(), "alice", &[]), "{subject:?}");
        assert!(denies(subject.clone(), "", &["devs"]), "{subject:?}");
    }
    assert!(denies(Subject::user("al*"), "alice", &[]));
    assert!(denies(Subject::group("dev*"), "bob", &["devs"]));
    assert!(!denies(Subject::group("dev*"), "dev", &[]));
    let account = "system:serviceaccount:ns:runner";
    assert!(denies(Subject::service_account("ns", "runner"), account, &[]));
    assert!(!denies(Subject::service_account("ns", "*"), account, &[]));
    assert!(!denies(Subject::service_account("", "runner"), account, &[]));
}

#[test]
fn every_requirement_written_must_follow_from_those_received() {
    let field = |operator: Operator<'static>, values: &[&'static str]| Requirement {
        key: "spec.nodeName".into(),
        operator,
        values: values.iter().map(|&value| value.into()).collect(),
    };
    let narrow = ResourceRule {
        selectors: Selectors {
            field: vec![field(Operator::In, &["n1"])],
            label: Vec::new(),
        },
        ..rule(&["list"], &["pods"])
    };
    let listing = |received: Vec<Requirement<'static>>, raw: &'static str| {
        let mut attributes = asks(user("alice", &[]), "list pods -");
        if let Target::Resource(resource) = &mut attributes.target {
            resource.selectors.field = received;
            resource.raw_selectors = RawSelectors {
                field: raw.into(),
                label: "".into(),
            };
        }
        attributes
    };
    let unknown = || field(Operator::Unknown("Fuzzy".into()), &["n1"]);
    for (received, raw, is_narrow) in [
        (vec![field(Operator::In, &["n1"])], "", true),
        (
            vec![
                field(Operator::In, &["n1", "n2"]),
                field(Operator::NotIn, &["n2"]),
            ],
            "",
            true,
        ),
        (vec![unknown(), field(Operator::In, &["n1"])], "", true),
        (vec![field(Operator::In, &["n1", "n2"])], "", false),
        (vec![unknown()], "", false),
        (vec![field(Operator::In, &[])], "", false),
        (vec![field(Operator::Exists, &[])], "", false),
        (vec![], "spec.nodeName=n1", false),
        (vec![], "", false),
    ] {
        let attributes = listing(received, raw);
        assert_eq!(
            decides_about(Effect::Allow, &narrow, &attributes),
            is_narrow,
            "{attributes:?}"
        );
        assert_eq!(
            decides_about(Effect::Deny, &narrow, &attributes),
            !is_narrow,
            "{attributes:?}"
        );
    }
}

#[test]
fn a_deny_by_a_raw_selector_holds_and_an_allow_for_one_needs_the_condition() {
    let raw = "has(request.resourceAttributes.fieldSelector)";
    let mut attributes = asks(user("alice", &[]), "list pods -");
    let of = |effect, expression: &str| AuthorizationPolicy {
        resource_rules: vec![rule(&["list"], &["pods"])],
        conditions: vec![condition(expression)],
        ..policy(effect, "p")
    };
    let set = policies(vec![of(Effect::Deny, raw)]);
    assert_eq!(set.authorize(&attributes, NOW).decision, Decision::NoOpinion);
    if let Target::Resource(resource) = &mut attributes.target {
        resource.raw_selectors.field = "spec.nodeName=n1".into();
    }
    assert_eq!(set.authorize(&attributes, NOW).decision, Decision::Deny);
    let text = "request.resourceAttributes.fieldSelector.rawSelector == 'spec.nodeName=n1'";
    let set = policies(vec![of(Effect::Allow, text)]);
    assert_eq!(set.authorize(&attributes, NOW).decision, Decision::Allow);
}

#[test]
fn never_deny_protects_the_kubelet_client_and_nodes_by_name_alone() {
    let everything = AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        ..policy(Effect::Deny, "d")
    };
    let set = policies(vec![everything]);
    for (name, groups, is_protected) in [
        ("kube-apiserver-kubelet-client", &[][..], true),
        ("kube-apiserver-kubelet-client", &["system:masters"], true),
        ("system:node:n1", &["system:nodes"], true),
        ("system:node:n1", &[], false),
        ("mallory", &["system:nodes"], false),
        ("system:nodes", &["system:nodes"], false),
        ("kube-apiserver-kubelet-client2", &[], false),
    ] {
        let denied = set
            .authorize(&asks(user(name, groups), "get nodes/proxy - n1"), NOW)
            .decision;
        assert_eq!(denied != Decision::Deny, is_protected, "{name} {groups:?}");
    }
}

#[test]
fn denied_comes_from_a_deny_alone_and_the_first_by_name_says_why() {
    let of = |effect, name: &str, reason: &str| AuthorizationPolicy {
        resource_rules: vec![rule(&["get"], &["pods"])],
        reason: reason.into(),
        ..policy(effect, name)
    };
    let bound = |policies: Vec<AuthorizationPolicy>, bindings: Vec<Binding>| {
        set(crate::authorization::Objects {
            roles: vec![role("", "view", vec![allows(&["get"], &["pods"])])],
            bindings,
            policies,
            ..crate::authorization::Objects::default()
        })
    };
    let binding = || vec![binding("", "view", "view", vec![Subject::user("alice")])];
    let get = asks(user("alice", &[]), "get pods ns p");
    let both = || vec![of(Effect::Deny, "b", "two"), of(Effect::Deny, "a", "one")];
    let allows = || vec![of(Effect::Allow, "z", ""), of(Effect::Allow, "y", "")];
    for (set, decision, reason) in [
        (
            bound([both(), allows()].concat(), binding()),
            Decision::Deny,
            "denied by AuthorizationPolicy \"a\": one",
        ),
        (
            bound(allows(), binding()),
            Decision::Allow,
            "RBAC: allowed by ClusterRoleBinding \"view\" of ClusterRole \"view\" to User \"alice\"",
        ),
        (
            bound(allows(), Vec::new()),
            Decision::Allow,
            "allowed by AuthorizationPolicy \"y\"",
        ),
        (bound(Vec::new(), Vec::new()), Decision::NoOpinion, ""),
    ] {
        let answer = set.authorize(&get, NOW);
        assert_eq!((answer.decision, &*answer.reason.to_string()), (decision, reason));
    }
    let long = vec![of(Effect::Deny, "a", &"x".repeat(5000))];
    assert!(
        bound(long, Vec::new())
            .authorize(&get, NOW)
            .reason
            .to_string()
            .len()
            <= 1024
    );
}
