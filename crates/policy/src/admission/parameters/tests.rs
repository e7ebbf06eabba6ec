//! Which parameters a binding takes, and what happens where there are none.

use std::collections::BTreeMap;

use super::*;

fn mk_kind(kind: &str) -> ParamKind {
    ParamKind {
        api_version: "v1".into(),
        kind: kind.into(),
    }
}

fn mk_reference(target: ParamTarget, namespace: &str, not_found: NotFound) -> ParamRef {
    ParamRef {
        target,
        namespace: namespace.into(),
        not_found,
    }
}

fn mk_parameters() -> Parameters {
    Parameters::new(
        [
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"x","labels":{"l":"1"}}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"x","labels":{"l":"1"}}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"y"}}"#,
            r#"{"apiVersion":"v1","kind":"Limit","metadata":{"name":"all"}}"#,
        ]
        .map(|text| Arc::new(Document::parse(text).unwrap())),
    )
}

fn found(kind: &str, reference: &ParamRef, namespace: &str) -> Result<Vec<String>, ParamError> {
    let parameters = mk_parameters();
    let objects = parameters.collect(Some(&mk_kind(kind)), Some(reference), namespace)?;
    let names = objects.iter().flatten().map(|object| {
        let text = |pointer| object.root().pointer(pointer)?.as_str();
        format!(
            "{}/{}",
            text("/metadata/namespace").unwrap_or_default(),
            text("/metadata/name").unwrap()
        )
    });
    Ok(names.collect())
}

#[test]
fn a_policy_without_parameters_runs_once() {
    let parameters = mk_parameters();
    let reference = mk_reference(ParamTarget::Name("a".into()), "", NotFound::Deny);
    assert_eq!(parameters.collect(None, Some(&reference), "x").unwrap().len(), 1);
    assert_eq!(
        parameters
            .collect(Some(&mk_kind("ConfigMap")), None, "x")
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn names_are_looked_up_in_the_namespace_of_the_binding_or_the_request() {
    let named = |namespace| mk_reference(ParamTarget::Name("a".into()), namespace, NotFound::Deny);
    assert_eq!(found("ConfigMap", &named(""), "y").unwrap(), ["y/a"]);
    assert_eq!(found("ConfigMap", &named("x"), "y").unwrap(), ["x/a"]);
    assert_eq!(found("ConfigMap", &named(""), ""), Err(ParamError::NoNamespace));
    assert_eq!(found("ConfigMap", &named(""), "z"), Err(ParamError::NotFound));
    let all = mk_reference(ParamTarget::Name("all".into()), "", NotFound::Deny);
    assert_eq!(found("Limit", &all, "x").unwrap(), ["/all"]);
    let wrong = mk_reference(ParamTarget::Name("all".into()), "x", NotFound::Deny);
    assert_eq!(
        found("Limit", &wrong, "x"),
        Err(ParamError::NamespaceOfClusterScoped)
    );
}

#[test]
fn selectors_give_each_object_in_the_order_of_names() {
    let labels = BTreeMap::from([("l".to_owned(), "1".to_owned())]);
    let some = ParamTarget::Selector(LabelSelector::compile(&labels, &[]).unwrap());
    assert_eq!(
        found("ConfigMap", &mk_reference(some.clone(), "", NotFound::Deny), "x").unwrap(),
        ["x/a", "x/b"]
    );
    assert_eq!(
        found("ConfigMap", &mk_reference(some.clone(), "", NotFound::Allow), "y").unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        found("ConfigMap", &mk_reference(some, "", NotFound::Deny), "y"),
        Err(ParamError::NotFound)
    );
    let all = mk_reference(
        ParamTarget::Selector(LabelSelector::default()),
        "",
        NotFound::Allow,
    );
    assert_eq!(found("ConfigMap", &all, "x").unwrap().len(), 2);
    assert_eq!(
        found("Unknown", &all, "x"),
        Err(ParamError::NotServed("/v1, Kind=Unknown".into()))
    );
}

#[test]
fn a_kind_that_kubernetes_does_not_have_is_an_error_whatever_is_said_of_missing_ones() {
    for (api_version, kind, is_served) in [
        ("v1", "ConfigMap", true),
        ("v1", "ConfigMop", false),
        ("v2", "ConfigMap", false),
        ("apps/v1", "ConfigMap", false),
        // Of others it is not known.
        ("rules.example.com/v1", "ConfigMop", true),
    ] {
        let param_kind = ParamKind {
            api_version: api_version.into(),
            kind: kind.into(),
        };
        let reference = mk_reference(ParamTarget::Name("none".into()), "", NotFound::Allow);
        let found = Parameters::default().collect(Some(&param_kind), Some(&reference), "x");
        let group_version = if api_version.contains('/') { "" } else { "/" };
        let expected = format!(
            "failed to find resource referenced by paramKind: '{group_version}{api_version}, Kind={kind}'"
        );
        match found {
            Ok(found) => assert!(is_served && found.is_empty(), "{api_version} {kind}"),
            Err(fault) => {
                assert!(!is_served, "{api_version} {kind}");
                assert_eq!(fault.to_string(), expected);
            }
        }
    }
}

#[test]
fn what_may_be_missing_is_an_error() {
    let unknown = UnknownObjects {
        unknown_of_known_kinds: BTreeMap::from([(mk_kind("Limit"), BTreeSet::new())]),
        ..UnknownObjects::default()
    };
    let parameters = mk_parameters().with_unknown(Some(unknown));
    let collect = |kind: &str, target: ParamTarget| {
        let reference = mk_reference(target, "", NotFound::Allow);
        parameters
            .collect(Some(&mk_kind(kind)), Some(&reference), "x")
            .map(|found| found.len())
    };
    let named = |name: &str| ParamTarget::Name(name.into());
    let all = || ParamTarget::Selector(LabelSelector::default());
    let fault = ParamError::NotSynced("/v1, Kind=ConfigMap".into());
    assert_eq!(collect("ConfigMap", named("a")), Ok(1), "what is there is there");
    assert_eq!(collect("ConfigMap", named("absent")), Err(fault.clone()));
    assert_eq!(collect("ConfigMap", all()), Err(fault));
    assert_eq!(collect("Limit", named("absent")), Ok(0));
}

#[test]
fn what_was_left_out_is_an_error_where_it_may_be_meant() {
    let left_out = [("x", "c"), ("z", "a")].map(|(namespace, name)| (namespace.into(), name.into()));
    let unknown = UnknownObjects {
        unknown_of_known_kinds: BTreeMap::from([
            (mk_kind("ConfigMap"), left_out.into()),
            (
                mk_kind("Only"),
                BTreeSet::from([("x".to_owned(), "a".to_owned())]),
            ),
        ]),
        ..UnknownObjects::default()
    };
    let parameters = mk_parameters().with_unknown(Some(unknown));
    let collect = |kind: &str, namespace: &str, target: ParamTarget| {
        let reference = mk_reference(target, namespace, NotFound::Allow);
        let found = parameters.collect(Some(&mk_kind(kind)), Some(&reference), "y");
        found.map(|found| found.len())
    };
    let named = |name: &str| ParamTarget::Name(name.into());
    let all = || ParamTarget::Selector(LabelSelector::default());
    let fault = |kind: &str| Err(ParamError::LeftOut(format!("/v1, Kind={kind}")));
    assert_eq!(
        collect("ConfigMap", "x", named("a")),
        Ok(1),
        "another one of its namespace"
    );
    assert_eq!(collect("ConfigMap", "x", named("absent")), Ok(0));
    assert_eq!(collect("ConfigMap", "x", named("c")), fault("ConfigMap"));
    assert_eq!(collect("ConfigMap", "x", all()), fault("ConfigMap"));
    assert_eq!(
        collect("ConfigMap", "", all()),
        Ok(1),
        "that of another namespace"
    );
    assert_eq!(collect("Only", "x", named("a")), fault("Only"));
    assert_eq!(collect("Only", "", named("a")), Ok(0));
}

#[test]
fn where_an_object_cannot_be_told_no_list_is_complete() {
    let nameless = r#"{"apiVersion":"v1","kind":"Limit","metadata":{"labels":{"l":"1"}}}"#;
    let named = r#"{"apiVersion":"v1","kind":"Limit","metadata":{"name":"all"}}"#;
    let objects = [nameless, named].map(|text| Arc::new(Document::parse(text).unwrap()));
    let parameters = Parameters::new(objects);
    let collect = |target: ParamTarget| {
        let reference = mk_reference(target, "", NotFound::Allow);
        let found = parameters.collect(Some(&mk_kind("Limit")), Some(&reference), "x");
        found.map(|found| found.len())
    };
    let fault = ParamError::NotSynced("/v1, Kind=Limit".into());
    assert_eq!(collect(ParamTarget::Name("all".into())), Ok(1));
    assert_eq!(collect(ParamTarget::Name("other".into())), Err(fault.clone()));
    assert_eq!(
        collect(ParamTarget::Selector(LabelSelector::default())),
        Err(fault)
    );
}
