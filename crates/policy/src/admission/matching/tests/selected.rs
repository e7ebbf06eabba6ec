//! Namespaces and objects, selected by their labels.

use super::*;

#[test]
fn namespaces_are_selected_by_their_labels() {
    let env = || mk_selector("env", "In", &["prod"]);
    let name = || mk_selector("kubernetes.io/metadata.name", "In", &["late"]);
    let cases = [
        (env(), "prod", Ok(true)),
        (env(), "plain", Ok(false)),
        (env(), "late", Err("late")),
        (name(), "late", Ok(true)),
        (name(), "plain", Ok(false)),
        (mk_selector("env", "NotIn", &["prod"]), "plain", Ok(true)),
        (LabelSelector::default(), "late", Ok(true)),
        (env(), "", Ok(true)),
    ];
    for (selector, namespace, expected) in cases {
        let mut request = mk_request("v1/pods", empty());
        request.namespace = namespace.into();
        let constraints = Constraints {
            namespace_selector: selector,
            ..Constraints::default()
        };
        let found = matched(&constraints, &request);
        let expected = expected.map_err(|name| MatchError::UnknownNamespace {
            name: name.to_owned(),
        });
        let found = found.as_ref().map(Option::is_some).map_err(ToString::to_string);
        assert_eq!(found, expected.map_err(|error| error.to_string()), "{namespace}");
    }
}

#[test]
fn a_namespace_is_judged_by_the_labels_it_is_to_have() {
    let constraints = Constraints {
        namespace_selector: mk_selector("env", "In", &["prod"]),
        ..Constraints::default()
    };
    let mut request = mk_request(
        "v1/namespaces",
        document(r#"{"metadata":{"labels":{"env":"\u0070rod"}}}"#),
    );
    request.namespace = "late".into();
    assert!(matched(&constraints, &request).unwrap().is_some());
    request.operation = Operation::Delete;
    assert!(matched(&constraints, &request).is_err());
    request.namespace = "prod".into();
    assert!(matched(&constraints, &request).unwrap().is_some());
}

#[test]
fn an_unknown_namespace_matters_only_to_what_would_apply() {
    let request = mk_request("v1/pods", empty());
    let constraints = Constraints {
        namespace_selector: mk_selector("env", "Exists", &[]),
        rules: vec![mk_rule(&["apps"], &["*"], &["*"])],
        ..Constraints::default()
    };
    assert_eq!(matched(&constraints, &request), Ok(None));
}

#[test]
fn objects_are_selected_new_or_old() {
    let selector = mk_selector("app", "In", &["web"]);
    let web = document(r#"{"metadata":{"labels":{"app":"web"}}}"#).root();
    let other = document(r#"{"metadata":{"labels":{"app":"db"}}}"#).root();
    let options = document(r#"{"container":"a"}"#).root();
    assert!(selects_object(&selector, Some(other), Some(web)));
    assert!(selects_object(&selector, Some(web), None));
    assert!(!selects_object(&selector, Some(other), None));
    assert!(!selects_object(
        &mk_selector("app", "DoesNotExist", &[]),
        Some(options),
        None
    ));
    assert!(selects_object(&LabelSelector::default(), None, None));
}

#[test]
fn a_namespace_that_is_not_known_may_be_taken_to_have_its_name_alone() {
    let (nobody, equivalents) = (FixedNamespaces::new([]), mk_equivalents());
    let mut request = mk_request("v1/pods", empty());
    request.namespace = "late".into();
    for (key, operator, values, selected) in [
        ("env", "In", &["prod"][..], false),
        ("env", "NotIn", &["prod"], true),
        ("env", "DoesNotExist", &[], true),
        ("kubernetes.io/metadata.name", "In", &["late"], true),
    ] {
        let constraints = Constraints {
            namespace_selector: mk_selector(key, operator, values),
            ..Constraints::default()
        };
        let matches = |missing| {
            let subject = MatchInput {
                request: &request,
                object: request.object,
                namespaces: &nobody,
                missing,
                equivalents: &equivalents,
            };
            constraints.matches(subject).map(|matched| matched.is_some())
        };
        assert_eq!(
            matches(MissingNamespace::NameOnly),
            Ok(selected),
            "{key} {operator}"
        );
        assert_eq!(
            matches(MissingNamespace::Fail).is_err(),
            key == "env",
            "{key} {operator}"
        );
    }
}
