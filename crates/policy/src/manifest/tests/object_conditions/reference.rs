//! What `/validate` refuses, compared with what `/authorize` would decide, were the object known there; and
//! what is proven of policies whose object is not known.

use proptest::prelude::*;

use super::*;
use crate::authorization::NeverDeny;
use crate::authorization::proof::{InvariantProof, InvariantStatus, UnknownRoles, WorkLimit, difference};

/// A policy of the property: its verbs and names, and whether its objectConditions, if it has any, hold.
#[derive(Debug, Clone)]
struct Generated {
    verbs: Vec<&'static str>,
    names: Vec<&'static str>,
    resource: &'static str,
    holds: Option<bool>,
}

const VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

fn generated() -> impl Strategy<Value = Generated> {
    let verbs = prop::sample::subsequence(VERBS.to_vec(), 1..=4);
    let names = prop::sample::subsequence(vec!["p", "old"], 0..=1);
    let resource = prop::sample::select(vec!["pods", "pods/exec", "pods/resize"]);
    (verbs, names, resource, prop::option::weighted(0.7, any::<bool>())).prop_map(
        |(verbs, names, resource, holds)| {
            let mut verbs = verbs;
            if resource == "pods/exec" {
                verbs.retain(|verb| *verb != "deletecollection");
                verbs.push("get");
            }
            Generated {
                verbs,
                names,
                resource,
                holds,
            }
        },
    )
}

fn written(index: usize, one: &Generated, conditions: &str) -> String {
    let (verbs, names) = (one.verbs.join(", "), one.names.join(", "));
    let resource = one.resource;
    let rule = format!(r#"verbs: [{verbs}], apiGroups: [""], resources: [{resource}], names: [{names}]"#);
    policy(&format!("p{index}"), "Allow", &rule, conditions)
}

/// The reviews by which admission's request may have been allowed, each way all of its.
fn reviews(operation: Operation, resource: &str, name: &str) -> Vec<Vec<String>> {
    let one = |verb: &str, name: &str| format!("{verb} {resource} {name}").trim_end().to_owned();
    match operation {
        Operation::Create if resource.contains('/') => vec![vec![one("create", name)]],
        Operation::Create if name.is_empty() => vec![vec![one("create", "")]],
        Operation::Create => vec![
            vec![one("create", "")],
            vec![one("patch", name), one("create", name)],
            vec![one("update", name), one("create", name)],
        ],
        Operation::Update => vec![vec![one("update", name)], vec![one("patch", name)]],
        Operation::Delete if name.is_empty() => {
            let verbs = [
                ("deletecollection", ""),
                ("deletecollection", "old"),
                ("delete", "old"),
            ];
            verbs.map(|(verb, name)| vec![one(verb, name)]).into()
        }
        Operation::Delete => vec![vec![one("delete", name)]],
        Operation::Connect => ["get", "create"].map(|verb| vec![one(verb, name)]).into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `/validate` refuses a request if, and only if, `/authorize` would allow it by some of its reviews and
    /// would not by any, were it known then which objectConditions hold.
    #[test]
    fn validate_refuses_what_authorize_would_have_refused(
        policies in prop::collection::vec(generated(), 1..5),
        operation in prop::sample::select(vec![
            Operation::Create, Operation::Update, Operation::Delete, Operation::Connect,
        ]),
        resource in prop::sample::select(vec!["pods", "pods/resize"]),
        name in prop::sample::select(vec!["", "p", "q"]),
    ) {
        let is_connect = operation == Operation::Connect;
        let resource = if is_connect { "pods/exec" } else { resource };
        let name = match operation {
            Operation::Update | Operation::Connect if name.is_empty() => "p",
            _ if resource.contains('/') && name.is_empty() => "p",
            _ => name,
        };
        let conditional = |(index, one): (usize, &Generated)| {
            let expression = one.holds.map(|holds| {
                format!("objectConditions: [{{name: c, expression: \"{holds} || object.metadata.labels.is == 'x'\"}}]")
            });
            written(index, one, &expression.unwrap_or_default())
        };
        let known = |(index, one): (usize, &Generated)| match one.holds {
            Some(false) => String::new(),
            Some(true) | None => written(index, one, ""),
        };
        let set = policies_of(&policies.iter().enumerate().map(conditional).collect::<String>());
        let known = policies_of(&policies.iter().enumerate().map(known).collect::<String>());
        let ways = reviews(operation, resource, name);
        let allows = |set: &PolicySet, way: &Vec<String>| {
            way.iter().all(|one| authorizes(set, one) == Decision::Allow)
        };
        let expected = match operation {
            Operation::Connect => ways.iter().all(|way| !allows(&set, way) || allows(&known, way)),
            _ => !ways.iter().any(|way| allows(&set, way)) || ways.iter().any(|way| allows(&known, way)),
        };
        prop_assert_eq!(passes(&set, operation, resource, name, "y"), expected);
    }
}

// === proofs ===

#[test]
fn proofs_take_the_conditions_as_unknown() {
    let limit = WorkLimit {
        parts: 1_000,
        deadline: Deadline::NEVER,
    };
    let invariant = r#"
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: no-pods}
spec:
  only: []
  resourceRules: [{verbs: [create], apiGroups: [""], resources: [pods]}]
  enforcement: Refuse
"#;
    let status = |set: &PolicySet| {
        let proof = InvariantProof::of_set(set, Time::UNIX_EPOCH, limit).unwrap();
        let invariant = set.invariants().next().unwrap();
        match proof.status(invariant, UnknownRoles::GrantNothing) {
            InvariantStatus::Holds => String::new(),
            InvariantStatus::Broken(breaches) => breaches[0].region.to_string(),
            InvariantStatus::Undecided(why) => why,
            InvariantStatus::Unproven(limit) => limit.to_string(),
        }
    };
    let allow = policy("a", "Allow", PODS, GOOD);
    let broken = status(&policies_of(&(allow.clone() + invariant)));
    assert!(
        broken.contains("objectCondition good: object.metadata"),
        "{broken}"
    );
    // An Allow that grants nothing breaks nothing, and a Deny that depends on the object keeps nothing.
    let unknown = PolicySet::new(
        crate::authorization::Objects {
            policies: vec![
                policies_of(&allow)
                    .authorization_policies()
                    .next()
                    .unwrap()
                    .clone(),
            ],
            invariants: vec![(**policies_of(invariant).invariants().next().unwrap()).clone()],
            ..<_>::default()
        },
        &NeverDeny::nobody(),
    );
    assert_eq!(status(&unknown), "");
    let everything = policy("all", "Allow", PODS, "");
    let kept = status(&policies_of(
        &(everything + &policy("d", "Deny", PODS, GOOD) + invariant),
    ));
    assert!(kept.contains("objectCondition good"), "{kept}");
    // Another condition is a difference.
    let changed = allow.replace("== 'good'", "!= ''");
    let (old, new) = (policies_of(&allow), policies_of(&changed));
    assert!(
        !difference(&old, &new, Time::UNIX_EPOCH, limit)
            .unwrap()
            .is_empty()
    );
    assert!(
        difference(&old, &policies_of(&allow), Time::UNIX_EPOCH, limit)
            .unwrap()
            .is_empty()
    );
}
