//! From a request of kubectl to its explanation, and to the question asked again.

use std::time::Instant;

use serde_json::{Value, json};
use thirtyfour::Key;

use crate::every_page::ask_for_everything;
use crate::servers::{self, NAMESPACE};

/// The links to decisions that the page shows, the first first.
const DECISIONS: &str = "Array.from(document.querySelectorAll('main a[href^=\"/live/\"]')).map(link => link.getAttribute('href'))";

#[test]
fn a_denial_is_seen_as_it_happens_with_its_cause_and_asked_again() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.open(&servers.url("/live?user=carol&resource=secrets&decision=deny"));
    let before = browser.script(&format!("return {DECISIONS};"), &[]);
    browser.wait_until("document.querySelector('[data-live]') !== null");
    let name = "a-secret-of-this-test";
    let start = Instant::now();
    let run = servers
        .cluster
        .kubectl("carol", &["get", "secret", name, "--namespace", NAMESPACE]);
    let answered = start.elapsed();
    let refused = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(refused.contains("contractors see no Secrets"), "{refused}");
    browser.wait_until(&format!(
        "document.querySelector('main').innerText.includes('{name}')"
    ));
    eprintln!(
        "kubectl was refused after {answered:?}; the denial was on the page {:?} after kubectl began",
        start.elapsed()
    );
    let after = browser.script(&format!("return {DECISIONS};"), &[]);
    let known = before.as_array().unwrap();
    let new: Vec<&Value> = after
        .as_array()
        .unwrap()
        .iter()
        .filter(|link| !known.contains(link))
        .collect();
    assert!(!new.is_empty(), "{after}");
    assert_eq!(
        Some(new[0]),
        after.as_array().unwrap().first(),
        "the newest comes first"
    );

    browser.click(&format!("main a[href=\"{}\"]", new[0].as_str().unwrap()));
    browser.wait_until(&format!("location.pathname === '{}'", new[0].as_str().unwrap()));
    let explanation = browser.text();
    for said in [
        "contractors-see-no-secrets",
        "contractors see no Secrets",
        "carol",
        name,
    ] {
        assert!(explanation.contains(said), "{said}: {explanation}");
    }
    browser.click("main a[href^=\"/what-if\"]");
    browser.wait_until("location.pathname === '/what-if'");
    let asked = browser.text();
    assert!(asked.contains("contractors-see-no-secrets"), "{asked}");
    for (field, value) in [
        ("user", "carol"),
        ("verb", "get"),
        ("resource", "secrets"),
        ("name", name),
    ] {
        let filled = browser.script(
            &format!("return document.querySelector('main [name={field}]').value;"),
            &[],
        );
        assert_eq!(filled, value, "{field}");
    }
    let asked = browser.script(
        "return [location.search, Array.from(new URLSearchParams(location.search))];",
        &[],
    );
    let by_page = servers.json(&format!("/what-if{}", asked[0].as_str().unwrap()));
    let by_command = servers.command(&flags(&asked[1]));
    assert_eq!(by_page, by_command);
    assert_eq!(by_page["decision"], "deny", "{by_page:#}");
}

/// The flags of `portcullis authorize` for the pairs of a query, which are named alike.
fn flags(query: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pairs = query.as_array().unwrap().iter();
    let flags = pairs.flat_map(|pair| [format!("--{}", text(&pair[0])), text(&pair[1])]);
    ["authorize".to_owned()].into_iter().chain(flags).collect()
}

#[test]
fn a_filter_shows_what_passes_it_and_nothing_else() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask_for_everything(&servers);
    let shown = |query: &str| {
        browser.open(&servers.url(&format!("/live?{query}")));
        browser
            .script(&format!("return {DECISIONS}.length;"), &[])
            .as_u64()
            .unwrap()
    };
    assert!(shown("user=alice") > 0);
    assert!(!browser.text().contains("carol"));
    assert!(shown("user=carol&decision=deny") > 0);
    assert!(shown("group=contractors&resource=secrets") > 0);
    assert!(shown(&format!("namespace={NAMESPACE}&verb=list")) > 0);
    assert!(shown("policy=contractors-see-no-secrets") > 0);
    assert_eq!(shown("user=nobody-of-this-name"), 0);
    assert_eq!(shown("user=alice&decision=deny"), 0);
    // Dora would list no pods: a policy in shadow mode says so, and she lists them.
    assert!(shown("user=dora&shadow=true") > 0, "{}", browser.text());
}

#[test]
fn a_search_is_completed_by_keyboard_and_each_of_its_words_is_taken_away_again() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask_for_everything(&servers);
    browser.open(&servers.url("/live"));
    let completions =
        "Array.from(document.querySelectorAll('[role=option]')).map(option => option.textContent)";
    browser.fill("#search", "denied user:caro");
    browser.wait_until(&format!("{completions}.includes('denied user:carol')"));
    browser.press(Key::Down);
    browser.press(Key::Enter);
    let typed = browser.script("return document.getElementById('search').value;", &[]);
    assert_eq!(typed, "denied user:carol ");
    browser.press(Key::Escape);
    browser.press(Key::Enter);
    browser.wait_until("location.search.includes('carol')");
    let shown = browser.text();
    assert!(shown.contains("carol") && !shown.contains("alice"), "{shown}");
    browser.click("[aria-label=\"Remove user:carol\"]");
    browser.wait_until("!location.search.includes('carol')");
    let left = browser.script(
        "return [document.getElementById('search').value, document.querySelectorAll('.chips a').length];",
        &[],
    );
    assert_eq!(left, json!(["denied", 1]));
}

/// A point of a chart leads to the decisions behind it, and times are read by people.
#[test]
fn times_are_relative_with_the_exact_one_on_hover() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask_for_everything(&servers);
    browser.open(&servers.url("/live"));
    browser.wait_until("/ ago$/.test(document.querySelector('tbody time').textContent)");
    let title = browser.script("return document.querySelector('tbody time').title;", &[]);
    assert!(title.as_str().unwrap().ends_with("Z in UTC"), "{title}");
}

/// What the JSON of a decision holds is what the decision log holds.
#[test]
fn a_decision_is_the_line_of_the_decision_log() {
    let Some(servers) = servers::shared() else { return };
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/of-the-log");
    assert_eq!(servers.cluster.status("carol", &path), 403);
    let logged = |line: &Value| line.to_string().contains("of-the-log");
    let mut line = None;
    assert!(crate::harness::eventually(|| {
        line = servers.gateway.decisions().into_iter().find(logged);
        line.is_some()
    }));
    let shown = servers.json("/live?user=carol&resource=secrets");
    let shown = shown.to_string();
    let line = line.unwrap();
    for field in ["decision", "reason", "revision"] {
        if let Some(text) = line[field].as_str() {
            assert!(
                shown.contains(&json!(text).to_string()),
                "{field} of {line} is not in {shown}"
            );
        }
    }
}
