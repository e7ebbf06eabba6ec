//! Expressions of conditions, by what they come to for every request.

use proptest::prelude::*;

use super::{UNLIMITED, cases, instants, targets, users};
use crate::authorization::condition::{Condition, RequestActivation};
use crate::authorization::proof::predicates::RegionExpression;
use crate::authorization::proof::rules::PolicyRegions;
use crate::authorization::proof::{Outcomes, ProofLimitError, Region, WorkLimit};
use crate::authorization::{Effect, PolicySet, fixtures};
use crate::model::{Attributes, Deadline, User};

fn parts_where(region: &Region, expression: &str, outcomes: Outcomes) -> Vec<Region> {
    RegionExpression::new(expression)
        .parts(region, outcomes, UNLIMITED)
        .unwrap()
}

/// Expressions that compare texts with constants, and some that do more.
fn expressions() -> impl Strategy<Value = String> {
    let atoms = vec![
        "true",
        "request.user == 'u1'",
        "request.user != 'system:serviceaccount:a:s'",
        "request.user in ['u1', 'x', 'y']",
        "request.user.startsWith('system:')",
        "request.user.endsWith('1')",
        "request.user.contains(':a')",
        "request.user.matches('^(u|s.*:s$)')",
        "request.user.size() >= 2",
        "request.uid != ''",
        "request.uid.startsWith('a')",
        "'g1' in request.groups",
        "request.groups.exists(g, g.startsWith('g') || g == 'h')",
        "request.groups.all(g, g != 'h')",
        "request.groups.all(g, g.endsWith('1'))",
        "has(request.resourceAttributes)",
        "has(request.resourceAttributes.labelSelector)",
        "request.resourceAttributes.namespace.startsWith('a')",
        "request.resourceAttributes.namespace.endsWith('b')",
        "'ab' == request.resourceAttributes.namespace",
        "request.resourceAttributes.name.matches('n[13]')",
        "request.resourceAttributes.name == request.resourceAttributes.namespace",
        "request.resourceAttributes.version == 'v1'",
        "request.nonResourceAttributes.path.endsWith('b')",
        "request.nonResourceAttributes.path == '/a'",
        "request.extra['x'][0] == 'y'",
        "'x' in request.extra",
        "has(request.extra.x)",
        "request.extra['x'].exists(v, v == 'y')",
        "request.extra.x.exists(v, v.startsWith('y') || v.endsWith('z'))",
        "request.extra['x'].all(v, v != 'y')",
        "'z' in request.extra['a/b']",
    ];
    let atom = proptest::sample::select(atoms).prop_map(str::to_owned);
    atom.prop_recursive(3, 8, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.prop_map(|one| format!("!({one})")),
            several.clone().prop_map(|all| format!("({})", all.join(" && "))),
            several.prop_map(|any| format!("({})", any.join(" || "))),
        ]
    })
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn an_expression_holds_where_every_request_shows_it(expression in expressions(), targets in targets()) {
        let condition = Condition::compile(portcullis_cel::Version::NEWEST, "c", &expression).unwrap();
        let parts: Vec<(Outcomes, Vec<Region>)> = [Outcomes::HOLDS, Outcomes::FAILS, Outcomes::ERRORS]
            .into_iter()
            .map(|outcomes| {
                let all = [false, true].into_iter().flat_map(Region::of_each_caller);
                (outcomes, all.flat_map(|all| parts_where(&all, &expression, outcomes)).collect())
            })
            .collect();
        for part in parts.iter().flat_map(|(_, parts)| parts) {
            let example = part.example().expect("a part that is not empty");
            let is_told = part.conditions.iter().all(|(condition, _)| condition.test.is_some());
            prop_assert!(!is_told || part.contains(&example, instants()[0], None), "{example:?} of {part:?}");
        }
        let extras = [&[][..], &[("x", &[][..])], &[("x", &["y"]), ("a/b", &["z"])], &[("x", &["yz", "a"])], &[("a/b", &["a"])]];
        for (user, extra) in users().into_iter().zip(extras.iter().cycle()) {
            let extra = extra.iter().map(|(key, values)| {
                ((*key).into(), values.iter().map(|value| (*value).into()).collect())
            });
            let user = User { extra: extra.collect(), ..user };
            for target in &targets {
                let attributes = Attributes { user: user.clone(), target: target.clone() };
                let result = match condition.evaluate(&RequestActivation::new(&attributes)) {
                    Ok(true) => Outcomes::HOLDS,
                    Ok(false) => Outcomes::FAILS,
                    Err(_) => Outcomes::ERRORS,
                };
                for (outcomes, parts) in &parts {
                    let holding = parts.iter().filter(|part| part.contains(&attributes, instants()[0], None));
                    prop_assert_eq!(holding.count(), usize::from(*outcomes == result), "{:?}", attributes);
                }
            }
        }
    }
}

#[test]
fn what_no_text_passes_is_no_part() {
    for (expression, is_decided) in [
        ("request.user.endsWith('a') && request.user.endsWith('b')", true),
        (
            "request.user.startsWith('ab') && !request.user.contains('a')",
            true,
        ),
        ("request.user == 'ab' && request.user.matches('^b')", true),
        ("request.user.size() > 3 && request.user in ['a', 'b']", true),
        ("request.uid == 'a' && request.uid == 'b'", true),
        ("request.user.endsWith('a') && request.user != 'a'", false),
        ("request.user == request.uid && request.user == 'a'", false),
    ] {
        let found = parts_where(&Region::all(false, false), expression, Outcomes::HOLDS);
        assert_eq!(found.is_empty(), is_decided, "{expression}: {found:?}");
    }
    // What is so for all of them is said with no words.
    let all = parts_where(
        &Region::all(false, true),
        "request.user.contains('serviceaccount')",
        Outcomes::HOLDS,
    );
    assert_eq!(all, [Region::all(false, true)]);
}

#[test]
fn what_takes_too_many_steps_is_an_unknown() {
    // Each level asks the one below it several times.
    let nested = (0..20).fold("request.uid.contains('x')".to_owned(), |inner, _| {
        format!("(false || (true && {inner}))")
    });
    let found = parts_where(&Region::all(false, false), &nested, Outcomes::DOES_NOT_FAIL);
    let conditions: Vec<&str> = found
        .iter()
        .flat_map(Region::conditions)
        .map(|(text, _)| text)
        .collect();
    assert_eq!(conditions, [nested.as_str()]);
}

#[test]
fn an_expression_is_worked_out_until_the_deadline() {
    let times = std::cell::Cell::new(3);
    let expired = || {
        times.set(times.get() - 1);
        times.get() == 0
    };
    let late = WorkLimit {
        parts: usize::MAX,
        deadline: Deadline::new(&expired),
    };
    let expression = RegionExpression::new("request.user.endsWith('a') && request.user.contains('b')");
    let found = expression.parts(&Region::all(false, false), Outcomes::HOLDS, late);
    assert_eq!(found, Err(ProofLimitError::Deadline));
}

#[test]
fn parts_and_texts_of_conditions_count() {
    let regions = |expression: &str, parts| {
        let mut policy = fixtures::policy(Effect::Allow, "p");
        policy.resource_rules = vec![fixtures::rule(&["get"], &["pods"])];
        policy.conditions = vec![fixtures::condition(expression)];
        let limit = WorkLimit {
            parts,
            deadline: Deadline::NEVER,
        };
        PolicyRegions::new(&PolicySet::default(), &policy, limit).map(|regions| regions.rules.len())
    };
    let groups = "request.groups.exists(g, g == 'a' || g == 'b' || g == 'c' || g == 'd')";
    assert!(regions(groups, 100).is_ok());
    assert_eq!(regions(groups, 3), Err(ProofLimitError::Parts));
    let long = format!("request.user.contains('{}')", "a".repeat(50_000));
    assert!(regions(&long, 100).is_ok());
    assert_eq!(regions(&long, 10), Err(ProofLimitError::Parts));
}
