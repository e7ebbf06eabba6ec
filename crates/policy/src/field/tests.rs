use super::*;

#[test]
fn no_more_than_a_thousand_of_each_sort_are_kept_and_warnings_hide_no_error() {
    let warning = |number: usize| Fault::warning(Place::default(), FaultKind::Invalid, number.to_string());
    let error = |number: usize| Fault::error(Place::default(), FaultKind::Invalid, number.to_string());
    let mut faults = Faults::new();
    faults.extend((0..3 * MAX_FAULTS).map(warning));
    assert_eq!(
        (faults.len(), faults.is_full(), faults.has_errors()),
        (MAX_FAULTS + 1, true, false)
    );
    assert!(
        faults
            .to_string()
            .ends_with("there are more than 1000 warnings: correct these first")
    );
    faults.push(error(7));
    assert!(faults.has_errors() && faults.to_string().ends_with("\nInvalid value: 7"));
    let mut others = Faults::new();
    others.push(warning(0));
    others.append(faults);
    assert_eq!((others.len(), others.has_errors()), (MAX_FAULTS + 2, true));
    others.extend((0..3 * MAX_FAULTS).map(error));
    assert_eq!(others.len(), 2 * (MAX_FAULTS + 1));
    assert!(
        others
            .to_string()
            .ends_with("there are more than 1000 errors: correct these first")
    );
}

#[test]
fn names_file_line_object_and_path() {
    let place = Place {
        file: Some("a.yaml".into()),
        line: 12,
        column: 7,
        object: "AuthorizationPolicy/p".into(),
        path: FieldPath::root()
            .field("spec")
            .field("resourceRules")
            .index(0)
            .field("verbs"),
    };
    let fault = Fault::error(place, FaultKind::Required, "name at least one verb, or `*`");
    assert_eq!(
        fault.to_string(),
        "a.yaml:12:7: AuthorizationPolicy/p: spec.resourceRules[0].verbs: \
         Required value: name at least one verb, or `*`"
    );
}

#[test]
fn a_warning_forbids_nothing() {
    let mut faults = Faults::new();
    faults.push(Fault::warning(Place::default(), FaultKind::Invalid, "odd"));
    assert!(!faults.has_errors());
    assert_eq!(faults.to_string(), "warning: Invalid value: odd");
}

#[test]
fn what_is_kept_of_many_and_long_faults_is_bounded() {
    let place = |index: usize| Place {
        object: "Role/r".into(),
        path: FieldPath::root()
            .field("rules")
            .index(index)
            .key(&"k".repeat(5_000)),
        ..Place::default()
    };
    let mut faults = Faults::new();
    faults.extend((0..1_000).map(|index| Fault::error(place(index), FaultKind::Invalid, "ä".repeat(9_000))));
    let bounded = faults.bounded(3, 100);
    assert_eq!(bounded.len(), 4);
    assert!(bounded.to_string().len() < 600, "{bounded}");
    assert!(
        bounded
            .to_string()
            .ends_with("\nRole/r: Too many: 997 more errors"),
        "{bounded}"
    );
    assert!(bounded.iter().all(|fault| fault.place.path.steps().len() <= 2));
    let mut few = Faults::new();
    few.push(Fault::error(Place::default(), FaultKind::Invalid, "short"));
    assert_eq!(few.clone().bounded(3, 100), few);
}

#[test]
fn distances_are_those_of_the_textbook() {
    for (one, other, expected) in [
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("ab", "ba", 1),
        ("é", "e", 1),
    ] {
        assert_eq!(distance(one, other), expected, "{one} {other}");
        assert_eq!(distance(other, one), expected, "{other} {one}");
    }
}

#[test]
fn a_slip_has_a_nearest_word() {
    let words = ["pods", "policies", "deployments", "get", "delete"];
    for (written, meant) in [
        ("gett", Some("get")),
        ("gte", Some("get")),
        ("pod", Some("pods")),
        ("policy", Some("policies")),
        ("Pods", Some("pods")),
        ("deploymnets", Some("deployments")),
        ("widgets", None),
        ("x", None),
    ] {
        assert_eq!(nearest(written, words), meant, "{written}");
    }
}
