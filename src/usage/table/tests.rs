use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;
use crate::telemetry::decision_log::Record;
use portcullis_policy::model::Operator;
use portcullis_policy::model::{
    Attributes, Cause, CauseKind, Decision, Requirement, ResourceAttributes, Selectors, Target, User,
};

const MIB: usize = 1 << 20;

fn get(user: &str, namespace: &str, name: &str) -> Attributes<'static> {
    Attributes {
        user: User {
            name: user.to_owned().into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            ..User::default()
        },
        target: Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            namespace: namespace.to_owned().into(),
            version: "v1".into(),
            resource: "pods".into(),
            name: name.to_owned().into(),
            ..ResourceAttributes::default()
        })),
    }
}

/// Counts `asked`, so many seconds after a moment.
fn count(table: &mut UsageTable, cluster: &str, asked: &Attributes<'_>, seconds: u64) -> CountedIn {
    count_of("kube-apiserver", table, cluster, asked, seconds)
}

/// The same for this caller.
fn count_of(
    caller: &str,
    table: &mut UsageTable,
    cluster: &str,
    asked: &Attributes<'_>,
    seconds: u64,
) -> CountedIn {
    let cause = Cause {
        kind: CauseKind::RoleBinding,
        namespace: "shop".into(),
        name: "developers".into(),
        rule: Some(1),
    };
    let record = Record {
        time: UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds),
        revision: "each time another",
        cluster,
        caller,
        question: LoggedQuestion::Authorization(asked),
        decision: Decision::Allow,
        reason: "each time another",
        cause: Some(&cause),
        near_misses: &[],
        shadow: &[],
        exceptions: &[],
        webhooks: &[],
        evaluation_error: "",
        duration: Duration::from_nanos(seconds),
        redaction: None,
    };
    let mut text = String::new();
    let question = CountedQuestion::write(&record, &mut text);
    table.count(&question, &text)
}

/// The lines of a file, in order.
fn lines(table: &UsageTable) -> Vec<Value> {
    let mut out = Vec::new();
    table.write(&mut out).unwrap();
    let mut lines: Vec<&str> = str::from_utf8(&out).unwrap().lines().collect();
    lines.sort_unstable();
    lines
        .into_iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The rows, without the table of digests.
fn rows(table: &UsageTable) -> Vec<Value> {
    let is_row = |line: &Value| line.get("digest").is_none();
    lines(table).into_iter().filter(is_row).collect()
}

#[test]
fn equal_questions_are_one_row() {
    let mut table = UsageTable::new(MIB, 1);
    for seconds in [5, 3, 9] {
        assert_eq!(
            count(&mut table, "east", &get("jane", "shop", "web"), seconds),
            CountedIn::Question
        );
    }
    count(&mut table, "east", &get("jane", "shop", "db"), 9);
    let [db, web, digests] = lines(&table).try_into().unwrap();
    assert_eq!(web["groupsDigest"], digests["digest"]);
    assert_eq!(digests["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(digests["digest"].as_str().unwrap().len(), 32);
    assert_eq!(db["count"], 1);
    assert_eq!(
        web,
        json!({
            "cluster": "east", "user": "jane", "groupsDigest": digests["digest"], "endpoint": "authorize",
            "attributes": {"verb": "get", "namespace": "shop", "resource": "pods", "name": "web"},
            "decision": "allow",
            "cause": {"kind": "RoleBinding", "namespace": "shop", "name": "developers", "rule": 1},
            "count": 3, "first": "2023-11-14T22:13:23Z", "last": "2023-11-14T22:13:29Z",
        })
    );
}

#[test]
fn selectors_and_extra_stand_once_and_what_names_a_token_never() {
    let mut table = UsageTable::new(MIB, 1);
    for (pod, scope) in [("web-1", "a"), ("web-2", "a"), ("web-1", "b")] {
        let mut asked = get("jane", "shop", "");
        asked.user.extra = vec![
            ("authentication.kubernetes.io/pod-name".into(), vec![pod.into()]),
            (
                "authentication.kubernetes.io/credential-id".into(),
                vec![format!("JTI={pod}").into()],
            ),
            ("scopes".into(), vec![scope.into()]),
        ];
        if let Target::Resource(resource) = &mut asked.target {
            resource.selectors = Selectors {
                field: Vec::new(),
                label: vec![Requirement {
                    key: "app".into(),
                    operator: Operator::In,
                    values: vec!["web".into()],
                }],
            };
        }
        count(&mut table, "east", &asked, 0);
    }
    let counts: Vec<u64> = rows(&table)
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 3);
    assert_eq!(counts.len(), 2, "by scope, not by Pod: {:?}", lines(&table));
    let text = format!("{:?}", lines(&table));
    assert!(!text.contains("JTI") && !text.contains("web-1"), "{text}");
    let selectors: Vec<Value> = lines(&table)
        .into_iter()
        .filter_map(|line| line.get("selectors").cloned())
        .collect();
    let expected =
        json!({"labelSelector": {"requirements": [{"key": "app", "operator": "In", "values": ["web"]}]}});
    assert_eq!(selectors, [expected]);
}

#[test]
fn a_user_that_asks_for_very_much_takes_its_part_and_no_more() {
    let mut table = UsageTable::new(MIB, 1);
    for number in 0..100_000 {
        count(
            &mut table,
            "east",
            &get("mallory", "shop", &format!("name-{number}")),
            number,
        );
        if number % 1000 == 0 {
            let asked = get(&format!("user-{number}"), &format!("namespace-{number}"), "web");
            assert_eq!(count(&mut table, "east", &asked, number), CountedIn::Question);
        }
    }
    let rows = rows(&table);
    let of = |user: &str| {
        rows.iter()
            .filter(move |row| row["user"] == user)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("user-99000").len(), 1);
    let mine = of("mallory");
    assert!(
        (10..MIB / USER_PART / ROW_BYTES).contains(&mine.len()),
        "{} rows",
        mine.len()
    );
    let total: u64 = mine.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(total, 100_000, "nothing is lost");
    let [other] = mine.iter().filter(|row| row["other"] == true).collect::<Vec<_>>()[..] else {
        panic!("{mine:?}")
    };
    assert_eq!(
        (&other["attributes"], &other["decision"], &other["endpoint"]),
        (&json!({"verb": "get"}), &json!("allow"), &json!("authorize"))
    );
    assert_eq!(other["last"], "2023-11-16T01:59:59Z");
}

#[test]
fn very_many_users_of_a_cluster_take_no_other_cluster_s_part() {
    let mut table = UsageTable::new(MIB, 2);
    let mut counted = Vec::new();
    for number in 0..20_000 {
        // Names that nobody has, of 64 KiB.
        let user = format!(
            "{number}-{}",
            "x".repeat(if number % 100 == 0 { 1 << 16 } else { 8 })
        );
        counted.push(count(&mut table, "west", &get(&user, "shop", "web"), 0));
    }
    assert_eq!(counted.last(), Some(&CountedIn::Other));
    for number in 0..300 {
        let asked = get(&format!("user-{number}"), "shop", "web");
        assert_eq!(
            count(&mut table, "east", &asked, 0),
            CountedIn::Question,
            "{number}"
        );
    }
    let mut out = Vec::new();
    table.write(&mut out).unwrap();
    assert!(out.len() < 2 * MIB, "{} bytes", out.len());
    let together: Vec<Value> = rows(&table)
        .into_iter()
        .filter(|row| row.get("user").is_none())
        .collect();
    let [other] = together.as_slice() else {
        panic!("{together:?}")
    };
    assert_eq!(
        (&other["cluster"], &other["other"]),
        (&json!("west"), &json!(true))
    );
    let total: u64 = rows(&table)
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(total, table.decisions());
}

#[test]
fn verbs_that_somebody_made_up_are_other() {
    let mut table = UsageTable::new(MIB, 1);
    for number in 0..20_000 {
        let mut asked = get("mallory", "shop", "web");
        if let Target::Resource(resource) = &mut asked.target {
            resource.verb = format!("verb-{number}").into();
        }
        count(&mut table, "east", &asked, 0);
    }
    let others: Vec<Value> = rows(&table)
        .into_iter()
        .filter(|row| row["other"] == true)
        .collect();
    let [other] = others.as_slice() else {
        panic!("{others:?}")
    };
    assert_eq!(other["attributes"], json!({"verb": "other"}));
}

#[test]
fn texts_that_were_cut_say_so() {
    let mut table = UsageTable::new(MIB, 1);
    let long = "n".repeat(1 << 16);
    assert_eq!(
        count(&mut table, "east", &get("jane", "shop", &long), 0),
        CountedIn::Question
    );
    let [row] = rows(&table).try_into().unwrap();
    assert_eq!(row["truncated"], true);
    assert!(row.to_string().len() < 4096, "{row}");
}

#[test]
fn what_callers_with_a_path_token_claim_takes_room_of_its_own() {
    let (mut table, asked) = (UsageTable::new(MIB, 2), get("jane", "shop", "web"));
    for number in 0..100_000 {
        let claimed = get("jane", "shop", &format!("claimed-{number}"));
        count_of("pathToken", &mut table, "east", &claimed, 1);
    }
    assert_eq!(count(&mut table, "east", &asked, 2), CountedIn::Question);
    count_of("pathToken", &mut table, "east", &asked, 3);
    let rows = rows(&table);
    let (claimed, proven): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["caller"] == "pathToken");
    assert_eq!((proven.len(), &proven[0]["cluster"]), (1, &json!("east")));
    assert!(claimed.len() > 1 && claimed.iter().all(|row| row["cluster"] == "east"));
}
