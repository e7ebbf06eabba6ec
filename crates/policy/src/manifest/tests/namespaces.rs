//! Rules that select namespaces by their labels, and who tells of these.

use super::*;

#[test]
fn a_rule_of_which_every_namespace_is_excluded_is_a_fault() {
    for (rule, is_left) in [
        ("excludeNamespaces: [kube-*]", true),
        ("excludeNamespaces: [\"*\"]", true),
        ("excludeNamespaces: [\"\"]", true),
        ("excludeNamespaces: [\"*\", \"\"]", false),
        (
            "namespaces: [\"team-*\", a], excludeNamespaces: [team-a, \"team-b*\", a]",
            true,
        ),
        (
            "namespaces: [team-a, \"team-b*\"], excludeNamespaces: [\"team-*\"]",
            false,
        ),
        ("namespaces: [\"\"], excludeNamespaces: [\"*\"]", true),
        (
            "namespaceSelector: {matchLabels: {a: b}}, excludeNamespaces: [\"*\"]",
            false,
        ),
        ("excludeNamespaces: [Kube]", false),
    ] {
        let (_, faults) = load(&[selecting(rule, None)], &Options::default());
        let said = faults.to_string();
        let is_at_fault = said.contains("spec.resourceRules[0].excludeNamespaces");
        assert_eq!(is_at_fault, !is_left, "{rule}: {said}");
    }
}

/// A policy of `cluster` whose only rule has `rule`.
fn selecting(rule: &str, cluster: Option<&str>) -> Source {
    Source {
        cluster: cluster.map(Into::into),
        ..source(&format!(
            "{{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {{name: a}}, spec: {{effect: Allow, \
             subjects: [{{kind: User, name: jane}}], resourceRules: [{{verbs: [get], apiGroups: [\"\"], resources: [pods], {rule}}}]}}}}"
        ))
    }
}

#[test]
fn selectors_that_select_everything_or_nothing_are_faults() {
    for (rule, said) in [
        (
            "namespaceSelector: {}",
            "spec.resourceRules[0].namespaceSelector: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabels: {}, matchExpressions: []}",
            "namespaceSelector: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabels: {a: b}}, namespaces: [\"\"]",
            "namespaceSelector: Forbidden",
        ),
        (
            "namespaceSelector: {matchLabels: {a: b}}, namespaces: [\"\", a]",
            "namespaceSelector: Forbidden",
        ),
        (
            "namespaceSelector: {matchLabels: {\"-\": b}}",
            "namespaceSelector.matchLabels: Invalid value",
        ),
        (
            "namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: [\"1\"]}]}",
            "namespaceSelector.matchExpressions[0].operator: Invalid value",
        ),
        (
            "namespaceSelector: {matchLabel: {a: b}}",
            "unknown field `matchLabel`",
        ),
    ] {
        let mut faults = Faults::new();
        objects(&[selecting(rule, None)], &mut faults);
        assert!(faults.to_string().contains(said), "{rule}: {faults}");
    }
    let mut faults = Faults::new();
    objects(&[selecting("namespaceSelector: null", None)], &mut faults);
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn a_selector_of_which_nobody_tells_is_a_fault() {
    const TIER: &str = "namespaceSelector: {matchLabels: {tier: prod}}";
    let by_name = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}";
    let namespace = |cluster: Option<&str>| Source {
        cluster: cluster.map(Into::into),
        ..source("{apiVersion: v1, kind: Namespace, metadata: {name: a}}")
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let faulty = |sources: &[Source], callers: &[&str], watched: &[&str]| {
        let options = Options {
            clusters: names(callers),
            watched: names(watched),
            ..Options::default()
        };
        let (_, faults) = read(sources, &options);
        if faults.has_errors() {
            faults.to_string()
        } else {
            String::new()
        }
    };
    let of = |cluster| selecting(TIER, cluster);
    let said = "spec.resourceRules[0].namespaceSelector: Required value: no labels are known, because there are no Namespaces";
    assert!(faulty(&[of(None)], &[], &[]).contains(said));
    for (sources, callers, watched, missing) in [
        (vec![of(None)], vec!["east"], vec![], "`east`"),
        (vec![of(None)], vec!["east", "west"], vec!["east"], "`west`"),
        (
            vec![of(Some("east"))],
            vec!["east", "west"],
            vec!["west"],
            "`east`",
        ),
        (
            vec![of(Some("east")), namespace(Some("west"))],
            vec!["east"],
            vec![],
            "`east`",
        ),
        (
            vec![of(None), namespace(Some("west"))],
            vec!["east"],
            vec![],
            "`east`",
        ),
    ] {
        let faults = faulty(&sources, &callers, &watched);
        assert!(
            faults.contains(said) && faults.contains(missing),
            "{callers:?} {watched:?}: {faults}"
        );
    }
    for (sources, callers, watched) in [
        (vec![selecting(by_name, None)], vec!["east"], vec![]),
        (vec![of(None), namespace(None)], vec!["east"], vec![]),
        (vec![of(None), namespace(None)], vec![], vec![]),
        (vec![of(None)], vec!["east"], vec!["east"]),
        (
            vec![of(Some("east")), namespace(Some("east"))],
            vec!["east", "west"],
            vec![],
        ),
        (
            vec![of(None), namespace(Some("east"))],
            vec!["east", "west"],
            vec!["west"],
        ),
    ] {
        assert_eq!(
            faulty(&sources, &callers, &watched),
            "",
            "{callers:?} {watched:?}"
        );
    }
}

#[test]
fn a_cluster_selects_by_its_own_namespaces_and_the_shared_ones() {
    let rule = "namespaceSelector: {matchLabels: {tier: prod}}";
    let namespace = |name: &str, cluster: Option<&str>| Source {
        cluster: cluster.map(Into::into),
        ..source(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{tier: prod}}}}}}"
        ))
    };
    let sources = [
        selecting(rule, None),
        namespace("all", None),
        namespace("own", Some("east")),
    ];
    let (manifests, faults) = load(&sources, &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let allows = |cluster: &str, namespace: &'static str| {
        let target = Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            ..ResourceAttributes::default()
        }));
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        let set = manifests.policies.for_cluster(cluster);
        set.authorize(&Attributes { user, target }, Time::UNIX_EPOCH)
            .decision
            == Decision::Allow
    };
    assert_eq!([allows("east", "all"), allows("east", "own")], [true, true]);
    assert_eq!([allows("west", "all"), allows("west", "own")], [true, false]);
}

#[test]
fn missing_namespace_is_of_admission_alone() {
    // With the name alone an unknown namespace would have no `tier`: the Allow would apply, the Deny would not.
    let allow = selecting(
        "namespaceSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}",
        None,
    );
    let mut deny = selecting("namespaceSelector: {matchLabels: {tier: prod}}", None);
    deny.text = deny.text.replace("effect: Allow", "effect: Deny");
    let known = source("{apiVersion: v1, kind: Namespace, metadata: {name: a}}");
    let options = Options {
        missing_namespace: MissingNamespace::NameOnly,
        ..Options::default()
    };
    for (policy, decision) in [(allow, Decision::NoOpinion), (deny, Decision::Deny)] {
        let (manifests, faults) = load(&[policy, known.clone()], &options);
        let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
        let target = Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            resource: "pods".into(),
            namespace: "unknown".into(),
            ..ResourceAttributes::default()
        }));
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        let answer = manifests
            .policies
            .for_cluster("default")
            .authorize(&Attributes { user, target }, Time::UNIX_EPOCH);
        assert_eq!(
            answer.decision, decision,
            "its labels are not known, whatever admission takes them to be"
        );
    }
}
