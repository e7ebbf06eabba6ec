use super::*;
use crate::console::query::ViewQuery;
use crate::console::recent_decisions::RecentDecisions;

fn push_for(recent: &RecentDecisions, decision: Decision, user: &str) {
    let user = serde_json::Value::from(user);
    let decided = decision.as_str();
    let line = format!(
        r#"{{"cluster":"c","endpoint":"authorize","user":{user},"attributes":{{"verb":"get","resource":"pods"}},"decision":"{decided}","reason":"because"}}"#
    );
    recent.push(decision, "c", line.as_bytes());
}

fn stream(query: &str, last: Option<&str>, recent: &RecentDecisions) -> LiveStream {
    LiveStream::new(&ViewQuery::parse(query), last, recent).unwrap()
}

fn advance(live: &mut LiveStream, recent: &RecentDecisions) -> String {
    live.advance(&recent.since(live.position() + 1))
}

#[test]
fn denials_come_first_and_what_is_new_comes_once() {
    let recent = RecentDecisions::new(100);
    push_for(&recent, Decision::Allow, "before");
    let mut live = stream("", None, &recent);
    assert_eq!(advance(&mut live, &recent), "");
    push_for(&recent, Decision::Allow, "jane");
    push_for(&recent, Decision::Deny, "joe");
    let events = advance(&mut live, &recent);
    let at = |text: &str| events.find(text).unwrap_or_else(|| panic!("{text}: {events}"));
    assert!(at("event: denial") < at("joe") && at("joe") < at("event: decision"));
    assert!(at("event: decision") < at("jane"));
    assert!(!events.contains("before"), "{events}");
    assert!(events.ends_with("event: seen\nid: 3\ndata:\n\n"), "{events}");
    assert_eq!(advance(&mut live, &recent), "");
}

#[test]
fn a_browser_resumes_after_what_it_saw_last() {
    let recent = RecentDecisions::new(3);
    for user in ["a1", "b2", "c3", "d4", "e5"] {
        push_for(&recent, Decision::Deny, user);
    }
    let events = advance(&mut stream("", Some("3"), &recent), &recent);
    assert!(
        events.contains("d4") && events.contains("e5") && !events.contains("c3"),
        "{events}"
    );
    assert!(!events.contains("skipped"), "{events}");
    let events = advance(&mut stream("after=4", None, &recent), &recent);
    assert!(events.contains("e5") && !events.contains("d4"), "{events}");
    // Those between are gone: it is told how many.
    let events = advance(&mut stream("", Some("1"), &recent), &recent);
    assert!(events.contains("1 decisions came too fast"), "{events}");
    // A number of an earlier run of the gateway.
    assert_eq!(advance(&mut stream("", Some("99"), &recent), &recent), "");
    assert_eq!(stream("", Some("x"), &recent).position(), 5);
}

#[test]
fn a_batch_is_bounded_and_says_what_it_left_out() {
    let recent = RecentDecisions::new(10_000);
    let mut live = stream("", None, &recent);
    for number in 0..3000 {
        push_for(&recent, Decision::Allow, &format!("u{number}"));
    }
    push_for(&recent, Decision::Deny, "joe");
    let events = advance(&mut live, &recent);
    assert_eq!(events.matches("<tr").count(), MAX_ROWS + 1);
    assert!(events.contains("joe") && events.contains("u2999"), "{events}");
    assert!(events.contains("2975 decisions came too fast"), "{events}");
    // A rare one is found among many that others caused.
    let mut of_one = stream("user=u7&after=0", None, &recent);
    let events = advance(&mut of_one, &recent);
    assert_eq!(events.matches("<tr").count(), 1, "{events}");
}

#[test]
fn markup_and_line_breaks_in_names_stay_text() {
    let recent = RecentDecisions::new(10);
    let mut live = stream("", None, &recent);
    push_for(&recent, Decision::Deny, "<img src=x>\n\nevent: denial\ndata: <b>");
    let events = advance(&mut live, &recent);
    assert!(!events.contains("<img") && !events.contains("<b>"), "{events}");
    assert_eq!(events.matches("\nevent: denial").count(), 0, "{events}");
    assert_eq!(events.matches("event: denial").count(), 2, "{events}");
    for line in events.lines().filter(|line| !line.is_empty()) {
        let known = ["event: ", "data: ", "data:", "id: "];
        assert!(known.iter().any(|start| line.starts_with(start)), "{line}");
    }
}

const LINE: &str = r#"{"time":"2027-01-15T08:00:00.500000Z","cluster":"east","endpoint":"authorize","user":"j\"ne","groups":["dev","qa"],"attributes":{"verb":"get","namespace":"ns","group":"apps","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"locked"},"nearMisses":[{"kind":"RoleBinding","namespace":"ns","name":"readers","criterion":"verbs"}],"shadow":[{"kind":"Webhook","name":"images/check","decision":"deny"}],"webhooks":[{"configuration":"limits","webhook":"cpu"}]}"#;

fn kept() -> KeptDecision<'static> {
    KeptDecision {
        sequence: 1,
        decision: Decision::Deny,
        line: LINE.as_bytes(),
    }
}

#[test]
fn a_decision_meets_a_filter_by_every_field() {
    let request = LoggedDecision::read(LINE.as_bytes()).unwrap();
    for (query, expected) in [
        ("", true),
        ("user=j%22ne", true),
        ("user=jane", false),
        ("group=qa", true),
        ("group=q", false),
        ("verb=GET", true),
        ("verb=list", false),
        ("resource=deployments", true),
        ("resource=deployments.apps", true),
        ("resource=deployments.apps/scale", true),
        ("resource=deployments/scale", true),
        ("resource=deployments.other", false),
        ("resource=deployments/status", false),
        ("resource=pods", false),
        ("namespace=ns", true),
        ("namespace=other", false),
        ("policy=locked", true),
        ("policy=readers", true),
        ("policy=images/check", true),
        ("policy=limits", true),
        ("policy=limits/cpu", true),
        ("policy=lock", false),
        ("decision=deny", true),
        ("decision=allow", false),
        ("shadow=true", true),
        ("endpoint=authorize&cluster=east", true),
        ("endpoint=mutate", false),
        ("cluster=west", false),
        ("user=j%22ne&decision=allow", false),
        ("q=ns:n+denied&policy=locked", true),
        ("q=allowed", false),
        ("from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:01Z", true),
        ("from=2027-01-15T10:00:00%2B02:00", true),
        ("from=2027-01-15T08:00:00.6Z", false),
        ("to=2027-01-15T08:00:00.5Z", false),
    ] {
        let filter = DecisionFilter::read(&ViewQuery::parse(query), &[]).unwrap();
        assert_eq!(filter.matches(&request), expected, "{query}");
        assert!(filter.may_match(&kept()) || !expected, "{query}");
        assert_eq!(filter.query(), ViewQuery::parse(query));
    }
    let unmet = DecisionFilter::read(&ViewQuery::parse("user=alice"), &[]).unwrap();
    assert!(!unmet.may_match(&kept()), "what cannot be met is not read");
}

#[test]
fn each_part_of_a_filter_can_be_taken_away() {
    let query = ViewQuery::parse("q=ns:n+denied&user=a&from=2027-01-15T08:00:00Z");
    let filter = DecisionFilter::read(&query, &[]).unwrap();
    let parts = filter.parts();
    let parts: Vec<(&str, String)> = parts
        .iter()
        .map(|(text, rest)| (text.as_str(), rest.encode()))
        .collect();
    let expected = [
        ("ns:n", "user=a&from=2027-01-15T08%3A00%3A00Z&q=denied"),
        ("denied", "user=a&from=2027-01-15T08%3A00%3A00Z&q=ns%3An"),
        ("user=a", "q=ns%3An+denied&from=2027-01-15T08%3A00%3A00Z"),
        ("from=2027-01-15T08:00:00Z", "q=ns%3An+denied&user=a"),
    ];
    assert_eq!(parts, expected.map(|(text, rest)| (text, rest.to_owned())));
}

#[test]
fn what_no_decision_could_meet_is_an_error_that_says_what_could_be() {
    for (query, expected) in [
        (
            "decision=Denied",
            "decision: `Denied` is not supported: use `deny`, `allow`, `noOpinion`",
        ),
        ("shadow=no", "shadow: `no` is not supported: use `true`"),
        (
            "endpoint=/authorize",
            "endpoint: `/authorize` is not supported: use `authorize`, `validate`, `mutate`",
        ),
        ("user=a&user=b", "`user` is given more than once"),
        (
            "to=noon",
            "to: `noon` is not a time, such as `2027-01-15T08:00:00Z`",
        ),
    ] {
        let error = DecisionFilter::read(&ViewQuery::parse(query), &[]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = DecisionFilter::read(&ViewQuery::parse("usr=a"), &["after"]).unwrap_err();
    assert!(error.to_string().starts_with("`usr` is not known"), "{error}");
    DecisionFilter::read(&ViewQuery::parse("after=3"), &["after"]).unwrap();
}
