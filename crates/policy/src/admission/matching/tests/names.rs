//! One resource under several names.

use super::*;

fn subject<'s>(request: &'s Request<'s>, equivalents: &'s Equivalents) -> MatchInput<'s> {
    static NAMESPACES: std::sync::LazyLock<FixedNamespaces> =
        std::sync::LazyLock::new(|| FixedNamespaces::new([]));
    MatchInput {
        request,
        object: None,
        namespaces: &*NAMESPACES,
        missing: MissingNamespace::NameOnly,
        equivalents,
    }
}

/// As which resource and kind a rule for this group, version and resource matches.
fn named(equivalents: &Equivalents, request: &Request<'_>, rule: [&str; 3]) -> Option<String> {
    let [group, version, resource] = rule;
    let constraints = Constraints {
        rules: vec![mk_rule(&[group], &[version], &[resource])],
        ..Constraints::default()
    };
    let is_candidate = {
        let index = Index::new([(&constraints, Arc::new(()))], equivalents);
        !index.candidates(request).is_empty()
    };
    let matched = constraints.matches(subject(request, equivalents)).unwrap()?;
    assert!(is_candidate, "the index does not know of {rule:?}");
    let (resource, kind) = (matched.resource(), matched.kind());
    Some(format!(
        "{}/{}, {}/{} {}",
        resource.group, resource.version, kind.group, kind.version, kind.kind
    ))
}

#[test]
fn a_rule_for_all_resources_of_a_group_means_those_of_others_that_are_the_same() {
    let known = Equivalents::kubernetes();
    let mut of_core = mk_request("v1/events", empty());
    of_core.request_kind = kind("v1/Event");
    let mut of_events = mk_request("events.k8s.io/v1/events", empty());
    of_events.request_kind = kind("events.k8s.io/v1/Event");
    let (core, events) = ("/v1, /v1 Event", "events.k8s.io/v1, events.k8s.io/v1 Event");
    for (request, rule, expected) in [
        (&of_core, ["events.k8s.io", "v1", "*"], Some(events)),
        (&of_core, ["events.k8s.io", "*", "events"], Some(events)),
        (&of_core, ["events.k8s.io", "v1", "*/*"], Some(events)),
        (&of_core, ["events.k8s.io", "v9", "*"], None),
        (&of_core, ["apps", "v1", "*"], None),
        (&of_core, ["", "v1", "*"], Some(core)),
        (&of_events, ["", "v1", "*"], Some(core)),
        (&of_events, ["", "v1", "pods"], None),
    ] {
        assert_eq!(named(&known, request, rule).as_deref(), expected, "{rule:?}");
    }
}

fn mk_definition() -> CustomResource {
    let definition = document(
        r#"{"kind": "CustomResourceDefinition", "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
                {"name": "v1", "served": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n"}}},
                {"name": "v1beta1", "served": true, "subresources": {"scale": {"specReplicasPath": ".spec.n"}}},
                {"name": "v1alpha1", "served": false, "subresources": null}]}}"#,
    );
    CustomResource::of(definition.root()).unwrap()
}

#[test]
fn a_custom_resource_has_the_versions_of_its_definition() {
    let known = Equivalents::kubernetes();
    let defined = known.with(std::iter::once(Arc::new(mk_definition())).collect());
    let mut whole = mk_request("example.com/v1/widgets", empty());
    whole.request_kind = kind("example.com/v1/Widget");
    let mut status = mk_request("example.com/v1/widgets", empty());
    status.request_kind = kind("example.com/v1/Widget");
    status.subresource = "status".into();
    let mut scale = mk_request("example.com/v1/widgets", empty());
    scale.request_kind = kind("autoscaling/v1/Scale");
    scale.subresource = "scale".into();
    let of = |version: &str| format!("example.com/{version}, example.com/{version} Widget");
    let scale_of = |version: &str| format!("example.com/{version}, autoscaling/v1 Scale");
    for (request, resource, version, with_definition, without) in [
        (&whole, "widgets", "v1", Some(of("v1")), Some(of("v1"))),
        (
            &whole,
            "widgets",
            "v1beta1",
            Some(of("v1beta1")),
            Some(of("v1beta1")),
        ),
        // Also one that is defined and not served.
        (
            &whole,
            "widgets",
            "v1alpha1",
            Some(of("v1alpha1")),
            Some(of("v1alpha1")),
        ),
        (&whole, "widgets", "v9", None, Some(of("v9"))),
        (&status, "widgets/status", "v1beta1", None, Some(of("v1beta1"))),
        (
            &scale,
            "widgets/scale",
            "v1",
            Some(scale_of("v1")),
            Some(scale_of("v1")),
        ),
        (
            &scale,
            "*/*",
            "v1beta1",
            Some(scale_of("v1beta1")),
            Some(scale_of("v1beta1")),
        ),
        (
            &scale,
            "widgets/scale",
            "v1alpha1",
            None,
            Some(scale_of("v1alpha1")),
        ),
    ] {
        let rule = ["example.com", version, resource];
        assert_eq!(named(&defined, request, rule), with_definition, "{rule:?}");
        assert_eq!(named(&known, request, rule), without, "{rule:?}");
    }
}
