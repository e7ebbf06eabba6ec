use super::super::*;

type RequirementRow = (&'static str, Operator<'static>, &'static [&'static str]);

const IN: Operator<'static> = Operator::In;
const NOT_IN: Operator<'static> = Operator::NotIn;
const EXISTS: Operator<'static> = Operator::Exists;
const ABSENT: Operator<'static> = Operator::DoesNotExist;

fn requirements(written: &[RequirementRow]) -> Vec<Requirement<'static>> {
    let requirement = |(key, operator, values): &RequirementRow| Requirement {
        key: (*key).into(),
        operator: operator.clone(),
        values: values.iter().map(|&value| value.into()).collect(),
    };
    written.iter().map(requirement).collect()
}

fn labels(received: &[RequirementRow], written: &[RequirementRow]) -> bool {
    let received = Selectors {
        label: requirements(received),
        field: Vec::new(),
    };
    Narrowness::new(&received).implies(&Selectors {
        label: requirements(written),
        field: Vec::new(),
    })
}

fn fields(received: &[RequirementRow], written: &[RequirementRow]) -> bool {
    let received = Selectors {
        field: requirements(received),
        label: Vec::new(),
    };
    Narrowness::new(&received).implies(&Selectors {
        field: requirements(written),
        label: Vec::new(),
    })
}

#[test]
fn a_requirement_follows_from_narrower_ones() {
    let cases: &[(&[RequirementRow], RequirementRow)] = &[
        (&[("k", IN, &["a"])], ("k", IN, &["a"])),
        (&[("k", IN, &["a"])], ("k", IN, &["a", "b"])),
        (
            &[("k", IN, &["a", "b"]), ("k", IN, &["b", "c"])],
            ("k", IN, &["b"]),
        ),
        (
            &[("k", IN, &["a", "b"]), ("k", NOT_IN, &["a"])],
            ("k", IN, &["b"]),
        ),
        (
            &[("k", NOT_IN, &["a"]), ("k", IN, &["a", "b"])],
            ("k", IN, &["b"]),
        ),
        (&[("k", IN, &["a"]), ("k", IN, &["b"])], ("k", IN, &["z"])),
        (&[("k", IN, &["a"])], ("k", NOT_IN, &["b", "c"])),
        (&[("k", NOT_IN, &["a", "b"])], ("k", NOT_IN, &["a"])),
        (
            &[("k", NOT_IN, &["a"]), ("k", NOT_IN, &["b"])],
            ("k", NOT_IN, &["a", "b"]),
        ),
        (&[("k", ABSENT, &[])], ("k", NOT_IN, &["a"])),
        (&[("k", EXISTS, &[])], ("k", EXISTS, &[])),
        (&[("k", IN, &["a"])], ("k", EXISTS, &[])),
        (&[("k", ABSENT, &[])], ("k", ABSENT, &[])),
        (&[("k", EXISTS, &[]), ("k", ABSENT, &[])], ("k", IN, &["a"])),
        (&[("k", IN, &[""])], ("k", IN, &[""])),
        (&[("k", IN, &["a"]), ("other", IN, &["z"])], ("k", IN, &["a"])),
        (
            &[
                ("k", IN, &["a"]),
                ("k", Operator::Unknown(Cow::Borrowed("Gt")), &["5"]),
            ],
            ("k", IN, &["a"]),
        ),
    ];
    for (received, written) in cases {
        assert!(
            labels(received, std::slice::from_ref(written)),
            "{written:?} follows from {received:?}"
        );
    }
}

#[test]
fn a_requirement_does_not_follow_from_wider_or_other_ones() {
    let cases: &[(&[RequirementRow], RequirementRow)] = &[
        (&[], ("k", IN, &["a"])),
        (&[("k", IN, &["a", "b"])], ("k", IN, &["a"])),
        (&[("k", IN, &["a", "b"])], ("k", IN, &["a", "a"])),
        (&[("other", IN, &["a"])], ("k", IN, &["a"])),
        (&[("K", IN, &["a"])], ("k", IN, &["a"])),
        (&[("k", NOT_IN, &["b"])], ("k", IN, &["a"])),
        (&[("k", EXISTS, &[])], ("k", IN, &["a"])),
        (&[("k", IN, &["a"])], ("k", NOT_IN, &["a"])),
        (&[("k", NOT_IN, &["a"])], ("k", NOT_IN, &["a", "b"])),
        (&[("k", EXISTS, &[])], ("k", NOT_IN, &["a"])),
        (&[("k", NOT_IN, &["a"])], ("k", EXISTS, &[])),
        (&[("k", ABSENT, &[])], ("k", EXISTS, &[])),
        (&[("k", NOT_IN, &["a"])], ("k", ABSENT, &[])),
        (&[("k", IN, &["a"])], ("k", ABSENT, &[])),
        (&[("k", ABSENT, &[])], ("k", IN, &["a"])),
        // Nothing is proven by what is malformed or not known.
        (&[("k", IN, &[])], ("k", IN, &["a"])),
        (&[("k", NOT_IN, &[])], ("k", NOT_IN, &["a"])),
        (&[("k", EXISTS, &["a"])], ("k", EXISTS, &[])),
        (
            &[("k", Operator::Unknown(Cow::Borrowed("in")), &["a"])],
            ("k", IN, &["a"]),
        ),
        // Nor is what is written in such a way ever proven.
        (&[("k", IN, &["a"])], ("k", IN, &[])),
        (
            &[("k", IN, &["a"])],
            ("k", Operator::Unknown(Cow::Borrowed("Gt")), &["a"]),
        ),
    ];
    for (received, written) in cases {
        assert!(
            !labels(received, std::slice::from_ref(written)),
            "{written:?} from {received:?}"
        );
    }
}

#[test]
fn every_requirement_written_must_follow() {
    let both: &[RequirementRow] = &[("a", IN, &["x"]), ("b", IN, &["y"])];
    assert!(labels(both, both));
    assert!(!labels(&both[..1], both));
    assert!(labels(&[], &[]));
}

#[test]
fn fields_and_labels_are_told_apart() {
    let received = Selectors {
        field: requirements(&[("k", IN, &["a"])]),
        label: Vec::new(),
    };
    let narrowness = Narrowness::new(&received);
    assert!(narrowness.implies(&Selectors {
        field: requirements(&[("k", IN, &["a"])]),
        label: Vec::new()
    }));
    assert!(!narrowness.implies(&Selectors {
        label: requirements(&[("k", IN, &["a"])]),
        field: Vec::new()
    }));
}

#[test]
fn of_fields_only_in_and_not_in_prove_anything() {
    assert!(fields(&[("k", NOT_IN, &["a"])], &[("k", NOT_IN, &["a"])]));
    assert!(!fields(&[("k", ABSENT, &[])], &[("k", NOT_IN, &["a"])]));
    assert!(!fields(
        &[("k", EXISTS, &[]), ("k", ABSENT, &[])],
        &[("k", IN, &["a"])]
    ));
}

/// The work is linear in what is received and in the rule: the comparisons
/// below would be 10^10 otherwise, far more than a test run has time for.
#[test]
fn a_megabyte_of_requirements_costs_linear_time() {
    let many: Vec<Cow<'static, str>> = (0..100_000).map(|value| value.to_string().into()).collect();
    let one = |operator, values| Requirement {
        key: "k".into(),
        operator,
        values,
    };
    let mut label = vec![one(IN, many.clone()), one(NOT_IN, many[..50_000].to_vec())];
    label.extend((0..1_000).map(|_| one(IN, many[50_000..50_100].to_vec())));
    let received = Selectors {
        label,
        field: Vec::new(),
    };
    let narrowness = Narrowness::new(&received);
    let written = |values: &[Cow<'static, str>]| Selectors {
        label: vec![one(IN, values.to_vec())],
        field: Vec::new(),
    };
    assert!(narrowness.implies(&written(&many)));
    for _ in 0..500 {
        assert!(narrowness.implies(&written(&many[50_000..50_100])));
        assert!(!narrowness.implies(&written(&many[50_000..50_099])));
    }
}
